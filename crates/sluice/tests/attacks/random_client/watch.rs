//! Whether the server still answers: `squeue`, again and again, as root and as an ordinary user.

use super::pauses::Pauses;
use crate::harness::{Cluster, program};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One that takes longer is printed, with the time that the server's log has too.
const SLOW: Duration = Duration::from_millis(500);

/// Runs `squeue` as a user until its input ends, and prints from when to when each ran. It is a process of its own, as users have: one that
/// the attackers' process starts waits until all that they hold is copied for it, and for their threads. Its session goes before
/// those of jobs, for users sit at other machines. It pauses between two, so that the watch is no load of its own.
const WATCH: &str = r#"
import os, select, subprocess, sys, time
os.setsid()
try:
    with open("/proc/self/autogroup", "w") as share:
        share.write("-10")
except FileNotFoundError:
    pass
program, uid, gid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
while not select.select([0], [], [], 0.1)[0]:
    began = time.monotonic_ns()
    done = subprocess.run([program, "squeue"], user=uid, group=gid, extra_groups=[], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    print(began, time.monotonic_ns(), done.returncode, done.stderr.decode(errors="replace").replace("\n", " "), flush=True)
"#;

struct Watch {
    user: String,
    process: Child,
    /// It ends when this is closed.
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Watch {
    fn start(cluster: &Cluster, user: &str) -> Self {
        let account = nix::unistd::User::from_name(user).unwrap().expect("a user of this machine");
        let mut command = cluster.command_of("python3");
        command.args(["-c", WATCH, program()]);
        command.args([account.uid.as_raw(), account.gid.as_raw()].map(|id| id.to_string()));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = piped.spawn().expect("python3 runs");
        let (input, output) = (process.stdin.take(), process.stdout.take().expect("a pipe"));
        Self { user: user.to_owned(), process, input, output: BufReader::new(output) }
    }

    /// How long the next `squeue` took, which must have succeeded, on a machine that did not stand still.
    fn next(&mut self, pauses: &Pauses) -> Duration {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        let mut words = line.splitn(3, ' ');
        let mut time = || {
            let word = words.next().expect("the watch goes on");
            Duration::from_nanos(word.parse().expect("nanoseconds"))
        };
        let ran = time()..time();
        let rest = words.next().expect("a code");
        assert!(rest.starts_with("0 "), "squeue of {}: {rest}", self.user);
        let took = (ran.end - ran.start).saturating_sub(pauses.within(&ran));
        if took > SLOW {
            println!("squeue of {} took {took:?}, until {}", self.user, jiff::Timestamp::now());
        }
        took
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.wait();
    }
}

/// The longest of ten.
pub fn slowest_of_ten(cluster: &Cluster, user: &str) -> Duration {
    let mut watch = Watch::start(cluster, user);
    (0..10).map(|_| watch.next(&Pauses::default())).max().expect("ten times")
}

/// The time of each `squeue` until it is told to stop.
pub fn watch(cluster: &Cluster, user: &str, pauses: &Pauses, stop: &AtomicBool) -> Vec<Duration> {
    let mut watch = Watch::start(cluster, user);
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        times.push(watch.next(pauses));
    }
    times
}
