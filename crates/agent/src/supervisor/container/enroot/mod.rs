//! Enroot as runtime, called as Pyxis calls it. It is a program of the user's: images and containers are in the user's own
//! folders, and everything is done with the user's rights, in the job's groups. The process that is to become the task imports
//! the image and creates the container if no process before it has, and then becomes `enroot start`.
//!
//! `words`: what Enroot is told; `left`: the removal of its containers.

pub(super) mod left;
mod words;

use super::container_error::no_image;
use super::save::{SaveTarget, save_when_told};
use super::users_program::{self, UsersProcess, name_of, wins, write_as_user};
use super::{ContainerError, ContainerSpec, check_name, tell_missing_mounts};
use crate::supervisor::process::credentials::as_user;
use image::{Reference, Source};
use left::Left;
use model::container::{Container, ContainerUser};
use model::os_text;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Variables of a step that a container has not seen that another step has started.
const OF_STEP: [&str; 5] = ["SLURM_", "SLUICE_", "DSTACK_", "PMI_", "CUDA_VISIBLE_DEVICES"];
/// Where Enroot looks for logins, in the folder of its settings.
const CREDENTIALS: &str = ".credentials";
/// Said of it in lines for users.
const NAME: &str = "Enroot";

/// An image that Enroot can take.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EnrootImage {
    Registry(Reference),
    /// A squashfs.
    File(PathBuf),
    /// The container has a name, and is there already.
    OfContainer,
}

impl EnrootImage {
    /// The image of a container that Enroot can run: as the job's user or root inside, from a registry or a squashfs, with the
    /// user's own folders. `None` for what an OCI runtime is to do.
    pub fn of(request: &Container) -> Option<EnrootImage> {
        let is_plain = matches!(request.user, ContainerUser::JobUser | ContainerUser::Root)
            && !request.isolated
            && !request.own_command
            && !request.privileged
            && request.command.is_empty();
        let image = request.image.as_deref().filter(|_| is_plain);
        let Some(image) = image else {
            let is_named = is_plain && request.name.is_some();
            return is_named.then_some(EnrootImage::OfContainer);
        };
        match image.parse().ok()? {
            Source::Registry(reference) => Some(EnrootImage::Registry(reference)),
            Source::Path { path, .. } => {
                let ending = path.extension().and_then(OsStr::to_str);
                let is_squashfs = matches!(ending, Some("sqsh" | "squashfs"));
                is_squashfs.then_some(EnrootImage::File(path))
            }
        }
    }
}

/// A process that Enroot is to run in a container.
pub(crate) struct EnrootProcess {
    program: PathBuf,
    container: String,
    /// A process of the container, if it runs and is to be joined.
    joined: Option<i32>,
    mounts: Vec<String>,
    /// The user's folder of what is made for this process.
    made: PathBuf,
    process: UsersProcess,
    /// Where this process saves the container to, or why it cannot.
    save_target: Option<Result<SaveTarget, String>>,
}

impl EnrootProcess {
    /// Imports the image and creates the container if it is not there.
    pub(super) fn prepare(
        program: PathBuf,
        image: &EnrootImage,
        spec: &ContainerSpec,
        environment: &[CString],
        rlimits: Vec<(String, u64, u64)>,
        save_target: Option<Result<SaveTarget, String>>,
        progress: &mut (dyn FnMut(&str) + Send),
    ) -> Result<EnrootProcess, ContainerError> {
        let made = users_program::make_own_folder(spec, NAME)?;
        let process = UsersProcess::of(spec, rlimits);
        let call = Call { program: &program, process: &process, environment };
        let (container, joined) = call.create_once(image, spec, &made, progress)?;
        let mounts = users_program::mounts(spec, environment, &made, NAME)?;
        let mounts = mounts.iter().map(words::mount).collect::<Result<Vec<String>, String>>()?;
        Ok(EnrootProcess { program, container, joined, mounts, made, process, save_target })
    }

    /// Becomes Enroot, which runs the program. Returns only on failure, with the path that failed.
    pub fn execute(
        self,
        spec: &ContainerSpec,
        argv: &[String],
        job: &[CString],
    ) -> (Errno, String) {
        let executed = self.words(spec, argv, job).and_then(|words| {
            self.process.execute(&self.program, &words, &self.environment(spec, job)?)
        });
        match executed {
            Ok(never) => match never {},
            Err(errno) => (errno, self.program.display().to_string()),
        }
    }

    /// Saves the container when its tasks have ended, and ends this process.
    pub fn save_and_exit(&self, spec: &ContainerSpec, job: &[CString]) -> ! {
        save_when_told(self.save_target.as_ref(), spec, None, |target| {
            let call = Call { program: &self.program, process: &self.process, environment: job };
            let partial = os_text::from_os(target.partial_path().into_os_string());
            call.run(&["export", "--output", &partial, &self.container], &[]).map(drop)
        })
    }

