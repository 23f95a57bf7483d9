//! `sshare`: shares and usage of the associations.

use super::query::{self, CommandError, Server};
use ::slurm::option::{Command, OptionKey as K, Parsed, value};
use ::slurm::output::sshare::{self as output, Options, SshareError};
use ::slurm::output::table::field_table::Layout;
use std::io;
use std::process::ExitCode;
use wire::client::{Answer, Call};

const REQUEST: &str = "Couldn't get shares from controller";

pub fn run(args: &[String]) -> ExitCode {
    query::finish(Command::Sshare, list(args))
}

fn list(args: &[String]) -> Result<ExitCode, CommandError> {
    let Some(parsed) = query::options(Command::Sshare, args)? else { return Ok(ExitCode::SUCCESS) };
    if parsed.has(K::HelpFormat) {
        query::print(&output::help())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut server = Server::find(REQUEST)?;
    let view = match server.ask(Call::Shares)? {
        Answer::Shares(view) => view,
        other => return Err(CommandError::unexpected(&other)),
    };
    if view.basic && view.rows.iter().any(|row| row.raw_usage.billing_s() > 0.0) {
        let note = "with PriorityType=priority/basic shares decide nothing: usage is counted, and neither normalized nor ranked";
        eprintln!("sshare: note: {note}");
    }
    match output::show(&mut io::stdout().lock(), &view, &options(&parsed)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ SshareError::UnknownField(_)) => {
            Err(CommandError::message(format!("sshare: error: {error}")))
        }
        Err(SshareError::Write(error)) => Err(error.into()),
    }
}

/// Without an option about users, the caller's own associations are shown with every account.
fn options(parsed: &Parsed) -> Options {
    let users = match parsed.text(K::Users) {
        Some(text) => Some(value::list(text)),
        None if parsed.has(K::All) || parsed.has(K::AllUsers) => None,
        None => Some(vec![query::own_user_name()]),
    };
    let accounts = value::list(parsed.text(K::Account).unwrap_or_default());
    // With `-A` and no option about users, no user is shown.
    let users = if parsed.has(K::Users) || users.is_none() || accounts.is_empty() {
        users
    } else {
        Some(Vec::new())
    };
    let separator = Layout::SEPARATOR.to_owned();
    let kind = parsed.values.iter().rev().find(|s| matches!(s.key, K::Parsable | K::Parsable2));
    Options {
        format: parsed.text(K::Format).map(str::to_owned),
        no_header: parsed.has(K::Noheader),
        layout: match kind.map(|setting| setting.key) {
            Some(K::Parsable) => Layout::Ended(separator),
            Some(_) => Layout::Separated(separator),
            None => Layout::Aligned,
        },
        long: parsed.has(K::Long),
        partition: parsed.has(K::WithPartition),
        users_only: parsed.has(K::UsersOnly),
        users,
        accounts,
    }
}
