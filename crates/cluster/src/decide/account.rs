//! Commands of administrators: accounts, associations, QOS, roles, partitions.

use super::partition_change;
use crate::authorise::{Act, authorise};
use crate::command::{Command, Context, Decision};
use crate::event::Event;
use crate::state::State;
use crate::state::job::Job;
use model::account::{Account, Association, AssociationKey, ROOT_ACCOUNT};
use model::principal::Principal;
use model::project::ProjectRole;
use model::raw_usage::UsageOwner;
use model::reason::Refusal;

/// The most jobs that a refusal names.
const JOBS_NAMED_MAX: usize = 20;

impl State {
    /// Books are kept by operators, and by the coordinators of an account; all else is for administrators.
    pub(super) fn authorise_administration(
        &self,
        command: &Command,
        by: &Principal,
    ) -> Result<(), Refusal> {
        let act = match command {
            Command::SetAccount(account) => return self.authorise_account(account, by),
            Command::RemoveAccount { name } => Act::KeepBooks(self.parent_of(name)),
            Command::SetAssociation(set) => {
                Act::KeepBooks(self.responsible_account(&set.account, &set.user))
            }
            Command::RemoveAssociation(key) => {
                Act::KeepBooks(self.responsible_account(&key.account, &key.user))
            }
            Command::ForgetUsage(UsageOwner::Account(name)) => Act::KeepBooks(self.parent_of(name)),
            Command::ForgetUsage(UsageOwner::User { account, .. }) => Act::KeepBooks(account),
            Command::SetQos(_) | Command::RemoveQos { .. } | Command::ForgetUsage(_) => {
                Act::Operate
            }
            _ => Act::Administer,
        };
        authorise(self, by, act)
    }

    /// An account is its parent's to change, and to move both parents'; who coordinates it, its own.
    fn authorise_account(&self, set: &Account, by: &Principal) -> Result<(), Refusal> {
        let Some(known) = self.accounts.get(&set.name) else {
            return authorise(self, by, Act::KeepBooks(set.parent.as_deref().unwrap_or_default()));
        };
        let admins = self.projects.get(&set.name).map(|project| &project.admins);
        let is_unseated =
            |name: &&String| known.coordinators.contains(name) && !set.coordinators.contains(name);
        if admins.is_some_and(|admins| admins.iter().any(|name| is_unseated(&name))) {
            // As by the project's members: its managers do not unseat its admins.
            authorise(self, by, Act::InProject(&set.name, ProjectRole::Admin))?;
        }
        if *set == (Account { coordinators: set.coordinators.clone(), ..known.clone() }) {
            return authorise(self, by, Act::KeepBooks(&set.name));
        }
        let parents = [known, set].map(|account| account.parent.as_deref().unwrap_or_default());
        parents.iter().try_for_each(|parent| authorise(self, by, Act::KeepBooks(parent)))
    }

    /// The account whose coordinators may change an association: for an account's own, the parent.
    fn responsible_account<'a>(&'a self, account: &'a str, user: &Option<String>) -> &'a str {
        if user.is_some() { account } else { self.parent_of(account) }
    }

    /// The parent of an account; empty for `root` and for unknown accounts, which nobody coordinates.
    pub(super) fn parent_of(&self, account: &str) -> &str {
        self.accounts.get(account).and_then(|known| known.parent.as_deref()).unwrap_or_default()
    }

    pub(super) fn decide_administration(
        &self,
        command: &Command,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let event = match command {
            Command::ChangeNode { nodes, change } => {
                return self.decide_change_nodes(nodes, change, context);
            }
            Command::ChangePartition { name, change } => {
                let partition =
                    self.partition(name).ok_or_else(|| Refusal::UnknownPartition(name.clone()))?;
                partition_change::check(partition, change)?;
                Event::PartitionSet { partition: name.clone(), change: change.clone() }
            }
            Command::CreatePartition(partition) => self.partition_created(partition)?,
            Command::RemovePartition { name } => self.partition_removed(name)?,
            Command::SetAccount(account) => self.account_set(account)?,
            Command::RemoveAccount { name } => self.account_removed(name)?,
            Command::SetAssociation(association) => {
                self.check_coordinator_grant(association, &context.by)?;
                return Ok(self.association_set(association)?.into());
            }
            Command::RemoveAssociation(key) => self.association_removed(key)?,
            Command::SetQos(qos) => Event::QosSet(qos.clone()),
            Command::RemoveQos { name } => {
                if name == model::account::NORMAL_QOS {
                    return Err(Refusal::Other(format!("QOS {name} cannot be removed")));
                }
                self.qos.get(name).ok_or_else(|| unknown("qos", name))?;
                self.check_idle(|job| &*job.qos == name.as_str())?;
                Event::QosRemoved { name: name.clone() }
            }
            Command::ForgetUsage(of) => self.usage_forgotten(of)?,
            Command::SetRole { name, role } => Event::RoleSet { name: name.clone(), role: *role },
            other => unreachable!("{other:?} is decided elsewhere"),
        };
        Ok(vec![event].into())
    }

