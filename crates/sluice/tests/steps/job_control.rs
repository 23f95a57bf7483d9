//! What a user types at the terminal of an `srun`: Ctrl-Z and `fg` in a shell with job control, and a long paste.

use crate::harness::interactive::read_until;
use crate::harness::pty::OnTerminal;
use crate::harness::{Cluster, TWO_NODES, until};
use nix::pty::{OpenptyResult, openpty};
use nix::sys::termios::LocalFlags;
use nix::unistd::tcgetpgrp;
use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

/// A waiting `srun` stops with its terminal, goes on with `fg`, and is interrupted as if nothing had been.
#[test]
fn up_waiting_srun_that_was_stopped_goes_on_in_the_foreground_and_is_interrupted() {
    let cluster = Cluster::up(TWO_NODES);
    let OpenptyResult { master, slave } = openpty(None, None).expect("a terminal");
    let script = "set -m; srun -n1 --begin=now+1hour true; echo stopped $?; \
                  read x; fg; echo ended $?";
    let mut command = Command::new("setsid");
    // The terminal controls the session: its keys are signals to the foreground group.
    command.args(["--ctty", "--wait", "bash", "-c", script]);
    cluster.set_up(&mut command);
    let copy = || Stdio::from(slave.try_clone().expect("the terminal again"));
    let mut shell = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().expect("it runs");
    let mut screen = File::from(master);
    let mut seen = String::new();
    read_until(&mut screen, &mut seen, |text| {
        text.contains("srun: job 1 queued and waiting for resources")
    });
    let group = tcgetpgrp(&screen).expect("a foreground group");
    screen.write_all(b"\x1a").expect("a terminal");
    read_until(&mut screen, &mut seen, |text| text.contains("stopped 148\r\n"));
    assert_ne!(tcgetpgrp(&screen), Ok(group), "{seen:?}");
    cluster.await_state(1, "PENDING");
    screen.write_all(b"\n").expect("a terminal");
    until("srun is in the foreground", || (tcgetpgrp(&screen) == Ok(group)).then_some(()));
    screen.write_all(b"\x03").expect("a terminal");
    read_until(&mut screen, &mut seen, |text| text.contains("ended 1\r\n"));
    assert!(seen.contains("srun: Job allocation 1 has been revoked\r\n"), "{seen:?}");
    assert!(shell.wait().expect("it ends").success());
    assert!(cluster.await_end(1).starts_with("CANCELLED"));
}

/// More than the terminals on the way hold at a time.
#[test]
fn up_paste_of_64_kib_arrives_whole_under_srun_pty() {
    let keys = LocalFlags::ISIG | LocalFlags::ICANON | LocalFlags::ECHO;
    let cluster = Cluster::up(TWO_NODES);
    let args = ["srun", "--pty", "-n1", "sh", "-c", "cat > pasted"];
    let mut srun = OnTerminal::start(&cluster, &args, (80, 24), &[]);
    until("the terminal is raw", || (!srun.mode().local_flags.intersects(keys)).then_some(()));
    let text: String = (0..2048).map(|line| format!("{line:031}\n")).collect();
    // Ctrl-D at the beginning of a line ends the input.
    let writer = srun.paste(format!("{text}\x04"));
    assert!(srun.end().success());
    writer.join().expect("all was taken");
    let arrived = cluster.read("pasted");
    assert!(arrived == text, "{} of {} bytes arrived, or others", arrived.len(), text.len());
}
