//! `sacctmgr add|modify|delete account`.

use super::Books;
use super::association_key as key;
use super::command_line::{CommandLine, Term, unknown_key};
use super::value;
use crate::command::slurm::query::CommandError;
use model::account::{Account, Association};
use model::raw_usage::UsageOwner;
use std::process::ExitCode;
use wire::client::Call;
use wire::view::AccountsView;

/// The account above all others.
const ROOT: &str = "root";

/// An account with its own association.
struct Changed {
    account: Account,
    association: Association,
}

/// Sets a field of the account itself; false if the key is not one of its own.
fn apply(account: &mut Account, term: &Term) -> bool {
    let value = || term.value.clone();
    if term.is(&["Description"]) {
        account.description = value();
    } else if term.is(&["Organization"]) {
        account.organization = value();
    } else if term.is(&["Parent"]) {
        account.parent = Some(value());
    } else {
        return false;
    }
    true
}

fn with_terms(
    view: &AccountsView,
    mut account: Account,
    mut association: Association,
    terms: &[Term],
) -> Result<Changed, CommandError> {
    for term in terms {
        if !apply(&mut account, term) {
            key::apply(&mut association, term, view)?;
        }
    }
    let parent = account.parent.as_deref().unwrap_or(ROOT);
    if parent != ROOT && !view.accounts.iter().any(|known| known.name == parent) {
        return Err(CommandError::message(format!(
            " Parent account '{parent}' doesn't exist on cluster {}\n        \
             Contact your admin to add this account.\n No associations created.",
            view.cluster
        )));
    }
    Ok(Changed { account, association })
}

pub fn add(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    if line.names.is_empty() {
        return Err(CommandError::message(" Need name of account to add."));
    }
    let mut terms: Vec<Term> = line.terms.iter().chain(&line.set).cloned().collect();
    // The key is accepted and has no effect: there is one cluster.
    CommandLine::take(&mut terms, &["Cluster", "Clusters"]);
    let mut added = Vec::new();
    for name in line.names.iter().map(|name| name.to_ascii_lowercase()) {
        if books.view.accounts.iter().any(|account| account.name == name) {
            continue;
        }
        let association = key::plain(&name, None);
        let account = Account {
            description: String::new(),
            organization: String::new(),
            parent: Some(ROOT.to_owned()),
            coordinators: Vec::new(),
            name,
        };
        added.push(with_terms(&books.view, account, association, &terms)?);
    }
    if added.is_empty() {
        return books.nothing(" Nothing new added.\n");
    }
    let said = added_text(&added, &books.view.cluster);
    let calls = added.into_iter().flat_map(|new| {
        let account = with_defaults(new.account);
        [Call::SetAccount(account), Call::SetAssociation(new.association)]
    });
    books.commit(&said, calls.collect())
}

/// Fills in the defaults: the account's own name, and the parent's as organization.
fn with_defaults(mut account: Account) -> Account {
    if account.description.is_empty() {
        account.description.clone_from(&account.name);
    }
    if account.organization.is_empty() {
        let above = account.parent.clone().filter(|parent| parent != ROOT);
        account.organization = above.unwrap_or_else(|| account.name.clone());
    }
    account
}

/// The text for added accounts. They all have the same settings, which are shown once.
fn added_text(added: &[Changed], cluster: &str) -> String {
    let mut said = " Adding Account(s)\n".to_owned();
    for new in added {
        said.push_str(&format!("  {}\n", new.account.name));
    }
    if let Some(Changed { account, .. }) = added.first() {
        let or = |text: &str, unsaid: &str| {
            if text.is_empty() { unsaid.to_owned() } else { text.to_owned() }
        };
        said.push_str(&format!(
            " Settings\n  Description     = {}\n  Organization    = {}\n",
            or(&account.description, "Account Name"),
            or(&account.organization, "Parent/Account Name")
        ));
    }
    said.push_str(" Associations\n");
    for new in added {
        said.push_str(&format!("  A = {:<10} C = {cluster:<10}\n", new.account.name));
    }
    if let Some(Changed { account, association }) = added.first() {
        let parent = account.parent.as_deref().unwrap_or(ROOT);
        said.push_str(&format!(" Settings\n{}", key::shown(association, Some(parent))));
    }
    said
}

fn chosen<'a>(
    view: &'a AccountsView,
    line: &CommandLine,
) -> Result<Vec<&'a Account>, CommandError> {
    let mut terms = line.terms.clone();
    CommandLine::take(&mut terms, &["Cluster", "Clusters"]);
    let mut names = line.names.clone();
    names.extend(CommandLine::take(&mut terms, &["Account", "Accounts"]));
    if let Some(term) = terms.first() {
        return Err(unknown_key(&term.typed, "conditions", ["Account", "Cluster"]));
    }
    let named = |account: &&Account| {
        names.is_empty() || names.iter().any(|name| name.eq_ignore_ascii_case(&account.name))
    };
    Ok(view.accounts.iter().filter(named).collect())
}

