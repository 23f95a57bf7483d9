//! The published `dstack` client (`scripts/dstack-client` installs it), unmodified: our server answers.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, TWO_NODES, until};

/// The only line that begins with the run's name.
pub fn line_of<'t>(text: &'t str, name: &str) -> &'t str {
    let mut lines = text.lines().map(str::trim).filter(|line| line.starts_with(name));
    lines.next().unwrap_or_else(|| panic!("no line for {name}: {text}"))
}

#[test]
fn up_published_client_applies_lists_reads_logs_and_stops() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    let refused = client.add_project("not-a-token");
    assert_ne!(refused.code, 0);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(said.contains("access token"), "{said}");
    client.add_project(&client.token()).ok();

    cluster.write(
        "hello.dstack.yml",
        "type: task\nname: hello\nenv: [GREETING=hi]\ncommands:\n  - echo \"$GREETING from $DSTACK_RUN_NAME\"\n  \
         - exit 3\nresources: {cpu: 1.., memory: 64MB.., disk: 0GB.., gpu: h100:1}\n",
    );
    let applied = client.run(&["apply", "-f", "hello.dstack.yml", "-y", "-d"]).ok();
    assert!(applied.contains("gpu=h100"), "an offer is shown: {applied}");
    assert!(applied.contains("submitted, detaching"), "{applied}");
    until("the run has failed", || {
        let books = cluster.sluice(&["sacct", "-n", "-X", "-P", "--name", "hello", "-o", "State"]);
        books.stdout.contains("FAILED").then_some(())
    });
    let logs = client.run(&["logs", "hello"]).ok();
    assert_eq!(logs.trim(), "hi from hello");
    let listed = client.run(&["ps", "-a", "-v"]).ok();
    assert!(line_of(&listed, "hello").contains("exited (3)"), "{listed}");

    // A script writes to a file, which is read on its node.
    let words = cluster.submit(&["-J", "words", "-o", "words.out", "--wrap", "echo of a script"]);
    assert_eq!(cluster.await_end(words), "COMPLETED|0:0");
    let logs = client.run(&["logs", &format!("words-{words}")]).ok();
    assert_eq!(logs.trim(), "of a script");

    // Both languages share one queue.
    let batch = cluster.submit(&["-J", "batch", "-o", "/dev/null", "--wrap", "sleep 600"]);
    cluster.await_state(batch, "RUNNING");
    cluster.write(
        "long.dstack.yml",
        "type: task\nname: long\ncommands: [sleep 600]\nresources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n",
    );
    client.run(&["apply", "-f", "long.dstack.yml", "-y", "-d"]).ok();
    until("the run is in squeue", || {
        let queue = cluster.sluice(&["squeue", "-h", "-o", "%j %T"]).ok();
        queue.contains("long RUNNING").then_some(())
    });
    let listed = client.run(&["ps"]).ok();
    assert!(line_of(&listed, "long").contains("running"), "{listed}");
    assert!(line_of(&listed, &format!("batch-{batch}")).contains("running"), "{listed}");
    until("its node has measured it", || {
        client.run(&["metrics", "long"]).ok().contains("cpu").then_some(())
    });
    let again = client.run(&["apply", "-f", "long.dstack.yml", "-y", "-d"]);
    assert!(again.stdout.contains("no changes"), "{} {}", again.stdout, again.stderr);
    // A priority is updated in place, each client's run by its own; the run goes on.
    for (name, ours) in [("long", false), ("mine", true)] {
        let text = |priority: &str| {
            format!(
                "type: task\nname: {name}\n{priority}commands: [sleep 600]\n\
                 resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
            )
        };
        let file = format!("{name}.dstack.yml");
        let apply = ["apply", "-f", &file, "-y", "-d"];
        if ours {
            cluster.write(&file, &text(""));
            cluster.sluice(&apply).ok();
        }
        cluster.write(&file, &text("priority: 70\n"));
        let said = if ours { cluster.sluice(&apply) } else { client.run(&apply) }.ok();
        assert!(said.contains("can be updated in"), "{said}");
        assert!(said.contains(&format!("Run {name} updated")), "{said}");
        let shown = client.run(&["run", "get", name, "--json"]).ok();
        assert!(shown.contains("\"priority\": 70"), "{shown}");
        assert_eq!(cluster.sluice(&["squeue", "-h", "-n", name, "-o", "%T"]).ok(), "RUNNING\n");
    }
    cluster.sluice(&["stop", "mine", "-y"]).ok();
    client.run(&["stop", "long", "-y"]).ok();
    until("the run is stopped", || {
        let queue = cluster.sluice(&["squeue", "-h", "-o", "%j"]).ok();
        (!queue.contains("long")).then_some(())
    });
    let fleets = client.run(&["fleet", "list", "-v"]).ok();
    assert!(line_of(&fleets, "gpu").contains("active"), "{fleets}");
    assert!(fleets.contains("gpu=h100"), "{fleets}");
    let offers = client.run(&["offer", "--gpu", "h100:8"]).ok();
    assert!(offers.contains("h100") && offers.contains("8"), "{offers}");
    let missing = client.run(&["logs", "nosuch"]);
    assert_ne!(missing.code, 0);
    assert!(format!("{}{}", missing.stdout, missing.stderr).contains("not found"), "{missing:?}");
}

