//! Commands about backends: sources of machines that administrators make by calls. Credentials come in encrypted, as secrets do.

use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision};
use crate::event::Event;
use crate::rights::is_project;
use crate::state::State;
use crate::state::disk_use::DiskVolume;
use model::backend::{Backend, BackendOrigin};
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

    /// Removes the backends that `config.yml` named once and does not name any more. One that has machines or disks makes no
    /// more of them, and goes with the last.
    pub(super) fn decide_retain_file_backends(
        &self,
        sources: &BTreeSet<String>,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        let from_file = self.backends.iter().filter(|(_, of)| of.origin == BackendOrigin::File);
        let left_out = from_file.filter(|(source, _)| !sources.contains(*source));
        let dropped = left_out.map(|(source, backend)| match self.made_by(source) {
            None => Event::BackendRemoved { source: source.clone() },
            Some(_) => {
                let origin = BackendOrigin::DroppedFromFile;
                Event::BackendSet(Box::new(Backend { origin, ..backend.clone() }))
            }
        });
        Ok(dropped.chain(self.dropped_backend_events()).collect::<Vec<Event>>().into())
    }

    /// The end of backends that `config.yml` does not name any more, and that have nothing left.
    pub(super) fn dropped_backend_events(&self) -> impl Iterator<Item = Event> {
        let empty = self.dropped_backends().filter(|(_, held)| held.is_none());
        empty.map(|(backend, _)| Event::BackendRemoved { source: backend.source.name.clone() })
    }

    /// The backends that `config.yml` does not name any more, each with what it still has, in words.
    pub fn dropped_backends(&self) -> impl Iterator<Item = (&Backend, Option<String>)> {
        let dropped = self.backends.values().filter(|backend| backend.is_dropped());
        dropped.map(move |backend| (backend, self.made_by(&backend.source.name)))
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
