//! Which `#SBATCH` lines of a batch script are wrong, each with its line and column. `sbatch` itself stops at the first.
//!
//! The script is read again with every line but one made a comment, so that what is said of a line is what `sbatch` would say.

use super::script::DIRECTIVE;
use super::{Command, OptionError};
use std::cell::Cell;
use std::ops::Range;

/// Directives that are looked at one by one; of a script with more only the first fault is told.
const DIRECTIVES_MAX: usize = 500;

/// Lines that `sbatch` passes over which are told one by one.
const NOT_READ_MAX: usize = 100;

/// Starts the next component of a het job.
const HET_SEPARATOR: &str = "hetjob";

/// Something wrong with a script, and where; the line and column count from 1.
struct ScriptFault {
    place: (usize, usize),
    error: OptionError,
}

/// Reads parts of a script, so many at most: what is left then is not even copied, and passes for right.
struct Reader<R> {
    read: R,
    left: Cell<u32>,
}

impl<R: Fn(Vec<u8>) -> Result<(), OptionError>> Reader<R> {
    fn fault_of(&self, part: impl FnOnce() -> Vec<u8>) -> Option<OptionError> {
        self.left.set(self.left.get().checked_sub(1)?);
        (self.read)(part()).err()
    }
}

/// The faults of a script that `read` refuses, each in a line or more that begin with its place. `reads_max`: how often it is read at
/// most; the faults that are found by then are told.
pub fn lines(
    file: &str,
    script: &[u8],
    first: OptionError,
    reads_max: u32,
    read: impl Fn(Vec<u8>) -> Result<(), OptionError>,
) -> Vec<String> {
    let reader = Reader { read, left: Cell::new(reads_max) };
    faults(script, first, &reader).iter().flat_map(|fault| describe(file, fault)).collect()
}

/// What `sbatch` would print, as lines about the file.
fn describe(file: &str, fault: &ScriptFault) -> Vec<String> {
    let (line, column) = fault.place;
    let at = format!("{file}:{line}:{column}");
    let said = fault.error.render(Command::Sbatch);
    let lines = said.lines().filter(|line| !line.starts_with("Try "));
    let plain = |line: &str| {
        let line = line.strip_prefix("sbatch: ").unwrap_or(line);
        format!("{at}: {}", line.strip_prefix("error: ").unwrap_or(line))
    };
    lines.map(plain).collect()
}

/// The bytes of one directive, with further lines that hold nothing but its value.
struct Directive {
    line: usize,
    bytes: Range<usize>,
}

/// The faults of a script that `read` refuses: of each line that is wrong by itself, or else of the first that does not go with
/// those before it.
fn faults(
    script: &[u8],
    first: OptionError,
    reader: &Reader<impl Fn(Vec<u8>) -> Result<(), OptionError>>,
) -> Vec<ScriptFault> {
    let whole = |error| vec![ScriptFault { place: whole_script_place(script), error: bare(error) }];
    let directives = directives(script);
    let none: Vec<&Directive> = Vec::new();
    let is_bare_wrong = || reader.fault_of(|| with_only(script, &directives, &none)).is_some();
    if directives.len() > DIRECTIVES_MAX || is_bare_wrong() {
        return whole(first);
    }
    let mut found: Vec<ScriptFault> = directives
        .iter()
        .filter_map(|one| {
            let error = reader.fault_of(|| with_only(script, &directives, &[one]))?;
            let place = place(script, &directives, one, &error, reader);
            Some(ScriptFault { place, error: bare(error) })
        })
        .collect();
    if found.is_empty() {
        let together = (1..=directives.len()).find_map(|count| {
            let kept: Vec<&Directive> = directives[..count].iter().collect();
            let error = reader.fault_of(|| with_only(script, &directives, &kept))?;
            Some((kept[count - 1], error))
        });
        found.extend(together.map(|(last, error)| {
            let column = column_of(script, last, first_word(script, last));
            ScriptFault { place: (last.line, column), error: bare(error) }
        }));
    }
    if found.is_empty() { whole(first) } else { found }
}

