//! Trackable resources (TRES): what is counted, limited and billed, as `cpu=4,mem=8G,gres/gpu:h100=2`.

use crate::amount::{Bytes, Unit, format_exact, parse_count};
use crate::grammar::GrammarError;
use crate::price::Price;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

const WHAT: &str = "TRES list";

/// A kind of trackable resource. The order of the variants is the order in which Slurm prints them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TresKind {
    Cpu,
    /// In mebibytes.
    Mem,
    Energy,
    Node,
    Billing,
    FsDisk,
    /// In mebibytes.
    Vmem,
    Pages,
    Gres {
        name: String,
        kind: Option<String>,
    },
    License(String),
    /// A burst buffer, in mebibytes.
    Bb(String),
    /// Ours: what an hour costs, in the units of [`Price`]. Times the seconds it was held it is money.
    Cost,
}

const SIMPLE_KINDS: [(&str, TresKind); 9] = [
    ("cpu", TresKind::Cpu),
    ("mem", TresKind::Mem),
    ("energy", TresKind::Energy),
    ("node", TresKind::Node),
    ("billing", TresKind::Billing),
    ("fs/disk", TresKind::FsDisk),
    ("vmem", TresKind::Vmem),
    ("pages", TresKind::Pages),
    ("cost", TresKind::Cost),
];

impl TresKind {
    /// GPUs of any kind.
    pub fn gpu() -> Self {
        Self::gres(crate::gres::GPU, None)
    }

    pub fn gres(name: &str, kind: Option<&str>) -> Self {
        TresKind::Gres { name: name.to_owned(), kind: kind.map(str::to_owned) }
    }

    /// Counted in mebibytes, and so printed with a unit.
    pub fn is_memory(&self) -> bool {
        matches!(self, TresKind::Mem | TresKind::Vmem | TresKind::Bb(_))
    }

    fn parse_amount(&self, text: &str) -> Option<u64> {
        match self {
            TresKind::Cost => {
                text.parse::<f64>().ok().and_then(Price::from_dollars).map(Price::units)
            }
            _ if self.is_memory() => Bytes::parse_slurm(text).ok().map(Bytes::mib),
            _ => parse_count(text),
        }
    }

    fn format_amount(&self, amount: u64) -> String {
        match self {
            TresKind::Cost => Price::from_units(amount).dollars().to_string(),
            _ if self.is_memory() => format_exact(amount, Unit::Mebi),
            _ => amount.to_string(),
        }
    }
}

impl fmt::Display for TresKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TresKind::Gres { name, kind: None } => write!(f, "gres/{name}"),
            TresKind::Gres { name, kind: Some(kind) } => write!(f, "gres/{name}:{kind}"),
            TresKind::License(name) => write!(f, "license/{name}"),
            TresKind::Bb(name) => write!(f, "bb/{name}"),
            simple => {
                let row = SIMPLE_KINDS.iter().find(|(_, kind)| kind == simple);
                f.write_str(row.map_or("", |(name, _)| name))
            }
        }
    }
}

impl FromStr for TresKind {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let row = SIMPLE_KINDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        if let Some((_, kind)) = row {
            return Ok(kind.clone());
        }
        let named = match text.split_once('/') {
            Some(("gres", rest)) => {
                let (name, kind) =
                    rest.split_once(':').map_or((rest, None), |(name, kind)| (name, Some(kind)));
                let whole = !name.is_empty() && kind != Some("");
                whole.then(|| TresKind::gres(name, kind))
            }
            Some(("license", name)) if !name.is_empty() => Some(TresKind::License(name.to_owned())),
            Some(("bb", name)) if !name.is_empty() => Some(TresKind::Bb(name.to_owned())),
            _ => None,
        };
        named.ok_or_else(|| {
            let expected = "cpu, mem, node, billing, energy, fs/disk, vmem, pages, gres/NAME[:TYPE], license/NAME, bb/NAME or cost";
            GrammarError::new("TRES", text, expected)
        })
    }
}

impl TryFrom<String> for TresKind {
    type Error = GrammarError;

    fn try_from(text: String) -> Result<Self, GrammarError> {
        text.parse()
    }
}