    fn account_set(&self, account: &Account) -> Result<Event, Refusal> {
        if let Some(parent) = &account.parent
            && parent != ROOT_ACCOUNT
            && !self.accounts.contains_key(parent)
        {
            return Err(unknown("account", parent));
        }
        let parent = account.parent.as_deref().unwrap_or_default();
        if self.makes_circle(&account.name, parent) {
            return Err(Refusal::Other(format!(
                "account {} cannot be below {parent}, which is below it",
                account.name
            )));
        }
        Ok(Event::AccountSet(account.clone()))
    }

    pub(super) fn account_removed(&self, name: &str) -> Result<Event, Refusal> {
        if name == ROOT_ACCOUNT {
            return Err(Refusal::Other("the root account cannot be removed".into()));
        }
        self.accounts.get(name).ok_or_else(|| unknown("account", name))?;
        if let Some(child) = self.child_of(name) {
            let text = format!("account {child} is below it: remove that one first");
            return Err(Refusal::Other(text));
        }
        // Its hosts would be nobody's, with an agent on them.
        if let Some(fleet) = self.fleets.values().find(|fleet| fleet.project == name) {
            let text = format!("fleet {} belongs to it: delete that one first", fleet.name);
            return Err(Refusal::Other(text));
        }
        if let Some(backend) = self.backends.values().find(|backend| backend.project == name) {
            let text = format!("backend {} belongs to it: delete that one first", backend.name());
            return Err(Refusal::Other(text));
        }
        if let Some(volume) = self.volumes_of(name).keys().next() {
            return Err(Refusal::Other(format!(
                "volume {volume} belongs to it: delete that one first"
            )));
        }
        self.check_idle(|job| &*job.account == name)?;
        Ok(Event::AccountRemoved { name: name.to_owned() })
    }

    /// A user has one default account: a new one replaces the old.
    fn association_set(&self, set: &Association) -> Result<Vec<Event>, Refusal> {
        if !self.accounts.contains_key(&set.account) {
            return Err(unknown("account", &set.account));
        }
        if let Some(missing) = set.qos.iter().find(|q| !self.qos.contains_key(*q)) {
            return Err(Refusal::InvalidQos(missing.clone()));
        }
        let former = |a: &&Association| {
            set.default
                && set.user.is_some()
                && a.default
                && a.user == set.user
                && a.account != set.account
        };
        let undone =
            self.associations.iter().filter(former).map(|a| {
                Event::AssociationSet(Box::new(Association { default: false, ..a.clone() }))
            });
        Ok(undone.chain([Event::AssociationSet(Box::new(set.clone()))]).collect())
    }

    pub(super) fn association_removed(&self, key: &AssociationKey) -> Result<Event, Refusal> {
        let found = self.associations.iter().find(|a| a.key() == *key);
        let name = key.user.as_ref().unwrap_or(&key.account);
        found.ok_or_else(|| unknown("association", name))?;
        self.check_idle(|job| {
            &*job.account == key.account.as_str()
                && key.user.as_ref().is_none_or(|user| job.spec.owner.name == *user)
        })?;
        let AssociationKey { account, user, partition } = key.clone();
        Ok(Event::AssociationRemoved { account, user, partition })
    }

    fn usage_forgotten(&self, of: &UsageOwner) -> Result<Event, Refusal> {
        let (what, name, known) = match of {
            UsageOwner::Account(name) | UsageOwner::User { account: name, .. } => {
                ("account", name, self.accounts.contains_key(name))
            }
            UsageOwner::Qos(name) => ("qos", name, self.qos.contains_key(name)),
        };
        if !known {
            return Err(unknown(what, name));
        }
        Ok(Event::UsageForgotten(of.clone()))
    }

    /// Refuses to remove an account or QOS that waiting or running jobs use.
    pub(super) fn check_idle(&self, of: impl Fn(&Job) -> bool) -> Result<(), Refusal> {
        let alive = self.jobs.values().filter(|job| !job.has_ended() && of(job));
        let name = |job: &Job| (job.id, job.account.to_string(), job.spec.owner.name.clone());
        let jobs: Vec<_> = alive.take(JOBS_NAMED_MAX).map(|job| name(job)).collect();
        if jobs.is_empty() { Ok(()) } else { Err(Refusal::JobsActive(jobs)) }
    }

    fn child_of(&self, account: &str) -> Option<&str> {
        let mut accounts = self.accounts.values();
        let below = accounts.find(|a| a.parent.as_deref() == Some(account));
        below.map(|child| child.name.as_str())
    }

    /// Whether placing `account` below `parent` would make a circle.
    fn makes_circle(&self, account: &str, parent: &str) -> bool {
        let mut at = Some(parent);
        // Each step goes one account up; there are no more than there are accounts.
        for _ in 0..=self.accounts.len() {
            match at {
                Some(name) if name == account => return true,
                Some(name) => at = self.accounts.get(name).and_then(|a| a.parent.as_deref()),
                None => return false,
            }
        }
        true
    }
}

fn unknown(what: &str, name: &str) -> Refusal {
    Refusal::UnknownThing { what: what.into(), name: name.into() }
}
