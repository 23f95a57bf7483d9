//! Pods of Kubernetes as machines, with an API server of ours (`kubernetes_api.py`): each pod's agent runs on this machine.

use super::{Cloud, Site, run_as_ordinary_user_with, seconds, text};
use crate::harness::until;
use serde_json::{Value, json};

const API: &str = include_str!("kubernetes_api.py");

fn kubeconfig(cloud: &Cloud, name: &str, token: &str) -> String {
    let server = format!("http://{}", cloud.address);
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\n\
         clusters: [{{name: lab, cluster: {{server: '{server}'}}}}]\n\
         contexts: [{{name: lab, context: {{cluster: lab, user: lab, namespace: jobs}}}}]\n\
         users: [{{name: lab, user: {{token: {token}}}}}]\n"
    );
    cloud.secret(name, &text)
}

fn source(name: &str, kubeconfig: &str, more: &str) -> String {
    format!(
        "[[source]]\nname = '{name}'\nkind = 'kubernetes'\nfeatures = ['cloud', '{name}']\n\
         machines = 4\nidle = '2s'\nboot = '80s'\n\
         [source.kubernetes]\nkubeconfig = '{kubeconfig}'\nrunner_image = 'lab/sluice:1'\n\
         image = 'lab/base:1'\nnode_selector = {{ pool = 'jobs' }}\ncpu_price = 0.36\n{more}\n"
    )
}

fn pods(site: &Site) -> Vec<Value> {
    site.cloud.logged("create")
}

fn await_pods(site: &Site, count: usize) {
    until("pods are made", || (pods(site).len() >= count).then_some(()));
}

/// Waits until the failure of some machine has these words.
fn await_failure(site: &Site, words: &str) {
    until(words, || {
        let listed = site.listed();
        let machines = listed["machines"].as_array().expect("machines");
        let text = |of: &Value| of["machine"]["failure"]["text"].as_str().map(str::to_owned);
        machines.iter().filter_map(text).any(|text| text.contains(words)).then_some(())
    });
}

#[test]
fn up_jobs_run_in_pods_which_are_found_again_and_begin_again_when_those_are_evicted() {
    if nix::unistd::getuid().is_root() {
        let name = "clouds::kubernetes::\
            up_jobs_run_in_pods_which_are_found_again_and_begin_again_when_those_are_evicted";
        return run_as_ordinary_user_with(name, &[]);
    }
    let mut site = Site::up(API, &[], |cloud| {
        cloud.control(&json!({"conflicts": 1}));
        let claim = "claims = [{ claim_name = 'home-{uid}', path = '/home', size = '1Gi' }]";
        source("pods", &kubeconfig(cloud, "kubeconfig", "pod-token"), claim)
    });
    let wait = "while [ ! -e go ]; do sleep 0.05; done; echo $SLURM_JOB_NUM_NODES >> ran";
    let job = site.submit("-c 2 --requeue", wait);
    site.cluster.cluster().await_state(job, "RUNNING");
    site.cluster.kill_server();
    // What the API had told before is forgotten: the pods are listed anew.
    site.cloud.control(&json!({"conflicts": 1, "compact": 1}));
    site.cluster.start_server();
    assert_eq!(pods(&site).len(), 1, "the pod is found again");
    site.cluster.cluster().await_state(job, "RUNNING");
    site.cloud.control(&json!({"conflicts": 1, "compact": 1, "evict": 1}));
    await_pods(&site, 2);
    site.cluster.cluster().await_state(job, "RUNNING");
    // The next one is told that it will be gone: its job ends before.
    let told = json!({"conflicts": 1, "compact": 2, "evict": 1, "stop": 1});
    site.cloud.control(&told);
    await_pods(&site, 3);
    site.cluster.cluster().write("go", "");
    assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
    site.await_none(seconds(60));
    let wide: u32 = until("a job is taken", || {
        let line = "sbatch --parsable -N 2 -n 2 --wrap 'echo $SLURM_JOB_NUM_NODES >> ran'";
        site.cluster.cluster().shell(line).stdout.trim().parse().ok()
    });
    assert_eq!(site.cluster.cluster().await_end(wide), "COMPLETED|0:0");
    assert_eq!(site.cluster.cluster().read("ran"), "1\n2\n");
    site.await_none(seconds(60));
    let made = pods(&site);
    let sizes: Vec<String> = made.iter().map(|line| text(line, "type")).collect();
    assert_eq!(sizes, ["2", "2", "2", "1", "1"], "each has what its job asks for");
    assert!(made.iter().all(|line| line["image"] == "lab/base:1"), "{made:?}");
    let claims: Vec<String> =
        site.cloud.logged("claim").iter().map(|line| text(line, "name")).collect();
    assert_eq!(claims, [format!("home-{}", nix::unistd::getuid())], "one for all of the user's");
    assert_eq!(site.cloud.logged("conflict").len(), 1, "the same call was made again");
    assert!(!site.cloud.logged("gone").is_empty(), "a version was forgotten");
}

