//! The keys of an association: of a user in an account, or of an account itself.

use super::command_line::{Operator, Term};
use super::value::{self, Fault};
use crate::command::slurm::query::CommandError;
use model::account::{Association, NORMAL_QOS, Shares};
use model::time::{TimeLimit, format_limit_full};
use model::tres::{Tres, TresKind};
use std::fmt::Write;
use wire::view::AccountsView;

/// Sets a field of an association.
type AssociationSetter = fn(&mut Association, &Term) -> Result<(), Fault>;

/// The keys with their synonyms; the first is how a setting is shown. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const KEYS: &[(&[&str], AssociationSetter)] = &[
    (&["DefaultQOS"], |a, t| { a.default_qos = Some(t.value.clone()).filter(|v| !v.is_empty() && v != "-1"); Ok(()) }),
    (&["Fairshare", "Shares", "Share"], |a, t| { a.shares = value::shares(t)?; Ok(()) }),
    (&["GrpJobs"], |a, t| { a.limits.group_jobs = value::count(t)?; Ok(()) }),
    (&["GrpJobsAccrue"], |a, t| { a.limits.group_jobs_accrue = value::count(t)?; Ok(()) }),
    (&["GrpSubmitJobs", "GrpSubmit"], |a, t| { a.limits.group_submit = value::count(t)?; Ok(()) }),
    (&["GrpTRES"], |a, t| value::tres(&mut a.limits.group_tres, t)),
    (&["GrpTRESMins"], |a, t| value::tres(&mut a.limits.group_tres_minutes, t)),
    (&["GrpTRESRunMins"], |a, t| value::tres(&mut a.limits.group_tres_run_minutes, t)),
    (&["GrpCPUs"], |a, t| value::one_tres(&mut a.limits.group_tres, TresKind::Cpu, t)),
    (&["GrpNodes"], |a, t| value::one_tres(&mut a.limits.group_tres, TresKind::Node, t)),
    (&["GrpMemory"], |a, t| value::one_tres(&mut a.limits.group_tres, TresKind::Mem, t)),
    (&["GrpCPUMins"], |a, t| value::one_tres(&mut a.limits.group_tres_minutes, TresKind::Cpu, t)),
    (&["GrpCPURunMins"], |a, t| value::one_tres(&mut a.limits.group_tres_run_minutes, TresKind::Cpu, t)),
    (&["GrpWall"], |a, t| { a.limits.group_wall = value::wall(t)?; Ok(()) }),
    (&["MaxJobs"], |a, t| { a.limits.max_jobs = value::count(t)?; Ok(()) }),
    (&["MaxJobsAccrue"], |a, t| { a.limits.max_jobs_accrue = value::count(t)?; Ok(()) }),
    (&["MaxSubmitJobs", "MaxSubmit"], |a, t| { a.limits.max_submit = value::count(t)?; Ok(()) }),
    (&["MaxTRESPerJob", "MaxTRESPJ", "MaxTRES"], |a, t| value::tres(&mut a.limits.max_tres_per_job, t)),
    (&["MaxTRESPerNode", "MaxTRESPN"], |a, t| value::tres(&mut a.limits.max_tres_per_node, t)),
    (&["MaxTRESMinsPerJob", "MaxTRESMinsPJ", "MaxTRESMins"], |a, t| value::tres(&mut a.limits.max_tres_minutes_per_job, t)),
    (&["MaxCPUs"], |a, t| value::one_tres(&mut a.limits.max_tres_per_job, TresKind::Cpu, t)),
    (&["MaxNodes"], |a, t| value::one_tres(&mut a.limits.max_tres_per_job, TresKind::Node, t)),
    (&["MaxCPUMins"], |a, t| value::one_tres(&mut a.limits.max_tres_minutes_per_job, TresKind::Cpu, t)),
    (&["MaxWallDurationPerJob", "MaxWall"], |a, t| { a.limits.max_wall = value::wall(t)?; Ok(()) }),
    (&["MinPrioThreshold"], |a, t| { a.limits.min_priority_threshold = value::count(t)?; Ok(()) }),
    (&["Priority"], |a, t| { a.priority = value::count(t)?; Ok(()) }),
    (&["QosLevel", "QOS"], |a, t| { value::list(&mut a.qos, t); Ok(()) }),
];

/// A new association without settings.
pub fn plain(account: &str, user: Option<&str>) -> Association {
    Association::plain(account, user)
}

pub fn is_key(term: &Term) -> bool {
    KEYS.iter().any(|(names, _)| term.is(names))
}

/// The refusal of a term with another key, which lists those that there are.
pub fn unknown(term: &Term) -> CommandError {
    unknown_beside(&[], term)
}

