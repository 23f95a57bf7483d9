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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offer_names_its_type() {
        let id = offer_id("g5.xlarge", "eu-west-1a", true);
        assert_eq!((id.as_str(), type_of(&id)), ("g5.xlarge@eu-west-1a/spot", "g5.xlarge"));
    }
}
