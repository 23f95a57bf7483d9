//! `sluice check` reads files without a server, and names file and line of what is wrong; `sluice convert` turns each language
//! into the other.

use crate::harness::program;
use std::path::{Path, PathBuf};
use std::process::Command;

fn check(dir: &Path, args: &[&str]) -> (String, bool) {
    let output = Command::new(program()).arg("check").args(args).current_dir(dir).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

const GOOD: &[(&str, &str)] = &[
    (
        "task.dstack.yml",
        "type: task\ncommands: [make]\nnodes: 2..4\nresources: {gpu: 'A100:80GB:8'}\n",
    ),
    ("fleet.dstack.yml", "type: fleet\nname: lab\nssh_config: {user: ada, hosts: [a, b]}\n"),
    ("profiles.yml", "profiles:\n- name: long\n  max_duration: 2d\n"),
    ("job.sbatch", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --mem=16G\nhostname\n"),
];

const BAD: &[(&str, &str, &str)] = &[
    (
        "a.dstack.yml",
        "type: task\ncomands: [make]\n",
        "a.dstack.yml:2:1: unknown property `comands`: did you mean `commands`?\n",
    ),
    (
        "b.dstack.yml",
        "type: fleet\nnodes: 2\nblocks: none\n",
        "b.dstack.yml:3:9: `blocks`: invalid \"none\": expected a whole number, 1 or more, or auto\n",
    ),
    (
        "profiles.yml",
        "profiles: 3\n",
        "profiles.yml:1:11: `profiles`: invalid \"3\": expected a list of profiles\n",
    ),
    ("c.sbatch", "#!/bin/bash\n\n#SBATCH --nodes=x\n", "c.sbatch:3: "),
    ("d.sbatch", "", "d.sbatch: Batch script is empty!\n"),
];

#[test]
fn good_files_are_understood_and_bad_ones_named_by_line() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in GOOD {
        std::fs::write(dir.path().join(name), text).unwrap();
        let (said, good) = check(dir.path(), &[name]);
        assert!(good, "{name}: {said}");
    }
    let (said, good) = check(dir.path(), &["--json", "task.dstack.yml"]);
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(good);
    assert_eq!(found[0]["understood"]["nodes"], "2..4");
    assert_eq!(found[0]["understood"]["resources"]["gpu"]["count"]["min"], 8);
    assert_eq!(found[0]["understood"]["resources"]["memory"]["min"], 8.0);
    for (name, text, expected) in BAD {
        std::fs::write(dir.path().join(name), text).unwrap();
        let (said, good) = check(dir.path(), &[name]);
        assert!(!good && said.starts_with(expected), "{name}: {said}");
    }
    std::fs::write(dir.path().join("slurm.conf"), "NodeName=n1 CPUs=4\nPartitionNam=x\n").unwrap();
    let (said, good) = check(dir.path(), &["slurm.conf"]);
    assert!(!good && said.contains("slurm.conf:2:"), "{said}");
    assert!(!check(dir.path(), &["missing.yml"]).1);
}

/// Each configuration that people bring along is understood; theirs are present only where the project is developed.
#[test]
fn examples_that_people_bring_along_are_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/examples");
    let files: Vec<PathBuf> = [root, shared]
        .iter()
        .filter_map(|dir| std::fs::read_dir(dir).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_string_lossy().ends_with(".dstack.yml"))
        .collect();
    assert!(!files.is_empty());
    for path in files {
        let (said, good) = check(Path::new("/"), &[&path.display().to_string()]);
        assert!(good, "{said}");
    }
}

