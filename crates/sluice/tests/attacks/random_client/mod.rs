//! A random client that knows the wire: every call by several users, broken requests, frames and connections, and a rogue
//! node, mixed with real work. The server stays the same process, `squeue` answers, memory comes back, the books balance.
//!
//! `SLUICE_FIRE_SEED=N` repeats the calls of a run. `make soak` runs it for an hour, `SLUICE_FIRE_MINUTES=N` for another
//! time.

mod attacker;
mod balance;
mod broken_http;
mod calls;
mod connection;
mod dstack_routes;
mod honest_user;
mod mutation;
mod pauses;
mod rogue_node;
mod ssh_stranger;
mod watch;

use crate::harness::dice::Dice;
use crate::harness::processes::resident_kb;
use crate::harness::{Cluster, TWO_NODES, until};
use attacker::{Attacker, Tally};
use connection::{Entry, become_user};
use model::bounds;
use pauses::Pauses;
use rogue_node::RogueNode;
use ssh_stranger::SshStranger;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const OPERATOR: &str = "games";
const COORDINATOR: &str = "mail";
const MEMBER: &str = "man";
const STRANGER: &str = "lp";
/// Works and looks on, and attacks nobody.
const BYSTANDER: &str = "news";

/// The time that `squeue` may take.
const SQUEUE_MAX: Duration = Duration::from_secs(1);

/// How much longer than in an idle cluster `squeue` may take where the machine itself is slow, as an emulated one.
const SLOWER_THAN_IDLE_MAX: u32 = 100;

/// Memory after a round may be this many times that after the first.
const MEMORY_RATIO_MAX: f64 = 1.25;

/// And so much more: what is free is given back when there is much of it.
const MEMORY_SLACK_KB: u64 = 4 * (bounds::REQUEST_BYTES.most as u64 >> 10);

/// What the server may have more than a fresh one after any round: attackers who are administrators leave accounts and the like.
const MEMORY_KEPT_MAX_KB: u64 = 256 << 10;

/// How long the whole run is.
struct Length {
    rounds: u64,
    round: Duration,
    /// Calls of each attacker in a round.
    calls_max: u64,
}

/// This thread takes the CPUs that the test's other threads and programs leave: attackers are on other machines than the users whose
/// `squeue` is timed.
fn give_way() {
    // SAFETY: it takes three numbers and touches no memory of ours.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}

/// Sets a flag when it goes out of scope, also by a failure: whoever waits for the flag ends too.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Attack {
    cluster: Cluster,
    seed: u64,
    conf: String,
    tokens: Vec<(String, String)>,
    rogue: Mutex<RogueNode>,
    tally: Tally,
}

fn conf() -> String {
    let more = "\
MinJobAge=2
MaxJobCount=2000
MaxArraySize=200
PriorityDecayHalfLife=0
PriorityType=priority/multifactor
Licenses=tool:4
ReturnToService=2
NodeName=rogue1 CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=4000
NodeName=spare1 CPUs=1 RealMemory=100 State=FUTURE
PartitionName=rogue Nodes=rogue1 MaxTime=01:00:00 State=UP
PartitionName=mixed Nodes=node1,rogue1 MaxTime=01:00:00 State=UP
";
    format!("{TWO_NODES}{more}")
}

impl Attack {
    fn new(seed: u64) -> Self {
        let conf = conf();
        let cluster = Cluster::up(&conf);
        for line in [
            "add account lab".to_owned(),
            "add account bench parent=lab".to_owned(),
            format!("add user {MEMBER},{COORDINATOR},{BYSTANDER},{STRANGER} account=lab"),
            format!("add coordinator account=lab names={COORDINATOR}"),
            format!("add user {OPERATOR} account=lab adminlevel=operator"),
        ] {
            cluster.shell(&format!("sacctmgr -i {line}")).ok();
        }
        let token = |user: &str| {
            (user.to_owned(), cluster.sluice(&["token", "user", user]).ok().trim().to_owned())
        };
        let tokens = vec![token(MEMBER), token(STRANGER)];
        let rogue = Mutex::new(RogueNode::join(&cluster));
        Self { cluster, seed, conf, tokens, rogue, tally: Tally::default() }
    }

    fn address(&self, of: &str) -> String {
        let text = std::fs::read_to_string(self.cluster.state().join("ports.json")).unwrap();
        let ports: serde_json::Value = serde_json::from_str(&text).unwrap();
        ports[of].as_str().unwrap().to_owned()
    }

