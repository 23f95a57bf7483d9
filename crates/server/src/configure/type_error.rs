//! What is said of a value of another type than its key has, in sluice.toml and in the configuration of a backend: the parser's
//! own words are those of Rust.

/// What a parser calls a type, and what whoever writes the file calls it.
const TYPES: [(&str, &str); 16] = [
    ("u8", "a whole number from 0 to 255"),
    ("u16", "a whole number from 0 to 65535"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number, 0 or more"),
    ("usize", "a whole number, 0 or more"),
    ("i32", "a whole number"),
    ("i64", "a whole number"),
    ("f32", "a number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a string", "a text in quotes"),
    ("a sequence", "a list, as in [\"a\", \"b\"]"),
    ("a map", "a table of names and values"),
    ("sequence", "a list"),
    ("map", "a table"),
    ("null", "nothing"),
];

fn plain_type(word: &str) -> Option<&'static str> {
    TYPES.iter().find(|(rust, _)| *rust == word).map(|(_, plain)| *plain)
}

/// The value as it was written, of `string "soon"` or `integer `5``.
fn value(found: &str) -> &str {
    if let Some(plain) = plain_type(found) {
        return plain;
    }
    for kind in ["string ", "integer ", "floating point ", "boolean "] {
        if let Some(value) = found.strip_prefix(kind) {
            return value.trim_matches('`');
        }
    }
    found
}

/// `"soon": expected a whole number …` of `invalid type: string "soon", expected u32`; another error as it is.
fn plain(message: &str) -> String {
    let told = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "));
    let Some((found, expected)) = told.and_then(|told| told.rsplit_once(", expected ")) else {
        return message.to_owned();
    };
    let expected = match plain_type(expected) {
        Some(plain) => plain,
        None if expected.starts_with("struct ") => "a table of names and values",
        None => expected,
    };
    format!("{}: expected {expected}", value(found))
}

/// The same with the key that has the value, where there is one.
pub(super) fn of_key(message: &str, key: impl FnOnce() -> Option<String>) -> String {
    let plain = plain(message);
    let key = if plain == message { None } else { key() };
    match key {
        Some(key) => format!("{key}: {plain}"),
        None => plain,
    }
}

/// The same with the key of the line that the value is on, where the line begins with one.
pub(super) fn of_line(message: &str, line: &str) -> String {
    let key = line.split_once('=').map(|(key, _)| key.trim());
    let is_key = |key: &&str| {
        let is_part = |b: u8| b.is_ascii_alphanumeric() || b"_-.\"'/".contains(&b);
        !key.is_empty() && key.bytes().all(is_part)
    };
    of_key(message, || key.filter(is_key).map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_types_are_said_with_their_key_and_value() {
        let table = [
            (
                "invalid type: string \"two\", expected u32",
                "machines = \"two\"",
                "machines: \"two\": expected a whole number from 0 to 4294967295",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "machines = -1",
                "machines: -1: expected a whole number from 0 to 4294967295",
            ),
            (
                "invalid type: string \"a, expected b\", expected a sequence",
                "features = 'a, expected b'",
                "features: \"a, expected b\": expected a list, as in [\"a\", \"b\"]",
            ),
            (
                "invalid type: boolean `true`, expected f64",
                "price_per_hour = true",
                "price_per_hour: true: expected a number",
            ),
            (
                "invalid type: map, expected a sequence",
                "[source]",
                "a table: expected a list, as in [\"a\", \"b\"]",
            ),
            ("unknown field `colour`", "colour = 1", "unknown field `colour`"),
        ];
        for (message, line, expected) in table {
            assert_eq!(of_line(message, line), expected);
        }
    }
}
