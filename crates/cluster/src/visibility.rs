//! Visibility: the one place that says who is shown what where the site has set `PrivateData`. Operators and
//! administrators are shown everything, coordinators what belongs to their accounts.
//!
//! What makes an answer for a client asks here about every job, node, partition, reservation, account and association.

use crate::job_selection::{self, SelectedJob};
use crate::rights::Rights;
use crate::state::State;
use crate::state::job::Job;
use model::account::{Account, Association};
use model::activity::{Activity, ActivityKind, ActivityTarget};
use model::change::{JobFilter, JobRef};
use model::principal::Principal;
use model::private_data::PrivateKind;
use model::reason::{NeverFits, Refusal, UnmetConstraint};
use model::reservation::Reservation;

/// Somebody to whom the state is shown.
#[derive(Clone, Copy)]
pub struct Viewer<'a> {
    state: &'a State,
    who: &'a Principal,
    rights: Rights<'a>,
}

impl<'a> Viewer<'a> {
    pub fn new(state: &'a State, who: &'a Principal) -> Self {
        Self { state, who, rights: Rights::of(state, who) }
    }

    /// Whether information of this kind that is not theirs is hidden from them.
    pub fn is_denied(&self, kind: PrivateKind) -> bool {
        !self.rights.operator && self.state.config.parameters.private_data.hides(kind)
    }

    pub fn job(&self, job: &Job) -> bool {
        self.job_of(job.spec.owner.uid, &job.account)
    }

    /// Whether they are shown jobs, and records of jobs, of this owner in this account.
    pub fn job_of(&self, owner: u32, account: &str) -> bool {
        !self.is_denied(PrivateKind::Jobs) || self.rights.manages(owner, account)
    }

    /// Whether the jobs that they are shown are all their own.
    pub fn sees_own_jobs_only(&self) -> bool {
        self.is_denied(PrivateKind::Jobs) && !self.rights.coordinates_any()
    }

