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
    (
        "several.dstack.yml",
        "type: task\ncommands: [make]\nname: Bad_Name\nnodes: 0\nresources: {cpu: 2..1}\n",
        "several.dstack.yml:3:7: `name`: invalid \"Bad_Name\": expected a name of 2 to 41 lower-case letters, digits and -, of which the first is a letter\n\
         several.dstack.yml:4:8: `nodes`: invalid \"0\": expected a whole number, 1 or more, or a range such as 2..4\n\
         several.dstack.yml:5:18: `resources.cpu`: invalid CPU count \"2..1\": expected the smaller end before the ..\n",
    ),
    ("c.sbatch", "#!/bin/bash\n\n#SBATCH --nodes=x\n", "c.sbatch:3:9: "),
    ("d.sbatch", "", "d.sbatch:1:1: Batch script is empty!\n"),
    ("e.sbatch", "#!/bin/sh\n#SBATCH -n 2\r\n", "e.sbatch:2:9: "),
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
    // The files beside it are read with it.
    let slurm = "NodeName=n1 CPUs=4 Gres=gpu:2\nGresTypes=gpu\nPartitionName=x Nodes=n1\n";
    for (name, wrong) in [("gres.conf", "Nam=gpu\n"), ("sluice.toml", "\n[nodes]\ndgcm = 1\n")] {
        std::fs::write(dir.path().join("slurm.conf"), slurm).unwrap();
        std::fs::write(dir.path().join(name), wrong).unwrap();
        for file in [name, "slurm.conf", "."] {
            let (said, good) = check(dir.path(), &[file]);
            assert!(!good && said.contains(&format!("{name}:")), "{file}: {said}");
        }
        std::fs::remove_file(dir.path().join(name)).unwrap();
    }
    assert!(check(dir.path(), &["slurm.conf"]).1);
    // What sluice.toml names of slurm.conf and of this machine is looked up.
    let source = "[[source]]\nname = 'cloud'\nprogram = '/bin/sh'\nmachines = 2\n";
    let toml = dir.path().join("sluice.toml");
    for (more, words) in [
        ("nodes = 'c[1-20]'\n", "nodes: c1: expected a node of slurm.conf with State=CLOUD"),
        ("call_limit = '0s'\n", "call_limit: \"0s\": expected a time from 1s"),
        ("price_per_hour = 'two'\n", "sluice.toml:5: price_per_hour: \"two\": expected a number"),
    ] {
        std::fs::write(&toml, format!("{source}{more}")).unwrap();
        let (said, good) = check(dir.path(), &["."]);
        assert!(!good && said.contains(words), "{more}: {said}");
    }
    let missing = source.replace("/bin/sh", "/nowhere/make");
    std::fs::write(&toml, missing).unwrap();
    let (said, good) = check(dir.path(), &["."]);
    let words = "program: \"/nowhere/make\": there is no such file";
    assert!(!good && said.contains(words), "{said}");
    let cloud = "kind = 'lambda'\n[source.cloud]\nregions = ['r']\nssh_key = 'k'\ncredentials = '/dev/null'\n";
    let cloud = format!("{}{cloud}", source.replace("program = '/bin/sh'\n", ""));
    std::fs::write(&toml, cloud).unwrap();
    let (said, good) = check(dir.path(), &["."]);
    assert!(good && said.contains("the agents' port, which is on 127.0.0.1 unless"), "{said}");
    assert!(said.contains(": good (slurm.conf and sluice.toml)\n"), "{said}");
    std::fs::remove_file(&toml).unwrap();
    let passed_over = "#!/bin/sh\n  #SBATCH -n 2\ntrue\n#SBATCH -c 2\n";
    std::fs::write(dir.path().join("over.sh"), passed_over).unwrap();
    let (said, good) = check(dir.path(), &["over.sh"]);
    assert!(good, "{said}");
    for place in ["over.sh:2: #SBATCH: is not read: ", "over.sh:4: #SBATCH: is not read: "] {
        assert!(said.contains(place), "{said}");
    }
    assert!(!check(dir.path(), &["missing.yml"]).1);
    // What cannot be read cannot be converted, for the same reason.
    let converted =
        Command::new(program()).args(["convert", "c.sbatch"]).current_dir(dir.path()).output();
    let said = String::from_utf8(converted.unwrap().stderr).unwrap();
    assert!(said.starts_with("sluice: error: c.sbatch:3:9: "), "{said}");
}

