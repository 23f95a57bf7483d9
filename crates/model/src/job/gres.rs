//! Generic resources: what `--gres` and `--gpus` ask for, what a node's `Gres=` offers, and how both are shown.

use crate::amount::parse_count;
use crate::array::IndexSet;
use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// No list may name more resources than this.
const ENTRIES_MAX: usize = 256;

/// No machine numbers its sockets higher.
const SOCKET_MAX: u32 = 1_023;

/// The name of GPUs among the generic resources.
pub const GPU: &str = "gpu";

const EXPECTED: &str = "NAME, NAME:COUNT, NAME:TYPE or NAME:TYPE:COUNT, as in gpu:h100:2";

/// A resource and how many of it: `gpu:h100:2`. Without a kind any kind will do.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GresCount {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub count: u64,
}

/// A resource that a node has.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeclaredGres {
    #[serde(flatten)]
    pub gres: GresCount,
    /// Present, but never used up: any number of jobs may have it at once.
    #[serde(default)]
    pub no_consume: bool,
    /// The sockets that the resource is attached to, if declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<IndexSet>,
}

impl GresCount {
    pub fn new(name: &str, kind: Option<&str>, count: u64) -> Self {
        Self { name: name.to_owned(), kind: kind.map(str::to_owned), count }
    }

    /// With the devices in use, as in `GresUsed=`: `gpu:h100:2(IDX:0-1)`, and `(IDX:N/A)` for none.
    pub fn display_with_indices(&self, indices: &IndexSet) -> String {
        if indices.is_empty() {
            format!("{self}(IDX:N/A)")
        } else {
            format!("{self}(IDX:{})", indices.range_text())
        }
    }
}

impl fmt::Display for GresCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Some(kind) => write!(f, "{}:{kind}:{}", self.name, self.count),
            None => write!(f, "{}:{}", self.name, self.count),
        }
    }
}

impl fmt::Display for DeclaredGres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GresCount { name, kind, count } = &self.gres;
        f.write_str(name)?;
        if let Some(kind) = kind {
            write!(f, ":{kind}")?;
        }
        if self.no_consume {
            f.write_str(":no_consume")?;
        }
        write!(f, ":{count}")?;
        match &self.sockets {
            Some(sockets) => write!(f, "(S:{})", sockets.range_text()),
            None => Ok(()),
        }
    }
}

/// `--gres`: `gpu`, `gpu:2`, `gpu:h100:2`, lists of them; `none` is nothing. Each may begin with `gres:` or `gres/`.
pub fn parse_request(text: &str) -> Result<Vec<GresCount>, GrammarError> {
    const WHAT: &str = "gres";
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    let entries = entries(WHAT, text)?;
    let parsed: Option<Vec<_>> = entries.into_iter().map(request_entry).collect();
    parsed.ok_or_else(|| GrammarError::new(WHAT, text, EXPECTED))
}

/// `--gpus` and its siblings: `4`, `h100`, `h100:2,a100:1`.
pub fn parse_gpus(text: &str) -> Result<Vec<GresCount>, GrammarError> {
    const WHAT: &str = "gpu count";
    let entries = entries(WHAT, text)?;
    let parsed: Option<Vec<_>> =
        entries.into_iter().map(|entry| kind_and_count(GPU, entry)).collect();
    parsed.ok_or_else(|| GrammarError::new(WHAT, text, "COUNT, TYPE or TYPE:COUNT, as in h100:2"))
}

/// A node's `Gres=`: `gpu:h100:8`, `gpu:8(S:0-1)`, `nic:no_consume:4K`.
pub fn parse_node(text: &str) -> Result<Vec<DeclaredGres>, GrammarError> {
    const WHAT: &str = "node gres";
    let entries = entries(WHAT, text)?;
    let parsed: Option<Vec<_>> = entries.into_iter().map(node_entry).collect();
    parsed.ok_or_else(|| {
        GrammarError::new(
            WHAT,
            text,
            "NAME[:TYPE][:no_consume]:COUNT[(S:SOCKETS)], as in gpu:h100:8",
        )
    })
}

/// A request as squeue and scontrol show it: `gres:gpu:2,gres:fpga:1`.
pub fn format_request(wanted: &[GresCount]) -> String {
    let parts: Vec<String> = wanted.iter().map(|gres| format!("gres:{gres}")).collect();
    parts.join(",")
}

/// Cuts at the commas outside parentheses; an empty text is an empty list, an empty entry is refused.
fn entries<'a>(what: &'static str, text: &'a str) -> Result<Vec<&'a str>, GrammarError> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut inside = false;
    let entries: Vec<&str> = text
        .split(|c| {
            inside = (inside || c == '(') && c != ')';
            c == ',' && !inside
        })
        .map(str::trim)
        .collect();
    if entries.len() > ENTRIES_MAX {
        return Err(GrammarError::new(what, text, format!("at most {ENTRIES_MAX} entries")));
    }
    if entries.iter().any(|entry| entry.is_empty()) {
        return Err(GrammarError::new(what, text, "something between the commas"));
    }
    Ok(entries)
}

