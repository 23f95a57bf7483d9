//! The socket of a session, and the loop of the thread that asks: it polls what is asked, and waits for the socket. No runtime drives it,
//! so that a thread of a runtime may ask too: one that has others to serve gives those away where the answer takes long.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

/// How long a thread of a runtime waits before its other tasks are given to another: to hand them over and to take the answer back takes
/// as long as a commit does.
const RUNTIME_PATIENCE: Duration = Duration::from_millis(1);

/// A connected socket, which never blocks by itself.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).read(buffer),
            Self::Unix(stream) => (&*stream).read(buffer),
        }
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&*stream).write(bytes),
            Self::Unix(stream) => (&*stream).write(bytes),
        }
    }

    fn shut_down(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Write),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

/// The socket, for the connection that reads and writes it and for the thread that waits for it.
#[derive(Clone)]
pub(super) struct SharedSocket(Arc<State>);

struct State {
    socket: Socket,
    /// Whether something could not be written yet.
    wants_room: AtomicBool,
}

impl SharedSocket {
    /// For a socket that does not block.
    pub fn new(socket: Socket) -> Self {
        Self(Arc::new(State { socket, wants_room: AtomicBool::new(false) }))
    }

    /// What the work comes to, if it is done by then.
    pub fn run<F: Future>(&self, until: Instant, work: F) -> Option<F::Output> {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let mut context = Context::from_waker(&waker);
        let mut work = pin!(work);
        let begun = Instant::now();
        let mut is_first = true;
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(&mut context) {
                return Some(done);
            }
            // What was woken has something to do without the socket, once more at least.
            if woken.0.swap(false, Ordering::AcqRel) && (is_first || Instant::now() < until) {
                is_first = false;
                continue;
            }
            if !wait_patiently(begun, until, |end| self.wait(end)) {
                return None;
            }
        }
    }

    /// Waits until something can be read, or written where that was not possible; false when the time is over. Whoever waits on after
    /// that waits for room still: it is not wanted any more once there is something to be done.
    fn wait(&self, until: Instant) -> bool {
        let mut wanted = PollFlags::POLLIN;
        if self.0.wants_room.load(Ordering::Acquire) {
            wanted |= PollFlags::POLLOUT;
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut sockets = [PollFd::new(self.0.socket.as_fd(), wanted)];
            match ppoll(&mut sockets, Some(TimeSpec::from_duration(left)), None) {
                Ok(0) | Err(Errno::EINTR) if left.is_zero() => return false,
                Ok(0) | Err(Errno::EINTR) => {}
                // Any other error is found by the next read.
                Ok(_) | Err(_) => {
                    self.0.wants_room.store(false, Ordering::Release);
                    return true;
                }
            }
        }
    }
}

/// Waits by `wait` until then, on any thread. It says whether what it waits for has come. A thread of a runtime has its other tasks
/// done elsewhere while that takes long.
pub(super) fn wait_patiently(
    begun: Instant,
    until: Instant,
    mut wait: impl FnMut(Instant) -> bool,
) -> bool {
    if !has_other_tasks() {
        return wait(until);
    }
    let patience = until.min(begun + RUNTIME_PATIENCE);
    wait(patience) || (patience < until && block_in_place(|| wait(until)))
}

/// Does what may take long, on any thread.
pub(super) fn aside<T>(work: impl FnOnce() -> T) -> T {
    if has_other_tasks() { block_in_place(work) } else { work() }
}

/// Whether this thread is one of a runtime that has others.
fn has_other_tasks() -> bool {
    Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
}

/// Whether the work has something to do without the socket.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl AsyncRead for SharedSocket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match once_uninterrupted(|| self.0.socket.read(buffer.initialize_unfilled())) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            read => Poll::Ready(read.map(|len| buffer.advance(len))),
        }
    }
}

impl AsyncWrite for SharedSocket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match once_uninterrupted(|| self.0.socket.write(bytes)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.0.wants_room.store(true, Ordering::Release);
                Poll::Pending
            }
            written => Poll::Ready(written),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.socket.shut_down())
    }
}

fn once_uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A socket, and its other end.
#[cfg(test)]
pub(super) fn pair() -> (SharedSocket, UnixStream) {
    let (socket, other) = UnixStream::pair().expect("sockets");
    socket.set_nonblocking(true).expect("set");
    (SharedSocket::new(Socket::Unix(socket)), other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::ThreadId;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(20)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn work_is_done_with_what_comes_and_given_up_at_its_end() {
        let (mut socket, mut other) = pair();
        let waiting = socket.clone();
        assert!(waiting.run(soon(), socket.read_u8()).is_none());
        other.write_all(b"a").expect("written");
        assert_eq!(waiting.run(later(), socket.read_u8()).expect("in time").expect("read"), b'a');
        // More than the socket takes before the other end reads.
        let bytes = vec![b'x'; 4 << 20];
        let reading = std::thread::spawn(move || {
            let mut read = vec![0; 4 << 20];
            other.read_exact(&mut read).map(|()| other)
        });
        waiting.run(later(), socket.write_all(&bytes)).expect("in time").expect("written");
        drop(reading.join().expect("no panic").expect("read"));
        let ended = waiting.run(later(), socket.read_u8()).expect("in time");
        assert_eq!(ended.expect_err("it ended").kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn task_that_waits_long_holds_no_other_task_up() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.expect("a runtime");
        let (mut socket, mut other) = pair();
        let waiting = runtime.spawn(async move {
            let asked: ThreadId = std::thread::current().id();
            let waiting = socket.clone();
            let read = waiting.run(later(), socket.read_u8()).expect("in time").expect("read");
            assert_eq!(std::thread::current().id(), asked, "no other thread stands between");
            read
        });
        // The runtime has one thread, which waits for what this task writes.
        let writing = runtime.spawn(async move { other.write_all(b"b") });
        runtime.block_on(writing).expect("done").expect("written");
        assert_eq!(runtime.block_on(waiting).expect("done"), b'b');
    }

    #[test]
    fn task_whose_socket_stays_full_goes_on_when_there_is_room() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.expect("a runtime");
        let (mut socket, mut other) = pair();
        let bytes = vec![b'x'; 4 << 20];
        let writing = runtime.spawn(async move {
            let waiting = socket.clone();
            waiting.run(later(), socket.write_all(&bytes)).expect("in time").expect("written");
        });
        // The runtime's one thread is free only when the task that writes has waited in vain.
        let reading = runtime.spawn(async move { other.read_exact(&mut vec![0; 4 << 20]) });
        runtime.block_on(writing).expect("no panic");
        runtime.block_on(reading).expect("no panic").expect("read");
    }
}
