//! Nodes that come and go: a join file for many, joining again, certificates that renew themselves, removal.

use super::power::PowerCluster;
use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, CommandOutput, TWO_NODES, program, until};
use serde_json::Value;
use std::path::Path;

const CONF: &str = "\
ClusterName=hosts
SlurmdTimeout=300
ReturnToService=2
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=64
NodeName=node[01-04] CPUs=2 CoresPerSocket=2 RealMemory=1000
PartitionName=main Nodes=node[01-04] Default=YES State=UP
";

struct Site {
    cluster: Cluster,
    hosts: Hosts,
}

impl Site {
    fn up(conf: &str, toml: &str) -> Self {
        let cluster = Cluster::folder(conf);
        if !toml.is_empty() {
            cluster.write_conf("sluice.toml", toml);
        }
        let mut hosts = Hosts::up(2);
        hosts.start(&cluster);
        Self { cluster, hosts }
    }

    fn sluice(&self, line: &str) -> CommandOutput {
        self.hosts.in_hub(&self.cluster, &format!("{} {line}", program()))
    }

    /// A join file of this name, made with these options.
    fn join_file(&self, name: &str, options: &str) -> String {
        let file = self.cluster.path(name).display().to_string();
        self.sluice(&format!("token node {options} --out {file}")).ok();
        file
    }

    fn agent(&mut self, host: u32, name: &str, options: &[&str]) -> u32 {
        self.hosts.agent(&self.cluster, host, name, options)
    }

    /// What an agent says that is expected to end at once.
    fn refused(&self, host: u32, name: &str, options: &str) -> String {
        let state = self.cluster.path(name);
        let line = format!("timeout 20 {} agent --state {} {options}", program(), state.display());
        let said = self.hosts.tool(&["exec", &host.to_string(), "sh", "-c", &line]);
        assert_eq!(said.code, 1, "{said:?}");
        let line = said.stderr.lines().last().unwrap_or_default().to_owned();
        assert!(line.starts_with("sluice: error: "), "{said:?}");
        line
    }

    fn await_state(&self, node: &str, wanted: &str) {
        until(&format!("{node} is {wanted}"), || {
            let text =
                self.hosts.in_hub(&self.cluster, &format!("sinfo -h -N -n {node} -o %t")).stdout;
            (text.trim() == wanted).then_some(())
        });
    }

    fn node(&self, name: &str) -> Value {
        serde_json::from_str(&self.sluice(&format!("node show {name} --json")).ok()).unwrap()
    }

    fn output(&self, name: &str) -> String {
        std::fs::read_to_string(self.cluster.path(&format!("{name}.out"))).unwrap_or_default()
    }
}

fn change(file: &str, to: &Path, edit: impl FnOnce(&mut Value)) -> String {
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    edit(&mut json);
    std::fs::write(to, json.to_string()).unwrap();
    to.display().to_string()
}

