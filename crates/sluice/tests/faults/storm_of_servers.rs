//! Three servers on one database, two agents, and a storm drawn from a seed: servers are killed and frozen, the lead is handed over
//! and the database is restarted, under submits, arrays, steps and cancels through every server. Afterwards each attempt has run once,
//! every submit is one job at most, everything that was acknowledged is in the books, and what clients were told is what the journal has.
//!
//! `SLUICE_STORM_SEED=N` repeats one schedule; `SLUICE_STORM_ROUNDS=N` sets the length of the long run.

use crate::database::TestDatabase;
use crate::harness::dice::Dice;
use crate::harness::{Cluster, TIMEOUT, TWO_NODES, signal, within};
use crate::history::History;
use crate::servers::{Server, agent, copy_keys};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::time::Duration;

const ROUNDS: u32 = 6;
const LONG_ROUNDS: u32 = 150;
const SERVERS: usize = 3;

struct Storm {
    dice: Dice,
    database: TestDatabase,
    clusters: Vec<Cluster>,
    servers: Vec<Server>,
    agents: Vec<Server>,
    /// The names of submits, and `sbatch` or `srun`, which print the id that was acknowledged.
    submitters: Vec<(String, Child)>,
    history: History,
    submits: u32,
}

impl Storm {
    fn begin() -> Self {
        let database = TestDatabase::start();
        let clusters: Vec<Cluster> = (0..SERVERS).map(|_| Cluster::folder(TWO_NODES)).collect();
        let first = start(&clusters[0], &database);
        first.await_line("sluice is up");
        let mut servers = vec![first];
        for cluster in &clusters[1..] {
            copy_keys(&clusters[0], cluster);
            let server = start(cluster, &database);
            server.await_line("sluice waits as a standby");
            servers.push(server);
        }
        let mut storm = Self {
            dice: Dice::new(Dice::seed_from("SLUICE_STORM_SEED", Dice::seed_of_the_clock)),
            database,
            clusters,
            servers,
            agents: Vec::new(),
            submitters: Vec::new(),
            history: History::default(),
            submits: 0,
        };
        let servers: Vec<&Cluster> = storm.clusters.iter().collect();
        storm.agents = ["node1", "node2"].map(|node| agent(node, &servers)).into();
        storm
    }

    fn any(&mut self) -> usize {
        self.dice.below(SERVERS as u64) as usize
    }

