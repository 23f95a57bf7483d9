//! Permissions on jobs, nodes, the HTTP port and the state folder. Needs root, to act as several users.

use crate::harness::{Cluster, CommandOutput, TWO_NODES};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// The owner of the jobs and another user: accounts of every Debian system.
const OWNER: &str = "games";
const OTHER: &str = "daemon";

fn assert_said(said: &CommandOutput, line: &str, code: i32, stderr: &str) {
    assert_eq!((said.code, said.stderr.as_str()), (code, stderr), "{line}: {said:?}");
    assert_eq!(said.stdout, "", "{line}");
}

fn submit_as(cluster: &Cluster, user: &str, rest: &str) -> String {
    cluster.shell_as(user, &format!("sbatch --parsable {rest}")).ok().trim().to_string()
}

#[test]
fn root_a_job_and_its_output_belong_to_the_user() {
    let cluster = Cluster::up(TWO_NODES);
    let id = submit_as(&cluster, OWNER, "-o who.txt --wrap 'id -u; id -g; id -Gn; touch made'");
    assert_eq!(cluster.await_end(&id), "COMPLETED|0:0");
    let expected = cluster.shell(&format!("id -u {OWNER}; id -g {OWNER}; id -Gn {OWNER}")).ok();
    assert_eq!(cluster.read("who.txt"), expected);
    let mut lines = expected.lines().map(|l| l.parse::<u32>());
    let (uid, gid) = (lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap());
    for name in ["who.txt", "made"] {
        let file = std::fs::metadata(cluster.path("work").join(name)).unwrap();
        assert_eq!((file.uid(), file.gid()), (uid, gid), "{name}");
    }
    let row = cluster.sluice(&["sacct", "-a", "-n", "-X", "-P", "-j", &id, "-o", "User,UID"]).ok();
    assert_eq!(row.trim(), format!("{OWNER}|{uid}"));
}

#[test]
fn root_only_root_submits_for_another() {
    let cluster = Cluster::up(TWO_NODES);
    let line = format!("sbatch --uid={OTHER} --wrap true");
    let said = cluster.shell_as(OWNER, &line);
    assert_said(&said, &line, 255, "sbatch: error: --uid only permitted by root user\n");
    let line = format!("sbatch --parsable --uid={OTHER} -o other.txt --wrap 'id -un'");
    let id = cluster.shell(&line).ok().trim().to_string();
    assert_eq!(cluster.await_end(&id), "COMPLETED|0:0");
    assert_eq!(cluster.read("other.txt").trim(), OTHER);
}

/// Commands of another user on job 1, which is pending, and job 2, which runs, and their errors.
const NOT_YOURS: &[(&str, i32, &str)] = &[
    ("scancel 1", 210, "scancel: error: Kill job error on job id 1: Access/permission denied\n"),
    ("scancel 2", 210, "scancel: error: Kill job error on job id 2: Access/permission denied\n"),
    (
        "scancel -u games",
        210,
        "scancel: error: Kill job error on job id 1: Access/permission denied\n\
         scancel: error: Kill job error on job id 2: Access/permission denied\n",
    ),
    (
        "scancel -s USR1 2",
        210,
        "scancel: error: Kill job error on job id 2: Access/permission denied\n",
    ),
    ("scontrol update jobid=1 timelimit=1", 1, "Invalid user id for job 1\n"),
    (
        "scontrol hold 1",
        1,
        "Access/permission denied for job 1\nslurm_suspend error: Access/permission denied\n",
    ),
    (
        "scontrol release 1",
        1,
        "Access/permission denied for job 1\nslurm_suspend error: Access/permission denied\n",
    ),
    ("scontrol requeue 2", 1, "Access/permission denied for job 2\n"),
    ("scontrol suspend 2", 1, "Access/permission denied for job 2\n"),
    (
        "scontrol write batch_script 1 -",
        1,
        "job script retrieval failed: Access/permission denied\n",
    ),
    (
        "srun --jobid=2 true",
        1,
        "srun: error: Unable to create step for job 2: Access/permission denied\n",
    ),
    ("$SLUICE stop -y running", 1, "sluice: error: access denied\n"),
];