impl From<TresKind> for String {
    fn from(kind: TresKind) -> Self {
        kind.to_string()
    }
}

/// Amounts by kind. A kind that is absent is unlimited, not requested or zero, depending on the use.
///
/// Sorted by kind, each of which is there once. Few kinds are counted, and every plan adds many lists up: a short list is looked
/// through, copied and dropped more quickly than a tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tres(Vec<(TresKind, u64)>);

impl Tres {
    pub fn new() -> Self {
        Self::default()
    }

    /// `cpu=4,mem=8G,gres/gpu:h100=2,node=1`. Memory without a unit is in mebibytes.
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let mut tres = Self::new();
        for (kind, amount) in parse_limits(text)? {
            let amount =
                amount.ok_or_else(|| GrammarError::new(WHAT, text, "amounts of zero or more"))?;
            tres.set(kind, amount);
        }
        Ok(tres)
    }

    /// Where the kind is, or where it would be.
    fn position(&self, kind: &TresKind) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.cmp(kind))
    }

    pub fn get(&self, kind: &TresKind) -> Option<u64> {
        self.position(kind).ok().map(|at| self.0[at].1)
    }

    /// The amount, and zero for what is not there.
    pub fn amount(&self, kind: &TresKind) -> u64 {
        self.get(kind).unwrap_or(0)
    }

    pub fn set(&mut self, kind: TresKind, amount: u64) {
        match self.position(&kind) {
            Ok(at) => self.0[at].1 = amount,
            Err(at) => self.0.insert(at, (kind, amount)),
        }
    }

    pub fn remove(&mut self, kind: &TresKind) -> Option<u64> {
        self.position(kind).ok().map(|at| self.0.remove(at).1)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&TresKind, u64)> + '_ {
        self.0.iter().map(|(kind, amount)| (kind, *amount))
    }

    pub fn add(&mut self, kind: TresKind, amount: u64) {
        match self.position(&kind) {
            Ok(at) => self.0[at].1 = self.0[at].1.saturating_add(amount),
            Err(at) => self.0.insert(at, (kind, amount)),
        }
    }

    /// The same kinds, each with another amount.
    pub fn map(&self, change: impl Fn(u64) -> u64) -> Self {
        Self(self.0.iter().map(|(kind, amount)| (kind.clone(), change(*amount))).collect())
    }

    /// Adds all of `other`.
    pub fn merge(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        // Most lists that are added up have the same kinds: each is looked for behind the one before it.
        let mut from = 0;
        for (kind, amount) in &other.0 {
            while self.0.get(from).is_some_and(|(known, _)| known < kind) {
                from += 1;
            }
            if self.0.get(from).is_some_and(|(known, _)| known == kind) {
                self.0[from].1 = self.0[from].1.saturating_add(*amount);
            } else {
                self.0.insert(from, (kind.clone(), *amount));
            }
            from += 1;
        }
    }

    /// Takes away, but never below zero.
    pub fn subtract(&mut self, other: &Self) {
        for (kind, amount) in other.iter() {
            if let Ok(at) = self.position(kind) {
                self.0[at].1 = self.0[at].1.saturating_sub(amount);
            }
        }
    }

    /// The first kind of which `self` has more than `limits` allows; what has no limit is allowed.
    pub fn first_over<'a>(&self, limits: &'a Self) -> Option<&'a TresKind> {
        limits.iter().find(|(kind, limit)| self.amount(kind) > *limit).map(|(kind, _)| kind)
    }

    /// As sacct prints it: in the order of the names.
    pub fn display_by_name(&self) -> String {
        let mut entries: Vec<(String, String)> = self
            .iter()
            .map(|(kind, amount)| (kind.to_string(), kind.format_amount(amount)))
            .collect();
        entries.sort();
        let entries: Vec<String> =
            entries.into_iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        entries.join(",")
    }
}

impl fmt::Display for Tres {
    /// As squeue and scontrol print it: `cpu=4,mem=8G,node=1,billing=4,gres/gpu=2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, amount)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{kind}={}", kind.format_amount(amount))?;
        }
        Ok(())
    }
}

