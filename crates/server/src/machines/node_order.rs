//! What a new machine is given to become a node: a join token that is good once, for this node alone, and what its agent says
//! of it.

use crate::agents::join::{self, JoinGroupRequest};
use crate::auth::principal::server_principal;
use crate::shared::Shared;
use model::machine::{Machine, Offer, SourceConfig};
use model::reason::Refusal;
use std::time::Duration;
use wire::link::JoinFile;

/// The join file of a machine. A node of slurm.conf may have had another machine before: its token is for the name.
pub async fn join_file(
    shared: &Shared,
    source: &SourceConfig,
    machine: &Machine,
    life: Duration,
) -> Result<JoinFile, Refusal> {
    let (by, node) = (server_principal(), machine.node.clone());
    if source.nodes.contains(&node) {
        return join::issue_join_file(shared, by, vec![node], life).await;
    }
    let group = JoinGroupRequest { pattern: node, count: Some(1), dynamic: true };
    join::issue_group_join_file(shared, by, group, life).await
}

/// What the agent of the machine says of its node with `--dynamic --conf`; empty for a node of slurm.conf, which is as that
/// says.
pub fn conf(source: &SourceConfig, machine: &Machine) -> String {
    if source.nodes.contains(&machine.node) {
        return String::new();
    }
    node_conf(&machine.offer, &machine.own_features(source))
}

/// All that jobs are packed by, so that they start there.
fn node_conf(offer: &Offer, features: &[String]) -> String {
    let gpus = offer.gpus.as_ref().map(|gpus| format!(" Gres=gpu:{}:{}", gpus.kind, gpus.count));
    let disk = Some(offer.disk.mib()).filter(|mib| *mib > 0).map(|mib| format!(" TmpDisk={mib}"));
    format!(
        "CPUs={} RealMemory={} Feature={}{}{}",
        offer.cpus,
        offer.memory.mib(),
        offer.features(features).join(","),
        disk.unwrap_or_default(),
        gpus.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::amount::Bytes;
    use model::machine::OfferedGpus;
    use model::price::Price;

    #[test]
    fn node_has_all_that_its_offer_has() {
        let offer = Offer {
            id: "small".into(),
            cpus: 4,
            memory: Bytes::from_mib(1000),
            disk: Bytes(0),
            gpus: None,
            region: String::new(),
            price: Price::default(),
            spot: false,
        };
        let features = ["cloud".to_owned(), "fast".to_owned()];
        let own = "CPUs=4 RealMemory=1000 Feature=cloud,fast,small,on-demand";
        assert_eq!(node_conf(&offer, &features), own);
        let gpus = OfferedGpus { kind: "t4".into(), count: 2, memory: None };
        let large = Offer { disk: Bytes::from_mib(9000), gpus: Some(gpus), ..offer };
        assert_eq!(node_conf(&large, &features), format!("{own} TmpDisk=9000 Gres=gpu:t4:2"));
    }
}
