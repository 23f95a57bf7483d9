//! Commands about secrets. Values come in encrypted: the state machine has no key.

use super::activity::noted;
use crate::authorise::{Act, authorise};
use crate::command::{Command, Context, Decision, ResealedSecret};
use crate::event::Event;
use crate::state::State;
use model::activity::{ActivityKind, ActivityTarget};
use model::bounds;
use model::reason::Refusal;
use model::secret::{self, Sealed};
use std::collections::{BTreeMap, BTreeSet};

impl State {
    pub(super) fn decide_secret(
        &self,
        command: &Command,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let events = match command {
            Command::SetSecret { project, name, sealed } => {
                authorise(self, &context.by, Act::ManageSecrets(project))?;
                let known = self.secrets_of(project).contains_key(name);
                let what = if known { ActivityKind::Changed } else { ActivityKind::Created };
                let set = self.secret_set(project, name, sealed, context)?;
                vec![set, noted(context, target(project, name), what)]
            }
            Command::RemoveSecrets { project, names } => {
                authorise(self, &context.by, Act::ManageSecrets(project))?;
                self.secrets_removed(project, names, context)?
            }
            Command::ResealSecrets(secrets) => {
                authorise(self, &context.by, Act::Administer)?;
                self.secrets_resealed(secrets, context)
            }
            other => unreachable!("{other:?} is decided elsewhere"),
        };
        Ok(events.into())
    }

    /// The secrets of a project by name.
    pub fn secrets_of(&self, project: &str) -> &BTreeMap<String, Sealed> {
        static NONE: BTreeMap<String, Sealed> = BTreeMap::new();
        self.secrets.get(project).unwrap_or(&NONE)
    }

    /// Every encrypted value: the secrets, what jobs hold, the keys of fleets, and the credentials of backends.
    pub fn sealed_values(&self) -> impl Iterator<Item = &Sealed> {
        let of_jobs = self.jobs.values().flat_map(|job| {
            let launch = &job.spec.launch;
            [launch.registry_auth.as_deref(), launch.git_credentials.as_deref()]
        });
        let of_fleets = self.fleets.values().flat_map(|fleet| fleet.sealed_values());
        let of_secrets = self.secrets.values().flat_map(BTreeMap::values);
        let of_backends = self.backends.values().filter_map(|backend| backend.credentials.as_ref());
        of_secrets.chain(of_jobs.flatten()).chain(of_fleets).chain(of_backends)
    }

    fn secret_set(
        &self,
        project: &str,
        name: &str,
        sealed: &Sealed,
        context: &Context,
    ) -> Result<Event, Refusal> {
        if !secret::is_name(name) {
            return Err(Refusal::InvalidValue {
                what: "secret name".into(),
                value: name.into(),
                expected: format!("expected {}", secret::NAME_RULE),
            });
        }
        let known = self.secrets_of(project);
        if !known.contains_key(name) && known.len() >= bounds::SECRETS.most {
            return Err(Refusal::InvalidValue {
                what: bounds::SECRETS.what.into(),
                value: (known.len() + 1).to_string(),
                expected: format!("at most {}", bounds::SECRETS.most),
            });
        }
        Ok(event(project, name, sealed, context))
    }

    /// All that are named, or none.
    fn secrets_removed(
        &self,
        project: &str,
        names: &[String],
        context: &Context,
    ) -> Result<Vec<Event>, Refusal> {
        let known = self.secrets_of(project);
        if let Some(missing) = names.iter().find(|name| !known.contains_key(*name)) {
            return Err(Refusal::UnknownThing { what: "secret".into(), name: missing.clone() });
        }
        let names: BTreeSet<&String> = names.iter().collect();
        let removed = names.into_iter().flat_map(|name| {
            let removed = Event::SecretRemoved {
                project: project.into(),
                name: name.clone(),
                by: context.by.name.clone(),
                at: context.now,
            };
            [removed, noted(context, target(project, name), ActivityKind::Deleted)]
        });
        Ok(removed.collect())
    }

    fn secrets_resealed(&self, secrets: &[ResealedSecret], context: &Context) -> Vec<Event> {
        let unchanged =
            |s: &&ResealedSecret| self.secrets_of(&s.project).get(&s.name) == Some(&s.before);
        let unchanged = secrets.iter().filter(unchanged);
        unchanged.map(|s| event(&s.project, &s.name, &s.after, context)).collect()
    }
}

fn target(project: &str, name: &str) -> ActivityTarget {
    ActivityTarget::Secret { project: project.into(), name: name.into() }
}

fn event(project: &str, name: &str, sealed: &Sealed, context: &Context) -> Event {
    Event::SecretSet {
        project: project.into(),
        name: name.into(),
        sealed: sealed.clone(),
        by: context.by.name.clone(),
        at: context.now,
    }
}
