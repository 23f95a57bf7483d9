//! Projects: an account that is made, removed and given members as dstack does it.

use super::activity::noted;
use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision};
use crate::event::Event;
use crate::rights::{is_project, members};
use crate::state::State;
use model::account::{Account, Association, ROOT_ACCOUNT};
use model::activity::{ActivityKind, ActivityTarget};
use model::bounds;
use model::fleet::MAIN_PROJECT;
use model::project::{
    Members, MembersChange, PROJECT_NAME_RULE, Project, ProjectRole, is_project_name,
};
use model::publication::check_gateway_name;
use model::reason::Refusal;

/// The most names in a refusal to take users out of a project who are not in it.
const STRANGERS_NAMED_MAX: usize = 20;

impl State {
    /// A project takes its share of the cluster: operators make it, as they make accounts.
    pub(super) fn decide_create_project(
        &self,
        name: &str,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Operate)?;
        if !is_project_name(name) {
            return Err(Refusal::InvalidValue {
                what: "project name".into(),
                value: name.into(),
                expected: PROJECT_NAME_RULE.into(),
            });
        }
        if is_project(self, name) || name == ROOT_ACCOUNT {
            return Err(Refusal::AlreadyExists { what: "project".into(), name: name.into() });
        }
        let owner = context.by.name.clone();
        let account = Account {
            name: name.into(),
            description: String::new(),
            organization: name.into(),
            parent: Some(ROOT_ACCOUNT.into()),
            coordinators: vec![owner.clone()],
        };
        let member = Association::plain(name, Some(&owner));
        let project =
            Project { owner: owner.clone(), created: context.now, admins: [owner].into() };
        let target = ActivityTarget::Project(name.into());
        Ok(vec![
            Event::AccountSet(account),
            Event::AssociationSet(Box::new(member)),
            Event::ProjectSet { name: name.into(), project },
            noted(context, target, ActivityKind::Created),
        ]
        .into())
    }

    pub(super) fn decide_remove_project(
        &self,
        name: &str,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        self.check_own_project(name)?;
        authorise(self, &context.by, Act::InProject(name, ProjectRole::Admin))?;
        let removed = self.account_removed(name)?;
        let target = ActivityTarget::Project(name.into());
        Ok(vec![removed, noted(context, target, ActivityKind::Deleted)].into())
    }

    pub(super) fn decide_set_default_gateway(
        &self,
        project: &str,
        gateway: Option<&str>,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::InProject(project, ProjectRole::Admin))?;
        if !is_project(self, project) {
            return Err(Refusal::UnknownThing { what: "project".into(), name: project.into() });
        }
        gateway.map_or(Ok(()), check_gateway_name).map_err(Refusal::Other)?;
        if self.default_gateways.get(project).map(String::as_str) == gateway {
            return Ok(Decision::default());
        }
        let set = Event::DefaultGatewaySet {
            project: project.into(),
            gateway: gateway.map(str::to_owned),
        };
        let target = ActivityTarget::Project(project.into());
        Ok(vec![set, noted(context, target, ActivityKind::Changed)].into())
    }

    /// The gateway of a project's services that name none: the project's own, else the site's. `None` where neither names one.
    pub fn default_gateway(&self, project: &str) -> Option<&str> {
        let own = self.default_gateways.get(project);
        own.or(self.config.proxy.default_gateway.as_ref()).map(String::as_str)
    }

    /// Refuses what is no project, and the one that has no account.
    fn check_own_project(&self, name: &str) -> Result<(), Refusal> {
        if name == MAIN_PROJECT {
            let text = format!("project {name} is everybody's, and stays");
            return Err(Refusal::Other(text));
        }
        if is_project(self, name) {
            return Ok(());
        }
        Err(Refusal::UnknownThing { what: "project".into(), name: name.into() })
    }

    pub(super) fn decide_set_members(
        &self,
        project: &str,
        given: &Members,
        change: MembersChange,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        self.check_own_project(project)?;
        authorise(self, &context.by, Act::InProject(project, ProjectRole::Manager))?;
        check_count(given.len())?;
        let before = members(self, project);
        let mut after = before.clone();
        match change {
            MembersChange::Replace => after.clone_from(given),
            MembersChange::Add => after.extend(given.clone()),
            MembersChange::Remove => {
                check_are_members(project, given, &before)?;
                after.retain(|name, _| !given.contains_key(name));
            }
        }
        check_count(after.len())?;
        let of_role = |members: &Members, role: ProjectRole| -> Vec<String> {
            let such = members.iter().filter(|(_, held)| **held >= role);
            such.map(|(name, _)| name.clone()).collect()
        };
        let admins = of_role(&after, ProjectRole::Admin);
        if admins != of_role(&before, ProjectRole::Admin) {
            authorise(self, &context.by, Act::InProject(project, ProjectRole::Admin))?;
        }
        let target = || ActivityTarget::Project(project.into());
        let mut events = Vec::new();
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            let of_member =
                |a: &&Association| a.account == project && a.user.as_ref() == Some(name);
            for association in self.associations.iter().filter(of_member) {
                events.push(self.association_removed(&association.key())?);
            }
            events.push(noted(context, target(), ActivityKind::MemberRemoved(name.clone())));
        }
        for (name, role) in &after {
            if before.get(name) == Some(role) {
                continue;
            }
            let is_in = |a: &Association| a.account == project && a.user.as_ref() == Some(name);
            if !self.associations.iter().any(is_in) {
                let member = Association::plain(project, Some(name));
                events.push(Event::AssociationSet(Box::new(member)));
            }
            events.push(noted(context, target(), ActivityKind::MemberSet(name.clone())));
        }
        let coordinators = of_role(&after, ProjectRole::Manager);
        let account = &self.accounts[project];
        if account.coordinators != coordinators {
            events.push(Event::AccountSet(Account { coordinators, ..account.clone() }));
        }
        let known = self.projects.get(project).cloned();
        let known = known.unwrap_or_else(|| Project {
            owner: context.by.name.clone(),
            created: context.now,
            admins: Default::default(),
        });
        let next = Project { admins: admins.into_iter().collect(), ..known.clone() };
        if next.admins != known.admins {
            events.push(Event::ProjectSet { name: project.into(), project: next });
        }
        Ok(events.into())
    }
}

/// Refuses to take out of a project whoever is not in it.
fn check_are_members(project: &str, given: &Members, known: &Members) -> Result<(), Refusal> {
    let strangers = given.keys().filter(|name| !known.contains_key(*name));
    let strangers: Vec<&str> = strangers.map(String::as_str).take(STRANGERS_NAMED_MAX).collect();
    if strangers.is_empty() {
        return Ok(());
    }
    let plural = if strangers.len() == 1 { "" } else { "s" };
    Err(Refusal::UnknownThing {
        what: format!("project {project}: member{plural}"),
        name: strangers.join(", "),
    })
}

fn check_count(members: usize) -> Result<(), Refusal> {
    let most = bounds::PROJECT_MEMBERS.most;
    if members <= most {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: bounds::PROJECT_MEMBERS.what.into(),
        value: members.to_string(),
        expected: format!("at most {most}"),
    })
}
