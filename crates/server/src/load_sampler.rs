//! Looks each minute how much of the cluster is in use (`shared/load_history.rs`), and keeps that in a file for the next start.

use crate::auth::identity::write_private;
use crate::clock;
use crate::error::ServerError;
use crate::shared::Shared;
use crate::shared::load_history::ClusterLoad;
use cluster::State;
use model::gres::GPU;
use model::time::Timestamp;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

const PERIOD: Duration = Duration::from_secs(60);

/// The file in the server's own folder. It is written with the first sample and with each tenth after it: what a server that is killed
/// loses of a chart is ten minutes.
const FILE: &str = "load-history.json";
const SAMPLES_EACH: u64 = 10;

/// A week of samples is a sixth of it.
const FILE_BYTES_MAX: u64 = 8 << 20;

pub async fn run(shared: Arc<Shared>) {
    restore(&shared).await;
    let mut timer = interval(PERIOD);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut taken: u64 = 0;
    loop {
        timer.tick().await;
        let sample = load(&shared.read(), clock::now());
        shared.volatile.load_history.add(sample);
        if taken.is_multiple_of(SAMPLES_EACH) {
            save(&shared).await;
        }
        taken += 1;
    }
}

async fn restore(shared: &Arc<Shared>) {
    let path = shared.setup.server_dir.join(FILE);
    let former = spawn_blocking(move || read(&path)).await.unwrap_or_default();
    shared.volatile.load_history.restore(former, clock::now());
}

/// The samples of a file. A chart is no reason not to start: a file that cannot be read holds none.
fn read(path: &Path) -> Vec<ClusterLoad> {
    let Ok(file) = File::open(path) else { return Vec::new() };
    let mut text = Vec::new();
    let read = file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(|why| why.to_string());
    let samples =
        read.and_then(|_| serde_json::from_slice(&text).map_err(|error| error.to_string()));
    samples.unwrap_or_else(|why| {
        tracing::warn!("{}: the history of the load begins anew: {why}", path.display());
        Vec::new()
    })
}

async fn save(shared: &Arc<Shared>) {
    let (dir, samples) = (shared.setup.server_dir.clone(), shared.volatile.load_history.all());
    let write = move || {
        let text = serde_json::to_string(&samples);
        let text = text.map_err(|error| ServerError::Other(error.to_string()))?;
        write_private(&dir, FILE, &text)
    };
    if let Ok(Err(why)) = spawn_blocking(write).await {
        tracing::warn!("the history of the load is not kept: {why}");
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
        // Those that are held too: the queue of the planner is without them.
        waiting: state.jobs.values().filter(|job| job.is_waiting()).count() as u64,
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
    use cluster::Command;
    use model::change::{JobChange, JobRef};
    use model::run::Hold;

    #[tokio::test(flavor = "multi_thread")]
    async fn samples_outlive_the_server_and_a_damaged_file_is_none() {
        let server = TestServer::start().await;
        let (shared, now) = (&server.shared, clock::now());
        let sample = load(&shared.read(), now - PERIOD);
        shared.volatile.load_history.add(sample);
        save(shared).await;
        let path = shared.setup.server_dir.join(FILE);
        assert_eq!(read(&path), [sample]);
        std::fs::write(&path, "[{").expect("written");
        assert!(read(&path).is_empty());
        assert!(read(&path.join("none")).is_empty());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn all_nodes_and_jobs_are_counted() {
        let server = TestServer::start().await;
        server.submit("name: waits").await.expect("a job");
        let held = server.submit("name: held").await.expect("a job");
        let (job, by) = (JobRef::whole(held), Hold::User);
        let hold = Command::ChangeJob { job, change: JobChange::Hold { by } };
        server.run(hold).await.expect("held");
        let load = load(&server.shared.read(), Timestamp(7));
        assert_eq!((load.at, load.cpus, load.cpus_used), (Timestamp(7), 4, 0));
        assert_eq!((load.gpus, load.running, load.waiting), (0, 0, 2));
    }
}
