//! Dependencies between jobs: `--dependency=afterok:12:13,singleton`.

use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The most terms of one dependency.
const TERMS_MAX: usize = 16_384;

const WHAT: &str = "dependency";

/// All of its terms, or any one of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dependency {
    pub terms: Vec<DependencyTerm>,
    pub join: Join,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Join {
    /// Written with `,`.
    #[default]
    All,
    /// Written with `?`.
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DependencyTerm {
    pub kind: DependencyKind,
    /// Present for every kind but `Singleton`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<DependencyJob>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DependencyKind {
    /// Met this many minutes after the start (or the cancelling) of the job.
    After {
        minutes: u32,
    },
    AfterAny,
    AfterOk,
    AfterNotOk,
    /// Each task after the task of the same index.
    AfterCorr,
    AfterBurstBuffer,
    /// After every earlier job of the same name and user.
    Singleton,
}

const KINDS: [(&str, DependencyKind); 7] = [
    ("after", DependencyKind::After { minutes: 0 }),
    ("afterany", DependencyKind::AfterAny),
    ("afterok", DependencyKind::AfterOk),
    ("afternotok", DependencyKind::AfterNotOk),
    ("aftercorr", DependencyKind::AfterCorr),
    ("afterburstbuffer", DependencyKind::AfterBurstBuffer),
    ("singleton", DependencyKind::Singleton),
];

/// The job that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DependencyJob {
    pub id: u32,
    pub task: DependencyTask,
}

/// Which part of an array is meant.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum DependencyTask {
    /// `12`.
    #[default]
    Whole,
    /// `12_*`.
    All,
    /// `12_3`.
    Task(u32),
}

/// The state of a term. The caller, who knows the jobs, determines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DependencyState {
    Unfulfilled,
    Fulfilled,
    /// The term can never be fulfilled.
    Failed,
}

impl Dependency {
    /// How many looks at other jobs it takes to know whether the dependency is met, for an array with so many tasks.
    pub fn lookups(&self, tasks: u64) -> u64 {
        let of_term = |term: &DependencyTerm| match term.kind {
            DependencyKind::AfterCorr => tasks.max(1),
            _ => 1,
        };
        self.terms.iter().map(of_term).fold(0, u64::saturating_add)
    }

    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let refused = |expected: &str| GrammarError::new(WHAT, text, expected);
        let join = match (text.contains(','), text.contains('?')) {
            (true, true) => return Err(refused("either , for all or ? for any, not both")),
            (_, true) => Join::Any,
            _ => Join::All,
        };
        let mut terms = Vec::new();
        for part in text.split([',', '?']) {
            let parsed = parse_part(part.trim()).ok_or_else(|| {
                refused("after, afterany, afterok, afternotok, aftercorr or afterburstbuffer with :JOB_ID, or singleton")
            })?;
            terms.extend(parsed);
            if terms.len() > TERMS_MAX {
                return Err(refused(&format!("at most {TERMS_MAX} jobs to wait for")));
            }
        }
        Ok(Self { terms, join })
    }

    /// The state of the whole dependency, from the states of its terms.
    pub fn state(
        &self,
        mut state_of: impl FnMut(&DependencyTerm) -> DependencyState,
    ) -> DependencyState {
        // One term in the decisive state decides; otherwise all terms must be in the other state.
        let (decisive, other) = match self.join {
            Join::All => (DependencyState::Failed, DependencyState::Fulfilled),
            Join::Any => (DependencyState::Fulfilled, DependencyState::Failed),
        };
        let mut all_other = true;
        for term in &self.terms {
            let state = state_of(term);
            if state == decisive {
                return decisive;
            }
            all_other &= state == other;
        }
        if all_other { other } else { DependencyState::Unfulfilled }
    }

    /// squeue's `%E`: the terms that are not fulfilled, as `afterok:93(failed),after:94+1(unfulfilled)`, and `...` after `most` of
    /// them. Empty if none is left. `look` says how a term is, and how it is written.
    pub fn display_with(
        &self,
        most: usize,
        mut look: impl FnMut(&DependencyTerm) -> (DependencyState, DependencyTerm),
    ) -> String {
        let mut open: Vec<String> = Vec::new();
        for term in &self.terms {
            let (state, written) = look(term);
            let word = match state {
                DependencyState::Fulfilled => continue,
                DependencyState::Failed => "failed",
                DependencyState::Unfulfilled => "unfulfilled",
            };
            if open.len() == most {
                open.push("...".to_owned());
                break;
            }
            open.push(format!("{written}({word})"));
        }
        open.join(self.join.mark())
    }
}

impl Join {
    fn mark(self) -> &'static str {
        match self {
            Join::All => ",",
            Join::Any => "?",
        }
    }
}

/// `afterok:12:13` is two terms.
fn parse_part(part: &str) -> Option<Vec<DependencyTerm>> {
    let (word, jobs) = part.split_once(':').map_or((part, None), |(word, jobs)| (word, Some(jobs)));
    let (_, kind) = KINDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word))?;
    match (kind, jobs) {
        (DependencyKind::Singleton, None) => Some(vec![DependencyTerm { kind: *kind, job: None }]),
        (DependencyKind::Singleton, Some(_)) | (_, None) => None,
        (_, Some(jobs)) => jobs.split(':').map(|job| parse_term(*kind, job)).collect(),
    }
}

