//! dstack's `config.yml` in the folder of the configuration: projects with their backends, each read as a call would give it.
//! Credentials may be in files that it names.

use super::backend::{self, GivenBackend};
use dstack::server_settings;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub const FILE: &str = "config.yml";

/// The largest of these files.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(Debug, PartialEq)]
pub struct ProjectsFile {
    pub projects: Vec<ProjectOfFile>,
    /// The backends that no source here can be made for, a line each: the others act.
    pub refused: Vec<String>,
    /// What has no effect, a line each.
    pub notices: Vec<String>,
}

/// A project of the file, with its backends.
#[derive(Debug, PartialEq)]
pub struct ProjectOfFile {
    pub name: String,
    pub backends: Vec<GivenBackend>,
}

/// The projects of the file, where there is one, each backend with the text of the files that it names.
pub fn read(dir: &Path) -> Result<Option<ProjectsFile>, String> {
    let wrong = |why: String| format!("{FILE}: {why}");
    let Some(text) = read_secret(&dir.join(FILE)).map_err(wrong)? else { return Ok(None) };
    let file = dstack::yaml_file::values(text.as_bytes());
    let file = file.map_err(|fault| wrong(fault.to_string()))?;
    let mut notices = server_settings::notices_beside_slurm_conf(FILE, text.as_bytes());
    let (mut projects, mut refused) = (Vec::new(), Vec::new());
    for project in list(&file, "projects").map_err(wrong)? {
        let Some(name) = project["name"].as_str() else {
            return Err(wrong("projects: expected a `name` of each".into()));
        };
        let of_project = |why: String| wrong(format!("project {name}: {why}"));
        let mut backends = Vec::new();
        for given in list(project, "backends").map_err(of_project)? {
            if let Some(why) = backend::refused_type(given) {
                refused.push(of_project(format!("backend: {why}")));
                continue;
            }
            let given = with_texts(given, dir).map_err(of_project)?;
            let found = backend::read_of_file(&given, name);
            let found = found.map_err(|why| of_project(format!("backend: {why}")))?;
            let kind = found.source.kind.name();
            let told =
                found.notices.iter().map(|line| of_project(format!("backend {kind}: {line}")));
            notices.extend(told);
            backends.push(found);
        }
        projects.push(ProjectOfFile { name: name.to_owned(), backends });
    }
    Ok(Some(ProjectsFile { projects, refused, notices }))
}

/// A list, which may be missing or empty.
fn list<'v>(of: &'v Value, key: &str) -> Result<&'v [Value], String> {
    match &of[key] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        _ => Err(format!("{key}: expected a list")),
    }
}

/// The backend with `data` in the place of `filename`, of its `creds` or its `kubeconfig`.
fn with_texts(given: &Value, dir: &Path) -> Result<Value, String> {
    let mut given = given.clone();
    for key in ["creds", "kubeconfig"] {
        let Some(of) = given.get_mut(key).and_then(Value::as_object_mut) else { continue };
        let Some(Value::String(file)) = of.remove("filename") else { continue };
        if file.is_empty() {
            continue;
        }
        let wrong = |why: &str| format!("{key}.filename: {file}: {why}");
        let path = path_of(&file, dir, std::env::var_os("HOME").as_deref());
        let text = read_secret(&path).map_err(|why| wrong(&why))?;
        let text = text.ok_or_else(|| wrong("there is no such file"))?;
        of.insert("data".to_owned(), text.into());
    }
    Ok(given)
}

/// The file that is named: below the folder of `config.yml`, or with `~/` below the home, where there is one.
fn path_of(file: &str, dir: &Path, home: Option<&OsStr>) -> PathBuf {
    match file.strip_prefix("~/").zip(home) {
        Some((rest, home)) => Path::new(home).join(rest),
        None => dir.join(file),
    }
}

