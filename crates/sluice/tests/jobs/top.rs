//! `sluice top` on a terminal, and its one frame as text.

use crate::harness::pty::OnTerminal;
use crate::harness::{Cluster, CommandOutput, TWO_NODES, signal};
use std::process::Stdio;

const ENTER_SCREEN: &str = "\x1b[?1049h";
const LEAVE_SCREEN: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

fn cluster() -> (Cluster, u32, u32) {
    let cluster = Cluster::up(TWO_NODES);
    let running =
        cluster.submit(&["-J", "trainer", "--gres=gpu:2", "--wrap", "echo epoch-one; sleep 600"]);
    let waits = cluster.submit(&["-J", "sweeper", "-H", "--wrap", "true"]);
    cluster.await_state(running, "RUNNING");
    cluster.await_file(&format!("slurm-{running}.out"), |text| text.contains("epoch-one"));
    (cluster, running, waits)
}

#[test]
fn up_top_prints_one_frame_with_nodes_queue_and_log() {
    let (cluster, running, waits) = cluster();
    let mut command = cluster.command(&["top", "--once"]);
    let text = CommandOutput::from(command.env("COLUMNS", "120").output().unwrap()).ok();
    let line = |words: &[&str]| {
        let found = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
        assert!(found, "{words:?}\n{text}");
    };
    line(&["test  nodes 2/2", "GPUs 2/16", "1 running, 1 waiting"]);
    line(&["node1", "mix", "2/8"]);
    line(&[&running.to_string(), "R ", "trainer", "node1"]);
    line(&[&waits.to_string(), "PD", "sweeper", "(JobHeldUser)"]);
    line(&["epoch-one"]);
    assert!(!text.contains('\x1b'), "{text:?}");
}

#[test]
fn up_top_without_a_terminal_says_so_in_one_line() {
    let (cluster, ..) = cluster();
    let mut command = cluster.command(&["top"]);
    let said = CommandOutput::from(command.stdin(Stdio::null()).output().unwrap());
    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert_eq!(
        said.stderr,
        "sluice: error: top needs a terminal; `sluice top --once` prints one frame as text\n"
    );
}

#[test]
fn up_top_shows_the_cluster_cancels_holds_and_explains_by_keys_and_gives_the_terminal_back() {
    let (cluster, running, waits) = cluster();
    let mut top = OnTerminal::start(&cluster, &["top", "-i", "1"], (80, 24), &[]);
    top.until("a frame", |seen| {
        ["node1", "node2", "trainer", "sweeper", "epoch-one", "q quit"]
            .iter()
            .all(|word| seen.contains(word))
    });
    assert!(top.seen.contains(ENTER_SCREEN));
    // A job that comes is shown without a key.
    let comes = cluster.submit(&["-J", "arrival", "-H", "--wrap", "true"]);
    top.until("the job that came", |seen| seen.contains("arrival"));
    cluster.sluice(&["scancel", &comes.to_string()]).ok();
    // Explained: the held job below.
    top.press("\x1b[B");
    top.press("e");
    top.until("the explanation", |seen| seen.contains("Its owner holds it"));
    top.press("x");
    // Released: it has room, and ends.
    top.press("h");
    top.until("the release", |seen| seen.contains("released"));
    cluster.await_end(waits);
    // Cancelled, after a question.
    top.press("\x1b[H");
    top.press("c");
    top.until("the question", |seen| seen.contains(&format!("Cancel job {running}?")));
    top.press("y");
    top.until("the cancel", |seen| seen.contains("cancelled"));
    assert!(cluster.await_end(running).starts_with("CANCELLED"));
    top.resize((40, 10));
    // The next key takes away what was said of the cancel.
    top.press("j");
    top.until("a smaller frame", |seen| seen.contains("? help"));
    // No key is forgotten that comes together with a new size.
    for round in 0..20 {
        top.resize(if round % 2 == 0 { (60, 20) } else { (40, 10) });
        top.press("?");
        top.until("the help", |seen| seen.contains("the other list"));
        top.press("x");
        top.until("the rows", |seen| seen.contains("? help") && !seen.contains("the other list"));
    }
    top.press("q");
    assert!(top.end().success());
    assert!(top.seen.contains(LEAVE_SCREEN) && top.seen.ends_with(SHOW_CURSOR), "{:?}", top.seen);
}