/// A table of batch scripts with every place at which one is wrong.
#[test]
fn every_wrong_line_of_a_batch_script_is_named_with_its_column() {
    let table: &[(&str, &[&str])] = &[
        // Unknown options and bad values, several of them.
        (
            "#SBATCH --bogus=1\n#SBATCH -n 2\n#SBATCH -J ok --nodes=x\n#SBATCH --mem 4Q\n",
            &["2:9: unrecognized option '--bogus=1'", "4:15: ", "5:15: "],
        ),
        ("#SBATCH -t 1:2:3:4:5\n", &["2:12: "]),
        ("#SBATCH --time\n", &["2:9: option '--time' requires an argument"]),
        // A value on the next line is no mistake, and one that is wrong is found there.
        ("#SBATCH -n\n#SBATCH 4\n#SBATCH --gres=\n#SBATCH -c z\n", &["5:12: "]),
        ("#SBATCH -n\n#SBATCH four\n", &["3:9: "]),
        // Options that do not go together are told by the last of them.
        ("#SBATCH --mem=1G\n#SBATCH -n 2\n#SBATCH --mem-per-cpu=1G\n", &["4:9: "]),
        // One that is indented is a comment.
        (" #SBATCH --mem=1G\n#SBATCH -n two\n#SBATCH --foo\n", &["3:12: ", "4:9: "]),
        // What comes after the first command is no directive.
        ("#SBATCH --bogus\ntrue\n#SBATCH --other\n", &["2:9: "]),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (lines, expected) in table {
        std::fs::write(dir.path().join("job.sh"), format!("#!/bin/sh\n{lines}")).unwrap();
        let (said, good) = check(dir.path(), &["job.sh"]);
        let mut places: Vec<&str> = said.lines().collect();
        // A time has two lines of its own, at one place.
        places.dedup_by_key(|line| line.split(": ").next().map(str::to_owned));
        assert!(!good && places.len() == expected.len(), "{lines}{said}");
        for (line, expected) in places.iter().zip(*expected) {
            assert!(line.starts_with(&format!("job.sh:{expected}")), "{lines}{said}");
        }
    }
}

/// A table of configurations whose properties are right one by one.
#[test]
fn what_a_submit_of_a_configuration_would_refuse_is_found_without_a_server() {
    let table = [
        (
            "type: service\nport: 80\ncommands: [x]\nprobes: [{type: http, url: '/a b'}]\n",
            "probe url \"/a b\": expected a path such as /health",
        ),
        (
            "type: task\nnodes: 2\ncommands: ['ping ${{ groups[0].nodes[0].IP_ADDRESS }}']\n",
            "${{ groups[0].nodes[0].IP_ADDRESS }}: there is no such node",
        ),
        (
            "type: task\ncommands: [x]\nschedule: {cron: '0 0 31 2 *'}\n",
            "`schedule`: 0 0 31 2 *: no day of the calendar matches",
        ),
        ("type: task\ncommands: [x]\nfleets: [other/lab]\n", "fleet other/lab: "),
    ];
    let dir = tempfile::tempdir().unwrap();
    let check_text = |text: &str| {
        std::fs::write(dir.path().join("it.dstack.yml"), text).unwrap();
        check(dir.path(), &["it.dstack.yml"])
    };
    for (text, expected) in table {
        let (said, good) = check_text(text);
        assert!(!good && said.lines().count() == 1, "{text}: {said}");
        assert!(said.starts_with("it.dstack.yml: ") && said.contains(expected), "{text}: {said}");
    }
    let (said, good) = check_text("type: task\ncommands: [x]\nresources: {disk: 1GB..2GB}\n");
    assert!(good && said.starts_with("it.dstack.yml: `disk`: the maximum of 2GB"), "{said}");
    // The cluster and the caller's environment know these.
    let (said, good) = check_text(
        "type: service\nport: 80\ncommands: [x]\nenv: [TOKEN, WHERE]\ndepends_on: prepare\n\
         instances: [node1]\nprobes: [{type: http, url: '/${{ env.WHERE }}'}]\n",
    );
    assert!(good, "{said}");
}

#[test]
fn settings_of_dstacks_server_are_named_as_without_effect() {
    let dir = tempfile::tempdir().unwrap();
    let text = "projects:\n- name: main\n  backends: []\n";
    std::fs::write(dir.path().join("config.yml"), text).unwrap();
    let (said, good) = check(dir.path(), &["config.yml"]);
    assert!(good, "{said}");
    assert!(said.starts_with("config.yml: `projects` has no effect here: "), "{said}");
    assert!(said.ends_with("config.yml: good (settings of dstack's server)\n"), "{said}");
    // Wrong for `sluice convert` is wrong here.
    let text = "projects:\n- name: main\n  backends:\n  - type: gcp\n    regions: [us-east1]\n";
    std::fs::write(dir.path().join("config.yml"), text).unwrap();
    let (said, good) = check(dir.path(), &["config.yml"]);
    let first = said.lines().next().unwrap_or_default();
    assert!(!good && first.starts_with("config.yml:4:"), "{said}");
    assert!(first.ends_with("expected `project_id`: the id of the cloud's project"), "{said}");
}

#[test]
fn config_yml_beside_slurm_conf_is_checked_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let conf = "ClusterName=test\nNodeName=node1 CPUs=8 RealMemory=4000\n\
                PartitionName=main Nodes=node1 Default=YES State=UP\n";
    std::fs::write(dir.path().join("slurm.conf"), conf).unwrap();
    let file = dir.path().join("config.yml");
    let lambda = "{type: lambda, regions: [us-west-1], ssh_key: lab}";
    let aws = "{type: aws, regions: [eu-west-1], image: ami-1, vpc_ids: {eu-west-2: vpc-1}}";
    let write = |backends: &str| {
        let text = format!("projects: [{{name: main, backends: [{backends}]}}]\nplugins: [p]\n");
        std::fs::write(&file, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
    };
    write(lambda);
    for given in [".", "config.yml"] {
        let (said, good) = check(dir.path(), &[given]);
        assert!(good && said.contains("/config.yml: `plugins` has no effect here"), "{said}");
        assert!(!said.contains("`projects`"), "{said}");
    }
    write(&format!("{{type: runpod, creds: {{type: api_key, api_key: hush}}}}, {lambda}"));
    let (said, good) = check(dir.path(), &["."]);
    let line = "./config.yml: project main: backend: type: \"runpod\": expected aws";
    assert!(!good && said.starts_with(line) && !said.contains("hush"), "{said}");
    write(&format!("{lambda}, {aws}"));
    let (said, good) = check(dir.path(), &["."]);
    let line = "./config.yml: project main: backend: cloud.vpc_ids: \"eu-west-2\": expected";
    assert!(!good && said.contains(line), "{said}");
}

#[test]
fn files_of_slurms_plugins_are_named_as_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let conf = "ClusterName=test\nNodeName=node1 CPUs=8 RealMemory=4000\n\
                PartitionName=main Nodes=node1 Default=YES State=UP\n";
    std::fs::write(dir.path().join("slurm.conf"), conf).unwrap();
    let (said, good) = check(dir.path(), &["."]);
    assert!(good && !said.contains("is not read"), "{said}");
    for name in ["oci.conf", "plugstack.conf"] {
        std::fs::write(dir.path().join(name), "anything\n").unwrap();
    }
    let (said, good) = check(dir.path(), &["."]);
    assert!(good && said.matches(": is not read: ").count() == 2, "{said}");
    for line in ["./oci.conf: is not read: ", "./plugstack.conf: is not read: "] {
        assert!(said.contains(line), "{said}");
    }
}

