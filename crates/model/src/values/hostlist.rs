//! Slurm's host lists: `node[1-3,7],gpu[01-04]-ib` and the names they stand for.

use crate::grammar::GrammarError;
use std::cmp::Ordering;

/// The most names of one list.
pub const HOSTS_MAX: usize = 65_536;

/// The longest name of a list, and all of its names together: a few brackets behind a long text would otherwise fill the memory
/// of whoever reads them, which may be the server.
const NAME_BYTES_MAX: usize = 1024;
const NAMES_BYTES_MAX: usize = 4 << 20;

/// More digits than this are a name, not a number that could be counted up.
const DIGITS_MAX: usize = 18;

const WHAT: &str = "host list";

/// The names that `list` stands for, in the order written. Commas and white space separate; an empty list is no names.
pub fn expand(list: &str) -> Result<Vec<String>, GrammarError> {
    let refused = |expected: String| Err(GrammarError::new(WHAT, list, expected));
    let mut names = Vec::new();
    let mut bytes = 0;
    for term in split_terms(list)? {
        let pieces = parse_term(list, term)?;
        let count =
            pieces.iter().try_fold(1usize, |product, piece| product.checked_mul(piece.len()));
        let Some(count) = count.filter(|count| *count <= HOSTS_MAX - names.len()) else {
            return refused(format!("at most {HOSTS_MAX} hosts"));
        };
        let longest: usize = pieces.iter().map(Piece::longest).sum();
        if longest > NAME_BYTES_MAX {
            return refused(format!("names of at most {NAME_BYTES_MAX} bytes"));
        }
        bytes += longest * count;
        if bytes > NAMES_BYTES_MAX {
            return refused(format!("at most {NAMES_BYTES_MAX} bytes of names"));
        }
        names.extend(product(&pieces));
    }
    Ok(names)
}

/// Whether `name` is one of those that `list` stands for, without making all of them.
pub fn contains(list: &str, name: &str) -> bool {
    let Ok(terms) = split_terms(list) else { return false };
    let mut terms = terms.into_iter().filter_map(|term| parse_term(list, term).ok());
    terms.any(|pieces| is_made_of(&pieces, name))
}

/// Whether the pieces make up this name. A number has as many digits as are there: digits that follow it are text of the list,
/// so that each count of digits is tried.
fn is_made_of(pieces: &[Piece<'_>], name: &str) -> bool {
    match pieces.split_first() {
        None => name.is_empty(),
        Some((Piece::Text(text), rest)) => {
            name.strip_prefix(text).is_some_and(|name| is_made_of(rest, name))
        }
        Some((Piece::Numbers(ranges), rest)) => {
            let digits = name.bytes().take(DIGITS_MAX).take_while(u8::is_ascii_digit).count();
            (1..=digits).any(|count| {
                let (number, name) = name.split_at(count);
                ranges.iter().any(|range| range.has(number)) && is_made_of(rest, name)
            })
        }
    }
}

/// One name list in Slurm's short form, in the order given: runs of neighbours are merged (`node[1-3,7],x1`), nothing is moved.
pub fn compress<I>(names: I) -> String
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let mut groups: Vec<Group> = Vec::new();
    for name in names {
        let name = name.as_ref();
        let (prefix, digits) = split_number(name);
        match groups.last_mut() {
            Some(group) if !digits.is_empty() && group.takes(prefix) => group.push(digits),
            _ => groups.push(Group::new(prefix, digits)),
        }
    }
    let parts: Vec<String> = groups.iter().map(Group::text).collect();
    parts.join(",")
}

/// As [`compress`], but sorted as people count (`n2` before `n10`) and without repeats.
pub fn compress_sorted<I>(names: I) -> String
where
    I: IntoIterator,
    I::Item: AsRef<str>,
{
    let mut names: Vec<String> = names.into_iter().map(|n| n.as_ref().to_owned()).collect();
    names.sort_by(|a, b| compare_names(a, b));
    names.dedup();
    compress(&names)
}

