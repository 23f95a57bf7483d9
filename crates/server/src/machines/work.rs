//! One piece of work with a source: a call of it, and what is kept of the answer.

use super::source::{CreateOrder, DeleteOrder, MachineSource, SourceError};
use crate::agents::dynamic_node;
use crate::agents::join::{self, JoinGroupRequest};
use crate::auth::principal::server_principal;
use crate::clock;
use crate::shared::Shared;
use cluster::Command;
use cluster::command::MachineReport;
use cluster::machine_reconcile::{self, CONSISTENCY_DELAY, Differences, MachineWork};
use model::machine::{FailureKind, Machine, MachinePhase, Offer, SourceConfig};
use std::sync::Arc;
use std::time::Duration;

/// How much longer than a machine's time to boot its join token is good.
const TOKEN_RESERVE: Duration = Duration::from_secs(60);

/// What is to be done about a source or one of its machines.
pub enum Work {
    Offers,
    Describe,
    Create(Box<Machine>),
    Delete(Box<Machine>),
    Report(MachineReport),
}

impl Work {
    /// The work with one machine.
    pub fn of(work: MachineWork, machine: &Machine) -> Self {
        match work {
            MachineWork::Create => Self::Create(Box::new(machine.clone())),
            MachineWork::Delete => Self::Delete(Box::new(machine.clone())),
            MachineWork::Report(report) => Self::Report(report),
        }
    }

    /// Whether the source is called for it. A report is kept at once, whatever hangs.
    pub fn is_call(&self) -> bool {
        !matches!(self, Self::Report(_))
    }
}

/// How a piece of work ended.
pub enum Outcome {
    Done,
    Compared(Differences),
    Failed(SourceError),
}

/// The place of a piece of work among those of one source, the least first: calls that failed or hung come after those that
/// did not, and of these a deletion first, because its machine is paid for.
pub fn turn(failures: u32, work: &Work) -> (u32, bool) {
    (failures, matches!(work, Work::Create(_)))
}

/// Does a piece of work; what fails is done again.
pub async fn carry_out(
    shared: &Arc<Shared>,
    config: SourceConfig,
    source: Arc<dyn MachineSource>,
    token: String,
    work: Work,
) -> Result<Outcome, SourceError> {
    let name = config.name.clone();
    match work {
        Work::Offers => {
            let offers = call(move || source.offers()).await.map_err(|e| e.of("offers"))?;
            execute(shared, Command::SetOffers { source: name, offers }).await?;
        }
        Work::Describe => {
            let begun = clock::now();
            let told = call(move || source.describe()).await.map_err(|e| e.of("describe"))?;
            let found = {
                let state = shared.read();
                machine_reconcile::differences(&state.machines, &name, &told, begun)
            };
            for (token, report) in found.reports.iter().cloned() {
                execute(shared, Command::MachineReport { token, report }).await?;
            }
            return Ok(Outcome::Compared(found));
        }
        Work::Create(machine) => {
            let order = create_order(shared, &config, &machine).await?;
            // The join tokens of a machine that leaves are taken back, but not one that was issued after that: a machine that
            // was given it could join as a node that nobody deletes. It has not left the server.
            let phase = shared.read().machines.get(&token).map(|machine| machine.phase);
            if phase != Some(MachinePhase::Asked) {
                return Ok(Outcome::Done);
            }
            let made = call(move || source.create(&order)).await;
            let report = match made {
                Ok(made) => MachineReport::Made { id: made.id, since: made.since },
                Err(error) => match error.kind {
                    FailureKind::NoCapacity | FailureKind::Quota | FailureKind::Refused => {
                        MachineReport::NotMade { kind: error.kind, text: error.text }
                    }
                    // It may have been made: the same call finds it, and a late machine is deleted.
                    FailureKind::Throttled | FailureKind::NotFound | FailureKind::Unknown => {
                        return Err(error.of(&format!("create {}", machine.node)));
                    }
                },
            };
            execute(shared, Command::MachineReport { token, report }).await?;
        }
        Work::Delete(machine) => {
            dynamic_node::forget(shared, &machine.node);
            let (id, region) = (machine.id.clone(), machine.offer.region.clone());
            let order = DeleteOrder { token: token.clone(), id, region };
            let deleted = call(move || source.delete(&order)).await;
            // A machine that was asked for a moment ago may be there and not be seen yet.
            let since = machine.made.unwrap_or(machine.asked);
            let is_settled = since + CONSISTENCY_DELAY <= clock::now();
            match deleted {
                Err(error) if error.kind == FailureKind::NotFound && is_settled => {}
                deleted => deleted.map_err(|e| e.of(&format!("delete {}", machine.node)))?,
            }
            let report = MachineReport::Deleted;
            execute(shared, Command::MachineReport { token, report }).await?;
        }
        Work::Report(report) => execute(shared, Command::MachineReport { token, report }).await?,
    }
    Ok(Outcome::Done)
}

