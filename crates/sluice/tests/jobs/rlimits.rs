//! Processes inherit the submitter's resource limits, as options and configuration say.

use crate::harness::{Cluster, TWO_NODES, until};
use std::process::Command;

fn words(cluster: &Cluster, line: &str) -> Vec<String> {
    let said = cluster.shell(line);
    assert_eq!(said.code, 0, "{line}: {said:?}");
    said.stdout.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn up_resource_limits_are_inherited_as_configured() {
    let cluster = Cluster::up(TWO_NODES);
    let ask = "sh -c 'ulimit -Sn; ulimit -Sc'";
    let hard = words(&cluster, "ulimit -Hn")[0].clone();
    let low = "ulimit -Sn 77; ulimit -Sc 5;";
    assert_eq!(words(&cluster, &format!("{low} srun {ask}")), ["77", "5"]);
    let core = words(&cluster, &format!("{low} srun --propagate=CORE {ask}"));
    assert!(core[0] != "77" && core[1] == "5", "{core:?}");
    let none = words(&cluster, &format!("{low} srun --propagate=NONE {ask}"));
    assert!(none[0] != "77" && none[1] != "5", "{none:?}");
    // A step inside a job has the limits of its `srun`.
    let inner = words(&cluster, &format!("salloc -Q sh -c \"ulimit -Sn 66; srun {ask}\""));
    assert_eq!(inner[0], "66", "of {hard}");
    cluster.write("job.sh", "#!/bin/sh\nulimit -Sn\n");
    cluster.shell("ulimit -Sn 88; sbatch -o out job.sh").ok();
    cluster.await_file("out", |text| text == "88\n");
    drop(cluster);

    let except = format!("{TWO_NODES}PropagateResourceLimitsExcept=NOFILE\n");
    let cluster = Cluster::up(&except);
    let said = words(&cluster, &format!("{low} srun {ask}"));
    assert!(said[0] != "77" && said[1] == "5", "{said:?}");
    let asked = words(&cluster, &format!("{low} srun --propagate=NOFILE {ask}"));
    assert_eq!(asked[0], "77", "who asks by name is not kept from it");
}

#[test]
fn root_a_resource_limit_above_the_nodes_is_reported() {
    let cluster = Cluster::up(TWO_NODES);
    let own: u64 = words(&cluster, "ulimit -Sn")[0].parse().expect("a number of files");
    let launcher = until("the launcher runs", || {
        let children = format!("/proc/{0}/task/{0}/children", cluster.pid("agent"));
        let text = std::fs::read_to_string(children).ok()?;
        text.split_whitespace().next().map(str::to_owned)
    });
    let less = format!("--nofile={0}:{0}", own - 1);
    let set = Command::new("prlimit").args(["--pid", &launcher, &less]).status();
    assert!(set.expect("prlimit runs").success());
    let line = format!(
        "slurmstepd: error: Can't propagate RLIMIT_NOFILE of {own} from submit host: Invalid argument\n"
    );
    let said = cluster.shell("srun --propagate=NOFILE sh -c 'ulimit -Sn'");
    assert_eq!((said.code, said.stdout.trim()), (0, (own - 1).to_string().as_str()), "{said:?}");
    assert_eq!(said.stderr, line);
    let said = cluster.shell("srun sh -c 'ulimit -Sn'");
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "nobody asked for it: {said:?}");
    cluster.write("job.sh", "#!/bin/sh\nulimit -Sn\n");
    cluster.submit(&["-o", "out", "--propagate=NOFILE", "job.sh"]);
    cluster.await_file("out", |text| text == format!("{line}{}\n", own - 1));
}

#[test]
fn root_open_files_are_capped_whatever_is_propagated() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("cgroup.conf", "MaxOpenFiles=100\n");
    cluster.start();
    let ask = "sh -c 'ulimit -Sn; ulimit -Hn; ulimit -Sn 101 2> /dev/null && echo raised'";
    let asked = |options: &str| {
        let said = cluster.shell_as("games", &format!("ulimit -Sn 90; srun {options} {ask}"));
        said.stdout.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(asked(""), ["90", "100"]);
    assert_eq!(asked("--propagate=NONE"), ["100", "100"]);
    cluster.write("job.sh", &format!("#!/bin/sh\n{ask}\n"));
    let job = cluster.submit_as("games", "--propagate=NOFILE -o out job.sh");
    cluster.await_end(job);
    let out = cluster.read("out");
    assert!(out.starts_with("slurmstepd: error: Can't propagate RLIMIT_NOFILE of "), "{out}");
    assert!(out.ends_with("\n100\n100\n"), "{out}");
}