#[test]
fn up_pods_that_are_refused_or_do_not_start_are_told_with_their_reason() {
    if nix::unistd::getuid().is_root() {
        let name = "clouds::kubernetes::\
            up_pods_that_are_refused_or_do_not_start_are_told_with_their_reason";
        return run_as_ordinary_user_with(name, &[]);
    }
    let site = Site::up(API, &[], |cloud| {
        cloud.control(&json!({"no_image": ["lab/base:1"]}));
        let good = kubeconfig(cloud, "kubeconfig", "pod-token");
        let wrong = kubeconfig(cloud, "wrong", "another");
        let elsewhere = "namespace = 'elsewhere'";
        [
            source("pods", &good, "pending = '1s'"),
            source("unknown", &wrong, ""),
            source("elsewhere", &good, elsewhere),
        ]
        .concat()
    });
    site.submit("-C pods", "true");
    await_failure(&site, "image lab/base:1: ImagePullBackOff");
    // Another job is not held back by it.
    site.cloud.control(&json!({"full": true}));
    site.submit("-C pods", "true");
    await_failure(&site, "no place for its pod: Unschedulable: 0/3 nodes are available");
    site.cloud.control(&json!({"deny": ["lab/base"]}));
    site.submit("-C elsewhere", "true");
    await_failure(&site, "/api/v1/namespaces/elsewhere");
    site.submit("-C pods", "true");
    await_failure(&site, "admission webhook \"images.lab\" denied the request: lab/base");
    // Others go with their pods.
    assert!(!site.cloud.logged("delete-secret").is_empty(), "that of a pod that is not made");
    until("wrong credentials are told", || {
        let log = site.cluster.log();
        let mut lines = log.lines().filter(|line| line.contains("source unknown:"));
        lines.find(|line| line.contains("nodes: Unauthorized: Unauthorized")).map(drop)
    });
}

