//! Services while the server or a node of theirs is killed, under load: what is lost is counted.

use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, program, until};
use crate::load::failures_under_load;
use crate::services::{PAGE, serving};
use crate::web_pages::{address, admin};
use crate::web_server::WEB_SERVER;

#[test]
fn up_killed_server_loses_the_requests_under_way_and_no_later_one() {
    let (cluster, token) = serving("");
    let server = address(&cluster);
    let targets = [(&*server, PAGE); 3];
    // Its keeper has the listening sockets, and starts it again: who connects meanwhile waits.
    let failures = failures_under_load(&targets, &token, |more| {
        cluster.kill_alone("server");
        more(100);
    });
    assert!(failures.len() <= targets.len(), "one of each that asks: {failures:?}");
    let is_said = |failure: &&String| failure.starts_with("HTTP/1.1 5");
    assert_eq!(failures.iter().find(is_said), None, "a server that is back answers");
}

/// Both nodes are needed for the two replicas.
const CONF: &str = "\
ClusterName=hosts
SlurmdTimeout=3
ReturnToService=1
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=64
NodeName=node[01-02] CPUs=2 CoresPerSocket=2 RealMemory=1000
PartitionName=main Nodes=node[01-02] Default=YES State=UP
";

/// Asks for a page on three connections at a time until a file says that it is enough, and says how many answers there were and what went
/// wrong.
const LOAD: &str = r#"
import http.client, os, sys, threading
address, path, token = sys.argv[1:4]
answers, failures = [], []
def ask():
    while not os.path.exists("load.stop"):
        try:
            connection = http.client.HTTPConnection(address, timeout=180)
            connection.request("GET", path, headers={"Authorization": token})
            answer = connection.getresponse()
            text = answer.read()
            (answers if answer.status == 200 else failures).append(f"{answer.status} {text[:200]!r}")
            connection.close()
        except Exception as error:
            failures.append(repr(error))
        with open(f"load.count.{threading.get_ident()}", "w") as file:
            file.write(str(len(answers)))
threads = [threading.Thread(target=ask) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(answers), len(failures), failures[:3], flush=True)
"#;

#[test]
fn root_killed_node_loses_no_request_that_is_safe_to_repeat() {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(2);
    hosts.start(&cluster);
    hosts.join(&cluster, 1);
    hosts.join(&cluster, 2);
    let said = |line: &str| hosts.in_hub(&cluster, line).stdout;
    until("both nodes are idle", || (said("sinfo -h -o '%D %t'").trim() == "2 idle").then_some(()));
    cluster.write("serve.py", WEB_SERVER);
    cluster.write("load.py", LOAD);
    let text = "type: service\nname: web\nport: 8000\nreplicas: 2\n\
        commands: ['exec python3 serve.py 8000']\n\
        resources: {cpu: 2, memory: 64MB.., disk: 0GB..}\n";
    cluster.write("web.dstack.yml", text);
    said(&format!("{} apply -f web.dstack.yml -y -d", program()));
    until("both replicas run", || {
        (said("squeue -h -n web -t R -o %N").lines().count() == 2).then_some(())
    });
    let token = admin(&cluster);
    let token = token.strip_prefix("Authorization: ").expect("a header");
    let (address, load) = (address(&cluster), "load.py");
    let asked = format!("{address} {PAGE} '{token}'");
    let once = format!("curl -s -o /dev/null -w '%{{http_code}}' -H 'Authorization: {token}'");
    until("the service answers", || {
        (said(&format!("{once} http://{address}{PAGE}")).trim() == "200").then_some(())
    });
    said(&format!("python3 {load} {asked} > load.out 2>&1 &"));
    let answers = || {
        let files = std::fs::read_dir(cluster.path("work")).expect("a folder").flatten();
        let counts = files.filter(|file| file.file_name().to_string_lossy().contains("load.count"));
        let counts = counts.filter_map(|file| std::fs::read_to_string(file.path()).ok());
        counts.filter_map(|text| text.trim().parse::<usize>().ok()).max().unwrap_or(0)
    };
    let more = |count: usize| {
        let before = answers();
        until("requests are answered", || (answers() >= before + count).then_some(()));
    };
    more(50);
    hosts.set_link(2, "down");
    until("the node is down", || {
        said("sinfo -h -N -o '%N %t'").contains("node02 down").then_some(())
    });
    more(50);
    cluster.write("load.stop", "");
    let result = cluster.await_file("load.out", |text| text.ends_with('\n'));
    let failed = result.split(' ').nth(1);
    assert_eq!(failed, Some("0"), "{result}");
    hosts.set_link(2, "up");
}
