//! What is free of one node, kept up to date as shares are taken and given back.

use crate::place::cores;
use crate::view::NodeInfo;
use model::allocation::{GresShare, NodeShare};
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::node::{NodeConfig, NodeGres};

/// Units of one GRES line beyond this many are only counted: nobody tells 4,096 of a bandwidth
/// apart.
const TOLD_APART_MAX: u64 = 1_024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFree {
    /// CPUs of cores that are wholly free: cores are granted whole.
    pub cpus: CpuSet,
    pub memory: Bytes,
    /// One for each line of the node's configuration.
    pub gres: Vec<LineFree>,
    pub jobs: u32,
    /// A job has the whole node, whatever it uses of it.
    pub exclusive: bool,
    /// The users of the jobs here, sorted, with the number of their jobs.
    pub users: Vec<(u32, u32)>,
    /// Only this user's jobs may join, because so many of them want no other's beside them.
    pub owner: Option<(u32, u32)>,
}

/// Free units of one GRES line: by index where they are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineFree {
    pub count: u64,
    /// Sorted; empty where units are only counted.
    pub indices: Vec<u32>,
}

/// Who takes a share, and what that means for the others on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    pub uid: u32,
    pub whole_node: bool,
    pub user_exclusive: bool,
}

impl LineFree {
    fn all_of(line: &NodeGres) -> Self {
        let told_apart = line.count <= TOLD_APART_MAX;
        let indices = if told_apart {
            (line.first_index..).take(line.count as usize).collect()
        } else {
            Vec::new()
        };
        Self { count: line.count, indices }
    }
}

fn is_told_apart(line: &NodeGres) -> bool {
    line.count <= TOLD_APART_MAX
}

impl NodeFree {
    /// The node with nothing on it.
    pub fn empty(config: &NodeConfig) -> Self {
        Self {
            cpus: cores::whole(&config.usable_cpus(), cores::threads(config)),
            memory: config.usable_memory(),
            gres: config.gres.iter().map(LineFree::all_of).collect(),
            jobs: 0,
            exclusive: false,
            users: Vec::new(),
            owner: None,
        }
    }

    pub fn of(info: &NodeInfo) -> Self {
        let mut free = Self::empty(&info.config);
        free.cpus.subtract(&info.used.cpus);
        free.cpus = cores::whole(&free.cpus, cores::threads(&info.config));
        free.memory = Bytes(free.memory.0.saturating_sub(info.used.memory.0));
        for share in &info.used.gres {
            free.take_gres(&info.config, share);
        }
        free.jobs = info.used.jobs;
        free.exclusive = info.used.exclusive;
        free.users = info.used.users.iter().map(|uid| (*uid, 1)).collect();
        let owners = &info.used.user_exclusive;
        free.owner = owners.first().map(|(_, uid)| (*uid, owners.len() as u32));
        free
    }

    pub fn take(&mut self, config: &NodeConfig, share: &NodeShare, holder: Holder) {
        self.cpus.subtract(&share.cpus);
        self.memory = Bytes(self.memory.0.saturating_sub(share.memory.0));
        for gres in &share.gres {
            self.take_gres(config, gres);
        }
        self.jobs += 1;
        self.exclusive |= holder.whole_node;
        if holder.user_exclusive {
            let jobs = self.owner.map_or(0, |(_, jobs)| jobs);
            self.owner = Some((holder.uid, jobs + 1));
        }
        match self.users.binary_search_by_key(&holder.uid, |(uid, _)| *uid) {
            Ok(at) => self.users[at].1 += 1,
            Err(at) => self.users.insert(at, (holder.uid, 1)),
        }
    }

    fn take_gres(&mut self, config: &NodeConfig, share: &GresShare) {
        let mut counted = share.count.saturating_sub(share.indices.len() as u64);
        for (line, free) in lines_of(config, &mut self.gres, share) {
            if is_told_apart(line) {
                free.indices.retain(|index| !share.indices.contains(index));
                free.count = free.indices.len() as u64;
            }
            // A share without indices of units that are told apart: an older record, or a count
            // that was cut.
            let taken = counted.min(free.count);
            free.indices.truncate(free.indices.len().saturating_sub(taken as usize));
            free.count -= taken;
            counted -= taken;
        }
    }
}

/// The lines a share can be of: its name, and its kind where it says one.
fn lines_of<'a>(
    config: &'a NodeConfig,
    free: &'a mut [LineFree],
    share: &'a GresShare,
) -> impl Iterator<Item = (&'a NodeGres, &'a mut LineFree)> {
    config
        .gres
        .iter()
        .zip(free)
        .filter(|(line, _)| line.name == share.name)
        .filter(|(line, _)| share.kind.is_none() || line.kind == share.kind)
}
