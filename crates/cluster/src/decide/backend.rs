//! Commands about backends: sources of machines that administrators make by calls. Credentials come in encrypted, as secrets do.

use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision};
use crate::event::Event;
use crate::rights::is_project;
use crate::state::State;
use crate::state::disk_use::DiskVolume;
use model::backend::Backend;
use model::bounds;
use model::reason::Refusal;
use model::secret::Sealed;
use std::collections::BTreeSet;

impl State {
    pub(super) fn decide_set_backend(
        &self,
        backend: &Backend,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let (project, source) = (&backend.project, &backend.source.name);
        if !is_project(self, project) {
            return Err(unknown("project", project));
        }
        if self.config.sources.iter().any(|of| of.name == *source) {
            return Err(of_file(source));
        }
        let known = self.backends.get(source);
        if let Some(known) = known.filter(|known| known.project != *project) {
            return Err(Refusal::Other(format!(
                "backend {}: source {source} is a backend of project {}",
                backend.name(),
                known.project
            )));
        }
        if known.is_none() {
            bounds::BACKENDS.hold(self.backends.len() + 1)?;
        }
        if known == Some(backend) {
            return Ok(Decision::default());
        }
        let other = known.and_then(|known| known.source.kind.other_owner(&backend.source.kind));
        if let (Some(key), Some(held)) = (other, self.made_by(source)) {
            return Err(Refusal::Other(format!(
                "backend {}: another {key}: its {held} would not be found: delete that first",
                backend.name()
            )));
        }
        Ok(vec![Event::BackendSet(Box::new(backend.clone()))].into())
    }

    pub(super) fn decide_remove_backends(
        &self,
        project: &str,
        names: &[String],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let names: BTreeSet<&String> = names.iter().collect();
        let removed = names.into_iter().map(|name| {
            let Some(backend) = self.backend(project, name) else {
                let is_of_file = self.config.sources.iter().any(|of| of.name == *name);
                return Err(if is_of_file { of_file(name) } else { unknown("backend", name) });
            };
            let source = backend.source.name.clone();
            match self.made_by(&source) {
                Some(held) => Err(Refusal::Other(format!(
                    "backend {name} has {held}: delete that first, and then the backend"
                ))),
                None => Ok(Event::BackendRemoved { source }),
            }
        });
        Ok(removed.collect::<Result<Vec<Event>, Refusal>>()?.into())
    }

    pub(super) fn decide_reseal_backend(
        &self,
        source: &str,
        before: &Sealed,
        after: &Sealed,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let known = self.backends.get(source);
        let Some(known) = known.filter(|known| known.credentials.as_ref() == Some(before)) else {
            return Ok(Decision::default());
        };
        let resealed = Backend { credentials: Some(after.clone()), ..known.clone() };
        Ok(vec![Event::BackendSet(Box::new(resealed))].into())
    }

    /// The backend of a project, by its kind.
    pub fn backend(&self, project: &str, name: &str) -> Option<&Backend> {
        self.backends.values().find(|backend| backend.project == project && backend.name() == name)
    }

    /// A machine or a disk that the source has made, in words: without the source nobody could delete it.
    fn made_by(&self, source: &str) -> Option<String> {
        let machine = self.live_machines_of(source).next();
        let of_source =
            |of: &DiskVolume<'_>| of.volume.cloud().is_some_and(|place| place.source == source);
        let disk = || Some(format!("volume {}", self.disk_volumes().find(of_source)?.name));
        machine.map(|machine| format!("machine {}", machine.node)).or_else(disk)
    }
}

fn unknown(what: &str, name: &str) -> Refusal {
    Refusal::UnknownThing { what: what.into(), name: name.into() }
}

fn of_file(source: &str) -> Refusal {
    Refusal::Other(format!("backend {source}: it is a source of sluice.toml, and is changed there"))
}
