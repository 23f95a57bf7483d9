//! `scontrol power`, `scontrol reboot` and `scontrol cancel_reboot`: nodes are powered up and down, and rebooted.

use super::named_nodes::{change_nodes, nodes_named};
use super::too_few;
use crate::command::slurm::query::{CommandError, Server};
use model::change::NodeChange;
use model::power::{AfterReboot, PowerDownMode, PowerRequest};
use std::process::ExitCode;

/// A request, and the nodes that it is for as they were typed.
type Asked = (PowerRequest, String);

/// `power {up|down [asap|force]} NODES`
pub fn power(words: &[String]) -> Result<ExitCode, CommandError> {
    ask(parse_power(words)?, "scontrol_power error")
}

/// `reboot [ASAP] [nextstate=RESUME|DOWN] [reason=TEXT] NODES|ALL`
pub fn reboot(words: &[String]) -> Result<ExitCode, CommandError> {
    ask(parse_reboot(words)?, "scontrol_reboot_nodes error")
}

/// `cancel_reboot NODES`
pub fn cancel_reboot(words: &[String]) -> Result<ExitCode, CommandError> {
    match words {
        [nodes] => ask((PowerRequest::CancelReboot, nodes.clone()), "scontrol_cancel_reboot error"),
        [] => Err(too_few("cancel_reboot")),
        [_, more, ..] => Err(surplus("cancel_reboot", more)),
    }
}

fn ask((request, named): Asked, context: &'static str) -> Result<ExitCode, CommandError> {
    let mut server = Server::find(context)?;
    let nodes = nodes_named(&mut server, &named, context)?;
    change_nodes(&mut server, nodes, NodeChange::Power(request), context)?;
    Ok(ExitCode::SUCCESS)
}

fn surplus(keyword: &str, word: &str) -> CommandError {
    CommandError::message(format!(
        "scontrol: error: {keyword}: {word:?}: expected one list of nodes"
    ))
}

fn parse_power(words: &[String]) -> Result<Asked, CommandError> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|w| w.eq_ignore_ascii_case(word));
    let down = PowerRequest::Down;
    let (request, used) = if is(0, "up") {
        (PowerRequest::Up, 1)
    } else if is(0, "down") && is(1, "asap") {
        (down(PowerDownMode::Asap), 2)
    } else if is(0, "down") && is(1, "force") {
        (down(PowerDownMode::Force), 2)
    } else if is(0, "down") {
        (down(PowerDownMode::WhenIdle), 1)
    } else if let Some(word) = words.first() {
        let text = format!("scontrol: error: power: {word:?}: expected up or down");
        return Err(CommandError::message(text));
    } else {
        return Err(too_few("power"));
    };
    match &words[used..] {
        [nodes] => Ok((request, nodes.clone())),
        [] => Err(too_few("power")),
        [_, more, ..] => Err(surplus("power", more)),
    }
}

fn parse_reboot(words: &[String]) -> Result<Asked, CommandError> {
    let (mut drains, mut next, mut reason) = (false, AfterReboot::AsBefore, None);
    let mut rest = words;
    while let Some((word, after)) = rest.split_first() {
        let value = |key: &str| {
            let (name, value) = word.split_once('=')?;
            name.eq_ignore_ascii_case(key).then_some(value)
        };
        if word.eq_ignore_ascii_case("ASAP") {
            drains = true;
        } else if let Some(state) = value("nextstate") {
            next = match state.to_ascii_uppercase().as_str() {
                "RESUME" => AfterReboot::Resume,
                "DOWN" => AfterReboot::Down,
                _ => {
                    let text = format!("Invalid nextstate: {state}: expected RESUME or DOWN");
                    return Err(CommandError::message(text));
                }
            };
        } else if let Some(text) = value("reason") {
            reason = Some(text.to_owned()).filter(|text| !text.is_empty());
        } else {
            break;
        }
        rest = after;
    }
    match rest {
        [nodes] => Ok((PowerRequest::Reboot { drains, next, reason }, nodes.clone())),
        [] => Err(too_few("reboot")),
        [_, more, ..] => Err(surplus("reboot", more)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn power_and_reboot_are_parsed() {
        let down = PowerRequest::Down;
        let table = [
            ("up n[1-2]", PowerRequest::Up),
            ("DOWN n[1-2]", down(PowerDownMode::WhenIdle)),
            ("down asap n[1-2]", down(PowerDownMode::Asap)),
            ("down FORCE n[1-2]", down(PowerDownMode::Force)),
        ];
        for (line, request) in table {
            assert_eq!(parse_power(&words(line)).expect(line), (request, "n[1-2]".to_owned()));
        }
        let reboot = |drains, next, reason: Option<&str>| PowerRequest::Reboot {
            drains,
            next,
            reason: reason.map(str::to_owned),
        };
        let table = [
            ("ALL", reboot(false, AfterReboot::AsBefore, None)),
            ("asap ALL", reboot(true, AfterReboot::AsBefore, None)),
            (
                "ASAP nextstate=resume reason=kernel ALL",
                reboot(true, AfterReboot::Resume, Some("kernel")),
            ),
            ("nextstate=DOWN ALL", reboot(false, AfterReboot::Down, None)),
        ];
        for (line, request) in table {
            assert_eq!(parse_reboot(&words(line)).expect(line), (request, "ALL".to_owned()));
        }
    }

    #[test]
    fn wrong_words_are_refused_in_one_line() {
        for line in ["", "up", "down asap", "sideways n1", "up n1 n2"] {
            let said = parse_power(&words(line)).expect_err(line).to_string();
            assert_eq!(said.lines().count(), 1, "{said}");
        }
        for line in ["", "ASAP", "nextstate=soon n1", "n1 n2"] {
            let said = parse_reboot(&words(line)).expect_err(line).to_string();
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}
