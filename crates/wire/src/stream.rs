//! Multiplexed byte streams over an agent's link: what they carry, and their flow control.
//!
//! A sender never has more under way than it was credited, so a reader that stops holds up its own stream alone.

use crate::order::{SignedOrder, UserIds};
use model::id::StepId;
use serde::{Deserialize, Serialize};

/// The bytes that a receiver grants at first, and the most that it grants.
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
    Log {
        offset: u64,
        follow: bool,
        /// No more than so many bytes at the end of what is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u64>,
    },
    /// A file that the attempt writes, read on its node as its owner; with `follow` until the attempt has ended.
    OutputFile {
        path: String,
        owner: UserIds,
        offset: u64,
        follow: bool,
        /// No more than so many bytes at the end of what is there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last: Option<u64>,
    },
    /// How an order about a volume went ([`crate::volume::CARRIED_OUT`], or the error that ends the stream).
    Volume { order: SignedOrder },
    /// The frames of a step (`step.rs`), both ways.
    Step { step: StepId, role: StepRole },
}

/// Which client is at the end of a step's stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepRole {
    /// The step's own `srun`, which its nodes cannot reach. It has had this many bytes already.
    Srun { key: String, received: u64 },
    /// `sattach`: reads along, and may type.
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

    /// As [`Self::consumed`], for everything received so far.
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
    use proptest::prelude::*;

    #[test]
    fn sender_stops_at_its_credit_and_goes_on_when_granted() {
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

    #[test]
    fn overrun_is_refused_and_counts_nothing() {
        let mut window = ReceiveWindow::default();
        window.received(WINDOW_BYTES as usize - 1).unwrap();
        assert_eq!(window.received(2), Err(CreditOverrun));
        assert_eq!(window.received(1), Ok(()));
    }

    #[test]
    fn credit_comes_back_in_halves_of_a_window_and_never_exceeds_one() {
        let mut window = ReceiveWindow::default();
        let half = WINDOW_BYTES / 2;
        window.received(WINDOW_BYTES as usize).unwrap();
        assert_eq!(window.consumed(half as usize - 1), None);
        assert_eq!(window.consumed(1), Some(half));
        assert_eq!(window.consumed_all(), Some(half));
        let mut credit = SendCredit::default();
        credit.grant(u32::MAX);
        assert_eq!(credit.left(), WINDOW_BYTES as usize);
    }

    proptest! {
        /// A sender that keeps to its credit is never refused, and is never stuck once everything was consumed.
        #[test]
        fn credit_and_window_agree(
            turns in prop::collection::vec((0usize..300_000, 0usize..300_000), 0..60),
        ) {
            let (mut credit, mut window) = (SendCredit::default(), ReceiveWindow::default());
            let mut unread = 0;
            for (wanted, read) in turns {
                let sent = credit.take(wanted);
                prop_assert_eq!(window.received(sent), Ok(()));
                unread += sent;
                let read = read.min(unread);
                unread -= read;
                if let Some(bytes) = window.consumed(read) {
                    credit.grant(bytes);
                }
            }
            if let Some(bytes) = window.consumed(unread) {
                credit.grant(bytes);
            }
            prop_assert!(credit.left() > 0);
        }
    }
}
