//! Each language's submit takes the other's file, a profile stands behind a configuration, and a run may use a reservation.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, TWO_NODES, program, until, user_name};

const SMALL: &str = "resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n";

#[test]
fn up_each_language_submits_the_others_file() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("job.sh", "#!/bin/bash\n#SBATCH -o job.out\necho $SLURM_JOB_NAME; exit 3\n");
    let applied = cluster.sluice(&["apply", "-f", "job.sh", "-y", "-n", "ours"]);
    assert_eq!((applied.code, applied.stdout.as_str()), (3, "Submitted batch job 1\n"));
    assert_eq!(cluster.read("job.out"), "ours\n");
    let unanswered = cluster.sluice(&["apply", "-f", "job.sh"]);
    assert_ne!(unanswered.code, 0);
    assert!(unanswered.stdout.starts_with("Submit the batch script job.sh?"), "{unanswered:?}");

    cluster.write(
        "it.dstack.yml",
        &format!("type: task\nname: it\ncommands: [echo $DSTACK_RUN_NAME > it.out]\n{SMALL}"),
    );
    assert_eq!(cluster.shell("sbatch --parsable it.dstack.yml").ok(), "2\n");
    assert_eq!(cluster.await_file("it.out", |said| said.ends_with('\n')), "it\n");
    let refused = cluster.shell("sbatch it.dstack.yml 7");
    let line = "sbatch: error: it.dstack.yml: a configuration takes no arguments\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (1, line));
    cluster.write("bad.dstack.yml", "type: task\ncomands: [x]\n");
    let refused = cluster.shell("sbatch bad.dstack.yml");
    let line = "sbatch: error: bad.dstack.yml:2:1: unknown property `comands`";
    assert!(refused.code == 1 && refused.stderr.starts_with(line), "{refused:?}");
    let jobs = cluster.sluice(&["sacct", "-nXP", "-o", "JobID"]).ok();
    assert_eq!(jobs, "1\n2\n", "what is refused submits nothing");
}

#[test]
fn up_sbatch_options_stand_in_place_of_what_a_configuration_says() {
    let cluster = Cluster::up(TWO_NODES);
    let text = format!("type: task\nname: it\nmax_duration: 5m\ncommands: [exit 3]\n{SMALL}");
    cluster.write("it.dstack.yml", &text);
    let said = cluster.shell(
        "sbatch --wait -J other -t 9 -c 2 --mem=96M --gpus-per-node=h100:1 -p debug it.dstack.yml",
    );
    assert_eq!((said.code, said.stdout.as_str()), (3, "Submitted batch job 1\n"), "{said:?}");
    let found =
        cluster.sluice(&["sacct", "-nXP", "-o", "JobName,Timelimit,Partition,AllocTRES"]).ok();
    let wanted = "other|00:09:00|debug|billing=2,cpu=2,gres/gpu=1,mem=96M,node=1\n";
    assert_eq!(found, wanted);
    for (line, words) in [
        ("-o out it.dstack.yml", "it.dstack.yml: --output has no counterpart in a configuration"),
        ("-t soon it.dstack.yml", "it.dstack.yml: Invalid --time specification"),
        ("-J Bad_Name it.dstack.yml", "it.dstack.yml: `name`: invalid"),
    ] {
        let refused = cluster.shell(&format!("sbatch {line}"));
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        let line = format!("sbatch: error: {words}");
        assert!(refused.code == 1 && refused.stderr.starts_with(&line), "{refused:?}");
    }
    assert_eq!(cluster.sluice(&["squeue", "-h", "-t", "all", "-o", "%i"]).ok(), "1\n");
}

#[test]
fn up_configuration_is_applied_from_a_pipe() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.write("task", &format!("type: task\nname: piped\ncommands: ['true']\n{SMALL}"));
    let apply = format!("{} apply -y -d", program());
    let line = format!("cat task | {apply} -f /dev/stdin && {apply} -n other -f <(cat task)");
    let line = format!("bash -c '{line}'");
    let said = cluster.shell(&line);
    assert!(said.code == 0 && said.stdout.contains("Run other submitted"), "{said:?}");
    let names = cluster.sluice(&["sacct", "-nXP", "-o", "JobName"]).ok();
    assert_eq!(names, "piped\nother\n");
}

#[test]
fn up_sbatch_of_a_configuration_follows_the_environment_and_refuses_a_second_run_of_its_name() {
    let cluster = Cluster::up(TWO_NODES);
    let folder = cluster.path("work").join(".dstack");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("profiles.yml"), "profiles: [{name: long, max_duration: 9m}]\n")
        .unwrap();
    let text = format!("type: task\nname: it\ncommands: [sleep 600]\n{SMALL}");
    cluster.write("it.dstack.yml", &text);
    cluster.shell("DSTACK_PROJECT=atlas DSTACK_PROFILE=long sbatch it.dstack.yml").ok();
    let found = cluster.sluice(&["sacct", "-nXP", "-o", "Account,Timelimit"]).ok();
    assert_eq!(found, "atlas|00:09:00\n");
    let refused = cluster.shell("sbatch it.dstack.yml");
    let is_said = refused.stderr.ends_with("sbatch: error: run it exists already\n");
    assert!(refused.code == 1 && is_said, "{refused:?}");
    // An apply stops the run that is active, and waits for its end.
    let again = cluster.sluice(&["apply", "-f", "it.dstack.yml", "-y", "-d", "--force"]);
    assert!(again.code == 0 && again.stdout.contains("Run it submitted"), "{again:?}");
}

