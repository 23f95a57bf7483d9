//! A cluster started by an ordinary user, and by root below a closed folder.

use crate::harness::{Cluster, TWO_NODES, program};
use std::os::unix::fs::{PermissionsExt, chown};

/// An account of every Debian system that is not root.
const USER: &str = "games";

fn ids() -> (u32, u32) {
    let text = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = text.lines().find(|l| l.starts_with("games:")).expect("the account is there");
    let mut fields = line.split(':').skip(2);
    let mut next = || fields.next().unwrap().parse().unwrap();
    (next(), next())
}

#[test]
fn root_user_of_another_ones_cluster_is_told_of_the_cluster_and_not_of_his_own_permissions() {
    let cluster = Cluster::up(TWO_NODES);
    let doctor = cluster.shell_as(USER, &format!("{} doctor", program())).ok();
    assert!(doctor.contains("not root; the cluster is another user's"), "{doctor}");
    assert!(!doctor.contains("enforced\n") && !doctor.contains("denied"), "{doctor}");
    assert!(doctor.contains("server:       answers; cluster test"), "{doctor}");
    let json = cluster.shell_as(USER, &format!("{} doctor --json", program())).ok();
    let found: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert!(found.get("groups").is_none() && found["cluster"] == "test", "{json}");
    let own = cluster.sluice(&["doctor"]).ok();
    assert!(own.contains("groups: "), "who runs it is told of the machine: {own}");
}

#[test]
fn root_an_ordinary_user_can_run_a_cluster() {
    let cluster = Cluster::folder(TWO_NODES);
    let (uid, gid) = ids();
    chown(cluster.path("work"), Some(uid), Some(gid)).unwrap();
    let home = cluster.path("work");
    let state = home.join("own");
    let run = |line: &str| {
        let path = format!("{}:{}", cluster.path("bin").display(), std::env::var("PATH").unwrap());
        cluster.shell_as(
            USER,
            &format!(
                "export HOME={} SLUICE_STATE={} PATH={path}; cd {}; {line}",
                home.display(),
                state.display(),
                home.display()
            ),
        )
    };
    let said = run(&format!("{} up --detach --listen 127.0.0.1:0 --agents 127.0.0.1:0", program()));
    assert_eq!(said.code, 0, "{}", said.stderr);
    let told = said.stdout.lines().find(|line| line.starts_with("not root: jobs run only as you"));
    assert!(told.is_some_and(|line| line.contains("memory")), "a start says it: {said:?}");
    let doctor = run(&format!("{} doctor", program())).ok();
    assert!(doctor.contains("not root: jobs run only as you"), "{doctor}");
    assert!(doctor.contains("NOT enforced"), "what cannot be enforced is said: {doctor}");
    // Every row with NOT has a line with the reason, and the server shows the same for the node.
    let rows =
        [("memory", "memory"), ("cores", "cpuset"), ("processes", "pids"), ("devices", "devices")];
    let node = run("scontrol show node").ok();
    for (row, reason) in rows {
        assert!(doctor.contains(&format!("  {row:<14}NOT enforced\n")), "{row}: {doctor}");
        let why = format!("  {reason}: ");
        let line = doctor.lines().find_map(|line| line.strip_prefix(&why));
        let line = line.unwrap_or_else(|| panic!("why not {row}? {doctor}"));
        assert!(line.contains("denied") || line.contains("only root"), "{line}");
        assert!(node.contains(&format!("{reason}: ")), "{reason}: {node}");
    }
    let id = run("sbatch --parsable -o out --wrap 'id -u; sleep 600 & exit 5'").ok();
    let row = crate::harness::until("the job ends", || {
        let text = run(&format!("sacct -n -X -P -j {} -o State,ExitCode", id.trim())).stdout;
        (!text.contains("RUNNING") && !text.contains("PENDING") && !text.is_empty()).then_some(text)
    });
    assert_eq!(row.trim(), "FAILED|5:0");
    assert_eq!(cluster.read("out").trim(), uid.to_string());
    assert_eq!(run("srun sh -c 'exit 3'").code, 3);
    let drain = run("scontrol update NodeName=$(hostname -s) State=DRAIN Reason=mine");
    assert_eq!(drain.code, 0, "who runs the server administers it: {}", drain.stderr);
    assert_eq!(run(&format!("{} down --jobs", program())).code, 0);
}

#[test]
fn doctor_ends_quietly_when_its_reader_has_gone() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(program());
    let said = command.arg("doctor").stdout(writer).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stderr), "");
}

#[test]
fn root_the_demo_works_for_an_ordinary_user() {
    let cluster = Cluster::folder(TWO_NODES);
    let (uid, gid) = ids();
    let home = cluster.path("home");
    std::fs::create_dir(&home).unwrap();
    chown(&home, Some(uid), Some(gid)).unwrap();
    let line = format!("HOME={} TMPDIR=/tmp {} demo", home.display(), program());
    let said = cluster.shell_as(USER, &line);
    assert_eq!(said.code, 0, "{}\n{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("every scene went as it must"));
    let folder = said.stdout.lines().find_map(|l| l.strip_prefix("evidence: ")).unwrap();
    assert!(folder.ends_with("/home/.local/state/sluice-demo"), "beside his state: {folder}");
    assert!(std::path::Path::new(folder).join("sacct.txt").exists(), "{}", said.stdout);
}

#[test]
fn root_a_state_folder_below_a_closed_folder_works_and_reconfigures() {
    let cluster = Cluster::folder(TWO_NODES);
    for part in ["", "conf"] {
        let closed = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(cluster.path(part), closed).unwrap();
    }
    cluster.start();
    let id = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0");
    let more = TWO_NODES.to_string() + "PartitionName=late Nodes=node2 State=UP\n";
    cluster.write_conf("slurm.conf", &more);
    cluster.sluice(&["scontrol", "reconfigure"]).ok();
    assert!(cluster.sluice(&["sinfo", "-h", "-o", "%P"]).ok().contains("late"));
    cluster.kill("server");
    cluster.start();
    assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "the books are found again");
}