/// What the source needs to make the machine: among it a join token that is good once, for this node alone.
async fn create_order(
    shared: &Shared,
    source: &SourceConfig,
    machine: &Machine,
) -> Result<CreateOrder, SourceError> {
    let group = JoinGroupRequest { pattern: machine.node.clone(), count: Some(1), dynamic: true };
    let life = Duration::from_secs(source.boot_s.into()) + TOKEN_RESERVE;
    let join = join::issue_group_join_file(shared, server_principal(), group, life).await;
    let offer = machine.offer.clone();
    let conf = node_conf(&offer, &source.features);
    let (token, node) = (machine.token.clone(), machine.node.clone());
    let join = join
        .map_err(|why| SourceError::unknown(format!("no join token for {node}: {why}")))?;
    Ok(CreateOrder { token, offer, node, conf, join })
}

/// What the agent of such a machine says of its node: all that jobs are packed by, so that they start there.
fn node_conf(offer: &Offer, features: &[String]) -> String {
    let gpus = offer.gpus.as_ref().map(|gpus| format!(" Gres=gpu:{}:{}", gpus.kind, gpus.count));
    let disk = Some(offer.disk.mib()).filter(|mib| *mib > 0).map(|mib| format!(" TmpDisk={mib}"));
    format!(
        "CPUs={} RealMemory={} Feature={}{}{}",
        offer.cpus,
        offer.memory.mib(),
        features.join(","),
        disk.unwrap_or_default(),
        gpus.unwrap_or_default()
    )
}

async fn call<T: Send + 'static>(
    call: impl FnOnce() -> Result<T, SourceError> + Send + 'static,
) -> Result<T, SourceError> {
    let ended = tokio::task::spawn_blocking(call).await;
    ended.unwrap_or_else(|error| Err(SourceError::unknown(error.to_string())))
}

async fn execute(shared: &Shared, command: Command) -> Result<(), SourceError> {
    let kept = shared.writer.run(command, server_principal()).await;
    kept.map(drop).map_err(|why| SourceError::unknown(format!("it could not be kept: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;
    use model::machine::OfferedGpus;
    use model::price::Price;

    fn offer() -> Offer {
        Offer {
            id: "small".into(),
            cpus: 4,
            memory: Bytes::from_mib(1000),
            disk: Bytes(0),
            gpus: None,
            region: String::new(),
            price: Price::default(),
            spot: false,
        }
    }

    #[test]
    fn deletions_come_before_creations_and_what_failed_comes_last() {
        let machine = || {
            Box::new(Machine {
                token: "t".into(),
                number: 1,
                source: "cloud".into(),
                offer: offer(),
                node: "cloud-1".into(),
                job: None,
                asked: clock::now(),
                made: None,
                joined: None,
                gone: None,
                id: None,
                phase: MachinePhase::Asked,
                failure: None,
            })
        };
        let create = || Work::Create(machine());
        let mut work = [
            (2, Work::Delete(machine())),
            (1, create()),
            (0, create()),
            (0, Work::Delete(machine())),
        ];
        work.sort_by_key(|(failures, work)| turn(*failures, work));
        let order = work.map(|(failures, work)| (failures, matches!(work, Work::Delete(_))));
        assert_eq!(order, [(0, true), (0, false), (1, false), (2, true)]);
        assert!(create().is_call() && !Work::Report(MachineReport::Joined).is_call());
    }

    #[test]
    fn node_has_all_that_its_offer_has() {
        let features = ["cloud".to_owned(), "fast".to_owned()];
        assert_eq!(node_conf(&offer(), &features), "CPUs=4 RealMemory=1000 Feature=cloud,fast");
        let gpus = OfferedGpus { kind: "t4".into(), count: 2, memory: None };
        let large = Offer { disk: Bytes::from_mib(9000), gpus: Some(gpus), ..offer() };
        assert_eq!(
            node_conf(&large, &features),
            "CPUs=4 RealMemory=1000 Feature=cloud,fast TmpDisk=9000 Gres=gpu:t4:2"
        );
    }
}
