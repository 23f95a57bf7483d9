//! Mail about a job: for which events, and to whom.

use crate::printable::printable;
use serde::{Deserialize, Deserializer, Serialize};

/// The most bytes of an address or a list of them.
pub const ADDRESS_BYTES_MAX: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mail {
    #[serde(deserialize_with = "known_types")]
    pub types: Vec<MailType>,
    /// `None` for the job's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

impl Mail {
    pub fn has(&self, kind: MailType) -> bool {
        self.types.contains(&kind)
    }
}

/// An event of `--mail-type`, in the order in which `scontrol show job` lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MailType {
    InvalidDepend,
    Begin,
    End,
    Fail,
    Requeue,
    /// Burst buffers: accepted, and no such event ever happens here.
    StageOut,
    TimeLimit,
    #[serde(rename = "TIME_LIMIT_90")]
    TimeLimit90,
    #[serde(rename = "TIME_LIMIT_80")]
    TimeLimit80,
    #[serde(rename = "TIME_LIMIT_50")]
    TimeLimit50,
    /// Each task of an array has mails of its own.
    ArrayTasks,
}

impl MailType {
    pub const ALL: [MailType; 11] = [
        MailType::InvalidDepend,
        MailType::Begin,
        MailType::End,
        MailType::Fail,
        MailType::Requeue,
        MailType::StageOut,
        MailType::TimeLimit,
        MailType::TimeLimit90,
        MailType::TimeLimit80,
        MailType::TimeLimit50,
        MailType::ArrayTasks,
    ];

    /// The word of `--mail-type`, which is also its serialised form.
    pub const fn name(self) -> &'static str {
        match self {
            MailType::InvalidDepend => "INVALID_DEPEND",
            MailType::Begin => "BEGIN",
            MailType::End => "END",
            MailType::Fail => "FAIL",
            MailType::Requeue => "REQUEUE",
            MailType::StageOut => "STAGE_OUT",
            MailType::TimeLimit => "TIME_LIMIT",
            MailType::TimeLimit90 => "TIME_LIMIT_90",
            MailType::TimeLimit80 => "TIME_LIMIT_80",
            MailType::TimeLimit50 => "TIME_LIMIT_50",
            MailType::ArrayTasks => "ARRAY_TASKS",
        }
    }

    /// The percentage of the time limit at which it is sent, for those that are sent while the job runs.
    pub const fn time_limit_percent(self) -> Option<u32> {
        match self {
            MailType::TimeLimit90 => Some(90),
            MailType::TimeLimit80 => Some(80),
            MailType::TimeLimit50 => Some(50),
            _ => None,
        }
    }
}

/// Jobs of earlier releases could have any word as a type; those that are none are left out.
pub fn known_types<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<MailType>, D::Error> {
    let words = Vec::<String>::deserialize(from)?;
    let known = |word: &String| MailType::ALL.into_iter().find(|kind| kind.name() == word);
    Ok(words.iter().filter_map(known).collect())
}

/// Says in one line why a text is refused that is no address, or a list of them with commas, that a mail program would take for nothing but addresses:
/// some take a leading `-` for an option, `|` for a command, and `/` or `+` for a file.
pub fn check_address(text: &str) -> Result<(), String> {
    let inside = |c: char| c.is_ascii_alphanumeric() || ".@_+-=".contains(c);
    let is_address = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
            && part.chars().all(inside)
    };
    if text.len() <= ADDRESS_BYTES_MAX && text.split(',').all(is_address) {
        return Ok(());
    }
    let shown: String = printable(text).chars().take(80).collect();
    let expected =
        "letters, digits, '.', '@', '_', '+', '-', '=', beginning with a letter or digit";
    Err(format!("mail address {shown}: expected {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_that_a_mail_program_could_take_for_something_else_is_refused() {
        for good in ["ann", "ann@site.org", "a.b+c_d=e@x-y.org", "ann,bob@x", "_ann", "7"] {
            check_address(good).expect(good);
        }
        let long = "a".repeat(ADDRESS_BYTES_MAX + 1);
        for bad in [
            "", "-s", "--help", "a b", "a\nb", "|id", "/etc/x", "+box", "a,,b", "a,-t", "a;b",
            "a\u{7f}", "a`b`", "ä", &long,
        ] {
            let said = check_address(bad).expect_err(bad);
            assert!(said.starts_with("mail address ") && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn types_keep_their_stored_words_and_unknown_ones_are_left_out() {
        for kind in MailType::ALL {
            let stored = serde_json::to_value(kind).expect("a word");
            assert_eq!(stored, kind.name());
        }
        let old: Mail = serde_json::from_str(r#"{"types":["END","bogus","BEGIN"]}"#).expect("old");
        assert_eq!(old.types, [MailType::End, MailType::Begin]);
    }
}
