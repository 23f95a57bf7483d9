//! `sacctmgr add|modify|delete qos`.

use super::Books;
use super::association_key as key;
use super::command_line::{CommandLine, Operator, Term, unknown_key, unknown_option};
use super::value::{self, Fault};
use crate::command::slurm::query::CommandError;
use model::account::{Association, Qos};
use model::raw_usage::UsageOwner;
use model::tres::TresKind;
use std::process::ExitCode;
use wire::client::Call;
use wire::view::AccountsView;

/// Sets a field of a QOS.
type QosSetter = fn(&mut Qos, &Term) -> Result<(), Fault>;

/// The keys with their synonyms; the first is how a setting is shown. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const KEYS: &[(&[&str], QosSetter)] = &[
    (&["Description"], |q, t| { q.description = t.value.clone(); Ok(()) }),
    (&["Flags"], |q, t| value::flags(&mut q.flags, t)),
    (&["GraceTime"], |q, t| { q.grace_time_s = value::count(t)?.unwrap_or(0); Ok(()) }),
    (&["GrpJobs"], |q, t| { q.group_jobs = value::count(t)?; Ok(()) }),
    (&["GrpJobsAccrue"], |q, t| { q.group_jobs_accrue = value::count(t)?; Ok(()) }),
    (&["GrpSubmitJobs", "GrpSubmit"], |q, t| { q.group_submit = value::count(t)?; Ok(()) }),
    (&["GrpTRES"], |q, t| value::tres(&mut q.group_tres, t)),
    (&["GrpTRESMins"], |q, t| value::tres(&mut q.group_tres_minutes, t)),
    (&["GrpTRESRunMins"], |q, t| value::tres(&mut q.group_tres_run_minutes, t)),
    (&["GrpCPUs"], |q, t| value::one_tres(&mut q.group_tres, TresKind::Cpu, t)),
    (&["GrpNodes"], |q, t| value::one_tres(&mut q.group_tres, TresKind::Node, t)),
    (&["GrpMemory"], |q, t| value::one_tres(&mut q.group_tres, TresKind::Mem, t)),
    (&["GrpCPUMins"], |q, t| value::one_tres(&mut q.group_tres_minutes, TresKind::Cpu, t)),
    (&["GrpCPURunMins"], |q, t| value::one_tres(&mut q.group_tres_run_minutes, TresKind::Cpu, t)),
    (&["GrpWall"], |q, t| { q.group_wall = value::wall(t)?; Ok(()) }),
    (&["LimitFactor"], |q, t| { q.limit_factor = value::factor(t)?; Ok(()) }),
    (&["MaxJobsPerUser", "MaxJobsPU", "MaxJobs"], |q, t| { q.max_jobs_per_user = value::count(t)?; Ok(()) }),
    (&["MaxJobsPerAccount", "MaxJobsPA"], |q, t| { q.max_jobs_per_account = value::count(t)?; Ok(()) }),
    (&["MaxJobsAccruePerUser", "MaxJobsAccruePU"], |q, t| { q.max_jobs_accrue_per_user = value::count(t)?; Ok(()) }),
    (&["MaxJobsAccruePerAccount", "MaxJobsAccruePA"], |q, t| { q.max_jobs_accrue_per_account = value::count(t)?; Ok(()) }),
    (&["MaxSubmitJobsPerUser", "MaxSubmitJobsPU", "MaxSubmitPU", "MaxSubmitJobs"], |q, t| { q.max_submit_per_user = value::count(t)?; Ok(()) }),
    (&["MaxSubmitJobsPerAccount", "MaxSubmitJobsPA", "MaxSubmitPA"], |q, t| { q.max_submit_per_account = value::count(t)?; Ok(()) }),
    (&["MaxTRESPerAccount", "MaxTRESPA"], |q, t| value::tres(&mut q.max_tres_per_account, t)),
    (&["MaxTRESPerJob", "MaxTRESPJ", "MaxTRES"], |q, t| value::tres(&mut q.max_tres_per_job, t)),
    (&["MaxTRESPerNode", "MaxTRESPN"], |q, t| value::tres(&mut q.max_tres_per_node, t)),
    (&["MaxTRESPerUser", "MaxTRESPU"], |q, t| value::tres(&mut q.max_tres_per_user, t)),
    (&["MaxTRESMinsPerJob", "MaxTRESMinsPJ", "MaxTRESMins"], |q, t| value::tres(&mut q.max_tres_minutes_per_job, t)),
    (&["MaxCPUs", "MaxCPUsPerJob"], |q, t| value::one_tres(&mut q.max_tres_per_job, TresKind::Cpu, t)),
    (&["MaxNodes", "MaxNodesPerJob"], |q, t| value::one_tres(&mut q.max_tres_per_job, TresKind::Node, t)),
    (&["MaxCPUsPerUser", "MaxCPUsPU"], |q, t| value::one_tres(&mut q.max_tres_per_user, TresKind::Cpu, t)),
    (&["MaxNodesPerUser", "MaxNodesPU"], |q, t| value::one_tres(&mut q.max_tres_per_user, TresKind::Node, t)),
    (&["MaxCPUMins", "MaxCPUMinsPerJob"], |q, t| value::one_tres(&mut q.max_tres_minutes_per_job, TresKind::Cpu, t)),
    (&["MaxWallDurationPerJob", "MaxWallPJ", "MaxWall"], |q, t| { q.max_wall = value::wall(t)?; Ok(()) }),
    (&["MinPrioThreshold"], |q, t| { q.min_priority_threshold = value::count(t)?; Ok(()) }),
    (&["MinTRESPerJob", "MinTRES"], |q, t| value::tres(&mut q.min_tres_per_job, t)),
    (&["MinCPUs", "MinCPUsPerJob"], |q, t| value::one_tres(&mut q.min_tres_per_job, TresKind::Cpu, t)),
    (&["Preempt"], |q, t| { value::list(&mut q.preempt, t); Ok(()) }),
    (&["PreemptExemptTime"], |q, t| { q.preempt_exempt_s = value::seconds(t)?; Ok(()) }),
    (&["PreemptMode"], |q, t| { q.preempt_mode = preempt_mode(&t.value)?; Ok(()) }),
    (&["Priority"], |q, t| { q.priority = value::count(t)?.unwrap_or(0); Ok(()) }),
    (&["UsageFactor"], |q, t| { q.usage_factor = value::factor(t)?.unwrap_or_default(); Ok(()) }),
    (&["UsageThreshold"], |q, t| { q.usage_threshold = value::factor(t)?; Ok(()) }),
];

