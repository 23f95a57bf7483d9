//! Reservations through the real commands; words and exit codes are those of a real Slurm 22.05.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, until, user_name};

fn scontrol(cluster: &Cluster, line: &str) -> CommandOutput {
    cluster.shell(&format!("scontrol {line}"))
}

/// `scontrol create reservation … users=ME`, which must succeed.
fn reserve(cluster: &Cluster, line: &str) -> String {
    let said = scontrol(cluster, &format!("create reservation {line} users={}", user_name())).ok();
    let name = said.trim().strip_prefix("Reservation created: ");
    name.unwrap_or_else(|| panic!("{said}")).to_owned()
}

/// The value of a key in `scontrol -o show reservation NAME`.
fn shown(cluster: &Cluster, name: &str, key: &str) -> String {
    let text = scontrol(cluster, &format!("-o show reservation {name}")).ok();
    let lead = format!("{key}=");
    let value = text.split_whitespace().find_map(|word| word.strip_prefix(&lead));
    value.unwrap_or_else(|| panic!("{key} in {text}")).to_owned()
}

/// Checks Slurm's words and exit code; a note of our own may follow.
fn refused(said: CommandOutput, stderr: &str) {
    let lines = said.stderr.lines().filter(|line| !line.contains(": note: "));
    let words = lines.collect::<Vec<_>>().join("\n");
    assert_eq!((said.code, words.as_str()), (1, stderr), "stdout: {}", said.stdout);
}

#[test]
fn up_a_reservation_is_created_shown_updated_and_deleted() {
    let cluster = Cluster::up(TWO_NODES);
    let me = user_name();
    assert_eq!(scontrol(&cluster, "show reservation").ok(), "No reservations in the system\n");
    assert_eq!(cluster.shell("sinfo -T").ok(), "No reservations in the system\n");
    let name =
        reserve(&cluster, "starttime=2030-01-01T00:00:00 duration=60 nodes=node2 flags=maint");
    assert_eq!(name, format!("{me}_1"));
    let text = scontrol(&cluster, "show reservation").ok();
    let expected = format!(
        "ReservationName={name} StartTime=2030-01-01T00:00:00 EndTime=2030-01-01T01:00:00 Duration=01:00:00\n   \
         Nodes=node2 NodeCnt=1 CoreCnt=32 Features=(null) PartitionName=(null) Flags=MAINT,SPEC_NODES\n   \
         TRES=cpu=32\n   \
         Users={me} Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a\n   \
         MaxStartDelay=(null)\n\n"
    );
    assert_eq!(text, expected);
    let line = format!(
        "{name:<9}  INACTIVE  2030-01-01T00:00:00  2030-01-01T01:00:00     01:00:00  node2"
    );
    let listing = cluster.shell("sinfo -hT").ok();
    assert_eq!(listing.trim_end(), line);

    let update = |line: &str| scontrol(&cluster, &format!("update reservationname={name} {line}"));
    for line in
        ["duration+=30", "flags-=maint", "flags+=daily", "nodes=node[1-2]", "maxstartdelay=10"]
    {
        assert_eq!(update(line).ok(), "Reservation updated.\n", "{line}");
    }
    assert_eq!(shown(&cluster, &name, "Duration"), "01:30:00");
    assert_eq!(shown(&cluster, &name, "Flags"), "DAILY,SPEC_NODES");
    assert_eq!(shown(&cluster, &name, "Nodes"), "node[1-2]");
    assert_eq!(shown(&cluster, &name, "MaxStartDelay"), "00:10:00");
    update("skip").ok();
    assert_eq!(shown(&cluster, &name, "StartTime"), "2030-01-02T00:00:00");

    // An acknowledged reservation survives `kill -9` of the server.
    cluster.kill("server");
    cluster.start();
    assert_eq!(shown(&cluster, &name, "StartTime"), "2030-01-02T00:00:00");
    assert_eq!(scontrol(&cluster, &format!("delete reservation {name}")).ok(), "");
    refused(
        scontrol(&cluster, &format!("delete reservationname={name}")),
        &format!("delete_reservation reservationname={name}: Requested reservation is invalid"),
    );
    let said = scontrol(&cluster, &format!("show reservation {name}"));
    assert_eq!((said.code, said.stdout), (1, format!("Reservation {name} not found\n")));
}

