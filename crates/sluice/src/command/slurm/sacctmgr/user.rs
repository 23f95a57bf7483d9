//! `sacctmgr add|modify|delete user`.

use super::Books;
use super::association_key as key;
use super::command_line::{CommandLine, Term, unknown_key};
use super::value;
use crate::command::slurm::query::CommandError;
use model::account::{Association, missing_associations};
use model::principal::Role;
use model::raw_usage::UsageOwner;
use std::collections::BTreeSet;
use std::process::ExitCode;
use wire::client::Call;
use wire::view::AccountsView;

const ACCOUNT_KEYS: [&str; 2] = ["Account", "Accounts"];
const DEFAULT_ACCOUNT: &str = "DefaultAccount";
const PARTITION_KEYS: [&str; 2] = ["Partition", "Partitions"];
const CLUSTER_KEYS: [&str; 2] = ["Cluster", "Clusters"];

/// What can be set of a new user beside the keys of its associations.
const USER_SETTINGS: [&str; 4] = ["Account", DEFAULT_ACCOUNT, "Partition", "AdminLevel"];

/// `C = lab        A = physics              U = alice    `
fn shown(cluster: &str, association: &Association) -> String {
    let user = association.user.as_deref().unwrap_or_default();
    let partition = association.partition.as_ref().map(|p| format!(" P = {p}"));
    let partition = partition.unwrap_or_default();
    format!("  C = {cluster:<10} A = {:<20} U = {user:<9}{partition}\n", association.account)
}

pub fn add(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    let mut terms: Vec<Term> = line.terms.iter().chain(&line.set).cloned().collect();
    CommandLine::take(&mut terms, &CLUSTER_KEYS);
    let mut accounts = CommandLine::take(&mut terms, &ACCOUNT_KEYS);
    let default = CommandLine::take(&mut terms, &[DEFAULT_ACCOUNT]).pop();
    accounts.extend(default.clone());
    accounts.dedup();
    let partitions = CommandLine::take(&mut terms, &PARTITION_KEYS);
    let level = CommandLine::take(&mut terms, &["AdminLevel", "Admin"]).pop();
    let role = level.map(|level| admin_level(&level)).transpose()?;
    // A misspelt `Account` would be told of as if none were named.
    if let Some(term) = terms.iter().find(|term| !key::is_key(term)) {
        return Err(key::unknown_beside(&USER_SETTINGS, term));
    }
    if line.names.is_empty() {
        return Err(CommandError::message(" Need name of user to add."));
    }
    if accounts.is_empty() {
        return Err(CommandError::message(" Need name of account to add user to."));
    }
    if let Some(missing) =
        accounts.iter().find(|name| !books.view.accounts.iter().any(|a| a.name == **name))
    {
        eprintln!(
            " This account '{missing}' doesn't exist.\n        Contact your admin to add this account."
        );
        return books.nothing(" Nothing new added.\n");
    }
    let known = &books.view.associations;
    let added =
        missing_associations(known, &line.names, &accounts, &partitions, default.as_deref());
    if added.is_empty() {
        return books.nothing(" Nothing new added.\n");
    }
    let mut lines = String::new();
    let mut calls = Vec::new();
    let mut said = added_text(&books.view, &added);
    for mut association in added {
        for term in &terms {
            key::apply(&mut association, term, &books.view)?;
        }
        lines = key::shown(&association, None);
        calls.push(Call::SetAssociation(association));
    }
    if let Some(role) = role {
        calls.extend(line.names.iter().map(|name| Call::SetRole { name: name.clone(), role }));
    }
    said.push_str(&format!(" Non Default Settings\n{lines}"));
    books.commit(&said, calls)
}