#[test]
fn root_machines_of_a_pattern_join_by_one_file_within_its_bounds() {
    let mut site = Site::up(CONF, "");
    let file = site.join_file("group.join", "--pattern 'node[01-03]' --count 2 --expires 2d");
    let spent = site.cluster.path("spent.join").display().to_string();
    std::fs::copy(&file, &spent).unwrap();
    let first = site.agent(1, "one", &["--join", &spent]);
    site.await_state("node01", "idle");
    site.agent(2, "two", &["--join", &file]);
    site.await_state("node02", "idle");

    // The file of an agent that has joined may be removed: it is a secret, and not asked for again.
    let is_connected = |site: &Site| site.node("node01")["connected"].is_i64();
    site.hosts.stop(first);
    std::fs::remove_file(&spent).unwrap();
    until("node01 is gone", || (!is_connected(&site)).then_some(()));
    site.agent(1, "one", &["--join", &spent]);
    until("node01 is back", || is_connected(&site).then_some(()));

    let node = site.node("node01");
    assert_eq!((&node["address"], &node["joined_by"]), (&"10.77.0.1".into(), &"group".into()));
    let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    assert!(node["version"].as_str().is_some_and(is_number), "{node}");
    for time in ["connected", "joined", "certificate_end"] {
        assert!(node[time].as_i64().is_some_and(|time| time > 0), "{time}: {node}");
    }
    let listed = site.sluice("node list").ok();
    let line = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(
        line("node02").contains("10.77.0.2") && line("node02").contains("group join-"),
        "{listed}"
    );
    assert_eq!(line("node03").split_whitespace().nth(2), Some("-"), "{listed}");

    for (options, words) in [
        ("--node node09", "node node09 does not fit node[01-03]"),
        ("--node node01", "node node01 has joined already"),
        ("--node node01", "sluice node rejoin node01"),
        ("--node node03", "is used up: it was good for 2 joins"),
    ] {
        let said = site.refused(2, "late", &format!("{options} --join {file}"));
        assert!(said.contains(words), "{options}: {said}");
    }
    let short = site.join_file("short.join", "--pattern 'node[03-04]' --expires 1s");
    until("it expires", || {
        let said = site.refused(2, "late", &format!("--node node09 --join {short}"));
        said.contains("the join file for node[03-04] has expired").then_some(())
    });
    let torn = site.cluster.path("torn.join");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&torn, &text[..text.len() / 2]).unwrap();
    let said = site.refused(2, "late", &format!("--join {}", torn.display()));
    assert!(said.contains("is no whole join file"), "{said}");
    let other = Cluster::up(CONF);
    let own: Value = serde_json::from_str(&text).unwrap();
    let theirs = other.path("theirs.join").display().to_string();
    other.sluice(&["token", "node", "--pattern", "node[01-04]", "--out", &theirs]).ok();
    let theirs = change(&theirs, &site.cluster.path("other.join"), |json| {
        json["servers"] = own["servers"].clone();
    });
    let said = site.refused(2, "late", &format!("--join {theirs}"));
    assert!(said.contains("is of another cluster than the join file: it is for hosts"), "{said}");

    let tokens = site.sluice("token list").ok();
    let row = tokens.lines().find(|line| line.contains("node[01-03]")).expect("it is listed");
    assert!(row.contains("join 2/2"), "{row}");
    let secret = own["token"].as_str().unwrap();
    let found =
        site.cluster.shell(&format!("grep -rl {secret} {}", site.cluster.state().display()));
    assert_eq!(found.stdout, "", "only its hash is kept");
    let third = site.join_file("third.join", "--pattern 'node[03-04]'");
    let tokens = site.sluice("token list").ok();
    let row = tokens.lines().find(|line| line.contains("join 0/2")).expect("it is listed");
    let name = row.split_whitespace().next().unwrap();
    site.sluice(&format!("token revoke {name}")).ok();
    let said = site.refused(2, "late", &format!("--node node03 --join {third}"));
    assert!(said.contains("wrong, was used, or has expired"), "{said}");
    for (line, words) in [
        ("token node --pattern 'none[1-3]'", "none[1-3]"),
        ("token node --pattern 'node[01-'", "node[01-"),
        ("token node node01 --pattern node01", "cannot be used with"),
        ("token node --pattern node01 --count 0", "--count"),
        ("token node --pattern node01 --expires 31d", "at most 30d"),
        ("node show none", "node none does not exist"),
        ("node remove none", "none"),
        ("node remove node03", "node node03 has not joined"),
        ("node rejoin node03", "node node03 has not joined"),
    ] {
        let said = site.sluice(line);
        assert!(said.code != 0 && said.stderr.contains(words), "{line}: {said:?}");
    }
}

#[test]
fn root_wiped_machine_joins_again_by_an_administrators_word_and_a_removed_one_is_shut_out() {
    let mut site = Site::up(CONF, "");
    let file = site.join_file("group.join", "--pattern 'node[01-03]'");
    let first = site.agent(1, "first", &["--join", &file]);
    site.await_state("node01", "idle");
    site.hosts.stop(first);
    let said = site.refused(1, "wiped", &format!("--join {file}"));
    assert!(said.contains("sluice node rejoin node01"), "{said}");
    site.sluice("node rejoin node01").ok();
    assert!(site.node("node01")["rejoin_until"].as_i64().is_some());
    let second = site.agent(1, "second", &["--join", &file]);
    site.await_state("node01", "idle");
    let said = site.refused(1, "wiped", &format!("--join {file}"));
    assert!(said.contains("has joined already"), "the word is good once: {said}");
    let thief = site.agent(2, "first", &[]);
    until("the old certificate is refused", || {
        site.output("first").contains("does not speak for node node01").then_some(())
    });
    site.hosts.stop(thief);

    // The same machine from another address is taken as it is.
    site.hosts.stop(second);
    site.await_state("node01", "idle*");
    let moved = site.agent(2, "second", &["--join", &file, "--node", "node01"]);
    site.await_state("node01", "idle");
    assert_eq!(site.node("node01")["address"], "10.77.0.2");
    let copied = site.refused_with_live_state(&file);
    assert!(copied.contains("this machine is node02: say --node"), "{copied}");

    site.sluice("node remove node01").ok();
    site.await_state("node01", "idle*");
    until("it is told", || {
        site.output("second").contains("does not speak for node node01").then_some(())
    });
    let node = site.node("node01");
    assert!(node["joined"].is_null() && node["address"].is_null(), "{node}");
    site.hosts.stop(moved);
    let said = site.refused(1, "wiped", &format!("--join {file}"));
    assert!(said.contains("node node01 was removed"), "the group's file is no way back: {said}");
    site.sluice("node rejoin node01").ok();
    let back = site.agent(1, "second", &["--join", &file]);
    site.await_state("node01", "idle");
    let joined_by = site.node("node01")["joined_by"].to_string();
    assert!(joined_by.contains("group"), "with the state folder that it had: {joined_by}");
    site.sluice("node remove node01").ok();
    site.await_state("node01", "idle*");
    site.hosts.stop(back);
    let again = site.join_file("again.join", "node01");
    site.agent(1, "second", &["--join", &again]);
    site.await_state("node01", "idle");
    assert_eq!(site.node("node01")["joined_by"], "file");
}