#[test]
fn root_another_users_job_cannot_be_changed_or_read() {
    let cluster = Cluster::up(TWO_NODES);
    let waiting = submit_as(&cluster, OWNER, "-H -J waiting -t 30 --wrap 'echo hidden-word'");
    let running =
        submit_as(&cluster, OWNER, "-J running -t 30 --wrap 'echo hidden-word; sleep 600'");
    assert_eq!((waiting.as_str(), running.as_str()), ("1", "2"));
    cluster.await_state(2, "RUNNING");
    let shown = || cluster.sluice(&["squeue", "-h", "-o", "%i %T %r %l"]).ok();
    let before = shown();
    for (line, code, stderr) in NOT_YOURS {
        let said = cluster.shell_as(OTHER, &line.replace("$SLUICE", crate::harness::program()));
        assert_said(&said, line, *code, stderr);
        assert_eq!(shown(), before, "{line} changed something");
    }
    let found = cluster.shell_as(OTHER, "grep -rsl hidden-word \"$SLUICE_STATE\"").stdout;
    assert_eq!(found, "", "scripts lie open");
    let own = cluster.shell_as(OWNER, "scontrol write batch_script 1 -").ok();
    assert!(own.ends_with("echo hidden-word\n"), "{own}");
    cluster.shell_as(OWNER, "scancel 1 2").ok();
    assert!(cluster.await_end(2).starts_with("CANCELLED by "), "its owner may");
}

/// Administrative commands of a user and their errors; nothing may change.
const NOT_AN_ADMINISTRATOR: &[(&str, i32, &str)] = &[
    (
        "scontrol update nodename=node1 state=drain reason=x",
        1,
        "slurm_update error: Invalid user id\n",
    ),
    ("scontrol update partitionname=gpu state=down", 1, "slurm_update error: Invalid user id\n"),
    ("scontrol reconfigure", 1, "slurm_reconfigure error: Invalid user id\n"),
    (
        "scontrol release 1",
        1,
        "Access/permission denied for job 1\nslurm_suspend error: Access/permission denied\n",
    ),
    ("scontrol update jobid=1 nice=-1", 1, "Access/permission denied for job 1\n"),
    ("scontrol update jobid=1 priority=4294967290", 1, "Access/permission denied for job 1\n"),
    (
        "sbatch --nice=-1 --wrap true",
        1,
        "sbatch: error: Batch job submission failed: Invalid --nice value\n",
    ),
    (
        "sbatch --priority=4294967290 --wrap true",
        1,
        "sbatch: error: Batch job submission failed: Access/permission denied\n",
    ),
    ("$SLUICE token node node9", 1, "sluice: error: access denied\n"),
    ("$SLUICE token user somebody --role admin", 1, "sluice: error: access denied\n"),
];

#[test]
fn root_administrative_commands_are_refused_to_users() {
    let cluster = Cluster::up(TWO_NODES);
    assert_eq!(submit_as(&cluster, OWNER, "--begin=now+2hour --wrap true"), "1");
    cluster.sluice(&["scontrol", "hold", "1"]).ok();
    let shown = || {
        let jobs = cluster.sluice(&["squeue", "-h", "-o", "%i %T %r %Q"]).ok();
        jobs + &cluster.sluice(&["sinfo", "-h", "-o", "%P %a %t %N"]).ok()
    };
    let before = shown();
    for (line, code, stderr) in NOT_AN_ADMINISTRATOR {
        let said = cluster.shell_as(OWNER, &line.replace("$SLUICE", crate::harness::program()));
        assert_said(&said, line, *code, stderr);
        assert_eq!(shown(), before, "{line} changed something");
    }
    for line in ["-i add account x", "-i modify qos normal set priority=9"] {
        let said = cluster.shell_as(OWNER, &format!("sacctmgr {line}"));
        assert_eq!(said.code, 1, "{line}");
        assert!(said.stderr.ends_with("Access/permission denied\n"), "{line}: {}", said.stderr);
    }
    let accounts = cluster.sluice(&["sacctmgr", "-n", "-P", "show", "account", "format=account"]);
    assert!(!accounts.ok().lines().any(|name| name == "x"));
    assert_eq!(
        submit_as(&cluster, OWNER, "--priority=10 --nice=5 --wrap true"),
        "2",
        "stepping back"
    );
}

