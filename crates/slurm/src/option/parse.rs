//! Reads a command line by a command's table, with the rules of GNU `getopt_long`.

use super::command::{Command, Ordering};
use super::error::OptionError;
use super::key::OptionKey;
use super::setting::{Setting, Source};
use super::table::{self, Arg, OptionSpec};

/// `--help`, `--usage` or `--version`: answered instead of running the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Help,
    Usage,
    Version,
}

/// A parsed command line: the settings in order, and the operands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parsed {
    pub values: Vec<Setting>,
    pub rest: Vec<String>,
}

impl Parsed {
    /// The setting of `key` that counts: the last.
    pub fn last(&self, key: OptionKey) -> Option<&Setting> {
        self.values.iter().rev().find(|setting| setting.key == key)
    }

    /// The value of the last setting of `key`.
    pub fn text(&self, key: OptionKey) -> Option<&str> {
        self.last(key).map(Setting::text)
    }

    /// The values of all settings of `key` with commas between them: a list that may be given in parts, as `-j 1 -j 2`.
    pub fn joined(&self, key: OptionKey) -> Option<String> {
        let of_key = self.values.iter().filter(|setting| setting.key == key);
        let texts: Vec<&str> = of_key.map(Setting::text).collect();
        (!texts.is_empty()).then(|| texts.join(","))
    }

    pub fn has(&self, key: OptionKey) -> bool {
        self.last(key).is_some()
    }

    /// How often `key` was given (`-vvv`).
    pub fn count(&self, key: OptionKey) -> usize {
        self.values.iter().filter(|setting| setting.key == key).count()
    }

    /// Help, usage or version, if one was asked for. Parsing ends there: the rest of the line is not read.
    pub fn question(&self) -> Option<Question> {
        self.values.last().and_then(|setting| question(setting.key))
    }
}

fn question(key: OptionKey) -> Option<Question> {
    match key {
        OptionKey::Help => Some(Question::Help),
        OptionKey::Usage => Some(Question::Usage),
        OptionKey::Version => Some(Question::Version),
        _ => None,
    }
}

/// One word of a command line or of a `#SBATCH` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    pub text: String,
    pub source: Source,
}

/// Reads the arguments of `command` (without the command's own name).
pub fn parse<S: AsRef<str>>(command: Command, args: &[S]) -> Result<Parsed, OptionError> {
    let words = args
        .iter()
        .map(|arg| Word { text: arg.as_ref().to_owned(), source: Source::CommandLine })
        .collect();
    let mut reader = WordReader::new(command, words);
    let mut parsed = Parsed::default();
    while let Some(word) = reader.next() {
        match classify(&word.text) {
            Form::End => {
                parsed.rest.extend(reader.remaining());
                break;
            }
            Form::Operand => {
                parsed.rest.push(word.text);
                if command.ordering() == Ordering::StopAtOperand {
                    parsed.rest.extend(reader.remaining());
                    break;
                }
            }
            Form::Option => reader.option(&word, &mut parsed.values)?,
        }
        if parsed.question().is_some() {
            return Ok(parsed);
        }
    }
    adopt_operands(command, &mut parsed);
    if let Some(operand) = parsed.rest.first().filter(|_| command.refuses_operands()) {
        return Err(OptionError::UnexpectedOperand(operand.clone()));
    }
    Ok(parsed)
}

/// Reads the words of a component's `#SBATCH` lines. Every word must be an option or its argument. Options that have no effect in
/// a script are dropped.
pub fn parse_directives(words: Vec<Word>) -> Result<Vec<Setting>, OptionError> {
    let mut reader = WordReader::new(Command::Sbatch, words);
    let mut settings = Vec::new();
    while let Some(word) = reader.next() {
        match classify(&word.text) {
            Form::End => {
                if let Some(text) = reader.remaining().next() {
                    return Err(OptionError::InvalidDirective(text));
                }
            }
            Form::Operand => return Err(OptionError::InvalidDirective(word.text)),
            Form::Option => reader.option(&word, &mut settings)?,
        }
    }
    settings.retain(|setting| {
        table::options(Command::Sbatch).any(|spec| spec.key == setting.key && spec.acts_in_script())
    });
    Ok(settings)
}

/// The command lines of a heterogeneous job: components are separated by a lone `:`. Each component of `srun` has operands of
/// its own; for `sbatch` and `salloc`, where the separator comes before any operand, the last component has them.
pub fn parse_components<S: AsRef<str>>(
    command: Command,
    args: &[S],
) -> Result<Vec<Parsed>, OptionError> {
    let mut components = vec![parse(command, args)?];
    // Each round takes at least the `:` away, so there are at most as many rounds as arguments.
    while let Some(last) = components.last_mut() {
        let separator = match command {
            Command::Srun => last.rest.iter().position(|word| word == ":"),
            _ => last.rest.first().filter(|word| *word == ":").map(|_| 0),
        };
        let Some(at) = separator else { break };
        let next = last.rest.split_off(at);
        components.push(parse(command, &next[1..])?);
    }
    Ok(components)
}

