//! `sacctmgr add|delete coordinator`: users who may change an account and all accounts below it.

use super::Books;
use super::command_line::{CommandLine, unknown_option};
use crate::command::slurm::query::CommandError;
use model::account::Account;
use std::process::ExitCode;
use wire::client::Call;

/// The users and accounts of a line: `coordinator alice account=physics`.
struct UsersAndAccounts {
    users: Vec<String>,
    accounts: Vec<String>,
}

impl UsersAndAccounts {
    fn of(line: &CommandLine) -> Result<Self, CommandError> {
        let mut terms: Vec<_> = line.terms.iter().chain(&line.set).cloned().collect();
        let accounts = CommandLine::take(&mut terms, &["Account", "Accounts", "Acc", "Acct"]);
        let mut users = line.names.clone();
        users.extend(CommandLine::take(&mut terms, &["User", "Users"]));
        match terms.first() {
            Some(term) => Err(unknown_option(&term.typed)),
            None => Ok(Self { users, accounts }),
        }
    }
}

fn listed(names: &[String]) -> String {
    names.iter().map(|name| format!("  {name}\n")).collect()
}

pub fn add(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    let UsersAndAccounts { users, accounts } = UsersAndAccounts::of(line)?;
    if users.is_empty() {
        return Err(CommandError::message(" You need to specify a user list here."));
    }
    if accounts.is_empty() {
        return Err(CommandError::message(" You need to specify an account list here."));
    }
    let view = &books.view;
    let is_user = |name: &str| view.associations.iter().any(|a| a.user.as_deref() == Some(name));
    if let Some(nobody) = users.iter().find(|user| !is_user(user)) {
        return Err(CommandError::message(format!(
            " You specified a non-existent user '{nobody}'."
        )));
    }
    let mut calls = Vec::new();
    for name in &accounts {
        let Some(known) = view.accounts.iter().find(|account| account.name == *name) else {
            let text = format!(" You specified a non-existent account '{name}'.");
            return Err(CommandError::message(text));
        };
        let mut changed = known.clone();
        changed.coordinators.extend(users.iter().cloned());
        changed.coordinators.sort_unstable();
        changed.coordinators.dedup();
        calls.push(Call::SetAccount(changed));
    }
    let said = format!(
        " Adding Coordinator User(s)\n{} To Account(s) and all sub-accounts\n{}",
        listed(&users),
        listed(&accounts)
    );
    books.commit(&said, calls)
}

pub fn delete(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    let UsersAndAccounts { users, accounts } = UsersAndAccounts::of(line)?;
    if users.is_empty() && accounts.is_empty() {
        return Err(CommandError::message(
            " You need to specify a user list or account list here.",
        ));
    }
    let mut said = String::new();
    if !users.is_empty() {
        said.push_str(&format!(" Removing Coordinators with user name\n{}", listed(&users)));
    }
    if accounts.is_empty() {
        said.push_str(" From all accounts\n")
    } else {
        said.push_str(&format!(" From Account(s)\n{}", listed(&accounts)))
    }
    let goes = |name: &String| users.is_empty() || users.contains(name);
    let meant = |account: &&Account| accounts.is_empty() || accounts.contains(&account.name);
    let (mut gone, mut calls) = (String::new(), Vec::new());
    for account in books.view.accounts.iter().filter(meant) {
        let (leaving, staying): (Vec<String>, Vec<String>) =
            account.coordinators.iter().cloned().partition(goes);
        for user in &leaving {
            gone.push_str(&format!("  U = {user:<9} A = {:<10}\n", account.name));
        }
        if !leaving.is_empty() {
            calls.push(Call::SetAccount(Account { coordinators: staying, ..account.clone() }));
        }
    }
    if calls.is_empty() {
        return books.nothing(&format!("{said} Nothing removed\n"));
    }
    books
        .commit(&format!("{said} Removed Coordinators (sub accounts not listed)...\n{gone}"), calls)
}