#[test]
fn up_run_takes_its_profile_and_its_reservation() {
    let cluster = Cluster::up(TWO_NODES);
    let folder = cluster.path("work").join(".dstack");
    std::fs::create_dir(&folder).unwrap();
    let profiles = "profiles:\n  - {name: usual, default: true, max_duration: 7m}\n  - {name: long, max_duration: 9m}\n";
    std::fs::write(folder.join("profiles.yml"), profiles).unwrap();
    let limit = |name: &str, more: &str, words: &[&str]| {
        let text = format!("type: task\nname: {name}\ncommands: ['true']\n{more}{SMALL}");
        cluster.write("it.dstack.yml", &text);
        let apply = [&["apply", "-f", "it.dstack.yml", "-y", "-d"], words].concat();
        cluster.sluice(&apply).ok();
        cluster.sluice(&["sacct", "-nXP", "--name", name, "-o", "Timelimit"]).ok()
    };
    assert_eq!(limit("usual", "", &[]), "00:07:00\n");
    assert_eq!(limit("long", "", &["--profile", "long"]), "00:09:00\n");
    assert_eq!(limit("own", "max_duration: 3m\n", &["--profile", "long"]), "00:03:00\n");
    let refused = cluster.sluice(&["apply", "-f", "it.dstack.yml", "-y", "--profile", "none"]);
    let line = "sluice: error: .dstack/profiles.yml: there is no profile none\n";
    assert_eq!((refused.code, refused.stderr.as_str()), (1, line));
    // What the folder's own profiles do not have, those of the home may.
    let home = cluster.path("work").join("home/.dstack");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("profiles.yml"), "profiles: [{name: none, max_duration: 11m}]\n")
        .unwrap();
    cluster.write("it.dstack.yml", &format!("type: task\ncommands: ['true']\n{SMALL}"));
    let words = "apply -f it.dstack.yml -y -d -n home --profile none";
    cluster.shell(&format!("HOME=$PWD/home {} {words}", program())).ok();
    let found = cluster.sluice(&["sacct", "-nXP", "--name", "home", "-o", "Timelimit"]).ok();
    assert_eq!(found, "00:11:00\n");

    let user = user_name();
    let words = "starttime=now duration=60 nodes=node2";
    let made = format!("scontrol create reservation reservationname=night users={user} {words}");
    cluster.shell(&made).ok();
    limit("night", "reservation: night\n", &[]);
    let words = ["sacct", "-nXP", "--name", "night", "-o", "Reservation"];
    // The books have it once the job has started.
    until("it runs in its reservation", || {
        (cluster.sluice(&words).ok() == "night\n").then_some(())
    });
}

#[test]
fn up_apply_over_a_running_array_asks_and_replaces_all_of_it() {
    let cluster = Cluster::up(TWO_NODES);
    let text = |command: &str| {
        format!(
            "type: task\nname: sweep\narray: 0-9%2\ncommands: [{command}]\nretry: true\n{SMALL}"
        )
    };
    cluster.write("sweep.dstack.yml", &text("sleep 600"));
    cluster.sluice(&["apply", "-f", "sweep.dstack.yml", "-y", "-d"]).ok();
    let running = || cluster.sluice(&["squeue", "-h", "-t", "running", "-o", "%F"]).ok();
    until("two tasks run", || (running().lines().count() == 2).then_some(()));
    let asked = cluster.sluice(&["apply", "-f", "sweep.dstack.yml", "-d"]);
    let words = "Active run sweep already exists and cannot be updated in place.\n";
    assert!(asked.stdout.contains(words) && asked.code != 0, "{asked:?}");
    assert_eq!(running(), "1\n1\n", "nothing has changed");
    cluster.write("sweep.dstack.yml", &text("sleep 601"));
    let said = cluster.sluice(&["apply", "-f", "sweep.dstack.yml", "-y", "-d"]);
    assert_eq!(said.code, 0, "{said:?}");
    let ids = until("the new array runs", || {
        let ids = running();
        (ids.lines().count() == 2 && !ids.contains("1\n1\n")).then_some(ids)
    });
    let waiting = cluster.sluice(&["squeue", "-h", "-r", "-t", "pending", "-o", "%F"]).ok();
    assert!(
        waiting.lines().count() == 8 && waiting.lines().all(|id| ids.starts_with(id)),
        "{waiting}"
    );
}

#[test]
fn up_settings_of_dstacks_server_act_or_are_named() {
    let cluster = Cluster::folder(TWO_NODES);
    let home = cluster.path("server-home");
    std::fs::create_dir_all(home.join(".dstack/server")).expect("made");
    std::fs::write(home.join(".dstack/server/config.yml"), "projects: [{name: main}]\n")
        .expect("written");
    let home = home.display().to_string();
    cluster.start_with(&[
        ("HOME", &home),
        ("DSTACK_SERVER_CODE_UPLOAD_LIMIT", "16"),
        ("DSTACK_SERVER_S3_BUCKET", "logs"),
    ]);
    let log = cluster.log("server");
    let line = "settings of dstack's server without effect here: DSTACK_SERVER_S3_BUCKET";
    assert_eq!(log.matches(line).count(), 1, "{log}");
    assert!(log.contains("config.yml: `projects` has no effect here"), "{log}");
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    cluster.write("note.txt", "more than sixteen bytes\n");
    let text =
        format!("type: task\nname: big\nfiles: [note.txt]\ncommands: [cat note.txt]\n{SMALL}");
    cluster.write("big.dstack.yml", &text);
    let refused = client.run(&["apply", "-f", "big.dstack.yml", "-y", "-d"]);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    assert!(refused.code != 0 && said.contains("DSTACK_SERVER_CODE_UPLOAD_LIMIT"), "{said}");
}