    /// Submits through any server. The name tells the submit: it may become one job.
    fn submit(&mut self) {
        self.submits += 1;
        let nap = self.dice.below(15);
        let marks = self.clusters[0].path("work").join("runs");
        let body = format!(
            "echo $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} >> {}; sleep {}.{}",
            marks.display(),
            nap / 10,
            nap % 10
        );
        let name = format!("submit{}", self.submits);
        if self.dice.one_in(5) {
            return self.step(name, &body);
        }
        let array: &[&str] = if self.dice.one_in(3) { &["--array=1-3"] } else { &[] };
        let by = self.any();
        let mut command = self.clusters[by].command(&["sbatch", "--parsable", "-J", &name]);
        command.args(["-o", "/dev/null"]).args(array).args(["--wrap", &body]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        self.submitters.push((name, command.spawn().expect("sbatch runs")));
    }

    /// A job of one step, by `srun`: its task prints the id.
    fn step(&mut self, name: String, body: &str) {
        let by = self.any();
        let line = format!("timeout 60 srun -J {name} -n1 sh -c 'echo $SLURM_JOB_ID; {body}'");
        self.submitters.push((name, self.clusters[by].spawn_shell(&line)));
    }

    /// Cancels a job that may be there. It may be refused.
    fn cancel(&mut self) {
        let by = self.any();
        let known: Vec<u32> = self.history.ids().collect();
        if !known.is_empty() {
            let job = *self.dice.pick(&known);
            if self.clusters[by].sluice(&["scancel", &job.to_string()]).code == 0 {
                self.history.cancelled(job);
            }
        }
    }

    fn strike(&mut self) {
        let which = self.any();
        match self.dice.below(6) {
            0 | 1 => self.servers[which].end("KILL"),
            2 => {
                let pid = self.servers[which].process.id() as i32;
                signal(pid, "STOP");
                self.linger(4000);
                signal(pid, "CONT");
            }
            3 => {
                // It is refused where nobody else waits.
                self.clusters[which].sluice(&["scontrol", "takeover"]);
            }
            4 => {
                self.database.crash();
                self.linger(1500);
                self.database.restart();
            }
            _ => self.servers[which].end("TERM"),
        }
        self.linger(300);
    }

    fn linger(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.dice.below(most_ms)));
    }

    /// Starts servers again that have ended, as their service managers would.
    fn revive(&mut self) {
        for (server, cluster) in self.servers.iter_mut().zip(&self.clusters) {
            if server.process.try_wait().expect("its end").is_some() {
                *server = start(cluster, &self.database);
            }
        }
    }

    /// The ids that were acknowledged; none may occur twice.
    fn collect(&mut self) {
        for (name, child) in std::mem::take(&mut self.submitters) {
            let output = child.wait_with_output().expect("the command ends");
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                self.history.submitted(&name, line.trim().parse().expect("an id"));
            }
        }
    }

    fn round(&mut self) {
        for _ in 0..2 + self.dice.below(4) {
            self.submit();
        }
        self.linger(200);
        self.cancel();
        self.strike();
        self.revive();
        self.submit();
        self.collect();
    }

    fn calm_down(&mut self) {
        within(4 * TIMEOUT, "the queue is empty", || {
            self.revive();
            let said = self.clusters[0].sluice(&["squeue", "-h", "-r", "-o", "%A %t"]);
            (said.code == 0 && said.stdout.trim().is_empty()).then_some(())
        });
    }

    /// What the books say, by any server: the names and states of each job.
    fn books(&self, cluster: &Cluster) -> Option<BTreeMap<String, (String, String)>> {
        let columns = "JobID,JobName,State";
        let line = ["sacct", "-n", "-X", "-P", "-a", "-S", "now-1hour", "-o", columns];
        let said = cluster.sluice(&line);
        let row = |line: &str| {
            let mut words = line.split('|').map(str::to_owned);
            Some((words.next()?, (words.next()?, words.next()?)))
        };
        (said.code == 0).then(|| said.stdout.lines().filter_map(row).collect())
    }

    fn check(&self) {
        let first = &self.clusters[0];
        let runs = first.read("runs");
        let mut seen = BTreeSet::new();
        for line in runs.lines() {
            assert!(seen.insert(line), "'{line}' ran twice\n{runs}");
        }
        let books = within(TIMEOUT, "every end is in the books", || {
            let books = self.books(first)?;
            let is_open = |state: &str| ["PENDING", "RUNNING"].contains(&state);
            let of = |id: &u32| {
                let id = id.to_string();
                let is_its = |job: &str| job.split('_').next() == Some(id.as_str());
                let own = books.iter().filter(|(job, _)| is_its(job.as_str()));
                own.map(|(_, (_, state))| state.clone()).collect::<Vec<_>>()
            };
            let is_booked = |id: &u32| {
                let states = of(id);
                !states.is_empty() && !states.iter().any(|state| is_open(state.as_str()))
            };
            self.history.ids().all(|id| is_booked(&id)).then_some(books.clone())
        });
        // A submit is one job, whether or not its command heard of it.
        let mut jobs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (job, (name, _)) in &books {
            let base = job.split('_').next().expect("an id");
            jobs.entry(name).or_default().insert(base);
        }
        for (name, ids) in &jobs {
            assert_eq!(ids.len(), 1, "{name} has become {ids:?}");
        }
        assert!(jobs.len() <= self.submits as usize);
        assert!(self.history.ids().next().is_some(), "nothing was acknowledged");
        for cluster in &self.clusters {
            within(TIMEOUT, "every server has the same books", || {
                (self.books(cluster)? == books).then_some(())
            });
        }
        let sound = first.sluice(&["store", "check", "--store", &self.database.url()]).ok();
        assert!(sound.contains(" is sound: "), "{sound}");
        self.history.check(&self.database.url());
    }

    fn run(rounds: u32) {
        let mut storm = Self::begin();
        for _ in 0..rounds {
            storm.round();
        }
        storm.calm_down();
        storm.check();
        println!("{} submits, {} acknowledged", storm.submits, storm.history.ids().count());
    }
}

/// Starts a server at the addresses that it had before: agents know them.
fn start(cluster: &Cluster, database: &TestDatabase) -> Server {
    let saved = std::fs::read(cluster.state().join("ports.json")).unwrap_or_default();
    let saved: serde_json::Value = serde_json::from_slice(&saved).unwrap_or_default();
    let at = |key: &str| saved[key].as_str().unwrap_or("127.0.0.1:0").to_owned();
    let mut command = cluster.command(&["server", "--store", &database.url()]);
    command.arg("--state").arg(cluster.state()).arg("--config").arg(cluster.path("conf"));
    // The journal is compared with what clients were told: it keeps what a snapshot would make superfluous.
    command.args(["--snapshot-events", "100000000"]);
    Server::spawn(command.args(["--listen", &at("listen"), "--agents", &at("agents")]))
}

#[test]
fn up_a_storm_over_three_servers_loses_nothing_and_does_nothing_twice() {
    Storm::run(ROUNDS);
}

#[test]
#[ignore = "the long run of `make soak`"]
fn root_soak_a_long_storm_over_three_servers_loses_nothing() {
    let rounds = std::env::var("SLUICE_STORM_ROUNDS").ok().and_then(|text| text.parse().ok());
    Storm::run(rounds.unwrap_or(LONG_ROUNDS));
}
