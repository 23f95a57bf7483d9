//! Whether the server still answers: `squeue`, again and again, as root and as an ordinary user.

use crate::harness::Cluster;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One that takes longer is printed, with the time that the server's log has too.
const SLOW: Duration = Duration::from_millis(500);

/// How long one `squeue` of this user took; it must succeed.
pub fn squeue(cluster: &Cluster, user: &str) -> Duration {
    let user = nix::unistd::User::from_name(user).unwrap().expect("a user of this machine");
    let mut command = cluster.command(&["squeue"]);
    command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let begin = Instant::now();
    let output = command.output().expect("squeue runs");
    let took = begin.elapsed();
    assert!(output.status.success(), "{}: {}", user.name, String::from_utf8_lossy(&output.stderr));
    took
}

/// Runs `squeue` until it is told to stop; the time of each, in order of length.
pub fn watch(cluster: &Cluster, user: &str, stop: &AtomicBool) -> Vec<Duration> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let took = squeue(cluster, user);
        if took > SLOW {
            println!("squeue of {user} took {took:?}, until {}", jiff::Timestamp::now());
        }
        times.push(took);
        // Between two looks, so that the watch is no load of its own.
        std::thread::sleep(Duration::from_millis(100));
    }
    times.sort_unstable();
    times
}