fn parse_term(kind: DependencyKind, text: &str) -> Option<DependencyTerm> {
    let (job, kind) = match (kind, text.split_once('+')) {
        (DependencyKind::After { .. }, Some((job, minutes))) => {
            let minutes = plain_u32(minutes)?;
            (job, DependencyKind::After { minutes })
        }
        (kind, None) => (text, kind),
        _ => return None,
    };
    let (id, task) = match job.split_once('_') {
        None => (job, DependencyTask::Whole),
        Some((id, "*")) => (id, DependencyTask::All),
        Some((id, task)) => (id, DependencyTask::Task(plain_u32(task)?)),
    };
    let id = plain_u32(id).filter(|id| *id > 0)?;
    Some(DependencyTerm { kind, job: Some(DependencyJob { id, task }) })
}

fn plain_u32(digits: &str) -> Option<u32> {
    crate::time::whole_number(digits).and_then(|n| u32::try_from(n).ok())
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            let mark = if at == 0 { "" } else { self.join.mark() };
            write!(f, "{mark}{term}")?;
        }
        Ok(())
    }
}

impl fmt::Display for DependencyTerm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let same = std::mem::discriminant(&self.kind);
        let row = KINDS.iter().find(|(_, kind)| std::mem::discriminant(kind) == same);
        f.write_str(row.map_or("", |(name, _)| name))?;
        if let Some(job) = &self.job {
            write!(f, ":{job}")?;
        }
        match self.kind {
            DependencyKind::After { minutes } if minutes > 0 => write!(f, "+{minutes}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for DependencyJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.task {
            DependencyTask::Whole => write!(f, "{}", self.id),
            DependencyTask::All => write!(f, "{}_*", self.id),
            DependencyTask::Task(task) => write!(f, "{}_{task}", self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DependencyState::{Failed, Fulfilled, Unfulfilled};

    fn parsed(text: &str) -> Dependency {
        Dependency::parse(text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn expressions_are_read_and_shown_term_by_term() {
        let table = [
            ("afterok:46", "afterok:46"),
            ("afterany:93:94", "afterany:93,afterany:94"),
            ("afterok:93,afternotok:94", "afterok:93,afternotok:94"),
            ("afterok:93?afterok:94", "afterok:93?afterok:94"),
            ("afterok:93:94?singleton", "afterok:93?afterok:94?singleton"),
            ("after:94+1", "after:94+1"),
            ("after:94", "after:94"),
            ("after:1+5:2", "after:1+5,after:2"),
            ("singleton", "singleton"),
            ("AfterOK:7", "afterok:7"),
            ("aftercorr:14_3", "aftercorr:14_3"),
            ("afterok:14_*", "afterok:14_*"),
            ("afterburstbuffer:9", "afterburstbuffer:9"),
        ];
        for (text, shown) in table {
            assert_eq!(parsed(text).to_string(), shown, "{text}");
            assert_eq!(parsed(shown), parsed(text));
        }
    }

    #[test]
    fn broken_expressions_are_refused() {
        let table = [
            "",
            "bogus:1",
            "afterok:abc",
            "afterok",
            "afterok:",
            "afterok:0",
            "afterok:1:",
            "singleton:1",
            "afterok:1+5",
            "after:1+",
            "afterok:1,afterok:2?afterok:3",
            "afterok:1,",
            "afterok:1_x",
            "afterok:-1",
            "afterok:99999999999",
            "1",
        ];
        for text in table {
            assert!(Dependency::parse(text).is_err(), "{text}");
        }
        let endless = format!("afterok{}", ":1".repeat(TERMS_MAX + 1));
        assert!(Dependency::parse(&endless).is_err());
    }

    #[test]
    fn only_what_is_still_open_is_shown() {
        let states = |term: &DependencyTerm| match term.job.map(|job| job.id) {
            Some(93) => Failed,
            Some(94) => Fulfilled,
            _ => Unfulfilled,
        };
        let table = [
            ("afterok:93,afterok:94", "afterok:93(failed)"),
            ("after:95+1", "after:95+1(unfulfilled)"),
            ("afterok:94", ""),
            ("afterok:93?singleton", "afterok:93(failed)?singleton(unfulfilled)"),
        ];
        for (text, shown) in table {
            let look = |term: &DependencyTerm| (states(term), *term);
            assert_eq!(parsed(text).display_with(9, look), shown, "{text}");
        }
        let look = |term: &DependencyTerm| (states(term), *term);
        let cut = parsed("afterok:94:95:96:97").display_with(2, look);
        assert_eq!(cut, "afterok:95(unfulfilled),afterok:96(unfulfilled),...");
    }

    #[test]
    fn all_and_any_decide_differently() {
        let table = [
            ("afterok:1,afterok:2", [Fulfilled, Fulfilled], Fulfilled),
            ("afterok:1,afterok:2", [Fulfilled, Unfulfilled], Unfulfilled),
            ("afterok:1,afterok:2", [Unfulfilled, Failed], Failed),
            ("afterok:1?afterok:2", [Failed, Fulfilled], Fulfilled),
            ("afterok:1?afterok:2", [Failed, Unfulfilled], Unfulfilled),
            ("afterok:1?afterok:2", [Failed, Failed], Failed),
        ];
        for (text, states, outcome) in table {
            let mut states = states.into_iter();
            assert_eq!(
                parsed(text).state(|_| states.next().expect("two terms")),
                outcome,
                "{text}"
            );
        }
    }
}