/// How jobs of this QOS are preempted; `cluster` leaves it to the configuration.
fn preempt_mode(text: &str) -> Result<Option<String>, Fault> {
    match text.to_ascii_lowercase().as_str() {
        "cluster" | "" => Ok(None),
        mode @ ("cancel" | "requeue" | "suspend" | "gang" | "off") => Ok(Some(mode.to_owned())),
        _ => Err(Fault::Line(format!(" Bad Preempt Mode given: PreemptMode={text}"))),
    }
}

/// Applies the terms, and returns the lines that show them, in the order of the table.
fn apply(qos: &mut Qos, terms: &[Term], view: &AccountsView) -> Result<String, CommandError> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    for term in terms {
        let at = KEYS.iter().position(|(names, _)| term.is(names));
        let known = || KEYS.iter().map(|(names, _)| names[0]);
        let at = at.ok_or_else(|| unknown_key(&term.typed, "what can be set", known()))?;
        let (names, set) = &KEYS[at];
        if term.is(&["Preempt"]) {
            let given = ::slurm::option::value::list(&term.value);
            let known = |name: &String| name == "-1" || view.qos.iter().any(|q| q.name == *name);
            if let Some(unknown) = given.iter().find(|name| !known(name)) {
                return Err(CommandError::message(key::bad_qos(unknown, view)));
            }
        }
        set(qos, term).map_err(|fault| refused(term, &fault))?;
        if names[0] != "Description" {
            let sign = match term.operator {
                Operator::Set => "=",
                Operator::Add => "+=",
                Operator::Remove => "-=",
            };
            lines.push((at, format!("  {:<24} {sign} {}\n", names[0], term.value)));
        }
    }
    lines.sort();
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

