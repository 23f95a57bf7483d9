//! SFTP, version 3, on standard input and output: files of the job as its user sees them, for `scp`, `sftp` and editors.
//!
//! The process has the rights of the job's user and nothing more, inside the job's container: which files may be touched
//! is the kernel's to say. `packet`: the encoding; `attributes`: what is said of a file; `requests`: each request.

mod attributes;
mod packet;
mod requests;

use packet::{PACKET_BYTES_MAX, Reply};
use requests::Server;
use std::io::{self, BufWriter, Read, Write};

pub fn run() -> i32 {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match serve(input, BufWriter::new(output)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("sluice: sftp: {error}");
            1
        }
    }
}

/// Answers requests until the input ends.
fn serve(mut input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut server = Server::default();
    loop {
        let mut length = [0; 4];
        match input.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        }
        let length = u32::from_be_bytes(length) as usize;
        if length == 0 || length > PACKET_BYTES_MAX {
            return Err(io::Error::other(format!("a packet of {length} bytes")));
        }
        let mut packet = vec![0; length];
        input.read_exact(&mut packet)?;
        let Reply(reply) = server.answer(&packet);
        output.write_all(&(reply.len() as u32).to_be_bytes())?;
        output.write_all(&reply)?;
        output.flush()?;
    }
}

#[cfg(test)]
mod tests;
