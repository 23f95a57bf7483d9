//! Errors in a YAML configuration are reported by line and column, and leave no run.

use crate::harness::{Cluster, TWO_NODES, program};

/// YAML that is refused: the file, and the line without `sluice: error: t.dstack.yml:`.
const CONFIGURATIONS: &[(&str, &str)] = &[
    ("", "1:1: the file is empty: expected properties, the first of them `type: task`"),
    ("type: task\n", "1:1: `commands` is missing: expected a list of one shell command or more"),
    ("commands: [true]\n", "1:1: `type` is missing: expected `type: task`"),
    (
        "type: tusk\ncommands: [true]\n",
        "1:7: `type`: invalid \"tusk\": expected one of task, dev-environment, service, fleet, gateway, volume, preset",
    ),
    (
        "type: task\ncommands: [a]\nresources:\n  cpu: 4..2\n",
        "4:8: `resources.cpu`: invalid CPU count \"4..2\": expected the smaller end before the ..",
    ),
    (
        "type: task\ncommands: [a]\nresources:\n  memory: 10XB\n",
        "4:11: `resources.memory`: invalid memory size \"10XB\": expected a number with MB, GB or TB, as in 16GB",
    ),
    (
        "type: task\ncommands: [a]\nresuorces:\n  gpu: H100:1\n",
        "3:1: unknown property `resuorces`: did you mean `resources`?",
    ),
    (
        "type: task\ncommands: [a]\nname: Bad_Name\n",
        "3:7: `name`: invalid \"Bad_Name\": expected a name of 2 to 41 lower-case letters, digits and -, of which the first is a letter",
    ),
    (
        "type: task\ncommands: [a]\nnodes: 0\n",
        "3:8: `nodes`: invalid \"0\": expected a whole number, 1 or more, or a range such as 2..4",
    ),
    (
        "type: task\ncommands: [a]\npriority: 101\n",
        "3:11: `priority`: invalid \"101\": expected a whole number from 0 to 100",
    ),
    (
        "type: task\ncommands: [a]\nmax_duration: soon\n",
        "3:15: `max_duration`: invalid duration \"soon\": expected a whole number with s, m, h, d or w, as in 2h, or off",
    ),
    (
        "type: task\ncommands: [a]\nretry: {on_events: [boredom]}\n",
        "3:21: `retry.on_events[0]`: invalid \"boredom\": expected one of no-capacity, interruption, error",
    ),
    (
        "type: task\ncommands: a\n",
        "2:11: `commands`: invalid \"a\": expected a list of shell commands",
    ),
    (
        "type: task\ncommands: [a\n",
        "3:1: not YAML: while parsing a flow sequence, expected ',' or ']'",
    ),
    (
        "type: task\ntype: task\ncommands: [a]\n",
        "2:1: `type` is given twice: it is already in line 1",
    ),
    (
        "a: &a [*a]\n",
        "1:8: an alias inside the value that it names: expected an alias to a finished value",
    ),
];

#[test]
fn up_a_bad_yaml_configuration_is_reported_by_line_and_column() {
    let cluster = Cluster::up(TWO_NODES);
    for (text, words) in CONFIGURATIONS {
        cluster.write("t.dstack.yml", text);
        let said = cluster.sluice(&["apply", "-f", "t.dstack.yml", "-y", "-d"]);
        let line = format!("sluice: error: t.dstack.yml:{words}\n");
        assert_eq!((said.code, said.stderr, said.stdout), (1, line, String::new()), "{text:?}");
    }
    let never = "type: task\nname: large\ncommands: [a]\nresources: {cpu: 1.., memory: 16MB.., gpu: H100:16}\n";
    cluster.write("t.dstack.yml", never);
    let said = cluster.sluice(&["apply", "-f", "t.dstack.yml", "-y", "-d"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("run large was not submitted"), "{}", said.stderr);
    // What would be right is said where a file or a repository is missing.
    let said = cluster.sluice(&["apply", "-y"]);
    let line = "sluice: error: .dstack.yml is not here: name the configuration with -f FILE\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, line));
    cluster.write("t.dstack.yml", "type: task\nname: cloned\ncommands: [a]\nrepos: [.]\n");
    let said = cluster.sluice(&["apply", "-f", "t.dstack.yml", "-y", "-d"]);
    assert!(said.code == 1 && said.stderr.starts_with("sluice: error: `repos`: .: "), "{said:?}");
    let words = "; `files: [.:code]` brings a folder along as it is\n";
    assert!(said.stderr.ends_with(words) && said.stderr.lines().count() == 1, "{said:?}");
    // A path is below the folder of its file, which need not be the one of the command.
    cluster.shell("mkdir apart && cp t.dstack.yml apart").ok();
    let said = cluster.sluice(&["apply", "-f", "apart/t.dstack.yml", "-y", "-d"]).stderr;
    let apart = std::fs::canonicalize(cluster.path("work/apart")).unwrap();
    let words = format!("sluice: error: `repos`: . ({}): ", apart.display());
    assert!(said.starts_with(&words), "{said}");
    for verb in ["logs", "stop"] {
        let said = cluster.sluice(&[verb, "nosuch"]);
        assert_eq!((said.code, said.stderr.as_str()), (1, "sluice: error: Run nosuch not found\n"));
    }
    assert_eq!(cluster.shell("squeue -h -t all; sacct -a -n").ok(), "", "it left a record");
    assert_eq!(cluster.submit(&["-H", "--wrap", "true"]), 1, "a refused run used up an id");
}

/// Files that would take all memory or the whole stack of a careless reader. The client has 1 GB of addresses.
#[test]
fn up_hostile_yaml_is_refused_in_one_line() {
    let cluster = Cluster::up(TWO_NODES);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let before = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", [before.as_str(); 9].join(", "));
    }
    let task = "type: task\ncommands: [a]\n";
    let hostile = [
        ("aliases of aliases", format!("{bomb}{task}")),
        ("deep lists", format!("{task}env: {}{}\n", "[".repeat(100_000), "]".repeat(100_000))),
        ("deep mappings", format!("{task}env: {}\n", "{a: ".repeat(100_000))),
        ("a huge file", format!("{task}# {}\n", "x".repeat(8 << 20))),
        ("a huge text", format!("{task}tags: {{a: {}}}\n", "x".repeat(3 << 20))),
        ("many properties", format!("{task}env:\n{}", "- A=1\n".repeat(500_000))),
        ("a key given twice, further down", format!("{task}resources: {{cpu: 1, cpu: 2}}\n")),
        ("a wrong type", format!("{task}resources: [1]\n")),
        ("a tag of another language", format!("{task}env: !!python/object:os.system x\n")),
        ("no text", "type: \u{1}task\n".to_owned()),
    ];
    for (what, text) in hostile {
        cluster.write("t.dstack.yml", &text);
        for verb in ["apply -y -d -f", "check"] {
            let line = format!("ulimit -v 1000000; {} {verb} t.dstack.yml", program());
            let said = cluster.shell(&line);
            let lines = format!("{}{}", said.stdout, said.stderr);
            assert_eq!((said.code, lines.lines().count()), (1, 1), "{what}: {verb}: {lines:.300}");
            assert!(lines.contains("t.dstack.yml:") && lines.len() < 400, "{what}: {lines:.500}");
        }
    }
    assert_eq!(cluster.sluice(&["squeue", "-h"]).ok(), "");
}