/// `squeue -j 5`, `strigger -n node1`: an optional argument may be a word of its own if the command takes no operands.
fn adopt_operands(command: Command, parsed: &mut Parsed) {
    if !command.refuses_operands() {
        return;
    }
    for key in [OptionKey::Jobs, OptionKey::Steps, OptionKey::Nodelist] {
        let empty = parsed.values.iter_mut().rev().find(|s| s.key == key && s.value.is_none());
        if let Some(setting) = empty
            && !parsed.rest.is_empty()
        {
            setting.value = Some(parsed.rest.remove(0));
        }
    }
}

enum Form {
    /// `--`: only operands follow.
    End,
    Operand,
    Option,
}

fn classify(word: &str) -> Form {
    match word {
        "--" => Form::End,
        "-" => Form::Operand,
        _ if word.starts_with('-') => Form::Option,
        _ => Form::Operand,
    }
}

/// The words still to be read, and the table to read them by.
struct WordReader {
    command: Command,
    words: std::vec::IntoIter<Word>,
}

impl WordReader {
    fn new(command: Command, words: Vec<Word>) -> WordReader {
        WordReader { command, words: words.into_iter() }
    }

    fn next(&mut self) -> Option<Word> {
        self.words.next()
    }

    fn remaining(&mut self) -> impl Iterator<Item = String> + '_ {
        self.words.by_ref().map(|word| word.text)
    }

    fn option(&mut self, word: &Word, settings: &mut Vec<Setting>) -> Result<(), OptionError> {
        match word.text.strip_prefix("--") {
            Some(long) => {
                let setting = self.long(long, word)?;
                settings.push(setting);
                Ok(())
            }
            None => self.letters(word, settings),
        }
    }

    /// `--name`, `--name=value`, `--name value`, and any unique beginning of the name.
    fn long(&mut self, text: &str, word: &Word) -> Result<Setting, OptionError> {
        let (name, attached) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        let spec = find_long(self.command, name, &word.text)?;
        let value = match (spec.arg, attached) {
            (Arg::None, Some(_)) => return Err(OptionError::UnexpectedArgument(spec.long)),
            (Arg::None, None) => None,
            (_, Some(value)) => Some(value),
            (Arg::Optional(_), None) => None,
            (Arg::Required(_), None) => {
                Some(self.next().ok_or(OptionError::MissingArgument(spec.long))?.text)
            }
        };
        Ok(Setting { key: spec.key, value, source: word.source })
    }

    /// `-abc`: flags in one word; the first letter that takes an argument takes the rest of the word, or the next word.
    fn letters(&mut self, word: &Word, settings: &mut Vec<Setting>) -> Result<(), OptionError> {
        let mut letters = word.text[1..].chars();
        while let Some(letter) = letters.next() {
            let spec = find_short(self.command, letter)?;
            let attached = Some(letters.as_str()).filter(|rest| !rest.is_empty());
            let value = match (spec.arg, attached) {
                (Arg::None, _) => None,
                (_, Some(rest)) => Some(rest.to_owned()),
                (Arg::Optional(_), None) => None,
                (Arg::Required(_), None) => {
                    Some(self.next().ok_or(OptionError::MissingLetterArgument(letter))?.text)
                }
            };
            let taken = value.is_some();
            settings.push(Setting { key: spec.key, value, source: word.source });
            if taken || question(spec.key).is_some() {
                break;
            }
        }
        Ok(())
    }
}

fn find_long(
    command: Command,
    name: &str,
    given: &str,
) -> Result<&'static OptionSpec, OptionError> {
    let mut fitting: Vec<&OptionSpec> = Vec::new();
    for spec in table::options(command).filter(|spec| !spec.long.is_empty()) {
        if spec.long == name {
            return Ok(spec);
        }
        if spec.long.starts_with(name) {
            fitting.push(spec);
        }
    }
    match fitting.as_slice() {
        [] => Err(OptionError::Unrecognized(given.to_owned())),
        [first, others @ ..] if others.iter().all(|spec| spec.key == first.key) => Ok(first),
        _ => {
            let mut names: Vec<_> =
                fitting.iter().map(|spec| format!("'--{}'", spec.long)).collect();
            names.sort();
            Err(OptionError::Ambiguous { given: given.to_owned(), possibilities: names.join(" ") })
        }
    }
}

fn find_short(command: Command, letter: char) -> Result<&'static OptionSpec, OptionError> {
    table::options(command)
        .find(|spec| spec.short == Some(letter))
        .ok_or(OptionError::UnknownLetter(letter))
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