/// From a machine that has nothing of the cluster but an address and a token.
#[test]
fn up_top_shows_its_screen_and_takes_keys_over_the_address_of_a_server() {
    let (cluster, running, waits) = cluster();
    let server = format!("http://{}", cluster.address_of("listen"));
    let token = std::fs::read_to_string(cluster.state().join("admin.token")).expect("a token");
    let args = ["top", "--server", &server, "-i", "1"];
    let variables = [("SLUICE_TOKEN", token.trim())];
    let mut top = OnTerminal::start(&cluster, &args, (80, 24), &variables);
    top.until("a frame", |seen| {
        ["node1", "node2", "trainer", "sweeper", "epoch-one", "q quit"]
            .iter()
            .all(|word| seen.contains(word))
    });
    assert!(top.seen.contains(ENTER_SCREEN));
    top.press("\x1b[B");
    top.press("h");
    top.until("the release", |seen| seen.contains("released"));
    cluster.await_end(waits);
    top.press("\x1b[H");
    top.press("c");
    top.until("the question", |seen| seen.contains(&format!("Cancel job {running}?")));
    top.press("y");
    top.until("the cancel", |seen| seen.contains("cancelled"));
    assert!(cluster.await_end(running).starts_with("CANCELLED"));
    top.press("q");
    assert!(top.end().success());
    assert!(top.seen.contains(LEAVE_SCREEN) && top.seen.ends_with(SHOW_CURSOR), "{:?}", top.seen);
}

/// More jobs wait than are loaded at once: the key End asks for the last of them, and Home for the first.
#[test]
fn up_top_goes_to_the_end_of_a_long_queue_and_back() {
    let (cluster, ..) = cluster();
    let many = "for n in $(seq 300); do sbatch -H -Q -J wait$n -o /dev/null --wrap true; done";
    cluster.shell(many).ok();
    let mut top = OnTerminal::start(&cluster, &["top"], (100, 24), &[]);
    top.until("the head", |seen| seen.contains("trainer") && seen.contains("301 waiting"));
    assert!(!top.seen.contains("wait300"), "{:?}", top.seen);
    top.press("\x1b[F");
    top.until("the end", |seen| seen.contains("wait300") && !seen.contains("trainer"));
    top.press("\x1b[H");
    top.until("the head again", |seen| seen.contains("trainer") && !seen.contains("wait300"));
    top.press("q");
    assert!(top.end().success());
}

#[test]
fn up_top_gives_the_terminal_back_at_every_end_and_uses_no_colour_where_none_is_wanted() {
    let (cluster, ..) = cluster();
    let start = |variables: &[(&str, &str)]| {
        let mut top = OnTerminal::start(&cluster, &["top"], (80, 24), variables);
        top.until("a frame", |seen| seen.contains("trainer") && seen.contains("q quit"));
        top
    };
    let check = |mut top: OnTerminal, code: Option<i32>| {
        assert_eq!(top.end().code(), code, "{:?}", top.seen);
        assert!(
            top.seen.contains(LEAVE_SCREEN) && top.seen.ends_with(SHOW_CURSOR),
            "{:?}",
            top.seen
        );
        let cooked = nix::sys::termios::LocalFlags::ICANON | nix::sys::termios::LocalFlags::ECHO;
        assert!(top.mode().local_flags.contains(cooked), "the terminal is not raw any more");
    };
    let colored = |seen: &str| ["\x1b[32m", "\x1b[38;5;"].iter().any(|code| seen.contains(code));
    let mut top = start(&[]);
    assert!(colored(&top.seen), "{:?}", top.seen);
    top.press("\x03");
    check(top, Some(0));
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1)] {
        let top = start(&[("NO_COLOR", "1")]);
        assert!(!colored(&top.seen), "{:?}", top.seen);
        signal(top.child.id() as i32, name);
        check(top, Some(128 + number));
    }
}
