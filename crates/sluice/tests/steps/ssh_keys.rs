//! The keys with which users come in by SSH: whose they are, and what ends when one is removed.

use crate::harness::ssh_client::{Held, Ssh};
use crate::harness::{Cluster, TWO_NODES, program, until};
use crate::ssh_endpoint::{STRANGER, USER};

fn wrap(cluster: &Cluster, user: &str) -> u32 {
    let job = cluster.submit_as(user, "-o /dev/null --wrap 'sleep 600'");
    cluster.await_state(job, "RUNNING");
    job
}

/// By a name nobody lands in the run of one who has only registered his key.
#[test]
fn root_key_of_another_is_not_registered_without_its_private_half() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(owner) = Ssh::of_user(&cluster, USER) else { return };
    let job = wrap(&cluster, USER);
    let name = format!("wrap-{job}");
    assert_eq!(owner.run(&name, &["id -un"]).ok().trim(), USER);
    let refused = cluster.shell_as(STRANGER, &owner.registration());
    assert_ne!(refused.code, 0);
    assert!(refused.stderr.contains("another user has registered this key"), "{refused:?}");
    assert_eq!(owner.run(&name, &["id -un"]).ok().trim(), USER, "its owner is not shut out");
    // A key that nobody has registered: it is taken, and opens jobs by number alone.
    let other = Ssh::new(&cluster, "key-of-another").expect("a key");
    let said = cluster.shell_as(STRANGER, &other.registration());
    assert!(said.code == 0 && said.stderr.contains("not proved to be yours"), "{said:?}");
    let listed = cluster.shell_as(STRANGER, &format!("{} key list", program())).ok();
    assert!(listed.contains("unproved"), "{listed}");
    let of_stranger = wrap(&cluster, STRANGER);
    assert_eq!(other.run(format!("wrap-{of_stranger}"), &["true"]).code, 255, "by its name");
    assert_eq!(other.run(of_stranger, &["id -un"]).ok().trim(), STRANGER, "by its number");
    // Who has its private half takes it.
    other.give_to(USER);
    cluster.shell_as(USER, &other.registration()).ok();
    assert_eq!(cluster.shell_as(STRANGER, &format!("{} key list", program())).ok(), "");
    assert_eq!(other.run(of_stranger, &["true"]).code, 255, "it was the stranger's no more");
    assert_eq!(other.run(&name, &["id -un"]).ok().trim(), USER);
}

#[test]
fn root_key_that_two_have_proved_opens_no_run_by_its_name() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(owner) = Ssh::of_user(&cluster, USER) else { return };
    let (job, of_other) = (wrap(&cluster, USER), wrap(&cluster, STRANGER));
    let name = |job: u32| format!("wrap-{job}");
    assert_eq!(owner.run(name(job), &["id -un"]).ok().trim(), USER);
    owner.give_to(STRANGER);
    cluster.shell_as(STRANGER, &owner.registration()).ok();
    for login in [name(job), name(of_other)] {
        assert_eq!(owner.run(&login, &["true"]).code, 255, "{login}");
    }
    assert_eq!(owner.run(job, &["id -un"]).ok().trim(), USER, "its number is nobody else's");
    // A signature that was made for another user is no proof.
    let line = format!("{} key --user {USER} list", program());
    assert_ne!(cluster.shell_as(STRANGER, &line).code, 0);
}

/// dstack's client gives a run the key of its user: one that the user removes opens that run no more.
#[test]
fn up_key_that_a_run_was_given_is_shut_out_when_it_is_removed() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::new(&cluster, "key-of-a-run") else { return };
    let public = std::fs::read_to_string(ssh.key().with_extension("pub")).unwrap();
    let body = serde_json::json!({
        "plan": {"run_spec": {
            "run_name": "given", "repo_id": "r", "repo_data": {"repo_type": "virtual"}, "configuration_path": "r.dstack.yml",
            "configuration": {
                "type": "task", "name": "given", "commands": ["sleep 600"],
                "resources": {"cpu": "1..", "memory": "64MB..", "disk": "0GB.."},
            },
            "ssh_key_pub": public.trim(),
        }},
        "force": false,
    });
    cluster.write("apply.json", &body.to_string());
    let ports = std::fs::read_to_string(cluster.state().join("ports.json")).unwrap();
    let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
    let url = format!("http://{}/api/project/main/runs/apply", ports["listen"].as_str().unwrap());
    let token = std::fs::read_to_string(cluster.state().join("admin.token")).unwrap();
    let ask = format!(
        "curl -sS --fail-with-body -X POST -H 'Authorization: Bearer {}' -H 'Content-Type: application/json' \
         --data @apply.json {url}",
        token.trim()
    );
    cluster.shell(&ask).ok();
    let job: u32 = until("it is queued", || {
        cluster.shell("squeue -h -n given -o %i").ok().trim().parse().ok()
    });
    cluster.await_state(job, "RUNNING");
    assert_eq!(ssh.run(job, &["echo in"]).ok(), "in\n", "by the run's own key");
    let (owner, key) = ("root", ssh.key().display().to_string());
    cluster.shell(&format!("{} key --user {owner} add {key}.pub", program())).ok();
    assert_eq!(ssh.run(job, &["echo in"]).ok(), "in\n");
    let mut session = ssh.ssh(job, &["echo here; sleep 3600"]);
    session.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    let mut session = Held(session.spawn().expect("ssh runs"));
    let out = session.0.stdout.as_mut().unwrap();
    std::io::Read::read_exact(out, &mut [0; 5]).expect("it runs");
    cluster.shell(&format!("{} key --user {owner} remove key-of-a-run", program())).ok();
    assert_eq!(ssh.run(job, &["true"]).code, 255, "the run is closed to it too");
    until("what it had opened ends", || session.0.try_wait().expect("its state"));
    cluster.shell(&format!("{} key --user {owner} add {key}.pub", program())).ok();
    assert_eq!(ssh.run(job, &["echo in"]).ok(), "in\n", "until it is registered again");
}