/// The text of a file that others may not read; `None` where there is none.
fn read_secret(path: &Path) -> Result<Option<String>, String> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err("permission denied: expected the server's user as its owner".into());
        }
        Err(error) => return Err(error.to_string()),
    };
    let facts = file.metadata().map_err(|e| e.to_string())?;
    if facts.mode() & 0o007 != 0 {
        return Err("others may read or change it: chmod o-rwx".into());
    }
    if facts.len() > FILE_BYTES_MAX {
        return Err(format!("{} bytes: expected at most {FILE_BYTES_MAX}", facts.len()));
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| e.to_string())?;
    Ok(Some(text))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A folder with these files, which nobody else reads.
    pub fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = dir.path().join(name);
            std::fs::write(&path, text).expect("a file");
            let mode = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(&path, mode).expect("a mode");
        }
        dir
    }

    #[test]
    fn files_that_others_read_and_long_ones_are_refused() {
        let text = "projects: [{name: a, backends: [{type: kubernetes, kubeconfig: {filename: kubeconfig}}]}]";
        let dir = folder(&[(FILE, text), ("kubeconfig", "hush")]);
        let mode = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(dir.path().join("kubeconfig"), mode).expect("a mode");
        let said = read(dir.path()).expect_err("others read it");
        assert!(said.contains("kubeconfig.filename: kubeconfig: others may read"), "{said}");
        let long = "#".repeat(FILE_BYTES_MAX as usize + 1);
        let said = read(folder(&[(FILE, &long)]).path()).expect_err("too long");
        assert!(said.contains("config.yml: 1048577 bytes: expected at most 1048576"), "{said}");
    }

    #[test]
    fn keys_of_config_yml_that_do_not_act_are_named_with_their_place() {
        let gcp = "{type: gcp, project_id: lab-1, regions: [us-east1], image: i, nat_check: true}";
        let text = format!("projects: [{{name: a, backends: [{gcp}]}}]\nplugins: [p]\n");
        let file = read(folder(&[(FILE, &text)]).path()).expect("it is good").expect("a file");
        let [plugins, nat] = file.notices.as_slice() else { panic!("{:?}", file.notices) };
        assert_eq!(plugins, "config.yml: `plugins` has no effect here: there are none");
        let place = "config.yml: project a: backend gcp: `nat_check` has no effect: ";
        assert!(nat.starts_with(place), "{nat}");
    }

    #[test]
    fn backend_of_a_type_without_a_source_is_refused_alone() {
        let pods = "{type: kubernetes, image: lab/base, runner_image: lab/sluice}";
        let runpod = "{type: runpod, creds: {type: api_key, filename: none, api_key: hush}}";
        let text = format!("projects: [{{name: a, backends: [{runpod}, {pods}]}}]\n");
        let file = read(folder(&[(FILE, &text)]).path()).expect("it is good").expect("a file");
        let kinds = file.projects[0].backends.iter().map(|backend| backend.source.kind.name());
        assert_eq!(kinds.collect::<Vec<_>>(), ["kubernetes"]);
        let line = "config.yml: project a: backend: type: \"runpod\": expected aws, gcp, lambda, kubernetes; \
                    others are provider programs of sluice.toml";
        assert_eq!(file.refused, [line]);
    }

    #[test]
    fn files_are_named_by_a_whole_path_or_below_the_folder_or_the_home() {
        let home = Some(OsStr::new("/home/ada"));
        for (file, home, expected) in [
            ("/keys/a", home, "/keys/a"),
            ("a", home, "/etc/slurm/a"),
            ("~/.kube/config", home, "/home/ada/.kube/config"),
            ("~/a", None, "/etc/slurm/~/a"),
        ] {
            assert_eq!(path_of(file, Path::new("/etc/slurm"), home), Path::new(expected));
        }
    }

    #[test]
    fn faults_of_config_yml_are_one_line_with_its_project() {
        for (text, words) in [
            ("projects: 3", "config.yml: projects: expected a list"),
            ("projects: [{backends: []}]", "config.yml: projects: expected a `name` of each"),
            ("projects: [{name: a, backends: {}}]", "project a: backends: expected a list"),
            (
                "projects: [{name: a, backends: [{type: aws, creds: {access_key: hush}}]}]",
                "project a: backend: creds.type: expected access_key or default",
            ),
            (
                "projects: [{name: a, backends: [{type: gcp, creds: {filename: none}}]}]",
                "project a: creds.filename: none: there is no such file",
            ),
        ] {
            let said = read(folder(&[(FILE, text)]).path()).expect_err(text);
            assert!(said.contains(words) && !said.contains("hush"), "{words}: {said}");
        }
    }
}
