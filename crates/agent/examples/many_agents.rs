//! Load on a server: `many_agents STATE FOLDER SECONDS` is an agent for each join file in FOLDER, in one process. Jobs run for
//! SECONDS and do nothing. Says every half second, in a line of JSON, what the agents have seen: `times_ms` are those of
//! the reports that were acknowledged since the last line.

use agent::load::many_agents::ManyAgents;
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

const LINE_INTERVAL: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [state, folder, seconds] = arguments.as_slice() else {
        return Err("usage: many_agents STATE FOLDER SECONDS".into());
    };
    let (_, most) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE)?;
    nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, most, most)?;
    let mut join_files: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    join_files.sort();
    let job_time = Duration::from_secs_f64(seconds.parse()?);
    let counts = ManyAgents { state: state.into(), join_files, job_time }.start();
    let mut lines = tokio::time::interval(LINE_INTERVAL);
    loop {
        lines.tick().await;
        let times = counts.take_times().into_iter().map(|time| time.as_secs_f64() * 1e3);
        let times: Vec<f64> = times.collect();
        let line = serde_json::json!({
            "connected": counts.connected.load(Ordering::Relaxed),
            "welcomed": counts.welcomed.load(Ordering::Relaxed),
            "refused": counts.refused.load(Ordering::Relaxed),
            "unreachable": counts.unreachable.load(Ordering::Relaxed),
            "lost": counts.lost.load(Ordering::Relaxed),
            "running": counts.running.load(Ordering::Relaxed),
            "ended": counts.ended.load(Ordering::Relaxed),
            "orders_refused": counts.orders_refused.load(Ordering::Relaxed),
            "last_refusal": counts.last_refusal(),
            "times_ms": times,
        });
        println!("{line}");
    }
}
