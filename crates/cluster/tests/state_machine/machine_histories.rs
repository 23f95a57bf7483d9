//! Random histories of machines on demand: calls are lost, made twice or late, machines vanish and are taken back, one or all at
//! once, the server is started again. Whatever happened, no machine is paid for and forgotten.

use crate::machines::{asked, in_cloud, joins, notice, open};
use crate::testbed::{World, ended};
use cluster::Command;
use cluster::command::MachineReport;
use cluster::machine_reconcile::{MachineWork, SourceMachine, differences};
use model::change::JobRef;
use model::id::JobId;
use model::machine::{FailureKind, Machine, MachinePhase};
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

const HISTORIES: u64 = 500;
/// The histories of the long run; its first seed follows the last of the short run.
const LONG_HISTORIES: u64 = 10_000;
const STEPS: u64 = 60;

/// As the server counts: in how many answers a machine is missing until it counts as gone.
const MISSING_MAX: u32 = 2;

struct Dice(u64);

impl Dice {
    /// A number below `count`.
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % count
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len() as u64) as usize].clone())
    }
}

struct Instance {
    token: String,
    made: Timestamp,
    is_live: bool,
}

/// The cloud, as it is; the server knows of it by answers alone.
#[derive(Default)]
struct Cloud {
    instances: BTreeMap<String, Instance>,
}

impl Cloud {
    fn make(&mut self, token: &str, now: Timestamp) -> String {
        let id = format!("i-{}", self.instances.len());
        let instance = Instance { token: token.to_owned(), made: now, is_live: true };
        self.instances.insert(id.clone(), instance);
        id
    }

    /// One token is one machine, also when it is gone.
    fn create(&mut self, token: &str, now: Timestamp) -> String {
        let known = self.instances.iter().find(|(_, of)| of.token == token);
        known.map(|(id, _)| id.clone()).unwrap_or_else(|| self.make(token, now))
    }

    fn delete(&mut self, token: &str, id: Option<&str>) {
        let is_meant = |known: &str, of: &Instance| match id {
            Some(id) => id == known,
            None => of.token == token,
        };
        let meant = self.instances.iter_mut().find(|(known, of)| is_meant(known, of));
        if let Some((_, instance)) = meant {
            instance.is_live = false;
        }
    }

    fn told(&self) -> Vec<SourceMachine> {
        let live = self.instances.iter().filter(|(_, of)| of.is_live);
        let told = live.map(|(id, of)| SourceMachine {
            token: of.token.clone(),
            id: id.clone(),
            since: Some(of.made),
        });
        told.collect()
    }
}

struct History {
    w: World,
    dice: Dice,
    cloud: Cloud,
    missing: BTreeMap<String, u32>,
    jobs: Vec<JobId>,
}

impl History {
    fn machines(&self, of: impl Fn(&Machine) -> bool) -> Vec<Machine> {
        self.w.state.machines.values().filter(|machine| of(machine)).cloned().collect()
    }

    /// Whether there is something that the machine's agent runs on.
    fn is_there(&self, node: &str) -> bool {
        let machine = self.w.state.machines.values().find(|machine| machine.node == node);
        let token = machine.map(|machine| machine.token.as_str());
        self.cloud.instances.values().any(|of| of.is_live && Some(of.token.as_str()) == token)
    }

    fn report(&mut self, token: &str, report: MachineReport) {
        self.w.run(Command::MachineReport { token: token.to_owned(), report });
    }

    /// What the server does about a machine. `fault`: how the call goes wrong, 0 for not at all.
    fn work(&mut self, machine: &Machine, fault: u64) {
        let is_missing = self.missing.get(&machine.token).is_some_and(|n| *n >= MISSING_MAX);
        let (token, now) = (&machine.token, self.w.now);
        match self.w.state.machine_work(machine, is_missing, now) {
            Some(MachineWork::Report(report)) => self.report(token, report),
            Some(MachineWork::Create) => match fault {
                1 => drop(self.cloud.create(token, now)),
                2 => {}
                3 if !self.cloud.instances.values().any(|of| of.token == *token) => {
                    let (kind, text) = (FailureKind::NoCapacity, "sold out".to_owned());
                    self.report(token, MachineReport::NotMade { kind, text });
                }
                // A cloud that breaks its word: a second machine with the same token.
                4 => drop((self.cloud.make(token, now), self.cloud.make(token, now))),
                _ => {
                    let id = self.cloud.create(token, now);
                    let since = self.cloud.instances.get(&id).map(|of| of.made);
                    self.report(token, MachineReport::Made { id, since });
                }
            },
            Some(MachineWork::Delete) => match fault {
                1 => self.cloud.delete(token, machine.id.as_deref()),
                2 => {}
                _ => {
                    self.cloud.delete(token, machine.id.as_deref());
                    self.report(token, MachineReport::Deleted);
                }
            },
            None => {}
        }
    }

    /// The source tells what it has; the ids of strangers.
    fn describe(&mut self) -> BTreeSet<String> {
        let told = self.cloud.told();
        let found = differences(&self.w.state.machines, "cloud", &told, self.w.now);
        for (token, report) in found.reports {
            self.report(&token, report);
        }
        for surplus in found.surplus {
            self.cloud.delete(&surplus.token, Some(&surplus.id));
        }
        self.missing.retain(|token, _| found.missing.contains(token));
        for token in found.missing {
            *self.missing.entry(token).or_default() += 1;
        }
        found.strangers.into_iter().map(|stranger| stranger.id).collect()
    }

