//! Licenses of slurm.conf; words and exit codes are those of a real Slurm 22.05.

use crate::harness::{Cluster, TWO_NODES, until};

fn cluster() -> Cluster {
    Cluster::up(&format!("{TWO_NODES}Licenses=matlab:4,ansys\n"))
}

#[test]
fn up_licenses_are_counted_and_jobs_wait_for_them() {
    let cluster = cluster();
    let shown = |args: &str| cluster.shell(&format!("scontrol {args}")).ok();
    assert_eq!(
        shown("show licenses"),
        "LicenseName=ansys\n    Total=1 Used=0 Free=1 Reserved=0 Remote=no\n\
         LicenseName=matlab\n    Total=4 Used=0 Free=4 Reserved=0 Remote=no\n"
    );
    let runs = cluster.submit_sleeper("-L matlab:3,ansys");
    cluster.await_state(runs, "RUNNING");
    let waits = cluster.submit_sleeper("-L 'matlab:2;ansys:0'");
    until("it waits for licences", || {
        (cluster.state_of(waits) == "PENDING|Licenses").then_some(())
    });
    let small = cluster.submit_sleeper("-L matlab");
    cluster.await_state(small, "RUNNING");
    assert_eq!(
        shown("-o show licenses matlab"),
        "LicenseName=matlab Total=4 Used=4 Free=0 Reserved=0 Remote=no\n"
    );
    let of_matlab = cluster.shell("squeue -h -L ansys -S i -o '%i %W'").ok();
    assert!(of_matlab.contains(&format!("{runs} matlab:3,ansys:1\n")), "{of_matlab}");
    cluster.shell(&format!("scancel {runs}")).ok();
    cluster.await_state(waits, "RUNNING");
}

#[test]
fn up_unknown_or_too_many_licenses_are_refused() {
    let cluster = cluster();
    let refused = "Batch job submission failed: Invalid license specification";
    for bad in ["nope", "matlab:9", "matlab:x", "MATLAB:1", "matlab=2", "'matlab|ansys'"] {
        let said = cluster.shell(&format!("sbatch -L {bad} --wrap true"));
        assert_eq!(said.code, 1, "{bad}");
        let first = said.stderr.lines().next().unwrap_or_default();
        assert_eq!(first, format!("sbatch: error: {refused}"), "{bad}");
    }
    let said = cluster.shell("sbatch -L matlab:9 --wrap true").stderr;
    assert!(said.contains("\nsbatch: note: licence matlab: "), "{said}");
    assert_eq!(cluster.shell("squeue -h -t all").ok(), "", "nothing was submitted");
}

#[test]
fn up_licenses_can_be_reserved() {
    let cluster = cluster();
    let me = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    let create = |line: &str| {
        cluster.shell(&format!(
            "scontrol create reservation starttime=now duration=10 users={me} {line}"
        ))
    };
    let alone = create("licenses=matlab:3");
    assert_eq!(
        (alone.code, alone.stderr.trim()),
        (
            1,
            "Error creating the reservation: Invalid node name specified\n\
             scontrol: note: it names nothing to keep: expected Nodes, NodeCnt, CoreCnt or TRES"
        )
    );
    let name = create("licenses=matlab:3 flags=license_only").ok();
    let name = name.trim().strip_prefix("Reservation created: ").expect("a name").to_owned();
    let more = create("licenses=matlab:2 flags=any_nodes");
    assert_eq!(
        (more.code, more.stderr.trim()),
        (
            1,
            "Error creating the reservation: Invalid license specification\n\
             scontrol: note: Licenses=matlab: there is no such licence, or not so many are left"
        )
    );
    assert_eq!(
        cluster.shell("scontrol -o show licenses matlab").ok(),
        "LicenseName=matlab Total=4 Used=0 Free=4 Reserved=3 Remote=no\n"
    );
    let record = cluster.shell("scontrol -o show reservation").ok();
    assert!(record.contains("Nodes=(null) NodeCnt=0 CoreCnt=0 "), "{record}");
    assert!(record.contains("Flags=ANY_NODES TRES=(null) "), "{record}");
    assert!(record.contains("Licenses=matlab:3 State=ACTIVE "), "{record}");
    let outside = cluster.submit_sleeper("-L matlab:2");
    until("they are kept", || (cluster.state_of(outside) == "PENDING|Licenses").then_some(()));
    let inside = cluster.submit_sleeper(&format!("--reservation={name} -L matlab:4"));
    cluster.await_state(inside, "RUNNING");
}

#[test]
fn up_license_limits_are_enforced() {
    let cluster = Cluster::up(&format!(
        "{TWO_NODES}Licenses=matlab:4\nAccountingStorageEnforce=limits\nAccountingStorageTRES=license/matlab\n"
    ));
    let me = nix::unistd::User::from_uid(nix::unistd::getuid()).unwrap().unwrap().name;
    for line in [
        "add account physics".to_owned(),
        format!("add user {me} account=physics"),
        "modify qos normal set MaxTRESPerUser=license/matlab=2".to_owned(),
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    let runs = cluster.submit_sleeper("-L matlab:2");
    cluster.await_state(runs, "RUNNING");
    let waits = cluster.submit_sleeper("-L matlab:1");
    until("the limit holds it", || {
        (cluster.state_of(waits) == "PENDING|QOSMaxLicensePerUser").then_some(())
    });
    cluster.shell(&format!("scancel {runs}")).ok();
    cluster.await_state(waits, "RUNNING");
}
