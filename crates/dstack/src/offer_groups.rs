//! Offers by kind of GPU: `offer --group-by`.

use crate::offer::{Availability, Offer, number, size};
use crate::table::align;
use model::amount::Bytes;

/// What offers are told apart by. Backend and region are the same for all nodes of a cluster, and only shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupField {
    Gpu,
    Backend,
    Region,
    Count,
}

const FIELDS: [(&str, GroupField); 4] = [
    ("gpu", GroupField::Gpu),
    ("backend", GroupField::Backend),
    ("region", GroupField::Region),
    ("count", GroupField::Count),
];

/// dstack's word for the backend and the region of machines that are there already.
const REMOTE: &str = "remote";

/// Reads the words of `--group-by`; none are no groups.
pub fn parse_fields(words: &[String]) -> Result<Vec<GroupField>, String> {
    let field = |word: &String| {
        let known = FIELDS.iter().find(|(name, _)| name == word);
        known.map(|(_, field)| *field).ok_or_else(|| {
            let names = FIELDS.map(|(name, _)| name).join(", ");
            format!("{word:?}: expected {names}")
        })
    };
    let fields: Vec<GroupField> = words.iter().map(field).collect::<Result<_, _>>()?;
    let has = |field: GroupField| fields.contains(&field);
    if !fields.is_empty() && !has(GroupField::Gpu) {
        return Err("expected gpu among the fields".to_owned());
    }
    if has(GroupField::Region) && !has(GroupField::Backend) {
        return Err("region: expected backend beside it".to_owned());
    }
    Ok(fields)
}

/// Offers of one kind of GPU.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferGroup {
    /// `H100`; `None` where nodes only count their devices.
    pub name: Option<String>,
    /// The memory of each device.
    pub memory: Option<Bytes>,
    /// The fewest and the most GPUs of an offer.
    pub count: (u32, u32),
    /// The lowest and the highest price of one GPU, in dollars an hour.
    pub price: (f64, f64),
    pub availability: Vec<Availability>,
}

/// The groups in the order of their first offers. Offers without GPUs are in none.
pub fn groups(offers: &[Offer], by: &[GroupField]) -> Vec<OfferGroup> {
    let by_count = by.contains(&GroupField::Count);
    let mut groups: Vec<OfferGroup> = Vec::new();
    for offer in offers {
        let Some(gpu) = offer.resources.gpu.as_ref().filter(|gpu| gpu.count > 0) else { continue };
        let price = offer.price_dollars_per_hour / f64::from(gpu.count);
        let is_its = |group: &&mut OfferGroup| {
            let same_count = !by_count || group.count.0 == gpu.count;
            group.name == gpu.name && group.memory == gpu.memory && same_count
        };
        let Some(group) = groups.iter_mut().find(is_its) else {
            groups.push(OfferGroup {
                name: gpu.name.clone(),
                memory: gpu.memory,
                count: (gpu.count, gpu.count),
                price: (price, price),
                availability: vec![offer.availability],
            });
            continue;
        };
        group.count = (group.count.0.min(gpu.count), group.count.1.max(gpu.count));
        group.price = (group.price.0.min(price), group.price.1.max(price));
        if !group.availability.contains(&offer.availability) {
            group.availability.push(offer.availability);
        }
    }
    groups
}

impl OfferGroup {
    /// `H100:80GB:1..8`
    fn gpu_text(&self) -> String {
        let count = match self.count {
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least}..{most}"),
        };
        let parts = [self.name.clone(), self.memory.map(size), Some(count)];
        parts.into_iter().flatten().collect::<Vec<_>>().join(":")
    }

    fn price_text(&self) -> String {
        let (least, most) = (number(self.price.0), number(self.price.1));
        if least == most { least } else { format!("{least}..{most}") }
    }

    fn availability_text(&self) -> String {
        let words: Vec<&str> = self.availability.iter().map(|one| one.word()).collect();
        words.join(", ")
    }
}

/// The table of `offer --group-by`.
pub fn table(groups: &[OfferGroup], by: &[GroupField], most: usize) -> String {
    if groups.is_empty() {
        return "No matching instance offers available.\n".to_owned();
    }
    let has = |field: GroupField| by.contains(&field);
    let backend = if has(GroupField::Backend) { "BACKEND" } else { "BACKENDS" };
    let mut header = vec!["#", "GPU", "SPOT", "$/GPU", backend];
    header.extend(has(GroupField::Region).then_some("REGION"));
    header.push("");
    let mut lines = vec![header.into_iter().map(str::to_owned).collect()];
    for (i, group) in groups.iter().take(most).enumerate() {
        let mut line = vec![
            (i + 1).to_string(),
            group.gpu_text(),
            "on-demand".to_owned(),
            group.price_text(),
            REMOTE.to_owned(),
        ];
        line.extend(has(GroupField::Region).then(|| REMOTE.to_owned()));
        line.push(group.availability_text());
        lines.push(line);
    }
    align(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offer::{OfferGpu, OfferResources};

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn offer(name: &str, count: u32, price: f64, availability: Availability) -> Offer {
        let gpu = (count > 0).then(|| OfferGpu {
            name: Some(name.to_owned()),
            memory: Some(Bytes::from_gib(80)),
            count,
        });
        Offer {
            backend: "ssh (remote)".to_owned(),
            resources: OfferResources { gpu, ..OfferResources::default() },
            instance_type: "n1".to_owned(),
            blocks: None,
            price_dollars_per_hour: price,
            availability,
        }
    }

    #[test]
    fn fields_have_gpu_among_them_and_region_its_backend() {
        assert_eq!(parse_fields(&[]), Ok(Vec::new()));
        for good in ["gpu", "gpu backend", "backend gpu region", "gpu count"] {
            assert_eq!(
                parse_fields(&words(good)).map(|f| f.len()),
                Ok(words(good).len()),
                "{good}"
            );
        }
        for bad in ["backend", "gpu region", "gpu node", "count"] {
            assert!(parse_fields(&words(bad)).is_err_and(|why| why.contains("expected")), "{bad}");
        }
    }

    #[test]
    fn offers_of_one_kind_of_gpu_are_one_line() {
        let offers = [
            offer("H100", 1, 2.0, Availability::Idle),
            offer("", 0, 1.0, Availability::Idle),
            offer("H100", 4, 2.0, Availability::Busy),
            offer("A100", 2, 1.0, Availability::Idle),
        ];
        let shown = |by: &str| {
            let by = parse_fields(&words(by)).expect("fields");
            let text = table(&groups(&offers, &by), &by, 10);
            text.lines().map(|line| words(line).join(" ")).collect::<Vec<_>>()
        };
        let by_gpu = [
            "# GPU SPOT $/GPU BACKENDS",
            "1 H100:80GB:1..4 on-demand 0.5..2 remote idle, busy",
            "2 A100:80GB:2 on-demand 0.5 remote idle",
        ];
        assert_eq!(shown("gpu"), by_gpu);
        let by_all = [
            "# GPU SPOT $/GPU BACKEND REGION",
            "1 H100:80GB:1 on-demand 2 remote remote idle",
            "2 H100:80GB:4 on-demand 0.5 remote remote busy",
            "3 A100:80GB:2 on-demand 0.5 remote remote idle",
        ];
        assert_eq!(shown("gpu backend region count"), by_all);
        assert!(table(&[], &[], 10).contains("No matching"));
    }
}
