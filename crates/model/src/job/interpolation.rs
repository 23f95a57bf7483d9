//! `${{ … }}`: values that are filled in after the configuration was read.
//!
//! The references are found, and refused where they mean nothing, when a run is submitted; the server fills them in when it
//! has their values: a secret at launch, a rank and an address when the nodes are known.

use crate::secret;
use std::fmt;

const OPENING: &str = "${{";
const CLOSING: &str = "}}";

/// The most references in one text.
const REFERENCES_MAX: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Text(String),
    Reference(Reference),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reference {
    /// `secrets.NAME`
    Secret(String),
    /// `dstack.node_rank`, also `dstack.job_num`: the node's number in its run.
    NodeRank,
    /// `groups[0].nodes[1].IP_ADDRESS`
    NodeAddress { group: u32, node: u32 },
}

/// Where a text stands, which decides what it may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `env` and `registry_auth`. `$$` is a `$`.
    Environment,
    /// The name of a volume. `$$` is a `$`.
    VolumeName,
    /// A shell command. `$$` is the shell's own, and `$${{` a `${{` that is left alone.
    Command,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InterpolationError {
    #[error("`${{{{` without `}}}}`: expected ${{{{ {} }}}}", .0.expected())]
    Open(Place),
    #[error("`${{{{ {reference} }}}}`: expected {}", .place.expected())]
    Unknown { reference: String, place: Place },
    #[error("more than {REFERENCES_MAX} references in one text")]
    TooMany,
}

impl Place {
    fn expected(self) -> &'static str {
        match self {
            Self::Environment => "secrets.NAME",
            Self::VolumeName => "dstack.node_rank",
            Self::Command => "groups[0].nodes[0].IP_ADDRESS (a secret is given through `env`)",
        }
    }

    fn allows(self, reference: &Reference) -> bool {
        matches!(
            (self, reference),
            (Self::Environment, Reference::Secret(_))
                | (Self::VolumeName, Reference::NodeRank)
                | (Self::Command, Reference::NodeAddress { .. })
        )
    }
}

/// The text as pieces. Neighbouring texts are not joined.
pub fn parse(text: &str, place: Place) -> Result<Vec<Piece>, InterpolationError> {
    let (mut pieces, mut references, mut rest) = (Vec::new(), 0, text);
    let mut plain = String::new();
    while let Some(at) = rest.find('$') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(escaped) = rest.strip_prefix("$$") {
            let own = place == Place::Command && !escaped.starts_with("{{");
            plain.push_str(if own { "$$" } else { "$" });
            rest = escaped;
            // What follows `$$` is text: `$${{` begins no reference.
            if let Some(after) = rest.strip_prefix("{{") {
                plain.push_str("{{");
                rest = after;
            }
        } else if let Some(inside) = rest.strip_prefix(OPENING) {
            let (name, after) =
                inside.split_once(CLOSING).ok_or(InterpolationError::Open(place))?;
            let reference = Reference::parse(name.trim())
                .filter(|reference| place.allows(reference))
                .ok_or_else(|| unknown(name, place))?;
            references += 1;
            if references > REFERENCES_MAX {
                return Err(InterpolationError::TooMany);
            }
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
            pieces.push(Piece::Reference(reference));
            rest = after;
        } else {
            plain.push('$');
            rest = &rest[1..];
        }
    }
    plain.push_str(rest);
    pieces.push(Piece::Text(plain));
    pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
    Ok(pieces)
}

fn unknown(name: &str, place: Place) -> InterpolationError {
    const SHOWN_CHARS: usize = 60;
    let reference = name.trim().chars().take(SHOWN_CHARS).collect();
    InterpolationError::Unknown { reference, place }
}

/// The text with every reference filled in; the first one without a value is the error.
pub fn fill(
    pieces: &[Piece],
    value: impl Fn(&Reference) -> Option<String>,
) -> Result<String, Reference> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Text(part) => text.push_str(part),
            Piece::Reference(reference) => {
                text.push_str(&value(reference).ok_or_else(|| reference.clone())?);
            }
        }
    }
    Ok(text)
}