/// The order of host names: by prefix, then by number, then by how the number is written.
pub fn compare_names(a: &str, b: &str) -> Ordering {
    let (a_prefix, a_digits) = split_number(a);
    let (b_prefix, b_digits) = split_number(b);
    a_prefix
        .cmp(b_prefix)
        .then_with(|| number(a_digits).cmp(&number(b_digits)))
        .then_with(|| a_digits.cmp(b_digits))
}

/// A stretch of a term: text as it is, or a bracket's numbers.
enum Piece<'a> {
    Text(&'a str),
    Numbers(Vec<NumberRange>),
}

impl Piece<'_> {
    fn len(&self) -> usize {
        match self {
            Piece::Text(_) => 1,
            Piece::Numbers(ranges) => {
                ranges.iter().fold(0usize, |total, range| total.saturating_add(range.len()))
            }
        }
    }

    /// The bytes of its longest text.
    fn longest(&self) -> usize {
        match self {
            Piece::Text(text) => text.len(),
            Piece::Numbers(ranges) => {
                ranges.iter().map(NumberRange::longest).max().unwrap_or_default()
            }
        }
    }
}

/// `09-11`: every number is written with at least the digits of the first.
struct NumberRange {
    first: u64,
    last: u64,
    width: usize,
}

impl NumberRange {
    fn parse(text: &str) -> Option<Self> {
        let (first_text, last_text) = text.split_once('-').unwrap_or((text, text));
        let range =
            Self { first: number(first_text)?, last: number(last_text)?, width: first_text.len() };
        (range.first <= range.last).then_some(range)
    }

    fn len(&self) -> usize {
        usize::try_from(self.last - self.first).unwrap_or(usize::MAX).saturating_add(1)
    }

    /// The digits of its longest number.
    fn longest(&self) -> usize {
        let digits = self.last.checked_ilog10().map_or(1, |log| log as usize + 1);
        digits.max(self.width)
    }

    fn text(&self) -> String {
        let (first, last, width) = (self.first, self.last, self.width);
        if first == last {
            format!("{first:0width$}")
        } else {
            format!("{first:0width$}-{last:0width$}")
        }
    }

    /// Whether it has a number that is written so.
    fn has(&self, digits: &str) -> bool {
        let width = self.width;
        number(digits).is_some_and(|n| {
            (self.first..=self.last).contains(&n) && format!("{n:0width$}") == digits
        })
    }

    fn names(&self) -> impl Iterator<Item = String> + '_ {
        let width = self.width;
        (self.first..=self.last).map(move |n| format!("{n:0width$}"))
    }
}

fn number(digits: &str) -> Option<u64> {
    let countable = !digits.is_empty()
        && digits.len() <= DIGITS_MAX
        && digits.bytes().all(|b| b.is_ascii_digit());
    countable.then(|| digits.parse().ok()).flatten()
}

