//! Secrets stay where they belong: after a session that used every kind of them, none is in a log, in the journal, or on the
//! command line of a process.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, until};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the processes are looked at.
const LOOK_PAUSE: Duration = Duration::from_millis(5);

/// Collects the command lines of all processes, until it is dropped.
struct CommandLines {
    seen: Arc<Mutex<BTreeSet<Vec<u8>>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl CommandLines {
    fn watch() -> Self {
        let (seen, stop) = (Arc::<Mutex<BTreeSet<_>>>::default(), Arc::new(AtomicBool::new(false)));
        let (into, until) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                let entries = std::fs::read_dir("/proc").unwrap().flatten();
                let lines = entries.filter_map(|e| std::fs::read(e.path().join("cmdline")).ok());
                into.lock().unwrap().extend(lines);
                std::thread::sleep(LOOK_PAUSE);
            }
        });
        Self { seen, stop, thread: Some(thread) }
    }

    fn all(mut self) -> Vec<u8> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
        let seen = self.seen.lock().unwrap();
        seen.iter().flat_map(|line| line.iter().copied().chain([b'\n'])).collect()
    }
}

/// Listens at `at` and passes everything on to the server's socket; what clients said, once they are done.
fn relay(at: &Path, server: PathBuf) -> Arc<Mutex<Vec<u8>>> {
    let listener = UnixListener::bind(at).unwrap();
    let said = Arc::<Mutex<Vec<u8>>>::default();
    let into = said.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = UnixStream::connect(&server) else { continue };
            let (back, answer) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let into = into.clone();
            std::thread::spawn(move || {
                copy(client, server, |part| into.lock().unwrap().extend(part))
            });
            std::thread::spawn(move || copy(answer, back, |_| ()));
        }
    });
    said
}

