//! Sends a file that a job writes over a stream, read by a process with the rights of the job's owner.
//!
//! A process, because the path is the owner's choice: it may lead to a file system of theirs that never answers, which
//! holds up nobody else there, and the process can be killed.

use crate::link::log_reader::Grants;
use crate::link::stream_output::{StreamOutput, StreamOutputs};
use crate::supervisor::owner::{self, OwnerAnswer};
use crate::wall_clock;
use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, watch};
use wire::order::UserIds;
use wire::stream::SendCredit;

/// The most bytes sent at once, so that a long file does not delay reports.
const OUTPUT_BYTES_MAX: usize = 32 << 10;
/// How often a followed file is read again.
const FOLLOW_PAUSE: Duration = Duration::from_millis(400);
/// How much of what the reading process says is kept.
const ERROR_BYTES_MAX: u64 = 512;
/// How many such processes there are at once on a node.
const READERS_MAX: usize = 32;

static READERS: Semaphore = Semaphore::const_new(READERS_MAX);

pub(crate) struct OutputFileReader {
    pub stream: u32,
    pub path: String,
    pub owner: UserIds,
    pub offset: u64,
    pub follow: bool,
    /// Becomes true when nothing more will be written.
    pub ended: watch::Receiver<bool>,
}

/// Why a reader stops early.
enum Stop {
    /// The server has closed the stream, or the session has ended.
    Closed,
    Failed(String),
}

impl OutputFileReader {
    /// Runs until the file has been sent, or until the server closes the stream.
    pub async fn run(mut self, mut grants: Grants, outputs: StreamOutputs) {
        let end = match self.send_all(&mut grants, &outputs).await {
            Ok(()) => None,
            Err(Stop::Closed) => return,
            Err(Stop::Failed(why)) => Some(why),
        };
        // The session may have ended meanwhile, and the stream with it.
        let _ = outputs.send((self.stream, StreamOutput::End(end))).await;
    }

    async fn send_all(&mut self, grants: &mut Grants, outputs: &StreamOutputs) -> Result<(), Stop> {
        let owner = self.owner_here().await?;
        let mut credit = SendCredit::default();
        loop {
            // Read before the file: everything written before the end is then sent.
            let ended = *self.ended.borrow();
            let goes_on = self.follow && !ended;
            let read = self.send_present(&owner, &mut credit, grants, outputs).await;
            match read {
                // The file is made when the job starts.
                Err(Stop::Failed(_)) if goes_on && self.offset == 0 => {}
                other => other?,
            }
            if !goes_on {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(FOLLOW_PAUSE) => {}
                // An attempt that was forgotten writes no more.
                changed = self.ended.changed() => self.follow = changed.is_ok(),
                granted = grants.recv() => credit.grant(granted.ok_or(Stop::Closed)?),
            }
        }
    }

    /// The owner by this node's user database, which may take its time.
    async fn owner_here(&self) -> Result<UserIds, Stop> {
        if !geteuid().is_root() {
            let own = geteuid().as_raw() == self.owner.uid;
            let other = || {
                Stop::Failed("this agent is not root and reads its own user's files only".into())
            };
            return own.then(|| self.owner.clone()).ok_or_else(other);
        }
        let (owner, today) = (self.owner.clone(), wall_clock::today());
        let found = tokio::task::spawn_blocking(move || owner::look_up(&owner, today)).await;
        match found {
            Ok(OwnerAnswer::Found(owner)) => Ok(owner),
            Ok(OwnerAnswer::Refused(fault)) => {
                Err(Stop::Failed(format!("the node refuses the owner: {fault:?}")))
            }
            Ok(OwnerAnswer::Failed(why)) => Err(Stop::Failed(why)),
            Err(error) => Err(Stop::Failed(error.to_string())),
        }
    }