#[test]
fn up_reservations_of_nodes_cores_and_gres_are_placed() {
    let cluster = Cluster::up(TWO_NODES);
    let when = "starttime=2030-01-01T00:00:00 duration=10 flags=overlap";
    let table = [
        ("nodecnt=1", "node1", "32", "gpu", "OVERLAP"),
        ("nodecnt=2 corecnt=6", "node[1-2]", "6", "gpu", "OVERLAP"),
        ("corecnt=6", "node1", "6", "gpu", "OVERLAP"),
        ("tres=cpu=4", "node1", "4", "gpu", "OVERLAP"),
        ("tres=gres/gpu=10", "node[1-2]", "0", "gpu", "OVERLAP"),
        ("tres=node=2", "node[1-2]", "64", "gpu", "OVERLAP"),
        ("nodes=node[1-2] corecnt=2,3", "node[1-2]", "5", "(null)", "OVERLAP,SPEC_NODES"),
        ("nodes=ALL", "node[1-2]", "64", "(null)", "OVERLAP,SPEC_NODES"),
        ("partitionname=debug", "node1", "32", "debug", "OVERLAP,SPEC_NODES,PART_NODES"),
        ("nodecnt=1 features=ib", "node1", "32", "gpu", "OVERLAP"),
    ];
    for (line, nodes, cores, partition, flags) in table {
        let name = reserve(&cluster, &format!("{when} {line}"));
        let keys = ["Nodes", "CoreCnt", "PartitionName", "Flags"];
        let found = keys.map(|key| shown(&cluster, &name, key));
        assert_eq!(found, [nodes, cores, partition, flags], "{line}");
    }
    let gpus = reserve(&cluster, "starttime=now duration=10 tres=gres/gpu=6");
    assert_eq!(shown(&cluster, &gpus, "TRES"), "gres/gpu=6");
    let outside = cluster.submit_sleeper("-w node1 --gpus=3");
    let inside = cluster.submit_sleeper(&format!("--reservation={gpus} --gpus=6"));
    cluster.await_state(inside, "RUNNING");
    until("its devices are kept", || {
        cluster.state_of(outside).starts_with("PENDING|Re").then_some(())
    });
}

#[test]
fn up_bad_reservations_are_refused_in_slurms_words() {
    let cluster = Cluster::up(TWO_NODES);
    let good = format!("starttime=now+1hour duration=60 users={} nodes=node1", user_name());
    let no_start = "scontrol: error: A start time must be given.  No reservation created.";
    let no_end = "scontrol: error: An end time or duration must be given.  No reservation created.";
    let nothing = "scontrol: error: CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified.  No reservation created.";
    let nobody = "scontrol: error: Either Users/Groups and/or Accounts must be specified.  No reservation created.";
    let creating = |text: &str| format!("Error creating the reservation: {text}");
    let sentence = |text: &str| format!("scontrol: error: {text}  No reservation created.");
    let table = [
        ("reservation".into(), no_start.into()),
        ("reservation starttime=now".into(), no_end.into()),
        ("reservation starttime=now duration=60".into(), nothing.into()),
        ("reservation starttime=now duration=60 nodes=node1".into(), nobody.into()),
        ("reservation starttime=now duration=60 nodecnt=0 users=root".into(), nothing.into()),
        ("bogus x=1".into(), "scontrol: error: Invalid creation entity: bogus".into()),
        (String::new(), "too few arguments for create keyword".into()),
        (format!("reservation {good} starttime=2020-01-01"), creating("Invalid time specified")),
        (
            format!("reservation {good} endtime=now"),
            sentence("Start time cannot be after end time."),
        ),
        (format!("reservation {good} users=nobody99"), creating("Invalid user id")),
        (format!("reservation {good} nodes=nodeX"), creating("Invalid node name specified")),
        (
            format!("reservation {good} accounts=bogus"),
            creating("Invalid account or account/partition combination specified"),
        ),
        (
            "reservation starttime=now duration=60 groups=bogus99 nodes=node1".into(),
            creating("Invalid group id"),
        ),
        (
            format!("reservation {good} partitionname=bogus"),
            creating("Invalid partition name specified"),
        ),
        (format!("reservation {good} flags=bogus"), sentence("Error parsing flags bogus.")),
        (format!("reservation {good} bogus=1"), sentence("Unknown parameter bogus=1.")),
        (
            format!("reservation {good} flags=part_nodes"),
            sentence("PART_NODES flag requires specifying a Partition and ALL nodes."),
        ),
        (
            format!("reservation {good} groups=root"),
            sentence(
                "Users and Groups are mutually exclusive.  You can have one or the other, but not both.",
            ),
        ),
        (format!("reservation {good} licenses=nope"), creating("Invalid license specification")),
        (format!("reservation {good} duration=x"), sentence("Invalid duration duration=x.")),
        (
            format!("reservation {good} starttime=x"),
            format!(
                "Invalid time specification (pos=0): x\n{}",
                sentence("Invalid start time starttime=x.")
            ),
        ),
        (format!("reservation {good} corecnt=1000"), creating("Requested nodes are busy")),
    ];
    for (line, said) in table {
        refused(scontrol(&cluster, &format!("create {line}")), &said);
    }
    let said = scontrol(&cluster, &format!("create reservation {good} nodes=nodeX"));
    assert!(said.stderr.contains("\nscontrol: note: Nodes=nodeX: "), "{said:?}");
    let nope = "Requested reservation is invalid";
    refused(
        scontrol(&cluster, "update reservationname=nope duration=5"),
        &format!("Error updating the reservation: {nope}\nslurm_update error: {nope}"),
    );
    refused(
        scontrol(&cluster, "update reservationname=nope bogus=5"),
        "scontrol: error: Unknown parameter bogus=5.  No reservation update.\nslurm_update error: No error",
    );
    refused(scontrol(&cluster, "delete bogus=1"), "Invalid deletion entity: bogus=1");
    assert_eq!(scontrol(&cluster, "show reservation").ok(), "No reservations in the system\n");
    scontrol(&cluster, &format!("create reservation=one {good}")).ok();
    refused(
        scontrol(&cluster, &format!("create reservation=two {good}")),
        &creating("Requested reservation overlaps with another reservation"),
    );
    refused(
        scontrol(&cluster, &format!("create reservation=one {good} nodes=node2")),
        &creating("Duplicate reservation name"),
    );
}

