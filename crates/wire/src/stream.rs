//! Flow control of multiplexed byte streams: a sender never has more under way than it was credited.

/// What a receiver grants at first, and keeps granted.
pub const WINDOW: u32 = 256 << 10;

/// The most streams that one link carries at once.
pub const STREAMS_MAX: usize = 1024;

/// The sending side: how much may be sent now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credit {
    left: u32,
}

impl Default for Credit {
    fn default() -> Self {
        Self { left: WINDOW }
    }
}

impl Credit {
    /// How many of `wanted` bytes may go now; they count as sent.
    pub fn take(&mut self, wanted: usize) -> usize {
        let granted = wanted.min(self.left as usize);
        self.left -= granted as u32;
        granted
    }

    pub fn grant(&mut self, bytes: u32) {
        self.left = self.left.saturating_add(bytes).min(WINDOW);
    }
}

/// The receiving side: says when to credit the sender again, in steps of half a window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    consumed: u32,
    under_way: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sender went beyond its credit")]
pub struct Overrun;

impl Window {
    pub fn received(&mut self, bytes: usize) -> Result<(), Overrun> {
        let total = self.under_way as usize + bytes;
        if total > WINDOW as usize {
            return Err(Overrun);
        }
        self.under_way = total as u32;
        Ok(())
    }

    /// Bytes were handed on; gives the credit to send back, if it is time.
    pub fn consumed(&mut self, bytes: usize) -> Option<u32> {
        self.consumed += bytes as u32;
        (self.consumed >= WINDOW / 2).then(|| {
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
        let mut credit = Credit::default();
        let mut window = Window::default();
        let sent = credit.take(WINDOW as usize + 10);
        assert_eq!(sent, WINDOW as usize);
        assert_eq!(credit.take(1), 0);
        window.received(sent).unwrap();
        assert_eq!(window.received(1), Err(Overrun));
        let back = window.consumed(sent).expect("a whole window was consumed");
        credit.grant(back);
        assert_eq!(credit.take(5), 5);
    }
}