/// Nothing that has ended stays in memory.
const FORGETFUL: &str = "MinJobAge=2\n";

#[test]
fn up_run_that_left_memory_is_listed_read_and_deleted_by_either_client() {
    let cluster = Cluster::up(&format!("{TWO_NODES}{FORGETFUL}"));
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    for name in ["first", "second"] {
        cluster.write(
            &format!("{name}.dstack.yml"),
            &format!(
                "type: task\nname: {name}\ncommands: [echo words of {name}]\nresources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
            ),
        );
        client.run(&["apply", "-f", &format!("{name}.dstack.yml"), "-y", "-d"]).ok();
        let number = until("the run has a record", || {
            let books = ["sacct", "-n", "-X", "-P", "--name", name, "-o", "State,JobID"];
            let line = cluster.sluice(&books).ok();
            line.trim().strip_prefix("COMPLETED|").map(str::to_owned)
        });
        until("the run has left memory", || {
            (cluster.sluice(&["scontrol", "show", "job", &number]).code != 0).then_some(())
        });
    }
    let listed = client.run(&["ps", "-a"]).ok();
    assert!(line_of(&listed, "first").contains("exited (0)"), "{listed}");
    let last = client.run(&["ps", "-n", "1"]).ok();
    assert!(last.contains("second") && !last.contains("first"), "{last}");
    assert_eq!(client.run(&["logs", "first"]).ok().trim(), "words of first");
    assert_eq!(cluster.sluice(&["logs", "second"]).ok().trim(), "words of second");

    client.run(&["delete", "-f", "first.dstack.yml", "-y"]).ok();
    cluster.sluice(&["delete", "second", "-y"]).ok();
    let missing = cluster.sluice(&["delete", "second", "-y"]);
    assert!(missing.stderr.contains("Run second not found"), "{missing:?}");
    for listed in [client.run(&["ps", "-a"]).ok(), cluster.sluice(&["ps", "-a"]).ok()] {
        assert!(!listed.contains("first") && !listed.contains("second"), "{listed}");
    }
    let books = cluster.sluice(&["sacct", "-n", "-X", "-P", "-o", "JobName"]).ok();
    assert!(books.contains("first") && books.contains("second"), "{books}");
    client.run(&["apply", "-f", "first.dstack.yml", "-y", "-d"]).ok();
}

#[test]
fn up_published_client_sets_lists_reads_and_deletes_secrets() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    client.run(&["secret", "set", "tok", "s3cr3tvalue"]).ok();
    let listed = client.run(&["secret", "list"]).ok();
    assert!(
        line_of(&listed, "tok").contains("******") && !listed.contains("s3cr3tvalue"),
        "{listed}"
    );
    assert!(line_of(&client.run(&["secret", "get", "tok"]).ok(), "tok").contains("s3cr3tvalue"));
    cluster.write(
        "hush.dstack.yml",
        "type: task\nname: hush\nenv: ['TOKEN=${{ secrets.tok }}']\ncommands:\n  - echo \"${#TOKEN} letters\"\n\
         resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n",
    );
    client.run(&["apply", "-f", "hush.dstack.yml", "-y", "-d"]).ok();
    until("the run is done", || {
        let books = cluster.sluice(&["sacct", "-n", "-X", "-P", "--name", "hush", "-o", "State"]);
        books.stdout.contains("COMPLETED").then_some(())
    });
    assert_eq!(client.run(&["logs", "hush"]).ok().trim(), "11 letters");
    let got = client.run(&["run", "get", "hush", "--json"]).ok();
    assert!(got.contains("${{ secrets.tok }}") && !got.contains("s3cr3tvalue"), "{got}");
    client.run(&["secret", "delete", "tok", "-y"]).ok();
    let refused = client.run(&["apply", "-f", "hush.dstack.yml", "-y", "-d"]);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(refused.code != 0 && said.contains("secret tok does not exist"), "{said}");
    let missing = client.run(&["secret", "get", "tok"]);
    assert_ne!(missing.code, 0);
    assert!(format!("{}{}", missing.stdout, missing.stderr).contains("Resource not found"));
    let bad = client.run(&["secret", "set", "bad name!", "x"]);
    assert!(format!("{}{}", bad.stdout, bad.stderr).contains("should match regex"), "{bad:?}");
}