fn copy(mut from: UnixStream, mut to: UnixStream, mut note: impl FnMut(&[u8])) {
    let mut part = [0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut part) {
        note(&part[..length]);
        if to.write_all(&part[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// The values of a text field, wherever it stands in what clients said.
fn values(said: &str, field: &str) -> Vec<String> {
    let mark = format!("\"{field}\":\"");
    let parts = said.split(mark.as_str()).skip(1);
    parts.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

/// The lines of a private key that say something.
fn key_lines(text: &str) -> Vec<String> {
    let text = text.replace("\\n", "\n");
    let inside = text.split("PRIVATE KEY-----").nth(1).unwrap_or(&text);
    let lines = inside.lines().filter(|line| line.len() > 20 && !line.starts_with('-'));
    lines.map(str::to_owned).collect()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Everybody may ask for the configuration.
#[test]
fn up_passwords_of_the_configuration_are_neither_shown_nor_logged() {
    let passwords = [("AccountingStoragePass", "hunter-one"), ("jobcomppass", "hunter-two")];
    let lines: String = passwords.iter().map(|(key, word)| format!("{key}={word}\n")).collect();
    let cluster = Cluster::folder(&format!("{lines}{TWO_NODES}"));
    cluster.start_with(&[("SLUICE_LOG", "debug")]);
    // There is more to log with a job, and with one that is held: the end of its connection is logged.
    cluster.shell("srun sleep 0.3").ok();
    let state = cluster.state();
    let conf = cluster.path("conf");
    let check = format!("{} check {} 2>&1", crate::harness::program(), conf.display());
    let shown = cluster.shell("scontrol show config").ok();
    for key in ["AccountingStoragePass", "JobCompPass"] {
        let row = shown.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        assert!(row.ends_with("= ***"), "{key}: {shown}");
    }
    let wrong = format!("{lines}NodeName=\n{TWO_NODES}");
    cluster.write_conf("slurm.conf", &wrong);
    let mut said = vec![
        ("scontrol show config", shown),
        ("sluice check", cluster.shell(&check).stdout),
        ("reconfigure", cluster.shell("scontrol reconfigure").stderr),
    ];
    assert!(said[2].1.contains("slurm.conf"), "a wrong file is refused: {}", said[2].1);
    for log in ["server.log", "agent.log"] {
        said.push((log, std::fs::read_to_string(state.join(log)).unwrap()));
    }
    assert!(said[3].1.contains("DEBUG"), "the log says as much as it can");
    for (place, text) in said {
        assert!(!text.contains("hunter"), "{place}: {text}");
    }
}

#[test]
fn up_no_log_holds_a_secret() {
    let cluster = Cluster::folder(TWO_NODES);
    let state = cluster.state();
    let lines = CommandLines::watch();
    let mut up = cluster.command(&["up", "--detach", "--listen", "127.0.0.1:0", "--agents"]);
    up.arg("127.0.0.1:0").arg("--config").arg(cluster.path("conf")).env("SLUICE_LOG", "debug");
    assert!(up.status().unwrap().success());
    let read = |path: &str| std::fs::read_to_string(state.join(path)).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&read("ports.json")).unwrap();
    let server = format!("http://{}", ports["listen"].as_str().unwrap());
    let with = |token: &str, args: &[&str]| {
        let mut command = cluster.command(args);
        command.env("SLUICE_SERVER", &server).env("SLUICE_TOKEN", token);
        command.output().unwrap().status.success()
    };
    let mut secrets: Vec<String> = Vec::new();
    // Tokens: good ones, a revoked one, a wrong one, and the administrator's before and after its rotation.
    let user = crate::harness::user_name();
    let made = cluster.sluice(&["token", "user", &user, "--name", "ci"]).ok();
    let (token, wrong) = (made.trim().to_string(), "0badc0de".repeat(8));
    let admin = read("admin.token").trim().to_string();
    assert!(with(&token, &["squeue"]) && with(&admin, &["squeue"]) && !with(&wrong, &["squeue"]));
    cluster.sluice(&["token", "revoke", "ci"]).ok();
    cluster.sluice(&["token", "rotate", "admin"]).ok();
    assert!(!with(&token, &["squeue"]) && !with(&admin, &["squeue"]));
    let file = cluster.path("node1.join");
    cluster.sluice(&["token", "node", "node1", "--out", file.to_str().unwrap()]).ok();
    secrets.extend([token, wrong, admin, read("admin.token").trim().to_string()]);
    for join in [std::fs::read_to_string(&file).unwrap(), read("server/local.join")] {
        let join: serde_json::Value = serde_json::from_str(&join).unwrap();
        secrets.push(join["token"].as_str().unwrap().to_string());
    }
    // The keys of steps, as their `srun` tells the server.
    let door = cluster.path("relay.sock");
    let said = relay(&door, state.join("sluice.sock"));
    for (args, good) in [(["-n2", "true"], true), (["-n1", "false"], false)] {
        let mut srun = cluster.command(&["srun"]);
        let done = srun.args(args).env("SLUICE_SERVER", &door).output().unwrap();
        assert_eq!(done.status.success(), good, "{done:?}");
    }
    let keys = values(&String::from_utf8_lossy(&said.lock().unwrap()), "key");
    assert!(keys.len() >= 2 && keys.iter().all(|key| key.len() > 20), "{keys:?}");
    secrets.extend(keys);
    let batch = cluster.submit(&["-n2", "--wrap", "srun -n2 true"]);
    assert_eq!(cluster.await_end(batch), "COMPLETED|0:0");
    for path in ["authority.key", "server.key", "order.key"] {
        let found = key_lines(&read(&format!("server/keys/{path}")));
        assert!(!found.is_empty(), "{path}");
        secrets.extend(found);
    }
    let own = key_lines(&read("agent/credentials.json"));
    assert!(!own.is_empty());
    secrets.extend(own);
    cluster.sluice(&["down"]).ok();

    let mut places = vec![("command lines".to_string(), lines.all())];
    let mut files = vec![state.join("server.log"), state.join("agent.log")];
    files.extend(
        ["journal", "snapshots"].iter().flat_map(|d| files_below(&state.join("server").join(d))),
    );
    for path in files {
        places.push((path.display().to_string(), std::fs::read(&path).unwrap()));
    }
    assert!(places.len() > 3, "there is a journal");
    for (place, bytes) in &places {
        let text = String::from_utf8_lossy(bytes);
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "{place} holds {secret}");
        }
    }
    let log = String::from_utf8_lossy(&places[1].1).into_owned();
    assert!(log.contains("DEBUG"), "the log says as much as it can: {log}");
}

/// The owner of the job and another user: accounts of every Debian system.
const OWNER: &str = "games";
const OTHER: &str = "daemon";

#[test]
fn root_secret_of_a_running_job_is_read_by_its_user_alone() {
    let cluster = Cluster::up(TWO_NODES);
    let value = "hush-77aa10b3";
    cluster.sluice(&["secret", "set", "token", value]).ok();
    for line in ["list", "get token", "set token mine", "delete token -y", "rotate-key"] {
        let refused =
            cluster.shell_as(OTHER, &format!("{} secret {line}", crate::harness::program()));
        assert!(refused.stderr.starts_with("sluice: error: access denied"), "{line}: {refused:?}");
        assert_ne!(refused.code, 0, "{line}");
        assert!(!format!("{refused:?}").contains(value), "{line}");
    }
    let job = cluster
        .submit_as(OWNER, "--secret token=TOKEN -o pid.txt --wrap 'echo $$; exec sleep 600'");
    let pid = cluster.await_file("pid.txt", |text| text.ends_with('\n'));
    let environ = format!("/proc/{}/environ", pid.trim());
    let holds = |said: CommandOutput| said.stdout.contains(value);
    assert!(holds(cluster.shell_as(OWNER, &format!("cat {environ}"))), "the job has it");
    assert!(!holds(cluster.shell_as(OTHER, &format!("cat {environ}"))));
    // Root's files of the job, which another user does not read.
    let spooled = cluster.shell("grep -rsl hush-77aa10b3 \"$SLUICE_STATE\"").stdout;
    for file in spooled.lines() {
        assert!(!holds(cluster.shell_as(OTHER, &format!("cat '{file}'"))), "{file}");
        assert!(!holds(cluster.shell_as(OWNER, &format!("cat '{file}'"))), "{file}");
    }
    assert!(spooled.contains("launch.json"), "the test looks in the right place: {spooled}");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    until("nothing of the job is left", || {
        let left = cluster.shell("grep -rsl hush-77aa10b3 \"$SLUICE_STATE\"").stdout;
        left.is_empty().then_some(())
    });
}
