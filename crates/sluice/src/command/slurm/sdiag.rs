//! `sdiag`: the server's statistics.

use super::query::{self, CommandError, Server};
use ::slurm::option::{Command, OptionKey as K, Parsed, value};
use ::slurm::output::Moment;
use ::slurm::output::sdiag::{self as output, CallOrder};
use ::slurm::words::refusal;
use std::process::ExitCode;
use wire::client::{Answer, Call};

/// The exit code of a refused reset.
const RESET_REFUSED: u8 = 255;

const REQUEST: &str = "slurm_get_statistics";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Sdiag, show(args))
}

fn show(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Sdiag, args)? else { return Ok(ExitCode::SUCCESS) };
    let mut server = Server::find(REQUEST)?;
    check_cluster(&parsed, &mut server)?;
    let reset = parsed.has(K::Reset);
    let view = match server.try_ask(Call::Diagnostics { reset })? {
        Ok(Answer::Diagnostics(view)) => view,
        Ok(other) => return Err(CommandError::unexpected(&other)),
        Err(why) if reset => {
            let text = format!("slurm_reset_statistics: {}", refusal::text(&why));
            return Err(CommandError::Message { text, code: RESET_REFUSED });
        }
        Err(why) => {
            return Err(CommandError::message(format!("{REQUEST}: {}", refusal::text(&why))));
        }
    };
    if reset {
        query::print("Reset scheduling statistics\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let tz = timezone::local();
    query::print(&output::render(&view, order(&parsed), Moment::at(view.now, &tz)))?;
    if let Ok(Answer::Pong { servers, .. }) = server.try_ask(Call::Ping)? {
        query::print(&output::servers(&servers))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The sort order; the last option counts.
fn order(parsed: &Parsed) -> CallOrder {
    let said = parsed.values.iter().rev().find_map(|setting| match setting.key {
        K::SortById => Some(CallOrder::Number),
        K::SortByTime => Some(CallOrder::TotalTime),
        K::SortByTime2 => Some(CallOrder::MeanTime),
        _ => None,
    });
    said.unwrap_or_default()
}

/// Refuses `-M` with another cluster than this one.
fn check_cluster(parsed: &Parsed, server: &mut Server) -> Result<(), CommandError> {
    let named = value::list(parsed.text(K::Clusters).unwrap_or_default());
    if named.is_empty() {
        return Ok(());
    }
    let name = query::cluster_name(server)?;
    match named.iter().find(|asked| **asked != name) {
        None => Ok(()),
        Some(unknown) => Err(CommandError::message(format!(
            "sdiag: error: No cluster '{unknown}' known by database.\n\
             sdiag: error: '{unknown}' can't be reached now, or it is an invalid entry for --cluster.  \
             Use 'sacctmgr list clusters' to see available clusters."
        ))),
    }
}
