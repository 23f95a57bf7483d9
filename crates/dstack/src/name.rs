//! The names of runs: the rule, and the ones that are made up for runs without a name.

/// As the user is told of it.
pub const RULE: &str =
    "a name of 2 to 41 lower-case letters, digits and -, of which the first is a letter";

pub fn is_valid(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (2..=41).contains(&name.len())
        && name.as_bytes()[0].is_ascii_lowercase()
        && name.bytes().all(letter)
}

const ADJECTIVES: [&str; 32] = [
    "amber", "brisk", "calm", "clear", "cool", "deep", "eager", "early", "fair", "fast", "fresh",
    "gentle", "glad", "green", "keen", "kind", "light", "lively", "mild", "neat", "open", "plain",
    "proud", "quick", "quiet", "ready", "sharp", "smooth", "steady", "swift", "warm", "wide",
];

const NOUNS: [&str; 32] = [
    "bank", "basin", "bay", "beck", "bend", "bridge", "brook", "canal", "channel", "creek",
    "current", "delta", "eddy", "falls", "ferry", "ford", "gate", "harbour", "inlet", "lake",
    "lock", "marsh", "mill", "otter", "pond", "pool", "rapid", "river", "spring", "stream", "tide",
    "weir",
];

/// `adjective-noun-number` out of random bits. The caller tries again with others if the name is taken.
pub fn generate(random: u64) -> String {
    let adjective = ADJECTIVES[(random % 32) as usize];
    let noun = NOUNS[(random / 32 % 32) as usize];
    let number = random / 1024 % 99 + 1;
    format!("{adjective}-{noun}-{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule() {
        let long = "a".repeat(42);
        let cases = [
            ("hello", true),
            ("a1", true),
            ("train-2", true),
            ("a", false),
            ("", false),
            ("2fast", false),
            ("-x", false),
            ("Bad_Name!", false),
            ("with space", false),
            (&long[..41], true),
            (&long, false),
        ];
        for (name, expected) in cases {
            assert_eq!(is_valid(name), expected, "{name}");
        }
    }

    #[test]
    fn made_up_names_follow_the_rule_and_depend_on_every_part_of_the_bits() {
        let mut seen = std::collections::HashSet::new();
        for random in 0..32 * 32 * 99 {
            let name = generate(random);
            assert!(is_valid(&name), "{name}");
            assert!(seen.insert(name));
        }
        assert!(is_valid(&generate(u64::MAX)));
    }
}
