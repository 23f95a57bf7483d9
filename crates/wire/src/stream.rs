//! Multiplexed byte streams over an agent's link: what they carry, and their flow control.
//!
//! A sender never has more under way than it was credited, so a reader that stops holds up its own stream alone.

use model::id::StepId;
use serde::{Deserialize, Serialize};

/// What a receiver grants at first, and keeps granted.
pub const WINDOW_BYTES: u32 = 256 << 10;

/// What a client's connection is upgraded to for a step's stream.
pub const PROTOCOL_NAME: &str = "sluice-step";

/// The most streams that one link carries at once.
pub const STREAMS_MAX: usize = 1024;

/// What a stream carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamKind {
    /// The attempt's log from `offset`; with `follow` until the attempt has ended.
    Log { offset: u64, follow: bool },
    /// The frames of a step (`step.rs`), both ways.
    Step { step: StepId, role: StepRole },
}

/// Who is at the client's end of a step's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepRole {
    /// The step's own `srun`, which its nodes cannot reach. It has had this many bytes already.
    Srun { key: String, received: u64 },
    /// Somebody who looks on, and may type.
    Attached,
}

/// The sending side: how much may be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendCredit {
    left: u32,
}

impl Default for SendCredit {
    fn default() -> Self {
        Self { left: WINDOW_BYTES }
    }
}

impl SendCredit {
    /// How many of `wanted` bytes may go now; they count as sent.
    pub fn take(&mut self, wanted: usize) -> usize {
        let granted = wanted.min(self.left as usize);
        self.left -= granted as u32;
        granted
    }

    pub fn left(&self) -> usize {
        self.left as usize
    }

    pub fn grant(&mut self, bytes: u32) {
        self.left = self.left.saturating_add(bytes).min(WINDOW_BYTES);
    }
}

/// The receiving side: says when to credit the sender again, in steps of half a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiveWindow {
    consumed: u32,
    under_way: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender went beyond its credit")]
pub struct CreditOverrun;

impl ReceiveWindow {
    pub fn received(&mut self, bytes: usize) -> Result<(), CreditOverrun> {
        let total = self.under_way as usize + bytes;
        if total > WINDOW_BYTES as usize {
            return Err(CreditOverrun);
        }
        self.under_way = total as u32;
        Ok(())
    }

    /// As `consumed`, of everything that came so far.
    pub fn consumed_all(&mut self) -> Option<u32> {
        let open = self.under_way - self.consumed;
        self.consumed(open as usize)
    }

    /// Bytes were handed on; gives the credit to send back, if it is time.
    pub fn consumed(&mut self, bytes: usize) -> Option<u32> {
        self.consumed += bytes as u32;
        (self.consumed >= WINDOW_BYTES / 2).then(|| {
            let credit = std::mem::take(&mut self.consumed);
            self.under_way = self.under_way.saturating_sub(credit);
            credit
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_stops_at_its_credit_and_goes_on_when_granted() {
        let mut credit = SendCredit::default();
        let mut window = ReceiveWindow::default();
        let sent = credit.take(WINDOW_BYTES as usize + 10);
        assert_eq!(sent, WINDOW_BYTES as usize);
        assert_eq!(credit.take(1), 0);
        window.received(sent).unwrap();
        assert_eq!(window.received(1), Err(CreditOverrun));
        let back = window.consumed(sent).expect("a whole window was consumed");
        credit.grant(back);
        assert_eq!(credit.take(5), 5);
    }
}