impl Site {
    /// Another machine with a copy of a joined machine's state folder.
    fn refused_with_live_state(&self, file: &str) -> String {
        let (from, to) = (self.cluster.path("second"), self.cluster.path("copied"));
        let line = format!(
            "mkdir -p {1}/agent && cp {0}/agent/credentials.json {1}/agent/",
            from.display(),
            to.display()
        );
        self.cluster.shell(&line).ok();
        self.refused(2, "copied", &format!("--join {file}"))
    }
}

#[test]
fn root_certificate_renews_itself_and_one_that_has_ended_says_what_to_do() {
    let mut site = Site::up(CONF, "[nodes]\ncertificate_life = \"10s\"\n");
    let file = site.join_file("group.join", "--pattern 'node[01-03]'");
    let agent = site.agent(1, "one", &["--join", &file]);
    site.await_state("node01", "idle");
    let end = |site: &Site| site.node("node01")["certificate_end"].as_i64().expect("an end");
    let first = end(&site);
    let renewed = until("it is renewed", || Some(end(&site)).filter(|end| *end > first));
    until("it is renewed again", || Some(end(&site)).filter(|end| *end > renewed));
    site.await_state("node01", "idle");
    let said = site.hosts.in_hub(&site.cluster, "srun -w node01 hostname");
    assert_eq!(said.stdout.trim(), "node01", "{}", said.stderr);
    let line = format!("srun -w node01 {} --version", program());
    let said = site.hosts.in_hub(&site.cluster, &line);
    assert_eq!(said.code, 0, "{}", said.stderr);

    site.hosts.stop(agent);
    let last = end(&site);
    until("it ends", || (now() > last).then_some(()));
    let off = site.agent(1, "one", &[]);
    until("the agent says what to do", || {
        let said = site.output("one");
        (said.contains("certificate ended on") && said.contains("sluice node rejoin node01"))
            .then_some(())
    });
    site.hosts.stop(off);
    site.agent(1, "one", &["--join", &file]);
    site.await_state("node01", "idle");
}

#[test]
fn up_agent_and_doctor_say_which_of_its_nodes_the_server_refuses() {
    let cluster = Cluster::up(TWO_NODES);
    assert!(!cluster.sluice(&["doctor"]).stdout.contains("refuses"));
    cluster.sluice(&["node", "remove", "node2"]).ok();
    let words = "this certificate does not speak for node node2";
    let log =
        until("the agent says it", || Some(cluster.log("agent")).filter(|log| log.contains(words)));
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("refuses a node")).collect();
    assert!(lines.iter().all(|line| line.contains("node=\"node2\"")), "{lines:?}");
    let found = cluster.sluice(&["doctor"]);
    assert_eq!(found.code, 1, "{found:?}");
    assert!(found.stdout.contains(&format!("agent: {words}")), "{found:?}");
    assert!(found.stdout.contains("sluice node show node2"), "{found:?}");
}

/// The machines of a site start in any order. What no later server changes ends an agent, as before.
#[test]
fn up_agent_that_is_started_before_its_server_waits_and_joins() {
    let conf = CONF.replace("node[01-04]", "early,stopped,wrong");
    let mut site = PowerCluster::up_with(&format!("SlurmdParameters=config_overrides\n{conf}"));
    let join = |node: &str| site.cluster().path(&format!("{node}.join")).display().to_string();
    for node in ["early", "stopped", "wrong"] {
        let line = format!("{} token node {node} > {}", program(), join(node));
        site.cluster().shell(&line).ok();
    }
    let wrong = change(&join("wrong"), &site.cluster().path("forged.join"), |json| {
        json["token"] = "made up".into();
    });
    site.kill_server();
    for node in ["early", "stopped"] {
        site.start_agent(node, &[]);
        until("it says that it waits", || {
            site.agent_log(node).contains("not joined yet").then_some(())
        });
    }
    // It can be stopped while it waits.
    site.stop_agent("stopped");
    site.start_server();
    site.await_node("early", "idle");
    let said = site.agent_log("early");
    assert_eq!(said.matches("Connection refused").count(), 1, "it is said once: {said}");
    assert!(said.contains("this agent has joined tries="), "{said}");

    let state = site.cluster().path("agent-wrong").display().to_string();
    let line = format!("timeout 60 {} agent --state {state} --join {wrong}", program());
    let said = site.cluster().shell(&line);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("wrong, was used, or has expired"), "{said:?}");
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.expect("after 1970").as_secs() as i64
}
