//! `sacctmgr add|modify|delete user`.

use super::Books;
use super::association_key as key;
use super::line::{Line, Term, unknown_option};
use crate::command::slurm::ask::ShowError;
use model::account::Association;
use std::process::ExitCode;
use wire::client::Call;
use wire::view::AccountsView;

const ACCOUNT_KEYS: [&str; 2] = ["Account", "Accounts"];
const DEFAULT_ACCOUNT: &str = "DefaultAccount";
const CLUSTER_KEYS: [&str; 2] = ["Cluster", "Clusters"];

/// `C = lab        A = physics              U = alice    `
fn shown(cluster: &str, association: &Association) -> String {
    let user = association.user.as_deref().unwrap_or_default();
    format!("  C = {cluster:<10} A = {:<20} U = {user:<9}\n", association.account)
}

pub fn add(books: &mut Books, line: &Line) -> Result<ExitCode, ShowError> {
    let mut terms: Vec<Term> = line.terms.iter().chain(&line.set).cloned().collect();
    Line::take(&mut terms, &CLUSTER_KEYS);
    let mut accounts = Line::take(&mut terms, &ACCOUNT_KEYS);
    let default = Line::take(&mut terms, &[DEFAULT_ACCOUNT]).pop();
    accounts.extend(default.clone());
    accounts.dedup();
    if line.names.is_empty() || accounts.is_empty() {
        let text = " Need names of user and account: sacctmgr add user NAME Account=ACCOUNT";
        return Err(ShowError::said(text));
    }
    if let Some(missing) =
        accounts.iter().find(|name| !books.view.accounts.iter().any(|a| a.name == **name))
    {
        eprintln!(
            " This account '{missing}' doesn't exist.\n        Contact your admin to add this account."
        );
        return books.nothing(" Nothing new added.\n");
    }
    let added = new_associations(&books.view, &line.names, &accounts, default.as_deref());
    if added.is_empty() {
        return books.nothing(" Nothing new added.\n");
    }
    let mut lines = String::new();
    let mut calls = Vec::new();
    let mut said = said_of_added(&books.view, &added);
    for mut association in added {
        lines.clear();
        for term in &terms {
            lines.push_str(&key::apply(&mut association, term, &books.view)?);
        }
        calls.push(Call::SetAssociation(association));
    }
    said.push_str(&format!(" Non Default Settings\n{lines}"));
    books.commit(&said, calls)
}

/// Each user in each account where it is not yet. A user's first account is its default, unless another is said.
fn new_associations(
    view: &AccountsView,
    users: &[String],
    accounts: &[String],
    default: Option<&str>,
) -> Vec<Association> {
    let mut added: Vec<Association> = Vec::new();
    for user in users {
        for account in accounts {
            let of_user = |a: &&Association| a.user.as_deref() == Some(user);
            let mut known = view.associations.iter().chain(&added).filter(of_user).peekable();
            let first = known.peek().is_none();
            if known.any(|a| a.account == *account) {
                continue;
            }
            let default = default.map_or(first, |default| default == account);
            added.push(Association { default, ..key::plain(account, Some(user)) });
        }
    }
    added
}

fn said_of_added(view: &AccountsView, added: &[Association]) -> String {
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
        said.push_str(&format!(
            "  U = {user:<9} A = {:<10} C = {:<10}\n",
            association.account, view.cluster
        ));
    }
    said
}

/// The associations of the named users, in the named accounts.
fn chosen<'a>(view: &'a AccountsView, line: &Line) -> Result<Vec<&'a Association>, ShowError> {
    let mut terms = line.terms.clone();
    Line::take(&mut terms, &CLUSTER_KEYS);
    let accounts = Line::take(&mut terms, &ACCOUNT_KEYS);
    let mut users = line.names.clone();
    users.extend(Line::take(&mut terms, &["User", "Users"]));
    if let Some(term) = terms.first() {
        return Err(unknown_option(&term.typed));
    }
    let among = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
    let fits = |a: &&Association| {
        a.user.as_deref().is_some_and(|user| among(&users, user)) && among(&accounts, &a.account)
    };
    Ok(view.associations.iter().filter(fits).collect())
}

pub fn modify(books: &mut Books, line: &Line) -> Result<ExitCode, ShowError> {
    let mut set = line.set.clone();
    let default = Line::take(&mut set, &[DEFAULT_ACCOUNT]).pop();
    if set.is_empty() && default.is_none() {
        let text = " You didn't give me anything to set: modify user NAME set KEY=VALUE";
        return Err(ShowError::said(text));
    }
    if let Some(term) = set.iter().find(|term| !key::is_key(term)) {
        return Err(unknown_option(&term.typed));
    }
    let mut said = " Modified user associations...\n".to_owned();
    let mut calls = Vec::new();
    for association in chosen(&books.view, line)? {
        let mut changed = association.clone();
        for term in &set {
            key::apply(&mut changed, term, &books.view)?;
        }
        if let Some(default) = &default {
            changed.default = changed.account == *default;
        }
        said.push_str(&shown(&books.view.cluster, association));
        calls.push(Call::SetAssociation(changed));
    }
    if calls.is_empty() {
        return books.nothing(" Nothing modified\n");
    }
    books.commit(&said, calls)
}

pub fn delete(books: &mut Books, line: &Line) -> Result<ExitCode, ShowError> {
    if line.names.is_empty() {
        return Err(ShowError::said(" Need name of user to delete: sacctmgr delete user NAME"));
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
    let remove = |a: &&Association| Call::RemoveAssociation {
        account: a.account.clone(),
        user: a.user.clone(),
    };
    let calls = gone.iter().map(remove).collect();
    books.commit(&said, calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(list: &[&str]) -> Vec<String> {
        list.iter().map(|s| (*s).to_owned()).collect()
    }

    #[test]
    fn a_new_user_is_shown_as_slurm_shows_it() {
        let view = key::view();
        let added = new_associations(&view, &strings(&["bob"]), &strings(&["physics"]), None);
        assert!(added[0].default, "the first account of a user is its default");
        assert_eq!(
            said_of_added(&view, &added),
            " Adding User(s)\n  bob\n Associations =\n  U = bob       A = physics    C = lab       \n"
        );
    }

    #[test]
    fn a_user_is_added_once_to_an_account() {
        let view = key::view();
        let users = strings(&["alice"]);
        assert!(new_associations(&view, &users, &strings(&["physics"]), None).is_empty());
        let more = new_associations(&view, &users, &strings(&["physics", "chem"]), None);
        assert_eq!((more.len(), more[0].account.as_str(), more[0].default), (1, "chem", false));
        let more = new_associations(&view, &users, &strings(&["chem"]), Some("chem"));
        assert!(more[0].default);
    }

    #[test]
    fn users_are_chosen_by_name_and_account() {
        let view = key::view();
        let count = |text: &str| {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            chosen(&view, &Line::parse(&words).expect("a line")).map(|found| found.len()).ok()
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
