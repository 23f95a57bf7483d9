//! Connections that no key has let in yet, by where they come from. Anybody can open them, so there are few: a new one always
//! gets a place, and where all are taken, the oldest of the network and source that have most of them goes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// One source has at most this part (a quarter) of the places.
const SOURCE_PART: usize = 4;
/// One network has at most this part (a half) of the places.
const NETWORK_PART: usize = 2;
/// As many sources are remembered that a key came from: their connections go last.
const PROVED_MAX: usize = 1024;

/// Where connections come from: an IPv4 address, or a /64 of IPv6, which is what one host is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

/// What one owner is given: an IPv4 address, or a /48 of IPv6, which is 65,536 sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Network(IpAddr);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(with_prefix(address.to_canonical(), 64))
    }
}

impl From<Source> for Network {
    fn from(source: Source) -> Self {
        Self(with_prefix(source.0, 48))
    }
}

/// The first bits of an address of IPv6; one of IPv4 as it is.
fn with_prefix(address: IpAddr, bits: u32) -> IpAddr {
    match address {
        IpAddr::V6(six) => {
            let others = Ipv6Addr::BITS - bits;
            Ipv6Addr::from_bits(six.to_bits() >> others << others).into()
        }
        four => four,
    }
}

pub struct LoginPlaces {
    max: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    next: u64,
    /// The oldest first.
    waiting: BTreeMap<u64, Waiting>,
    /// Sources from which a key was proved, the latest last.
    proved: VecDeque<Source>,
}

struct Waiting {
    source: Source,
    /// Told when the place is given to another.
    _evicted: oneshot::Sender<()>,
}

/// A place, until it is dropped or given to another.
pub struct LoginPlace {
    of: Arc<LoginPlaces>,
    number: u64,
    source: Source,
    evicted: oneshot::Receiver<()>,
    /// Another connection lost its place for this one.
    pub has_evicted: bool,
}

impl LoginPlaces {
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max: max.max(1), taken: Mutex::default() })
    }

    /// A place for a connection from this address. Another loses its own where there is none.
    pub fn take(self: &Arc<Self>, address: IpAddr) -> LoginPlace {
        let source = Source::from(address);
        let mut taken = self.taken.lock().expect("no panic with it held");
        let gone = taken.one_to_evict(source, self.max);
        let has_evicted = gone.is_some_and(|number| taken.waiting.remove(&number).is_some());
        let (sender, evicted) = oneshot::channel();
        let number = taken.next;
        taken.next += 1;
        taken.waiting.insert(number, Waiting { source, _evicted: sender });
        LoginPlace { of: self.clone(), number, source, evicted, has_evicted }
    }
}

impl Taken {
    /// The connection to drop so that one from this source gets its place; none if a place is free.
    fn one_to_evict(&self, source: Source, max: usize) -> Option<u64> {
        let mut counts: HashMap<Source, usize> = HashMap::new();
        let mut of_networks: HashMap<Network, usize> = HashMap::new();
        for one in self.waiting.values() {
            *counts.entry(one.source).or_default() += 1;
            *of_networks.entry(Network::from(one.source)).or_default() += 1;
        }
        if counts.get(&source).is_some_and(|count| *count >= max.div_ceil(SOURCE_PART)) {
            return self.waiting.iter().find(|(_, one)| one.source == source).map(|(at, _)| *at);
        }
        let rank = |(number, one): &(&u64, &Waiting)| {
            let of_network = Reverse(of_networks[&Network::from(one.source)]);
            let is_proved = self.proved.contains(&one.source);
            (is_proved, of_network, Reverse(counts[&one.source]), **number)
        };
        let network = Network::from(source);
        let waiting = self.waiting.iter();
        let chosen = if of_networks.get(&network).is_some_and(|n| *n >= max.div_ceil(NETWORK_PART))
        {
            waiting.filter(|(_, one)| Network::from(one.source) == network).min_by_key(rank)
        } else if self.waiting.len() < max {
            None
        } else {
            waiting.min_by_key(rank)
        };
        chosen.map(|(number, _)| *number)
    }
}

impl LoginPlace {
    /// Waits until the place was given to another.
    pub async fn evicted(&mut self) {
        let _ = (&mut self.evicted).await;
    }