fn refused(term: &Term, fault: &Fault) -> CommandError {
    let lines = fault.lines(term, &term.key);
    match fault {
        Fault::Listing(_) => {
            // The list of valid values goes to standard output, as in Slurm.
            let _ = crate::command::slurm::query::print(&lines);
            CommandError::Message { text: String::new(), code: 1 }
        }
        _ => CommandError::message(lines),
    }
}

pub fn add(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    if line.names.is_empty() {
        return Err(CommandError::message(" Need name of qos to add."));
    }
    let terms: Vec<Term> = line.terms.iter().chain(&line.set).cloned().collect();
    let mut said = " Adding QOS(s)\n".to_owned();
    let mut calls = Vec::new();
    let mut settings = String::new();
    for name in &line.names {
        let name = name.to_ascii_lowercase();
        if books.view.qos.iter().any(|qos| qos.name == name) {
            continue;
        }
        let mut qos = Qos::named(&name);
        let lines = apply(&mut qos, &terms, &books.view)?;
        said.push_str(&format!("  {name}\n"));
        settings = format!(" Settings\n  Description    = {}\n{lines}", qos.description);
        calls.push(Call::SetQos(qos));
    }
    if calls.is_empty() {
        return books.nothing(" Nothing new added.\n");
    }
    said.push_str(&settings);
    books.commit(&said, calls)
}

/// The QOS that the line names; all if it names none.
fn chosen<'a>(books: &'a Books, line: &CommandLine) -> Result<Vec<&'a Qos>, CommandError> {
    if let Some(term) = line.terms.first() {
        return Err(unknown_option(&term.typed));
    }
    let named = |qos: &&Qos| {
        line.names.is_empty() || line.names.iter().any(|n| n.eq_ignore_ascii_case(&qos.name))
    };
    Ok(books.view.qos.iter().filter(named).collect())
}

pub fn modify(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    let mut set = line.set.clone();
    let resets_usage = value::take_raw_usage(&mut set)?;
    if set.is_empty() && !resets_usage {
        return Err(CommandError::message(" You didn't give me anything to set"));
    }
    let mut said = " Modified qos...\n".to_owned();
    let mut calls = Vec::new();
    for qos in chosen(books, line)? {
        let mut qos = qos.clone();
        apply(&mut qos, &set, &books.view)?;
        said.push_str(&format!("  {}\n", qos.name));
        if resets_usage {
            calls.push(Call::ForgetUsage(UsageOwner::Qos(qos.name.clone())));
        }
        calls.push(Call::SetQos(qos));
    }
    if calls.is_empty() {
        return books.nothing(" Nothing modified\n");
    }
    books.commit(&said, calls)
}

pub fn delete(books: &mut Books, line: &CommandLine) -> Result<ExitCode, CommandError> {
    if line.names.is_empty() {
        return Err(CommandError::message(" Need name of qos to delete: sacctmgr delete qos NAME"));
    }
    let names: Vec<String> = chosen(books, line)?.iter().map(|qos| qos.name.clone()).collect();
    if names.is_empty() {
        return books.nothing(" Nothing deleted\n");
    }
    let default = |a: &&Association| a.default_qos.as_ref().is_some_and(|q| names.contains(q));
    if let Some(user) = books.view.associations.iter().find(default) {
        let qos = user.default_qos.as_deref().unwrap_or_default();
        return Err(CommandError::message(format!(
            " Associations listed below have these as their Default QOS.\n  \
             DefQOS = {qos:<10} C = {:<10} A = {:<20} U = {:<9}\n \
             Please either remove the qos' listed above from list and resubmit,\n \
             or change the default qos to remove the qos.\n Changes Discarded",
            books.view.cluster,
            user.account,
            user.user.as_deref().unwrap_or_default()
        )));
    }
    let mut said = " Deleting QOS(s)...\n".to_owned();
    names.iter().for_each(|name| said.push_str(&format!("  {name}\n")));
    books.commit(&said, names.into_iter().map(|name| Call::RemoveQos { name }).collect())
}