/// What `sluice convert` makes of the file.
fn convert(dir: &Path, name: &str) -> String {
    let output = Command::new(program()).args(["convert", name]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn script_becomes_a_task_and_a_task_a_script_and_both_are_good() {
    let dir = tempfile::tempdir().unwrap();
    let script = "#!/bin/bash\n#SBATCH -J Train_1 -N 2-4 -c 8 --mem=32G --gres=gpu:a100:4 -t 2:00:00\n#SBATCH -p gpu -A physics --array=0-3 -o out.txt\n#SBATCH --tmp=20G --reservation=night --requeue --container-image=alpine --comment=x\n\necho hi\n";
    std::fs::write(dir.path().join("job.sbatch"), script).unwrap();
    let yaml = convert(dir.path(), "job.sbatch");
    for line in [
        "name: train-1",
        "nodes: 2..4",
        "    echo hi",
        "  cpu: 8..",
        "  memory: 32GB..",
        "  gpu: a100:4",
        "max_duration: 120m",
        "fleets: [gpu]",
        "array: \"0-3\"",
        "account: \"physics\"",
        "  disk: 20GB..",
        "image: \"alpine\"",
        "reservation: \"night\"",
        "retry: {on_events: [no-capacity, interruption]}",
        "# --output=out.txt: has no counterpart",
        "# --comment=x: has no counterpart",
    ] {
        assert!(yaml.lines().any(|found| found == line), "{line}\n{yaml}");
    }
    std::fs::write(dir.path().join("back.dstack.yml"), &yaml).unwrap();
    assert!(check(dir.path(), &["back.dstack.yml"]).1, "{yaml}");
    let back = convert(dir.path(), "back.dstack.yml");
    for line in [
        "#SBATCH --nodes=2-4",
        "#SBATCH --cpus-per-task=8",
        "#SBATCH --mem=32768M",
        "#SBATCH --gpus-per-node=a100:4",
        "#SBATCH --time=120",
        "#SBATCH --partition=gpu",
        "#SBATCH --array=0-3",
        "#SBATCH --tmp=20480M",
        "#SBATCH --reservation=night",
        "#SBATCH --requeue",
        "#SBATCH --container-image=alpine",
        "#SBATCH --exclusive",
        "echo hi",
    ] {
        assert!(back.lines().any(|found| found == line), "{line}\n{back}");
    }
    std::fs::write(dir.path().join("back.sbatch"), &back).unwrap();
    assert!(check(dir.path(), &["back.sbatch"]).1, "{back}");
}

#[test]
fn converted_script_runs_the_same_lines() {
    let dir = tempfile::tempdir().unwrap();
    let body = "  if true; then\n    cat <<END\n#!/bin/sh\n#SBATCH -N 9\n${{ x }} $$\nEND\n  fi\n";
    let script =
        format!("#!/bin/bash\n#SBATCH -J here\n# kept\n\n#SBATCH -D '/data/my set'\n{body}");
    std::fs::write(dir.path().join("job.sbatch"), script.replace("# kept\n", "")).unwrap();
    let yaml = convert(dir.path(), "job.sbatch");
    std::fs::write(dir.path().join("job.dstack.yml"), &yaml).unwrap();
    let (said, good) = check(dir.path(), &["--json", "job.dstack.yml"]);
    assert!(good, "{said}\n{yaml}");
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    let expected = body.replace("${{", "$${{");
    assert_eq!(found[0]["understood"]["commands"][0], expected, "{yaml}");
    let back = convert(dir.path(), "job.dstack.yml");
    assert!(back.contains("#SBATCH --chdir='/data/my set'\n"), "{back}");
    assert!(back.contains(body), "{back}");
    std::fs::write(dir.path().join("job.sbatch"), script).unwrap();
    assert!(convert(dir.path(), "job.sbatch").contains("  - |\n    # kept\n"));
}

#[test]
fn converted_variables_have_the_values_that_the_run_would_have() {
    let dir = tempfile::tempdir().unwrap();
    let env = "{TOKEN: '${{ secrets.hf }}', PRICE: '5$$', URL: 'x/${{ secrets.hf }}'}";
    let text = format!("type: task\nenv: {env}\ncommands: ['echo $PRICE']\n");
    std::fs::write(dir.path().join("a.dstack.yml"), text).unwrap();
    let script = convert(dir.path(), "a.dstack.yml");
    for line in [
        "#SBATCH --secret=hf=TOKEN",
        "export PRICE='5$'",
        "# env: URL=\"x/${{ secrets.hf }}\": has no counterpart",
    ] {
        assert!(script.lines().any(|found| found == line), "{line}\n{script}");
    }
    std::fs::write(dir.path().join("a.sbatch"), &script).unwrap();
    assert!(check(dir.path(), &["a.sbatch"]).1, "{script}");
}

#[test]
fn what_a_batch_script_cannot_say_is_a_comment() {
    let dir = tempfile::tempdir().unwrap();
    let said = [
        ("priority: 7", "# priority: 7: has no counterpart"),
        ("stop_duration: 5m", "# stop_duration: 300: has no counterpart"),
        ("python: 3.12", "# python: \"3.12\": has no counterpart"),
        ("retry: {on_events: [error]}", "# retry: on error: has no counterpart"),
        ("resources: {gpu: '24GB..:1'}", "# gpu memory: 24GB..: has no counterpart"),
    ];
    for (line, comment) in said {
        std::fs::write(
            dir.path().join("t.dstack.yml"),
            format!("type: task\ncommands: [make]\n{line}\n"),
        )
        .unwrap();
        let script = convert(dir.path(), "t.dstack.yml");
        let comments: Vec<&str> = script.lines().filter(|l| l.starts_with("# ")).collect();
        assert_eq!(comments, [comment], "{script}");
    }
}

/// The examples between lines of three backquotes, with the word after the first.
fn fenced(text: &str) -> Vec<(&str, &str)> {
    let parts = text.split("```").skip(1).step_by(2);
    parts.filter_map(|part| part.split_once('\n')).collect()
}

#[test]
fn examples_of_the_migration_guide_are_good_and_each_becomes_the_other() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migration.md");
    let text = std::fs::read_to_string(guide).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let examples = fenced(&text);
    assert!(examples.len() >= 2, "{examples:?}");
    for (language, example) in examples {
        let (name, other) = match language {
            "bash" => ("it.sh", "other.dstack.yml"),
            "yaml" => ("it.dstack.yml", "other.sh"),
            other => panic!("{other}: expected bash or yaml"),
        };
        std::fs::write(dir.path().join(name), example).unwrap();
        let (said, good) = check(dir.path(), &[name]);
        assert!(good && said.lines().count() == 1, "nothing of it is without effect: {said}");
        std::fs::write(dir.path().join(other), convert(dir.path(), name)).unwrap();
        let (said, good) = check(dir.path(), &[other]);
        assert!(good, "{said}");
    }
}