/// What is wrong with a script as a whole is wrong with its first line, or with its first line that ends as on DOS.
fn whole_script_place(script: &[u8]) -> (usize, usize) {
    let mut lines = script.split(|byte| *byte == b'\n');
    let found = lines.position(|line| line.ends_with(b"\r"));
    found.map_or((1, 1), |before| (before + 1, 1))
}

/// Without the place that `sbatch` adds.
fn bare(error: OptionError) -> OptionError {
    match error {
        OptionError::Placed { error, .. } => *error,
        error => error,
    }
}

/// The directives before the first command, apart from the separators of het jobs.
fn directives(script: &[u8]) -> Vec<Directive> {
    let mut found: Vec<Directive> = Vec::new();
    let mut start = 0;
    for (line, text) in (1..).zip(script.split_inclusive(|byte| *byte == b'\n')) {
        let bytes = start..start + text.len();
        start = bytes.end;
        let text = String::from_utf8_lossy(text);
        match text.strip_prefix(DIRECTIVE) {
            Some(rest) if rest.trim() == HET_SEPARATOR => {}
            Some(rest) => match found.last_mut().filter(|_| !rest.trim_start().starts_with('-')) {
                Some(before) => before.bytes.end = bytes.end,
                None => found.push(Directive { line, bytes }),
            },
            None if is_comment_or_empty(&text) => {}
            None => break,
        }
    }
    found
}

fn is_comment_or_empty(line: &str) -> bool {
    let text = line.trim_start();
    text.is_empty() || text.starts_with('#')
}

/// One line for each directive that `sbatch` passes over in silence: it is indented, or comes after the first command. Of very many the
/// rest is counted.
pub fn not_read(file: &str, script: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(script);
    let mut in_head = true;
    let (mut found, mut more) = (Vec::new(), 0_u32);
    for (number, line) in (1..).zip(text.lines()) {
        in_head = in_head && is_comment_or_empty(line);
        let is_directive = line.trim_start().starts_with(DIRECTIVE);
        let why = match (is_directive, in_head) {
            (true, true) if !line.starts_with(DIRECTIVE) => "expected at the line's beginning",
            (true, false) => "expected before the first command",
            _ => continue,
        };
        if found.len() < NOT_READ_MAX {
            found.push(format!("{file}:{number}: {DIRECTIVE}: is not read: {why}"));
        } else {
            more += 1;
        }
    }
    if more > 0 {
        found.push(format!("{file}: {DIRECTIVE}: {more} more lines are not read"));
    }
    found
}

/// The script with these directives alone: the others are made comments, so that every line keeps its number.
fn with_only(script: &[u8], all: &[Directive], kept: &[&Directive]) -> Vec<u8> {
    let mut script = script.to_vec();
    for one in all {
        if kept.iter().any(|kept| kept.line == one.line) {
            continue;
        }
        script[one.bytes.clone()].iter_mut().filter(|byte| **byte != b'\n').for_each(|b| *b = b'#');
    }
    script
}

/// Where the word begins with which the directive becomes wrong in this way.
fn place(
    script: &[u8],
    all: &[Directive],
    one: &Directive,
    error: &OptionError,
    reader: &Reader<impl Fn(Vec<u8>) -> Result<(), OptionError>>,
) -> (usize, usize) {
    let alone = with_only(script, all, &[one]);
    let mut words = words(script, one);
    let wrong = words.find(|word| {
        let until_word = || {
            let mut cut = alone.clone();
            let rest = &mut cut[word.end..one.bytes.end];
            rest.iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b' ');
            cut
        };
        reader.fault_of(until_word).as_ref() == Some(error)
    });
    let word = wrong.map_or_else(|| first_word(script, one), |word| word.start);
    let before = &script[one.bytes.start..word];
    let lines = before.iter().filter(|byte| **byte == b'\n').count();
    (one.line + lines, column_of(script, one, word))
}