#[cfg(test)]
mod tests {
    use super::super::value::term;
    use super::*;
    use model::account::QosFlag;
    use model::time::TimeLimit;

    #[test]
    fn every_key_sets_its_field() {
        let mut qos = Qos::named("high");
        let words = [
            "Priority=1000",
            "MaxTRESPU=gres/gpu=4",
            "MaxTRESPerJob=cpu=8",
            "MaxTRESPA=node=2",
            "GrpTRES=cpu=64",
            "MaxJobsPU=3",
            "MaxSubmitJobsPerUser=9",
            "MaxWall=1:00:00",
            "Preempt=low",
            "PreemptMode=requeue",
            "GraceTime=5",
            "Flags=DenyOnLimit",
            "Description=first",
        ];
        let mut view = key::view();
        view.qos.push(Qos::named("low"));
        let lines = apply(&mut qos, &words.map(term), &view).expect("right");
        let expected = Qos {
            name: "high".into(),
            description: "first".into(),
            priority: 1000,
            max_tres_per_user: "gres/gpu=4".parse_tres(),
            max_tres_per_job: "cpu=8".parse_tres(),
            max_tres_per_account: "node=2".parse_tres(),
            group_tres: "cpu=64".parse_tres(),
            max_jobs_per_user: Some(3),
            max_submit_per_user: Some(9),
            max_wall: Some(TimeLimit::Minutes(60)),
            preempt: vec!["low".into()],
            preempt_mode: Some("requeue".into()),
            flags: vec![QosFlag::DenyOnLimit],
            grace_time_s: 5,
            ..Qos::named("high")
        };
        assert_eq!(qos, expected);
        assert!(lines.ends_with("  Priority                 = 1000\n"), "{lines}");
    }

    /// Captured from a real Slurm: `sacctmgr add qos badq KEY=VALUE`.
    #[test]
    fn bad_keys_and_values_are_refused_in_slurms_words() {
        let mut qos = Qos::named("q");
        let table = [
            ("Bogus=1", " Unknown option: Bogus=1\n Use keyword 'where' to modify condition"),
            ("Priority=x", "sacctmgr: error: Invalid value for Priority (x)"),
            ("UsageFactor=x", "sacctmgr: error: Invalid value for UsageFactor (x)"),
            ("MaxWall=x", " Bad MaxWall time format: MaxWall=x"),
            ("PreemptMode=maybe", " Bad Preempt Mode given: PreemptMode=maybe"),
            (
                "GrpTRES=bogus=1",
                "sacctmgr: error: slurmdb_format_tres_str: no TRES known by type bogus",
            ),
            (
                "Preempt=nosuch",
                "sacctmgr: error: You gave a bad qos 'nosuch'. Valid QOS's are normal,capped,high",
            ),
            ("Flags=Bogus", ""),
        ];
        for (word, said) in table {
            let text = apply(&mut qos, &[term(word)], &key::view()).expect_err(word).to_string();
            let (slurms, known) =
                text.split_once("\nsacctmgr: note: ").unwrap_or((text.as_str(), ""));
            assert_eq!(slurms, said);
            let lists = known.starts_with("what can be set: ") && known.contains("MaxWall");
            assert_eq!(lists, word == "Bogus=1", "{known}");
        }
        assert_eq!(qos, Qos::named("q"), "nothing was changed");
    }

    trait ParseTres {
        fn parse_tres(&self) -> model::tres::Tres;
    }
    impl ParseTres for str {
        fn parse_tres(&self) -> model::tres::Tres {
            model::tres::Tres::parse(self).expect("a list")
        }
    }
}
