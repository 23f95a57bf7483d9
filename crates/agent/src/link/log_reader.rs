//! Sends an attempt's log over a stream, never more than the server has credited.

use crate::error::AgentError;
use crate::link::stream_output::{StreamOutput, StreamOutputs};
use nix::unistd::{Whence, lseek};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use wire::stream::SendCredit;

/// The most bytes sent at once, so that a long log does not delay reports.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// How often a followed log is read again.
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);

/// Credits that the server grants while the stream is open.
pub(crate) type Grants = mpsc::Receiver<u32>;

pub(crate) struct LogReader {
    pub stream: u32,
    pub offset: u64,
    pub follow: bool,
    /// Opens the log; `None` before the job has written anything.
    pub open: Box<dyn Fn() -> Result<Option<File>, AgentError> + Send>,
    /// Becomes true when nothing more will be written.
    pub ended: watch::Receiver<bool>,
}

impl LogReader {
    /// The reader of no more than so many bytes at the end of what is there now.
    pub fn of_last(mut self, last: Option<u64>) -> Self {
        // A log that cannot be opened says so when it is read.
        if let Some(last) = last
            && let Ok(Some(file)) = (self.open)()
            && let Ok(known) = file.metadata()
        {
            self.offset = self.offset.max(known.len().saturating_sub(last));
        }
        self
    }

    /// Runs until the log has been sent, or until the server closes the stream.
    pub async fn run(mut self, mut grants: Grants, outputs: StreamOutputs) {
        let end = match self.send_all(&mut grants, &outputs).await {
            Ok(true) => None,
            Ok(false) => return,
            Err(error) => Some(error.to_string()),
        };
        // The session may have ended meanwhile, and the stream with it.
        let _ = outputs.send((self.stream, StreamOutput::End(end))).await;
    }

    /// Returns false if the server has closed the stream.
    async fn send_all(
        &mut self,
        grants: &mut Grants,
        outputs: &StreamOutputs,
    ) -> Result<bool, AgentError> {
        let mut credit = SendCredit::default();
        let mut file = None;
        let mut buffer = vec![0; OUTPUT_BYTES_MAX];
        loop {
            // Read before the log: everything written before the end is then sent.
            let ended = *self.ended.borrow();
            if file.is_none() {
                file = (self.open)()?;
            }
            let granted = credit.take(OUTPUT_BYTES_MAX);
            if granted == 0 {
                match grants.recv().await {
                    Some(bytes) => credit.grant(bytes),
                    None => return Ok(false),
                }
                continue;
            }
            let length = match &file {
                Some(file) => file
                    .read_at(&mut buffer[..granted], self.offset)
                    .map_err(|e| AgentError::file("read", "the attempt's log", e))?,
                None => 0,
            };
            // Asked after the read: what was there then, and is there still at its beginning, was there in whole.
            let data = file.as_ref().filter(|_| length > 0).map_or(self.offset, |file| {
                lseek(file, self.offset as i64, Whence::SeekData).unwrap_or(self.offset as i64)
                    as u64
            });
            if data > self.offset {
                let missed = data - self.offset;
                credit.grant(granted as u32);
                self.offset = data;
                if !self.say_missed(missed, &mut credit, grants, outputs).await {
                    return Ok(false);
                }
                continue;
            }
            credit.grant((granted - length) as u32);
            self.offset += length as u64;
            if length > 0 {
                let output = StreamOutput::Bytes(buffer[..length].to_vec());
                if outputs.send((self.stream, output)).await.is_err() {
                    return Ok(false);
                }
            } else if ended || !self.follow {
                return Ok(true);
            } else if !self.wait_for_more(grants, &mut credit).await {
                return Ok(false);
            }
        }
    }

    /// Tells a follower that has fallen behind what the log holds no more. Returns false if the server has closed the stream.
    async fn say_missed(
        &mut self,
        missed: u64,
        credit: &mut SendCredit,
        grants: &mut Grants,
        outputs: &StreamOutputs,
    ) -> bool {
        let line = format!("\n[sluice: {missed} bytes are no longer in the log]\n");
        while credit.left() < line.len() {
            match grants.recv().await {
                Some(bytes) => credit.grant(bytes),
                None => return false,
            }
        }
        credit.take(line.len());
        outputs.send((self.stream, StreamOutput::Bytes(line.into_bytes()))).await.is_ok()
    }