    /// Dice for one part of one round.
    fn dice(&self, round: u64, part: u64) -> Dice {
        let mut dice = Dice::new(self.seed ^ (round << 32) ^ (part << 16));
        dice.next();
        dice
    }

    fn attackers(&self, round: u64) -> Vec<Attacker> {
        let socket = Entry::Socket(self.cluster.state().join("sluice.sock"));
        let port = self.address("listen");
        let by_socket =
            ["root", OPERATOR, COORDINATOR, MEMBER].map(|user| (user.to_owned(), socket.clone()));
        let by_token = self
            .tokens
            .iter()
            .map(|(user, token)| (user.clone(), Entry::Port(port.clone(), Some(token.clone()))));
        let nobody = (STRANGER.to_owned(), Entry::Port(port.clone(), None));
        let all = by_socket.into_iter().chain(by_token).chain([nobody]).enumerate();
        all.map(|(number, (user, entry))| Attacker {
            root: user == "root",
            dice: self.dice(round, number as u64),
            work_dir: self.cluster.path("work").display().to_string(),
            conf: self.conf.clone(),
            user,
            entry,
        })
        .collect()
    }

    /// Attacks for a while, then ends all jobs and checks the books; the times of `squeue` throughout.
    fn round(&mut self, round: u64, length: &Length) -> Vec<Duration> {
        let over = AtomicBool::new(false);
        let pauses = Pauses::default();
        let mut times = Vec::new();
        thread::scope(|scope| {
            let end = SetOnDrop(&over);
            let (cluster, over, pauses) = (&self.cluster, &over, &pauses);
            scope.spawn(move || pauses.watch(over));
            let watches = ["root", BYSTANDER]
                .map(|user| scope.spawn(move || watch::watch(cluster, user, pauses, over)));
            let tally = self.attack(round, length);
            self.tally.add(tally);
            balance::end_all_jobs(cluster);
            balance::check(cluster, &self.tally.acknowledged, &self.tally.runs);
            drop(end);
            times.extend(watches.into_iter().flat_map(|watch| watch.join().expect("a watch")));
        });
        times.sort_unstable();
        times
    }

