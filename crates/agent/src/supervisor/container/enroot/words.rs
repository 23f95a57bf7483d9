//! The words that Enroot gets: names of containers and images, mounts, variables, its configuration script, and what its list
//! says. Names and forms are those that Pyxis gives it.

use image::{Reference, Version};
use model::container::Mount;

/// The registry that Enroot asks where none is named.
const DOCKER_HUB: &str = "docker.io";

/// Functions of a configuration script. Enroot reads it as the user, with the job's variables. `hooks` runs when the image's
/// variables are in the file that the container is started with: the job's are added to them, and replace none.
const HOOKS: &str = r#"hooks() {
    local entry name
    while IFS= read -r -d '' entry; do
        name="${entry%%=*}"
        case "${name}" in
        PATH|PWD|OLDPWD|SHLVL|_|BASH*|ENROOT_*) continue ;;
        esac
        # The file has one variable a line.
        if [[ "${entry}" == *$'\n'* ]] || ! [[ "${name}" =~ ^[[:alpha:]_][[:alnum:]_]*$ ]]; then
            continue
        fi
        grep -q "^${name}=" "${ENROOT_ENVIRON}" || printf '%s\n' "${entry}" >> "${ENROOT_ENVIRON}"
    done < <(env -0)
    sed -i 's#^PATH=.*#&:/run/sluice/bin#' "${ENROOT_ENVIRON}"
}
"#;
/// Takes the place of the image's command script, which is its entrypoint.
const NO_ENTRYPOINT: &str = "rc() {\n    exec \"$@\"\n}\n";

/// Enters the working directory in the container, and becomes the program.
const IN_WORK_DIR: [&str; 3] =
    ["sh", "-c", "mkdir -p -- \"$0\" 2> /dev/null; cd -- \"$0\" && exec \"$@\""];

pub(super) fn configuration(with_entrypoint: bool) -> String {
    let rc = if with_entrypoint { "" } else { NO_ENTRYPOINT };
    format!("{HOOKS}{rc}")
}

/// The container of a step, or of all steps of a job that give it the same name.
pub(super) fn container_name(job: &str, step: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("pyxis_{job}_{name}"),
        None => format!("pyxis_{job}.{step}"),
    }
}

/// The image for `enroot import`. `user` is whose login it takes.
pub(super) fn uri(reference: &Reference, user: Option<&str>) -> String {
    let user = user.map(|user| format!("{user}@")).unwrap_or_default();
    let registry = Some(&reference.registry).filter(|host| *host != DOCKER_HUB);
    let registry = registry.map(|host| format!("{host}#")).unwrap_or_default();
    let repository = &reference.repository;
    match &reference.version {
        Version::Tag(tag) => format!("docker://{user}{registry}{repository}:{tag}"),
        Version::Digest(digest) => format!("docker://{user}{registry}{repository}@{digest}"),
    }
}

/// A line of Enroot's credentials: netrc's form.
pub(super) fn login(reference: &Reference, username: &str, password: &str) -> String {
    let host = match reference.registry.as_str() {
        DOCKER_HUB => "auth.docker.io",
        other => other,
    };
    format!("machine {host} login {username} password {password}\n")
}

/// A mount in the form of `--mount`: the fields of a line of fstab.
pub(super) fn mount(mount: &Mount) -> Result<String, String> {
    let Mount { source, target, read_only, .. } = mount;
    if source.contains(char::is_whitespace) || target.contains(char::is_whitespace) {
        return Err(format!("mount {source}:{target}: Enroot takes no path with a space in it"));
    }
    let flags = if *read_only { "rbind,ro" } else { "rbind" };
    Ok(format!("{source}:{target}:none:x-create=auto,{flags}"))
}

/// The program in its working directory.
pub(super) fn in_work_dir(work_dir: Option<&str>, argv: Vec<String>) -> Vec<String> {
    match work_dir {
        Some(folder) => {
            let words = IN_WORK_DIR.iter().map(|word| (*word).to_owned());
            words.chain([folder.to_owned()]).chain(argv).collect()
        }
        None => argv,
    }
}

