//! Every option of `scontrol`, `sacctmgr` and `strigger` that is said to act changes what they print or do, and so does every
//! command of theirs that the help names.

use crate::harness::{Cluster, until};
use crate::report_options::{Row, assert_all_act};
use slurm::option::table::{self, Verdict, verdict};
use slurm::option::{Command, OptionKey as K, TriggerEvent as E, help_text};

const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
AuthInfo=cred_expire=0
DefMemPerCPU=16
KillWait=1
Licenses=matlab:4
RebootProgram=/bin/false
TopologyPlugin=topology/tree
NodeName=node[1-2] CPUs=4 RealMemory=4000
PartitionName=main Nodes=node[1-2] Default=YES State=UP
";

/// Options of `scontrol`. `WAITS` is a job that waits; what changes by itself is cut from its record.
const SCONTROL: &[Row] = &[
    (K::Details, SHOW_JOB, "scontrol -d show job WAITS | sed 's/LastSchedEval=.*//'"),
    (K::Oneliner, "scontrol show partition main", "scontrol -o show partition main"),
    (K::Help, "scontrol ping", "scontrol --help"),
    (K::Usage, "scontrol ping", "scontrol --usage"),
    (K::Version, "scontrol ping", "scontrol --version"),
];

const SHOW_JOB: &str = "scontrol show job WAITS | sed 's/LastSchedEval=.*//'";

/// Options of `sacctmgr`. Without `-i` nobody agrees, as standard input is empty.
const SACCTMGR: &[Row] = &[
    (K::Associations, "sacctmgr show user", "sacctmgr -s show user"),
    (K::Immediate, "sacctmgr add account new", "sacctmgr -i add account new"),
    (K::Noheader, "sacctmgr show qos", "sacctmgr -n show qos"),
    (K::Parsable, "sacctmgr show qos", "sacctmgr -p show qos"),
    (K::Parsable2, "sacctmgr show qos", "sacctmgr -P show qos"),
    (K::Quiet, "sacctmgr add account one", "sacctmgr -Q add account one"),
    (K::ReadOnly, "sacctmgr add account one 2>&1", "sacctmgr -r add account one 2>&1 || true"),
    (K::Help, "sacctmgr show qos", "sacctmgr --help"),
    (K::Usage, "sacctmgr show qos", "sacctmgr --usage"),
    (K::Version, "sacctmgr show qos", "sacctmgr --version"),
];

/// Options of `strigger --get`, which choose among the triggers that are set.
const STRIGGER: &[Row] = &[
    (K::TriggerGet, "true", "strigger --get"),
    (K::TriggerId, "strigger --get", "strigger --get -i 1"),
    (K::JobId, "strigger --get", "strigger --get -j WAITS"),
    (K::Nodelist, "strigger --get", "strigger --get -n node2"),
    (K::Noheader, "strigger --get", "strigger --get -N"),
    (K::Users, "strigger --get", "strigger --get --user=nobody"),
    (K::Help, "strigger --get", "strigger --help"),
    (K::Usage, "strigger --get", "strigger --usage"),
    (K::Version, "strigger --get", "strigger --version"),
];

const SET: &str = "strigger --set -p /bin/true";

/// Options of `strigger --set`: a trigger that is set without the option and one with it are listed differently.
const STRIGGER_SETS: &[(K, &str, &str)] = &[
    (K::Flags, "--down", "--down --flags=perm"),
    (K::Offset, "--down", "--down --offset=60"),
    (K::Program, "--down", "--down -p /bin/false"),
    (K::Nodelist, "--down", "--down -n node1"),
    (K::JobId, "--down", "--down -j WAITS"),
    (K::TriggerEvent(E::NodeDown), "--up", "--down"),
    (K::TriggerEvent(E::NodeUp), "--down", "--up"),
    (K::TriggerEvent(E::NodeDrained), "--down", "--drained"),
    (K::TriggerEvent(E::NodeFail), "--down", "--fail"),
    (K::TriggerEvent(E::NodeIdle), "--down --offset=3600", "--idle --offset=3600"),
    (K::TriggerEvent(E::JobFini), "-j WAITS --time", "-j WAITS --fini"),
    (K::TriggerEvent(E::JobTimeLimit), "-j WAITS --fini", "-j WAITS --time"),
];