    /// All attackers at once, with a user who works.
    fn attack(&self, round: u64, length: &Length) -> Tally {
        let stop = AtomicBool::new(false);
        let stop = &stop;
        let (agents, stranger) =
            (self.address("agents"), rogue_node::stranger_config(&self.cluster));
        let mut tally = Tally::default();
        thread::scope(|scope| {
            let end = SetOnDrop(stop);
            let attacks: Vec<_> = self
                .attackers(round)
                .into_iter()
                .map(|mut attacker| {
                    scope.spawn(move || {
                        give_way();
                        if matches!(attacker.entry, Entry::Socket(_)) && !attacker.root {
                            become_user(&attacker.user);
                        }
                        attacker.run(stop, length.calls_max)
                    })
                })
                .collect();
            let mut dice = self.dice(round, 100);
            scope.spawn(move || {
                give_way();
                let mut rogue = self.rogue.lock().expect("the rogue node");
                while !stop.load(Ordering::Relaxed) {
                    rogue.send_reports(500, &mut dice);
                }
            });
            let mut dice = self.dice(round, 101);
            scope.spawn(move || {
                give_way();
                while !stop.load(Ordering::Relaxed) {
                    rogue_node::connect_and_send(&agents, &stranger, &mut dice);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let (mut dice, ssh) = (self.dice(round, 103), self.address("ssh"));
            scope.spawn(move || {
                give_way();
                let mut stranger = SshStranger::default();
                while !stop.load(Ordering::Relaxed) {
                    stranger.connect_and_send(&ssh, &mut dice);
                }
            });
            let dice = self.dice(round, 102);
            let honest =
                scope.spawn(move || honest_user::work(&self.cluster, BYSTANDER, dice, stop));
            thread::sleep(length.round);
            drop(end);
            for attack in attacks {
                tally.add(attack.join().expect("an attacker"));
            }
            let worked = honest.join().expect("the honest user");
            let (lines, jobs) = (worked.lines, worked.submitted.len());
            println!("round {round}: {lines} lines of an honest user, {jobs} jobs");
            tally.add(Tally { acknowledged: worked.submitted, ..Tally::default() });
        });
        tally
    }

    fn server_memory(&self) -> u64 {
        resident_kb(self.cluster.pid("server")).expect("the server runs")
    }

    fn nothing_panicked(&self) {
        for of in ["server", "agent"] {
            let log = self.cluster.log(of);
            let at = log.find("panicked");
            assert_eq!(
                at.map(|at| &log[at.saturating_sub(200)..(at + 800).min(log.len())]),
                None,
                "{of}.log"
            );
        }
        assert_eq!(
            self.tally.failures,
            Vec::<String>::new(),
            "answers that say that the server failed"
        );
    }
}

/// `slowest_of` takes the one of the sorted times of `squeue` that may last at most `squeue_max`.
fn run(
    length: &Length,
    seed: u64,
    slowest_of: impl Fn(&[Duration]) -> Duration,
    squeue_max: impl Fn(Duration) -> Duration,
) {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let mut attack = Attack::new(seed);
    let idle = watch::slowest_of_ten(&attack.cluster, BYSTANDER);
    let pids = ["server", "agent", "keeper"].map(|of| (of, attack.cluster.pid(of)));
    let fresh = attack.server_memory();
    let mut first = None;
    for round in 0..length.rounds {
        let began = Instant::now();
        let times = attack.round(round, length);
        attack.nothing_panicked();
        for (of, pid) in pids {
            assert_eq!(attack.cluster.pid(of), pid, "the {of} is the same process");
        }
        let most = first.map_or(u64::MAX, |first: u64| {
            (first as f64 * MEMORY_RATIO_MAX) as u64 + MEMORY_SLACK_KB
        });
        let most = most.min(fresh + MEMORY_KEPT_MAX_KB);
        // Memory that has become free is given back within some seconds.
        let memory = until(&format!("the server has at most {most} kB"), || {
            Some(attack.server_memory()).filter(|memory| *memory <= most)
        });
        let slowest = slowest_of(&times);
        let Tally { sent, answered, refused, dstack_answered, acknowledged, runs, .. } =
            &attack.tally;
        println!(
            "round {round}: {:?}; {sent} calls, {answered} answered ({dstack_answered} dstack's), {refused} refused, {} jobs, \
             {} runs; squeue {} times, median {:?}, slowest {slowest:?} (idle {idle:?}); server {memory} kB (fresh {fresh} kB)",
            began.elapsed(),
            acknowledged.len(),
            runs.len(),
            times.len(),
            times[times.len() / 2],
        );
        assert!(slowest <= squeue_max(idle), "squeue took {slowest:?}");
        first.get_or_insert(memory);
    }
    assert!(!attack.tally.runs.is_empty(), "no run of dstack's was taken");
    let cluster = &attack.cluster;
    // An administrator among the attackers may have left the cluster without a default partition.
    let output = cluster.run_script(&["-p", "gpu", "-w", "node1"], "echo works");
    assert!(output.contains("works"), "{output}");
    let before = balance::books(cluster);
    // The journal's chain is checked by reading it.
    cluster.kill("server");
    cluster.start();
    assert_eq!(balance::books(cluster), before, "the books after one more start");
}

#[test]
fn root_a_minute_of_random_calls_leaves_the_server_as_it_was() {
    let seed = Dice::seed_from("SLUICE_FIRE_SEED", || 1);
    let length = Length { rounds: 2, round: Duration::from_secs(20), calls_max: 4000 };
    // A machine that does something else for a second is not the server's fault: the long run has the slowest of all.
    let most = |times: &[Duration]| times[times.len() * 95 / 100];
    run(&length, seed, most, |idle| SQUEUE_MAX.max(idle * SLOWER_THAN_IDLE_MAX));
}

#[test]
#[ignore = "an hour: make soak"]
fn root_soak_an_hour_of_random_calls_leaves_the_server_as_it_was() {
    let seed = Dice::seed_from("SLUICE_FIRE_SEED", Dice::seed_of_the_clock);
    let minutes: u64 =
        std::env::var("SLUICE_FIRE_MINUTES").map_or(60, |text| text.parse().expect("minutes"));
    assert!(minutes > 0, "SLUICE_FIRE_MINUTES is 0: expected a number of minutes");
    // Memory is compared between rounds: there are two at least.
    let round = Duration::from_secs((minutes * 30).min(300));
    let rounds = (minutes * 60).div_ceil(round.as_secs());
    let most = |times: &[Duration]| *times.last().expect("times of squeue");
    run(&Length { rounds, round, calls_max: u64::MAX }, seed, most, |_| SQUEUE_MAX);
}
