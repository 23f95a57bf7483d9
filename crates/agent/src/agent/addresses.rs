//! Which address of the servers is dialled next: each in turn, and one that takes connections and says nothing behind the others.

use std::time::Duration;
use tokio::time::Instant;

/// How long an address that was silent is left out while there are others. A server that is frozen costs each dial as long as it may
/// take to answer one.
const REST: Duration = Duration::from_secs(30);

pub(super) struct Addresses {
    all: Vec<Address>,
    /// The one that was dialled last.
    last: usize,
}

struct Address {
    text: String,
    /// Left out until then.
    rests_until: Option<Instant>,
}

impl Addresses {
    /// Begins with the first of at least one.
    pub fn new(all: Vec<String>) -> Self {
        let all: Vec<_> = all.into_iter().map(|text| Address { text, rests_until: None }).collect();
        Self { last: all.len().saturating_sub(1), all }
    }

    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// The next in turn that is not left out; where all are, the one that was silent first.
    pub fn next(&mut self) -> String {
        let now = Instant::now();
        let in_turn = (1..=self.all.len()).map(|step| (self.last + step) % self.all.len());
        // The first of those that have the least rest left; none has less.
        let rest_left = |at: &usize| self.all[*at].rests_until.filter(|until| *until > now);
        self.last = in_turn.min_by_key(rest_left).unwrap_or_default();
        self.all[self.last].text.clone()
    }

    /// What was dialled last says nothing.
    pub fn was_silent(&mut self) {
        self.all[self.last].rests_until = Some(Instant::now() + REST);
    }

    /// What was dialled last answers.
    pub fn has_answered(&mut self) {
        self.all[self.last].rests_until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_in_turn_and_a_silent_one_behind_the_others() {
        let mut addresses = Addresses::new(["a", "b", "c"].map(String::from).into());
        assert!(addresses.are_several());
        let next = |count: usize, addresses: &mut Addresses| -> String {
            (0..count).map(|_| addresses.next()).collect()
        };
        assert_eq!(next(4, &mut addresses), "abca");
        addresses.was_silent();
        assert_eq!(next(4, &mut addresses), "bcbc");
        addresses.was_silent();
        assert_eq!(next(2, &mut addresses), "bb");
        addresses.was_silent();
        assert_eq!(next(1, &mut addresses), "a", "the one that was silent first");
        addresses.has_answered();
        assert_eq!(next(2, &mut addresses), "aa");
    }
}