/// The files that people bring along: theirs are present only where the project is developed.
fn brought_along() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/examples");
    let folders = [root, shared];
    let entries = folders.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten();
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    files.filter(|path| path.extension().is_some_and(|end| end != "md")).collect()
}

#[test]
fn files_that_people_bring_along_are_understood_or_named_by_their_place() {
    for path in brought_along() {
        let file = path.display().to_string();
        let (said, good) = check(Path::new("/"), &[&file]);
        // Parts of a configuration, files of other programs and lines for a shell are none of ours. Settings of dstack's server are
        // there too, with a backend that has no `project_id`.
        let parts = ["/fragment-", "/kubernetes-", "/batch-train.sbatch"];
        let is_part = parts.iter().any(|part| file.contains(part));
        assert_eq!(good, !is_part, "{said}");
        if is_part {
            let place = said.strip_prefix(&format!("{file}:")).expect("the file first");
            let numbers = place.splitn(3, ':').take(2);
            assert!(numbers.into_iter().all(|number| number.parse::<u32>().is_ok()), "{said}");
        }
    }
}

/// Each batch script and each task becomes the other, which is good, and becomes the first kind again.
#[test]
fn files_that_people_bring_along_are_converted_there_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut count = 0;
    for path in brought_along() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_task = std::fs::read_to_string(&path).unwrap().contains("type: task\n");
        let (other, back) = match name.ends_with(".dstack.yml") {
            true if is_task => ("other.sh", "back.dstack.yml"),
            false if name.ends_with(".sbatch") || name.ends_with(".sh") => {
                ("other.dstack.yml", "back.sh")
            }
            _ => continue,
        };
        if name == "batch-train.sbatch" {
            // Lines for a shell.
            continue;
        }
        count += 1;
        let mut from = path.display().to_string();
        for to in [other, back] {
            let text = convert(dir.path(), &from);
            std::fs::write(dir.path().join(to), &text).unwrap();
            let (said, good) = check(dir.path(), &[to]);
            assert!(good, "{name} as {to}: {said}\n{text}");
            from = to.to_owned();
        }
    }
    assert!(count > 0);
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
        "  cpu: 8",
        "  memory: 32GB",
        "  gpu: a100:4",
        "max_duration: 2h",
        "fleets: [gpu]",
        "array: \"0-3\"",
        "account: \"physics\"",
        "  disk: 20GB..",
        "image: \"alpine\"",
        "reservation: \"night\"",
        "retry: {on_events: [no-capacity, interruption], duration: 365d}",
        "shell: \"/bin/bash\"",
        "stop_criteria: master-done",
        "    [ \"$DSTACK_NODE_RANK\" = 0 ] || exec sleep infinity",
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
fn amounts_for_each_gpu_and_task_are_converted_to_those_of_a_node() {
    let table: &[(&str, &[&str])] = &[
        (
            "-N2 --ntasks-per-node=2 --gpus-per-task=a100:2 --mem-per-gpu=16G -c 8",
            &["  cpu: 16", "  memory: 64GB", "  gpu: a100:4"],
        ),
        ("--gpus=4 --cpus-per-gpu=6", &["  cpu: 24", "  gpu: 4"]),
        ("-n2 --tres-per-task=cpu=3,gres/gpu=1", &["  cpu: 6", "  gpu: 2"]),
        ("--gpus=4 --gpus-per-task=2 -c 3", &["  cpu: 6", "  gpu: 4"]),
        ("-n4 --gres=gpu:4 --gpus-per-task=1", &["  cpu: 4", "  gpu: 4"]),
        ("-n4 --gpus-per-task=1 --cpus-per-gpu=2", &["  cpu: 8", "  gpu: 4"]),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (options, expected) in table {
        let script = format!("#!/bin/bash\n#SBATCH {options}\ntrue\n");
        std::fs::write(dir.path().join("job.sbatch"), script).unwrap();
        let yaml = convert(dir.path(), "job.sbatch");
        for line in *expected {
            assert!(yaml.lines().any(|found| found == *line), "{options}: {line}\n{yaml}");
        }
        assert!(!yaml.contains("has no counterpart"), "{options}\n{yaml}");
        assert_eq!(yaml.matches("  gpu: ").count(), 1, "{options}\n{yaml}");
    }
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
        ("resources: {gpu: '24GB..:1'}", "# resources.gpu.memory: 24GB..: has no counterpart"),
        ("resources: {gpu: 'H100:1..4'}", "# resources.gpu.count: at most 4: has no counterpart"),
        ("resources: {gpu: 'A100,H100:1'}", "# resources.gpu.name: or H100: has no counterpart"),
        ("resources: {gpu: 'amd:1'}", "# resources.gpu.vendor: amd: has no counterpart"),
        (
            "resources: {gpu: {count: 1, total_memory: 40GB..}}",
            "# resources.gpu.total_memory: 40GB..: has no counterpart",
        ),
        (
            "resources: {gpu: {count: 1, compute_capability: 8.0}}",
            "# resources.gpu.compute_capability: 8.0: has no counterpart",
        ),
        ("resources: {cpu: 2..8}", "# resources.cpu: at most 8: has no counterpart"),
        ("resources: {cpu: 'arm:2..'}", "# resources.cpu.arch: arm: has no counterpart"),
        ("resources: {memory: 1GB..2GB}", "# resources.memory: at most 2GB: has no counterpart"),
        (
            "depends_on: prepare",
            "# depends_on: afterok:prepare: put the number of its job into --dependency",
        ),
        ("resources: {shm_size: 1GB}", "# resources.shm_size: 1GB: has no counterpart"),
    ];
    for (line, comment) in said {
        std::fs::write(
            dir.path().join("t.dstack.yml"),
            format!("type: task\ncommands: [make]\nmax_duration: 1h\n{line}\n"),
        )
        .unwrap();
        let script = convert(dir.path(), "t.dstack.yml");
        let comments: Vec<&str> = script.lines().filter(|l| l.starts_with("# ")).collect();
        assert_eq!(comments, [comment], "{script}");
    }
    // Such a run has all the time that its partition gives, and such a script its default.
    for line in ["", "max_duration: off\n"] {
        let text = format!("type: task\ncommands: [make]\n{line}");
        std::fs::write(dir.path().join("t.dstack.yml"), text).unwrap();
        let script = convert(dir.path(), "t.dstack.yml");
        assert!(script.contains("\n# max_duration: none is given, "), "{script}");
        assert!(!script.contains("#SBATCH --time"), "{script}");
    }
}

