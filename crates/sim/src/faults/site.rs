//! The cluster of a history: four nodes, two partitions of which one preempts the other, and who uses it.

use cluster::{ClusterConfig, Command, Parameters};
use model::account::{Account, Association, AssociationLimits, Qos, ROOT_ACCOUNT};
use model::amount::Bytes;
use model::gres::GPU;
use model::node::{NodeConfig, NodeGres};
use model::partition::{OverSubscribe, Partition};
use model::preempt::{PreemptBy, PreemptMode, PreemptPolicy};
use model::principal::{Principal, Role};
use model::priority::PriorityPolicy;
use model::time::TimeLimit;
use model::tres::{Tres, TresKind};

pub const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

pub const DEFAULT_PARTITION: &str = "main";
/// Its jobs preempt those of the other partition.
pub const URGENT_PARTITION: &str = "urgent";

/// A QOS with a limit on the running jobs of each user.
pub const LIMITED_QOS: &str = "few";
pub const RUNNING_MAX: u32 = 2;

/// An account whose jobs may hold so many CPUs together: as many as the largest asks for, which is two whole nodes and one CPU of
/// another component.
pub const LIMITED_ACCOUNT: &str = "lab";
pub const GROUP_CPUS_MAX: u32 = 2 * CPUS + 1;

/// Who belongs to the account, and names none.
pub const MEMBERS: [&str; 2] = ["bob", "carol"];

/// The longest time limit in some of the site's files, minutes. Jobs ask for up to six.
const SHORT_LIMIT_MIN: u32 = 4;

const CPUS: u32 = 8;
const MEMORY_GIB: u64 = 16;

/// What the files of the site say. They change: of four, one gives whole nodes or shares them again, one keeps users apart or has a
/// shorter time limit, and one leaves a node out. With every fourth all that is submitted can run.
pub fn configuration(variant: u64) -> ClusterConfig {
    let count = if variant % 4 == 3 { NODES.len() - 1 } else { NODES.len() };
    let names: Vec<String> = NODES.iter().take(count).map(|name| (*name).to_owned()).collect();
    let mut default = Partition::over(DEFAULT_PARTITION, names.clone());
    default.default = true;
    match variant % 8 {
        1 => default.over_subscribe = OverSubscribe::Exclusive,
        2 => default.exclusive_user = true,
        5 => default.over_subscribe = OverSubscribe::Force(1),
        6 => default.max_time = TimeLimit::Minutes(SHORT_LIMIT_MIN),
        _ => {}
    }
    let mut urgent = Partition::over(URGENT_PARTITION, names.clone());
    urgent.priority_tier = 2;
    let mode = if variant % 8 < 4 { PreemptMode::Requeue } else { PreemptMode::Cancel };
    let parameters = Parameters {
        slurmd_timeout_s: 40 + 10 * (variant % 3) as u32,
        kill_wait_s: 5,
        min_job_age_s: 60,
        return_to_service: 1,
        requeue_wait_s: 5,
        // Usage is charged at the ends of attempts alone, and does not decay: the charges can be checked.
        priority: PriorityPolicy {
            calc_period_s: u64::MAX,
            half_life_s: None,
            ..PriorityPolicy::default()
        },
        preempt: PreemptPolicy { by: PreemptBy::Partition, mode, ..PreemptPolicy::default() },
        ..Parameters::default()
    };
    ClusterConfig {
        nodes: names.iter().map(|name| node(name)).collect(),
        partitions: vec![default, urgent],
        parameters,
        ..ClusterConfig::default()
    }
}

/// A node as it is configured, and as its agent finds it.
pub fn node(name: &str) -> NodeConfig {
    let mut node = NodeConfig::plain(name, CPUS, Bytes::from_gib(MEMORY_GIB));
    node.gres = vec![NodeGres::plain(GPU, Some("h100"), 2)];
    node
}

pub fn limited_qos() -> Qos {
    Qos { max_jobs_per_user: Some(RUNNING_MAX), ..Qos::named(LIMITED_QOS) }
}

/// What makes the account, its limit and its members.
pub fn accounting() -> Vec<Command> {
    let account = Account {
        name: LIMITED_ACCOUNT.to_owned(),
        description: String::new(),
        organization: String::new(),
        parent: Some(ROOT_ACCOUNT.to_owned()),
        coordinators: Vec::new(),
    };
    let mut group_tres = Tres::new();
    group_tres.set(TresKind::Cpu, u64::from(GROUP_CPUS_MAX));
    let limits = AssociationLimits { group_tres, ..AssociationLimits::default() };
    let whole = Association { limits, ..Association::plain(LIMITED_ACCOUNT, None) };
    let members = MEMBERS.map(|name| Association {
        default: true,
        ..Association::plain(LIMITED_ACCOUNT, Some(name))
    });
    let associations = [whole].into_iter().chain(members);
    let associations = associations.map(|of| Command::SetAssociation(Box::new(of)));
    [Command::SetAccount(account)].into_iter().chain(associations).collect()
}

/// The server itself, and the administrator.
pub fn root() -> Principal {
    Principal { role: Role::Admin, ..user("root", 0) }
}

pub fn users() -> [Principal; 3] {
    [user("alice", 1_000), user("bob", 1_001), user("carol", 1_002)]
}

fn user(name: &str, uid: u32) -> Principal {
    Principal {
        name: name.to_owned(),
        uid,
        gid: uid,
        group: name.to_owned(),
        groups: Vec::new(),
        role: Role::User,
        token_limit: None,
    }
}
