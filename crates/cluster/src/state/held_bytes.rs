//! What the jobs in memory make the server hold, by user: texts in memory (and with them in journal and snapshots), and blobs
//! on disk; and what dependencies make it look up. A job counts until its record is purged. A blob that several jobs have counts once, for the first of their users.
//!
//! Small on purpose: long queues of jobs with scripts of their own have an entry for each blob.

use super::job::{Job, Phase};
use foldhash::fast::RandomState;
use model::container::{Container, ContainerUser, Variables};
use model::id::BlobRef;
use model::request::Request;
use model::run::{JobSpec, Launch, Step};
use model::volume::VolumeUse;
use std::collections::HashMap;

/// What a step's record takes in memory beside its texts.
const STEP_BYTES: u64 = 512;

/// What a step's record takes for each node, beside its name.
const STEP_NODE_BYTES: u64 = 128;

/// What an item of a list takes beside its text: a range of indices, a term of a dependency, a name.
const ITEM_BYTES: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Held.
    pub text: u64,
    /// Held.
    pub blobs: u64,
    /// How many looks at other jobs it takes to know whether waiting jobs may start: each plan and each list takes them.
    pub lookups: u64,
}

/// Kept up to date by `apply`.
#[derive(Debug, Clone, Default)]
pub struct HeldBytes {
    users: HashMap<u32, Held, RandomState>,
    all: Held,
    blobs: HashMap<BlobKey, HeldBlob, RandomState>,
}

/// The first bytes of a blob's name. Two blobs with the same ones would only seem to be held for longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BlobKey([u8; 8]);

impl From<&BlobRef> for BlobKey {
    fn from(blob: &BlobRef) -> Self {
        let mut key = [0; 8];
        key.copy_from_slice(&blob.0[..8]);
        Self(key)
    }
}

#[derive(Debug, Clone, Copy)]
struct HeldBlob {
    jobs: u32,
    /// The user for whom it counts.
    user: u32,
}

const _: () = assert!(size_of::<(BlobKey, HeldBlob)>() == 16);

/// Derived: equal states may have seen their jobs in another order.
impl PartialEq for HeldBytes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl HeldBytes {
    pub fn of_user(&self, uid: u32) -> Held {
        self.users.get(&uid).copied().unwrap_or_default()
    }

    pub fn of_all(&self) -> Held {
        self.all
    }

    /// Whether a job in memory needs the blob.
    pub fn holds(&self, blob: &BlobRef) -> bool {
        self.blobs.contains_key(&blob.into())
    }

    /// What a specification would add: blobs that are held already count no more.
    pub(crate) fn added_by(&self, spec: &JobSpec) -> Held {
        let blobs = spec.launch.blobs().into_iter().flatten();
        let new = blobs.filter(|(blob, _)| !self.holds(blob)).map(|(_, bytes)| u64::from(bytes));
        Held { text: spec_bytes(spec), blobs: new.sum(), lookups: 0 }
    }

    pub(crate) fn add(&mut self, job: &Job) {
        let user = job.spec.owner.uid;
        self.add_text(user, job_bytes(job));
        let lookups = job_lookups(job);
        self.users.entry(user).or_default().lookups += lookups;
        self.all.lookups += lookups;
        for (blob, bytes) in job.spec.launch.blobs().into_iter().flatten() {
            let held = self.blobs.entry((&blob).into()).or_insert(HeldBlob { jobs: 0, user });
            held.jobs += 1;
            if held.jobs == 1 {
                self.users.entry(user).or_default().blobs += u64::from(bytes);
                self.all.blobs += u64::from(bytes);
            }
        }
    }

    /// Takes a job out that was added as it is now.
    pub(crate) fn remove(&mut self, job: &Job) {
        let (user, text) = (job.spec.owner.uid, job_bytes(job));
        let own = self.users.entry(user).or_default();
        own.text = own.text.saturating_sub(text);
        let lookups = job_lookups(job);
        own.lookups = own.lookups.saturating_sub(lookups);
        self.all.lookups = self.all.lookups.saturating_sub(lookups);
        self.all.text = self.all.text.saturating_sub(text);
        for (blob, bytes) in job.spec.launch.blobs().into_iter().flatten() {
            let key = BlobKey::from(&blob);
            let Some(held) = self.blobs.get_mut(&key) else { continue };
            held.jobs -= 1;
            if held.jobs > 0 {
                continue;
            }
            let payer = held.user;
            self.blobs.remove(&key);
            let of_payer = self.users.entry(payer).or_default();
            of_payer.blobs = of_payer.blobs.saturating_sub(u64::from(bytes));
            self.all.blobs = self.all.blobs.saturating_sub(u64::from(bytes));
            if *of_payer == Held::default() {
                self.users.remove(&payer);
            }
        }
        if self.of_user(user) == Held::default() {
            self.users.remove(&user);
        }
    }

    pub(crate) fn add_step(&mut self, job: &Job, step: &Step) {
        self.add_text(job.spec.owner.uid, step_bytes(step));
    }

    fn add_text(&mut self, user: u32, bytes: u64) {
        self.users.entry(user).or_default().text += bytes;
        self.all.text += bytes;
    }
}

fn job_lookups(job: &Job) -> u64 {
    let tasks = job.pending.as_ref().map_or(0, |pending| pending.indices.len());
    let dependency = job.spec.dependency.as_ref().filter(|_| job.is_waiting());
    dependency.map_or(0, |dependency| dependency.lookups(tasks))
}

