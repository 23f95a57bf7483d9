//! Amounts of memory: how Slurm and dstack write them, and how Slurm prints them.

use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};
use std::fmt;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// An amount of memory or of storage.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(MIB))
    }

    pub const fn from_gib(gib: u64) -> Self {
        Self(gib.saturating_mul(GIB))
    }

    /// Whole mebibytes, Slurm's unit of memory; rounded up, so that no request shrinks.
    pub const fn mib(self) -> u64 {
        self.0.div_ceil(MIB)
    }

    /// Whole mebibytes, rounded down: for memory that a machine has.
    pub const fn mib_floor(self) -> u64 {
        self.0 / MIB
    }

    /// Slurm's size: a whole number of mebibytes, or of what its suffix K, M, G, T or P (and an optional B) says.
    pub fn parse_slurm(text: &str) -> Result<Self, GrammarError> {
        let trimmed = text.trim();
        let digits_len = trimmed.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, suffix) = trimmed.split_at(digits_len);
        let unit = match suffix.to_ascii_uppercase().as_str() {
            "" => Some(Unit::Mebi),
            suffix => Unit::from_suffix(suffix.strip_suffix('B').unwrap_or(suffix)),
        };
        let count: Option<u64> = digits.parse().ok();
        count
            .zip(unit)
            .and_then(|(count, unit)| count.checked_mul(unit.bytes()))
            .map(Self)
            .ok_or_else(|| {
                GrammarError::new(
                    "memory size",
                    text,
                    "a whole number with K, M, G, T or P, as in 16G",
                )
            })
    }

    /// dstack's size: `16GB`, `512MB`, `1.5TB`, or a bare number of gigabytes; all of them binary.
    pub fn parse_dstack(text: &str) -> Result<Self, GrammarError> {
        const UNITS: [(&str, u64); 3] = [("MB", MIB), ("GB", GIB), ("TB", GIB << 10)];
        let upper = text.trim().to_ascii_uppercase();
        let (number, unit) = UNITS
            .iter()
            .find_map(|(suffix, unit)| Some((upper.strip_suffix(suffix)?.trim_end(), *unit)))
            .unwrap_or((upper.as_str(), GIB));
        let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let count: Option<f64> = plain.then(|| number.parse().ok()).flatten();
        match count.map(|count| count * unit as f64) {
            // Above 2^63 no machine is meant, and the conversion back would not be exact.
            Some(bytes) if bytes <= (1u64 << 63) as f64 => Ok(Self(bytes.round() as u64)),
            _ => Err(GrammarError::new(
                "memory size",
                text,
                "a number with MB, GB or TB, as in 16GB",
            )),
        }
    }

    /// dstack's form: `16GB`, `512MB`, `1.5GB`.
    pub fn format_dstack(self) -> String {
        if self.0.is_multiple_of(GIB) {
            format!("{}GB", self.0 / GIB)
        } else if self.0.is_multiple_of(MIB) && self.0 < GIB {
            format!("{}MB", self.0 / MIB)
        } else {
            format!("{}GB", self.0 as f64 / GIB as f64)
        }
    }
}

impl fmt::Display for Bytes {
    /// Slurm's exact form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(KIB) {
            f.write_str(&format_exact(self.0 / KIB, Unit::Kibi))
        } else {
            write!(f, "{}B", self.0)
        }
    }
}

/// The steps of Slurm's sizes, each 1024 of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Unit {
    Kibi,
    Mebi,
    Gibi,
    Tebi,
    Pebi,
    Exbi,
}

