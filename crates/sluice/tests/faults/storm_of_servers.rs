//! Three servers on one database, two agents, and a storm drawn from a seed: servers are killed and frozen, the lead is handed over
//! and the database is restarted, under submits, arrays, steps and cancels through every server. Afterwards each attempt has run once,
//! every submit is one job at most, everything that was acknowledged is in the books, and what clients were told is what the journal has.
//!
//! As root the same on hosts of their own, which are network namespaces, with cuts between a server and the database or an agent.
//!
//! `SLUICE_STORM_SEED=N` repeats one schedule; `SLUICE_STORM_ROUNDS=N` sets the length of the long run.

use crate::database::TestDatabase;
use crate::harness::dice::Dice;
use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, TIMEOUT, TWO_NODES, signal, within};
use crate::history::History;
use crate::server_hosts;
use crate::servers::{Server, agent, copy_keys, server_command_at};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::time::Duration;

const ROUNDS: u32 = 6;
const LONG_ROUNDS: u32 = 150;
const SERVERS: usize = 3;
const NODES: [&str; 2] = ["node1", "node2"];
/// The journal is compared with what clients were told: it keeps what a snapshot would make superfluous.
const KEEP_JOURNAL: [&str; 2] = ["--snapshot-events", "100000000"];

struct Storm {
    dice: Dice,
    /// The hosts of the servers and, behind them, of the nodes; without them all is on this machine.
    hosts: Option<Hosts>,
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
    fn begin(hosts: Option<Hosts>) -> Self {
        let database = hosts.as_ref().map_or_else(TestDatabase::start, server_hosts::database);
        let mut storm = Self {
            dice: Dice::new(Dice::seed_from("SLUICE_STORM_SEED", Dice::seed_of_the_clock)),
            hosts,
            database,
            clusters: (0..SERVERS).map(|_| Cluster::folder(TWO_NODES)).collect(),
            servers: Vec::new(),
            agents: Vec::new(),
            submitters: Vec::new(),
            history: History::default(),
            submits: 0,
        };
        for which in 0..SERVERS {
            if which > 0 {
                copy_keys(&storm.clusters[0], &storm.clusters[which]);
            }
            let server = storm.start(which);
            let said = if which == 0 { "sluice is up" } else { "sluice waits as a standby" };
            server.await_line(said);
            storm.servers.push(server);
        }
        storm.start_agents();
        storm
    }

    /// Starts a server at the addresses that it had before: agents know them.
    fn start(&self, which: usize) -> Server {
        let cluster = &self.clusters[which];
        match &self.hosts {
            Some(hosts) => server_hosts::start(hosts, host_of(which), cluster, &KEEP_JOURNAL),
            None => start_here(cluster, &self.database),
        }
    }

    fn start_agents(&mut self) {
        let Some(hosts) = &mut self.hosts else {
            let servers: Vec<&Cluster> = self.clusters.iter().collect();
            self.agents = NODES.map(|node| agent(node, &servers)).into();
            return;
        };
        let servers: Vec<u32> = (0..SERVERS).map(host_of).collect();
        for (at, node) in NODES.iter().enumerate() {
            server_hosts::join(hosts, host_of(SERVERS + at), node, &self.clusters[0], &servers);
        }
    }

    /// Cuts the host of a server off from the database or from a node, for a while.
    fn cut(&mut self, which: usize) {
        let from = match self.dice.below(3) {
            0 => server_hosts::DATABASE_ADDRESS.to_owned(),
            _ => server_hosts::address(host_of(SERVERS + self.dice.below(2) as usize)),
        };
        let for_ms = self.dice.below(5000);
        let Some(hosts) = &self.hosts else { return };
        server_hosts::cut_off(hosts, host_of(which), &from);
        std::thread::sleep(Duration::from_millis(for_ms));
        server_hosts::mend(hosts, host_of(which), &from);
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
        let strikes = if self.hosts.is_some() { 9 } else { 6 };
        match self.dice.below(strikes) {
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
            5 => self.servers[which].end("TERM"),
            _ => self.cut(which),
        }
        self.linger(300);
    }

    fn linger(&mut self, most_ms: u64) {
        std::thread::sleep(Duration::from_millis(self.dice.below(most_ms)));
    }

    /// Starts servers again that have ended, as their service managers would.
    fn revive(&mut self) {
        for which in 0..SERVERS {
            if self.servers[which].process.try_wait().expect("its end").is_some() {
                self.servers[which] = self.start(which);
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

    fn run(rounds: u32, hosts: Option<Hosts>) {
        let mut storm = Self::begin(hosts);
        for _ in 0..rounds {
            storm.round();
        }
        storm.calm_down();
        storm.check();
        println!("{} submits, {} acknowledged", storm.submits, storm.history.ids().count());
    }
}

/// The host of a server; those of nodes follow.
fn host_of(which: usize) -> u32 {
    which as u32 + 1
}

/// Starts a server on this machine.
fn start_here(cluster: &Cluster, database: &TestDatabase) -> Server {
    let saved = std::fs::read(cluster.state().join("ports.json")).unwrap_or_default();
    let saved: serde_json::Value = serde_json::from_slice(&saved).unwrap_or_default();
    let at = |key: &str| saved[key].as_str().unwrap_or("127.0.0.1:0").to_owned();
    let (listen, agents) = (at("listen"), at("agents"));
    let mut command = server_command_at(cluster, &database.url(), [&listen, &agents]);
    Server::spawn(command.args(KEEP_JOURNAL))
}

#[test]
fn up_a_storm_over_three_servers_loses_nothing_and_does_nothing_twice() {
    Storm::run(ROUNDS, None);
}

#[test]
fn root_a_storm_with_cuts_over_five_hosts_loses_nothing_and_does_nothing_twice() {
    Storm::run(ROUNDS, Some(Hosts::up(host_of(SERVERS + NODES.len() - 1))));
}

#[test]
#[ignore = "the long run of `make soak`"]
fn root_soak_a_long_storm_over_three_servers_loses_nothing() {
    let rounds = std::env::var("SLUICE_STORM_ROUNDS").ok().and_then(|text| text.parse().ok());
    let hosts = Hosts::up(host_of(SERVERS + NODES.len() - 1));
    Storm::run(rounds.unwrap_or(LONG_ROUNDS), Some(hosts));
}