fn added_text(view: &AccountsView, added: &[Association]) -> String {
    let is_new = |user: &str| !view.associations.iter().any(|a| a.user.as_deref() == Some(user));
    let mut new: Vec<&str> = added.iter().filter_map(|a| a.user.as_deref()).collect();
    new.dedup();
    new.retain(|user| is_new(user));
    let mut said = String::new();
    if !new.is_empty() {
        said.push_str(" Adding User(s)\n");
        new.iter().for_each(|user| said.push_str(&format!("  {user}\n")));
    }
    said.push_str(" Associations =\n");
    for association in added {
        let user = association.user.as_deref().unwrap_or_default();
        let partition = association.partition.as_ref().map(|p| format!(" P = {p:<10}"));
        said.push_str(&format!(
            "  U = {user:<9} A = {:<10} C = {:<10}{}\n",
            association.account,
            view.cluster,
            partition.unwrap_or_default()
        ));
    }
    said
}

/// The associations of the named users, in the named accounts.
fn chosen<'a>(
    view: &'a AccountsView,
    line: &CommandLine,
) -> Result<Vec<&'a Association>, CommandError> {
    let mut terms = line.terms.clone();
    CommandLine::take(&mut terms, &CLUSTER_KEYS);
    let accounts = CommandLine::take(&mut terms, &ACCOUNT_KEYS);
    let partitions = CommandLine::take(&mut terms, &PARTITION_KEYS);
    let mut users = line.names.clone();
    users.extend(CommandLine::take(&mut terms, &["User", "Users"]));
    if let Some(term) = terms.first() {
        let known = ["User", "Account", "Partition", "Cluster"];
        return Err(unknown_key(&term.typed, "conditions", known));
    }
    let among = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
    let fits = |a: &&Association| {
        a.user.as_deref().is_some_and(|user| among(&users, user))
            && among(&accounts, &a.account)
            && among(&partitions, a.partition.as_deref().unwrap_or_default())
    };
    Ok(view.associations.iter().filter(fits).collect())
}

pub fn modify(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    let mut set = line.set.clone();
    let resets_usage = value::take_raw_usage(&mut set)?;
    let default = CommandLine::take(&mut set, &[DEFAULT_ACCOUNT]).pop();
    let level = CommandLine::take(&mut set, &["AdminLevel", "Admin"]).pop();
    if set.is_empty() && default.is_none() && level.is_none() && !resets_usage {
        return Err(CommandError::message(" You didn't give me anything to set"));
    }
    if let Some(term) = set.iter().find(|term| !key::is_key(term)) {
        return Err(key::unknown(term));
    }
    let chosen = chosen(&books.view, line)?;
    let users: BTreeSet<&str> = chosen.iter().filter_map(|a| a.user.as_deref()).collect();
    if let Some(default) = &default {
        check_default(&books.view, &users, default)?;
    }
    let (mut changed_users, mut associations) = (String::new(), String::new());
    let mut calls = Vec::new();
    if let Some(level) = level {
        let role = admin_level(&level)?;
        calls.extend(users.iter().map(|user| Call::SetRole { name: (*user).to_owned(), role }));
    }
    for association in &chosen {
        let mut changed = (*association).clone();
        for term in &set {
            key::apply(&mut changed, term, &books.view)?;
        }
        if !set.is_empty() || resets_usage {
            associations.push_str(&shown(&books.view.cluster, association));
        }
        if let Some(default) = &default {
            changed.default = changed.account == *default;
        }
        if resets_usage && let Some(user) = association.user.clone() {
            let account = association.account.clone();
            calls.push(Call::ForgetUsage(UsageOwner::User { account, user }));
        }
        calls.push(Call::SetAssociation(changed));
    }
    if chosen.is_empty() {
        return books.nothing(" Nothing modified\n");
    }
    if associations.is_empty() {
        users.iter().for_each(|user| changed_users.push_str(&format!("  {user}\n")));
    }
    let mut said = String::new();
    for (head, lines) in [
        (" Modified users...\n", changed_users),
        (" Modified user associations...\n", associations),
    ] {
        if !lines.is_empty() {
            said.push_str(head);
            said.push_str(&lines);
        }
    }
    books.commit(&said, calls)
}

