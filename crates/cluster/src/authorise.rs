//! Authorisation: the one place that says who may do what.

use crate::rights::Rights;
use crate::state::State;
use crate::state::job::Job;
use crate::visibility::Viewer;
use model::principal::{Principal, Role};
use model::project::ProjectRole;
use model::reason::Refusal;
use model::volume::Volume;

/// An action that needs permission.
#[derive(Debug, Clone, Copy)]
pub enum Act<'a> {
    /// Submit as this owner.
    SubmitAs(&'a Principal),
    /// Act as this job's owner: create, launch, attach to or type into its steps, hold or give up its allocation, choose
    /// the files that its processes open, read its script and output. Processes of a step run as the owner, so
    /// whoever manages jobs has no part in it.
    ActAsOwner(&'a Job),
    /// Read the scripts and environments of this user's ended jobs.
    ReadTextsOf(u32),
    /// Manage this job: cancel, signal, hold, release, requeue, update it, see what it uses.
    ManageJob(&'a Job),
    /// The same for a run that only the books may have.
    ManageRun { owner: u32, account: &'a str },
    /// What members of this role, or of one above it, may do in a project.
    InProject(&'a str, ProjectRole),
    /// Change this account: its users, the accounts below it, its coordinators.
    KeepBooks(&'a str),
    /// Operators' actions: raise a priority, lift an administrator's hold.
    Operate,
    /// Make, list and revoke the tokens of this user. Not by a token, unless an administrator's: a token that leaked could
    /// otherwise make another and outlive its own end.
    ManageTokens(&'a str),
    /// List, read, set and delete the secrets of this project. A job may use them without this right.
    ManageSecrets(&'a str),
    /// Have jobs that find this volume of a project at a path.
    UseVolume(&'a str, &'a Volume),
    /// Delete this volume of a project, with what is in it.
    DeleteVolume(&'a str, &'a Volume),
    /// Make, change and delete fleets over SSH.
    ManageFleets,
    /// Copy the server's keys, in a backup: root and the server's own user, on the server's machine. A token or a node that
    /// leaked would otherwise leave its finder with what signs orders.
    CopyKeys,
    /// Have programs run on the server's machine, as the server's user, when something happens.
    SetTriggers,
    /// Remove the triggers of this user.
    ClearTriggersOf(u32),
    /// Administrators' actions: nodes, partitions, accounts, configuration, join tokens.
    Administer,
}

pub fn authorise(state: &State, who: &Principal, act: Act<'_>) -> Result<(), Refusal> {
    let rights = Rights::of(state, who);
    let allowed = match act {
        Act::SubmitAs(owner) => owner.uid == who.uid || rights.admin,
        Act::ActAsOwner(job) => job.spec.owner.uid == who.uid || rights.admin,
        Act::ReadTextsOf(owner) => owner == who.uid || rights.admin,
        Act::ManageJob(job) => rights.manages(job.spec.owner.uid, &job.account),
        Act::ManageRun { owner, account } => rights.manages(owner, account),
        Act::InProject(name, role) => rights.project_role(name) >= Some(role),
        Act::KeepBooks(account) => rights.operator || rights.coordinates(account),
        Act::Operate => rights.operator,
        Act::ManageTokens(user) => rights.admin || (who.name == user && who.token_limit.is_none()),
        Act::ManageSecrets(project) => rights.manages_secrets(project),
        // Its folder is its owner's alone: jobs of others could not open it.
        Act::UseVolume(project, volume) => {
            rights.admin || volume.owner.uid == who.uid && rights.project_role(project).is_some()
        }
        // An operator manages every project, and destroys nobody's files.
        Act::DeleteVolume(project, volume) => {
            rights.admin
                || volume.owner.uid == who.uid
                || !rights.operator && rights.project_role(project) == Some(ProjectRole::Admin)
        }
        // Whoever brings machines has the server dial addresses and take nodes: that is the site's to decide, whatever project
        // they are for.
        Act::ManageFleets | Act::Administer => rights.admin,
        Act::ClearTriggersOf(owner) => owner == who.uid || rights.admin,
        // Its program runs as the server's user, who has the keys.
        Act::CopyKeys | Act::SetTriggers => {
            who.token_limit.is_none() && (who.uid == 0 || who.role == Role::Admin)
        }
    };
    match act {
        _ if allowed => Ok(()),
        // A job that its viewer is not shown is refused as one that is not there.
        Act::ActAsOwner(job) | Act::ManageJob(job) if !Viewer::new(state, who).job(job) => {
            Err(Refusal::UnknownJob(job.id.to_string()))
        }
        _ => Err(Refusal::AccessDenied),
    }
}