#[test]
fn what_a_configuration_cannot_say_is_a_comment() {
    let dir = tempfile::tempdir().unwrap();
    let said = [
        ("bash", "--mem=0", "  # --mem=0, all memory of the node: has no counterpart"),
        ("bash", "-c 2", "  # no --mem: a task gets 8GB.. where it names no memory"),
        ("bash", "--no-requeue", "retry: {on_events: [no-capacity], duration: 365d}"),
        ("bash", "-J it", "retry: {on_events: [no-capacity, interruption], duration: 365d}"),
        ("bash", "-d afterok:7,after:5+3", "depends_on: [\"afterok:7\"]"),
        ("bash", "-d afterok:7,after:5+3", "# --dependency=after:5+3: has no counterpart"),
        ("bash", "-d singleton", "# --dependency=singleton: has no counterpart"),
        (
            "bash",
            "-d afterok:1?afterok:2",
            "# --dependency=afterok:1?afterok:2: has no counterpart",
        ),
        ("sh", "-c 2", "shell: \"/bin/sh\""),
        (
            "bash -l",
            "-c 2",
            "# #!/bin/bash -l: the options of the shell have no counterpart: use `set`",
        ),
        ("python3", "-c 2", "# #!/bin/python3: has no counterpart: commands are read by a shell"),
    ];
    for (interpreter, options, line) in said {
        let script = format!("#!/bin/{interpreter}\n#SBATCH {options}\nmake\n");
        std::fs::write(dir.path().join("t.sh"), script).unwrap();
        let yaml = convert(dir.path(), "t.sh");
        assert!(yaml.lines().any(|found| found == line), "{options}: {line}\n{yaml}");
        std::fs::write(dir.path().join("t.dstack.yml"), &yaml).unwrap();
        let (said, good) = check(dir.path(), &["t.dstack.yml"]);
        assert!(good, "{said}\n{yaml}");
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
    // What the script becomes asks for the same as the configuration beside it.
    let understood = |name: &str| {
        let (said, _) = check(dir.path(), &["--json", name]);
        let said: serde_json::Value = serde_json::from_str(&said.to_lowercase()).unwrap();
        said[0]["understood"].clone()
    };
    let (shown, converted) = (understood("it.dstack.yml"), understood("other.dstack.yml"));
    for key in ["name", "nodes", "resources", "max_duration", "fleets", "account", "retry"] {
        assert_eq!(shown[key], converted[key], "{key}");
    }
}

#[test]
fn volumes_are_converted_there_and_back() {
    let dir = tempfile::tempdir().unwrap();
    let script = "#!/bin/bash\n#SBATCH --volume=data:/data,part-0:/part\n#SBATCH --volume=old:/old:ro\nmake\n";
    std::fs::write(dir.path().join("job.sh"), script).unwrap();
    let yaml = convert(dir.path(), "job.sh");
    assert!(yaml.contains("# --volume=old:/old:ro: reading only has no counterpart"), "{yaml}");
    std::fs::write(dir.path().join("job.dstack.yml"), &yaml).unwrap();
    assert!(check(dir.path(), &["job.dstack.yml"]).1, "{yaml}");
    let back = convert(dir.path(), "job.dstack.yml");
    for line in ["#SBATCH --volume=data:/data\n", "#SBATCH --volume=part-0:/part\n"] {
        assert!(back.contains(line), "{yaml}\n{back}");
    }
    let by_rank = "type: task\ncommands: [make]\nnodes: 2\nvolumes:\n- d-${{ dstack.node_rank }}:/d\n- {instance_path: /x, path: /x}\n";
    std::fs::write(dir.path().join("rank.dstack.yml"), by_rank).unwrap();
    let script = convert(dir.path(), "rank.dstack.yml");
    assert!(script.contains("# volumes: /x: has no counterpart"), "{script}");
    std::fs::write(dir.path().join("rank.sh"), &script).unwrap();
    let (said, good) = check(dir.path(), &["rank.sh"]);
    assert!(good, "{said}\n{script}");
}