fn job_bytes(job: &Job) -> u64 {
    let comment = job.admin_comment.as_ref().map_or(0, |text| text.len() as u64);
    let ranges = job.pending.as_ref().map_or(0, |pending| pending.indices.range_count() as u64);
    let steps = match &job.phase {
        Phase::Waiting => &[],
        Phase::Active(attempt) => attempt.steps.as_slice(),
        Phase::Ended(ended) => ended.steps.as_slice(),
    };
    let steps: u64 = steps.iter().map(step_bytes).sum();
    spec_bytes(&job.spec) + comment + ITEM_BYTES * ranges + steps
}

pub(crate) fn step_bytes(step: &Step) -> u64 {
    let names: u64 = step.nodes.iter().map(|name| STEP_NODE_BYTES + name.len() as u64).sum();
    let image = step.image.as_ref().map_or(0, String::len);
    STEP_BYTES + (step.name.len() + step.submit_line.len() + image) as u64 + names
}

/// The texts and lists of a specification; what else it has is of fixed size.
fn spec_bytes(spec: &JobSpec) -> u64 {
    let JobSpec { name, account, qos, components, launch, comment, wckey, mail, .. } = spec;
    let optional = [account, qos, comment, wckey].into_iter().flatten().map(String::len);
    let texts = name.len() + spec.submit_line.len() + spec.submit_host.len();
    let mail = mail.as_ref().map_or(0, |mail| format!("{mail:?}").len());
    let terms = spec.dependency.as_ref().map_or(0, |dependency| dependency.terms.len() as u64);
    let requests: u64 = components.iter().map(|component| request_bytes(&component.request)).sum();
    let schedule = spec.schedule.as_ref().map_or(0, |schedule| schedule.text_bytes());
    let texts = (texts + optional.sum::<usize>() + mail + schedule) as u64;
    texts + ITEM_BYTES * terms + launch_bytes(launch) + requests
}

fn launch_bytes(launch: &Launch) -> u64 {
    let Launch { arguments, work_dir, command, stdin, stdout, stderr, rlimits, .. } = launch;
    let container = launch.container.as_ref().map_or(0, |container| container_bytes(container));
    let files = [command, stdin, stdout, stderr].into_iter().flatten().map(|file| file.len());
    let sealed = [&launch.registry_auth, &launch.git_credentials];
    let ports = launch.port_forwards.as_ref().map_or(0, |ports| ports.len());
    list_bytes(arguments)
        + list_bytes(&launch.secret_variables)
        + launch.volumes.iter().map(volume_bytes).sum::<u64>()
        + container
        + sealed.into_iter().flatten().map(|sealed| sealed.0.len() as u64).sum::<u64>()
        + (work_dir.len() + files.sum::<usize>()) as u64
        + ITEM_BYTES * (rlimits.len() + ports) as u64
}

fn volume_bytes(volume: &VolumeUse) -> u64 {
    let project = volume.project.as_ref().map_or(0, String::len);
    let others: usize = volume.others.iter().map(String::len).sum();
    let names = volume.name.len() + others + volume.path.len() + project;
    (2 + volume.others.len() as u64) * ITEM_BYTES + names as u64
}

fn container_bytes(container: &Container) -> u64 {
    let Container { image, work_dir, save, mounts, variables, command, ports, .. } = container;
    let texts = [image, work_dir, save].into_iter().flatten().map(String::len).sum::<usize>()
        + container.name.as_ref().map_or(0, |named| named.name.len())
        + match &container.user {
            ContainerUser::Named(user) => user.len(),
            _ => 0,
        };
    let mounts = mounts
        .iter()
        .map(|mount| 2 * ITEM_BYTES + (mount.source.len() + mount.target.len()) as u64)
        .sum::<u64>();
    let variables = match variables {
        Variables::Named(names) => list_bytes(names),
        Variables::All => 0,
    };
    texts as u64 + mounts + variables + list_bytes(command) + ITEM_BYTES * ports.len() as u64
}

fn request_bytes(request: &Request) -> u64 {
    let Request { partitions, node_counts, gres, node_list, exclude, node_pool, licenses, .. } =
        request;
    let constraints = [&request.constraint, &request.prefer].into_iter().flatten();
    let texts = constraints.map(|constraint| constraint.to_string().len()).sum::<usize>()
        + request.reservation.as_ref().map_or(0, String::len);
    let gres_texts = gres.iter().map(|one| list_bytes(&one.kinds) + one.name.len() as u64);
    let license_texts = licenses.iter().map(|(name, _)| name.len() as u64);
    let items = node_counts.len() + gres.len() + licenses.len();
    let lists =
        [partitions, node_list, exclude, node_pool].into_iter().map(|list| list_bytes(list));
    let claims = request.pod.iter().flat_map(|pod| &pod.claims);
    let claims = claims.map(|claim| {
        let texts = claim.claim_name.len() + claim.path.len();
        2 * ITEM_BYTES + texts as u64 + list_bytes(&claim.of_ranks)
    });
    let named = lists.chain(gres_texts).chain(license_texts).chain(claims).sum::<u64>();
    named + texts as u64 + ITEM_BYTES * items as u64
}

fn list_bytes(list: &[String]) -> u64 {
    list.iter().map(|item| ITEM_BYTES + item.len() as u64).sum()
}
