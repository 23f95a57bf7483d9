//! The offers of EC2: the types of each region, or of each zone that the site or its VPC has a subnet in, with their prices. A type
//! without a price is not offered: nobody could say what it costs.

use super::api::{Form, items, value};
use super::instance_type::InstanceType;
use super::{Ec2Source, Facts};
use crate::clock;
use crate::machines::cloud::machine_facts::free_disk;
use crate::machines::cloud::offer_id::offer_id;
use crate::machines::cloud::prices::Prices;
use crate::machines::source::SourceError;
use model::machine::{OFFERS_MAX, Offer};
use model::price::Price;
use model::time::format_iso;
use std::collections::{HashMap, HashSet};

/// The part of a spot price, in hundredths, by which it must move until it is told anew: each change is an entry of the journal.
const SPOT_STEP: f64 = 5.0;

/// Types in one question for spot prices.
const SPOT_TYPES_MAX: usize = 100;

/// The lowest spot price of each type in each zone.
type SpotPrices = HashMap<(String, String), Price>;

impl Ec2Source {
    pub(super) fn list_offers(&self) -> Result<Vec<Offer>, SourceError> {
        let prices = Prices::load(self.cloud.prices.as_deref(), "aws")?;
        let mut offers = Vec::new();
        let mut unpriced = 0;
        for region in &self.cloud.regions {
            let types = self.types_of_images(region)?;
            let spot = self.spot_prices(region, &types)?;
            let subnets = self.subnets(region)?;
            let zones: Vec<&str> = subnets.keys().map(String::as_str).collect();
            let offered = self.offered(region, &zones)?;
            let places = if zones.is_empty() { vec![region.as_str()] } else { zones };
            for of in &types {
                let before = offers.len();
                for place in &places {
                    if offered.as_ref().is_some_and(|all| !all.contains(&of.name, place)) {
                        continue;
                    }
                    offers.extend(self.offers_of(of, region, place, &prices, &spot));
                }
                unpriced += usize::from(offers.len() == before);
            }
        }
        self.check(offers, unpriced, &prices)
    }

    /// The types of a region that its images are for. An image is asked for where a type would be made from it.
    fn types_of_images(&self, region: &str) -> Result<Vec<InstanceType>, SourceError> {
        let mut types = self.types(region)?;
        let architecture = |has_gpus: bool| {
            let is_needed = types.iter().any(|of| of.gpus.is_some() == has_gpus);
            let image = is_needed.then(|| self.image(region, has_gpus)).transpose();
            image.map(|image| image.map(|image| image.architecture))
        };
        let (of_cpu, of_gpu) = (architecture(false)?, architecture(true)?);
        types.retain(|of| {
            let own = if of.gpus.is_some() { &of_gpu } else { &of_cpu };
            let is_own = |own: &String| of.architectures.contains(own);
            of.architectures.is_empty() || own.as_ref().is_some_and(is_own)
        });
        Ok(types)
    }

    fn offers_of(
        &self,
        of: &InstanceType,
        region: &str,
        place: &str,
        prices: &Prices,
        spot: &SpotPrices,
    ) -> impl Iterator<Item = Offer> {
        let policy = self.cloud.spot;
        let disk = free_disk(self.cloud.disk_gb.into());
        let stays = prices.price(region, &of.name, false);
        let told = spot.get(&(of.name.clone(), place.to_owned())).copied();
        let taken_back = told.or_else(|| prices.price(region, &of.name, true));
        let taken_back = taken_back.filter(|_| of.has_spot);
        let both = [(false, stays), (true, taken_back)];
        let both = both.into_iter().filter(move |(spot, _)| policy.takes(*spot));
        let (of, region, place) = (of.clone(), region.to_owned(), place.to_owned());
        both.filter_map(move |(spot, price)| {
            Some(Offer {
                id: offer_id(&of.name, &place, spot),
                cpus: of.cpus,
                memory: of.memory,
                disk,
                gpus: of.gpus.clone(),
                region: region.clone(),
                price: price?,
                spot,
            })
        })
    }

