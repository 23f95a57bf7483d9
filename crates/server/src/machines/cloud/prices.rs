//! The price file: what an hour of a type costs where a cloud's own API does not tell it. docs/machines.md has its format.

use super::super::source::SourceError;
use super::secret::unreadable;
use model::cloud_source::CloudConfig;
use model::price::Price;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The prices that the program carries: public facts of the day that the file names.
const BUILT_IN: &str = include_str!("prices.json");

const FILE_BYTES_MAX: u64 = 16 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceFile {
    /// The day of the prices.
    #[allow(dead_code, reason = "for people: a file without it is refused")]
    date: String,
    /// By kind of source, region and type.
    prices: BTreeMap<String, BTreeMap<String, BTreeMap<String, TypePrice>>>,
    /// Dollars a month of a gibibyte of a disk, by kind of source and region.
    #[serde(default)]
    volumes: BTreeMap<String, BTreeMap<String, f64>>,
}

/// Dollars an hour.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TypePrice {
    on_demand: Option<f64>,
    spot: Option<f64>,
}

/// The prices of one kind of source.
#[derive(Debug, Default)]
pub struct Prices {
    /// Where they are from, for error lines.
    pub origin: String,
    regions: BTreeMap<String, BTreeMap<String, TypePrice>>,
    /// Dollars a month of a gibibyte of a disk, by region.
    disks: BTreeMap<String, f64>,
}

/// The hours of a month, by which clouds divide its price.
const HOURS_PER_MONTH: f64 = 730.0;

impl Prices {
    /// Reads the site's file, or those that the program carries.
    pub fn load(path: Option<&str>, kind: &str) -> Result<Self, SourceError> {
        let origin = path.map_or_else(|| "the program's own prices".to_owned(), str::to_owned);
        let wrong = |why: String| SourceError::refused(format!("prices: {origin}: {why}"));
        let text = match path {
            Some(path) => {
                let fault = |e: std::io::Error| wrong(unreadable(path, &e));
                let size = std::fs::metadata(path).map_err(fault)?.len();
                if size > FILE_BYTES_MAX {
                    return Err(wrong(format!("expected at most {FILE_BYTES_MAX} bytes")));
                }
                std::fs::read_to_string(path).map_err(fault)?
            }
            None => BUILT_IN.to_owned(),
        };
        let file: PriceFile = serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let regions = file.prices.get(kind).cloned().unwrap_or_default();
        for (region, types) in &regions {
            for (name, of) in types {
                let prices = [of.on_demand, of.spot];
                let is_wrong = |dollars: &f64| Price::from_dollars(*dollars).is_none();
                if let Some(dollars) = prices.into_iter().flatten().find(is_wrong) {
                    let of = format!("{kind} {region} {name}");
                    return Err(wrong(format!("{of}: {dollars}: expected dollars an hour")));
                }
            }
        }
        let disks = file.volumes.get(kind).cloned().unwrap_or_default();
        let is_wrong = |(_, dollars): &(&String, &f64)| Price::from_dollars(**dollars).is_none();
        if let Some((region, dollars)) = disks.iter().find(is_wrong) {
            let of = format!("volumes of {kind} {region}");
            return Err(wrong(format!("{of}: {dollars}: expected dollars a month")));
        }
        Ok(Self { origin, regions, disks })
    }

    /// Why a cloud offers nothing though so many of its types were looked at: none is as the site says, or none has a price.
    pub fn nothing_offered(&self, cloud: &CloudConfig, unpriced: usize) -> SourceError {
        let (places, origin) = (cloud.regions.join(", "), &self.origin);
        let why = match (unpriced, cloud.types.join(", ")) {
            (0, types) if types.is_empty() => format!("{places} has none that the image is for"),
            (0, types) => format!("none of {places} is as `types` says: {types}"),
            _ => format!("{unpriced} types of {places} have no price in {origin}"),
        };
        SourceError::refused(format!("no type can be offered: {why}"))
    }

    /// What an hour of a disk of so many gibibytes costs there.
    pub fn disk_price(&self, region: &str, size_gb: u64) -> Option<Price> {
        let month = self.disks.get(region).or_else(|| self.disks.get("*"))?;
        Price::from_dollars(month * size_gb as f64 / HOURS_PER_MONTH)
    }

    /// What an hour costs there; a region `*` has the prices of all that are not named.
    pub fn price(&self, region: &str, name: &str, spot: bool) -> Option<Price> {
        let of =
            [region, "*"].into_iter().find_map(|region| self.regions.get(region)?.get(name))?;
        Price::from_dollars(if spot { of.spot? } else { of.on_demand? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_prices_are_good_and_a_sites_file_replaces_them() {
        let own = Prices::load(None, "aws").expect("they are good");
        assert!(own.price("us-east-1", "g5.xlarge", false).is_some());
        assert_eq!(own.price("us-east-1", "nothing", false), None);
        assert!(Prices::load(None, "gcp").is_ok());
        let hundred = own.disk_price("us-east-1", 730).expect("a price");
        assert!(hundred > Price::default() && Some(hundred) < Price::from_dollars(1.0));
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("prices.json");
        let load = |text: &str| {
            std::fs::write(&path, text).expect("a file");
            Prices::load(path.to_str(), "aws")
        };
        let text = r#"{"date":"2026-11-01","prices":{"aws":{"*":{"a":{"on_demand":1.5,"spot":0.5}},"eu":{"a":{"on_demand":2}}}}}"#;
        let found = load(text).expect("it is good");
        let dollars = Price::from_dollars;
        assert_eq!(found.price("eu", "a", false), dollars(2.0));
        assert_eq!(found.price("us", "a", false), dollars(1.5));
        assert_eq!(found.price("us", "a", true), dollars(0.5));
        let text = r#"{"date":"","prices":{},"volumes":{"aws":{"*":0.1}}}"#;
        let disks = load(text).expect("it is good");
        assert_eq!(disks.disk_price("eu", 7300), dollars(1.0));
        for (text, words) in [
            ("", "EOF"),
            (r#"{"prices":{}}"#, "date"),
            (
                r#"{"date":"","prices":{"aws":{"r":{"a":{"on_demand":-1}}}}}"#,
                "aws r a: -1: expected dollars an hour",
            ),
        ] {
            let said = load(text).expect_err(text).text;
            assert!(said.contains(words) && said.contains("prices.json"), "{said}");
        }
        let none = Prices::load(Some("/nowhere/prices.json"), "aws").expect_err("none");
        assert!(none.text.contains("/nowhere/prices.json"), "{none}");
    }
}