/// As [`unknown`], where these can be set too.
pub fn unknown_beside(others: &[&'static str], term: &Term) -> CommandError {
    let known = others.iter().copied().chain(KEYS.iter().map(|(names, _)| names[0]));
    super::command_line::unknown_key(&term.typed, "what can be set", known)
}

/// Applies one term.
pub fn apply(
    association: &mut Association,
    term: &Term,
    view: &AccountsView,
) -> Result<(), CommandError> {
    let row = KEYS.iter().find(|(names, _)| term.is(names));
    let (_, set) = row.ok_or_else(|| unknown(term))?;
    check_qos(term, view)?;
    let changes_list = matches!(term.operator, Operator::Add | Operator::Remove);
    // An empty list inherits from the account. Adding or removing starts from the inherited list.
    if term.is(&["QosLevel", "QOS"]) && changes_list && association.qos.is_empty() {
        association.qos = inherited_qos(view, &association.account);
    }
    set(association, term).map_err(|fault| refused(term, &fault.lines(term, &term.key)))
}

fn refused(term: &Term, lines: &str) -> CommandError {
    CommandError::message(format!("{lines}\n{}", super::command_line::unknown_option(&term.typed)))
}

/// The named QOS must exist.
fn check_qos(term: &Term, view: &AccountsView) -> Result<(), CommandError> {
    let known = |name: &str| name == "-1" || view.qos.iter().any(|qos| qos.name == name);
    if term.is(&["DefaultQOS"]) && !term.value.is_empty() && !known(&term.value) {
        return Err(CommandError::message(format!(
            "You gave a bad default qos '{}'.  Use 'list qos' to get complete list.",
            term.value
        )));
    }
    if !term.is(&["QosLevel", "QOS"]) {
        return Ok(());
    }
    let given = ::slurm::option::value::list(&term.value);
    match given.iter().find(|name| !known(name)) {
        Some(unknown) => Err(refused(term, &bad_qos(unknown, view))),
        None => Ok(()),
    }
}

pub fn bad_qos(unknown: &str, view: &AccountsView) -> String {
    let names: Vec<&str> = view.qos.iter().map(|qos| qos.name.as_str()).collect();
    let names = names.join(",");
    format!("sacctmgr: error: You gave a bad qos '{unknown}'. Valid QOS's are {names}")
}

/// The name of a setting and its value; `None` if it is not set.
type ShownSetting = (&'static str, fn(&Association) -> Option<String>);

fn tres(tres: &Tres) -> Option<String> {
    (!tres.is_empty()).then(|| tres.to_string())
}

fn text(value: Option<u32>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn wall(value: Option<TimeLimit>) -> Option<String> {
    value.map(format_limit_full)
}

/// In Slurm's order. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const SHOWN: &[ShownSetting] = &[
    ("Fairshare", |a| (a.shares != Shares::default()).then(|| a.shares.to_string())),
    ("GrpJobs", |a| text(a.limits.group_jobs)),
    ("GrpJobsAccrue            ", |a| text(a.limits.group_jobs_accrue)),
    ("GrpSubmitJobs", |a| text(a.limits.group_submit)),
    ("GrpTRES", |a| tres(&a.limits.group_tres)),
    ("GrpTRESMins", |a| tres(&a.limits.group_tres_minutes)),
    ("GrpTRESRunMins", |a| tres(&a.limits.group_tres_run_minutes)),
    ("GrpWall", |a| wall(a.limits.group_wall)),
    ("MaxJobs", |a| text(a.limits.max_jobs)),
    ("MaxJobsPrioAcc", |a| text(a.limits.max_jobs_accrue)),
    ("MaxSubmitJobs", |a| text(a.limits.max_submit)),
    ("MaxTRES", |a| tres(&a.limits.max_tres_per_job)),
    ("MaxTRESPerNode", |a| tres(&a.limits.max_tres_per_node)),
    ("MaxTRESMins", |a| tres(&a.limits.max_tres_minutes_per_job)),
    ("MaxWall", |a| wall(a.limits.max_wall)),
];

/// The settings that are shown after the parent.
#[rustfmt::skip]
const SHOWN_LAST: &[ShownSetting] = &[
    ("Priority", |a| text(a.priority)),
    ("DefQOS", |a| a.default_qos.clone()),
    ("QOS", |a| (!a.qos.is_empty()).then(|| a.qos.join(","))),
];

/// The settings of a new association, a line each.
pub fn shown(association: &Association, parent: Option<&str>) -> String {
    let mut lines = String::new();
    let mut push_setting = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            writeln!(lines, "  {name:<14}= {value}").expect("a string grows");
        }
    };
    SHOWN.iter().for_each(|(name, value)| push_setting(name, value(association)));
    push_setting("Parent", parent.map(str::to_owned));
    SHOWN_LAST.iter().for_each(|(name, value)| push_setting(name, value(association)));
    lines
}

