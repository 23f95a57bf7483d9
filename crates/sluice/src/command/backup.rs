//! `sluice backup`: the whole state of a running server in one file.

use super::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::server::backup::archive::LineCheck;
use clap::Args;
use model::reason::Refusal;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::client::{Answer, BACKUP_PATH};

const MODE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Args)]
pub struct BackupArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// The new file; - for standard output
    file: PathBuf,
    /// With the logs of runs
    #[arg(long)]
    logs: bool,
    /// Without the server's keys: agents join anew after a restore, and secrets are lost. Needs no root
    #[arg(long)]
    without_keys: bool,
}

pub fn run(args: &BackupArgs) -> VerbResult {
    if args.file == Path::new("-") {
        let mut out = io::stdout().lock();
        let failed = VerbError::file("standard output");
        receive(args, &mut out)?;
        out.flush().map_err(failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut file = NewFile::create(&args.file).map_err(|error| not_made(&args.file, error))?;
    let bytes = receive(args, &mut file.file)?;
    file.keep().map_err(|error| not_made(&args.file, error))?;
    println!("{}: {bytes} bytes", args.file.display());
    Ok(ExitCode::SUCCESS)
}

/// Why the file cannot be made. One that is there is never written over: it may be the only backup.
fn not_made(path: &Path, error: io::Error) -> VerbError {
    if error.kind() != io::ErrorKind::AlreadyExists {
        return VerbError::file(path)(error);
    }
    VerbError::Message(format!(
        "{} exists already: a backup is written to a new file, so name another one",
        path.display()
    ))
}

/// Writes the backup to `out` as it comes; its length. One that is not whole is an error.
fn receive(args: &BackupArgs, out: &mut impl Write) -> Result<u64, VerbError> {
    let client = args.server.client()?;
    let path = format!("{BACKUP_PATH}?keys={}&logs={}", !args.without_keys, args.logs);
    let (mut check, mut bytes, mut failed) = (LineCheck::default(), 0, None);
    let mut progress = Progress::new();
    let said = client.stream(&path, |piece| {
        if let Err(error) = out.write_all(piece) {
            failed = Some(error);
            return false;
        }
        check.add(piece);
        bytes += piece.len() as u64;
        progress.show(bytes);
        true
    });
    progress.clear();
    if let Some(error) = failed {
        return Err(VerbError::file(&args.file)(error));
    }
    match said? {
        None if check.is_whole() => Ok(bytes),
        None => Err(VerbError::Message(
            "the backup broke off; the server's log says why. Nothing was kept".into(),
        )),
        Some(Answer::Refused(why @ Refusal::AccessDenied)) if !args.without_keys => {
            let text = format!(
                "{why}: the keys are for root on the server's machine; --without-keys leaves them out"
            );
            Err(VerbError::Message(text))
        }
        Some(Answer::Refused(why)) => Err(why.into()),
        Some(other) => Err(VerbError::Message(format!("the server answered {other:?}"))),
    }
}

/// How much has come, on a terminal.
struct Progress {
    is_shown: bool,
    next: Instant,
}

impl Progress {
    fn new() -> Self {
        Self { is_shown: io::stderr().is_terminal(), next: Instant::now() + PROGRESS_INTERVAL }
    }

    fn show(&mut self, bytes: u64) {
        if self.is_shown && Instant::now() >= self.next {
            self.next = Instant::now() + PROGRESS_INTERVAL;
            eprint!("\r{} MiB", bytes >> 20);
        }
    }

    fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

/// A file under a name of its own beside the wanted one, which it gets when it is whole. Removed if it is not.
struct NewFile {
    folder: OwnedFd,
    name: PathBuf,
    partial: PathBuf,
    file: File,
    is_kept: bool,
}

impl NewFile {
    fn create(path: &Path) -> io::Result<Self> {
        let name = path.file_name().ok_or(Errno::EISDIR)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let how = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let folder = openat(AT_FDCWD, parent, how, Mode::empty())?;
        let how = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        if openat(&folder, name, how, Mode::empty()).is_ok() {
            return Err(Errno::EEXIST.into());
        }
        let mut partial = std::ffi::OsString::from(".");
        partial.push(name);
        partial.push(format!(".{:032x}.partial", ::server::clock::random_u128()));
        let how = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
        let how = how | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&folder, partial.as_os_str(), how, MODE)?.into();
        let (name, partial) = (name.into(), partial.into());
        Ok(Self { folder, name, partial, file, is_kept: false })
    }

    fn keep(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let (folder, flags) = (&self.folder, RenameFlags::RENAME_NOREPLACE);
        renameat2(folder, &self.partial, folder, &self.name, flags)?;
        self.is_kept = true;
        File::from(open_again(folder)?).sync_all()
    }
}

fn open_again(folder: &OwnedFd) -> io::Result<OwnedFd> {
    Ok(openat(folder, ".", OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?)
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // What stays is found by its name.
            let _ = unlinkat(&self.folder, &self.partial, UnlinkatFlags::NoRemoveDir);
        }
    }
}
