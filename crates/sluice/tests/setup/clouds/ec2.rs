//! Machines of EC2, as moto's server and the proxy before it (`ec2_proxy.py`) play it: each machine's user data starts an agent
//! on this machine.

use super::{BILL_SLACK_MS, Cloud, Site, run_as_ordinary_user_with, seconds, text};
use crate::harness::{skip, until, within};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(super) const PROXY: &str = include_str!("ec2_proxy.py");

/// The address of moto's server, for the test as an ordinary user: that user may not reach the Python which moto is in.
const MOTO_VARIABLE: &str = "SLUICE_TEST_MOTO";

/// A machine that the cloud has taken back is in the books until it is missed.
pub(super) const SPOT_SLACK_MS: u64 = 60_000;

/// moto's server.
struct Moto {
    process: Child,
    address: String,
}

impl Moto {
    /// `None` where it is not installed.
    fn start() -> Option<Self> {
        let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients/moto-5.2.5");
        let python = Path::new(clients).join("bin/python");
        if !python.exists() {
            return None;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let mut command = Command::new(python);
        command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("moto starts");
        until("moto answers", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Some(Self { process, address: format!("http://127.0.0.1:{port}") })
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a test with moto, and as an ordinary user: a server of root's gives root up, and the agents that the proxy starts
/// could run nobody's jobs. `module`: the file that the test is in.
pub(super) fn with_moto(module: &str, name: &str, test: impl FnOnce(&str)) {
    if let Ok(address) = std::env::var(MOTO_VARIABLE) {
        return test(&address);
    }
    let Some(moto) = Moto::start() else {
        return skip("moto", "scripts/moto has not installed it");
    };
    if nix::unistd::getuid().is_root() {
        let name = format!("clouds::{module}::{name}");
        return run_as_ordinary_user_with(&name, &[(MOTO_VARIABLE, moto.address.as_str())]);
    }
    test(&moto.address);
}

/// What moto answers to a call that the server has not made.
fn ask_moto(moto: &str, form: &str) -> String {
    let body = format!("Version=2016-11-15&{form}");
    let scope = "Credential=AKIAGOOD/20200101/eu-west-1/ec2/aws4_request";
    let host = moto.trim_start_matches("http://");
    let request = format!(
        "POST / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
         Authorization: AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=0\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = std::net::TcpStream::connect(host).expect("moto");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Has moto make a machine with the cluster's tag, which the server has not asked for.
fn make_stranger(moto: &str) {
    let tag = "TagSpecification.1.ResourceType=instance&TagSpecification.1.Tag.1.Key=sluice-cluster\
               &TagSpecification.1.Tag.1.Value=machines";
    let kind = "ImageId=ami-test&InstanceType=t3.nano&MinCount=1&MaxCount=1";
    let answer = ask_moto(moto, &format!("Action=RunInstances&{kind}&{tag}"));
    assert!(answer.contains("<instanceId>"), "{answer}");
}

/// Has moto make a VPC of the name `lab` with a subnet in the zone eu-west-1b, whose id is returned.
fn make_vpc(moto: &str) -> String {
    let element = |answer: &str, name: &str| {
        let (_, rest) = answer.split_once(&format!("<{name}>")).expect(answer);
        rest.split('<').next().unwrap_or_default().to_owned()
    };
    let tag = "TagSpecification.1.ResourceType=vpc&TagSpecification.1.Tag.1.Key=Name\
               &TagSpecification.1.Tag.1.Value=lab";
    let vpc = ask_moto(moto, &format!("Action=CreateVpc&CidrBlock=10.7.0.0/16&{tag}"));
    let of = format!("VpcId={}&AvailabilityZone=eu-west-1b", element(&vpc, "vpcId"));
    let subnet = ask_moto(moto, &format!("Action=CreateSubnet&CidrBlock=10.7.1.0/24&{of}"));
    element(&subnet, "subnetId")
}

/// A file with the keys for the API, as AWS's own tools write it.
pub(super) fn credentials(cloud: &Cloud, name: &str, id: &str, secret: &str) -> String {
    let keys = format!("aws_access_key_id = {id}\naws_secret_access_key = {secret}\n");
    cloud.secret(name, &format!("[default]\n{keys}"))
}

/// A source of EC2 in sluice.toml. `more`: lines of its table of the cloud.
pub(super) fn source(
    cloud: &Cloud,
    name: &str,
    credentials: &str,
    machines: u32,
    more: &str,
) -> String {
    format!(
        "[[source]]\nname = '{name}'\nkind = 'aws'\nfeatures = ['cloud']\nmachines = {machines}\n\
         idle = '2s'\nboot = '80s'\n\
         [source.cloud]\nregions = ['eu-west-1']\nendpoint = 'http://{0}'\n\
         metadata = 'http://{0}/imds'\ncredentials = '{credentials}'\nimage = 'ami-test'\n\
         disk_gb = 8\n{more}\n",
        cloud.address
    )
}

pub(super) fn prices(cloud: &Cloud, prices: &Value) -> String {
    cloud.prices("aws", "eu-west-1", prices)
}

#[test]
fn up_queue_runs_on_machines_of_ec2_and_the_bill_is_the_clouds_log() {
    let name = "up_queue_runs_on_machines_of_ec2_and_the_bill_is_the_clouds_log";
    with_moto("ec2", name, |moto| {
        let mut site = Site::up(PROXY, &[moto], |cloud| {
            let key = credentials(cloud, "key", "AKIAGOOD", "secret");
            let prices = prices(
                cloud,
                &json!({
                    "t3.micro": {"on_demand": 0.36},
                    "t3.small": {"on_demand": 3.6},
                    "c5.large": {"on_demand": 36},
                }),
            );
            // The cheapest is sold out, the next call is one too many, and what was made is not seen at once.
            cloud.control(&json!({"sold_out": ["t3.micro"], "throttle": 1, "lag": 1}));
            let more = format!(
                "prices = '{prices}'\ntypes = ['t3.micro', 't3.small', 'c5.*']\nplacement_group = true"
            );
            source(cloud, "ec2", &key, 2, &more)
        });
        let wait = "while [ ! -e go ]; do sleep 0.05; done; echo $SLURM_JOB_ID >> ran";
        // Each has a machine to itself.
        let mut jobs: Vec<u32> = (0..4).map(|_| site.submit("-c 2", wait)).collect();
        until("a machine is made", || (!site.cloud.logged("create").is_empty()).then_some(()));
        site.cluster.kill_server();
        site.cluster.start_server();
        site.cluster.cluster().write("go", "");
        for job in &jobs {
            assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
        }
        site.await_none(seconds(60));
        // Machines of the dearest type can be near each other: their group is made when it is missing.
        site.cloud.control(&json!({"sold_out": ["t3.micro", "t3.small"]}));
        jobs.push(site.submit("-c 2", wait));
        assert_eq!(site.cluster.cluster().await_end(jobs[4]), "COMPLETED|0:0");
        site.await_none(seconds(60));
        let groups: Vec<String> =
            site.cloud.logged("group").iter().map(|line| text(line, "name")).collect();
        assert_eq!(groups, ["sluice-machines-ec2-eu-west-1"]);
        let ran = site.cluster.cluster().read("ran");
        let mut ran: Vec<u32> = ran.lines().map(|line| line.parse().expect("a job")).collect();
        ran.sort_unstable();
        assert_eq!(ran, jobs, "every job ran once");
        let sold_out: BTreeSet<String> =
            site.cloud.logged("sold_out").iter().map(|line| text(line, "type")).collect();
        assert!(sold_out.contains("t3.micro"), "the next offer is tried: {sold_out:?}");
        assert!(site.cluster.log().contains("RequestLimitExceeded"), "it was throttled");
        let prices =
            BTreeMap::from([("t3.small@eu-west-1", 36_000), ("c5.large@eu-west-1", 360_000)]);
        site.compare_bill(&prices, BILL_SLACK_MS);
    });
}

#[test]
fn up_job_of_a_spot_machine_is_warned_and_runs_again_when_the_cloud_takes_it_back() {
    let name = "up_job_of_a_spot_machine_is_warned_and_runs_again_when_the_cloud_takes_it_back";
    with_moto("ec2", name, |moto| {
        let site = Site::up(PROXY, &[moto], |cloud| {
            make_stranger(moto);
            let key = credentials(cloud, "key", "AKIAGOOD", "secret");
            let prices = prices(cloud, &json!({"t3.small": {"on_demand": 3.6}}));
            let more = format!("prices = '{prices}'\ntypes = ['t3.small']\nspot = 'spot'");
            source(cloud, "ec2", &key, 2, &more)
        });
        let job = site.submit(
            "--requeue --signal=B:USR1@30",
            "trap \"touch warned\" USR1; [ ! -e warned ] || exit 0; touch began; \
             for i in $(seq 600); do sleep 0.1; done; exit 1",
        );
        site.cluster.cluster().await_file("began", |_| true);
        until("the stranger is told of", || {
            site.cluster.log().contains("ALARM: source ec2 has machine i-").then_some(())
        });
        let shown = site.cluster.cluster().sluice(&["machine"]).ok();
        assert!(shown.contains("ec2: ALARM: machines that nobody asked for"), "{shown}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("a time").as_millis() as u64;
        site.cloud.control(&json!({"storm": {"before": now, "after": 3}}));
        site.cluster.cluster().await_file("warned", |_| true);
        until("the node is drained", || {
            let said = site.cluster.cluster().shell("sinfo -R -h -o %E").stdout;
            (said.contains("spot interruption") || !site.cloud.logged("interrupted").is_empty())
                .then_some(())
        });
        within(seconds(90), "the job has run again", || {
            site.cluster.cluster().state_of(job).starts_with("COMPLETED").then_some(())
        });
        site.await_none(seconds(60));
        assert_eq!(site.cloud.logged("interrupted").len(), 1);
        let created = site.cloud.logged("create");
        assert!(created.iter().all(|line| line["spot"] == true), "{created:?}");
        assert_eq!(created.len(), 2, "{created:?}");
        // The price of the API's own, not of the file.
        let prices = BTreeMap::from([("t3.small@eu-west-1/spot", 500)]);
        site.compare_bill(&prices, SPOT_SLACK_MS);
    });
}

#[test]
fn up_machine_is_in_a_subnet_of_the_sites_vpc_and_from_an_image_of_its_name() {
    let name = "up_machine_is_in_a_subnet_of_the_sites_vpc_and_from_an_image_of_its_name";
    with_moto("ec2", name, |moto| {
        let subnet = make_vpc(moto);
        let site = Site::up(PROXY, &[moto], |cloud| {
            let key = credentials(cloud, "key", "AKIAGOOD", "secret");
            let prices = prices(cloud, &json!({"t3.small": {"on_demand": 3.6}}));
            let image = "{ name = 'lab image' }";
            let more = format!(
                "prices = '{prices}'\ntypes = ['t3.small']\ntags = {{ team = 'vision' }}\n\
                 vpc_name = 'lab'\ndefault_vpcs = false\npublic_ips = false\n\
                 os_images = {{ cpu = {image}, nvidia = {image} }}"
            );
            source(cloud, "ec2", &key, 1, &more).replace("image = 'ami-test'\n", "")
        });
        let job = site.submit("", "true");
        assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
        site.await_none(seconds(60));
        let created = site.cloud.logged("create");
        assert_eq!(created.len(), 1, "{created:?}");
        let made = ["subnet", "public", "image"].map(|key| text(&created[0], key));
        assert_eq!(made, [subnet.as_str(), "false", "ami-test"]);
        let tags = created[0]["tags"].as_array().expect("tags");
        assert!(tags.contains(&json!("team")), "{tags:?}");
        let prices = BTreeMap::from([("t3.small@eu-west-1b", 36_000)]);
        site.compare_bill(&prices, BILL_SLACK_MS);
    });
}

#[test]
fn up_machine_has_the_fast_network_interface_where_its_type_has_one() {
    let name = "up_machine_has_the_fast_network_interface_where_its_type_has_one";
    with_moto("ec2", name, |moto| {
        let subnet = make_vpc(moto);
        let site = Site::up(PROXY, &[moto], |cloud| {
            let key = credentials(cloud, "key", "AKIAGOOD", "secret");
            let types = json!({"t3.small": {"on_demand": 3.6}, "c5n.9xlarge": {"on_demand": 36}});
            let prices = prices(cloud, &types);
            let more = format!(
                "prices = '{prices}'\ntypes = ['t3.small', 'c5n.9xlarge']\nefa = true\n\
                 vpc_name = 'lab'\ndefault_vpcs = false\npublic_ips = false"
            );
            source(cloud, "ec2", &key, 1, &more)
        });
        for sold_out in [&[] as &[&str], &["t3.small"]] {
            site.cloud.control(&json!({ "sold_out": sold_out }));
            let job = site.submit("", "true");
            assert_eq!(site.cluster.cluster().await_end(job), "COMPLETED|0:0");
            site.await_none(seconds(60));
        }
        let created = site.cloud.logged("create");
        let made: Vec<[&Value; 3]> = created
            .iter()
            .map(|line| ["type", "interface", "subnet"].map(|key| &line[key]))
            .collect();
        let (subnet, efa) = (json!(subnet), json!("efa"));
        let (small, fast) = (json!("t3.small"), json!("c5n.9xlarge"));
        assert_eq!(made, [[&small, &Value::Null, &subnet], [&fast, &efa, &subnet]]);
    });
}

/// The agents of the cloud are an ordinary user's and have no disks: the job that asks for one fails by it, and all the rest is
/// as with a disk.
#[test]
fn up_volume_of_ec2_is_made_attached_to_the_machine_of_its_job_and_deleted() {
    let name = "up_volume_of_ec2_is_made_attached_to_the_machine_of_its_job_and_deleted";
    with_moto("ec2", name, |moto| {
        let site = Site::up(PROXY, &[moto], |cloud| {
            let key = credentials(cloud, "key", "AKIAGOOD", "secret");
            let prices = prices(cloud, &json!({"t3.small": {"on_demand": 3.6}}));
            let more = format!("prices = '{prices}'\ntypes = ['t3.small']");
            source(cloud, "ec2", &key, 1, &more)
        });
        let cluster = site.cluster.cluster();
        let configuration = |more: &str| format!("type: volume\nname: data\nbackend: aws\n{more}");
        for (more, said) in [
            ("region: nowhere-1\nsize: 10GB\n", "no source of the backend aws makes volumes in"),
            ("region: eu-west-1\n", "needs a `size` or a `volume_id`"),
        ] {
            cluster.write("data.dstack.yml", &configuration(more));
            let refused = cluster.sluice(&["apply", "-f", "data.dstack.yml", "-y"]);
            assert!(refused.code != 0 && refused.stderr.contains(said), "{refused:?}");
            assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        }
        cluster.write("data.dstack.yml", &configuration("region: eu-west-1\nsize: 10GB\n"));
        cluster.sluice(&["apply", "-f", "data.dstack.yml", "-y"]).ok();
        let shown = || {
            let said = cluster.sluice(&["volume", "get", "data", "--json"]).stdout;
            serde_json::from_str::<Value>(&said).unwrap_or_default()
        };
        until("the disk is made", || (shown()["status"] == "active").then_some(()));
        let zone = text(&shown()["cloud"], "zone");
        let job = site.submit("--volume data:/mnt/data", "true");
        let of = |action: &str| {
            let lines = site.cloud.logged("disk").into_iter();
            lines.filter(|line| line["action"] == action).collect::<Vec<Value>>()
        };
        within(seconds(90), "it is attached", || (!of("AttachVolume").is_empty()).then_some(()));
        let created = site.cloud.logged("create");
        assert_eq!((created.len(), text(&created[0], "zone")), (1, zone), "{created:?}");
        assert_eq!(of("AttachVolume")[0]["machine"], created[0]["id"]);
        let refused = cluster.sluice(&["volume", "delete", "data", "-y"]);
        assert!(refused.stderr.contains("is used by job"), "{refused:?}");
        within(seconds(90), "the job has failed by its disk", || {
            cluster.state_of(job).starts_with("FAILED").then_some(())
        });
        within(seconds(60), "it is detached", || (!of("DetachVolume").is_empty()).then_some(()));
        until("it is free", || shown()["disk"]["node"].is_null().then_some(()));
        cluster.sluice(&["volume", "delete", "data", "-y"]).ok();
        within(seconds(60), "it is deleted", || (!of("DeleteVolume").is_empty()).then_some(()));
        until("its name is free", || {
            let listed = cluster.sluice(&["volume", "list"]).ok();
            (listed.lines().count() == 1).then_some(())
        });
        assert_eq!(of("CreateVolume").len(), 1, "one disk was made");
        site.await_none(seconds(60));
    });
}

#[test]
fn up_wrong_words_about_a_cloud_are_one_line_of_the_log_each() {
    let name = "up_wrong_words_about_a_cloud_are_one_line_of_the_log_each";
    with_moto("ec2", name, |moto| {
        let site = Site::up(PROXY, &[moto], |cloud| {
            let good = credentials(cloud, "good", "AKIAGOOD", "secret");
            let prices = prices(cloud, &json!({"none.such": {"on_demand": 1}}));
            let types = "types = ['t3.small']";
            let key = |name: &str, id: &str, secret: &str| {
                let key = credentials(cloud, name, id, secret);
                source(cloud, name, &key, 1, types)
            };
            let nowhere = source(cloud, "nowhere", &good, 1, types);
            [
                key("stranger", "AKIAOTHER", "secret"),
                key("forged", "AKIAGOOD", "wrong"),
                key("denied", "AKIADENIED", "secret"),
                key("skewed", "AKIASKEW", "secret"),
                key("garbage", "AKIAGARBAGE", "secret"),
                nowhere.replace("'eu-west-1'", "'xx-nowhere-1'"),
                source(cloud, "priceless", &good, 1, &format!("{types}\nprices = '{prices}'")),
                source(cloud, "keyless", "/nowhere/key", 1, types),
                source(cloud, "imageless", &good, 1, types).replace("ami-test", "ami-none"),
                source(cloud, "vpcless", &good, 1, &format!("{types}\nvpc_name = 'none'")),
            ]
            .concat()
        });
        for (source, words) in [
            ("stranger", "AuthFailure: AWS was not able to validate"),
            ("forged", "SignatureDoesNotMatch"),
            ("denied", "(allow ec2:DescribeInstanceTypes)"),
            ("skewed", "(this machine's clock is wrong, or the credentials have ended)"),
            ("garbage", "the answer is no XML"),
            ("nowhere", "AuthFailure: Credential should be scoped to a valid region"),
            ("priceless", "no type can be offered: 1 types of eu-west-1 have no price in"),
            ("keyless", "credentials: /nowhere/key: "),
            ("imageless", "image ami-none: there is none in eu-west-1"),
            ("vpcless", "VPC none: there is none in eu-west-1"),
        ] {
            let line = until(source, || {
                let log = site.cluster.log();
                let of_source = format!("source {source}:");
                let mut lines = log.lines().filter(|line| line.contains(&of_source));
                lines.find(|line| line.contains(words)).map(str::to_owned)
            });
            assert!(!line.contains("secret"), "{line}");
            until("it is shown", || {
                let shown = site.cluster.cluster().sluice(&["machine", "list"]).ok();
                shown.lines().any(|line| line.contains(words)).then_some(())
            });
        }
    });
}