    /// The jobs that `wanted` names, as far as they are shown them.
    pub fn resolve(&self, wanted: &JobRef) -> Vec<SelectedJob<'a>> {
        let mut found = job_selection::resolve(self.state, wanted);
        found.retain(|chosen| self.job(chosen.job));
        found
    }

    /// The jobs that the filter selects, as far as they are shown them.
    pub fn matching(&self, filter: &JobFilter) -> Vec<SelectedJob<'a>> {
        let mut found = job_selection::matching(self.state, filter);
        found.retain(|chosen| self.job(chosen.job));
        found
    }

    pub fn nodes(&self) -> bool {
        !self.is_denied(PrivateKind::Nodes)
    }

    /// A refusal without what they are not shown: amounts of nodes, limits of partitions, and that a partition exists which
    /// they may not use.
    pub fn refusal(&self, why: Refusal) -> Refusal {
        let why = match why {
            Refusal::NodeConfiguration(unmet) if !self.nodes() => {
                Refusal::NodeConfiguration(UnmetConstraint { why: NeverFits::NotShown, ..unmet })
            }
            why => why,
        };
        if self.partitions() {
            return why;
        }
        match why {
            Refusal::NodeConfiguration(unmet) => {
                Refusal::NodeConfiguration(UnmetConstraint { partition: None, ..unmet })
            }
            Refusal::TimeLimit(Some(_)) => Refusal::TimeLimit(None),
            Refusal::NodeCount(Some(_)) => Refusal::NodeCount(None),
            Refusal::PartitionAccess(name) | Refusal::ReservationRequired(name) => {
                Refusal::UnknownPartition(name)
            }
            why => why,
        }
    }

    pub fn partitions(&self) -> bool {
        !self.is_denied(PrivateKind::Partitions)
    }

    /// A fleet is for the members of its project: to others its partition and its nodes are not there.
    pub fn fleet(&self, name: &str) -> bool {
        self.state.fleets.get(name).is_none_or(|fleet| self.in_project(&fleet.project))
    }

    fn in_project(&self, name: &str) -> bool {
        self.rights.project_role(name).is_some()
    }

    /// A reservation is private to those who may use it, with one of their accounts.
    pub fn reservation(&self, reservation: &Reservation) -> bool {
        let usable = || {
            let mut accounts = self.rights.own_accounts();
            accounts.push("");
            accounts.iter().any(|account| reservation.admits(self.who, account))
        };
        !self.is_denied(PrivateKind::Reservations) || usable()
    }

    /// Whether they are shown the volumes of this user, which name him and nodes.
    pub fn volume_of(&self, owner: &str) -> bool {
        owner == self.who.name || self.nodes() && self.user(owner)
    }

    fn node_events(&self) -> bool {
        self.nodes() && !self.is_denied(PrivateKind::Events)
    }

    /// Something that was done, beside the jobs: of a project its members are told, of a user that user.
    pub fn activity(&self, activity: &Activity) -> bool {
        match &activity.target {
            ActivityTarget::Node(_) => self.node_events(),
            ActivityTarget::Run { owner, account, .. } => self.job_of(*owner, account),
            ActivityTarget::Project(name) => {
                let is_shown = |user: &str| self.user(user) || self.rights.coordinates(name);
                let member = match &activity.what {
                    ActivityKind::MemberSet(user) | ActivityKind::MemberRemoved(user) => Some(user),
                    _ => None,
                };
                let belongs = self.rights.coordinates(name) || self.rights.belongs_to(name);
                self.rights.operator || belongs && member.is_none_or(|user| is_shown(user))
            }
            ActivityTarget::Fleet { project, .. } => self.in_project(project),
            ActivityTarget::Volume { project, owner, .. } => {
                self.in_project(project) && self.volume_of(owner)
            }
            // Others are not told which secrets there are either.
            ActivityTarget::Secret { project, .. } => self.rights.manages_secrets(project),
            ActivityTarget::User(name) => self.rights.operator || *name == self.who.name,
            ActivityTarget::Job { .. } | ActivityTarget::Site { .. } => self.audited(activity),
        }
    }

    /// Whether they are shown every entry of the audit trail.
    pub fn is_shown_whole_audit(&self) -> bool {
        self.rights.operator
    }

    /// An entry of the audit trail: operators are shown all, others what they did themselves and what became of nodes.
    pub fn audited(&self, activity: &Activity) -> bool {
        let own = activity.actor.as_ref().is_some_and(|actor| *actor == self.who.name);
        let of_node = matches!(activity.target, ActivityTarget::Node(_)) && self.node_events();
        self.is_shown_whole_audit() || own || of_node
    }

    /// The definition of an account.
    pub fn account(&self, name: &str) -> bool {
        !self.is_denied(PrivateKind::Accounts) || self.rights.coordinates(name)
    }

    /// Whether they are shown this coordinator of the account.
    pub fn coordinator(&self, account: &Account, name: &str) -> bool {
        self.user(name) || self.rights.coordinates(&account.name)
    }

    /// Whether the user of this name is listed for them. A coordinator sees the associations of his users, but
    /// as a user himself alone.
    pub fn user(&self, name: &str) -> bool {
        !self.is_denied(PrivateKind::Users) || name == self.who.name
    }

    pub fn association(&self, association: &Association) -> bool {
        self.shows_association(association, &[PrivateKind::Users])
    }

    /// What an association has used, and was promised.
    pub fn usage(&self, association: &Association) -> bool {
        self.shows_association(association, &[PrivateKind::Users, PrivateKind::Usage])
    }

    /// An association of a user is private to him, that of an account to those in it and below it, and both to
    /// coordinators. Where accounts are private, so is everything that is in an account of others.
    fn shows_association(&self, association: &Association, kinds: &[PrivateKind]) -> bool {
        let account = association.account.as_str();
        let denied = kinds.iter().any(|kind| self.is_denied(*kind));
        let in_accounts = !self.is_denied(PrivateKind::Accounts);
        if !denied && in_accounts || self.rights.coordinates(account) {
            return true;
        }
        match association.user.as_deref() {
            Some(user) if denied => user == self.who.name,
            _ => self.rights.belongs_to(account),
        }
    }
}