/// The words after `#SBATCH`.
fn words(script: &[u8], one: &Directive) -> impl Iterator<Item = Range<usize>> {
    let text = &script[one.bytes.clone()];
    let offset = one.bytes.start;
    let mut ends = Vec::new();
    let mut start = None;
    for at in 0..=text.len() {
        let is_space = text.get(at).is_none_or(u8::is_ascii_whitespace);
        match (start, is_space) {
            (None, false) => start = Some(at),
            (Some(begun), true) => {
                ends.push(offset + begun..offset + at);
                start = None;
            }
            _ => {}
        }
    }
    let is_directive = |word: &Range<usize>| &script[word.clone()] == DIRECTIVE.as_bytes();
    ends.retain(|word| !is_directive(word));
    ends.into_iter()
}

fn first_word(script: &[u8], one: &Directive) -> usize {
    words(script, one).next().map_or(one.bytes.start, |word| word.start)
}

/// Counted in characters.
fn column_of(script: &[u8], one: &Directive, at: usize) -> usize {
    let before = &script[one.bytes.start..at];
    let line = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    String::from_utf8_lossy(&before[line..]).chars().count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that refuses words with an `x`, and more than two directives.
    fn read(script: Vec<u8>) -> Result<(), OptionError> {
        let text = String::from_utf8(script).expect("text");
        let header = text.lines().take_while(|line| line.starts_with('#'));
        let lines: Vec<&str> = header.filter_map(|line| line.strip_prefix(DIRECTIVE)).collect();
        if let Some(word) = lines.iter().flat_map(|line| line.split(' ')).find(|w| w.contains('x'))
        {
            return Err(OptionError::Unrecognized(word.to_owned()));
        }
        if lines.len() > 2 { Err(OptionError::Fatal("too many".into())) } else { Ok(()) }
    }

    fn places(script: &str) -> Vec<(usize, usize)> {
        let first = read(script.as_bytes().to_vec()).expect_err("a bad script");
        let reader = Reader { read, left: Cell::new(u32::MAX) };
        faults(script.as_bytes(), first, &reader).iter().map(|fault| fault.place).collect()
    }

    #[test]
    fn every_bad_line_has_its_place() {
        let text =
            "#!/bin/sh\n#SBATCH -a  x\n# x\n#SBATCH -b\n#SBATCH -ü -cx -d\necho x\n#SBATCH x\n";
        assert_eq!(places(text), [(2, 13), (5, 12)]);
        // A value may be on the line after its option.
        assert_eq!(places("#!/bin/sh\n#SBATCH -a\n#SBATCH   x\n"), [(3, 11)]);
    }

    #[test]
    fn lines_that_contradict_one_another_are_told_by_the_last() {
        let text = "#!/bin/sh\n#SBATCH -a\n#SBATCH -b\n#SBATCH  -c\n#SBATCH -d\n";
        assert_eq!(places(text), [(4, 10)]);
    }

    #[test]
    fn script_is_read_no_more_often_than_is_said() {
        let text = format!("#!/bin/sh\n#SBATCH {}x\n", "a ".repeat(1000));
        let (first, reads) = (read(text.clone().into_bytes()).expect_err("an x"), Cell::new(0));
        let counted = |script: Vec<u8>| {
            reads.set(reads.get() + 1);
            read(script)
        };
        let reader = Reader { read: counted, left: Cell::new(10) };
        let found = faults(text.as_bytes(), first, &reader);
        assert_eq!((found.len(), found[0].place, reads.get()), (1, (2, 9), 10));
    }

    #[test]
    fn very_many_lines_that_are_not_read_are_counted() {
        let said = not_read("f", format!("true\n{}", "#SBATCH -N1\n".repeat(150)).as_bytes());
        assert_eq!(
            (said.len(), &*said[0]),
            (101, "f:2: #SBATCH: is not read: expected before the first command")
        );
        assert_eq!(said[100], "f: #SBATCH: 50 more lines are not read");
    }
}