fn check_default(
    view: &AccountsView,
    users: &BTreeSet<&str>,
    account: &str,
) -> Result<(), CommandError> {
    let is_in = |user: &&&str| {
        let same = |a: &Association| a.user.as_deref() == Some(**user) && a.account == account;
        !view.associations.iter().any(same)
    };
    let strangers: Vec<&&str> = users.iter().filter(is_in).collect();
    if strangers.is_empty() {
        return Ok(());
    }
    let mut said = format!(
        " Can't modify because these users aren't associated with new default account '{account}'...\n"
    );
    strangers
        .iter()
        .for_each(|user| said.push_str(&format!("  U = {user} C = {}\n", view.cluster)));
    crate::command::slurm::query::print(&said)?;
    Err(CommandError::Message { text: String::new(), code: 1 })
}

fn admin_level(text: &str) -> Result<Role, CommandError> {
    let word = text.to_ascii_lowercase();
    match word.as_str() {
        "none" | "-1" => Ok(Role::User),
        word if !word.is_empty() && "operator".starts_with(word) => Ok(Role::Operator),
        word if !word.is_empty() && "administrator".starts_with(word) => Ok(Role::Admin),
        _ => Err(CommandError::message(format!(
            " Bad value: AdminLevel={text}: expected None, Operator or Administrator"
        ))),
    }
}

pub fn delete(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    if line.names.is_empty() {
        return Err(CommandError::message(
            " Need name of user to delete: sacctmgr delete user NAME",
        ));
    }
    let gone = chosen(&books.view, line)?;
    if gone.is_empty() {
        return books.nothing(" Nothing deleted\n");
    }
    let mut said = String::new();
    if line.terms.is_empty() {
        said.push_str(" Deleting users...\n");
        let mut users: Vec<&str> = gone.iter().filter_map(|a| a.user.as_deref()).collect();
        users.sort_unstable();
        users.dedup();
        users.iter().for_each(|user| said.push_str(&format!("  {user}\n")));
    } else {
        said.push_str(" Deleting user associations...\n");
        gone.iter().for_each(|a| said.push_str(&shown(&books.view.cluster, a)));
    }
    let remove = |a: &&Association| Call::RemoveAssociation(a.key());
    let calls = gone.iter().map(remove).collect();
    books.commit(&said, calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    fn missing(user: &str, accounts: &[&str], default: Option<&str>) -> Vec<Association> {
        let (known, users) = (key::view().associations, strings(&[user]));
        missing_associations(&known, &users, &strings(accounts), &[], default)
    }

    #[test]
    fn a_new_user_is_shown_as_slurm_shows_it() {
        let view = key::view();
        let added = missing("bob", &["physics"], None);
        assert!(added[0].default, "the first account of a user is its default");
        assert_eq!(
            added_text(&view, &added),
            " Adding User(s)\n  bob\n Associations =\n  U = bob       A = physics    C = lab       \n"
        );
    }

    #[test]
    fn a_user_is_added_once_to_an_account() {
        assert!(missing("alice", &["physics"], None).is_empty());
        let more = missing("alice", &["physics", "chem"], None);
        assert_eq!((more.len(), more[0].account.as_str(), more[0].default), (1, "chem", false));
        let more = missing("alice", &["chem"], Some("chem"));
        assert!(more[0].default);
    }

    #[test]
    fn users_are_selected_by_name_and_account() {
        let view = key::view();
        let count = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            chosen(&view, &CommandLine::parse(&words).expect("a line"))
                .map(|found| found.len())
                .ok()
        };
        assert_eq!(count("modify user alice set x=1"), Some(1));
        assert_eq!(count("modify user where user=alice account=physics set x=1"), Some(1));
        assert_eq!(count("modify user alice where account=chem set x=1"), Some(0));
        assert_eq!(count("modify user nosuch set x=1"), Some(0));
        assert_eq!(count("modify user alice where colour=red set x=1"), None);
        assert_eq!(
            shown("lab", &view.associations[1]),
            "  C = lab        A = physics              U = alice    \n"
        );
    }
}