    /// A key has let the connection in: its source is known from now on.
    pub fn proved(self) {
        let mut taken = self.of.taken.lock().expect("no panic with it held");
        taken.proved.retain(|known| *known != self.source);
        taken.proved.push_back(self.source);
        if taken.proved.len() > PROVED_MAX {
            taken.proved.pop_front();
        }
    }
}

impl Drop for LoginPlace {
    fn drop(&mut self) {
        self.of.taken.lock().expect("no panic with it held").waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(places: &Arc<LoginPlaces>, address: &str) -> LoginPlace {
        places.take(address.parse().expect("an address"))
    }

    fn is_evicted(place: &mut LoginPlace) -> bool {
        place.evicted.try_recv() == Err(oneshot::error::TryRecvError::Closed)
    }

    fn evicted(held: &mut [LoginPlace]) -> Vec<usize> {
        let numbered = held.iter_mut().enumerate();
        numbered.filter_map(|(at, place)| is_evicted(place).then_some(at)).collect()
    }

    #[test]
    fn one_source_has_a_quarter_and_its_own_oldest_goes() {
        let places = LoginPlaces::new(16);
        let mut other = from(&places, "192.0.2.2");
        let mut held: Vec<_> = (0..6).map(|_| from(&places, "192.0.2.1")).collect();
        assert_eq!(evicted(&mut held), [0, 1]);
        held.push(from(&places, "::ffff:192.0.2.1"));
        assert_eq!(evicted(&mut held), [0, 1, 2], "the same address in another form");
        assert!(!is_evicted(&mut other));
        held.drain(..);
        let mut held: Vec<_> = (0..4).map(|_| from(&places, "192.0.2.1")).collect();
        assert!(evicted(&mut held).is_empty(), "what was dropped is free");
    }

    #[test]
    fn network_of_ipv6_is_one_source() {
        let places = LoginPlaces::new(16);
        let from_host = |host: u32| from(&places, &format!("2001:db8:0:1::{host:x}"));
        let mut held: Vec<_> = (1..6).map(from_host).collect();
        assert_eq!(evicted(&mut held), [0]);
        let mut other = from(&places, "2001:db8:0:2::1");
        assert!(!is_evicted(&mut other));
    }

    #[test]
    fn owner_of_many_networks_of_ipv6_has_half_and_gives_way_to_others() {
        let places = LoginPlaces::new(16);
        let mut single = from(&places, "2001:db8:1::1");
        let mut held: Vec<_> =
            (0..1000).map(|at| from(&places, &format!("2001:db8:0:{at:x}::1"))).collect();
        assert_eq!(evicted(&mut held).len(), 992);
        let mut others: Vec<_> =
            (0..10).map(|at| from(&places, &format!("192.0.2.{at}"))).collect();
        assert!(!is_evicted(&mut single) && evicted(&mut others).is_empty());
        assert_eq!(evicted(&mut held).len(), 995, "those of the largest network went");
    }

    #[test]
    fn the_largest_source_gives_way_and_then_the_oldest() {
        let places = LoginPlaces::new(8);
        let mut single = from(&places, "192.0.2.200");
        let mut held: Vec<_> =
            (0..7).map(|at| from(&places, &format!("192.0.2.{}", at / 2))).collect();
        let _next = from(&places, "192.0.2.100");
        assert_eq!(evicted(&mut held), [0], "the oldest of a source that has two");
        assert!(!is_evicted(&mut single));
        drop(held);
        let mut many: Vec<_> =
            (0..20).map(|at| from(&places, &format!("198.51.100.{at}"))).collect();
        assert!(is_evicted(&mut single), "one from each source: the oldest goes");
        assert_eq!(evicted(&mut many).len(), 12);
    }

    #[test]
    fn source_that_proved_a_key_keeps_its_place_against_strangers() {
        let places = LoginPlaces::new(8);
        from(&places, "192.0.2.1").proved();
        let mut known = from(&places, "192.0.2.1");
        let mut strangers: Vec<_> = (0..1000)
            .map(|at| from(&places, &format!("198.51.{}.{}", at / 250, at % 250)))
            .collect();
        assert!(!is_evicted(&mut known));
        assert_eq!(evicted(&mut strangers).len(), 993);
    }
}
