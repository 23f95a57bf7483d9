//! Apptainer and Singularity as runtime, for `.sif` files: called by the command line, as the job's user and in the job's
//! groups. It makes its own namespaces, and leaves nothing when its program has ended.

use super::users_program::{self, UsersProcess, name_of, wins};
use super::{ContainerError, ContainerSpec, files};
use image::Source;
use model::container::{Container, ContainerUser, Mount};
use nix::errno::Errno;
use std::ffi::{CString, OsStr};
use std::path::{Path, PathBuf};

/// Said of it in lines for users.
const NAME: &str = "Apptainer";
/// The start of variables that are set inside, whatever the image says: of Singularity, and of Apptainer.
const SINGULARITY: &str = "singularity";
const PREFIXES: [&str; 2] = ["SINGULARITYENV_", "APPTAINERENV_"];
/// Variables that a program finds in a container of theirs: the image, and the places of what is mounted there. A step of such a
/// program would have these places mounted again, from a node that does not have them.
const OF_CONTAINER: [&str; 2] = ["SINGULARITY_CONTAINER", "APPTAINER_CONTAINER"];
const BINDS: [&str; 2] = ["SINGULARITY_BIND", "APPTAINER_BIND"];
/// AMD's compute driver.
const AMD_COMPUTE: &str = "/dev/kfd";

/// The file of a container that Apptainer can run: a `.sif`, as the job's user or root inside, with the user's own folders.
/// `None` for what an OCI runtime is to do.
pub(super) fn image_of(request: &Container) -> Option<PathBuf> {
    let is_plain = matches!(request.user, ContainerUser::JobUser | ContainerUser::Root)
        && !request.isolated
        && !request.own_command
        && !request.takes_consent()
        && request.command.is_empty()
        && request.name.is_none()
        && request.save.is_none();
    match request.image.as_deref().filter(|_| is_plain)?.parse().ok()? {
        Source::Path { path, .. } => {
            Some(path).filter(|path| path.extension().and_then(OsStr::to_str) == Some("sif"))
        }
        Source::Registry(_) => None,
    }
}

/// A process that Apptainer is to run in a container.
pub(crate) struct ApptainerProcess {
    program: PathBuf,
    image: String,
    mounts: Vec<Mount>,
    process: UsersProcess,
}

impl ApptainerProcess {
    pub(super) fn prepare(
        program: PathBuf,
        image: &Path,
        spec: &ContainerSpec,
        environment: &[CString],
        rlimits: Vec<(String, u64, u64)>,
    ) -> Result<ApptainerProcess, ContainerError> {
        let image = Path::new(spec.image_dir).join(image);
        let image = image.to_str().ok_or("the image's path is no text")?.to_owned();
        let made = users_program::make_own_folder(spec, NAME)?;
        let mounts = users_program::mounts(spec, environment, &made, NAME)?;
        if let Some(mount) = mounts.iter().find(|mount| bind(mount).is_none()) {
            let Mount { source, target, .. } = mount;
            let why = format!("{NAME} takes no path with a comma or a colon in it");
            return Err(ContainerError::volume(format!("mount {source} on {target}: {why}")));
        }
        let process = UsersProcess::of(spec, rlimits);
        Ok(ApptainerProcess { program, image, mounts, process })
    }

    /// Becomes Apptainer, which runs the program. Returns only on failure, with the path that failed.
    pub fn execute(
        &self,
        spec: &ContainerSpec,
        argv: &[String],
        job: &[CString],
    ) -> (Errno, String) {
        let executed = self.environment(spec, job).and_then(|environment| {
            self.process.execute(&self.program, &self.words(spec, argv), &environment)
        });
        match executed {
            Ok(never) => match never {},
            Err(errno) => (errno, self.program.display().to_string()),
        }
    }

