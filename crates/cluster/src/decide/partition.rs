//! `scontrol create PartitionName=…` and `scontrol delete PartitionName=…`.

use super::partition_change;
use crate::event::Event;
use crate::requested;
use crate::state::State;
use model::change::PartitionChange;
use model::partition::Partition;
use model::reason::Refusal;

impl State {
    pub(super) fn partition_created(&self, new: &Partition) -> Result<Event, Refusal> {
        if self.partition(&new.name).is_some() {
            return Err(Refusal::Other(format!("partition {} exists already", new.name)));
        }
        if let Some(node) = new.nodes.iter().find(|node| !self.nodes.contains_key(*node)) {
            return Err(Refusal::UnknownNode(node.clone()));
        }
        let bounds = [
            PartitionChange::DefaultTime(new.default_time),
            PartitionChange::MinNodes(new.min_nodes),
        ];
        bounds.iter().try_for_each(|bound| partition_change::check(new, bound))?;
        Ok(Event::PartitionCreated(Box::new(new.clone())))
    }

    /// A partition that a job waits or runs in, or that belongs to something else, stays.
    pub(super) fn partition_removed(&self, name: &str) -> Result<Event, Refusal> {
        if self.partition(name).is_none() {
            return Err(Refusal::UnknownPartition(name.to_owned()));
        }
        if self.fleets.contains_key(name) {
            let text = format!("partition {name} is that of a fleet, and goes with it");
            return Err(Refusal::Other(text));
        }
        let reservation =
            self.reservations.values().find(|held| held.partition.as_deref() == Some(name));
        if let Some(reservation) = reservation {
            let text = format!("partition {name} is that of reservation {}", reservation.name);
            return Err(Refusal::Other(text));
        }
        self.check_idle(|job| requested::partitions(self, job).any(|asked| asked == name))?;
        Ok(Event::PartitionRemoved { name: name.to_owned() })
    }
}
