//! Sends a file that a job writes over a stream.
//!
//! It is read by a process of its own ([`crate::output_reader`]), because the path is the owner's choice: it may lead to a
//! file system of theirs that never answers. The process can be killed, and holds up its owner's streams alone.

use crate::link::log_reader::Grants;
use crate::link::stream_output::{StreamOutput, StreamOutputs};
use crate::output_reader::ReadRequest;
use crate::privilege;
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use wire::order::UserIds;
use wire::stream::SendCredit;

/// The most bytes sent at once, so that a long file does not delay reports.
const OUTPUT_BYTES_MAX: usize = 32 << 10;
/// How often a followed file is read again.
const FOLLOW_PAUSE: Duration = Duration::from_millis(400);
/// How much of what the reading process says is kept, and how long its end is waited for.
const ERROR_BYTES_MAX: u64 = 512;
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// How many such processes one user, and all, may have at once on a node.
const READERS_OF_USER_MAX: usize = 4;
const READERS_MAX: usize = 64;

/// How many processes read for each user.
static READERS: Mutex<Option<HashMap<u32, usize>>> = Mutex::new(None);

/// One of the places of a user; given back when it is dropped.
struct ReaderPlace(u32);

impl ReaderPlace {
    fn take(uid: u32) -> Option<Self> {
        let mut readers = READERS.lock().expect("no panic with the readers held");
        let readers = readers.get_or_insert_default();
        let all: usize = readers.values().sum();
        let own = readers.entry(uid).or_default();
        if *own >= READERS_OF_USER_MAX || all >= READERS_MAX {
            return None;
        }
        *own += 1;
        Some(Self(uid))
    }
}

impl Drop for ReaderPlace {
    fn drop(&mut self) {
        let mut readers = READERS.lock().expect("no panic with the readers held");
        let readers = readers.get_or_insert_default();
        if let Some(own) = readers.get_mut(&self.0) {
            *own -= 1;
        }
        readers.retain(|_, count| *count > 0);
    }
}

pub(crate) struct OutputFileReader {
    pub stream: u32,
    pub path: String,
    pub owner: UserIds,
    pub offset: u64,
    pub follow: bool,
    /// Only this many bytes at the file's end are read; it has no effect on a file that is followed.
    pub last: Option<u64>,
    /// Becomes true when nothing more will be written.
    pub ended: watch::Receiver<bool>,
}

/// Why a reader stops early.
enum Stop {
    /// The server has closed the stream, or the session has ended.
    Closed,
    Failed(String),
    /// The user's places are taken.
    Busy,
}

impl OutputFileReader {
    /// Runs until the file has been sent, or until the server closes the stream.
    pub async fn run(mut self, mut grants: Grants, outputs: StreamOutputs) {
        let end = match self.send_all(&mut grants, &outputs).await {
            Ok(()) => None,
            Err(Stop::Closed) => return,
            Err(Stop::Failed(why)) => Some(why),
            Err(Stop::Busy) => Some(format!(
                "{READERS_OF_USER_MAX} output files of this user are read on the node already"
            )),
        };
        // The session may have ended meanwhile, and the stream with it.
        let _ = outputs.send((self.stream, StreamOutput::End(end))).await;
    }

    async fn send_all(&mut self, grants: &mut Grants, outputs: &StreamOutputs) -> Result<(), Stop> {
        let mut credit = SendCredit::default();
        loop {
            // Read before the file: everything written before the end is then sent.
            let ended = *self.ended.borrow();
            let goes_on = self.follow && !ended;
            match self.send_present(&mut credit, grants, outputs).await {
                Err(Stop::Busy) if goes_on => {}
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

    /// Sends what the file holds now beyond the offset.
    async fn send_present(
        &mut self,
        credit: &mut SendCredit,
        grants: &mut Grants,
        outputs: &StreamOutputs,
    ) -> Result<(), Stop> {
        let _place = ReaderPlace::take(self.owner.uid).ok_or(Stop::Busy)?;
        let failed = |error: std::io::Error| Stop::Failed(format!("the output reader: {error}"));
        let mut child = self.start_reading().await.map_err(failed)?;
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
        let verdict = tokio::time::timeout(END_TIMEOUT, verdict(child)).await;
        verdict.unwrap_or_else(|_| Err(Stop::Failed("the output reader does not end".into())))
    }

    async fn start_reading(&self) -> std::io::Result<Child> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["agent", "--read-output"]).env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (path, owner) = (self.path.clone(), self.owner.clone());
        let last = self.last.filter(|_| !self.follow);
        let (offset, only_user) = (self.offset, privilege::only_user());
        let request = ReadRequest { path, owner, offset, last, only_user };
        let request = serde_json::to_vec(&request)?;
        let mut child = command.spawn()?;
        if let Some(mut input) = child.stdin.take() {
            input.write_all(&request).await?;
        }
        Ok(child)
    }
}

/// How the process ended, in its own words.
async fn verdict(mut child: Child) -> Result<(), Stop> {
    let mut said = Vec::new();
    if let Some(errors) = child.stderr.take() {
        // What it says is only a text for the user.
        let _ = errors.take(ERROR_BYTES_MAX).read_to_end(&mut said).await;
    }
    match child.wait().await {
        Ok(status) if status.success() => Ok(()),
        _ => {
            let said = String::from_utf8_lossy(&said);
            let why = said.lines().next().unwrap_or("the output file cannot be read");
            Err(Stop::Failed(why.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_user_are_bounded_and_given_back() {
        let uid = u32::MAX - 7;
        let taken: Vec<_> =
            (0..READERS_OF_USER_MAX).filter_map(|_| ReaderPlace::take(uid)).collect();
        assert_eq!(taken.len(), READERS_OF_USER_MAX);
        assert!(ReaderPlace::take(uid).is_none());
        assert!(ReaderPlace::take(uid - 1).is_some());
        drop(taken);
        assert!(ReaderPlace::take(uid).is_some());
    }
}
