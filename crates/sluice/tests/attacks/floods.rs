//! Floods of one user: he has his part and no more, and root is answered; what his jobs leave behind is removed.

use crate::harness::{Cluster, TWO_NODES, skip, until, within};
use model::bounds::WAITING_CALLS;
use model::id::JobId;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use wire::client::{Call, Envelope};

/// `games`, who owns nothing here.
const FLOODER: u32 = 5;

/// Calls beyond the bound.
const BEYOND: usize = 20;

/// Connects as another user: the kernel notes the user of the thread.
pub fn connect_as(uid: u32, socket: &Path) -> UnixStream {
    let set = |to: u32| {
        // SAFETY: only this thread's effective user changes; the raw call does not touch the others.
        unsafe { libc::syscall(libc::SYS_setresuid, -1_i64, i64::from(to), -1_i64) }
    };
    assert_eq!(set(uid), 0, "root may");
    let stream = UnixStream::connect(socket);
    assert_eq!(set(0), 0, "back to root");
    stream.expect("a connection")
}

fn await_end(job: u32) -> Vec<u8> {
    let call = Call::AwaitEnd { job: JobId(job), timeout_ms: 600_000 };
    let body = serde_json::to_string(&Envelope::new(call)).expect("JSON");
    let head = "POST /api/v1/call HTTP/1.1\r\nhost: x\r\ncontent-type: application/json";
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn root_waiting_calls_of_a_user_have_a_bound_and_root_is_answered() {
    let wanted = (WAITING_CALLS.most + BEYOND) as u64;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of descriptors");
    // The server gives seven of 32 parts of its descriptors to the socket, and half of those to one user.
    if hard < wanted * 64 / 7 + 1024 || !nix::unistd::geteuid().is_root() {
        return skip("2,000 waiting calls", "this needs root and 20,000 descriptors");
    }
    setrlimit(Resource::RLIMIT_NOFILE, wanted + 1024, hard).expect("more descriptors");
    let cluster = Cluster::up(TWO_NODES);
    let job = cluster.submit_sleeper("--hold");
    let socket = cluster.state().join("sluice.sock");
    let request = await_end(job);
    let mut calls: Vec<UnixStream> = (0..WAITING_CALLS.most + BEYOND)
        .map(|_| {
            let mut stream = connect_as(FLOODER, &socket);
            stream.write_all(&request).expect("a request");
            stream.set_nonblocking(true).expect("a socket");
            stream
        })
        .collect();
    let mut answers: Vec<String> = Vec::new();
    until("the calls beyond the bound to be refused", || {
        for call in &mut calls {
            let mut answer = [0; 2048];
            if let Ok(length) = call.read(&mut answer)
                && length > 0
            {
                answers.push(String::from_utf8_lossy(&answer[..length]).into_owned());
            }
        }
        (answers.len() >= BEYOND).then_some(())
    });
    assert_eq!(answers.len(), BEYOND, "the others wait");
    for answer in &answers {
        assert!(answer.contains("calls of one user that wait for a job"), "{answer}");
        assert!(answer.contains("at most 2000"), "{answer}");
    }
    assert!(cluster.shell("squeue -h -o %i").ok().contains(&job.to_string()));
    drop(calls);
}

#[test]
fn up_texts_of_ended_jobs_are_kept_as_the_site_says_and_removed_after() {
    let conf = format!("{TWO_NODES}\nMinJobAge=2\nAccountingStoreFlags=job_script\n");
    let cluster = Cluster::up(&conf);
    let line = "SECRET=of-the-environment sbatch -o /dev/null --parsable --wrap \
                'echo of-the-script; until [ -e seen ]; do sleep 0.05; done'";
    let job = cluster.shell(line).ok().trim().to_owned();
    let shown = cluster.shell(&format!("sacct --env-vars -j {job}")).ok();
    assert!(shown.contains("\nSECRET=of-the-environment\n"), "while it is in memory: {shown}");
    cluster.write("seen", "");
    cluster.await_end(&job);
    until("the job to leave memory", || {
        (cluster.shell(&format!("scontrol show job {job}")).code != 0).then_some(())
    });
    let script = cluster.shell(&format!("sacct -B -j {job}")).ok();
    assert!(script.starts_with(&format!("Batch Script for {job}\n-----")), "{script}");
    assert!(script.contains("echo of-the-script"), "{script}");
    let none = cluster.shell(&format!("sacct --env-vars -j {job}")).ok();
    assert!(none.ends_with("\nNONE\n"), "{none}");
    let blobs = cluster.state().join("server/blobs");
    let holds =
        |text: &str| cluster.shell(&format!("grep -rqa {text} {}", blobs.display())).code == 0;
    within(Duration::from_secs(90), "the environment to leave the disk", || {
        (!holds("of-the-environment")).then_some(())
    });
    assert!(holds("of-the-script"), "the script is kept");
    assert_eq!(cluster.shell(&format!("sacct -B -j {job}")).ok(), script);
}
