//! Secrets through the program: set, listed, read and deleted; encrypted on disk; a key that is rotated, lost and put back.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, until};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

pub const VALUE: &str = "hush-5f1d0c9e";

/// `sluice secret set NAME` with the value on standard input.
pub fn set_secret(cluster: &Cluster, name: &str, value: &str) -> CommandOutput {
    let mut command = cluster.command(&["secret", "set", name]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("sluice secret runs");
    let mut input = child.stdin.take().expect("its standard input");
    writeln!(input, "{value}").expect("the value is taken");
    drop(input);
    child.wait_with_output().expect("sluice secret ends").into()
}

pub fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// The files of the state folder that hold the text.
pub fn files_with(cluster: &Cluster, text: &str) -> Vec<PathBuf> {
    let holds = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    files_below(&cluster.state()).into_iter().filter(holds).collect()
}

fn value_of(cluster: &Cluster, name: &str) -> String {
    cluster.sluice(&["secret", "get", name, "--raw"]).ok()
}

#[test]
fn up_secrets_are_set_listed_read_and_deleted() {
    let cluster = Cluster::up(TWO_NODES);
    assert_eq!(set_secret(&cluster, "token", "first").ok(), "OK\n");
    assert_eq!(cluster.sluice(&["secret", "set", "token", VALUE]).ok(), "OK\n");
    set_secret(&cluster, "lines", "two\nlines").ok();
    assert_eq!(
        cluster.sluice(&["secret", "list"]).ok(),
        " NAME   VALUE  \n lines  ****** \n token  ****** \n"
    );
    assert_eq!(value_of(&cluster, "token"), VALUE);
    assert_eq!(value_of(&cluster, "lines"), "two\nlines");
    assert!(cluster.sluice(&["secret", "get", "token"]).ok().contains(VALUE));
    assert_eq!(cluster.sluice(&["secret", "delete", "lines", "-y"]).ok(), "OK\n");

    for (args, said) in [
        (&["get", "lines"][..], "Resource not found: secret lines"),
        (&["delete", "token", "lines", "-y"], "Resource not found: secret lines"),
        (&["set", "a b", VALUE], "expected 1 to 200 letters, digits, - and _"),
        (&["--project", "other", "list"], "project other does not exist"),
    ] {
        let refused = cluster.sluice(&[&["secret"], args].concat());
        assert_eq!(refused.code, 1, "{args:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
        assert!(refused.stderr.contains(said), "{args:?}: {}", refused.stderr);
        assert!(!refused.stderr.contains(VALUE), "{}", refused.stderr);
    }
    let long = set_secret(&cluster, "long", &"x".repeat(17 << 10));
    assert!(long.stderr.contains("at most 16384 bytes"), "{}", long.stderr);
    assert_eq!(value_of(&cluster, "token"), VALUE, "what was refused changed nothing");
}

#[test]
fn up_secrets_are_encrypted_on_disk_and_a_lost_key_stops_nothing_else() {
    let cluster = Cluster::up(TWO_NODES);
    set_secret(&cluster, "token", VALUE).ok();
    let key = cluster.state().join("server/keys/secrets.key");
    let before = std::fs::read(&key).expect("the key");
    cluster.sluice(&["secret", "rotate-key"]).ok();
    assert_ne!(std::fs::read(&key).expect("the key"), before);
    assert_eq!(value_of(&cluster, "token"), VALUE);

    cluster.sluice(&["down"]).ok();
    assert_eq!(files_with(&cluster, VALUE), Vec::<PathBuf>::new());
    let away = cluster.path("secrets.key");
    std::fs::rename(&key, &away).expect("the key is taken away");
    cluster.start();
    assert!(cluster.log("server").contains("secrets cannot be used"), "{}", cluster.log("server"));
    let refused = cluster.sluice(&["secret", "get", "token"]);
    assert!(refused.stderr.contains("secrets cannot be used"), "{}", refused.stderr);
    let refused = set_secret(&cluster, "other", VALUE);
    assert!(refused.stderr.contains("secrets cannot be used"), "{}", refused.stderr);
    assert!(cluster.sluice(&["secret", "list"]).ok().contains("token"));
    let job = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");

    cluster.sluice(&["down"]).ok();
    std::fs::rename(&away, &key).expect("the key is put back");
    cluster.start();
    assert_eq!(value_of(&cluster, "token"), VALUE);
}

/// A task with this environment and these commands.
fn task(name: &str, env: &str, command: &str) -> String {
    format!(
        "type: task\nname: {name}\nenv: {env}\ncommands: ['{command}']\n\
         resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
    )
}

#[test]
fn up_secret_reaches_the_processes_of_its_job_and_nothing_else() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.start_with(&[("SLUICE_LOG", "debug")]);
    set_secret(&cluster, "token", VALUE).ok();
    let length = VALUE.len();

    // A script and the steps in it, by an option on its line; the last of two for one variable counts.
    let script = "#!/bin/sh\n#SBATCH --secret=token=T,token -o batch.txt\n\
                  echo ${#T} ${#token}\nsrun -n1 sh -c 'echo ${#T}'\n";
    cluster.write("job.sh", script);
    let batch = cluster.submit(&["job.sh"]);
    let shown = cluster.sluice(&["scontrol", "show", "job", &batch.to_string()]).ok();
    assert_eq!(cluster.await_end(batch), "COMPLETED|0:0");
    assert_eq!(cluster.read("batch.txt"), format!("{length} {length}\n{length}\n"));
    // `srun` for a job of its own, and in an allocation, by its own option and by the allocation's.
    for (line, expected) in [
        ("srun -n1 --secret token sh -c 'echo ${#token}'", 1),
        ("salloc -Q -n1 srun --secret=token=T sh -c 'echo ${#T}'", 1),
        (
            "salloc -Q -n1 --secret=token=T sh -c 'srun sh -c \"echo \\${#T}\"; env | grep -c ^T= || :'",
            2,
        ),
    ] {
        let said = cluster.shell(line).ok();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), expected, "{line}: {said}");
        assert_eq!(lines[0], length.to_string(), "{line}");
        // The shell of `salloc` itself is the user's own and has no secret.
        assert_eq!(lines.get(1).copied().unwrap_or("0"), "0", "{line}");
    }
    // dstack's language, with text around the reference.
    let env = "['T=x-${{ secrets.token }}', 'PRICE=$$5', 'LITERAL=$${{ secrets.token }}']";
    cluster.write("run.dstack.yml", &task("run", env, r#"echo "${#T} $PRICE $LITERAL""#));
    let said = cluster.sluice(&["apply", "-f", "run.dstack.yml", "-y"]).ok();
    let expected = format!("{} $5 ${{{{ secrets.token }}}}", length + 2);
    assert!(said.contains(&expected), "{said}");

    let listed = cluster.sluice(&["ps", "-a", "--json"]).ok();
    let kept = cluster.sluice(&["squeue", "--json", "-t", "all"]).ok();
    for text in [shown, listed, kept] {
        assert!(!text.contains(VALUE), "{text}");
    }
    cluster.sluice(&["down"]).ok();
    assert!(cluster.log("server").contains("DEBUG"), "the log says as much as it can");
    assert_eq!(files_with(&cluster, VALUE), Vec::<PathBuf>::new());
}

#[test]
fn up_unknown_secrets_are_refused_and_a_secret_deleted_before_the_start_fails_its_job() {
    let cluster = Cluster::up(TWO_NODES);
    set_secret(&cluster, "token", VALUE).ok();
    cluster.write("run.dstack.yml", &task("run", "['T=${{ secrets.b }}${{ secrets.a }}']", "true"));
    let refused = cluster.sluice(&["apply", "-f", "run.dstack.yml", "-y", "-d"]);
    let last = refused.stderr.lines().last();
    assert_eq!(last, Some("sluice: error: secrets a, b do not exist"), "{refused:?}");
    for line in [
        "sbatch --secret nosuch --wrap true",
        "sbatch --test-only --secret nosuch --wrap true",
        "srun --secret nosuch true",
        "salloc --secret nosuch true",
        "salloc -Q srun --secret nosuch true",
    ] {
        let refused = cluster.shell(line);
        assert_ne!(refused.code, 0, "{line}");
        assert!(refused.stderr.contains("secret nosuch does not exist"), "{line}: {refused:?}");
    }
    let bad = cluster.shell("sbatch --secret hf-token --wrap true");
    assert!(bad.stderr.contains("expected NAME=VARIABLE"), "{}", bad.stderr);
    until("the allocation has gone, and nothing else was queued", || {
        cluster.sluice(&["squeue", "-h"]).ok().is_empty().then_some(())
    });

    let held = cluster.submit(&["-H", "--secret", "token", "--wrap", "true"]);
    cluster.sluice(&["secret", "delete", "token", "-y"]).ok();
    cluster.sluice(&["scontrol", "release", &held.to_string()]).ok();
    until("the job has failed", || {
        let books = cluster.sluice(&["sacct", "-n", "-X", "-j", &held.to_string(), "-o", "State"]);
        books.stdout.contains("FAIL").then_some(())
    });
    assert!(cluster.log("server").contains("secret token does not exist"));
}

#[test]
fn up_secrets_of_a_project_are_for_its_runs_alone() {
    let cluster = Cluster::up(TWO_NODES);
    set_secret(&cluster, "token", "of all").ok();
    cluster.sluice(&["project", "create", "atlas"]).ok();
    cluster.sluice(&["secret", "--project", "atlas", "set", "token", VALUE]).ok();
    cluster.sluice(&["secret", "--project", "atlas", "set", "own", VALUE]).ok();
    let said = |options: &[&str], script: &str| cluster.run_script(options, script);
    let script = "#!/bin/sh\necho $token\n";
    assert_eq!(said(&["-A", "atlas", "--secret", "token"], script).trim(), VALUE);
    assert_eq!(said(&["--secret", "token"], script).trim(), "of all");
    let refused = cluster.shell("sbatch --secret own --wrap true");
    assert!(refused.stderr.contains("secret own does not exist"), "{refused:?}");

    // A user who is no member gets none: at submit, and at the launch of a job that he moved there.
    let refused = cluster.shell_as("daemon", "sbatch -A atlas --secret own --wrap true");
    assert!(refused.stderr.contains("user daemon is no member of it"), "{refused:?}");
    let moved = cluster.submit_as("daemon", "-H --secret token -o /dev/null --wrap true");
    cluster.shell_as("daemon", &format!("scontrol update jobid={moved} account=atlas")).ok();
    cluster.shell_as("daemon", &format!("scontrol release {moved}")).ok();
    until("the job has failed", || {
        let books = cluster.sluice(&["sacct", "-n", "-X", "-j", &moved.to_string(), "-o", "State"]);
        books.stdout.contains("FAIL").then_some(())
    });
    assert!(cluster.log("server").contains("user daemon is no member of it"));
}