#[test]
fn root_only_its_user_and_root_stop_the_cluster() {
    let cluster = Cluster::up(TWO_NODES);
    let id = submit_as(&cluster, OTHER, "--wrap 'sleep 600'");
    cluster.await_state(&id, "RUNNING");
    let server = cluster.pid("server");
    for line in ["down", "down --jobs"] {
        let said = cluster.shell_as(OTHER, &format!("{} {line}", crate::harness::program()));
        let words = format!(
            "sluice: error: the server, process {server}, is another user's: \
             expected root or its user\n"
        );
        assert_said(&said, line, 1, &words);
    }
    assert!(cluster.state_of(&id).starts_with("RUNNING"));
}

/// One request on the port, with or without an Authorization header: its status and answer.
fn request(address: &str, line: &str, authorization: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let header = match authorization {
        "" => String::new(),
        value => format!("Authorization: {value}\r\n"),
    };
    let length = body.len();
    let text = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{header}\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status line");
    (status, answer)
}

/// The address of the HTTP port.
fn port(cluster: &Cluster) -> String {
    let ports = std::fs::read_to_string(cluster.state().join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    ports["listen"].as_str().unwrap().to_string()
}

#[test]
fn root_the_http_port_requires_a_valid_token() {
    let cluster = Cluster::up(TWO_NODES);
    let address = port(&cluster);
    let admin = std::fs::read_to_string(cluster.state().join("admin.token")).unwrap();
    let admin = admin.trim();
    let ping = r#"{"version":1,"call":"ping"}"#;
    let call = "POST /api/v1/call";
    let table = [
        (call, String::new(), ping, 401),
        (call, "Bearer".to_string(), ping, 401),
        (call, format!("Bearer {}", "0".repeat(admin.len())), ping, 401),
        (call, format!("Bearer {admin}0"), ping, 401),
        (call, format!("Basic {admin}"), ping, 401),
        ("GET /api/v1/logs?job=1", String::new(), "", 401),
        ("GET /api/v1/hold?job=1", String::new(), "", 401),
        (call, format!("Bearer {admin}"), "{\"version\":1,", 400),
        (call, format!("Bearer {admin}"), r#"{"version":99,"call":"ping"}"#, 400),
        (call, format!("Bearer {admin}"), ping, 200),
    ];
    for (line, authorization, body, status) in table {
        let (got, answer) = request(&address, line, &authorization, body);
        assert_eq!(got, status, "{line} {authorization} {body}: {answer}");
        assert!(!answer.contains(admin), "the token is repeated");
    }
}

#[test]
fn root_a_token_has_only_the_rights_of_its_user() {
    let cluster = Cluster::up(TWO_NODES);
    let server = format!("http://{}", port(&cluster));
    let token = cluster.sluice(&["token", "user", OWNER, "--unix-user", OWNER]).ok();
    let with = |line: &str| {
        cluster.shell(&format!("SLUICE_SERVER={server} SLUICE_TOKEN={} {line}", token.trim()))
    };
    let id = with("sbatch --parsable -o by-token.txt --wrap 'id -un'").ok().trim().to_string();
    assert_eq!(cluster.await_end(&id), "COMPLETED|0:0");
    assert_eq!(cluster.read("by-token.txt").trim(), OWNER, "root's client, but the token's user");
    let line = "scontrol update nodename=node1 state=drain reason=x";
    assert_said(&with(line), line, 1, "slurm_update error: Invalid user id\n");
    let said = cluster.shell(&format!("SLUICE_SERVER={server} SLUICE_TOKEN=wrong squeue"));
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("401") && said.stderr.contains("token"), "{}", said.stderr);
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
}

#[test]
fn root_the_server_runs_without_an_account_and_the_state_folder_has_its_modes() {
    let cluster = Cluster::up(TWO_NODES);
    let status =
        std::fs::read_to_string(format!("/proc/{}/status", cluster.pid("server"))).unwrap();
    let ids = |key: &str| {
        let line = status.lines().find(|l| l.starts_with(key)).unwrap().to_string();
        line.split_whitespace().skip(1).map(|w| w.parse::<u32>().unwrap()).collect::<Vec<_>>()
    };
    for key in ["Uid:", "Gid:"] {
        let ids = ids(key);
        assert!(ids.iter().all(|id| *id == ids[0] && *id != 0), "{key} {ids:?}");
    }
    let account = cluster.shell(&format!("getent passwd {} | cut -d: -f1", ids("Uid:")[0])).ok();
    assert!(["", "sluice"].contains(&account.trim()), "others' processes are {account}'s as well");
    for key in ["CapPrm:", "CapEff:"] {
        let line = status.lines().find(|l| l.starts_with(key)).unwrap();
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
    let agent = std::fs::metadata(format!("/proc/{}", cluster.pid("agent"))).unwrap();
    assert_eq!(agent.uid(), 0, "the agent needs root to become other users");
    let modes = [
        ("", 0o755),
        ("sluice.sock", 0o666),
        ("socket", 0o755),
        ("admin.token", 0o600),
        ("server", 0o700),
        // Passable, so that users can execute their scripts, and not listed.
        ("nodes", 0o711),
        ("nodes/node1/spool", 0o711),
    ];
    for (part, mode) in modes {
        let meta = std::fs::metadata(cluster.state().join(part)).unwrap();
        assert_eq!(meta.mode() & 0o777, mode, "{part}: {:o}", meta.mode());
    }
    let socket = std::fs::metadata(cluster.state().join("sluice.sock")).unwrap();
    assert!(socket.file_type().is_socket());
    let open = cluster
        .shell("find \"$SLUICE_STATE\" -ignore_readdir_race -perm -o+w ! -name sluice.sock")
        .ok();
    assert_eq!(open, "", "others may write here");
    // 65534 is nobody, which other daemons and squashed NFS users share.
    for (who, read) in [("0", true), ("1", false), ("65534", false)] {
        let line = format!(
            "setpriv --reuid={who} --regid={who} --clear-groups \
             find \"$SLUICE_STATE\"/admin.token \"$SLUICE_STATE\"/server -type f -readable"
        );
        let found = cluster.shell(&line).stdout;
        assert_eq!(!found.is_empty(), read, "user {who} reads {found}");
    }
}

#[test]
fn root_a_user_cannot_signal_the_jobs_supervisor() {
    let cluster = Cluster::up(TWO_NODES);
    let (server, agent) = (cluster.pid("server"), cluster.pid("agent"));
    let line = format!(
        "-o killed.txt --wrap 'for p in $PPID {server} {agent}; \
         do kill -9 $p 2>/dev/null && echo killed $p; done; echo done'"
    );
    let id = submit_as(&cluster, OWNER, &line);
    assert_eq!(cluster.await_end(&id), "COMPLETED|0:0");
    assert_eq!(cluster.read("killed.txt"), "done\n");
}

#[test]
fn root_spool_files_of_other_users_are_removed() {
    let cluster = Cluster::up(TWO_NODES);
    let submit = |body: &str| {
        let line = format!(
            "cd {}; sbatch --parsable -o /dev/null --no-requeue -w node1 --wrap '{body}'",
            cluster.path("work").display()
        );
        cluster.shell_as("games", &line).ok().trim().to_string()
    };
    let ended = submit("true");
    assert_eq!(cluster.await_end(&ended), "COMPLETED|0:0");
    let spool = || cluster.shell("ls ../state/nodes/node1/spool").stdout.trim().to_string();
    crate::harness::until("the spool lets go of a user's job", || spool().is_empty().then_some(()));
    let id = submit("sleep 600");
    cluster.await_state(&id, "RUNNING");
    cluster.sluice(&["scontrol", "update", "NodeName=node1", "State=DOWN", "Reason=drill"]).ok();
    assert_eq!(cluster.await_end(&id), "NODE_FAIL|0:0");
    cluster.sluice(&["scontrol", "update", "NodeName=node1", "State=RESUME"]).ok();
    let again = submit("true");
    assert_eq!(cluster.await_end(&again), "COMPLETED|0:0", "the stale attempt was killed");
    crate::harness::until("nothing is left in the spool", || spool().is_empty().then_some(()));
}

#[test]
fn root_a_partition_admits_only_its_groups() {
    let conf = TWO_NODES.replace("PartitionName=debug", "PartitionName=debug AllowGroups=games");
    let cluster = Cluster::up(&conf);
    let submit = |user: &str| {
        let work = cluster.path("work");
        let line = format!("cd {}; sbatch -p debug -o /dev/null --wrap true", work.display());
        cluster.shell_as(user, &line)
    };
    submit("games").ok();
    let refused = submit("daemon");
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    assert!(refused.stderr.contains("not permitted to use this partition"), "{}", refused.stderr);
}

/// As a real Slurm answers the same commands, without trailing spaces.
const COORDINATORS: &[(&str, &str, i32, &str)] = &[
    (
        "root",
        "add coordinator account=physics name=games",
        0,
        " Adding Coordinator User(s)\n  games\n To Account(s) and all sub-accounts\n  physics\n",
    ),
    ("root", "add coord nosuch acc=physics", 1, " You specified a non-existent user 'nosuch'.\n"),
    ("root", "add coordinator name=games", 1, " You need to specify an account list here.\n"),
    ("root", "add coordinator account=physics", 1, " You need to specify a user list here.\n"),
    (
        "root",
        "add coordinator account=nosuch name=games",
        1,
        " You specified a non-existent account 'nosuch'.\n",
    ),
    (
        "root",
        "-p show account withcoord",
        0,
        "Account|Descr|Org|Coord Accounts|\nchem|chem|chem||\nphysics|physics|physics|games|\n\
         root|default root account|root||\nsub|sub|physics|games|\n",
    ),
    (
        "root",
        "-n show user withcoord format=user,coordinators%20",
        0,
        "    daemon\n     games          physics,sub\n",
    ),
    (
        "games",
        "add user daemon account=physics",
        0,
        " Associations =\n  U = daemon    A = physics    C = lab\n Non Default Settings\n",
    ),
    (
        "games",
        "modify user daemon where account=physics set fairshare=7",
        0,
        " Modified user associations...\n  C = lab        A = physics              U = daemon\n",
    ),
    (
        "root",
        "delete coordinator account=physics name=games",
        0,
        " Removing Coordinators with user name\n  games\n From Account(s)\n  physics\n \
         Removed Coordinators (sub accounts not listed)...\n  U = games     A = physics\n",
    ),
    (
        "root",
        "delete coordinator name=games",
        1,
        " Removing Coordinators with user name\n  games\n From all accounts\n Nothing removed\n",
    ),
    ("root", "delete coordinator", 1, " You need to specify a user list or account list here.\n"),
];

#[test]
fn root_coordinators_manage_their_accounts() {
    let conf = format!("ClusterName=lab\n{}", TWO_NODES.replace("ClusterName=test\n", ""));
    let cluster = Cluster::up(&conf);
    for line in [
        "add account physics,chem",
        "add account sub parent=physics",
        "add user games account=physics",
        "add user daemon account=chem",
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    for (by, line, code, text) in COORDINATORS {
        let line = format!("sacctmgr -i {line}");
        let said = match *by {
            "root" => cluster.shell(&line),
            user => cluster.shell_as(user, &line),
        };
        let all = format!("{}{}", said.stdout, said.stderr);
        let all: String = all.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        assert_eq!((said.code, all.as_str()), (*code, *text), "{line}");
    }
    let denied = cluster.shell_as("games", "sacctmgr -i add user daemon account=sub");
    assert_ne!(denied.code, 0, "no coordinator any more: {denied:?}");
    assert!(denied.stderr.contains("Access/permission denied"), "{denied:?}");
}