#[test]
fn up_jobs_run_inside_their_reservation_and_others_outside() {
    let cluster = Cluster::up(TWO_NODES);
    let name = reserve(&cluster, "starttime=now duration=10 nodes=node1");
    let submitted = |args: &str| cluster.shell(&format!("sbatch {args} --wrap true"));
    refused(
        submitted("--reservation=nope"),
        "sbatch: error: Batch job submission failed: Requested reservation is invalid",
    );
    refused(
        submitted(&format!("--reservation={name} -w node2")),
        "sbatch: error: Problem using reservation\n\
         sbatch: error: Batch job submission failed: Requested node configuration is not available",
    );
    let inside = format!("--reservation={name}");
    let line = format!("sbatch --parsable {inside} -t 60 -o env.txt --wrap 'env; sleep 600'");
    let runs: u32 = cluster.shell(&line).ok().trim().parse().expect("a job id");
    cluster.await_state(runs, "RUNNING");
    cluster.await_file("env.txt", |text| text.contains(&format!("SLURM_JOB_RESERVATION={name}\n")));
    let elsewhere = cluster.submit_sleeper("-N2 -t 5");
    let reason = "PENDING|ReqNodeNotAvail, May be reserved for other job";
    until("its nodes are reserved", || (cluster.state_of(elsewhere) == reason).then_some(()));
    let why = cluster.sluice(&["explain", &elsewhere.to_string()]).ok();
    assert!(why.contains(&format!("  Reservation {name} has node1 from 20")), "{why}");
    let beside = cluster.submit_sleeper("-t 5");
    cluster.await_state(beside, "RUNNING");
    let where_it_is = cluster.shell(&format!("squeue -h -j {beside} -o %N")).ok();
    assert_eq!(where_it_is.trim(), "node2");

    let of_it = cluster.shell(&format!("squeue -h -R {name} -o '%i %v'")).ok();
    assert_eq!(of_it.trim(), format!("{runs} {name}"));
    let record = scontrol(&cluster, &format!("show job {runs}")).ok();
    assert!(record.contains(&format!("   Reservation={name}\n")), "{record}");
    let states = cluster.shell("sinfo -h -p gpu -n node1 -o '%t %T'").ok();
    assert_eq!(states.trim(), "mix mixed");
    let node = scontrol(&cluster, "show node node1").ok();
    assert!(node.contains("State=MIXED+RESERVED "), "{node}");
    refused(
        scontrol(&cluster, &format!("delete reservationname={name}")),
        &format!("delete_reservation reservationname={name}: Requested reservation is in use"),
    );
    cluster.shell(&format!("scancel -R {name}")).ok();
    assert!(cluster.await_end(runs).starts_with("CANCELLED"));
    let states = cluster.shell("sinfo -h -p gpu -n node1 -o '%t %T'").ok();
    assert_eq!(states.trim(), "resv reserved");
    assert_eq!(cluster.shell("sinfo -h -p debug -t resv -o %N").ok().trim(), "node1");
    let booked = cluster.shell(&format!("sacct -n -X -P -j {runs} -o Reservation,ReservationId"));
    assert_eq!(booked.ok().trim(), format!("{name}|1"));
    scontrol(&cluster, &format!("update reservationname={name} flags+=maint")).ok();
    assert_eq!(cluster.shell("sinfo -h -p gpu -n node1 -o %t").ok().trim(), "maint");
    let node = scontrol(&cluster, "show node node1").ok();
    assert!(node.contains("State=IDLE+MAINTENANCE+RESERVED "), "{node}");
}

