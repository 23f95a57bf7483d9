//! Lists of weights by TRES: `cpu=100,gres/gpu=1000`.

use model::amount::Unit;
use model::tres::TresKind;

use crate::conf::error::Findings;
use crate::conf::keys::record::Record;
use crate::conf::keys::value;

/// A key whose value is such a list.
pub struct WeightsKey {
    pub name: &'static str,
    /// A good value, which a refusal shows.
    pub example: &'static str,
    /// Reads the weight itself.
    pub weight: fn(&str) -> Option<f64>,
}

pub const PRIORITY: WeightsKey = WeightsKey {
    name: "PriorityWeightTRES",
    example: "cpu=100,gres/gpu=1000",
    weight: finite_number,
};

pub const BILLING: WeightsKey = WeightsKey {
    name: "TRESBillingWeights",
    example: "CPU=1.0,Mem=0.25G",
    weight: weight_per_megabyte,
};

impl WeightsKey {
    /// The names, in lower case, and their weights in the order written. A bad word is refused and left out.
    pub fn read(&self, record: &Record, findings: &mut Findings) -> Vec<(String, f64)> {
        let Some(entry) = record.entry(self.name) else { return Vec::new() };
        let mut weights = Vec::new();
        for word in value::words(&entry.text) {
            match self.parse(word) {
                Some(weight) => weights.push(weight),
                None => {
                    let expected = format!("{word:?}: expected weights such as {}", self.example);
                    findings.wrong(&entry.place, self.name, &entry.text, expected);
                }
            }
        }
        weights
    }

    fn parse(&self, word: &str) -> Option<(String, f64)> {
        let (name, weight) = word.split_once('=')?;
        let name = name.to_ascii_lowercase();
        name.parse::<TresKind>().ok()?;
        Some((name, (self.weight)(weight)?))
    }
}

fn finite_number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

/// Memory is counted in megabytes, so that a weight for a gigabyte is a 1024th for each of them. A suffix
/// does the same for any other TRES.
fn weight_per_megabyte(text: &str) -> Option<f64> {
    let (number, unit) = value::split_unit(text).unwrap_or((text, Unit::Mebi));
    let number = finite_number(number).filter(|number| *number >= 0.0)?;
    Some(number * (Unit::Mebi.bytes() as f64 / unit.bytes() as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_makes_the_weight_one_of_a_megabyte() {
        let table = [
            ("2", Some(2.0)),
            ("2M", Some(2.0)),
            ("2k", Some(2048.0)),
            ("0.25G", Some(0.25 / 1024.0)),
            ("1T", Some(1.0 / 1024.0 / 1024.0)),
            ("-1", None),
            ("inf", None),
            ("G", None),
            ("1E", None),
        ];
        for (text, weight) in table {
            assert_eq!(weight_per_megabyte(text), weight, "{text}");
        }
    }
}