    async fn wait_for_more(&mut self, grants: &mut Grants, credit: &mut SendCredit) -> bool {
        tokio::select! {
            () = tokio::time::sleep(FOLLOW_PAUSE) => true,
            changed = self.ended.changed() => {
                if changed.is_err() {
                    // The attempt was forgotten: its log does not grow any more.
                    self.follow = false;
                }
                true
            }
            granted = grants.recv() => granted.map(|bytes| credit.grant(bytes)).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use wire::stream::WINDOW_BYTES;

    fn reader(path: &std::path::Path, ended: watch::Receiver<bool>, follow: bool) -> LogReader {
        let path = path.to_path_buf();
        LogReader {
            stream: 7,
            offset: 2,
            follow,
            open: Box::new(move || Ok(File::open(&path).ok())),
            ended,
        }
    }

    #[tokio::test]
    async fn log_is_followed_to_its_end() {
        let mut log = tempfile::NamedTempFile::new().expect("a file");
        log.write_all(b"__first").expect("written");
        let (end, ended) = watch::channel(false);
        let (_grant, grants) = mpsc::channel(4);
        let (send, mut outputs) = mpsc::channel(4);
        tokio::spawn(reader(log.path(), ended, true).run(grants, send));
        let mut next = async || match outputs.recv().await {
            Some((7, StreamOutput::Bytes(bytes))) => String::from_utf8(bytes).expect("text"),
            Some((7, StreamOutput::End(None))) => "end".to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(next().await, "first");
        log.write_all(b" second").expect("written");
        assert_eq!(next().await, " second");
        log.write_all(b" last").expect("written");
        end.send(true).expect("watched");
        assert_eq!(next().await, " last");
        assert_eq!(next().await, "end");
    }

    #[tokio::test]
    async fn reader_of_the_last_bytes_begins_there() {
        let mut log = tempfile::NamedTempFile::new().expect("a file");
        log.write_all(b"__first last").expect("written");
        let (_end, ended) = watch::channel(true);
        for (last, offset) in [(None, 2), (Some(4), 8), (Some(400), 2)] {
            let reader = reader(log.path(), ended.clone(), false).of_last(last);
            assert_eq!(reader.offset, offset, "{last:?}");
        }
    }

    #[tokio::test]
    async fn reader_behind_what_was_given_back_is_told_and_goes_on_with_what_is_there() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let hole = 1 << 20;
        log.as_file().write_all_at(b"__first", 0).expect("written");
        log.as_file().write_all_at(b"newest", 2 * hole).expect("written");
        let (_end, ended) = watch::channel(true);
        let (_grant, grants) = mpsc::channel(4);
        let (send, mut outputs) = mpsc::channel(1024);
        let reader = LogReader { offset: hole, ..reader(log.path(), ended, false) };
        tokio::spawn(reader.run(grants, send));
        let mut text = String::new();
        while let Some((7, StreamOutput::Bytes(bytes))) = outputs.recv().await {
            text += &String::from_utf8(bytes).expect("text");
        }
        assert_eq!(text, "\n[sluice: 1048576 bytes are no longer in the log]\nnewest");
    }

    #[tokio::test]
    async fn no_more_is_sent_than_was_credited() {
        let mut log = tempfile::NamedTempFile::new().expect("a file");
        log.write_all(&vec![b'x'; WINDOW_BYTES as usize + 1000]).expect("written");
        let (_end, ended) = watch::channel(true);
        let (grant, grants) = mpsc::channel(4);
        let (send, mut outputs) = mpsc::channel(1024);
        let task = tokio::spawn(reader(log.path(), ended, false).run(grants, send));
        let mut total = 0;
        while total < WINDOW_BYTES as usize {
            let Some((7, StreamOutput::Bytes(bytes))) = outputs.recv().await else {
                panic!("bytes wanted")
            };
            total += bytes.len();
        }
        assert_eq!(total, WINDOW_BYTES as usize);
        assert!(outputs.try_recv().is_err(), "the credit is used up");
        grant.send(WINDOW_BYTES).await.expect("wanted");
        task.await.expect("ended");
        assert!(
            matches!(outputs.recv().await, Some((7, StreamOutput::Bytes(b))) if b.len() == 998)
        );
        assert!(matches!(outputs.recv().await, Some((7, StreamOutput::End(None)))));
    }
}
