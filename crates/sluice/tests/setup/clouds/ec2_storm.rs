//! Spot storms: the cloud takes every machine back while jobs run on them, and the server is killed meanwhile.

use super::ec2::{PROXY, SPOT_SLACK_MS, credentials, prices, source, with_moto};
use super::{Site, seconds};
use crate::harness::within;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// A queue of jobs, and what befalls it.
pub(super) struct Storms {
    pub jobs: usize,
    /// The seconds that each job takes.
    pub seconds: u32,
    pub machines: u32,
    /// For each storm: how many jobs have ended when it comes, and whether the server is killed in it.
    pub at: &'static [(usize, bool)],
}

/// Two hundred jobs on a fleet of `nodes: 0..20`, three storms, two kills of the server.
#[test]
#[ignore = "a long run: make soak"]
fn root_soak_two_hundred_jobs_outlive_three_spot_storms_and_two_kills_of_the_server() {
    let name = "root_soak_two_hundred_jobs_outlive_three_spot_storms_and_two_kills_of_the_server";
    let at = &[(20, true), (70, false), (120, true)];
    on_ec2(name, &Storms { jobs: 200, seconds: 4, machines: 20, at });
}

/// The same in small, and no longer than it takes: two machines of two jobs each, and more jobs than those hold at once, so that some
/// run when the storm comes.
#[test]
fn up_jobs_outlive_a_spot_storm_and_a_kill_of_the_server_and_each_ends_once() {
    let name = "up_jobs_outlive_a_spot_storm_and_a_kill_of_the_server_and_each_ends_once";
    on_ec2(name, &Storms { jobs: 6, seconds: 1, machines: 2, at: &[(1, true)] });
}

fn on_ec2(name: &str, storms: &Storms) {
    with_moto("ec2_storm", name, |moto| {
        let mut site = Site::up(PROXY, &[moto], |cloud| {
            let key = credentials(cloud, "key", "AKIAGOOD", "secret");
            let prices = prices(cloud, &json!({"t3.small": {"on_demand": 3.6}}));
            let more = format!("prices = '{prices}'\ntypes = ['t3.small']\nspot = 'spot'");
            let source = source(cloud, "ec2", &key, storms.machines, &more);
            // Without a partition of its own the fleet is the only one that makes machines of it.
            source.replace("features = ['cloud']", "features = ['of-fleets']")
        });
        outlive(&mut site, storms, "t3.small@eu-west-1/spot");
    });
}

/// Every job ends once, the machines end at zero, and the books are the cloud's log times the price of the only offer, which is
/// 0.05 dollars an hour.
pub(super) fn outlive(site: &mut Site, storms: &Storms, offer: &str) {
    let Storms { jobs, seconds: length, machines, at } = storms;
    let fleet = format!(
        "type: fleet\nname: burst\nnodes: 0..{machines}\nspot_policy: spot\nidle_duration: 2s\n\
         blocks: auto\n"
    );
    site.cluster.cluster().write("burst.dstack.yml", &fleet);
    let apply = ["apply", "-f", "burst.dstack.yml", "-y", "-d"];
    site.cluster.cluster().sluice(&apply).ok();
    site.submit("-p burst", "true");
    // A job that has not ended when a storm comes does not end before it is over.
    let line = format!(
        "sbatch --parsable --requeue -p burst -n 1 --array=1-{jobs} --wrap \
         'sleep {length}; while [ -e hold ]; do sleep 0.1; done; \
         echo $SLURM_ARRAY_TASK_ID >> ended'"
    );
    let array = site.cluster.cluster().shell(&line).ok();
    let array = array.trim();
    for (part, is_killed) in *at {
        within(seconds(600), "a part of the jobs has ended", || {
            (ended(site).len() >= *part).then_some(())
        });
        storm(site, array, *is_killed);
    }
    within(seconds(1200), "all jobs have ended", || {
        let line = format!("squeue -h -j {array}");
        site.cluster.cluster().shell(&line).stdout.trim().is_empty().then_some(())
    });
    let line = format!("sacct -n -X -P -o State -j {array}");
    let states = site.cluster.cluster().shell(&line).ok();
    let (count, done) =
        (states.lines().count(), states.lines().filter(|state| *state == "COMPLETED").count());
    assert_eq!((count, done), (*jobs, *jobs), "every job ends once: {states}");
    let numbers: BTreeSet<u32> = ended(site).into_iter().collect();
    assert_eq!(numbers.len(), *jobs, "every job did its work");
    site.await_none(seconds(300));
    site.compare_bill(&BTreeMap::from([(offer, 500)]), SPOT_SLACK_MS);
}

/// The tasks of the array that have done their work.
fn ended(site: &Site) -> Vec<u32> {
    let path = site.cluster.cluster().path("work/ended");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The cloud takes all machines that there are back, with the jobs that run on them.
fn storm(site: &mut Site, array: &str, is_server_killed: bool) {
    site.cluster.cluster().write("hold", "");
    within(seconds(120), "a job runs", || {
        let line = format!("squeue -h -t R -j {array}");
        (!site.cluster.cluster().shell(&line).stdout.trim().is_empty()).then_some(())
    });
    let doomed: Vec<PathBuf> = site.cloud.machines();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis() as u64;
    // Long enough for a server that is started again to hear of it: a machine that is gone before is waited for much longer.
    site.cloud.control(&json!({"storm": {"before": now, "after": 5}}));
    if is_server_killed {
        site.cluster.kill_server();
        site.cluster.start_server();
    }
    within(seconds(180), "the storm has taken its machines back", || {
        doomed.iter().all(|path| !path.exists()).then_some(())
    });
    let is_doomed = |id: &str| {
        doomed.iter().any(|path| path.file_stem().is_some_and(|stem| stem.to_str() == Some(id)))
    };
    let interrupted = site.cloud.logged("interrupted");
    let mut taken = interrupted.iter().filter_map(|line| line["id"].as_str());
    assert!(taken.any(is_doomed), "a machine with a job is taken back: {doomed:?}");
    std::fs::remove_file(site.cluster.cluster().path("work/hold")).expect("it is there");
}