#[test]
fn up_run_with_an_image_is_a_process_of_a_pod_of_that_image() {
    if nix::unistd::getuid().is_root() {
        let name = "clouds::kubernetes::up_run_with_an_image_is_a_process_of_a_pod_of_that_image";
        return run_as_ordinary_user_with(name, &[]);
    }
    let site = Site::up(API, &[], |cloud| {
        source("pods", &kubeconfig(cloud, "kubeconfig", "pod-token"), "root = 'namespace'")
    });
    let cluster = site.cluster.cluster();
    until("the source has told what it offers", || {
        let said = cluster.sluice(&["offer", "--cpu", "1..", "--json"]).ok();
        let listed: Value = serde_json::from_str(&said).expect("JSON");
        (listed["total_offers"] == 1).then_some(())
    });
    let task = "type: task\nname: one\nimage: lab/tool:1\nbackends: [kubernetes]\n\
                commands: ['echo from-a-pod-with $IN_IMAGE', 'command -v cat']\n\
                resources: {cpu: 1.., memory: 16MB.., disk: 0GB..}\n";
    cluster.write("task.dstack.yml", task);
    let applied = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    until("it has run in its pod", || {
        let said = cluster.shell("sacct -nXP -o JobName,State,NodeList").stdout;
        said.contains("one|COMPLETED|pods-1").then_some(())
    });
    let said = cluster.sluice(&["logs", "one"]).ok();
    assert!(said.contains("from-a-pod-with variables-of-its-own"), "{said}");
    assert!(said.contains("/cat"), "the image's PATH: {said}");
    // One that asks for root has a pod of its own. The processes that play pods are this user's all the same.
    let root = task.replace("name: one", "name: two\nuser: root");
    cluster.write("root.dstack.yml", &root);
    let applied = cluster.sluice(&["apply", "-f", "root.dstack.yml", "-y", "-d"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    until("it has run in its pod", || {
        let said = cluster.shell("sacct -nXP -o JobName,State,NodeList").stdout;
        said.contains("two|COMPLETED|pods-2").then_some(())
    });
    let made = pods(&site);
    let images: Vec<String> = made.iter().map(|line| text(line, "image")).collect();
    assert_eq!(images, ["lab/tool:1", "lab/tool:1"]);
    let users: Vec<&Value> = made.iter().map(|line| &line["user"]).collect();
    assert_eq!(users, [&Value::Null, &json!(0)], "the image's user, and root");
    // A cluster without user namespaces would make it root of the node, and has no pod for it.
    site.cloud.control(&json!({"without_user_namespaces": true}));
    let other = root.replace("name: two", "name: three").replace("lab/tool:1", "lab/other:1");
    cluster.write("root.dstack.yml", &other);
    let applied = cluster.sluice(&["apply", "-f", "root.dstack.yml", "-y", "-d"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    await_failure(&site, "the cluster leaves hostUsers out");
    assert_eq!(pods(&site).len(), 2);
}

#[test]
fn up_volume_that_is_a_claim_is_in_the_pod_of_its_run_and_deleted_after_it() {
    if nix::unistd::getuid().is_root() {
        let name = "clouds::kubernetes::\
            up_volume_that_is_a_claim_is_in_the_pod_of_its_run_and_deleted_after_it";
        return run_as_ordinary_user_with(name, &[]);
    }
    let mut site = Site::up(API, &[], |cloud| {
        source("pods", &kubeconfig(cloud, "kubeconfig", "pod-token"), "")
    });
    let volume = "type: volume\nname: data\nbackend: kubernetes\nsize: 2GB\n\
                  storage_class_name: fast\naccess_modes: [ReadWriteOnce]\n";
    let missing = "type: volume\nname: old\nbackend: kubernetes\nclaim_name: nowhere\n";
    for (file, text) in [("data.dstack.yml", volume), ("old.dstack.yml", missing)] {
        site.cluster.cluster().write(file, text);
        let created = site.cluster.cluster().sluice(&["volume", "create", "-f", file]);
        assert_eq!(created.code, 0, "{created:?}");
    }
    let status = |site: &Site, name: &str| {
        let said = site.cluster.cluster().sluice(&["volume", "list", "--json"]).ok();
        let listed: Value = serde_json::from_str(&said).expect("JSON");
        let volumes = listed["volumes"].as_array().cloned().unwrap_or_default();
        volumes.into_iter().find(|of| of["name"] == name)
    };
    until("the claim is made", || status(&site, "data").filter(|of| of["status"] == "active"));
    until("a claim that is not there is told", || {
        let failed = status(&site, "old").filter(|of| of["status"] == "failed")?;
        text(&failed["disk"], "failure").contains("not found").then_some(())
    });
    until("the source has told what it offers", || {
        let said = site.cluster.cluster().sluice(&["offer", "--cpu", "1..", "--json"]).ok();
        let listed: Value = serde_json::from_str(&said).expect("JSON");
        (listed["total_offers"] == 1).then_some(())
    });
    let task = "type: task\nname: one\nimage: lab/tool:1\nbackends: [kubernetes]\n\
                volumes: ['data:/volumes/data']\n\
                commands: ['while [ ! -e go ]; do sleep 0.05; done']\n\
                resources: {cpu: 1.., memory: 16MB.., disk: 0GB..}\n";
    let go = site.cluster.cluster().path("work/go");
    let task = task.replace("-e go", &format!("-e {}", go.display()));
    site.cluster.cluster().write("task.dstack.yml", &task);
    let applied = site.cluster.cluster().sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]);
    assert_eq!(applied.code, 0, "{applied:?}");
    await_pods(&site, 1);
    let await_state = |state: &str, site: &Site| {
        until(state, || {
            let said = site.cluster.cluster().shell("sacct -nXP -o JobName,State,NodeList").stdout;
            said.contains(&format!("one|{state}|pods-1")).then_some(())
        });
    };
    let claim = text(&site.cloud.logged("claim")[0], "name");
    assert_eq!(pods(&site)[0]["claims"], json!({"/volumes/data": claim}));
    let refused = site.cluster.cluster().sluice(&["volume", "delete", "data", "-y"]);
    assert!(refused.code != 0 && refused.stderr.contains("is used by job"), "{refused:?}");
    await_state("RUNNING", &site);
    site.cluster.kill_server();
    site.cluster.start_server();
    site.cluster.cluster().write("go", "");
    await_state("COMPLETED", &site);
    // Each pod of a job on two nodes has the claim of its rank.
    for rank in 0..2 {
        let name = format!("part-{rank}");
        let part = volume.replace("name: data", &format!("name: {name}"));
        site.cluster.cluster().write("part.dstack.yml", &part);
        site.cluster.cluster().sluice(&["volume", "create", "-f", "part.dstack.yml"]).ok();
        until("its claim is made", || status(&site, &name).filter(|of| of["status"] == "active"));
    }
    let line = "sbatch --parsable -N 2 -n 2 \
                --volume 'part-${{ dstack.node_rank }}:/volumes/part' --wrap true";
    let wide: u32 = site.cluster.cluster().shell(line).ok().trim().parse().expect("a job");
    assert_eq!(site.cluster.cluster().await_end(wide), "COMPLETED|0:0");
    let mut of_ranks = pods(&site)[1..].to_vec();
    // Tokens begin with the number of their machine.
    of_ranks.sort_by_key(|pod| text(pod, "token"));
    let claims: Vec<String> =
        site.cloud.logged("claim").iter().map(|line| text(line, "name")).collect();
    let expected = claims[1..].iter().map(|claim| json!({"/volumes/part": claim}));
    let mounted: Vec<Value> = of_ranks.iter().map(|pod| pod["claims"].clone()).collect();
    assert_eq!(mounted, expected.collect::<Vec<Value>>());
    for name in ["data", "old"] {
        let deleted = site.cluster.cluster().sluice(&["volume", "delete", name, "-y"]);
        assert_eq!(deleted.code, 0, "{deleted:?}");
    }
    until("both are gone", || {
        (status(&site, "data").is_none() && status(&site, "old").is_none()).then_some(())
    });
    let deleted = site.cloud.logged("delete-claim");
    assert_eq!(deleted.len(), 1, "the registered one is left alone: {deleted:?}");
    assert_eq!((&deleted[0]["name"], &deleted[0]["used"]), (&json!(claim), &json!(false)));
    assert_eq!(claims.len(), 3, "each was made once");
}
