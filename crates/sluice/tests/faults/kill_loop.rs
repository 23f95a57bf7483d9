//! `kill -9` of all daemons in a loop, at moments drawn from a seed, with jobs and steps in every state. Afterwards each
//! attempt has run once, there is one record for each, and nothing is left over.
//!
//! `SLUICE_KILL_SEED=N` repeats one schedule.

use crate::harness::dice::Dice;
use crate::harness::processes::{launcher_of, supervisors};
use crate::harness::{Cluster, TWO_NODES, is_alive, signal, until, within};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Child;
use std::time::{Duration, Instant};

const ROUNDS: u32 = 12;

/// Writes a line for each start of an attempt. A short append is one write, so lines do not mix.
const MARK: &str = "echo $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} >> runs";

struct Fire {
    cluster: Cluster,
    dice: Dice,
    /// Shells whose commands print the job ids that were acknowledged.
    submitters: Vec<Child>,
    sruns: Vec<Child>,
    agents: Vec<Child>,
    acknowledged: BTreeSet<u32>,
    runs: u32,
}

impl Fire {
    fn new() -> Self {
        Self {
            cluster: Cluster::up(TWO_NODES),
            dice: Dice::new(Dice::seed_from("SLUICE_KILL_SEED", Dice::seed_of_the_clock)),
            submitters: Vec::new(),
            sruns: Vec::new(),
            agents: Vec::new(),
            acknowledged: BTreeSet::new(),
            runs: 0,
        }
    }

    fn submit_something(&mut self) {
        let nap = self.dice.below(12);
        let nap = format!("sleep {}.{}", nap / 10, nap % 10);
        let body = format!("{MARK}; {nap}; echo end");
        let steps = format!(
            "{MARK}; srun sh -c 'echo $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} $SLURM_PROCID >> steps; {nap}'; echo end"
        );
        let (options, body) = match self.dice.below(6) {
            0 => ("--no-requeue", body),
            1 => ("--requeue", body),
            2 => ("--requeue --array=1-3", body),
            3 => ("--requeue -N2 -n2", steps),
            4 => {
                let line = format!("{MARK}; {nap}; echo end");
                let mut command = self.cluster.command(&["srun", "-J", "outer", "sh", "-c", &line]);
                command.stdin(std::process::Stdio::null());
                command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
                return self.sruns.push(command.spawn().unwrap());
            }
            _ => return self.apply_task(&nap),
        };
        let quoted = body.replace('\'', "'\\''");
        let line = format!("sbatch --parsable -o out-%j {options} --wrap '{quoted}'");
        self.submitters.push(self.cluster.spawn_shell(&line));
    }

    /// Submits through `sluice apply`.
    fn apply_task(&mut self, nap: &str) {
        self.runs += 1;
        let name = format!("run-{}", self.runs);
        let marks = self.cluster.path("work").join("runs");
        let file = self.cluster.write(
            &format!("{name}.yml"),
            &format!(
                "type: task\nname: {name}\ncommands:\n  - echo $SLURM_JOB_ID ${{SLURM_RESTART_COUNT:-0}} >> {}\n  - {nap}\nresources:\n  cpu: 1\n  memory: 16MB..\n",
                marks.display()
            ),
        );
        let line =
            format!("{} apply -y -d -f {} >/dev/null", crate::harness::program(), file.display());
        self.submitters.push(self.cluster.spawn_shell(&line));
    }

    /// Applies a random action to an existing job in any state.
    fn meddle(&mut self) {
        let text = self.cluster.sluice(&["squeue", "-h", "-r", "-o", "%A"]).stdout;
        let there: Vec<&str> = text.lines().map(str::trim).collect();
        if there.is_empty() {
            return;
        }
        let job = self.dice.pick(&there);
        // It may be refused because of the job's state.
        match self.dice.below(5) {
            0 => self.cluster.sluice(&["scancel", job]),
            1 => self.cluster.sluice(&["scontrol", "requeue", job]),
            2 | 3 => self.cluster.sluice(&["scontrol", "suspend", job]),
            _ => self.cluster.sluice(&["scontrol", "resume", job]),
        };
    }

