//! `sshare`: shares and usage of the associations.

use super::query::{self, CommandError, Server, unknown_names};
use ::slurm::option::{Command, OptionKey as K, Parsed, value};
use ::slurm::output::sshare::{self as output, Options, SshareError};
use ::slurm::output::table::field_table::Layout;
use std::io;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::view::SharesView;

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
    unknown_names::note(Command::Sshare, unknown(&parsed, &view));
    match output::show(&mut io::stdout().lock(), &view, &options(&parsed)) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ SshareError::UnknownField(_)) => {
            Err(CommandError::message(format!("sshare: error: {error}")))
        }
        Err(SshareError::Write(error)) => Err(error.into()),
    }
}

/// The users and accounts that are named and of which no association is shown.
fn unknown(parsed: &Parsed, view: &SharesView) -> impl Iterator<Item = String> {
    let list = |key| value::list(parsed.text(key).unwrap_or_default()).into_iter();
    let has_user = move |name: &String| {
        view.rows.iter().any(|row| row.association.user.as_deref() == Some(name.as_str()))
    };
    let has_account =
        move |name: &String| view.rows.iter().any(|row| row.association.account == *name);
    let users = list(K::Users).filter(move |name| !has_user(name));
    let accounts = list(K::Account).filter(move |name| !has_account(name));
    users
        .map(|name| format!("association of user {name} that you may see"))
        .chain(accounts.map(|name| format!("association of account {name} that you may see")))
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