    /// The command line.
    fn words(
        &self,
        spec: &ContainerSpec,
        argv: &[String],
        job: &[CString],
    ) -> nix::Result<Vec<String>> {
        let argv = users_program::arguments(spec, argv);
        let argv = words::in_work_dir(users_program::work_dir(spec), argv);
        let mut words = vec!["enroot".to_owned()];
        match self.joined {
            Some(pid) => {
                words.push("exec".to_owned());
                for name in names(job).filter(|name| is_of_step(name) || wins(spec, name)) {
                    words.extend(["--env".to_owned(), name.to_owned()]);
                }
                words.push(pid.to_string());
            }
            None => {
                let configuration = self.made.join("conf");
                let text = words::configuration(spec.request.entrypoint);
                write_as_user(spec.user, &configuration, text.as_bytes(), 0o600)?;
                let configuration = configuration.display().to_string();
                words.extend(["start".to_owned(), "--conf".to_owned(), configuration]);
                for mount in &self.mounts {
                    words.extend(["--mount".to_owned(), mount.clone()]);
                }
                for name in names(job).filter(|name| wins(spec, name)) {
                    words.extend(["--env".to_owned(), name.to_owned()]);
                }
                words.push(self.container.clone());
            }
        }
        words.extend(argv);
        Ok(words)
    }

    /// The job's variables, with the settings of this container: those of the site's enroot.conf do not win over them.
    fn environment(&self, spec: &ContainerSpec, job: &[CString]) -> nix::Result<Vec<CString>> {
        let yes = |on: bool| if on { "y" } else { "n" }.to_owned();
        let mut settings = vec![
            ("ENROOT_MOUNT_HOME", yes(spec.request.mount_home.unwrap_or(spec.site.mount_home))),
            ("ENROOT_REMAP_ROOT", yes(spec.request.user == ContainerUser::Root)),
            ("ENROOT_ROOTFS_WRITABLE", yes(!spec.request.read_only)),
        ];
        let folder = users_program::socket_folder_of(job);
        let is_shown =
            |folder: &String| self.mounts.iter().any(|one| one.starts_with(&format!("{folder}:")));
        settings.extend(folder.filter(is_shown).map(|folder| ("SLUICE_STATE", folder)));
        let is_kept =
            |entry: &&CString| !settings.iter().any(|(name, _)| name_of(entry) == Some(name));
        let mut all: Vec<CString> = job.iter().filter(is_kept).cloned().collect();
        for (name, value) in &settings {
            all.push(CString::new(format!("{name}={value}")).map_err(|_| Errno::EINVAL)?);
        }
        Ok(all)
    }
}

/// The names of variables, as Enroot takes them.
fn names(environment: &[CString]) -> impl Iterator<Item = &str> {
    let is_name = |name: &&str| {
        let is_good = |c: char| c == '_' || c.is_ascii_alphanumeric();
        name.chars().all(is_good) && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    environment.iter().filter_map(name_of).filter(is_name)
}

fn is_of_step(name: &str) -> bool {
    OF_STEP.iter().any(|prefix| name.starts_with(prefix))
}

/// Calls of Enroot before its container runs.
struct Call<'a> {
    program: &'a Path,
    process: &'a UsersProcess,
    environment: &'a [CString],
}

