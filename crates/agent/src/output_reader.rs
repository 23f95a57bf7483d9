//! The process that reads a job's output file (`sluice agent --read-output`): it is started as root, becomes the job's owner
//! by this node's user database, and copies the file to its standard output.
//!
//! It changes its user after it was executed, so that whoever starts it never waits for a process of the owner's, and the
//! owner cannot trace it.

use crate::supervisor::owner::{self, OwnerAnswer};
use crate::wall_clock;
use model::os_text;
use nix::fcntl::OFlag;
use nix::unistd::{Gid, Uid, alarm, geteuid, setgid, setgroups, setuid};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use wire::order::UserIds;

/// How long the site's user directory may take.
const LOOK_UP_S: u32 = 10;

/// The longest request: a path and the groups of a user.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// What is asked of the process, on its standard input.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadRequest {
    pub path: String,
    pub owner: UserIds,
    pub offset: u64,
    /// No more than so many bytes at the end.
    pub last: Option<u64>,
    /// The only user whose jobs the agent runs, as which it reads; `None` for an agent that runs every user's.
    #[serde(default)]
    pub only_user: Option<u32>,
}

/// Copies what the file holds beyond the offset; the error is a text for the owner.
pub fn run() -> Result<(), String> {
    // The agent's end is its end.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL);
    let mut text = Vec::new();
    let read = io::stdin().take(REQUEST_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|e| format!("the request cannot be read: {e}"))?;
    let request: ReadRequest =
        serde_json::from_slice(&text).map_err(|e| format!("the request cannot be read: {e}"))?;
    become_owner(&request.owner, request.only_user)?;
    let out = io::stdout().lock();
    copy(&request, out).map_err(|error| format!("{}: {error}", request.path))
}

fn become_owner(ordered: &UserIds, only_user: Option<u32>) -> Result<(), String> {
    let own = geteuid();
    if let Some(only) = only_user.or_else(|| (!own.is_root()).then(|| own.as_raw())) {
        let other = "the agent is not root and reads the files of its own user only";
        return (only == ordered.uid).then_some(()).ok_or_else(|| other.to_owned());
    }
    // Whatever hangs in the directory's library ends with the process.
    alarm::set(LOOK_UP_S);
    let owner = match owner::look_up(ordered, wall_clock::today()) {
        OwnerAnswer::Found(owner) => owner,
        OwnerAnswer::Refused(fault) => {
            return Err(format!("the node refuses the owner: {fault:?}"));
        }
        OwnerAnswer::Failed(why) => return Err(format!("the user directory: {why}")),
    };
    alarm::cancel();
    let groups: Vec<Gid> = owner.groups.iter().copied().map(Gid::from_raw).collect();
    let became = setgroups(&groups)
        .and_then(|()| setgid(Gid::from_raw(owner.gid)))
        .and_then(|()| setuid(Uid::from_raw(owner.uid)));
    became.map_err(|errno| format!("cannot become user {}: {}", owner.uid, errno.desc()))
}

fn copy(request: &ReadRequest, mut out: impl Write) -> io::Result<()> {
    // A pipe is not waited for, and a terminal does not become ours.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let path = os_text::to_os(&request.path);
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let length = file.metadata()?.len();
    let from = request.last.map_or(0, |last| length.saturating_sub(last));
    file.seek(SeekFrom::Start(request.offset.max(from)))?;
    io::copy(&mut file, &mut out)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(path: &std::path::Path, offset: u64) -> Result<String, String> {
        copied_last(path, offset, None)
    }

    fn copied_last(
        path: &std::path::Path,
        offset: u64,
        last: Option<u64>,
    ) -> Result<String, String> {
        let owner = UserIds { name: "ada".into(), uid: 1, gid: 1, groups: Vec::new() };
        let (path, only_user) = (path.display().to_string(), None);
        let request = ReadRequest { path, owner, offset, last, only_user };
        let mut out = Vec::new();
        copy(&request, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn file_is_copied_from_its_offset_and_nothing_but_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, pipe) = (folder.path().join("out"), folder.path().join("pipe"));
        std::fs::write(&path, "first last").expect("a file");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
        assert_eq!(copied(&path, 0), Ok("first last".to_owned()));
        assert_eq!(copied(&path, 5), Ok(" last".to_owned()));
        assert_eq!(copied(&path, 50), Ok(String::new()));
        assert_eq!(copied_last(&path, 0, Some(4)), Ok("last".to_owned()));
        assert_eq!(copied_last(&path, 7, Some(4)), Ok("ast".to_owned()));
        assert_eq!(copied_last(&path, 0, Some(400)), Ok("first last".to_owned()));
        for other in [pipe.as_path(), folder.path()] {
            assert_eq!(copied(other, 0), Err("it is not a file".to_owned()));
        }
    }
}
