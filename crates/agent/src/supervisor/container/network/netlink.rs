//! Messages to the kernel's netlink sockets: how they are put together, sent and answered.

use nix::errno::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Bytes of an answer; ours are errors, which repeat the start of their message.
const ANSWER_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 16;
const ACKNOWLEDGE: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
pub(super) const CREATE: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;

/// One message, or several that the kernel takes together.
#[derive(Default)]
pub(super) struct Messages {
    bytes: Vec<u8>,
    /// How many answers the kernel owes.
    answers: u32,
}

impl Messages {
    /// Adds a message. `fixed` is the head of its kind; `attributes` writes the rest.
    pub fn add(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        attributes: impl FnOnce(&mut Attributes),
    ) -> &mut Self {
        self.write(kind, ACKNOWLEDGE | flags, fixed, attributes);
        self.answers += 1;
        self
    }

    /// Adds a message that the kernel does not answer.
    pub fn add_silent(&mut self, kind: u16, fixed: &[u8]) -> &mut Self {
        self.write(kind, libc::NLM_F_REQUEST as u16, fixed, |_| {});
        self
    }

    fn write(
        &mut self,
        kind: u16,
        flags: u16,
        fixed: &[u8],
        attributes: impl FnOnce(&mut Attributes),
    ) {
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(flags.to_ne_bytes());
        // Neither a sequence number nor a sender: answers come in order.
        self.bytes.extend([0; 8]);
        self.bytes.extend(fixed);
        let mut all = Attributes { bytes: std::mem::take(&mut self.bytes) };
        attributes(&mut all);
        self.bytes = all.bytes;
        let length = (self.bytes.len() - start) as u32;
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }
}

pub(super) struct Attributes {
    bytes: Vec<u8>,
}

impl Attributes {
    pub fn put(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.fill(kind, |own| own.bytes.extend(value))
    }

    /// A text with the NUL that ends it.
    pub fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        self.fill(kind, |own| {
            own.bytes.extend(value.as_bytes());
            own.bytes.push(0);
        })
    }

    pub fn nest(&mut self, kind: u16, inside: impl FnOnce(&mut Self)) -> &mut Self {
        self.fill(kind | libc::NLA_F_NESTED as u16, inside)
    }

    /// An attribute that begins with a head of its own and holds further ones.
    pub fn nest_with_head(
        &mut self,
        kind: u16,
        head: &[u8],
        inside: impl FnOnce(&mut Self),
    ) -> &mut Self {
        self.nest(kind, |own| {
            own.bytes.extend(head);
            inside(own);
        })
    }

    fn fill(&mut self, kind: u16, value: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        value(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }
}

/// A socket to one of the kernel's families.
pub(super) struct Netlink(OwnedFd);

impl Netlink {
    pub fn open(family: i32) -> nix::Result<Netlink> {
        // SAFETY: the call makes a descriptor, which is nobody else's.
        let fd =
            unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, family) };
        // SAFETY: as above.
        Errno::result(fd).map(|fd| Netlink(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends the messages, and returns the first error among the answers.
    pub fn ask(&self, messages: &Messages) -> nix::Result<()> {
        let (bytes, length) = (messages.bytes.as_ptr().cast(), messages.bytes.len());
        // SAFETY: the pointer and the length are those of the messages.
        Errno::result(unsafe { libc::send(self.0.as_raw_fd(), bytes, length, 0) })?;
        let mut left = messages.answers;
        while left > 0 {
            let mut answer = vec![0; ANSWER_BYTES];
            // SAFETY: the pointer and the length are those of the buffer.
            let length = Errno::result(unsafe {
                libc::recv(self.0.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
            })?;
            answer.truncate(length as usize);
            let errors = errors_in(&answer)?;
            left = left.saturating_sub(errors.len() as u32);
            if let Some(errno) = errors.into_iter().find(|errno| *errno != 0) {
                return Err(Errno::from_raw(errno));
            }
        }
        Ok(())
    }

    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

/// The error of each answer among the bytes; 0 is success.
fn errors_in(mut bytes: &[u8]) -> nix::Result<Vec<i32>> {
    let mut errors = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| -> nix::Result<u32> {
            let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
            four.map(u32::from_ne_bytes).ok_or(Errno::EBADMSG)
        };
        let length = word(0)? as usize;
        let kind = word(4)? & 0xffff;
        if kind == libc::NLMSG_ERROR as u32 {
            errors.push(-(word(HEADER_BYTES)? as i32));
        }
        bytes = bytes.get(length.max(HEADER_BYTES).next_multiple_of(4)..).unwrap_or_default();
    }
    if errors.is_empty() { Err(Errno::EBADMSG) } else { Ok(errors) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_its_length_and_padded_attributes() {
        let mut messages = Messages::default();
        messages.add(16, CREATE, &[7; 4], |all| {
            all.text(3, "eth0").nest(18, |inside| {
                inside.put(1, b"veth");
            });
        });
        let bytes = &messages.bytes;
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes());
        assert_eq!(bytes[20..32], [9, 0, 3, 0, b'e', b't', b'h', b'0', 0, 0, 0, 0]);
        assert_eq!(bytes[32..36], [12, 0, 18, 0x80]);
    }

    #[test]
    fn answers_are_read_and_a_cut_one_is_an_error() {
        let answer = |errno: i32| {
            let mut bytes = vec![20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend((-errno).to_ne_bytes());
            bytes
        };
        let both = [answer(0), answer(libc::EEXIST)].concat();
        assert_eq!(errors_in(&both), Ok(vec![0, libc::EEXIST]));
        assert_eq!(errors_in(&both[..18]), Err(Errno::EBADMSG));
        assert_eq!(errors_in(&[0; 8]), Err(Errno::EBADMSG));
    }
}