    /// The command line.
    fn words(&self, spec: &ContainerSpec, argv: &[String]) -> Vec<String> {
        let name = self.program.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // The image's run script is its entrypoint.
        let verb = if spec.request.entrypoint { "run" } else { "exec" };
        let flags = [
            ("--no-home", !spec.request.mount_home.unwrap_or(spec.site.mount_home)),
            ("--fakeroot", spec.request.user == ContainerUser::Root),
            ("--writable-tmpfs", !spec.request.read_only),
            ("--nv", spec.device_edits().has_driver),
            ("--rocm", spec.device_files().iter().any(|device| device.path == AMD_COMPUTE)),
        ];
        let mut words = vec![name, "--quiet", verb];
        words.extend(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| *flag));
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        if let Some(folder) = users_program::work_dir(spec) {
            words.extend(["--pwd".to_owned(), folder.to_owned()]);
        }
        for bind in self.mounts.iter().filter_map(bind) {
            words.extend(["--bind".to_owned(), bind]);
        }
        words.push(self.image.clone());
        words.extend(users_program::arguments(spec, argv));
        words
    }

    /// The job's variables, which those of the image win over but for those that the job named.
    fn environment(&self, spec: &ContainerSpec, job: &[CString]) -> nix::Result<Vec<CString>> {
        let is_singularity = self.program.file_name().is_some_and(|name| name == SINGULARITY);
        let prefix = PREFIXES[usize::from(!is_singularity)];
        let entries = job.iter().filter_map(|entry| entry.to_str().ok()?.split_once('='));
        let mut set: Vec<(String, String)> = entries
            .filter(|(name, _)| wins(spec, name))
            .map(|(name, value)| (format!("{prefix}{name}"), value.to_owned()))
            .collect();
        set.push((format!("{prefix}APPEND_PATH"), format!("{}/bin", files::OWN)));
        let state = users_program::socket_folder_of(job);
        let is_shown = |folder: &String| self.mounts.iter().any(|mount| mount.source == *folder);
        set.extend(state.filter(is_shown).map(|folder| ("SLUICE_STATE".to_owned(), folder)));
        let is_inside = job.iter().filter_map(name_of).any(|name| OF_CONTAINER.contains(&name));
        let is_kept = |entry: &&CString| {
            let is_set = |name: &str| set.iter().any(|(one, _)| one == name);
            let is_of_outer = |name: &str| is_inside && BINDS.contains(&name);
            name_of(entry).is_none_or(|name| !is_set(name) && !is_of_outer(name))
        };
        let mut all: Vec<CString> = job.iter().filter(is_kept).cloned().collect();
        for (name, value) in &set {
            all.push(CString::new(format!("{name}={value}")).map_err(|_| Errno::EINVAL)?);
        }
        Ok(all)
    }
}

/// A mount in the form of `--bind`; `None` if it has no such form.
fn bind(mount: &Mount) -> Option<String> {
    let Mount { source, target, read_only, .. } = mount;
    let is_word = |path: &str| !path.contains([',', ':']);
    let flags = if *read_only { ":ro" } else { "" };
    (is_word(source) && is_word(target)).then(|| format!("{source}:{target}{flags}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::container::ContainerName;

    #[test]
    fn apptainer_is_for_sif_files_of_the_user() {
        let image = |image: &str| Container { image: Some(image.into()), ..Container::default() };
        let sif = image("/images/x.sif");
        assert_eq!(image_of(&sif), Some("/images/x.sif".into()));
        let root = Container { user: ContainerUser::Root, ..sif.clone() };
        assert_eq!(image_of(&root), Some("/images/x.sif".into()));
        for other in [
            image("docker://alpine"),
            image("/images/x.sqsh"),
            image("/images/rootfs"),
            Container { user: ContainerUser::OfImage, ..sif.clone() },
            Container { isolated: true, ..sif.clone() },
            Container { save: Some("x".into()), ..sif.clone() },
            Container { name: ContainerName::parse("n").ok(), ..sif.clone() },
            Container { privileged: true, ..sif },
            Container::default(),
        ] {
            assert_eq!(image_of(&other), None, "{other:?}");
        }
    }

    #[test]
    fn mounts_have_the_form_of_binds_where_they_can() {
        let mount = |source: &str, read_only| Mount {
            source: source.into(),
            target: "/inside".into(),
            read_only,
            optional: false,
        };
        assert_eq!(bind(&mount("/data", false)).as_deref(), Some("/data:/inside"));
        assert_eq!(bind(&mount("/data", true)).as_deref(), Some("/data:/inside:ro"));
        assert_eq!(bind(&mount("/a,b", true)), None);
    }
}