fn request_entry(entry: &str) -> Option<GresCount> {
    let entry =
        entry.strip_prefix("gres:").or_else(|| entry.strip_prefix("gres/")).unwrap_or(entry);
    match entry.split_once(':') {
        Some((name, rest)) => kind_and_count(checked_word(name)?, rest),
        None => Some(GresCount::new(checked_word(entry)?, None, 1)),
    }
}

/// The part after the name: `2`, `h100`, `h100:2`. A word that is a number is the count.
fn kind_and_count(name: &str, text: &str) -> Option<GresCount> {
    match text.split_once(':') {
        Some((kind, count)) => {
            Some(GresCount::new(name, Some(checked_word(kind)?), parse_count(count)?))
        }
        None => match parse_count(text) {
            Some(count) => Some(GresCount::new(name, None, count)),
            None => Some(GresCount::new(name, Some(checked_word(text)?), 1)),
        },
    }
}

fn node_entry(entry: &str) -> Option<DeclaredGres> {
    let (counted, sockets) = match entry.strip_suffix(')') {
        Some(open) => {
            let (counted, sockets) = open.split_once("(S:")?;
            (counted, Some(IndexSet::parse(sockets, SOCKET_MAX).ok()?))
        }
        None => (entry, None),
    };
    let (flags, parts): (Vec<&str>, Vec<&str>) =
        counted.split(':').partition(|part| *part == "no_consume");
    if flags.len() > 1 {
        return None;
    }
    let gres = request_entry(&parts.join(":"))?;
    Some(DeclaredGres { gres, no_consume: !flags.is_empty(), sockets })
}

/// Names and kinds: letters, digits, and the marks that GPU profiles use (`1g.10gb`, `a100-sxm4_80`).
fn checked_word(word: &str) -> Option<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+');
    let begins_well = word.starts_with(|c: char| c.is_ascii_alphanumeric());
    let is_number = word.bytes().all(|b| b.is_ascii_digit());
    (begins_well && !is_number && word.chars().all(plain)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(list: &[GresCount]) -> String {
        list.iter().map(GresCount::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn requests_are_read() {
        let table = [
            ("gpu", "gpu:1"),
            ("gpu:2", "gpu:2"),
            ("gpu:h100", "gpu:h100:1"),
            ("gpu:h100:2", "gpu:h100:2"),
            ("gpu:2,fpga:1", "gpu:2 fpga:1"),
            ("gres:gpu:2", "gpu:2"),
            ("gres/gpu:h100:2,gres:fpga", "gpu:h100:2 fpga:1"),
            ("gpu:1g.10gb:3", "gpu:1g.10gb:3"),
            ("bandwidth:4K", "bandwidth:4096"),
            ("gpu:0", "gpu:0"),
            ("none", ""),
            ("", ""),
        ];
        for (text, counts) in table {
            let wanted = parse_request(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(shown(&wanted), counts, "{text}");
        }
        for text in [
            "gpu:x:y:z",
            "gpu:",
            ":2",
            "gpu,,fpga",
            "gpu:-1",
            "gpu:99999999999999999999",
            "gpu:h100:x",
            "gpu 2",
            ",",
            "gpu::2",
            "gpu:h100:2:",
        ] {
            assert!(parse_request(text).is_err(), "{text}");
        }
        assert!(parse_request(&["gpu"; 300].join(",")).is_err());
    }

    #[test]
    fn gpu_counts_are_read() {
        let table =
            [("4", "gpu:4"), ("h100", "gpu:h100:1"), ("h100:2,a100:1", "gpu:h100:2 gpu:a100:1")];
        for (text, counts) in table {
            assert_eq!(parse_gpus(text).map(|list| shown(&list)).as_deref(), Ok(counts), "{text}");
        }
        assert!(parse_gpus("h100:2:1").is_err());
    }

    #[test]
    fn what_a_node_declares_is_read_and_shown_again() {
        let texts = [
            "gpu:h100:8",
            "gpu:8",
            "gpu:h100:8(S:0-1)",
            "gpu:a100:2(S:0,2)",
            "nic:no_consume:4096",
            "nic:x:no_consume:2",
        ];
        for text in texts {
            let declared = parse_node(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(declared[0].to_string(), text);
        }
        let list = parse_node("gpu:h100:8(S:0,1),nic:no_consume:4K").expect("a good list");
        assert_eq!((list.len(), list[1].gres.count, list[1].no_consume), (2, 4_096, true));
        for text in [
            "gpu:8(S:0-1",
            "gpu:8(X:0)",
            "gpu:8(S:)",
            "gpu:8(S:0-99999)",
            "gpu:8)",
            "gpu:no_consume:no_consume:1",
        ] {
            assert!(parse_node(text).is_err(), "{text}");
        }
    }

    #[test]
    fn use_is_shown_as_captured() {
        let indices: IndexSet = [0, 1].into_iter().collect();
        assert_eq!(
            GresCount::new("gpu", Some("h100"), 2).display_with_indices(&indices),
            "gpu:h100:2(IDX:0-1)"
        );
        assert_eq!(
            GresCount::new("gpu", Some("h100"), 0).display_with_indices(&IndexSet::new()),
            "gpu:h100:0(IDX:N/A)"
        );
        assert_eq!(format_request(&parse_request("gpu:2").expect("good")), "gres:gpu:2");
    }
}