impl FromIterator<(TresKind, u64)> for Tres {
    /// Amounts of the same kind are added up.
    fn from_iter<I: IntoIterator<Item = (TresKind, u64)>>(entries: I) -> Self {
        let mut tres = Self::new();
        entries.into_iter().for_each(|(kind, amount)| tres.add(kind, amount));
        tres
    }
}

/// An object of amounts by the names of their kinds.
impl Serialize for Tres {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(kind, amount)| (kind, amount)))
    }
}

impl<'de> Deserialize<'de> for Tres {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountsByKind;

        impl<'de> Visitor<'de> for AmountsByKind {
            type Value = Tres;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Tres, A::Error> {
                let mut read: Vec<(TresKind, u64)> = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    read.push(entry);
                }
                // Sorted once: each of a long list in another order would move those behind it. Of a kind that is there twice the last
                // counts.
                read.sort_by(|(one, _), (other, _)| one.cmp(other));
                read.dedup_by(|(kind, amount), (before, kept)| {
                    let is_again = kind == before;
                    if is_again {
                        *kept = *amount;
                    }
                    is_again
                });
                Ok(Tres(read))
            }
        }

        deserializer.deserialize_map(AmountsByKind)
    }
}

/// sacctmgr's limits: an amount sets the limit, `-1` clears it.
pub fn parse_limits(text: &str) -> Result<Vec<(TresKind, Option<u64>)>, GrammarError> {
    let refused = |expected: String| GrammarError::new(WHAT, text, expected);
    let mut limits: Vec<(TresKind, Option<u64>)> = Vec::new();
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (name, amount) = entry.split_once('=').ok_or_else(|| {
            refused("NAME=AMOUNT between the commas, as in cpu=4,mem=8G".to_owned())
        })?;
        let kind: TresKind = name.trim().parse()?;
        let amount = match amount.trim() {
            "-1" => None,
            amount => Some(
                kind.parse_amount(amount)
                    .ok_or_else(|| refused(format!("a whole number for {kind}")))?,
            ),
        };
        if limits.iter().any(|(known, _)| *known == kind) {
            return Err(refused(format!("{kind} only once")));
        }
        limits.push((kind, amount));
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_printed_in_slurms_order_and_units() {
        let tres = Tres::parse("gres/gpu=2,billing=4,node=1,mem=8192,cpu=4").expect("a good list");
        assert_eq!(tres.to_string(), "cpu=4,mem=8G,node=1,billing=4,gres/gpu=2");
        let tres = Tres::parse("cpu=4,mem=4000M,node=2,billing=4,gres/gpu=4").expect("a good list");
        assert_eq!(tres.display_by_name(), "billing=4,cpu=4,gres/gpu=4,mem=4000M,node=2");
        let tres =
            Tres::parse("gres/gpu:h100=1,gres/gpu=2,license/ansys=3,bb/cray=1G,fs/disk=7,CPU=1")
                .expect("a good list");
        assert_eq!(
            tres.to_string(),
            "cpu=1,fs/disk=7,gres/gpu=2,gres/gpu:h100=1,license/ansys=3,bb/cray=1G"
        );
        let tres = Tres::parse("cost=2.5,cpu=1").expect("a good list");
        assert_eq!(tres.to_string(), "cpu=1,cost=2.5");
        assert_eq!(tres.amount(&TresKind::Cost), 25_000);
        assert_eq!(Tres::parse(""), Ok(Tres::new()));
    }

    #[test]
    fn broken_lists_are_refused() {
        for text in [
            "cpu",
            "cpu=",
            "cpu=x",
            "foo=1",
            "cpu=1,cpu=2",
            "cpu=-1",
            "cpu=-2",
            "cost=-1",
            "cost=x",
            "gres/=1",
            "gres/gpu:=1",
            "license/=1",
            "=4",
        ] {
            assert!(Tres::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn minus_one_clears_a_limit() {
        let limits = parse_limits("cpu=-1,gres/gpu=4").expect("good limits");
        assert_eq!(limits, [(TresKind::Cpu, None), (TresKind::gpu(), Some(4))]);
        assert!(parse_limits("cpu=-2").is_err());
    }

    #[test]
    fn amounts_add_up_and_stop_at_the_ends() {
        let mut tres = Tres::parse("cpu=4,node=1").expect("a good list");
        tres.merge(&Tres::parse("cpu=2,gres/gpu=1").expect("a good list"));
        assert_eq!(tres.to_string(), "cpu=6,node=1,gres/gpu=1");
        tres.subtract(&Tres::parse("cpu=9,mem=1G").expect("a good list"));
        assert_eq!(tres.to_string(), "cpu=0,node=1,gres/gpu=1");
        tres.add(TresKind::Cpu, u64::MAX);
        tres.add(TresKind::Cpu, 1);
        assert_eq!(tres.amount(&TresKind::Cpu), u64::MAX);
    }

    /// Kinds that only one of the lists has come first, between the others and last.
    #[test]
    fn lists_of_other_kinds_are_merged_in_the_order_of_their_kinds() {
        let lists = ["", "cpu=1", "mem=1G,node=1", "cpu=2,node=3,gres/gpu=1", "bb/x=1M,mem=2G"];
        for (left, right) in lists.iter().flat_map(|left| lists.iter().map(move |r| (*left, *r))) {
            let [left, right] = [left, right].map(|text| Tres::parse(text).expect("a good list"));
            let mut merged = left.clone();
            merged.merge(&right);
            let expected: Tres =
                left.iter().chain(right.iter()).map(|(kind, n)| (kind.clone(), n)).collect();
            assert_eq!(merged, expected, "{left} and {right}");
            assert!(merged.iter().is_sorted_by(|a, b| a.0 < b.0), "{merged}");
        }
    }

    #[test]
    fn kind_is_taken_out_and_set_anew() {
        let mut tres = Tres::parse("cpu=1,mem=1G,node=1").expect("a good list");
        assert_eq!((tres.remove(&TresKind::Mem), tres.remove(&TresKind::Mem)), (Some(1024), None));
        tres.set(TresKind::Node, 5);
        tres.set(TresKind::Mem, 7);
        assert_eq!(tres.to_string(), "cpu=1,mem=7M,node=5");
        assert_eq!((tres.len(), tres.get(&TresKind::Billing)), (3, None));
    }

    #[test]
    fn the_first_kind_over_a_limit_is_named() {
        let limits = Tres::parse("cpu=8,gres/gpu=4").expect("good limits");
        let used = |text| Tres::parse(text).expect("a good list");
        assert_eq!(used("cpu=8,gres/gpu=5,mem=1T").first_over(&limits), Some(&TresKind::gpu()));
        assert_eq!(used("cpu=8,gres/gpu=4").first_over(&limits), None);
    }

    #[test]
    fn a_list_survives_json() {
        let tres = Tres::parse("cpu=4,gres/gpu:h100=2").expect("a good list");
        let json = serde_json::to_string(&tres).expect("writes");
        assert_eq!(json, r#"{"cpu":4,"gres/gpu:h100":2}"#);
        assert_eq!(serde_json::from_str::<Tres>(&json).expect("reads"), tres);
        let other_order = r#"{"gres/gpu:h100":2,"cpu":4}"#;
        assert_eq!(serde_json::from_str::<Tres>(other_order).expect("reads"), tres);
    }

    /// A list of as many kinds as a call may hold is read before it is known whose call it is.
    #[test]
    fn list_in_any_order_is_read_as_the_same_and_of_a_kind_that_comes_twice_the_last_counts() {
        const KINDS: u64 = 65_536;
        let entry = |n: u64| format!(r#""license/l{n:05}":{n}"#);
        let read = |entries: &mut dyn Iterator<Item = String>| {
            let json = format!("{{{}}}", entries.collect::<Vec<_>>().join(","));
            serde_json::from_str::<Tres>(&json).expect("reads")
        };
        let forward = read(&mut (0..KINDS).map(entry));
        assert_eq!(forward.len() as u64, KINDS);
        assert_eq!(read(&mut (0..KINDS).rev().map(entry)), forward);
        let mut twice = (0..3).map(|n| format!(r#""cpu":{n},"mem":{}"#, 10 - n));
        assert_eq!(read(&mut twice), Tres::parse("cpu=2,mem=8").expect("a good list"));
    }
}
