//! A channel between threads whose receiver can be waited for with `poll`.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::time::Duration;

pub fn pollable_channel<T>() -> io::Result<(PollableSender<T>, PollableReceiver<T>)> {
    let (sender, receiver) = mpsc::channel();
    let (wake_reader, wake_writer) = UnixStream::pair()?;
    wake_reader.set_nonblocking(true)?;
    let sender = PollableSender { sender, wake_writer: Arc::new(wake_writer) };
    Ok((sender, PollableReceiver { receiver, wake_reader }))
}

/// `wake_writer` is the later field, so it is dropped later: a receiver that wakes for it finds the channel closed.
pub struct PollableSender<T> {
    sender: mpsc::Sender<T>,
    wake_writer: Arc<UnixStream>,
}

impl<T> Clone for PollableSender<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), wake_writer: self.wake_writer.clone() }
    }
}

impl<T> PollableSender<T> {
    /// Returns whether the receiver is still there. Without it the command is about to end.
    pub fn send(&self, value: T) -> bool {
        self.sender.send(value).is_ok() && (&*self.wake_writer).write_all(b"!").is_ok()
    }
}

/// Its descriptor is readable when something was sent.
pub struct PollableReceiver<T> {
    receiver: mpsc::Receiver<T>,
    wake_reader: UnixStream,
}

impl<T> PollableReceiver<T> {
    /// The next value, if there is one. It consumes wake-ups, so the caller must repeat it until there is none.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        // There may be no wake-up to consume.
        let _ = (&self.wake_reader).read(&mut [0; 16]);
        self.receiver.try_recv()
    }

    /// Waits for the next value; `None` when there will be no more.
    pub fn recv(&self) -> Option<T> {
        self.receiver.recv().ok()
    }

    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.receiver.recv_timeout(timeout)
    }
}

impl<T> AsFd for PollableReceiver<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake_reader.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollFlags, poll};

    fn is_readable<T>(receiver: &PollableReceiver<T>) -> bool {
        let mut fds = [PollFd::new(receiver.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, 0u8).expect("poll") == 1
    }

    #[test]
    fn the_receiver_is_readable_until_everything_sent_was_taken() {
        let (sender, receiver) = pollable_channel().expect("a channel");
        assert!(!is_readable(&receiver));
        assert!(sender.send(1) && sender.send(2) && is_readable(&receiver));
        assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok(1), Ok(2)));
        assert!(receiver.try_recv() == Err(TryRecvError::Empty) && !is_readable(&receiver));
        drop(sender);
        assert!(is_readable(&receiver));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
    }

    #[test]
    fn sending_without_a_receiver_fails() {
        let (sender, receiver) = pollable_channel().expect("a channel");
        drop(receiver);
        assert!(!sender.send(1));
    }
}