/// The list of the account, or of the nearest account above that has one.
fn inherited_qos(view: &AccountsView, account: &str) -> Vec<String> {
    let mut account = Some(account.to_owned());
    // Bounded by the number of accounts: each step goes one account up.
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
        coordinators: Vec::new(),
    };
    AccountsView {
        cluster: "lab".into(),
        accounts: vec![account("root", None), account("physics", Some("root"))],
        associations: vec![plain("physics", None), plain("physics", Some("alice"))],
        qos: ["normal", "capped", "high"].map(Qos::named).to_vec(),
        roles: Default::default(),
        only_user: None,
        deleted: Default::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::term;
    use super::*;
    use model::time::TimeLimit;

    #[test]
    fn every_key_sets_its_field() {
        let mut found = plain("physics", Some("alice"));
        let words =
            ["Fairshare=10", "MaxJobs=2", "MaxSubmitJobs=4", "MaxWall=60", "DefaultQOS=high"];
        for word in words {
            apply(&mut found, &term(word), &view()).expect(word);
        }
        let mut expected = plain("physics", Some("alice"));
        expected.shares = Shares::Count(10);
        expected.default_qos = Some("high".into());
        expected.limits.max_jobs = Some(2);
        expected.limits.max_submit = Some(4);
        expected.limits.max_wall = Some(TimeLimit::Minutes(60));
        assert_eq!(found, expected);
    }

    #[test]
    fn adding_a_qos_starts_from_the_inherited_list() {
        let mut found = plain("physics", Some("alice"));
        apply(&mut found, &term("QOS+=capped,high"), &view()).expect("right");
        assert_eq!(found.qos, ["capped", "high", "normal"]);
        let error = apply(&mut found, &term("QOS+=nosuch"), &view()).expect_err("wrong");
        let expected = "sacctmgr: error: You gave a bad qos 'nosuch'. Valid QOS's are normal,capped,high\n \
                        Unknown option: QOS+=nosuch\n Use keyword 'where' to modify condition";
        assert_eq!(error.to_string(), expected);
    }

    /// Captured from a real Slurm: `sacctmgr add account bad KEY=VALUE`.
    #[test]
    fn bad_association_values_are_refused_in_slurms_words() {
        let table = [
            ("GrpTRES=cpu", "sacctmgr: error: slurmdb_format_tres_str: no TRES id found for cpu"),
            (
                "GrpTRES=bogus=1",
                "sacctmgr: error: slurmdb_format_tres_str: no TRES known by type bogus",
            ),
            ("GrpJobs=x", "sacctmgr: error: Invalid value for GrpJobs (x)"),
            ("MaxWall=soon", " Bad MaxWall time format: MaxWall=soon"),
        ];
        for (word, said) in table {
            let error = apply(&mut plain("a", None), &term(word), &view()).expect_err(word);
            let last = format!(" Unknown option: {word}\n Use keyword 'where' to modify condition");
            assert_eq!(error.to_string(), format!("{said}\n{last}"));
        }
        let error = apply(&mut plain("a", None), &term("DefaultQOS=nosuch"), &view());
        let text = error.expect_err("wrong").to_string();
        assert_eq!(
            text,
            "You gave a bad default qos 'nosuch'.  Use 'list qos' to get complete list."
        );
    }

    /// Captured from a real Slurm: `sacctmgr add account p1 parent=physics …`.
    #[test]
    fn settings_are_shown_in_slurms_order() {
        let mut found = plain("p1", None);
        let words = [
            "DefaultQOS=normal",
            "Priority=7",
            "GrpJobsAccrue=3",
            "MaxJobsAccrue=2",
            "MaxWall=60",
            "GrpWall=2-0",
            "GrpTRESRunMins=cpu=500",
            "GrpTRES=cpu=10,gres/gpu=2",
            "fairshare=3",
            "MaxTRESPerNode=cpu=2",
            "GrpTRESMins=cpu=1000",
            "MaxTRESMinsPerJob=cpu=90",
            "GrpJobs=5",
            "MaxTRESPerJob=cpu=4",
            "GrpSubmitJobs=10",
            "MaxJobs=3",
            "MaxSubmitJobs=4",
        ];
        for word in words {
            apply(&mut found, &term(word), &view()).expect(word);
        }
        let expected = "  Fairshare     = 3\n  GrpJobs       = 5\n  GrpJobsAccrue            = 3\n  \
                        GrpSubmitJobs = 10\n  GrpTRES       = cpu=10,gres/gpu=2\n  \
                        GrpTRESMins   = cpu=1000\n  GrpTRESRunMins= cpu=500\n  \
                        GrpWall       = 2-00:00:00\n  MaxJobs       = 3\n  MaxJobsPrioAcc= 2\n  \
                        MaxSubmitJobs = 4\n  MaxTRES       = cpu=4\n  MaxTRESPerNode= cpu=2\n  \
                        MaxTRESMins   = cpu=90\n  MaxWall       = 01:00:00\n  \
                        Parent        = physics\n  Priority      = 7\n  DefQOS        = normal\n";
        assert_eq!(shown(&found, Some("physics")), expected);
    }
}
