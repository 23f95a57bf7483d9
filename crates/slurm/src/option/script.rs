//! The batch script: whether a file is one, and its `#SBATCH` lines.

use std::io::{self, Read};

use super::error::OptionError;
use super::parse::{self, Word};
use super::setting::{Setting, Source};
use model::os_text;

/// The largest script that is taken, in bytes (Slurm's `max_script_size`).
pub const SCRIPT_BYTES_MAX: usize = model::bounds::SCRIPT_BYTES.most;

/// Most scripts are shorter, and are read in one piece.
const SCRIPT_BYTES_USUAL: usize = 4096;

/// The most components of one script, and the words of all its directives: a server that is sent a script reads all of them.
const COMPONENTS_MAX: usize = 128;
const WORDS_MAX: usize = 4096;

pub const DIRECTIVE: &str = "#SBATCH";
/// Directives of other batch systems, which are not read.
const FOREIGN: [&str; 2] = ["#PBS", "#BSUB"];
/// Words that begin the next component of a heterogeneous job.
const COMPONENT: [&str; 2] = ["hetjob", "packjob"];

/// A script that can be submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub bytes: Vec<u8>,
    /// What its `#SBATCH` lines set; one entry, or several for a heterogeneous job.
    pub components: Vec<Vec<Setting>>,
    /// Lines for the user, which `--ignore-pbs` suppresses.
    pub notes: Vec<String>,
}

/// The script of `--wrap`.
pub fn wrap(command: &str) -> Vec<u8> {
    let mut script = b"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n".to_vec();
    script.extend_from_slice(&os_text::to_bytes(command));
    script.push(b'\n');
    script
}

/// The bytes of a script file. A directory reads as empty, as it does for Slurm.
pub fn load(path: &str) -> Result<Vec<u8>, OptionError> {
    let unreadable = || OptionError::failure(format!("Unable to open file {path}"));
    let file = std::fs::File::open(os_text::to_os(path)).map_err(|_| unreadable())?;
    match load_from(file) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(Vec::new()),
        read => read.map_err(|_| unreadable()),
    }
}

/// The bytes of a script from a stream. Reads at most one byte over the limit: enough for [`check`] to refuse it.
pub fn load_from(source: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(SCRIPT_BYTES_USUAL);
    source.take(SCRIPT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a script; `name` is what errors call it.
pub fn read(name: &str, bytes: Vec<u8>) -> Result<Script, OptionError> {
    check(&bytes)?;
    let (components, notes) = header(name, &bytes)?;
    let components =
        components.into_iter().map(parse::parse_directives).collect::<Result<_, _>>()?;
    Ok(Script { bytes, components, notes })
}

/// Whether these bytes are a batch script at all.
pub fn check(bytes: &[u8]) -> Result<(), OptionError> {
    let lines = |lines: &[&str]| {
        Err(OptionError::Failure(lines.iter().map(|line| (*line).to_owned()).collect()))
    };
    if bytes.is_empty() {
        return lines(&["Batch script is empty!"]);
    }
    if bytes.len() > SCRIPT_BYTES_MAX {
        let message = format!("Batch script is larger than {SCRIPT_BYTES_MAX} bytes");
        return lines(&[&message]);
    }
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return lines(&["Batch script contains only whitespace!"]);
    }
    if !bytes.starts_with(b"#!") {
        return lines(&[
            "This does not look like a batch script.  The first",
            "line must start with #! followed by the path to an interpreter.",
            "For instance: #!/bin/sh",
        ]);
    }
    if bytes.contains(&0) {
        return lines(&[
            "The Slurm controller does not allow scripts that",
            "contain a NULL character '\\0'.",
        ]);
    }
    if bytes.windows(2).any(|pair| pair == b"\r\n") {
        return lines(&[
            "Batch script contains DOS line breaks (\\r\\n)",
            "instead of expected UNIX line breaks (\\n).",
        ]);
    }
    Ok(())
}

type Header = (Vec<Vec<Word>>, Vec<String>);

/// The words of the `#SBATCH` lines up to the first line that is a command.
fn header(name: &str, bytes: &[u8]) -> Result<Header, OptionError> {
    let mut components = vec![Vec::new()];
    let mut notes = Vec::new();
    let mut word_count = 0;
    for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1u32..) {
        let text = os_text::from_bytes(line.to_vec());
        if let Some(directive) = text.strip_prefix(DIRECTIVE) {
            let words = split_words(name, number, directive)?;
            word_count += words.len();
            if components.len() > COMPONENTS_MAX || word_count > WORDS_MAX {
                let most = format!("{COMPONENTS_MAX} components and {WORDS_MAX} words");
                let text = format!("{name}: line {number}: expected at most {most} of options");
                return Err(OptionError::failure(text));
            }
            if words.first().is_some_and(|word| COMPONENT.contains(&word.as_str())) {
                components.push(Vec::new());
                continue;
            }
            let source = Source::Script { line: number };
            let current = components.last_mut().expect("there is a first component");
            current.extend(words.into_iter().map(|text| Word { text, source }));
        } else if let Some(prefix) = FOREIGN.iter().find(|prefix| text.starts_with(**prefix)) {
            notes.push(format!("{name}: line {number}: {prefix} is not read; use {DIRECTIVE}"));
        } else if !text.trim_start().is_empty() && !text.trim_start().starts_with('#') {
            break;
        }
    }
    Ok((components, notes))
}

/// The words of one directive: separated by white space, quoted by `'` or `"`, ended by a word that begins with `#`.
/// A backslash takes the next character as it is, unless that is white space outside quotes.
fn split_words(name: &str, line: u32, text: &str) -> Result<Vec<String>, OptionError> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() && !rest.starts_with('#') {
        if rest.starts_with(':') {
            return Err(malformed(name, line, "Unexpected", ':', rest));
        }
        let (word, after) = next_word(name, line, rest)?;
        // A backslash alone, as people write it at the end of a line, is no word.
        if !(word.is_empty() && rest.starts_with('\\')) {
            words.push(word);
        }
        rest = after.trim_start();
    }
    Ok(words)
}

fn next_word<'a>(name: &str, line: u32, text: &'a str) -> Result<(String, &'a str), OptionError> {
    let mut word = String::new();
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if quote.is_none() && c.is_whitespace() {
            return Ok((word, &text[at..]));
        }
        match c {
            _ if escaped => {
                escaped = false;
                word.push(c);
            }
            '\\' => escaped = true,
            _ if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            _ => word.push(c),
        }
    }
    match quote {
        Some(open) => Err(malformed(name, line, "Unmatched", open, text)),
        None => Ok((word, "")),
    }
}

fn malformed(name: &str, line: u32, how: &str, what: char, text: &str) -> OptionError {
    OptionError::Fatal(format!("{name}: line {line}: {how} `{what}` in [{text}]"))
}

#[cfg(test)]
#[path = "script_tests.rs"]
mod tests;