/// A command as the help names it, a line that gives it, and one whose output is another afterwards. `WAITS`, `RUNS` and `AGAIN`
/// are jobs; the last two run. `FILES` is the folder of the configuration.
type Change = (&'static str, &'static str, &'static str);

const REASON: &str = "squeue -h -j WAITS -o %r";
const RESERVATIONS: &str = "scontrol show reservation | sed -n 's/.*ReservationName=//p'";
const DURATION: &str = "scontrol show reservation | sed -n 's/.*Duration=//p'";
const RESTARTS: &str = "scontrol show job JOB | sed -n 's/.*Restarts=\\([0-9]*\\).*/\\1/p'";

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const SCONTROL_CHANGES: &[Change] = &[
    ("update JobId=", "scontrol update JobId=WAITS Name=other", "squeue -h -j WAITS -o %j"),
    ("update PartitionName=", "scontrol update PartitionName=main PriorityTier=7", "scontrol show partition main"),
    ("hold", "scontrol hold WAITS", REASON),
    ("release", "scontrol release WAITS", REASON),
    ("uhold", "scontrol uhold WAITS", REASON),
    ("write", "scontrol write batch_script WAITS kept.sh", "ls"),
    ("suspend", "scontrol suspend RUNS", "squeue -h -j RUNS -o %T"),
    ("resume", "scontrol resume RUNS", "squeue -h -j RUNS -o %T"),
    ("reboot", "scontrol reboot ASAP node1", "sinfo -h -n node1 -o %T"),
    ("cancel_reboot", "scontrol cancel_reboot node1", "sinfo -h -n node1 -o %T"),
    ("requeuehold", "scontrol requeuehold AGAIN", RESTARTS),
    ("requeue", "scontrol requeue RUNS", RESTARTS),
    ("create", "scontrol create reservation=kept users=root starttime=now+1hour duration=60 nodes=node2", RESERVATIONS),
    ("update ReservationName=", "scontrol update ReservationName=kept Duration=120", DURATION),
    ("delete", "scontrol delete ReservationName=kept", RESERVATIONS),
    ("reconfigure", "echo 'PartitionName=new Nodes=node2' >> FILES/slurm.conf && scontrol reconfigure", "sinfo -h -o %R"),
    ("update NodeName=", "scontrol update NodeName=node2 State=DRAIN Reason=fan", "sinfo -h -n node2 -o %T"),
];

/// A command, a line that gives it, and what its output has.
const SCONTROL_SHOWS: &[Change] = &[
    ("show job", "scontrol show job WAITS", "JobId=WAITS "),
    ("show step", "scontrol show step RUNS", "StepId=RUNS."),
    ("show node", "scontrol show node node1", "NodeName=node1 "),
    ("show partition", "scontrol show partition main", "PartitionName=main"),
    ("show reservation", "scontrol show reservation", "No reservations in the system"),
    ("show config", "scontrol show config", "ClusterName"),
    ("show licenses", "scontrol show licenses", "LicenseName=matlab"),
    ("show topology", "scontrol show topology", "SwitchName=s1"),
    ("show hostnames", "scontrol show hostnames node[1-2]", "node1\nnode2\n"),
    ("show hostlist", "scontrol show hostlist node1,node2", "node[1-2]\n"),
    ("show hostlist", "seq -f n%g 3 > $PWD/hosts && scontrol show hostlist $PWD/hosts", "n[1-3]\n"),
    ("show assoc_mgr", "scontrol show assoc_mgr", "QOS=normal"),
    ("listpids", "scontrol listpids RUNS node1", " RUNS "),
    ("token", "scontrol token", "SLURM_JWT="),
    ("ping", "scontrol ping", "is UP"),
    ("version", "scontrol version", "slurm"),
];

/// Commands of `scontrol` with tests of their own: setup/power.rs, setup/operation.rs, faults/several_servers.rs, update_job.rs.
const SCONTROL_APART: &[&str] = &["power", "setdebug", "takeover", "top"];

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const SACCTMGR_CHANGES: &[Change] = &[
    ("add account", "sacctmgr -i add account math", "sacctmgr -n show account"),
    ("add qos", "sacctmgr -i add qos high", "sacctmgr -n -P show qos format=name"),
    ("add user", "sacctmgr -i add user games account=math", "sacctmgr -n show user"),
    ("add coordinator", "sacctmgr -i add coordinator games account=math", "sacctmgr -n show account withcoord"),
    ("modify account", "sacctmgr -i modify account math set Description=numbers", "sacctmgr -n show account"),
    ("modify qos", "sacctmgr -i modify qos high set Priority=5", "sacctmgr -n -P show qos"),
    ("modify user", "sacctmgr -i modify user games set Fairshare=3", "sacctmgr -n -P show assoc"),
    ("delete coordinator", "sacctmgr -i delete coordinator games account=math", "sacctmgr -n show account withcoord"),
    ("delete user", "sacctmgr -i delete user games", "sacctmgr -n show user"),
    ("delete account", "sacctmgr -i delete account math", "sacctmgr -n show account"),
    ("delete qos", "sacctmgr -i delete qos high", "sacctmgr -n -P show qos format=name"),
];

/// They are given after all the changes.
const SACCTMGR_SHOWS: &[Change] = &[
    ("show account", "sacctmgr -n -P show account", "physics|"),
    ("show association", "sacctmgr -n -P show association", "test|root|"),
    ("show cluster", "sacctmgr -n -P show cluster", "test|"),
    ("show event", "sacctmgr -n -P show event reason=fan state=drain condflags=open", "node2"),
    ("show qos", "sacctmgr -n -P show qos", "normal|"),
    ("show runawayjobs", "sacctmgr show runawayjobs", "No runaway jobs"),
    ("show transaction", "sacctmgr -n -P show transaction", "Add Accounts"),
    (
        "show transaction",
        "sacctmgr -n -P show transaction user=daemon account=art",
        "user='daemon'",
    ),
    ("show tres", "sacctmgr -n -P show tres", "cpu|"),
    ("show user", "sacctmgr -n -P show user", "daemon|"),
    ("version", "sacctmgr version", "slurm"),
];

/// Lists of what the changes deleted, and a row that is there `withdeleted` alone.
const SACCTMGR_DELETED: &[(&str, &str)] = &[
    ("sacctmgr -n -P show account format=account,flags", "math|Deleted"),
    ("sacctmgr -n -P show user format=user,flags", "games|Deleted"),
    ("sacctmgr -n -P show assoc format=account,user,flags", "math|games|Deleted"),
    ("sacctmgr -n -P show qos format=name,flags", "high|Deleted"),
];

/// The words that choose among what `sacctmgr show` has, and a line without the word.
const SACCTMGR_WORDS: &[(&str, &str)] = &[
    ("onlydefaults", "sacctmgr -n -P show assoc"),
    ("tree", "sacctmgr -n -P show assoc"),
    ("wolimits", "sacctmgr -n -P show assoc"),
    ("wopinfo", "sacctmgr -n -P show assoc format=account,parentname"),
    ("woplimits", "sacctmgr -n -P show assoc user=daemon"),
    ("woplimits withrawqos", "sacctmgr -n -P show assoc user=daemon format=qos"),
    ("withsubaccounts", "sacctmgr -n -P show assoc account=root"),
    ("withassoc", "sacctmgr show user"),
    ("withcoord", "sacctmgr show account"),
];

/// Options of the other commands, with tests of their own: steps/input_output.rs, steps/sbcast.rs, scheduling/sdiag.rs. What is about
/// the command itself is tried of every command.
const APART: &[(Command, &[K])] = &[
    (Command::Sattach, &[K::ErrorFilter, K::InputFilter, K::OutputFilter, K::Label]),
    (Command::Sattach, &[K::Layout, K::Pty]),
    (Command::Sbcast, &[K::Force, K::JobId, K::Preserve]),
    (Command::Sdiag, &[K::Reset, K::SortById, K::SortByTime, K::SortByTime2, K::Clusters]),
    (Command::Seff, &[]),
];

const ABOUT_THE_COMMAND: [K; 3] = [K::Help, K::Usage, K::Version];

#[test]
fn every_option_of_the_other_commands_that_is_said_to_act_has_a_test() {
    for &(command, _) in APART {
        let of_command = APART.iter().filter(|(of, _)| *of == command);
        let tried: Vec<K> = of_command.flat_map(|(_, keys)| keys.iter().copied()).collect();
        let acting = table::options(command).map(|spec| spec.key);
        let acting = acting.filter(|key| verdict(command, *key) == Verdict::Acts);
        for key in acting.filter(|key| !ABOUT_THE_COMMAND.contains(key)) {
            assert!(tried.contains(&key), "{} {key:?}", command.name());
        }
    }
}

#[test]
fn every_option_of_an_administrators_command_that_is_said_to_act_has_a_row() {
    for command in [Command::Scontrol, Command::Sacctmgr, Command::Strigger] {
        let tried: Vec<K> = match command {
            Command::Scontrol => SCONTROL.iter().map(|row| row.0).collect(),
            Command::Sacctmgr => SACCTMGR.iter().map(|row| row.0).collect(),
            _ => {
                let sets = STRIGGER_SETS.iter().map(|row| row.0);
                let made = [K::TriggerSet, K::TriggerClear];
                STRIGGER.iter().map(|row| row.0).chain(sets).chain(made).collect()
            }
        };
        let acting = table::options(command).map(|spec| spec.key);
        for key in acting.filter(|key| verdict(command, *key) == Verdict::Acts) {
            assert!(tried.contains(&key), "{} {key:?}", command.name());
        }
    }
}

/// The commands that the help names: the verbs of the first column, and before the entities of the second for those verbs that
/// take one.
fn named_in_help(command: Command, with_entities: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    let mut verbs: Vec<&str> = Vec::new();
    for (form, does) in help_text::commands(command) {
        // A row without a form goes on with the entities of the row before.
        if let Some(first) = form.split(' ').next().filter(|first| !first.is_empty()) {
            verbs = first.split('|').collect();
        }
        for verb in &verbs {
            if with_entities.contains(verb) {
                names.extend(does.split(' ').map(|entity| format!("{verb} {entity}")));
            } else {
                names.push((*verb).to_owned());
            }
        }
    }
    names
}

#[test]
fn every_command_that_the_help_of_scontrol_and_sacctmgr_names_has_a_row() {
    let rows = |changes: &[Change], shows: &[Change]| -> Vec<&'static str> {
        changes.iter().chain(shows).map(|row| row.0).collect()
    };
    let mut tried = rows(SCONTROL_CHANGES, SCONTROL_SHOWS);
    tried.extend(SCONTROL_APART);
    for name in named_in_help(Command::Scontrol, &["show", "update"]) {
        assert!(tried.contains(&name.as_str()), "scontrol {name}");
    }
    let tried = rows(SACCTMGR_CHANGES, SACCTMGR_SHOWS);
    for name in named_in_help(Command::Sacctmgr, &["show", "add", "modify", "delete"]) {
        assert!(tried.contains(&name.as_str()), "sacctmgr {name}");
    }
}