#[test]
fn up_published_client_runs_a_dev_environment_in_a_project_and_shows_its_events() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    let url = client.url();
    let token = client.token();
    let add = ["project", "add", "--name", "atlas", "--url", &url, "--token", &token, "-y"];
    assert_ne!(client.run(&add).code, 0, "there is no such project yet");
    cluster.sluice(&["project", "create", "atlas"]).ok();
    client.run(&add).ok();
    cluster.write(
        "dev.dstack.yml",
        "type: dev-environment\nname: desk\nide: vscode\ninit: [echo ready]\nresources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n",
    );
    client.run(&["apply", "-f", "dev.dstack.yml", "-y", "-d"]).ok();
    until("it runs, charged to its project", || {
        let queue = cluster.sluice(&["squeue", "-h", "-o", "%j %T %a"]).ok();
        queue.contains("desk RUNNING atlas").then_some(())
    });
    until("init has run", || client.run(&["logs", "desk"]).stdout.contains("ready").then_some(()));
    client.run(&["stop", "desk", "-y"]).ok();
    until("it is stopped", || {
        cluster.sluice(&["squeue", "-h"]).ok().trim().is_empty().then_some(())
    });
    let theirs = client.run(&["event", "--within-run", "desk"]).ok();
    let ours = cluster.sluice(&["event", "--within-run", "desk"]).ok();
    for said in [theirs, ours] {
        for line in [
            "desk] Run submitted. Status: SUBMITTED",
            "desk] Run status changed SUBMITTED -> RUNNING",
            "desk-0-0] Job status changed SUBMITTED -> RUNNING",
            "Termination reason: STOPPED_BY_USER",
            "desk] Run status changed TERMINATING -> TERMINATED",
        ] {
            assert!(said.contains(line), "{line}\n{said}");
        }
    }
    let all = cluster.sluice(&["event", "--all"]).ok();
    assert!(all.contains("[project atlas] Project created"), "{all}");
    let members = cluster.sluice(&["project", "add", "atlas", "nobody", "--role", "boss"]);
    assert!(members.stderr.contains("expected user, manager or admin"), "{members:?}");
    cluster.sluice(&["project", "add", "atlas", "nobody", "--role", "manager"]).ok();
    let listed = cluster.sluice(&["project", "list"]).ok();
    assert!(listed.contains("nobody (manager)"), "{listed}");
}

/// Applies a run, reads its log, lists and stops it by a client of this version.
fn client_applies_lists_reads_logs_and_stops(version: &str) {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::of_version(&cluster, version) else { return };
    client.add_project(&client.token()).ok();
    cluster.write(
        "old.dstack.yml",
        "type: task\nname: old\nfleets: [gpu]\ncommands: ['echo hi', 'sleep 600']\nresources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n",
    );
    client.run(&["apply", "-f", "old.dstack.yml", "-y", "-d"]).ok();
    until("the log is there", || client.run(&["logs", "old"]).ok().contains("hi").then_some(()));
    assert!(line_of(&client.run(&["ps"]).ok(), "old").contains("running"));
    let fleets = client.run(&["fleet"]).ok();
    assert!(fleets.contains("gpu") && fleets.contains("busy"), "{fleets}");
    client.run(&["stop", "old", "-y"]).ok();
    until("the run is stopped", || {
        cluster.sluice(&["squeue", "-h"]).ok().trim().is_empty().then_some(())
    });
    assert!(line_of(&client.run(&["ps", "-a"]).ok(), "old").contains("stopped"));
}

#[test]
fn up_oldest_client_applies_lists_reads_logs_and_stops() {
    client_applies_lists_reads_logs_and_stops("0.20.0");
}

#[test]
fn up_client_of_the_version_between_applies_lists_reads_logs_and_stops() {
    client_applies_lists_reads_logs_and_stops("0.21.5");
}

/// Loopback may speak TLS too, so the port of any cluster does.
#[test]
fn up_published_client_works_over_https_where_it_trusts_the_authority() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    let url = client.url().replace("http://", "https://");
    let token = client.token();
    let add = ["project", "add", "--name", "main", "--url", &url, "--token", &token, "-y"];
    let strange = client.run_with(&add, &[]);
    assert_ne!(strange.code, 0, "an authority that it does not know");
    let authority = cluster.state().join("server/keys/authority.pem");
    let trusted = [("REQUESTS_CA_BUNDLE", authority.to_str().unwrap())];
    client.run_with(&add, &trusted).ok();
    client.run_with(&["ps", "-a"], &trusted).ok();
}
