//! Signals by name and number, as `--signal`, `scancel --signal` and `salloc --kill-command` take them.

/// The numbers of Linux on the machines we run on.
const SIGNALS: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];

const NUMBER_MAX: i32 = 64;

/// `USR1`, `SIGUSR1`, `usr1` or `10`.
pub fn number(text: &str) -> Option<i32> {
    if let Ok(number) = text.parse::<i32>() {
        return (1..=NUMBER_MAX).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// `USR1` for 10; the number itself where it has no name.
pub fn name(number: i32) -> String {
    SIGNALS
        .iter()
        .find(|(_, known)| *known == number)
        .map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_in_every_spelling() {
        let cases = [
            ("USR1", Some(10)),
            ("SIGUSR1", Some(10)),
            ("sigterm", Some(15)),
            ("9", Some(9)),
            ("64", Some(64)),
            ("65", None),
            ("0", None),
            ("-3", None),
            ("FOO", None),
            ("", None),
            ("SIG", None),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text), expected, "{text}");
        }
        assert_eq!((name(15).as_str(), name(40).as_str()), ("TERM", "40"));
    }
}
