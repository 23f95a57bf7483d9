//! The names of offers: the type, the place, and whether the cloud may take the machine back.

/// `g5.xlarge@eu-west-1a`, `g5.xlarge@eu-west-1a/spot`.
pub fn offer_id(name: &str, place: &str, spot: bool) -> String {
    let suffix = if spot { "/spot" } else { "" };
    format!("{name}@{place}{suffix}")
}

/// The type of an offer of this name.
pub fn type_of(id: &str) -> &str {
    id.split('@').next().unwrap_or(id)
}

/// The place of an offer of this name: a region or a zone.
pub fn place_of(id: &str) -> &str {
    let place = id.split_once('@').map_or("", |(_, place)| place);
    place.split('/').next().unwrap_or(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_names_its_type_and_its_place() {
        let id = offer_id("g5.xlarge", "eu-west-1a", true);
        assert_eq!(id, "g5.xlarge@eu-west-1a/spot");
        assert_eq!((type_of(&id), place_of(&id)), ("g5.xlarge", "eu-west-1a"));
        assert_eq!((type_of("small"), place_of("small")), ("small", ""));
    }
}
