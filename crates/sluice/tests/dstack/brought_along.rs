//! `files` and `repos`: what a run brings along from the client's machine, by the published client and by our own.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, TWO_NODES, skip, until};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const SMALL: &str = "resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n";

fn await_run(cluster: &Cluster, name: &str, state: &str) {
    until("the run has ended", || {
        let books = cluster.sluice(&["sacct", "-n", "-X", "-P", "--name", name, "-o", "State"]);
        books.stdout.lines().any(|line| line == state).then_some(())
    });
}

#[test]
fn up_files_are_placed_in_a_folder_of_the_run_and_where_they_are_meant_to_be() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.shell("mkdir -p data/bin").ok();
    cluster.write("note.txt", "a note\n");
    cluster.write("data/one.txt", "one\n");
    let program = cluster.write("data/bin/say", "#!/bin/sh\necho said\n");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let placed = cluster.path("placed/deep/copy.txt").display().to_string();
    let text = |name: &str| {
        format!(
            "type: task\nname: {name}\nfiles: [note.txt, data, 'note.txt:{placed}']\n\
             commands:\n  - cat note.txt data/one.txt\n  - data/bin/say\n  - cat {placed}\n  \
             - echo changed > note.txt\n  - pwd\n  - echo $DSTACK_WORKING_DIR\n{SMALL}"
        )
    };
    let check = |said: &str| {
        let lines: Vec<&str> = said.lines().rev().take(6).collect();
        let [known, folder, rest @ ..] = &lines[..] else { panic!("{said}") };
        assert_eq!(rest, ["a note", "said", "one", "a note"], "{said}");
        assert_eq!(known, folder, "{said}");
        until("its folder is gone", || (!std::path::Path::new(folder).exists()).then_some(()));
        assert_eq!(cluster.read("note.txt"), "a note\n", "the user's own is as it was");
        assert_eq!(std::fs::read_to_string(&placed).unwrap(), "a note\n");
        std::fs::write(&placed, "old").unwrap();
    };
    cluster.write("ours.dstack.yml", &text("ours"));
    cluster.sluice(&["apply", "-f", "ours.dstack.yml", "-y", "-d"]).ok();
    await_run(&cluster, "ours", "COMPLETED");
    check(&cluster.sluice(&["logs", "ours"]).ok());

    cluster.write("bad.dstack.yml", &text("bad").replace("note.txt, data", "nothing.txt, data"));
    let refused = cluster.sluice(&["apply", "-f", "bad.dstack.yml", "-y", "-d"]);
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    assert!(refused.stderr.contains("`files`: nothing.txt: No such file"), "{refused:?}");
    // A working directory that is named is made, and is not another one if it cannot be.
    for (name, folder, state) in
        [("made", "placed/new", "COMPLETED"), ("kept", "work/note.txt", "FAILED")]
    {
        let folder = cluster.path(folder);
        let text = format!(
            "type: task\nname: {name}\nworking_dir: {}\nfiles: [note.txt]\ncommands: [cat note.txt]\n{SMALL}",
            folder.display()
        );
        cluster.write("dir.dstack.yml", &text);
        cluster.sluice(&["apply", "-f", "dir.dstack.yml", "-y", "-d"]).ok();
        await_run(&cluster, name, state);
        assert_eq!(folder.join("note.txt").exists(), state == "COMPLETED");
    }
    assert!(cluster.sluice(&["logs", "kept"]).ok().contains("sluice: working directory "));
    // A file in the place of a folder: the run fails before its commands, with a line.
    let over =
        format!("type: task\nname: over\nfiles: ['note.txt:/etc']\ncommands: [echo no]\n{SMALL}");
    cluster.write("over.dstack.yml", &over);
    cluster.sluice(&["apply", "-f", "over.dstack.yml", "-y", "-d"]).ok();
    await_run(&cluster, "over", "FAILED");
    let said = cluster.sluice(&["logs", "over"]).ok();
    assert_eq!(said.trim(), "sluice: `files`: /etc: cannot write etc: Is a directory");
    let told = cluster.sluice(&["event", "--within-run", "over"]).ok();
    assert!(told.contains("Termination reason: EXECUTOR_ERROR"), "{told}");

    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    cluster.write("theirs.dstack.yml", &text("theirs"));
    client.run(&["apply", "-f", "theirs.dstack.yml", "-y", "-d"]).ok();
    await_run(&cluster, "theirs", "COMPLETED");
    check(&client.run(&["logs", "theirs"]).ok());
    let ours = client.run(&["run", "get", "ours", "--json"]).ok();
    assert!(ours.contains("cat note.txt data/one.txt"), "its configuration is kept: {ours}");
}

/// A name that leads to a repository of this machine, for whoever has these variables.
const URL: &str = "https://git.example/acme/thing.git";

