//! What must be refused and in which words. All errors are reported at once.

use super::{accepted, refused};

#[test]
fn each_error_is_one_line_with_file_and_line_number() {
    let table = [
        (
            "SlurmdTimeot=300",
            "/c/slurm.conf:1: SlurmdTimeot: not a key of slurm.conf; the nearest is SlurmdTimeout",
        ),
        (
            "NodeName=n\u{1b}2 CPUs=1",
            "/c/slurm.conf:1: NodeName: \"n\\u{1b}2\": expected no control characters",
        ),
        (
            "NodeName=n1\nPartitionName=p\u{202e}q Nodes=n1",
            "/c/slurm.conf:2: PartitionName: \"p\\u{202e}q\": expected no control characters",
        ),
        ("Zzzzzzzz=1", "/c/slurm.conf:1: Zzzzzzzz: not a key of slurm.conf"),
        (
            "\n\nKillWait=soon",
            "/c/slurm.conf:3: KillWait: \"soon\": expected a whole number from 0 to 65533",
        ),
        ("KillWait", "/c/slurm.conf:1: \"KillWait\": Key=Value expected"),
        ("KillWait=", "/c/slurm.conf:1: \"KillWait=\": a value expected after ="),
        ("=5", "/c/slurm.conf:1: \"=5\": Key=Value expected"),
        (
            "NodeName=n1 Reason=\"half",
            "/c/slurm.conf:1: \"Reason=\\\"half\": a closing quote expected on the same line (a # in a value is \\#)",
        ),
        (
            "NodeName=n1 RealMemory=128G",
            "/c/slurm.conf:1: RealMemory: \"128G\": expected a whole number of megabytes, without a suffix: 131072",
        ),
        (
            "NodeName=n1 CPUs=4 \\\n  RealMemry=1",
            "/c/slurm.conf:2: RealMemry: not a key of a NodeName line; the nearest is RealMemory",
        ),
        (
            "NodeName=n1 State=BROKEN",
            "/c/slurm.conf:1: State: \"BROKEN\": expected one of UNKNOWN, IDLE, CLOUD, DOWN, DRAIN, EXTERNAL, FAIL, FAILING, FUTURE",
        ),
        (
            "NodeName=n1\nNodeName=n[1-2]",
            "/c/slurm.conf:2: NodeName: \"n1\": declared already, at /c/slurm.conf:1",
        ),
        (
            "NodeName=ALL",
            "/c/slurm.conf:1: NodeName: \"ALL\": ALL means every node and can name none",
        ),
        (
            "NodeName=DEFAULT NodeAddr=h",
            "/c/slurm.conf:1: NodeAddr: \"h\": cannot be a default: each node has its own",
        ),
        (
            "NodeName=n[1-3] NodeAddr=a[1-2]",
            "/c/slurm.conf:1: NodeAddr: \"a[1-2]\": 2 hosts for 3 nodes; expected as many",
        ),
        (
            "NodeName=n[1-3] Port=1-2",
            "/c/slurm.conf:1: Port: \"1-2\": expected one port, or a range of 3",
        ),
        (
            "NodeName=n1 Port=70000",
            "/c/slurm.conf:1: Port: \"70000\": expected one port, or a range of 1",
        ),
        (
            "PartitionName=p Nodes=n9",
            "/c/slurm.conf:1: Nodes: \"n9\": no NodeName line declares this, and no NodeSet has the name",
        ),
        (
            "PartitionName=p\nPartitionName=p",
            "/c/slurm.conf:2: PartitionName: \"p\": this partition is declared already, at /c/slurm.conf:1",
        ),
        (
            "PartitionName=a,b",
            "/c/slurm.conf:1: PartitionName: \"a,b\": expected one name, without commas, spaces or =",
        ),
        (
            "PartitionName=p MaxNodes=1 MinNodes=2",
            "/c/slurm.conf:1: MinNodes: \"2\": expected at most MaxNodes, which is 1",
        ),
        (
            "PartitionName=p AllocNodes=login",
            "/c/slurm.conf:1: AllocNodes: \"login\": not enforced here: jobs would be taken from every host; expected no such key",
        ),
        (
            "MCSPlugin=mcs/user",
            "/c/slurm.conf:1: MCSPlugin: \"mcs/user\": not enforced here: jobs of different labels would share nodes and be shown to all; expected no such key",
        ),
        (
            "JobSubmitPlugins=lua",
            "/c/slurm.conf:1: JobSubmitPlugins: \"lua\": not enforced here: jobs that a plugin would refuse or change would be taken as they are; expected no such key",
        ),
        (
            "PrivateData=all",
            "/c/slurm.conf:1: PrivateData: \"all\": \"all\" is none of none, accounts, cloud, events, jobs, nodes, partitions, reservations, usage, users",
        ),
        (
            "PrivateData=none,jobs",
            "/c/slurm.conf:1: PrivateData: \"none,jobs\": expected none alone",
        ),
        (
            "SchedulerParameters=max_array_tasks=few",
            "/c/slurm.conf:1: SchedulerParameters: \"max_array_tasks=few\": max_array_tasks=few: expected a whole number",
        ),
        (
            "PartitionName=p TRESBillingWeights=cpu",
            "/c/slurm.conf:1: TRESBillingWeights: \"cpu\": \"cpu\": expected weights such as CPU=1.0,Mem=0.25G",
        ),
        (
            "ClusterName=c\nLicenses=matlab:x,foo,bar:3",
            "/c/slurm.conf:2: Licenses: \"matlab:x,foo,bar:3\": expected NAME or NAME:COUNT, with commas",
        ),
        (
            "MaxArraySize=5000000",
            "/c/slurm.conf:1: MaxArraySize: \"5000000\": expected from 0 to 4000001",
        ),
        (
            "PriorityWeightTRES=bogus=1",
            "/c/slurm.conf:1: PriorityWeightTRES: \"bogus=1\": \"bogus=1\": expected weights such as cpu=100,gres/gpu=1000",
        ),
        (
            "PriorityWeightTRES=cpu=x",
            "/c/slurm.conf:1: PriorityWeightTRES: \"cpu=x\": \"cpu=x\": expected weights such as cpu=100,gres/gpu=1000",
        ),
        ("NodeSet=s", "/c/slurm.conf:1: NodeSet: \"s\": expected Feature= or Nodes= on the line"),
        (
            "NodeName=s\nNodeSet=s Feature=f",
            "/c/slurm.conf:2: NodeSet: \"s\": expected a name that no node and no other set has",
        ),
        ("DownNodes=n1", "/c/slurm.conf:1: DownNodes: \"n1\": no NodeName line declares this"),
        ("Include no.conf", "/c/slurm.conf:1: Include: \"/c/no.conf\": entity not found"),
    ];
    for (text, expected) in table {
        assert_eq!(refused(&[("slurm.conf", text)]), expected, "{text}");
    }
}

