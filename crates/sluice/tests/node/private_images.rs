//! Images of a registry that wants credentials: a real registry with a password file.

use super::containers::{USER, cluster, make_rootfs};
use super::registry::{Login, Registry};
use std::process::Command;

const OTHER: &str = "games";
const PASSWORD: &str = "pull-$-3b9f2d7c";

/// `auths` of Docker for one registry, in a folder of its own.
fn docker_config(cluster: &crate::harness::Cluster, folder: &str, address: &str, password: &str) {
    std::fs::create_dir_all(cluster.path("work").join(folder)).expect("made");
    let auth = Login { user: "ann", password }.encoded();
    let text = format!(r#"{{"auths": {{"{address}": {{"auth": "{auth}"}}}}}}"#);
    cluster.write(&format!("{folder}/config.json"), &text);
}

#[test]
fn root_a_private_image_is_for_who_brings_credentials_and_not_for_who_comes_after() {
    let registry = Registry::start_with(Login { user: "ann", password: PASSWORD });
    let made = tempfile::tempdir().expect("a folder");
    make_rootfs(&made.path().join("rootfs"));
    registry.push("lab/tools", "1", &made.path().join("rootfs"), r#"{"Env":["PATH=/bin"]}"#);
    let address = &registry.address;
    let cluster = cluster(&format!("[containers]\ninsecure_registries = ['{address}']\n"));
    docker_config(&cluster, "right", address, PASSWORD);
    docker_config(&cluster, "wrong", address, "nope");
    std::fs::create_dir_all(cluster.path("work/enroot")).expect("made");
    let netrc = format!("machine {address} login ann password {PASSWORD}\n");
    cluster.write("enroot/.credentials", &netrc);
    let readable = ["-R", "a+rX"];
    let folders = ["right", "wrong", "enroot"].map(|folder| cluster.path("work").join(folder));
    assert!(Command::new("chmod").args(readable).args(folders).status().expect("chmod").success());

    let image = format!("docker://{address}/lab/tools:1");
    let srun = |user: &str, variable: &str| {
        let line = format!("{variable} srun --container={image} cat /etc/release");
        cluster.shell_as(user, &line)
    };
    let without = "HOME=/nonexistent";
    let refused = |user: &str, variable: &str, why: &str| {
        let said = srun(user, variable);
        assert_ne!(said.code, 0, "{user} {variable}: {}", said.stdout);
        assert!(said.stderr.contains(why), "{user} {variable}: {}", said.stderr);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
        assert!(!said.stderr.contains(PASSWORD), "{}", said.stderr);
    };
    refused(USER, without, "it needs credentials, and none were given");
    refused(USER, "DOCKER_CONFIG=$PWD/wrong", "the credentials are not valid for it");
    assert_eq!(srun(USER, "DOCKER_CONFIG=$PWD/right").ok(), "made on the spot\n");
    // It is in the node's store now, and is not for everybody there.
    refused(OTHER, without, "it needs credentials, and none were given");
    refused(USER, "DOCKER_CONFIG=$PWD/wrong", "the credentials are not valid for it");
    assert_eq!(srun(OTHER, "ENROOT_CONFIG_PATH=$PWD/enroot").ok(), "made on the spot\n");

    // A batch job and its steps; a step in an allocation.
    let right = "DOCKER_CONFIG=$PWD/right";
    let line = format!(
        "{right} sbatch --parsable -o batch.txt --container={image} --wrap 'cat /etc/release; srun cat /etc/release'"
    );
    let job = cluster.shell_as(USER, &line).ok();
    cluster.await_end(job.trim());
    let text = cluster.read("batch.txt");
    assert_eq!(text, "made on the spot\nmade on the spot\n");
    let line = format!("{right} salloc -Q srun --container={image} cat /etc/release");
    assert_eq!(cluster.shell_as(USER, &line).ok(), "made on the spot\n");

    // dstack's language, with the password as a secret.
    cluster.sluice(&["secret", "set", "registry", PASSWORD]).ok();
    let apply = |name: &str, password: &str| {
        let task = format!(
            "type: task\nname: {name}\nimage: {address}/lab/tools:1\nuser: root\n\
             registry_auth: {{username: ann, password: '{password}'}}\n\
             commands: [cat /etc/release]\nresources: {{cpu: 1, memory: 100MB}}\n"
        );
        cluster.write("task.dstack.yml", &task);
        cluster.sluice(&["apply", "-y", "-f", "task.dstack.yml"])
    };
    let said = apply("right", "${{ secrets.registry }}");
    assert!(said.stdout.contains("made on the spot"), "{}{}", said.stdout, said.stderr);
    let said = apply("wrong", "nope");
    let text = format!("{}{}", said.stdout, said.stderr);
    assert!(text.contains("the credentials are not valid for it"), "{text}");
    let said = apply("unknown", "${{ secrets.nosuch }}");
    assert!(said.stderr.contains("secret nosuch does not exist"), "{}", said.stderr);

    cluster.sluice(&["down", "--jobs"]).ok();
    let found = cluster.shell("grep -rsl 3b9f2d7c \"$SLUICE_STATE\"").stdout;
    assert_eq!(found, "", "the password is in no file of the cluster");
}
