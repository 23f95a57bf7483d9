//! Cuts of the network around a leader, by hosts as network namespaces: from the database, from the agents alone, from the clients
//! alone. Jobs do not notice, and nothing is lost or done twice.

use crate::database::TestDatabase;
use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, CommandOutput, TIMEOUT, program, within};
use crate::server_hosts::{DATABASE_ADDRESS, address, cut_off, database, join, mend, start};
use crate::servers::{Server, await_backup, copy_keys, job_until_go, jobs};
use std::collections::BTreeSet;

const CONF: &str = "\
ClusterName=cuts
SlurmdParameters=config_overrides
SlurmdTimeout=300
ReturnToService=2
KillWait=1 AuthInfo=cred_expire=0
DefMemPerCPU=16
NodeName=node03 CPUs=4 RealMemory=500
PartitionName=main Nodes=ALL Default=YES State=UP
";

/// The hosts of the two servers, of the node, and of a user.
const FIRST: u32 = 1;
const SECOND: u32 = 2;
const NODE: u32 = 3;
const USER: u32 = 4;

/// A leader, a standby and a node, each on a host of its own. They end before their hosts are removed.
struct Site {
    leader: Server,
    standby: Server,
    hosts: Hosts,
    _database: TestDatabase,
    first: Cluster,
    second: Cluster,
}

impl Site {
    fn up() -> Self {
        let mut hosts = Hosts::up(USER);
        let database = database(&hosts);
        let (first, second) = (Cluster::folder(CONF), Cluster::folder(CONF));
        let leader = start(&hosts, FIRST, &first, &[]);
        leader.await_line("sluice is up");
        copy_keys(&first, &second);
        let standby = start(&hosts, SECOND, &second, &[]);
        standby.await_line("sluice waits as a standby");
        join(&mut hosts, NODE, "node03", &first, &[FIRST, SECOND]);
        Self { leader, standby, hosts, _database: database, first, second }
    }

    fn running_job(&self) -> u32 {
        job_until_go(&self.first, &[])
    }

    /// Lets the job end, and waits until the second server has its end. The agent may have to find out first that its server is gone.
    fn end_at_second(&self, job: u32) {
        self.first.write("go", "");
        let (id, columns) = (job.to_string(), "State,ExitCode");
        within(2 * TIMEOUT, "the end is in the books of the second server", || {
            let said = self.second.sluice(&["sacct", "-n", "-X", "-P", "-j", &id, "-o", columns]);
            (said.stdout.trim() == "FAILED|3:0").then_some(())
        });
        assert_eq!(self.first.read("runs"), "run\n", "it ran once");
    }

    /// A line on the user's host, by the user's login.
    fn as_user(&self, line: &str) -> CommandOutput {
        let home = self.first.path("home");
        std::fs::create_dir_all(&home).expect("a home");
        let (home, path) = (home.display(), self.first.path("bin"));
        let line = format!(
            "unset SLUICE_STATE; export HOME={home} PATH={}:$PATH; cd {home}; {line}",
            path.display()
        );
        self.hosts.tool(&["exec", &USER.to_string(), "sh", "-c", &line])
    }
}

#[test]
fn root_leader_that_is_cut_from_the_database_is_succeeded_and_its_job_goes_on() {
    let mut site = Site::up();
    let job = site.running_job();
    cut_off(&site.hosts, FIRST, DATABASE_ADDRESS);
    site.standby.await_line("sluice is up");
    let held = site.second.submit(&["-H", "--wrap", "true"]);
    assert_eq!(jobs(&site.second), BTreeSet::from([job, held]));
    // It can commit nothing, and ends.
    site.leader.await_succeeded();
    site.end_at_second(job);
    mend(&site.hosts, FIRST, DATABASE_ADDRESS);
    let back = start(&site.hosts, FIRST, &site.first, &[]);
    back.await_line("sluice waits as a standby");
    assert_eq!(jobs(&site.first), BTreeSet::from([held]));
}

#[test]
fn root_leader_that_is_cut_from_the_agents_hands_over_and_their_job_goes_on() {
    let site = Site::up();
    let job = site.running_job();
    await_backup(&site.first);
    cut_off(&site.hosts, FIRST, &address(NODE));
    site.second.sluice(&["server", "handover"]).ok();
    site.standby.await_line("sluice is up");
    assert_eq!(jobs(&site.second), BTreeSet::from([job]), "it is not given up");
    site.end_at_second(job);
}

#[test]
fn root_users_whom_the_leader_cannot_reach_are_served_through_the_standby() {
    let site = Site::up();
    let log = std::fs::read_to_string(site.first.path("server.out")).expect("a log");
    let fingerprint = log.split("the authority is ").nth(1).expect("the log has it");
    let fingerprint = fingerprint.split_whitespace().next().expect("a word");
    let token = site.first.sluice(&["token", "user", "games", "--name", "laptop"]).ok();
    let token = site.first.write("laptop.token", token.trim());
    let login = format!(
        "{} login https://{}:6820 https://{}:6820 --fingerprint {fingerprint} < {}",
        program(),
        address(FIRST),
        address(SECOND),
        token.display()
    );
    site.as_user(&login).ok();
    cut_off(&site.hosts, FIRST, &address(USER));
    let said = site.as_user("sbatch --parsable -H --wrap true").ok();
    let job: u32 = said.trim().parse().expect("an id");
    assert_eq!(jobs(&site.first), BTreeSet::from([job]), "it is one job, of the leader");
    assert_eq!(site.as_user("squeue -h -o %A").ok().trim(), job.to_string());
    let servers = site.first.sluice(&["scontrol", "ping"]).ok();
    assert!(servers.contains("Slurmctld(primary) at node01"), "the lead has not moved: {servers}");
}