impl Call<'_> {
    /// Calls Enroot as the user, and returns what it prints. The error is the last line that it says. The words are texts that
    /// stand for bytes.
    fn run(&self, words: &[&str], settings: &[(&str, &Path)]) -> Result<String, String> {
        let mut command = Command::new(self.program);
        command.args(words.iter().map(|word| os_text::to_os(word)));
        command.env_clear().stdin(Stdio::null());
        let entries = self.environment.iter().filter_map(|entry| entry.to_str().ok());
        command.envs(entries.filter_map(|entry| entry.split_once('=')));
        command.envs(settings.iter().copied());
        let process = self.process.clone();
        // SAFETY: this process has one thread, so that its child may do whatever it could.
        unsafe { command.pre_exec(move || process.begin().map_err(Into::into)) };
        let said = command.output().map_err(|e| format!("{}: {e}", self.program.display()))?;
        if said.status.success() {
            return Ok(String::from_utf8_lossy(&said.stdout).into_owned());
        }
        let errors = String::from_utf8_lossy(&said.stderr);
        let last = errors.lines().rfind(|line| !line.trim().is_empty());
        Err(format!("enroot {}: {}", words[0], last.unwrap_or("it says nothing").trim()))
    }

    /// Creates the container if no process before this one has. Returns its name, and a process of it if it runs and another
    /// step has made it.
    fn create_once(
        &self,
        image: &EnrootImage,
        spec: &ContainerSpec,
        made: &Path,
        progress: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(String, Option<i32>), String> {
        let failed = |e: std::io::Error| format!("{}: {e}", spec.folder.display());
        let private = fs::DirBuilder::new().recursive(true).mode(0o700).create(&spec.folder);
        private.map_err(failed)?;
        let lock = File::create(spec.folder.join("lock")).map_err(failed)?;
        let _turn =
            Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| failed(e.into()))?;
        let there = Left::read(&spec.folder);
        let is_of_other = there.as_ref().is_none_or(|there| there.step != spec.step);
        let mut joined = None;
        if let (Some(name), true) = (&spec.request.name, is_of_other) {
            if let Some(there) = &there {
                let list = self.run(&["list", "--fancy"], &[])?;
                joined = words::running_process(&list, &there.name);
            }
            check_name(name, there.is_some(), joined.is_some())?;
        }
        if let Some(there) = there {
            if joined.is_some() {
                tell_missing_mounts(spec, there.mounts.as_deref(), progress);
            }
            return Ok((there.name, joined));
        }
        let job = spec.folder.parent().and_then(Path::file_name).and_then(OsStr::to_str);
        // The folder has the attempt's name: the job's number comes first.
        let job = job.and_then(|name| name.split('.').next()).unwrap_or_default();
        let named = spec.request.name.as_ref().map(|named| named.name.as_str());
        let name = words::container_name(job, &spec.step, named);
        // Before there is anything to remove.
        let (step, mounts) = (&spec.step, &spec.request.mounts);
        let left = Left::new(self.program, &name, step, mounts, spec.user, self.environment);
        left.write(&spec.folder)?;
        self.create(&name, image, spec, made, progress).inspect_err(|_| {
            let _ = self.run(&["remove", "--force", &name], &[]);
            let _ = fs::remove_file(spec.folder.join(left::RECORD));
        })?;
        Ok((name, None))
    }

    fn create(
        &self,
        name: &str,
        image: &EnrootImage,
        spec: &ContainerSpec,
        made: &Path,
        progress: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), String> {
        let imported = made.join("image.sqsh");
        let file = match image {
            EnrootImage::OfContainer => {
                return Err(no_image(spec.request.name.as_ref()));
            }
            EnrootImage::File(path) => Path::new(spec.image_dir).join(path),
            EnrootImage::Registry(reference) => {
                progress(&format!("sluice: image {reference}: importing"));
                self.import(reference, spec, made, &imported)?;
                imported.clone()
            }
        };
        let file = file.to_str().ok_or("the image's path is no text")?;
        let created = self.run(&["create", "--name", name, file], &[]);
        // The container has the image's files; what is left here goes with the job.
        let _ = as_user(spec.user, || fs::remove_file(&imported));
        created.map(drop)
    }

    fn import(
        &self,
        reference: &Reference,
        spec: &ContainerSpec,
        made: &Path,
        to: &Path,
    ) -> Result<(), String> {
        let login = spec.credentials.as_ref();
        let mut settings = Vec::new();
        if let Some(login) = login {
            let text = words::login(reference, &login.username, &login.password);
            write_as_user(spec.user, &made.join(CREDENTIALS), text.as_bytes(), 0o600)
                .map_err(|e| format!("cannot write the login for Enroot: {}", e.desc()))?;
            settings.push(("ENROOT_CONFIG_PATH", made));
        }
        let user = login.map(|login| login.username.as_str()).or(reference.user.as_deref());
        let uri = words::uri(reference, user);
        let to = to.to_str().ok_or("the path of the scratch folder is no text")?;
        let imported = self.run(&["import", "--output", to, &uri], &settings);
        if login.is_some() {
            let _ = as_user(spec.user, || fs::remove_file(made.join(CREDENTIALS)));
        }
        imported.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::container::ContainerName;

    #[test]
    fn enroot_is_for_what_it_can_do() {
        let image = |image: &str| Container { image: Some(image.into()), ..Container::default() };
        let alpine = image("docker://alpine");
        assert!(matches!(EnrootImage::of(&alpine), Some(EnrootImage::Registry(_))));
        let root = Container { user: ContainerUser::Root, ..alpine.clone() };
        assert!(matches!(EnrootImage::of(&root), Some(EnrootImage::Registry(_))));
        let file = EnrootImage::File("/images/x.sqsh".into());
        assert_eq!(EnrootImage::of(&image("/images/x.sqsh")), Some(file));
        let name = ContainerName::parse("n").ok();
        let named = Container { name, ..Container::default() };
        assert_eq!(EnrootImage::of(&named), Some(EnrootImage::OfContainer));
        for other in [
            image("/images/x.sif"),
            image("/images/rootfs"),
            Container { user: ContainerUser::OfImage, ..alpine.clone() },
            Container { isolated: true, ..alpine.clone() },
            Container::default(),
        ] {
            assert_eq!(EnrootImage::of(&other), None, "{other:?}");
        }
    }
}