impl Unit {
    const ALL: [(Unit, &'static str); 6] = [
        (Unit::Kibi, "K"),
        (Unit::Mebi, "M"),
        (Unit::Gibi, "G"),
        (Unit::Tebi, "T"),
        (Unit::Pebi, "P"),
        (Unit::Exbi, "E"),
    ];

    /// The unit of an upper- or lower-case letter.
    pub fn from_suffix(letter: &str) -> Option<Unit> {
        let found = Self::ALL.iter().find(|(_, suffix)| suffix.eq_ignore_ascii_case(letter));
        found.map(|(unit, _)| *unit)
    }

    pub fn suffix(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    pub const fn bytes(self) -> u64 {
        KIB << (10 * self as u32)
    }

    fn next(self) -> Option<Unit> {
        Self::ALL.get(self as usize + 1).map(|(unit, _)| *unit)
    }
}

/// Slurm's usual form: the largest unit of which it is whole halves. 8192 M is `8G`, 1536 M is `1.50G`, 1000 M is
/// `1000M`, nothing is `0`.
pub fn format_exact(amount: u64, unit: Unit) -> String {
    let (mut amount, mut unit) = (amount as f64, unit);
    while let Some(next) = unit.next().filter(|_| amount >= 1024.0 && amount.trunc() % 512.0 == 0.0)
    {
        amount /= 1024.0;
        unit = next;
    }
    decimals(amount, unit.suffix())
}

/// The form of Slurm's commands that round: the largest unit that leaves at least one, with two decimals: `62.50G`, `8G`.
pub fn format_rounded(amount: u64, unit: Unit) -> String {
    let (mut amount, mut unit) = (amount as f64, unit);
    while let Some(next) = unit.next().filter(|_| amount >= 1024.0) {
        amount /= 1024.0;
        unit = next;
    }
    decimals(amount, unit.suffix())
}

/// The form of `--units=`: always in `wanted`, as in `2.81M`.
pub fn format_in(amount: u64, unit: Unit, wanted: Unit) -> String {
    decimals(amount as f64 * unit.bytes() as f64 / wanted.bytes() as f64, wanted.suffix())
}

/// The form of joules, whose prefixes are powers of 1000: `17.20K`, `2M`, `350`.
pub fn format_decimal(amount: u64) -> String {
    let suffixes = ["", "K", "M", "G", "T", "P", "E"];
    let power = amount.checked_ilog(1000).unwrap_or(0);
    decimals(amount as f64 / 1000f64.powi(power as i32), suffixes[power as usize])
}

fn decimals(amount: f64, suffix: &str) -> String {
    if amount == 0.0 {
        "0".to_owned()
    } else if amount.fract() == 0.0 {
        format!("{amount:.0}{suffix}")
    } else {
        format!("{amount:.2}{suffix}")
    }
}

/// Mebibytes in Slurm's usual form: `8G`, `1000M`, `125G`.
pub fn format_slurm_mb(mib: u64) -> String {
    format_exact(mib, Unit::Mebi)
}

/// Stores an amount as the text that [`format_slurm_mb`] makes of it: `8G`, `1.50G`, `1000M`, `0`.
pub mod mebibytes_text {
    use super::{Bytes, Unit, format_slurm_mb};
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(amount: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_slurm_mb(amount.mib()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom("not an amount of memory"))
    }

    fn parse(text: &str) -> Option<Bytes> {
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[number.len()..] {
            "" => Unit::Mebi,
            suffix => Unit::from_suffix(suffix)?,
        };
        let count: f64 = number.parse().ok()?;
        Some(Bytes((count * unit.bytes() as f64) as u64))
    }
}

/// A plain count with Slurm's suffixes: `4`, `4K`, `2M` (each 1024 of the one before).
pub(crate) fn parse_count(text: &str) -> Option<u64> {
    let digits_len = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, suffix) = text.split_at(digits_len);
    let count: u64 = digits.parse().ok()?;
    match suffix {
        "" => Some(count),
        suffix => count.checked_mul(Unit::from_suffix(suffix)?.bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_text_of_an_amount_is_read_back() {
        #[derive(Serialize, Deserialize)]
        struct Stored(#[serde(with = "mebibytes_text")] Bytes);
        for (mib, text) in
            [(0, "0"), (1000, "1000M"), (1536, "1.50G"), (8192, "8G"), (3 << 20, "3T")]
        {
            let amount = Bytes::from_mib(mib);
            let json = serde_json::to_string(&Stored(amount)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Stored>(&json).unwrap().0, amount);
        }
        assert!(serde_json::from_str::<Stored>("\"much\"").is_err());
    }

    #[test]
    fn slurm_sizes_are_read() {
        let table = [
            ("8192", 8_192 * MIB),
            ("8G", 8 * GIB),
            ("8gb", 8 * GIB),
            ("1000M", 1_000 * MIB),
            ("2048K", 2 * MIB),
            ("1T", 1_024 * GIB),
            ("1P", GIB << 20),
            ("0", 0),
        ];
        for (text, bytes) in table {
            assert_eq!(Bytes::parse_slurm(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "abc", "-1", "1.5G", "G", "1X", "1GG", "1BB", "99999999999P", "B1"] {
            assert!(Bytes::parse_slurm(text).is_err(), "{text}");
        }
    }

    #[test]
    fn dstack_sizes_are_read() {
        let table = [
            ("16GB", 16 * GIB),
            ("16gb", 16 * GIB),
            ("16 GB", 16 * GIB),
            ("512MB", 512 * MIB),
            ("1TB", 1_024 * GIB),
            ("1.5TB", 1_536 * GIB),
            ("16", 16 * GIB),
            ("16.5", 16 * GIB + GIB / 2),
        ];
        for (text, bytes) in table {
            assert_eq!(Bytes::parse_dstack(text), Ok(Bytes(bytes)), "{text}");
        }
        for text in [
            "",
            "16G",
            "16GiB",
            "abc",
            "-4",
            "GB",
            "1e3GB",
            "inf",
            "nan",
            "1..2",
            "99999999999999TB",
        ] {
            assert!(Bytes::parse_dstack(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_printed_as_captured() {
        let exact = [
            (8_192, "8G"),
            (1_000, "1000M"),
            (128_000, "125G"),
            (256_000, "250G"),
            (0, "0"),
            (1 << 20, "1T"),
            (512, "512M"),
            (1_280, "1280M"),
            (1_536, "1.50G"),
            (64_000, "62.50G"),
            (1_310_720, "1280G"),
            (1_572_864, "1.50T"),
            (1_049_088, "1.00T"),
        ];
        for (mib, text) in exact {
            assert_eq!(format_slurm_mb(mib), text);
        }
        assert_eq!(format_exact(3_108, Unit::Kibi), "3108K");
        assert_eq!(format_rounded(64_000, Unit::Mebi), "62.50G");
        assert_eq!(format_rounded(8_192, Unit::Mebi), "8G");
        assert_eq!(format_decimal(17_200), "17.20K");
        assert_eq!(format_decimal(2_000_000), "2M");
        assert_eq!(format_decimal(350), "350");
        assert_eq!(format_decimal(0), "0");
        assert_eq!(format_in(2_876, Unit::Kibi, Unit::Mebi), "2.81M");
        assert_eq!(format_in(4_000, Unit::Mebi, Unit::Mebi), "4000M");
        assert_eq!(Bytes::from_gib(16).format_dstack(), "16GB");
        assert_eq!(Bytes(512 * MIB).format_dstack(), "512MB");
        assert_eq!(Bytes(1_536 * MIB).format_dstack(), "1.5GB");
    }

    #[test]
    fn mebibytes_round_up_for_what_is_asked_and_down_for_what_is_there() {
        assert_eq!((Bytes(MIB + 1).mib(), Bytes(MIB + 1).mib_floor()), (2, 1));
    }
}