    fn kill_something(&mut self) {
        match self.dice.below(7) {
            0 | 1 => {
                self.cluster.kill("server");
                self.linger();
                self.cluster.start();
            }
            2 | 3 => {
                self.cluster.kill("agent");
                self.linger();
                self.start_agent();
            }
            4 => {
                self.cluster.leave_agent_alone();
                let agent = self.cluster.pid("agent");
                if let Some(launcher) = launcher_of(agent) {
                    signal(launcher, "KILL");
                    until("an agent without its launcher ends", || {
                        (!is_alive(agent)).then_some(())
                    });
                }
                self.start_agent();
            }
            5 => {
                let there = supervisors(&self.cluster.state());
                if !there.is_empty() {
                    signal(*self.dice.pick(&there), "KILL");
                }
            }
            _ => {
                for pid in supervisors(&self.cluster.state()).into_iter().take(2) {
                    signal(pid, "KILL");
                }
                self.cluster.kill("agent");
                self.cluster.kill("server");
                self.linger();
                self.cluster.start();
            }
        }
    }

    fn linger(&mut self) {
        std::thread::sleep(Duration::from_millis(self.dice.below(120)));
    }

    fn start_agent(&mut self) {
        let state = self.cluster.state();
        let mut command = self.cluster.command(&["agent", "--state", state.to_str().unwrap()]);
        let log = std::fs::OpenOptions::new().append(true).open(state.join("agent.log")).unwrap();
        command.arg("--join").arg(state.join("server/local.join"));
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(log);
        self.agents.push(command.spawn().unwrap());
        let before = self.agents.last().unwrap().id() as i32;
        until("the new agent is there", || (self.cluster.pid("agent") == before).then_some(()));
    }

    /// Collects the acknowledged ids; none may occur twice.
    fn collect(&mut self) {
        for child in self.submitters.drain(..) {
            let output = child.wait_with_output().unwrap();
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let id: u32 = line.trim().parse().expect("an id");
                assert!(self.acknowledged.insert(id), "id {id} was given twice");
            }
        }
    }

    /// Waits until the queue is empty. Suspended jobs are resumed, and those that were requeued and held since are released.
    fn burn_out(&mut self) {
        // The allocation of a dead `srun` is released after half a minute.
        let timeout = 2 * crate::harness::TIMEOUT;
        let deadline = Instant::now() + timeout;
        within(2 * timeout, "the queue is empty", || {
            let text = self.cluster.sluice(&["squeue", "-h", "-r", "-o", "%A %r %j %N %t"]).ok();
            assert!(Instant::now() < deadline, "these do not end:\n{text}");
            for line in text.lines() {
                let job = line.split_whitespace().next().unwrap();
                if line.ends_with(" S") {
                    self.cluster.sluice(&["scontrol", "resume", job]);
                } else if line.contains("requeued in held state") {
                    self.cluster.sluice(&["scontrol", "release", job]);
                }
            }
            text.trim().is_empty().then_some(())
        });
        for srun in &mut self.sruns {
            until("every srun has ended", || srun.try_wait().unwrap().map(drop));
        }
    }
}

/// The states of each job's records, oldest first.
fn books(cluster: &Cluster) -> BTreeMap<u32, Vec<String>> {
    let line = ["sacct", "-n", "-X", "-D", "-P", "-a", "-S", "now-1hour", "-o", "JobIDRaw,State"];
    let mut entries: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for row in cluster.sluice(&line).ok().lines() {
        let (id, state) = row.split_once('|').expect("two columns");
        entries.entry(id.parse().expect("an id")).or_default().push(state.into());
    }
    entries
}

/// The lines of a file, none of which may occur twice.
fn marks(cluster: &Cluster, name: &str) -> BTreeSet<String> {
    let text = cluster.read(name);
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        assert!(seen.insert(line.to_string()), "{name}: '{line}' ran twice\n{text}");
    }
    seen
}

