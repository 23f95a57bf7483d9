//! Looks each minute how much of the cluster is in use (`shared/load_history.rs`).

use crate::clock;
use crate::shared::Shared;
use crate::shared::load_history::ClusterLoad;
use cluster::State;
use model::gres::GPU;
use model::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

const PERIOD: Duration = Duration::from_secs(60);

pub async fn run(shared: Arc<Shared>) {
    let mut timer = interval(PERIOD);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        timer.tick().await;
        let sample = load(&shared.read(), clock::now());
        shared.volatile.load_history.add(sample);
    }
}

fn load(state: &State, at: Timestamp) -> ClusterLoad {
    let mut load = ClusterLoad {
        at,
        cpus: 0,
        cpus_used: 0,
        gpus: 0,
        gpus_used: 0,
        running: state.active.len() as u64,
        waiting: state.queue.len() as u64,
    };
    for node in state.nodes.values() {
        load.cpus += u64::from(node.config.usable_cpus().len());
        load.cpus_used += u64::from(node.used.cpus.len());
        let gpus = node.config.gres.iter().filter(|line| line.name == GPU);
        load.gpus += gpus.map(|line| line.count).sum::<u64>();
        let used = node.used.gres.iter().filter(|share| share.name == GPU);
        load.gpus_used += used.map(|share| share.count).sum::<u64>();
    }
    load
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    #[tokio::test(flavor = "multi_thread")]
    async fn all_nodes_and_jobs_are_counted() {
        let server = TestServer::start().await;
        server.submit("name: waits").await.expect("a job");
        let load = load(&server.shared.read(), Timestamp(7));
        assert_eq!((load.at, load.cpus, load.cpus_used), (Timestamp(7), 4, 0));
        assert_eq!((load.gpus, load.running, load.waiting), (0, 0, 1));
    }
}