    /// The nodes of a running job that are there say that it has ended.
    fn end(&mut self, job: JobId) {
        let Some(attempt) = self.w.job(job).attempt_id() else { return };
        let nodes = self.w.job(job).attempt().map(|a| a.held_nodes.clone()).unwrap_or_default();
        for node in nodes {
            if self.is_there(&node) {
                self.w.report(&node, attempt, ended(0));
            }
        }
    }

    fn running(&self) -> Vec<JobId> {
        let jobs = self.jobs.iter().copied();
        let is_running =
            |job: &JobId| self.w.state.jobs.get(job).is_some_and(|job| job.attempt_id().is_some());
        jobs.filter(is_running).collect()
    }

    fn vanish(&mut self) {
        let live = self.cloud.instances.iter().filter(|(_, of)| of.is_live);
        let live: Vec<String> = live.map(|(id, _)| id.clone()).collect();
        let Some(id) = self.dice.one_of(&live) else { return };
        let Some(instance) = self.cloud.instances.get_mut(&id) else { return };
        instance.is_live = false;
        let token = instance.token.clone();
        let node = self.w.state.machines.get(&token).map(|machine| machine.node.clone());
        let gone = node.filter(|node| !self.is_there(node));
        if let Some(node) = gone.filter(|node| self.w.state.nodes.contains_key(node)) {
            self.w.run(Command::NodeLost { node });
        }
    }

    /// The cloud takes all that it has back at once; some of the machines have heard of it before.
    fn storm(&mut self) {
        for machine in self.machines(|of| of.phase == MachinePhase::Joined) {
            if self.is_there(&machine.node) && self.dice.below(2) == 0 {
                self.w.run(notice(&machine.node));
            }
        }
        while self.cloud.instances.values().any(|of| of.is_live) {
            self.vanish();
        }
    }

    fn step(&mut self) {
        match self.dice.below(15) {
            0 if self.jobs.len() < 8 => {
                let ask = in_cloud().cpus(1 + self.dice.below(2) as u32);
                let is_kept = self.dice.below(2) == 0;
                self.jobs.push(self.w.submit(if is_kept { ask.requeue() } else { ask }));
            }
            1 | 2 => drop(asked(&mut self.w)),
            3 => drop(self.w.plan()),
            4..=6 => {
                let live = self.machines(Machine::is_live);
                if let Some(machine) = self.dice.one_of(&live) {
                    let fault = self.dice.below(8);
                    self.work(&machine, fault);
                }
            }
            7 => drop(self.describe()),
            8 | 9 => {
                let coming = self.machines(|of| {
                    matches!(of.phase, MachinePhase::Asked | MachinePhase::Made)
                        && self.is_there(&of.node)
                        && !self.w.state.nodes.contains_key(&of.node)
                });
                if let Some(machine) = self.dice.one_of(&coming) {
                    joins(&mut self.w, machine.number);
                }
            }
            10 => self.vanish(),
            11 => {
                let joined = self.machines(|of| of.phase == MachinePhase::Joined);
                let machine = self.dice.one_of(&joined);
                if let Some(machine) = machine.filter(|of| self.is_there(&of.node)) {
                    self.w.run(notice(&machine.node));
                }
            }
            12 => {
                let running = self.running();
                if let Some(job) = self.dice.one_of(&running) {
                    self.end(job);
                }
            }
            13 if self.dice.below(4) == 0 => self.storm(),
            _ => {
                if self.dice.below(4) == 0 {
                    self.w.restart();
                    self.missing.clear();
                }
                let secs = self.dice.below(60);
                self.w.pass(secs);
            }
        }
    }

    /// Nothing goes wrong any more, and no job is wanted: the ids of strangers at the end.
    fn settle(&mut self) -> BTreeSet<String> {
        let is_kept = |job: &JobId| self.w.state.jobs.contains_key(job);
        let jobs = self.jobs.iter().copied().filter(is_kept).map(JobRef::whole);
        let jobs: Vec<JobRef> = jobs.collect();
        if !jobs.is_empty() {
            self.w.cancel(&jobs);
        }
        for _ in 0..40 {
            self.running().into_iter().for_each(|job| self.end(job));
            self.describe();
            for machine in self.machines(Machine::is_live) {
                self.work(&machine, 0);
            }
            self.w.pass(61);
        }
        self.describe()
    }
}

#[test]
fn no_machine_is_paid_for_and_forgotten_in_random_histories() {
    check_histories(0..HISTORIES);
}

#[test]
#[ignore = "a long run: make soak"]
fn root_soak_no_machine_is_forgotten_in_ten_thousand_histories() {
    check_histories(HISTORIES..HISTORIES + LONG_HISTORIES);
}

fn check_histories(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let (dice, cloud) = (Dice(seed), Cloud::default());
        let (missing, jobs) = (BTreeMap::new(), Vec::new());
        let mut history = History { w: open(), dice, cloud, missing, jobs };
        for _ in 0..STEPS {
            history.step();
        }
        let strangers = history.settle();
        let left = history.machines(Machine::is_live);
        assert!(left.is_empty(), "seed {seed}: {left:?}");
        for (id, instance) in &history.cloud.instances {
            let is_told = strangers.contains(id);
            assert!(!instance.is_live || is_told, "seed {seed}: {id} is paid for and forgotten");
            let mut same = history.cloud.instances.values().filter(|of| of.token == instance.token);
            let is_only_one = same.nth(1).is_none();
            let machine = history.w.state.machines.get(&instance.token);
            let machine = machine.filter(|machine| machine.id.as_ref() == Some(id));
            // Where the cloud made two, it is not known which of them was there first.
            if let Some(machine) = machine.filter(|_| is_only_one) {
                assert_eq!(machine.made, Some(instance.made), "seed {seed}: {id}");
            }
        }
    }
}