/// The first process of a container, of what `enroot list --fancy` prints: a head with the names of the columns, then a line
/// for each process, on which the container's name may be left out if it is that of the line before.
pub(super) fn running_process(list: &str, container: &str) -> Option<i32> {
    let mut lines = list.lines();
    let head: Vec<&str> = lines.next()?.split_whitespace().collect();
    let column = head.iter().position(|word| *word == "PID")?;
    let line = lines.find(|line| line.split_whitespace().next() == Some(container))?;
    line.split_whitespace().nth(column)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::Source;
    use std::process::Command;

    fn reference(text: &str) -> Reference {
        match text.parse() {
            Ok(Source::Registry(reference)) => reference,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn images_are_named_as_enroot_names_them() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (given, expected) in [
            ("alpine", "docker://library/alpine:latest".to_owned()),
            ("docker://pytorch/pytorch:2.0", "docker://pytorch/pytorch:2.0".to_owned()),
            (
                "nvcr.io#nvidia/pytorch:24.01-py3",
                "docker://nvcr.io#nvidia/pytorch:24.01-py3".to_owned(),
            ),
            ("localhost:5000/x:1", "docker://localhost:5000#x:1".to_owned()),
            (&format!("h.example/x@{digest}"), format!("docker://h.example#x@{digest}")),
        ] {
            assert_eq!(uri(&reference(given), None), expected, "{given}");
        }
        assert_eq!(
            uri(&reference("nvcr.io#a/b:1"), Some("$oauthtoken")),
            "docker://$oauthtoken@nvcr.io#a/b:1"
        );
        assert_eq!(
            login(&reference("alpine"), "kim", "hush"),
            "machine auth.docker.io login kim password hush\n"
        );
        assert_eq!(container_name("7", "0", None), "pyxis_7.0");
        assert_eq!(container_name("7", "0", Some("torch")), "pyxis_7_torch");
    }

    #[test]
    fn mounts_are_lines_of_fstab() {
        let words = |text: &str| mount(&Mount::parse(text).expect(text));
        assert_eq!(words("/data"), Ok("/data:/data:none:x-create=auto,rbind".to_owned()));
        assert_eq!(words("/a:/b:ro"), Ok("/a:/b:none:x-create=auto,rbind,ro".to_owned()));
        assert!(words("/a b:/c").is_err_and(|why| why.contains("space")));
    }

    #[test]
    fn process_of_a_container_is_found_in_either_form_of_the_list() {
        let new = "NAME         PID    COMM  STATE  STARTED  TIME\npyxis_7_n    4711   sh    S+     10:01    00:00\n             4712   sleep S\n";
        let old = "NAME       SIZE  PID   STATE\nother      1K\npyxis_7_n  2.0G  99    S\n";
        assert_eq!(running_process(new, "pyxis_7_n"), Some(4711));
        assert_eq!(running_process(old, "pyxis_7_n"), Some(99));
        assert_eq!(running_process(old, "other"), None);
        assert_eq!(running_process("", "pyxis_7_n"), None);
    }

    /// The script does what it says in the shell that Enroot is written in.
    #[test]
    fn variables_of_the_job_are_added_to_those_of_the_image() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("conf"), configuration(false)).expect("written");
        std::fs::write(at("environ"), "PATH=/opt/bin\nCUDA_VERSION=12\n").expect("written");
        let script = format!(
            "set -euo pipefail; . {}; hooks; declare -f rc > /dev/null; rc echo ran",
            at("conf").display()
        );
        let said = Command::new("bash")
            .args(["-c", &script])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("ENROOT_ENVIRON", at("environ"))
            .env("ENROOT_DATA_PATH", "/x")
            .env("CUDA_VERSION", "11")
            .env("SLURM_JOB_ID", "7")
            .env("TWO_LINES", "a\nb")
            .output()
            .expect("bash");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        assert_eq!(said.stdout, b"ran\n");
        let variables = std::fs::read_to_string(at("environ")).expect("it is there");
        assert_eq!(variables, "PATH=/opt/bin:/run/sluice/bin\nCUDA_VERSION=12\nSLURM_JOB_ID=7\n");
    }
}
