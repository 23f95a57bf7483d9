//! `scontrol setdebug LEVEL`: how much the server logs, until its next start.

use super::{too_few, update_text};
use crate::command::slurm::query::{CommandError, Server};
use std::process::ExitCode;
use wire::client::Call;
use wire::diagnostics::LogLevel;

/// Slurm's levels, which it also takes by their numbers from 0 on. There are fewer here: each is the nearest.
const LEVELS: [(&str, LogLevel); 10] = [
    ("quiet", LogLevel::Error),
    ("fatal", LogLevel::Error),
    ("error", LogLevel::Error),
    ("info", LogLevel::Info),
    ("verbose", LogLevel::Debug),
    ("debug", LogLevel::Debug),
    ("debug2", LogLevel::Trace),
    ("debug3", LogLevel::Trace),
    ("debug4", LogLevel::Trace),
    ("debug5", LogLevel::Trace),
];

pub fn run(words: &[String]) -> Result<ExitCode, CommandError> {
    let (word, rest) = words.split_first().ok_or_else(|| too_few("setdebug"))?;
    let level = level(word).ok_or_else(|| {
        let names: Vec<&str> = LEVELS.iter().map(|(name, _)| *name).collect();
        CommandError::message(format!(
            "invalid debug level: {word}: expected {}, or a number from 0 to {}",
            names.join(", "),
            LEVELS.len() - 1
        ))
    })?;
    if let Some(more) = rest.first() {
        return Err(CommandError::message(format!(
            "scontrol: error: setdebug: {more}: expected a level alone; the log of an agent has the level of SLUICE_LOG at its start"
        )));
    }
    const CONTEXT: &str = "slurm_set_debug_level error";
    match Server::find(CONTEXT)?.try_ask(Call::SetLogLevel { level })? {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(why) => Err(CommandError::message(format!("{CONTEXT}: {}", update_text(&why)))),
    }
}

fn level(word: &str) -> Option<LogLevel> {
    let by_number = word.parse::<usize>().ok().and_then(|number| LEVELS.get(number));
    let row = by_number.or_else(|| LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)));
    row.map(|(_, level)| *level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_slurms_words_and_numbers() {
        for (word, expected) in [
            ("quiet", Some(LogLevel::Error)),
            ("INFO", Some(LogLevel::Info)),
            ("3", Some(LogLevel::Info)),
            ("debug", Some(LogLevel::Debug)),
            ("9", Some(LogLevel::Trace)),
            ("10", None),
            ("loud", None),
        ] {
            assert_eq!(level(word), expected, "{word}");
        }
    }
}