fn each_attempt_ran_once(cluster: &Cluster, acknowledged: &BTreeSet<u32>) {
    let runs = marks(cluster, "runs");
    marks(cluster, "steps");
    let entries = books(cluster);
    let text =
        cluster.sluice(&["squeue", "-h", "-r", "-t", "all", "-O", "JobID:20,RestartCnt:20"]).ok();
    let restarts: BTreeMap<u32, usize> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        })
        .collect();
    assert!(!restarts.is_empty(), "ended jobs are still shown: {text}");
    for id in acknowledged {
        assert!(entries.contains_key(id), "job {id} was acknowledged and is not in the books");
    }
    for (id, states) in &entries {
        for state in states {
            let open = ["PENDING", "RUNNING", "SUSPENDED"].contains(&state.as_str());
            assert!(!open, "job {id}: {states:?}");
        }
        // One record for each start, and one for a job that was cancelled while pending.
        let starts = restarts.get(id).map(|n| n + 1);
        let waited = usize::from(states.last().is_some_and(|s| s.starts_with("CANCELLED")));
        assert!(
            starts.is_none_or(|n| n == states.len() || n + waited == states.len()),
            "job {id} was started {starts:?} times, in the books {states:?}"
        );
        let started = runs.iter().filter(|r| r.starts_with(&format!("{id} "))).count();
        assert!(started <= states.len(), "job {id} ran {started} times, in the books {states:?}");
        if states.last().is_some_and(|s| s == "COMPLETED") {
            let last = format!("{id} {}", states.len() - 1);
            assert!(runs.contains(&last), "job {id} completed and did not run: {states:?}");
            let output = std::fs::read_to_string(cluster.path("work").join(format!("out-{id}")));
            assert!(
                output.as_ref().is_ok_and(|text| text.ends_with("end\n")) || output.is_err(),
                "job {id}: its output is {output:?}"
            );
        }
    }
}

fn nothing_is_left(cluster: &Cluster) {
    until("no supervisor is left", || supervisors(&cluster.state()).is_empty().then_some(()));
    until("no group is left", || cluster.groups().is_empty().then_some(()));
    until("no spool is left", || {
        let left = cluster.shell("ls -d ../state/nodes/*/spool/* 2>/dev/null").stdout;
        left.trim().is_empty().then_some(())
    });
    let free = cluster.sluice(&["sinfo", "-h", "-p", "gpu", "-o", "%t %C"]).ok();
    assert_eq!(free.trim(), "idle 0/64/0/64");
}

#[test]
fn up_a_storm_of_kills_runs_each_attempt_once_and_leaves_nothing_over() {
    let mut fire = Fire::new();
    for _ in 0..ROUNDS {
        for _ in 0..2 + fire.dice.below(4) {
            fire.submit_something();
        }
        fire.linger();
        fire.meddle();
        fire.linger();
        fire.kill_something();
        fire.meddle();
        fire.collect();
    }
    fire.burn_out();
    let cluster = &fire.cluster;
    nothing_is_left(cluster);
    each_attempt_ran_once(cluster, &fire.acknowledged);
    // The same after a restart from disk.
    let before = books(cluster);
    cluster.kill("server");
    cluster.start();
    assert_eq!(books(cluster), before, "the books after one more start");
    println!("{} jobs, {} entries", before.len(), before.values().map(Vec::len).sum::<usize>());
}

/// The supervisor's child holds its sockets until it executes the script. Opening a FIFO delays that.
#[test]
fn up_a_supervisor_killed_before_its_script_executes_is_noticed() {
    for agent_too in [false, true] {
        let cluster = Cluster::up(TWO_NODES);
        cluster.shell("mkfifo pipe").ok();
        let id = cluster.submit(&["--no-requeue", "-o", "pipe", "--wrap", "true"]);
        let supervisor = until("it is being started", || {
            // The supervisor and its child, which is still a copy of it.
            let found = supervisors(&cluster.state());
            let parent = found.iter().copied().min()?;
            (found.len() == 2).then_some(parent)
        });
        if agent_too {
            cluster.kill("agent");
        }
        signal(supervisor, "KILL");
        if agent_too {
            cluster.kill("server");
            cluster.start();
        }
        assert_eq!(cluster.await_end(id), "NODE_FAIL|0:0", "agent killed too: {agent_too}");
        nothing_is_left(&cluster);
    }
}