/// Asserts that each row's line changes what its other line prints.
fn assert_each_changes(rows: &[Change], print: &dyn Fn(&str) -> String) {
    for &(name, line, look) in rows {
        let look = look.replace("JOB", line.rsplit(' ').next().unwrap_or_default());
        let before = print(&look);
        print(line);
        until(&format!("{name}: `{look}` prints something else"), || {
            (print(&look) != before).then_some(())
        });
    }
}

#[test]
fn up_every_option_and_command_of_scontrol_sacctmgr_and_strigger_acts() {
    let cluster = Cluster::folder(CONF);
    cluster.write_conf("topology.conf", "SwitchName=s1 Nodes=node[1-2]\n");
    cluster.start();
    let runs = cluster.submit(&["-o", "/dev/null", "-w", "node1", "--wrap", "srun sleep 600"]);
    let again = cluster.submit_sleeper("-w node1");
    cluster.await_state(again, "RUNNING");
    until("the step runs", || {
        let steps = cluster.shell("squeue -h -s -o %i").ok();
        steps.lines().any(|step| step.trim() == format!("{runs}.0")).then_some(())
    });
    let waits = cluster.submit_sleeper("--begin=now+1hour");
    let filled_in = |text: &str| {
        let text = text.replace("WAITS", &waits.to_string()).replace("AGAIN", &again.to_string());
        let files = cluster.path("conf").display().to_string();
        text.replace("RUNS", &runs.to_string()).replace("FILES", &files)
    };
    let print = |line: &str| cluster.shell(&filled_in(line)).ok();
    let assert_shows = |rows: &[Change]| {
        for &(name, line, has) in rows {
            let has = filled_in(has);
            until(&format!("{name}: `{line}` prints {has}"), || {
                cluster.shell(&filled_in(line)).stdout.contains(&has).then_some(())
            });
        }
    };

    until("the job waits for its time", || (print(REASON) == "BeginTime\n").then_some(()));
    assert_all_act(SCONTROL, &print);
    assert_shows(SCONTROL_SHOWS);
    assert_each_changes(SCONTROL_CHANGES, &print);

    for line in [
        "add account physics",
        "add account art",
        "add user daemon account=physics,art",
        "modify account physics set MaxJobs=7",
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    assert_all_act(SACCTMGR, &print);
    for (word, line) in SACCTMGR_WORDS {
        assert_ne!(print(line), print(&format!("{line} {word}")), "{word}");
    }
    for (condition, line) in [
        ("account=art", "sacctmgr -n -P show assoc"),
        ("partition=main", "sacctmgr -n -P show assoc"),
        ("parent=physics", "sacctmgr -n -P show account"),
        ("organization=nobodys", "sacctmgr -n -P show account"),
        ("organization=nobodys", "sacctmgr -n -P show account withassoc"),
        ("user=daemon", "sacctmgr -n -P show account withassoc"),
        ("description=nothing", "sacctmgr -n -P show qos"),
        ("adminlevel=administrator", "sacctmgr -n -P show user"),
        ("defaultaccount=art", "sacctmgr -n -P show user"),
    ] {
        assert_ne!(print(line), print(&format!("{line} {condition}")), "{condition}");
    }
    let foreign = cluster.shell("sacctmgr show qos account=art");
    assert!(foreign.code == 1 && foreign.stderr.contains("account=art"), "{}", foreign.stderr);
    let other = cluster.shell("sacctmgr -i delete user daemon cluster=other");
    assert_eq!(other.code, 1, "{}", other.stdout);
    assert!(other.stderr.contains("there is one cluster, test"), "{}", other.stderr);
    assert_each_changes(SACCTMGR_CHANGES, &print);
    assert_shows(SACCTMGR_SHOWS);
    for (look, row) in SACCTMGR_DELETED {
        let (without, with) = (print(look), print(&format!("{look} withdeleted")));
        let has = |text: &str| text.lines().any(|line| line == *row);
        assert!(!has(&without) && has(&with), "{look}: {without} and {with}");
    }
    // What is there again is no longer among the deleted.
    print("sacctmgr -i add qos high");
    assert!(print("sacctmgr -n -P show qos withdeleted format=name,flags").contains("high|\n"));
    // No trigger is to fire before it is listed.
    print("scontrol update NodeName=node2 State=RESUME");
    strigger(&print);
    for command in Command::ALL.map(Command::name) {
        let said = ["--help", "--usage", "--version"].map(|o| print(&format!("{command} {o}")));
        let is_each_its_own = said[0] != said[1] && said[1] != said[2] && said[0] != said[2];
        assert!(is_each_its_own && !said.contains(&String::new()), "{command}: {said:?}");
    }
    for command in ["sinfo", "sacct", "sshare", "sdiag"] {
        let note = cluster.shell(&format!("{command} word")).stderr;
        assert!(note.contains("\"word\" has no meaning here"), "{command}: {note}");
    }
    assert_eq!(print("sacctmgr -n show event event=cluster"), "");
    let events = |condition: &str| print(&format!("sacctmgr -n -P show event {condition}"));
    assert!(events("nodes=node2 mincpus=4 maxcpus=4").contains("node2"));
    assert_eq!(events("mincpus=5") + &events("maxcpus=3"), "");
    assert!(events("nodes=node2 format=nodename,tres,event").contains("node2|cpu=4,mem="));
    for condition in ["mincpus=many", "state=bogus", "event=bogus"] {
        let refused = cluster.shell(&format!("sacctmgr show event {condition}"));
        let said = refused.stderr;
        assert!(refused.code == 1 && said.contains("expected"), "{condition}: {said}");
    }
    for table in ["event", "transactions", "assoc", "cluster"] {
        assert_eq!(print(&format!("sacctmgr -n show {table} cluster=other")), "", "{table}");
    }
    assert_eq!(print("sacctmgr -n show transactions user=nobody"), "");
    for line in ["show transactions nodes=node2", "show event actor=root"] {
        assert_eq!(cluster.shell(&format!("sacctmgr {line}")).code, 1, "{line}");
    }
    let note = cluster.shell("strigger --get --offset=5").stderr;
    assert!(note.contains("--offset has no meaning with --get"), "{note}");
}

fn strigger(print: &dyn Fn(&str) -> String) {
    let listed = || print("strigger --get -N");
    // The newest trigger as it is listed, without its number; it is cleared.
    let set = |options: &str| -> String {
        let before = listed();
        print(&format!("{SET} {options}"));
        let text = listed();
        assert_ne!(text, before, "--set {options}");
        let newest = text.lines().last().unwrap_or_default().trim_start().to_owned();
        let (id, rest) = newest.split_once(' ').expect("a number and what follows");
        print(&format!("strigger --clear -i {id}"));
        assert_eq!(listed(), before, "--clear -i {id}");
        rest.to_owned()
    };
    for (key, without, with) in STRIGGER_SETS {
        assert_ne!(set(without), set(with), "{key:?}");
    }
    for options in ["-j WAITS --fini", "-n node1 --down", "-n node2 --up"] {
        print(&format!("{SET} {options}"));
    }
    let first = listed().split_whitespace().next().unwrap_or_default().to_owned();
    let numbered = |line: &str| print(&line.replace("-i 1", &format!("-i {first}")));
    assert_all_act(STRIGGER, &numbered);
}