    /// Which types can be had in which of these zones; `None` where no zone is asked for.
    fn offered(&self, region: &str, zones: &[&str]) -> Result<Option<OfferedTypes>, SourceError> {
        if zones.is_empty() {
            return Ok(None);
        }
        let form = Form::default().with("MaxResults", "1000");
        let form = form.with("LocationType", "availability-zone");
        let form = form.with_filter(1, "location", zones.iter().copied());
        let mut found = HashSet::new();
        self.api.call_pages(region, "DescribeInstanceTypeOfferings", &form, |root| {
            for item in items(root, "instanceTypeOfferingSet") {
                let pair = (value(item, "instanceType"), value(item, "location"));
                if let (Some(name), Some(zone)) = pair {
                    found.insert((name.to_owned(), zone.to_owned()));
                }
            }
        })?;
        Ok(Some(OfferedTypes(found)))
    }

    /// The spot prices of these types: for each zone, and the lowest of the region under its own name.
    fn spot_prices(&self, region: &str, types: &[InstanceType]) -> Result<SpotPrices, SourceError> {
        let mut found = SpotPrices::new();
        if !self.cloud.spot.takes(true) {
            return Ok(found);
        }
        let names: Vec<&str> =
            types.iter().filter(|of| of.has_spot).map(|of| of.name.as_str()).collect();
        let now = format!("{}Z", format_iso(clock::now(), &jiff::tz::TimeZone::UTC));
        for names in names.chunks(SPOT_TYPES_MAX) {
            let form = Form::default()
                .with("MaxResults", "1000")
                .with("StartTime", now.as_str())
                .with_list("ProductDescription", ["Linux/UNIX"])
                .with_list("InstanceType", names.iter().copied());
            self.api.call_pages(region, "DescribeSpotPriceHistory", &form, |root| {
                for item in items(root, "spotPriceHistorySet") {
                    let price = value(item, "spotPrice").and_then(|text| text.parse().ok());
                    let price = price.and_then(Price::from_dollars);
                    let pair = (value(item, "instanceType"), value(item, "availabilityZone"));
                    if let (Some(price), (Some(name), Some(zone))) = (price, pair) {
                        for place in [zone, region] {
                            let key = (name.to_owned(), place.to_owned());
                            let known = found.entry(key).or_insert(price);
                            *known = price.min(*known);
                        }
                    }
                }
            })?;
        }
        Ok(steady(&mut self.facts(), found))
    }

    fn check(
        &self,
        mut offers: Vec<Offer>,
        unpriced: usize,
        prices: &Prices,
    ) -> Result<Vec<Offer>, SourceError> {
        if offers.is_empty() {
            return Err(prices.nothing_offered(&self.cloud, unpriced));
        }
        if unpriced > 0 {
            tracing::info!(
                "source {}: {unpriced} types have no price in {}, and are not offered",
                self.name,
                prices.origin
            );
        }
        if offers.len() > OFFERS_MAX {
            offers.sort_by_key(|offer| offer.price);
            tracing::warn!(
                "source {}: {} offers: the cheapest {OFFERS_MAX} are taken; name types in [source.cloud]",
                self.name,
                offers.len()
            );
            offers.truncate(OFFERS_MAX);
        }
        Ok(offers)
    }
}

/// Types with the zones that they can be had in.
struct OfferedTypes(HashSet<(String, String)>);

impl OfferedTypes {
    fn contains(&self, name: &str, zone: &str) -> bool {
        self.0.contains(&(name.to_owned(), zone.to_owned()))
    }
}

/// The prices that were told before, where they have not moved much.
fn steady(facts: &mut Facts, mut found: SpotPrices) -> SpotPrices {
    for (key, price) in &mut found {
        let told = facts.spot_prices.entry(key.clone()).or_insert(*price);
        let moved = (price.dollars() - told.dollars()).abs();
        if moved * 100.0 >= told.dollars() * SPOT_STEP {
            *told = *price;
        }
        *price = *told;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spot_prices_stay_where_they_move_little() {
        let mut facts = Facts::default();
        let key = ("g5.xlarge".to_owned(), "eu-west-1a".to_owned());
        let mut tell = |dollars: f64| {
            let price = Price::from_dollars(dollars).expect("a price");
            let told = steady(&mut facts, [(key.clone(), price)].into());
            told[&key].dollars()
        };
        let told = [1.0, 1.04, 0.97, 1.06, 1.02].map(&mut tell);
        assert_eq!(told, [1.0, 1.0, 1.0, 1.06, 1.06]);
    }
}