/// Cuts at the commas and spaces that stand outside brackets.
fn split_terms(list: &str) -> Result<Vec<&str>, GrammarError> {
    let mut terms = Vec::new();
    let mut start = 0;
    let mut in_bracket = false;
    for (at, c) in list.char_indices() {
        match c {
            '[' if in_bracket => {
                return Err(GrammarError::new(WHAT, list, "no bracket inside a bracket"));
            }
            '[' => in_bracket = true,
            ']' if !in_bracket => return Err(GrammarError::new(WHAT, list, "a [ before each ]")),
            ']' => in_bracket = false,
            _ if !in_bracket && (c == ',' || c.is_whitespace()) => {
                terms.push(&list[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if in_bracket {
        return Err(GrammarError::new(WHAT, list, "a ] after each ["));
    }
    terms.push(&list[start..]);
    terms.retain(|term| !term.is_empty());
    Ok(terms)
}

fn parse_term<'a>(list: &str, term: &'a str) -> Result<Vec<Piece<'a>>, GrammarError> {
    let mut pieces = Vec::new();
    let mut rest = term;
    while let Some((text, after)) = rest.split_once('[') {
        let (inside, after) = after
            .split_once(']')
            .ok_or_else(|| GrammarError::new(WHAT, list, "a ] after each ["))?;
        let ranges: Option<Vec<_>> =
            inside.split(',').map(|r| NumberRange::parse(r.trim())).collect();
        let ranges = ranges.ok_or_else(|| {
            GrammarError::new(
                WHAT,
                list,
                "numbers or ascending ranges in brackets, as in node[1-3,7]",
            )
        })?;
        pieces.push(Piece::Text(text));
        pieces.push(Piece::Numbers(ranges));
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    Ok(pieces)
}

/// Every combination, the last bracket counting fastest.
fn product(pieces: &[Piece<'_>]) -> Vec<String> {
    pieces.iter().fold(vec![String::new()], |heads, piece| match piece {
        Piece::Text(text) => heads.into_iter().map(|head| head + text).collect(),
        Piece::Numbers(ranges) => heads
            .iter()
            .flat_map(|head| {
                ranges.iter().flat_map(NumberRange::names).map(move |tail| format!("{head}{tail}"))
            })
            .collect(),
    })
}

/// `node012` is `node` and `012`; a name without a countable number at its end is all prefix.
fn split_number(name: &str) -> (&str, &str) {
    let prefix_len = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    match name.len() - prefix_len {
        1..=DIGITS_MAX => name.split_at(prefix_len),
        _ => (name, ""),
    }
}

/// Neighbouring names of one prefix, on their way to one bracket. Without ranges it is a single name that ends in no number.
struct Group {
    prefix: String,
    ranges: Vec<NumberRange>,
}

impl Group {
    fn new(prefix: &str, digits: &str) -> Self {
        let mut group = Self { prefix: prefix.to_owned(), ranges: Vec::new() };
        group.push(digits);
        group
    }

    fn takes(&self, prefix: &str) -> bool {
        self.prefix == prefix && !self.ranges.is_empty()
    }

    /// Lengthens the last range if the next number, written its way, is exactly `digits`; else begins a range.
    fn push(&mut self, digits: &str) {
        let Some(value) = number(digits) else { return };
        if let Some(range) = self.ranges.last_mut() {
            let width = range.width;
            if value == range.last + 1 && format!("{value:0width$}") == digits {
                range.last = value;
                return;
            }
        }
        self.ranges.push(NumberRange { first: value, last: value, width: digits.len() });
    }

    fn text(&self) -> String {
        let ranges: Vec<String> = self.ranges.iter().map(NumberRange::text).collect();
        match self.ranges.as_slice() {
            [only] if only.first == only.last => format!("{}{}", self.prefix, ranges[0]),
            [] => self.prefix.clone(),
            _ => format!("{}[{}]", self.prefix, ranges.join(",")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_in_a_list_exactly_if_the_list_stands_for_it() {
        let lists =
            ["n[1-3,7]", "n[08-11]-ib,x", "a[1-2]1", "r[1-2]c[01-02]", "n[1-", "", "a1,b[5]"];
        let names = [
            "n1",
            "n3",
            "n4",
            "n7",
            "n01",
            "n08",
            "n08-ib",
            "n8-ib",
            "n10-ib",
            "n12-ib",
            "x",
            "a11",
            "a21",
            "a31",
            "a1",
            "a111",
            "r1c01",
            "r2c02",
            "r2c2",
            "r3c01",
            "r1c011",
            "b5",
            "b",
            "",
            "n",
            "n18446744073709551617",
        ];
        for list in lists {
            let all = expand(list).unwrap_or_default();
            for name in names {
                let expected = all.iter().any(|known| known == name);
                assert_eq!(contains(list, name), expected, "{name:?} in {list:?}");
            }
            assert!(all.iter().all(|name| contains(list, name)), "{list}");
        }
    }

    #[test]
    fn lists_expand_to_names() {
        let table = [
            ("", ""),
            ("node1", "node1"),
            ("node[1-3,7],gpu[01-03]", "node1 node2 node3 node7 gpu01 gpu02 gpu03"),
            ("n[09-11]", "n09 n10 n11"),
            ("n[8-11]", "n8 n9 n10 n11"),
            ("r[1-2]n[3-4]", "r1n3 r1n4 r2n3 r2n4"),
            ("gpu[01-02]-ib,x", "gpu01-ib gpu02-ib x"),
            ("a, b  c", "a b c"),
            ("[1-2]", "1 2"),
            ("n1,n1", "n1 n1"),
        ];
        for (list, names) in table {
            let expanded = expand(list).unwrap_or_else(|e| panic!("{list}: {e}"));
            assert_eq!(expanded.join(" "), names, "{list}");
        }
    }

    #[test]
    fn broken_lists_are_refused_with_the_list_named() {
        for list in [
            "n[1-3", "n1]", "n[[1]]", "n[]", "n[3-1]", "n[a-b]", "n[1-]", "n[1,,2]", "n[-1]",
            "n[1-2-3]",
        ] {
            let error = expand(list).expect_err(list).to_string();
            assert!(
                error.starts_with(&format!("invalid host list \"{list}\": expected ")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_list_of_too_many_hosts_is_refused_before_it_is_made() {
        assert_eq!(expand("n[1-65536]").map(|names| names.len()), Ok(HOSTS_MAX));
        let endless = format!("n[{}]", ["0-999999999999999999"; 20].join(","));
        for list in ["n[1-65537]", "n[1-65536],x", "a[1-1000]b[1-1000]c[1-1000]", &endless] {
            let error = expand(list).expect_err(list);
            assert_eq!(error.expected, "at most 65536 hosts");
        }
    }

    #[test]
    fn a_list_of_long_names_is_refused_before_it_is_made() {
        let text = |bytes: usize| "n".repeat(bytes);
        let most = format!("{}[1-9]", text(NAME_BYTES_MAX - 1));
        assert_eq!(expand(&most).map(|names| names.len()), Ok(9));
        for long in
            [text(NAME_BYTES_MAX + 1), format!("{}[1]", text(NAME_BYTES_MAX)), "[1]".repeat(5000)]
        {
            let error = expand(&long).expect_err("a long name");
            assert_eq!(error.expected, "names of at most 1024 bytes");
        }
        let (whole, half) = (format!("{}[1-65536]", text(64)), format!("{}[1-32768]", text(64)));
        for list in [whole, format!("{half},{half}")] {
            let error = expand(&list).expect_err("many long names");
            assert_eq!(error.expected, "at most 4194304 bytes of names");
        }
    }

    #[test]
    fn names_compress_in_the_order_given() {
        let table = [
            ("", ""),
            ("node1", "node1"),
            ("node1 node2 node3 x1", "node[1-3],x1"),
            ("node3 node1 node2", "node[3,1-2]"),
            ("node1 node2 node7", "node[1-2,7]"),
            ("n09 n10 n11", "n[09-11]"),
            ("n9 n10", "n[9-10]"),
            ("n09 n9", "n[09,9]"),
            ("login gpu1 gpu2 login", "login,gpu[1-2],login"),
            ("r1n1 r1n2 r2n1", "r1n[1-2],r2n1"),
            ("gpu1-ib gpu2-ib", "gpu1-ib,gpu2-ib"),
            ("x1 x1", "x[1,1]"),
        ];
        for (names, list) in table {
            assert_eq!(compress(names.split_whitespace()), list, "{names}");
        }
    }

    #[test]
    fn sorted_lists_count_as_people_do() {
        assert_eq!(compress_sorted(["node3", "node1", "node2"]), "node[1-3]");
        assert_eq!(compress_sorted(["n10", "n9", "a1", "n9"]), "a1,n[9-10]");
    }
}
