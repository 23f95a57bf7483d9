//! Requests for reservations: the fields of `scontrol create` and `update reservation`, and why one is refused.

use crate::partition::Access;
use crate::reservation::ReservationFlag;
use crate::time::{TimeLimit, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A field that is `None` was not given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReservationRequest {
    /// `None` for a new reservation: a name is made up.
    pub name: Option<String>,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    pub duration: Option<DurationEdit>,
    pub nodes: Option<NodesChoice>,
    pub node_count: Option<u32>,
    /// In all; with several numbers, for each node that was named.
    pub cores: Option<Vec<u32>>,
    /// Units of each GRES, over all nodes.
    pub gres: Option<Vec<(String, u64)>>,
    pub partition: Option<String>,
    pub users: Option<NamesEdit>,
    pub groups: Option<NamesEdit>,
    /// The numbers of the groups, as the server's machine knows them.
    pub group_ids: Vec<(String, u32)>,
    pub accounts: Option<NamesEdit>,
    pub licenses: Option<Vec<(String, u32)>>,
    /// Empty takes the features away.
    pub features: Option<String>,
    pub flags: Option<FlagsEdit>,
    pub purge_after_s: Option<u32>,
    /// Zero takes the delay away.
    pub max_start_delay_s: Option<u32>,
    /// The next window of a recurring reservation is left out.
    pub skip: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DurationEdit {
    Set(TimeLimit),
    AddMin(u32),
    SubtractMin(u32),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodesChoice {
    All,
    /// An empty list lets the scheduler choose others.
    Named(Vec<String>),
}

/// `=`, `+=` or `-=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EditMode {
    #[default]
    Set,
    Add,
    Remove,
}

/// A list of names; one that begins with `-` is kept out.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NamesEdit {
    pub edit: EditMode,
    pub names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FlagsEdit {
    pub edit: EditMode,
    pub flags: BTreeSet<ReservationFlag>,
}

/// A list that both admits and denies names cannot be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MixedAccess;

impl NamesEdit {
    /// The names without their sign.
    pub fn plain(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| name.strip_prefix('-').unwrap_or(name))
    }

    /// The access list after this edit; `None` when it names nobody any more.
    pub fn edited(&self, before: Option<&Access>) -> Result<Option<Access>, MixedAccess> {
        let denied = self.names.iter().filter(|name| name.starts_with('-')).count();
        if denied > 0 && denied < self.names.len() {
            return Err(MixedAccess);
        }
        let names: Vec<String> = self.plain().map(str::to_owned).collect();
        let denies = denied > 0;
        let joined = |known: &[String]| {
            let more = names.iter().filter(|name| !known.contains(name));
            known.iter().chain(more).cloned().collect::<Vec<_>>()
        };
        let without = |known: &[String]| {
            known.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>()
        };
        let after = match (self.edit, before) {
            // Denying names of an allow list takes them off it.
            (EditMode::Set, Some(Access::Only(known))) if denies => Access::Only(without(known)),
            (EditMode::Set, _) | (EditMode::Add, None | Some(Access::All)) if denies => {
                Access::Except(names)
            }
            (EditMode::Set, _) | (EditMode::Add, None | Some(Access::All)) => Access::Only(names),
            (EditMode::Remove, None | Some(Access::All)) => Access::Except(names),
            (EditMode::Add, Some(Access::Only(known))) if !denies => Access::Only(joined(known)),
            (EditMode::Remove, Some(Access::Only(known))) => Access::Only(without(known)),
            (EditMode::Add, Some(Access::Except(known))) if denies => Access::Except(joined(known)),
            (EditMode::Remove, Some(Access::Except(known))) => Access::Except(joined(known)),
            // Adding a denied name takes it off the deny list.
            (EditMode::Add, Some(Access::Except(known))) => Access::Except(without(known)),
            (EditMode::Add, Some(Access::Only(_))) => return Err(MixedAccess),
        };
        Ok(match after {
            Access::Only(names) | Access::Except(names) if names.is_empty() => None,
            after => Some(after),
        })
    }
}

impl FlagsEdit {
    /// Slurm treats `=` as `+=` for flags.
    pub fn edited(&self, before: &BTreeSet<ReservationFlag>) -> BTreeSet<ReservationFlag> {
        match self.edit {
            EditMode::Set | EditMode::Add => before.union(&self.flags).copied().collect(),
            EditMode::Remove => before.difference(&self.flags).copied().collect(),
        }
    }
}

/// Why nothing was reserved, or a reservation not changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum ReservationRefusal {
    #[error("user {0} does not exist")]
    User(String),
    #[error("group {0} does not exist")]
    Group(String),
    #[error("users and groups exclude each other")]
    UsersAndGroups,
    #[error("nobody is named who may use it")]
    Nobody,
    #[error("its start lies in the past, or its end not after its start")]
    Time,
    #[error("it has begun already")]
    Started,
    #[error("it takes what reservation {0} has")]
    Overlap(String),
    #[error("jobs use it or ask for it")]
    InUse,
    #[error("reservation {0} exists already")]
    Duplicate(String),
    #[error("not all of its nodes can be had then")]
    Busy,
    #[error("the numbers of cores do not go with the nodes")]
    Cores,
    #[error("a reservation of cores cannot be given other nodes")]
    CoresChange,
    #[error("it does not come again, so that no window can be left out")]
    NotRecurring,
    #[error("these flags do not go together")]
    Flags,
    #[error("it names nothing that is to be kept")]
    Nothing,
    #[error("user or account may not use reservation {0}")]
    Access(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(edit: EditMode, names: &[&str]) -> NamesEdit {
        NamesEdit { edit, names: names.iter().map(|name| name.to_string()).collect() }
    }

    #[test]
    fn names_are_set_added_removed_and_kept_out() {
        let only =
            |names: &[&str]| Some(Access::Only(names.iter().map(|n| n.to_string()).collect()));
        let but =
            |names: &[&str]| Some(Access::Except(names.iter().map(|n| n.to_string()).collect()));
        let table = [
            (ask(EditMode::Set, &["a", "b"]), None, Ok(only(&["a", "b"]))),
            (ask(EditMode::Set, &["-a", "-b"]), None, Ok(but(&["a", "b"]))),
            (ask(EditMode::Set, &["-a", "-b"]), only(&["b", "c"]), Ok(only(&["c"]))),
            (ask(EditMode::Set, &["a", "-b"]), None, Err(MixedAccess)),
            (ask(EditMode::Remove, &["a"]), None, Ok(but(&["a"]))),
            (ask(EditMode::Add, &["c", "a"]), only(&["a", "b"]), Ok(only(&["a", "b", "c"]))),
            (ask(EditMode::Remove, &["a"]), only(&["a", "b"]), Ok(only(&["b"]))),
            (ask(EditMode::Remove, &["a"]), only(&["a"]), Ok(None)),
            (ask(EditMode::Remove, &["a"]), but(&["b"]), Ok(but(&["b", "a"]))),
            (ask(EditMode::Add, &["b"]), but(&["a", "b"]), Ok(but(&["a"]))),
            (ask(EditMode::Add, &["-b"]), only(&["a"]), Err(MixedAccess)),
            (ask(EditMode::Set, &[]), only(&["a"]), Ok(None)),
        ];
        for (ask, before, after) in table {
            assert_eq!(ask.edited(before.as_ref()), after, "{ask:?} {before:?}");
        }
    }

    #[test]
    fn flags_are_added_and_removed() {
        use ReservationFlag::{Daily, Maint, SpecNodes};
        let flags = |edit, flags: &[ReservationFlag]| FlagsEdit {
            edit,
            flags: flags.iter().copied().collect(),
        };
        let before = BTreeSet::from([SpecNodes, Daily]);
        for edit in [EditMode::Set, EditMode::Add] {
            assert_eq!(flags(edit, &[Maint]).edited(&before), [SpecNodes, Daily, Maint].into());
        }
        assert_eq!(flags(EditMode::Remove, &[Daily]).edited(&before), [SpecNodes].into());
    }
}
