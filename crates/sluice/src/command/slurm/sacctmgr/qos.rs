//! `sacctmgr add|modify|delete qos`.

use super::Books;
use super::line::{Line, Operator, Term, unknown_option};
use super::value::{self, Expected};
use crate::command::slurm::ask::ShowError;
use model::account::Qos;
use std::fmt::Write;
use std::process::ExitCode;
use wire::client::Call;

/// Puts a value into a QOS, or says what would be right.
type Setter = fn(&mut Qos, &Term) -> Result<(), Expected>;

/// The keys with their synonyms; the first is how a setting is shown. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const KEYS: &[(&[&str], Setter)] = &[
    (&["Description"], |q, t| { q.description = t.value.clone(); Ok(()) }),
    (&["Flags"], |q, t| { value::list(&mut q.flags, t); Ok(()) }),
    (&["GraceTime"], |q, t| { q.grace_time_s = value::count(t)?.unwrap_or(0); Ok(()) }),
    (&["GrpTRES"], |q, t| value::tres(&mut q.group_tres, t)),
    (&["MaxJobsPerUser", "MaxJobsPU", "MaxJobs"], |q, t| { q.max_jobs_per_user = value::count(t)?; Ok(()) }),
    (&["MaxSubmitJobsPerUser", "MaxSubmitJobsPU", "MaxSubmitPU", "MaxSubmitJobs"], |q, t| { q.max_submit_per_user = value::count(t)?; Ok(()) }),
    (&["MaxTRESPerAccount", "MaxTRESPA"], |q, t| value::tres(&mut q.max_tres_per_account, t)),
    (&["MaxTRESPerJob", "MaxTRESPJ", "MaxTRES"], |q, t| value::tres(&mut q.max_tres_per_job, t)),
    (&["MaxTRESPerUser", "MaxTRESPU"], |q, t| value::tres(&mut q.max_tres_per_user, t)),
    (&["MaxWallDurationPerJob", "MaxWallPJ", "MaxWall"], |q, t| { q.max_wall = value::wall(t)?; Ok(()) }),
    (&["Preempt"], |q, t| { value::list(&mut q.preempt, t); Ok(()) }),
    (&["PreemptMode"], |q, t| { q.preempt_mode = preempt_mode(&t.value)?; Ok(()) }),
    (&["Priority"], |q, t| { q.priority = value::count(t)?.unwrap_or(0); Ok(()) }),
];

/// What a job of this QOS may be done to; `cluster` leaves it to the configuration.
fn preempt_mode(text: &str) -> Result<Option<String>, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "cluster" | "" => Ok(None),
        mode @ ("cancel" | "requeue" | "suspend" | "gang" | "off") => Ok(Some(mode.to_owned())),
        _ => Err("expected cluster, cancel, requeue, suspend, gang or off".to_owned()),
    }
}

/// Puts the terms in, and gives the lines that show them.
fn apply(qos: &mut Qos, terms: &[Term]) -> Result<String, ShowError> {
    let mut lines = String::new();
    for term in terms {
        let row = KEYS.iter().find(|(names, _)| term.is(names));
        let (names, set) = row.ok_or_else(|| unknown_option(&term.typed))?;
        set(qos, term).map_err(|expected| {
            ShowError::said(format!(" Bad value: {}: {expected}", term.typed))
        })?;
        if names[0] != "Description" {
            let sign = match term.operator {
                Operator::Set => "=",
                Operator::Add => "+=",
                Operator::Remove => "-=",
            };
            writeln!(lines, "  {:<24} {sign} {}", names[0], term.value).expect("a string grows");
        }
    }
    Ok(lines)
}

pub fn add(books: &mut Books, line: &Line) -> Result<ExitCode, ShowError> {
    if line.names.is_empty() {
        return Err(ShowError::said(" Need name of qos to add: sacctmgr add qos NAME"));
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
        let lines = apply(&mut qos, &terms)?;
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

/// Those that the line names; none named means all.
fn chosen<'a>(books: &'a Books, line: &Line) -> Result<Vec<&'a Qos>, ShowError> {
    if let Some(term) = line.terms.first() {
        return Err(unknown_option(&term.typed));
    }
    let named = |qos: &&Qos| {
        line.names.is_empty() || line.names.iter().any(|n| n.eq_ignore_ascii_case(&qos.name))
    };
    Ok(books.view.qos.iter().filter(named).collect())
}

pub fn modify(books: &mut Books, line: &Line) -> Result<ExitCode, ShowError> {
    if line.set.is_empty() {
        return Err(ShowError::said(
            " You didn't give me anything to set: modify qos NAME set KEY=VALUE",
        ));
    }
    let mut said = " Modified qos...\n".to_owned();
    let mut calls = Vec::new();
    for qos in chosen(books, line)? {
        let mut qos = qos.clone();
        apply(&mut qos, &line.set)?;
        said.push_str(&format!("  {}\n", qos.name));
        calls.push(Call::SetQos(qos));
    }
    if calls.is_empty() {
        return books.nothing(" Nothing modified\n");
    }
    books.commit(&said, calls)
}

pub fn delete(books: &mut Books, line: &Line) -> Result<ExitCode, ShowError> {
    if line.names.is_empty() {
        return Err(ShowError::said(" Need name of qos to delete: sacctmgr delete qos NAME"));
    }
    let names: Vec<String> = chosen(books, line)?.iter().map(|qos| qos.name.clone()).collect();
    if names.is_empty() {
        return books.nothing(" Nothing deleted\n");
    }
    let mut said = " Deleting QOS(s)...\n".to_owned();
    names.iter().for_each(|name| said.push_str(&format!("  {name}\n")));
    books.commit(&said, names.into_iter().map(|name| Call::RemoveQos { name }).collect())
}

#[cfg(test)]
mod tests {
    use super::super::value::term;
    use super::*;
    use model::time::TimeLimit;

    #[test]
    fn every_key_lands_in_its_field() {
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
        let lines = apply(&mut qos, &words.map(term)).expect("right");
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
            flags: vec!["DenyOnLimit".into()],
            grace_time_s: 5,
        };
        assert_eq!(qos, expected);
        assert!(lines.starts_with("  Priority                 = 1000\n"), "{lines}");
    }

    #[test]
    fn bad_keys_and_values_are_named() {
        let mut qos = Qos::named("q");
        let table = [
            ("Bogus=1", " Unknown option: Bogus=1"),
            ("Priority=x", " Bad value: Priority=x: expected a whole number, or -1 for none"),
            ("MaxWall=soon", " Bad value: MaxWall=soon: "),
            ("PreemptMode=maybe", " Bad value: PreemptMode=maybe: expected cluster"),
        ];
        for (word, said) in table {
            let text = apply(&mut qos, &[term(word)]).expect_err(word).to_string();
            assert!(text.starts_with(said), "{text}");
        }
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
