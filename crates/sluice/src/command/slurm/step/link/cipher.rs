//! What encrypts a link: the step's own key where a supervisor dialled, TLS to a server on another machine.

use crate::client::TlsTunnel;
use std::io;
use wire::step_channel::StepChannel;

pub trait Cipher {
    /// Takes bytes of the connection in, and appends what they say to `plain`.
    fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()>;
    /// Encrypts the first bytes, as many as are returned.
    fn seal(&mut self, plain: &[u8]) -> io::Result<usize>;
    /// Encrypted bytes, or bytes of the proof, that wait to be written.
    fn unsent(&self) -> &[u8];
    fn mark_sent(&mut self, bytes: usize);
}

impl Cipher for StepChannel {
    fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        self.receive(bytes, plain).map_err(io::Error::other)
    }

    fn seal(&mut self, plain: &[u8]) -> io::Result<usize> {
        self.seal(plain).map_err(io::Error::other)
    }

    fn unsent(&self) -> &[u8] {
        self.unsent()
    }

    fn mark_sent(&mut self, bytes: usize) {
        self.mark_sent(bytes);
    }
}

impl Cipher for TlsTunnel {
    fn receive(&mut self, bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        self.receive(bytes, plain)
    }

    fn seal(&mut self, plain: &[u8]) -> io::Result<usize> {
        self.seal(plain)
    }

    fn unsent(&self) -> &[u8] {
        self.unsent()
    }

    fn mark_sent(&mut self, bytes: usize) {
        self.mark_sent(bytes);
    }
}