#[test]
fn all_errors_of_all_files_are_reported() {
    let said = refused(&[
        ("slurm.conf", "KillWiat=3\nNodeName=n1 CPUs=x State=ODD\nPartitionName=p Nodes=n2\n"),
        ("gres.conf", "Nmae=gpu\n"),
        ("cgroup.conf", "ConstrainCores=perhaps\nMaxRAMPercent=120\nMemorySwappiness=101\n"),
    ]);
    let places: Vec<&str> = said.lines().filter_map(|line| line.split(": ").next()).collect();
    let expected = [
        "/c/slurm.conf:1",
        "/c/slurm.conf:2",
        "/c/slurm.conf:2",
        "/c/slurm.conf:3",
        "/c/gres.conf:1",
        "/c/cgroup.conf:1",
        "/c/cgroup.conf:2",
        "/c/cgroup.conf:3",
    ];
    assert_eq!(places, expected, "{said}");
}

#[test]
fn a_missing_slurm_conf_is_an_error_and_a_minimal_one_is_not() {
    assert_eq!(refused(&[("gres.conf", "")]), "/c/slurm.conf: cannot be read: entity not found");
    let conf = accepted(&[("slurm.conf", "")]);
    assert!(conf.slurm.nodes.is_empty() && conf.notices.is_empty());
    assert_eq!(conf.slurm.globals.times.slurmd_timeout_s, 300);
    assert_eq!(conf.slurm.globals.times.min_job_age_s, 300);
    assert_eq!(conf.slurm.globals.ids.max_array_size, 1001);
    assert!(conf.slurm.globals.launch.job_requeue);
}

