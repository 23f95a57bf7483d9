//! The keys of an association: a user's in an account, or an account's own.

use super::line::{Operator, Term};
use super::value::{self, Expected};
use crate::command::slurm::ask::ShowError;
use model::account::{Association, AssociationLimits, NORMAL_QOS};
use std::fmt::Write;
use wire::view::AccountsView;

/// Puts a value into an association, or says what would be right.
type Setter = fn(&mut Association, &Term) -> Result<(), Expected>;

/// The keys with their synonyms; the first is how a setting is shown. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const KEYS: &[(&[&str], Setter)] = &[
    (&["DefaultQOS"], |a, t| { a.default_qos = Some(t.value.clone()).filter(|v| !v.is_empty() && v != "-1"); Ok(()) }),
    (&["Fairshare", "Shares", "Share"], |a, t| { a.shares = value::count(t)?.unwrap_or(1); Ok(()) }),
    (&["GrpTRES"], |a, t| value::tres(&mut a.limits.group_tres, t)),
    (&["MaxJobs"], |a, t| { a.limits.max_jobs = value::count(t)?; Ok(()) }),
    (&["MaxSubmitJobs", "MaxSubmit"], |a, t| { a.limits.max_submit = value::count(t)?; Ok(()) }),
    (&["MaxTRESPerJob", "MaxTRESPJ", "MaxTRES"], |a, t| value::tres(&mut a.limits.max_tres_per_job, t)),
    (&["MaxWallDurationPerJob", "MaxWall"], |a, t| { a.limits.max_wall = value::wall(t)?; Ok(()) }),
    (&["QosLevel", "QOS"], |a, t| { value::list(&mut a.qos, t); Ok(()) }),
];

/// A new association with nothing said.
pub fn plain(account: &str, user: Option<&str>) -> Association {
    Association {
        account: account.to_owned(),
        user: user.map(str::to_owned),
        partition: None,
        shares: 1,
        default: false,
        qos: Vec::new(),
        default_qos: None,
        limits: AssociationLimits::default(),
    }
}

pub fn is_key(term: &Term) -> bool {
    KEYS.iter().any(|(names, _)| term.is(names))
}

/// Puts one term in, and gives the line that shows it.
pub fn apply(
    association: &mut Association,
    term: &Term,
    view: &AccountsView,
) -> Result<String, ShowError> {
    let row = KEYS.iter().find(|(names, _)| term.is(names));
    let (names, set) = row.ok_or_else(|| super::line::unknown_option(&term.typed))?;
    let changes_list = matches!(term.operator, Operator::Add | Operator::Remove);
    if term.is(&["QosLevel", "QOS"]) {
        let given = ::slurm::option::value::list(&term.value);
        let known = |name: &String| name == "-1" || view.qos.iter().any(|qos| qos.name == *name);
        if let Some(unknown) = given.iter().find(|name| !known(name)) {
            return Err(ShowError::said(format!(
                " Bad value: {}: the qos '{unknown}' doesn't exist",
                term.typed
            )));
        }
        // An empty list stands for what the account has; a change of it begins there.
        if changes_list && association.qos.is_empty() {
            association.qos = inherited_qos(view, &association.account);
        }
    }
    set(association, term)
        .map_err(|expected| ShowError::said(format!(" Bad value: {}: {expected}", term.typed)))?;
    let mut line = String::new();
    writeln!(line, "  {:<13} = {}", names[0], term.value).expect("a string grows");
    Ok(line)
}

/// The list of the account or of the nearest one above that has one.
fn inherited_qos(view: &AccountsView, account: &str) -> Vec<String> {
    let mut account = Some(account.to_owned());
    // Each step goes one account up; there are no more than there are accounts.
    for _ in 0..=view.accounts.len() {
        let Some(name) = account else { break };
        let own = view.associations.iter().find(|a| a.user.is_none() && a.account == name);
        if let Some(list) = own.map(|own| &own.qos).filter(|list| !list.is_empty()) {
            return list.clone();
        }
        account = view.accounts.iter().find(|a| a.name == name).and_then(|a| a.parent.clone());
    }
    vec![NORMAL_QOS.to_owned()]
}

#[cfg(test)]
pub fn view() -> AccountsView {
    use model::account::{Account, Qos};
    let account = |name: &str, parent: Option<&str>| Account {
        name: name.into(),
        description: name.into(),
        organization: "lab".into(),
        parent: parent.map(str::to_owned),
    };
    AccountsView {
        cluster: "lab".into(),
        accounts: vec![account("root", None), account("physics", Some("root"))],
        associations: vec![plain("physics", None), plain("physics", Some("alice"))],
        qos: ["normal", "capped", "high"].map(Qos::named).to_vec(),
        roles: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::term;
    use super::*;
    use model::time::TimeLimit;

    #[test]
    fn every_key_lands_in_its_field() {
        let mut found = plain("physics", Some("alice"));
        let words =
            ["Fairshare=10", "MaxJobs=2", "MaxSubmitJobs=4", "MaxWall=60", "DefaultQOS=high"];
        for word in words {
            apply(&mut found, &term(word), &view()).expect(word);
        }
        let mut expected = plain("physics", Some("alice"));
        expected.shares = 10;
        expected.default_qos = Some("high".into());
        expected.limits.max_jobs = Some(2);
        expected.limits.max_submit = Some(4);
        expected.limits.max_wall = Some(TimeLimit::Minutes(60));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_list_that_is_inherited_is_added_to_and_not_replaced() {
        let mut found = plain("physics", Some("alice"));
        apply(&mut found, &term("QOS+=capped,high"), &view()).expect("right");
        assert_eq!(found.qos, ["capped", "high", "normal"]);
        let error = apply(&mut found, &term("QOS+=nosuch"), &view()).expect_err("wrong");
        assert_eq!(error.to_string(), " Bad value: QOS+=nosuch: the qos 'nosuch' doesn't exist");
    }
}