struct LocalRepository {
    variables: [(&'static str, String); 3],
}

impl LocalRepository {
    /// A repository, and a clone of it in `code` with a change and a new file. `None` where there is no git.
    fn make(cluster: &Cluster) -> Option<Self> {
        if Command::new("git").arg("--version").output().is_err() {
            skip("git", "git is not installed");
            return None;
        }
        let origin = cluster.path("origin.git").display().to_string();
        let made = cluster.shell(&format!(
            "set -e; export HOME=$PWD; git init -q --bare -b main {origin}; git init -q -b main code; cd code; \
             git config user.email ann@x; git config user.name Ann; echo one > kept; git add .; \
             git commit -qm one; git push -q {origin} main main:other; git remote add origin {URL}; \
             git update-ref refs/remotes/origin/main HEAD; git config branch.main.remote origin; \
             git config branch.main.merge refs/heads/main; echo two >> kept; echo new > new"
        ));
        made.ok();
        let variables = [
            ("GIT_CONFIG_COUNT", "1".to_owned()),
            ("GIT_CONFIG_KEY_0", format!("url.file://{origin}.insteadOf")),
            ("GIT_CONFIG_VALUE_0", URL.to_owned()),
        ];
        Some(Self { variables })
    }

    fn variables(&self) -> Vec<(&str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }

    /// The same for the run itself.
    fn env(&self) -> String {
        let lines = self.variables.iter().map(|(name, value)| format!("  {name}: '{value}'\n"));
        format!("env:\n{}", lines.collect::<String>())
    }
}

#[test]
fn up_repository_is_cloned_on_the_node_with_what_its_user_changed() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(repository) = LocalRepository::make(&cluster) else { return };
    let env = repository.env();
    let text = |name: &str, more: &str| {
        format!(
            "type: task\nname: {name}\n{more}repos: [.]\nfiles: ['kept:beside']\n{env}commands:\n  - cat kept new beside\n  \
             - git log --format=%s\n  - git config user.name\n  - git branch -r --list origin/other\n  \
             - if [ $DSTACK_REPO_ID != none ]; then echo known; fi\n{SMALL}"
        )
    };
    let expected = ["one", "two", "new", "one", "two", "one", "Ann"];
    let (own_branch, all_branches) = (vec!["known"], vec!["  origin/other", "known"]);
    cluster.write("code/ours.dstack.yml", &text("ours", "single_branch: true\n"));
    cluster.sluice(&["apply", "-f", "code/ours.dstack.yml", "-y", "-d"]).ok();
    await_run(&cluster, "ours", "COMPLETED");
    let said = cluster.sluice(&["logs", "ours"]).ok();
    assert_eq!(said.lines().collect::<Vec<_>>(), [&expected[..], &own_branch].concat());

    // The variable is the repository's folder, wherever that is.
    let below = format!(
        "type: task\nname: below\nrepos: [{{local_path: ., path: deep/code}}]\n{env}commands:\n  \
         - test $DSTACK_REPO_DIR = $PWD/deep/code\n  - test $DSTACK_WORKING_DIR = $PWD\n  \
         - cat $DSTACK_REPO_DIR/new\n{SMALL}"
    );
    cluster.write("code/below.dstack.yml", &below);
    cluster.sluice(&["apply", "-f", "code/below.dstack.yml", "-y", "-d"]).ok();
    await_run(&cluster, "below", "COMPLETED");
    assert_eq!(cluster.sluice(&["logs", "below"]).ok(), "new\n");

    let lost = format!(
        "type: task\nname: lost\nrepos: [{{url: 'file:///nowhere/x.git', path: x}}]\ncommands: [echo no]\n{SMALL}"
    );
    cluster.write("lost.dstack.yml", &lost);
    cluster.sluice(&["apply", "-f", "lost.dstack.yml", "-y", "-d"]).ok();
    await_run(&cluster, "lost", "FAILED");
    let said = cluster.sluice(&["logs", "lost"]).ok();
    let line =
        "sluice: `repos`: cannot clone file:///nowhere/x.git: git ended with exit status: 128";
    assert!(said.lines().any(|one| one == line), "{said}");
    let told = cluster.sluice(&["event", "--within-run", "lost"]).ok();
    assert!(told.contains("Termination reason: EXECUTOR_ERROR"), "{told}");

    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    cluster.write("code/theirs.dstack.yml", &text("theirs", ""));
    let apply = ["apply", "-f", "code/theirs.dstack.yml", "-y", "-d"];
    client.run_with(&apply, &repository.variables()).ok();
    await_run(&cluster, "theirs", "COMPLETED");
    let said = client.run(&["logs", "theirs"]).ok();
    assert_eq!(said.lines().collect::<Vec<_>>(), [&expected[..], &all_branches].concat());
}

#[test]
fn up_python_environment_is_made_over_an_interpreter_that_is_there() {
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let asked = Command::new("python3").args(["-c", version]).output();
    let Ok(asked) = asked.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned())
    else {
        return skip("python3", "python3 is not installed");
    };
    let cluster = Cluster::up(TWO_NODES);
    let text = |name: &str, version: &str| {
        format!(
            "type: task\nname: {name}\npython: '{version}'\ncommands:\n  \
             - python -c 'import sys; print(sys.prefix != sys.base_prefix)'\n  \
             - test $(dirname $(which python)) = $VIRTUAL_ENV/bin\n{SMALL}"
        )
    };
    cluster.write("own.dstack.yml", &text("own", &asked));
    cluster.sluice(&["apply", "-f", "own.dstack.yml", "-y", "-d"]).ok();
    await_run(&cluster, "own", "COMPLETED");
    assert_eq!(cluster.sluice(&["logs", "own"]).ok().trim(), "True");
    let is_there = |name: &String| cluster.shell(&format!("command -v {name}")).code == 0;
    let versions = ["3.9", "3.10", "3.11", "3.12", "3.13", "3.14"];
    let missing = versions.map(|version| format!("python{version}"));
    let Some(missing) = missing.into_iter().find(|name| !is_there(name)) else {
        return skip("python3.9", "every version of python is installed");
    };
    cluster.write("none.dstack.yml", &text("none", missing.trim_start_matches("python")));
    cluster.sluice(&["apply", "-f", "none.dstack.yml", "-y", "-d"]).ok();
    await_run(&cluster, "none", "FAILED");
    let said = cluster.sluice(&["logs", "none"]).ok();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(&format!("`python`: there is no {missing} here")), "{said}");
}