#[test]
fn circular_includes_are_refused() {
    let said = refused(&[("slurm.conf", "Include b\n"), ("b", "Include slurm.conf\nInclude b\n")]);
    assert_eq!(
        said,
        "/c/b:1: Include: \"/c/slurm.conf\": this file includes itself\n\
         /c/b:2: Include: \"/c/b\": this file includes itself"
    );
    let chain: Vec<(String, String)> =
        (0..20).map(|i| (format!("f{i}"), format!("Include f{}", i + 1))).collect();
    let mut files = vec![("slurm.conf", "Include f0")];
    files.extend(chain.iter().map(|(name, text)| (name.as_str(), text.as_str())));
    let said = refused(&files);
    assert!(
        said.contains("included more than 10 files deep") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn flags_that_contradict_each_other_are_refused() {
    for (flags, words) in [
        ("NoHold,Contain", "expected NoHold without Contain"),
        ("NoHold,RunInJob", "expected NoHold without RunInJob"),
        ("Alloc,X11,NoHold", "expected NoHold without X11"),
    ] {
        let text = format!("NodeName=n1\nPrologFlags={flags}\nPartitionName=p Nodes=n1\n");
        let said = refused(&[("slurm.conf", &text)]);
        assert!(
            said.starts_with("/c/slurm.conf:2: PrologFlags: ") && said.contains(words),
            "{said}"
        );
    }
    let said = refused(&[("slurm.conf", "PropagatePrioProcess=3\n")]);
    assert!(said.starts_with("/c/slurm.conf:1: PropagatePrioProcess: \"3\": expected"), "{said}");
}

#[test]
fn impossible_limits_are_refused_with_their_place() {
    for (line, words) in [
        ("MaxScratch=0", "MaxScratch: \"0\": expected megabytes, at least 1"),
        ("MaxScratch=much", "MaxScratch: \"much\": expected"),
        ("MaxPids=3", "MaxPids: \"3\": expected at least 8"),
        ("MaxPids=4194305", "MaxPids: \"4194305\": expected at most 4194304"),
        ("MaxOpenFiles=63", "MaxOpenFiles: \"63\": expected at least 64"),
        ("MaxOpenFiles=1073741825", "MaxOpenFiles: \"1073741825\": expected at most 1073741824"),
        ("MaxOpenFiles=unlimited", "MaxOpenFiles: \"unlimited\": expected"),
        ("NoNewPrivs=maybe", "NoNewPrivs: \"maybe\": expected"),
        ("MaxCPUTime=0", "MaxCPUTime: \"0\": expected seconds of CPU time, at least 1"),
        ("MaxCPUTime=1-0", "MaxCPUTime: \"1-0\": expected"),
        ("AllowedDevices=kvm", "expected paths below /dev"),
        ("AllowedDevices=/dev/kvm,/etc/passwd", "expected paths below /dev"),
        ("AllowedDevices=/dev/../etc/x", "expected paths below /dev"),
        ("AllowedDevices=/dev/*/*", "expected paths below /dev"),
    ] {
        let text = format!("ConstrainCores=yes\n{line}\n");
        let said = refused(&[
            ("slurm.conf", "NodeName=n1\nPartitionName=p Nodes=n1\n"),
            ("cgroup.conf", &text),
        ]);
        assert!(said.starts_with("/c/cgroup.conf:2: ") && said.contains(words), "{said}");
    }
}