fn own_association(view: &AccountsView, account: &str) -> Association {
    let own = view.associations.iter().find(|a| a.user.is_none() && a.account == account);
    own.cloned().unwrap_or_else(|| key::plain(account, None))
}

pub fn modify(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    let mut set = line.set.clone();
    let resets_usage = value::take_raw_usage(&mut set)?;
    if set.is_empty() && !resets_usage {
        return Err(CommandError::message(" You didn't give me anything to set"));
    }
    let (mut accounts, mut associations) = (String::new(), String::new());
    let mut calls = Vec::new();
    for account in chosen(&books.view, line)? {
        let association = own_association(&books.view, &account.name);
        let changed = with_terms(&books.view, account.clone(), association.clone(), &set)?;
        let moved = changed.account.parent != account.parent;
        let above = account.parent.as_ref().map(|parent| format!(" of {parent}"));
        let shown = format!(
            "  C = {:<10} A = {}{}\n",
            books.view.cluster,
            account.name,
            above.unwrap_or_default()
        );
        if changed.association != association || moved || resets_usage {
            associations.push_str(&shown);
        }
        if moved {
            calls.extend(move_new_parent_up(&books.view, account, &changed.account));
        } else if changed.account != *account {
            accounts.push_str(&format!("  {}\n", account.name));
        }
        if changed.account != *account {
            calls.push(Call::SetAccount(changed.account));
        }
        calls.push(Call::SetAssociation(changed.association));
        if resets_usage {
            calls.push(Call::ForgetUsage(UsageOwner::Account(account.name.clone())));
        }
    }
    if calls.is_empty() {
        return books.nothing(" Nothing modified\n");
    }
    let mut said = String::new();
    for (head, lines) in [
        (" Modified accounts...\n", accounts),
        (" Modified account associations...\n", associations),
    ] {
        if !lines.is_empty() {
            said.push_str(head);
            said.push_str(&lines);
        }
    }
    books.commit(&said, calls)
}

/// An account that moves below one of its own descendants: the new parent takes its old position first.
fn move_new_parent_up(view: &AccountsView, old: &Account, new: &Account) -> Option<Call> {
    let mut at = new.parent.clone()?;
    // Bounded by the number of accounts: each step goes one account up.
    for _ in 0..view.accounts.len() {
        let above = view.accounts.iter().find(|a| a.name == at)?;
        if above.parent.as_deref() == Some(old.name.as_str()) {
            let heir = view.accounts.iter().find(|a| Some(&a.name) == new.parent.as_ref())?;
            return Some(Call::SetAccount(Account { parent: old.parent.clone(), ..heir.clone() }));
        }
        at = above.parent.clone()?;
    }
    None
}

pub fn delete(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    if line.names.is_empty() && line.terms.is_empty() {
        return Err(CommandError::message(
            " Need name of account to delete: sacctmgr delete account NAME",
        ));
    }
    let names: Vec<String> =
        chosen(&books.view, line)?.iter().map(|account| account.name.clone()).collect();
    if names.is_empty() {
        return books.nothing(" Nothing deleted\n");
    }
    if names.iter().any(|name| name == ROOT) {
        return Err(CommandError::message(
            " You are not allowed to remove the root account.\n Use remove cluster instead.",
        ));
    }
    let mut said = " Deleting accounts...\n".to_owned();
    names.iter().for_each(|name| said.push_str(&format!("  {name}\n")));
    // The server removes the associations together with the account, so that a refusal keeps both.
    books.commit(&said, names.into_iter().map(|name| Call::RemoveAccount { name }).collect())
}

#[cfg(test)]
mod tests {
    use super::super::value::term;
    use super::*;

    #[test]
    fn an_added_account_is_shown_as_slurm_shows_it() {
        let view = key::view();
        let account = Account {
            name: "chem".into(),
            description: String::new(),
            organization: String::new(),
            parent: Some(ROOT.into()),
            coordinators: Vec::new(),
        };
        let terms = ["Description=chem", "Organization=lab", "Fairshare=5"].map(term);
        let added = with_terms(&view, account, key::plain("chem", None), &terms).expect("right");
        assert_eq!(added.association.shares, model::account::Shares::Count(5));
        let expected = " Adding Account(s)\n  chem\n Settings\n  Description     = chem\n  \
                        Organization    = lab\n Associations\n  A = chem       C = lab       \n \
                        Settings\n  Fairshare     = 5\n  Parent        = root\n";
        assert_eq!(added_text(&[added], "lab"), expected);
    }

    #[test]
    fn an_account_needs_an_existing_parent() {
        let view = key::view();
        let account = view.accounts[1].clone();
        let error =
            with_terms(&view, account, key::plain("physics", None), &[term("Parent=nosuch")]);
        let text = error.err().expect("wrong").to_string();
        let expected = " Parent account 'nosuch' doesn't exist on cluster lab\n        \
                        Contact your admin to add this account.\n No associations created.";
        assert_eq!(text, expected);
    }
}
