//! A stranger at the SSH endpoint: broken greetings, packets that are none, connections that stay half open.

use super::Dice;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// Connections that are held open at once.
const HELD_MAX: usize = 300;

#[derive(Default)]
pub struct SshStranger {
    held: Vec<TcpStream>,
}

impl SshStranger {
    pub fn connect_and_send(&mut self, address: &str, dice: &mut Dice) {
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        let timeout = Some(Duration::from_millis(50));
        stream.set_read_timeout(timeout).and(stream.set_write_timeout(timeout)).expect("timeouts");
        let mut bytes = match dice.below(4) {
            0 => Vec::new(),
            1 => vec![b'S'; 1 << 16],
            _ => b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(),
        };
        // A packet of any announced length, then noise.
        let length = *dice.pick(&[0, 1, 8, 12, 256, 35_000, u32::MAX, u32::MAX / 2]);
        bytes.extend_from_slice(&length.to_be_bytes());
        let noise = dice.below(4096) as usize;
        bytes.extend(dice.bytes(noise));
        let _ = stream.write_all(&bytes);
        match dice.below(3) {
            0 => drop(stream.shutdown(Shutdown::Write)),
            1 => drop(stream.read(&mut [0; 4096])),
            _ => {
                if self.held.len() >= HELD_MAX {
                    self.held.clear();
                }
                self.held.push(stream);
            }
        }
    }
}