#[test]
fn up_magnetic_reservations_attract_jobs_and_any_of_a_list_is_used() {
    let cluster = Cluster::up(TWO_NODES);
    let magnet = reserve(&cluster, "starttime=now duration=10 nodes=node1 flags=magnetic");
    let other = reserve(&cluster, "starttime=now duration=10 nodes=node2");
    let line = "sbatch --parsable --exclusive -o env.txt --wrap 'env; sleep 600'";
    let drawn: u32 = cluster.shell(line).ok().trim().parse().expect("a job id");
    cluster.await_state(drawn, "RUNNING");
    let variable = format!("SLURM_JOB_RESERVATION={magnet}\n");
    cluster.await_file("env.txt", |text| text.contains(&variable));
    let listed = cluster.submit_sleeper(&format!("--exclusive --reservation={magnet},{other}"));
    cluster.await_state(listed, "RUNNING");
    let seen = cluster.shell("squeue -h -S i -o '%i %N %v'").ok();
    assert_eq!(seen, format!("{drawn} node1 {magnet}\n{listed} node2 {magnet},{other}\n"));
    let waits = cluster.submit_sleeper("--hold");
    let update = |line: &str| scontrol(&cluster, &format!("update jobid={waits} {line}"));
    update(&format!("reservationname={other}")).ok();
    let asked = || cluster.shell(&format!("squeue -h -j {waits} -o %v")).ok().trim().to_owned();
    assert_eq!(asked(), other);
    refused(
        update("reservationname=nope"),
        &format!("Requested reservation is invalid for job {waits}"),
    );
    update("reservationname=").ok();
    assert_eq!(asked(), "(null)");
}

#[test]
fn up_a_job_whose_reservation_has_ended_is_held_with_a_reason() {
    let cluster = Cluster::up(TWO_NODES);
    let name = reserve(&cluster, "starttime=now duration=1 nodes=node1");
    let waits = cluster.submit_sleeper(&format!("--reservation={name} --begin=now+1hour"));
    // It is over at once.
    let other = cluster.submit_sleeper(&format!("--reservation={name} --exclusive"));
    cluster.await_state(other, "RUNNING");
    let update = |line: &str| scontrol(&cluster, &format!("update reservationname={name} {line}"));
    update("endtime=now+2").ok();
    assert!(cluster.await_end(other).starts_with("TIMEOUT|"), "it ends with its window");
    let gone = format!("RESV_DEL_HOLD|Reservation {name} was deleted");
    until("its reservation is gone", || (cluster.state_of(waits) == gone).then_some(()));
    assert_eq!(cluster.shell("sinfo -T").ok(), "No reservations in the system\n");
    let asked = cluster.shell(&format!("squeue -h -j {waits} -o '%t %v %Q'")).ok();
    assert_eq!(asked.trim(), "RD (null) 0");
    scontrol(&cluster, &format!("release {waits}")).ok();
    until("it waits for its time", || {
        (cluster.state_of(waits) == "PENDING|BeginTime").then_some(())
    });
}

#[test]
fn root_up_reservations_are_used_by_their_users_and_changed_by_operators() {
    let cluster = Cluster::up(TWO_NODES);
    let line = "create reservation=r starttime=now duration=10 users=root nodes=node1";
    refused(
        cluster.shell_as("games", &format!("scontrol {line}")),
        "Error creating the reservation: Invalid user id",
    );
    scontrol(&cluster, line).ok();
    refused(
        cluster.shell_as("games", "sbatch --reservation=r --wrap true"),
        "sbatch: error: Batch job submission failed: Access denied to requested reservation",
    );
    refused(
        cluster.shell_as("games", "scontrol update reservationname=r duration=5"),
        "Error updating the reservation: Invalid user id\nslurm_update error: Invalid user id",
    );
    refused(
        cluster.shell_as("games", "scontrol delete reservationname=r"),
        "delete_reservation reservationname=r: Invalid user id",
    );
    scontrol(&cluster, "update reservationname=r users+=games flags+=user_delete").ok();
    cluster.shell_as("games", "sbatch --reservation=r --wrap true").ok();
    until("its job is over", || {
        let said = cluster.shell_as("games", "scontrol delete reservationname=r");
        (said.code == 0).then_some(())
    });
    // By group, and with some users excluded.
    scontrol(&cluster, "create reservation=g starttime=now duration=10 groups=games nodes=node1")
        .ok();
    scontrol(&cluster, "create reservation=d starttime=now duration=10 users=-games nodes=node2")
        .ok();
    cluster.shell_as("games", "sbatch --reservation=g --wrap true").ok();
    let denied =
        "sbatch: error: Batch job submission failed: Access denied to requested reservation";
    refused(cluster.shell_as("games", "sbatch --reservation=d --wrap true"), denied);
    refused(cluster.shell("sbatch --reservation=g --wrap true"), denied);
    cluster.shell("sbatch --reservation=d --wrap true").ok();
}
