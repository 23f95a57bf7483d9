//! Rows of data that say where the value of a key goes: the key's name, how the value is read, and the
//! field that takes it. A key that was not given, or was refused, leaves its field as it is.

use model::amount::Bytes;
use model::time::TimeLimit;

use super::choices::Choice;
use super::record::{Largest, Record};
use super::value::{Parameters, Percent};

/// A key that sets one field of `T` and needs no look at any other key.
pub struct Field<T> {
    pub key: &'static str,
    pub set: fn(&mut T, KeyValue<'_>),
}

impl<T> Field<T> {
    /// Sets the field if the record has the key.
    pub fn store(&self, record: &Record, target: &mut T) {
        (self.set)(target, KeyValue { record, key: self.key });
    }
}

/// `field!("KillWait", number, times.kill_wait_s)`: the key, a method of `KeyValue`, and the field.
macro_rules! field {
    ($key:literal, $how:ident, $($place:ident).+) => {
        $crate::conf::keys::fields::Field {
            key: $key,
            set: |target, value| {
                if let Some(value) = value.$how() {
                    target.$($place).+ = value;
                }
            },
        }
    };
}
pub(in crate::conf) use field;

/// The value of one key of a record. Each method reads it for one type of field; `None` is a key without
/// a value.
pub struct KeyValue<'r> {
    record: &'r Record,
    key: &'static str,
}

impl KeyValue<'_> {
    pub fn text(&self) -> Option<String> {
        self.record.text(self.key)
    }

    pub fn some_text(&self) -> Option<Option<String>> {
        self.text().map(Some)
    }

    /// A text in which `none` and `N/A` stand for nothing.
    pub fn name_or_none(&self) -> Option<Option<String>> {
        let nothing = |text: &str| ["none", "n/a"].contains(&text.to_ascii_lowercase().as_str());
        self.text().map(|text| Some(text).filter(|text| !nothing(text)))
    }

    pub fn words(&self) -> Option<Vec<String>> {
        self.record.has(self.key).then(|| self.record.words(self.key))
    }

    pub fn parameters(&self) -> Option<Parameters> {
        self.words().map(Parameters::new)
    }

    pub fn flag(&self) -> Option<bool> {
        self.record.flag(self.key)
    }

    pub fn some_flag(&self) -> Option<Option<bool>> {
        self.flag().map(Some)
    }

    /// A number that is 0 for no, and anything else for yes.
    pub fn switch(&self) -> Option<bool> {
        self.number::<u64>().map(|number| number != 0)
    }

    /// A number; `UNLIMITED` is the largest.
    pub fn number<N: TryFrom<u64> + Largest>(&self) -> Option<N> {
        self.record.number(self.key)
    }

    pub fn some_number<N: TryFrom<u64> + Largest>(&self) -> Option<Option<N>> {
        self.number().map(Some)
    }

    /// A number; `UNLIMITED` is none.
    pub fn limit<N: TryFrom<u64> + Largest>(&self) -> Option<Option<N>> {
        self.record.limit(self.key)
    }

    pub fn time(&self) -> Option<TimeLimit> {
        self.record.time(self.key)
    }

    pub fn some_time(&self) -> Option<Option<TimeLimit>> {
        self.time().map(Some)
    }

    /// A time in minutes; `UNLIMITED` is the largest number.
    pub fn minutes(&self) -> Option<u32> {
        self.time().map(|time| time.minutes().unwrap_or(u32::MAX))
    }

    /// A time in minutes; zero and `UNLIMITED` are none.
    pub fn minutes_above_zero(&self) -> Option<Option<u32>> {
        self.time().map(|time| time.minutes().filter(|minutes| *minutes > 0))
    }

    pub fn choice<C: Choice>(&self) -> Option<C> {
        self.record.choice(self.key)
    }

    pub fn some_choice<C: Choice>(&self) -> Option<Option<C>> {
        self.choice().map(Some)
    }

    pub fn choices<C: Choice>(&self) -> Option<Vec<C>> {
        self.record.choices(self.key)
    }

    pub fn some_choices<C: Choice>(&self) -> Option<Option<Vec<C>>> {
        self.choices().map(Some)
    }

    pub fn percent(&self) -> Option<Percent> {
        self.record.percent(self.key)
    }

    /// An amount of memory in mebibytes; `UNLIMITED` is the largest.
    pub fn mebibytes(&self) -> Option<Bytes> {
        self.number().map(Bytes::from_mib)
    }

    /// An amount of memory in mebibytes; `UNLIMITED` is none.
    pub fn mebibytes_limit(&self) -> Option<Option<Bytes>> {
        self.limit().map(|mib| mib.map(Bytes::from_mib))
    }
}
