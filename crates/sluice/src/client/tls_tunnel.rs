//! TLS over a connection that does not block: bytes are handed in and out, and the caller reads and writes the socket.

use rustls::ClientConnection;
use std::io::{self, ErrorKind, Read, Write};

/// What is taken in of decrypted bytes at once.
const PLAIN_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub struct TlsTunnel {
    session: ClientConnection,
    /// Encrypted bytes that wait to be written.
    unsent: Vec<u8>,
}

impl TlsTunnel {
    /// Goes on with a session whose handshake is done.
    pub fn new(session: ClientConnection) -> Self {
        Self { session, unsent: Vec::new() }
    }

    /// Takes bytes of the connection in, and appends what they say to `plain`.
    pub fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.session.read_tls(&mut bytes)? == 0 {
                break;
            }
            self.session.process_new_packets().map_err(io::Error::other)?;
            self.drain(plain)?;
        }
        self.take_encrypted()
    }

    /// Appends what is decrypted already.
    pub fn drain(&mut self, plain: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let before = plain.len();
            plain.resize(before + PLAIN_BYTES, 0);
            let read = self.session.reader().read(&mut plain[before..]);
            plain.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Encrypts the first bytes, as many as are returned.
    pub fn seal(&mut self, plain: &[u8]) -> io::Result<usize> {
        let taken = self.session.writer().write(plain)?;
        self.take_encrypted()?;
        Ok(taken)
    }

    fn take_encrypted(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.unsent)?;
        }
        Ok(())
    }

    pub fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    pub fn mark_sent(&mut self, bytes: usize) {
        self.unsent.drain(..bytes);
    }
}
