//! The very CPUs, bytes and devices that are free on one node.

use crate::free::cores;
use crate::view::{NodeInfo, may_share_cpu};
use model::allocation::{GresShare, NodeShare};
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::gres::GPU;
use model::node::{NodeConfig, NodeGres};
use smallvec::SmallVec;

/// A GRES line with more units than this is counted only: units of a bandwidth have no indices.
const INDEXED_MAX: u64 = 1_024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFree {
    /// CPUs of cores that are wholly free: cores are granted whole.
    pub cpus: CpuSet,
    /// Jobs that share their CPUs: the CPUs of each, and how many jobs may be on them.
    pub shared: Vec<(CpuSet, u32)>,
    pub memory: Bytes,
    /// One for each line of the node's configuration.
    pub gres: Vec<GresLineFree>,
    pub jobs: u32,
    /// A job has the whole node.
    pub exclusive: bool,
    /// The users with jobs on the node, sorted, with the number of their jobs.
    pub users: SmallVec<[(u32, u32); 2]>,
    /// A user with `--exclusive=user` jobs on the node, and how many: no other user's job may join.
    pub owner: Option<(u32, u32)>,
}

/// Free units of one GRES line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresLineFree {
    pub count: u64,
    /// The indices of the free units, sorted; empty where units are only counted.
    pub indices: Vec<u32>,
}

/// The user whose job takes a share, and whether jobs of others may be on the node beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareHolder {
    pub uid: u32,
    pub whole_node: bool,
    pub user_exclusive: bool,
}

impl GresLineFree {
    fn all_of(line: &NodeGres) -> Self {
        let indices = if is_indexed(line) {
            (line.first_index..).take(line.count as usize).collect()
        } else {
            Vec::new()
        };
        Self { count: line.count, indices }
    }
}

/// Whether units have indices. Shares of one GPU have none.
fn is_indexed(line: &NodeGres) -> bool {
    line.count <= INDEXED_MAX && line.share_of.is_none()
}

impl NodeFree {
    /// The node with nothing on it.
    pub fn empty(config: &NodeConfig) -> Self {
        Self {
            cpus: cores::whole_cores(&config.usable_cpus(), cores::threads(config)),
            shared: Vec::new(),
            memory: config.usable_memory(),
            gres: config.gres.iter().map(GresLineFree::all_of).collect(),
            jobs: 0,
            exclusive: false,
            users: SmallVec::new(),
            owner: None,
        }
    }

    pub fn of(info: &NodeInfo) -> Self {
        Self::empty(&info.config).without_used(info)
    }

    /// What is free of the node where `self` is what it has when it is empty.
    pub fn without_used(self, info: &NodeInfo) -> Self {
        let mut free = self;
        free.cpus.subtract(&info.used.cpus);
        let threads = cores::threads(&info.config);
        if threads > 1 {
            free.cpus = cores::whole_cores(&free.cpus, threads);
        }
        free.shared.clone_from(&info.used.shared);
        free.memory = Bytes(free.memory.0.saturating_sub(info.used.memory.0));
        for share in &info.used.gres {
            free.take_gres(&info.config, share);
        }
        free.jobs = info.used.jobs;
        free.exclusive = info.used.is_closed_to_all();
        free.users = info.used.users.iter().map(|uid| (*uid, 1)).collect();
        let owners = &info.used.user_exclusive;
        free.owner = owners.first().map(|(_, uid)| (*uid, owners.len() as u32));
        free
    }

    /// Takes a share, which must be free.
    pub fn take(&mut self, config: &NodeConfig, share: &NodeShare, holder: ShareHolder) {
        let shares_cpus = share.sharers > 1;
        assert!(shares_cpus || share.cpus.is_subset(&self.cpus), "granted CPUs are free");
        assert!(share.memory <= self.memory, "granted memory is free");
        assert!(!self.exclusive, "nobody joins a job that has the whole node");
        self.cpus.subtract(&share.cpus);
        let threads = cores::threads(config);
        if threads > 1 {
            self.cpus = cores::whole_cores(&self.cpus, threads);
        }
        if share.sharers > 1 {
            self.shared.push((share.cpus.clone(), share.sharers));
        }
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

    /// CPUs by how many jobs are on them: first those that are free, then those that one more job may share.
    pub fn cpus_to_share(&self, sharers: u32) -> Vec<CpuSet> {
        let mut levels = vec![self.cpus.clone()];
        let mut taken = CpuSet::new();
        self.shared.iter().for_each(|(cpus, _)| taken.union(cpus));
        for cpu in taken.iter().filter(|cpu| may_share_cpu(&self.shared, *cpu, sharers)) {
            let count = self.shared.iter().filter(|(cpus, _)| cpus.contains(cpu)).count();
            if levels.len() <= count {
                levels.resize(count + 1, CpuSet::new());
            }
            levels[count].insert(cpu);
        }
        levels
    }

    fn take_gres(&mut self, config: &NodeConfig, share: &GresShare) {
        let mut counted = share.count.saturating_sub(share.indices.len() as u64);
        for (line, free) in lines_of(config, &mut self.gres, share) {
            let elsewhere = line.share_of.is_some_and(|gpu| !share.indices.contains(&gpu));
            if line.no_consume || elsewhere {
                continue;
            }
            if line.share_of.is_some() {
                free.count = free.count.saturating_sub(share.count);
                continue;
            }
            if is_indexed(line) {
                free.indices.retain(|index| !share.indices.contains(index));
                free.count = free.indices.len() as u64;
            }
            // A share without indices of a line that has them: an older record, or a count
            // that was cut.
            let taken = counted.min(free.count);
            free.indices.truncate(free.indices.len().saturating_sub(taken as usize));
            free.count -= taken;
            counted -= taken;
        }
        self.take_other_gpu_form(config, share);
    }

    /// A GPU is granted whole or in shares. What is granted in one form is not free in the other.
    fn take_other_gpu_form(&mut self, config: &NodeConfig, share: &GresShare) {
        if config.gres.iter().all(|line| line.share_of.is_none()) {
            return;
        }
        for (line, free) in config.gres.iter().zip(&mut self.gres) {
            let Some(gpu) = line.share_of else { continue };
            if share.name == GPU && share.indices.contains(&gpu) {
                free.indices.clear();
                free.count = 0;
            }
        }
        let in_shares = gpus_shared_by(config, share);
        for (line, free) in config.gres.iter().zip(&mut self.gres) {
            if line.name == GPU && !in_shares.is_empty() {
                free.indices.retain(|index| !in_shares.contains(index));
                free.count = free.indices.len() as u64;
            }
        }
    }
}

/// The GPUs that a share has fractions of. The indices of such a share are those of the GPUs.
pub fn gpus_shared_by<'s>(config: &NodeConfig, share: &'s GresShare) -> &'s [u32] {
    let in_shares = |line: &NodeGres| line.name == share.name && line.share_of.is_some();
    if config.gres.iter().any(in_shares) { &share.indices } else { &[] }
}

/// The lines that a share can come from: those of its name, and of its kind where it has one.
fn lines_of<'a>(
    config: &'a NodeConfig,
    free: &'a mut [GresLineFree],
    share: &'a GresShare,
) -> impl Iterator<Item = (&'a NodeGres, &'a mut GresLineFree)> {
    config
        .gres
        .iter()
        .zip(free)
        .filter(|(line, _)| line.name == share.name)
        .filter(|(line, _)| share.kind.is_none() || line.kind == share.kind)
}