    /// Sends what the file holds now beyond the offset.
    async fn send_present(
        &mut self,
        owner: &UserIds,
        credit: &mut SendCredit,
        grants: &mut Grants,
        outputs: &StreamOutputs,
    ) -> Result<(), Stop> {
        let _place = READERS.try_acquire().map_err(|_| {
            Stop::Failed(format!("{READERS_MAX} output files are read on this node already"))
        })?;
        let failed = |error: std::io::Error| Stop::Failed(format!("{}: {error}", self.path));
        let mut child = start_reading(&self.path, self.offset, owner).map_err(failed)?;
        let mut bytes = child.stdout.take().ok_or(Stop::Closed)?;
        let mut buffer = vec![0; OUTPUT_BYTES_MAX];
        loop {
            let granted = credit.take(OUTPUT_BYTES_MAX);
            if granted == 0 {
                credit.grant(grants.recv().await.ok_or(Stop::Closed)?);
                continue;
            }
            let read = tokio::select! {
                read = bytes.read(&mut buffer[..granted]) => Some(read.map_err(failed)?),
                more = grants.recv() => {
                    credit.grant(more.ok_or(Stop::Closed)?);
                    None
                }
            };
            let length = read.unwrap_or(0);
            credit.grant((granted - length) as u32);
            if read == Some(0) {
                break;
            }
            if length > 0 {
                self.offset += length as u64;
                let output = StreamOutput::Bytes(buffer[..length].to_vec());
                outputs.send((self.stream, output)).await.map_err(|_| Stop::Closed)?;
            }
        }
        self.verdict(child).await
    }

    async fn verdict(&self, mut child: Child) -> Result<(), Stop> {
        let mut said = String::new();
        if let Some(errors) = child.stderr.take() {
            // What it says is only a text for the user.
            let _ = errors.take(ERROR_BYTES_MAX).read_to_string(&mut said).await;
        }
        match child.wait().await {
            Ok(status) if status.success() => Ok(()),
            _ => {
                let why = said.lines().next().and_then(|line| line.rsplit(": ").next());
                Err(Stop::Failed(format!("{}: {}", self.path, why.unwrap_or("it cannot be read"))))
            }
        }
    }
}

/// Starts `tail` as the owner, from an offset to the present end.
fn start_reading(path: &str, offset: u64, owner: &UserIds) -> std::io::Result<Child> {
    let mut command = Command::new("tail");
    command.arg("-c").arg(format!("+{}", offset.saturating_add(1))).arg("--").arg(path);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    if geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        let groups: Vec<Gid> = owner.groups.iter().copied().map(Gid::from_raw).collect();
        let become_owner = move || {
            setgroups(&groups)?;
            setgid(gid)?;
            setuid(uid)?;
            Ok(())
        };
        // SAFETY: only system calls, on memory that was allocated before the fork.
        unsafe { command.pre_exec(become_owner) };
    }
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use tokio::sync::mpsc;

    fn own() -> UserIds {
        let (uid, gid) = (geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let user = nix::unistd::User::from_uid(geteuid()).ok().flatten();
        let name = user.map_or_else(|| uid.to_string(), |user| user.name);
        UserIds { name, uid, gid, groups: vec![gid] }
    }

    fn reader(path: &std::path::Path, ended: watch::Receiver<bool>) -> OutputFileReader {
        let path = path.display().to_string();
        OutputFileReader { stream: 7, path, owner: own(), offset: 0, follow: true, ended }
    }

    #[tokio::test]
    async fn file_is_followed_from_before_it_is_there_to_the_jobs_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("out");
        let (end, ended) = watch::channel(false);
        let (_grant, grants) = mpsc::channel(4);
        let (send, mut outputs) = mpsc::channel(4);
        tokio::spawn(reader(&path, ended).run(grants, send));
        let mut file = std::fs::File::create(&path).expect("a file");
        file.write_all(b"first").expect("written");
        let mut text = String::new();
        while text != "first" {
            match outputs.recv().await {
                Some((7, StreamOutput::Bytes(bytes))) => {
                    text += &String::from_utf8(bytes).expect("text")
                }
                other => panic!("{other:?}"),
            }
        }
        file.write_all(b" last").expect("written");
        end.send(true).expect("watched");
        let mut rest = String::new();
        while let Some((7, StreamOutput::Bytes(bytes))) = outputs.recv().await {
            rest += &String::from_utf8(bytes).expect("text");
        }
        assert_eq!(rest, " last");
    }

    #[tokio::test]
    async fn file_that_cannot_be_read_is_an_error_in_one_line() {
        let (_end, ended) = watch::channel(true);
        let (_grant, grants) = mpsc::channel(4);
        let (send, mut outputs) = mpsc::channel(4);
        reader(std::path::Path::new("/nonexist/out"), ended).run(grants, send).await;
        let Some((7, StreamOutput::End(Some(why)))) = outputs.recv().await else {
            panic!("an end")
        };
        assert_eq!(why, "/nonexist/out: No such file or directory");
    }
}