/// The references of the pieces, in their order.
pub fn references(pieces: &[Piece]) -> impl Iterator<Item = &Reference> {
    pieces.iter().filter_map(|piece| match piece {
        Piece::Reference(reference) => Some(reference),
        Piece::Text(_) => None,
    })
}

impl Reference {
    /// As it stands in a text: `${{ secrets.NAME }}`.
    pub fn text(&self) -> String {
        format!("{OPENING} {self} {CLOSING}")
    }

    fn parse(name: &str) -> Option<Self> {
        if let Some(named) = name.strip_prefix("secrets.") {
            return secret::is_name(named).then(|| Self::Secret(named.to_owned()));
        }
        if matches!(name, "dstack.node_rank" | "dstack.job_num") {
            return Some(Self::NodeRank);
        }
        let (group, rest) = name.strip_prefix("groups[")?.split_once("].nodes[")?;
        let (node, field) = rest.split_once("].")?;
        let address = field == "IP_ADDRESS";
        address
            .then_some(Self::NodeAddress { group: group.parse().ok()?, node: node.parse().ok()? })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(name) => write!(f, "secrets.{name}"),
            Self::NodeRank => f.write_str("dstack.node_rank"),
            Self::NodeAddress { group, node } => {
                write!(f, "groups[{group}].nodes[{node}].IP_ADDRESS")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text filled in with `<reference>` for each, or the error line.
    fn filled(text: &str, place: Place) -> String {
        match parse(text, place) {
            Ok(pieces) => fill(&pieces, |reference| Some(format!("<{reference}>"))).unwrap(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn references_are_found_and_everything_else_stays() {
        use Place::*;
        let cases = [
            ("a ${{ secrets.tok }} b", Environment, "a <secrets.tok> b"),
            ("${{secrets.a-b_1}}${{ secrets.c }}", Environment, "<secrets.a-b_1><secrets.c>"),
            ("$HOME costs $$5", Environment, "$HOME costs $5"),
            ("$${{ secrets.x }}", Environment, "${{ secrets.x }}"),
            ("v-${{ dstack.node_rank }}", VolumeName, "v-<dstack.node_rank>"),
            ("v-${{ dstack.job_num }}", VolumeName, "v-<dstack.node_rank>"),
            ("echo $$ $${{ x }}", Command, "echo $$ ${{ x }}"),
            (
                "ssh ${{ groups[1].nodes[0].IP_ADDRESS }}",
                Command,
                "ssh <groups[1].nodes[0].IP_ADDRESS>",
            ),
            ("${x} $", Command, "${x} $"),
        ];
        for (text, place, expected) in cases {
            assert_eq!(filled(text, place), expected, "{text}");
        }
    }

    #[test]
    fn reference_that_means_nothing_in_its_place_is_one_line() {
        use Place::*;
        let cases = [
            ("${{ vault.x }}", Environment, "`${{ vault.x }}`: expected secrets.NAME"),
            ("${{ secrets. }}", Environment, "`${{ secrets. }}`: expected secrets.NAME"),
            ("${{ secrets.a b }}", Environment, "`${{ secrets.a b }}`: expected secrets.NAME"),
            ("${{ secrets.x", Environment, "`${{` without `}}`: expected ${{ secrets.NAME }}"),
            ("${{ secrets.x }}", VolumeName, "`${{ secrets.x }}`: expected dstack.node_rank"),
        ];
        for (text, place, expected) in cases {
            assert_eq!(filled(text, place), expected, "{text}");
        }
        assert!(filled("${{ secrets.x }}", Command).contains("through `env`"));
        assert!(filled(&"${{ secrets.x }}".repeat(101), Environment).starts_with("more than 100"));
    }
}
