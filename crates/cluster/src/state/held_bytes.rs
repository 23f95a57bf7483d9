//! What the jobs in memory make the server hold, by user: texts in memory (and with them in journal and snapshots), and blobs
//! on disk. A job counts until its record is purged; what jobs share counts once.

use super::job::{Job, Phase};
use foldhash::fast::RandomState;
use model::id::{BlobRef, JobId};
use model::run::{JobSpec, Step};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::Arc;

/// What a step's record takes in memory beside its texts.
const STEP_BYTES: u64 = 512;

/// What a step's record takes for each node, beside its name.
const STEP_NODE_BYTES: u64 = 128;

/// What a range of an array's indices takes.
const RANGE_BYTES: u64 = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bytes {
    pub text: u64,
    pub blobs: u64,
}

type Map<K, V> = HashMap<K, V, RandomState>;

/// Kept up to date by `apply`, in constant time for each event and step.
#[derive(Debug, Clone, Default)]
pub struct HeldBytes {
    users: Map<u32, Bytes>,
    all: Bytes,
    jobs: Map<JobId, HeldJob>,
    /// By address: a job that is counted keeps its specification where it is.
    specs: Map<usize, HeldSpec>,
    user_blobs: Map<(BlobRef, u32), HeldBlob>,
    blobs: Map<BlobRef, HeldBlob>,
}

#[derive(Debug, Clone, Copy)]
struct HeldJob {
    user: u32,
    spec: usize,
    /// What the job shares with no other.
    own: u64,
}

#[derive(Debug, Clone, Copy)]
struct HeldSpec {
    jobs: u32,
    text: u64,
    blobs: [Option<BlobRef>; 3],
}

#[derive(Debug, Clone, Copy, Default)]
struct HeldBlob {
    holders: u32,
    bytes: u64,
}

/// Two states are equal however their parts are shared.
impl PartialEq for HeldBytes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl HeldBytes {
    pub fn of_user(&self, uid: u32) -> Bytes {
        self.users.get(&uid).copied().unwrap_or_default()
    }

    pub fn of_all(&self) -> Bytes {
        self.all
    }

    /// Whether a job in memory needs the blob.
    pub fn holds(&self, blob: &BlobRef) -> bool {
        self.blobs.contains_key(blob)
    }

    /// What a specification would add to its owner's blobs, and to those of all: what is held already counts no more.
    pub fn new_blobs(&self, spec: &JobSpec) -> (u64, u64) {
        let uid = spec.owner.uid;
        let blobs = || spec.launch.blobs().into_iter().flatten();
        let of_user = blobs().filter(|(blob, _)| !self.user_blobs.contains_key(&(*blob, uid)));
        let of_all = blobs().filter(|(blob, _)| !self.blobs.contains_key(blob));
        let bytes = |(_, bytes): (BlobRef, u32)| u64::from(bytes);
        (of_user.map(bytes).sum(), of_all.map(bytes).sum())
    }

    pub(crate) fn add(&mut self, job: &Job) {
        let (user, address) = (job.spec.owner.uid, Arc::as_ptr(&job.spec) as usize);
        let own = own_bytes(job);
        self.jobs.insert(job.id, HeldJob { user, spec: address, own });
        self.add_text(user, own);
        if let Some(spec) = self.specs.get_mut(&address) {
            spec.jobs += 1;
            return;
        }
        let blobs = job.spec.launch.blobs();
        let text = json_bytes(&*job.spec);
        let names = blobs.map(|blob| blob.map(|(name, _)| name));
        self.specs.insert(address, HeldSpec { jobs: 1, text, blobs: names });
        self.add_text(user, text);
        for (blob, bytes) in blobs.into_iter().flatten() {
            self.add_blob(user, blob, u64::from(bytes));
        }
    }

    pub(crate) fn remove(&mut self, id: JobId) {
        let Some(HeldJob { user, spec: address, own }) = self.jobs.remove(&id) else { return };
        self.remove_text(user, own);
        let Some(spec) = self.specs.get_mut(&address) else { return };
        spec.jobs -= 1;
        if spec.jobs > 0 {
            return;
        }
        let HeldSpec { text, blobs, .. } = *spec;
        self.specs.remove(&address);
        self.remove_text(user, text);
        for blob in blobs.into_iter().flatten() {
            self.remove_blob(user, blob);
        }
        if self.of_user(user) == Bytes::default() {
            self.users.remove(&user);
        }
    }

    pub(crate) fn add_step(&mut self, id: JobId, step: &Step) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let bytes = step_bytes(step);
        job.own += bytes;
        let user = job.user;
        self.add_text(user, bytes);
    }

    fn add_text(&mut self, user: u32, bytes: u64) {
        self.users.entry(user).or_default().text += bytes;
        self.all.text += bytes;
    }

    fn remove_text(&mut self, user: u32, bytes: u64) {
        self.users.entry(user).or_default().text -= bytes;
        self.all.text -= bytes;
    }

    fn add_blob(&mut self, user: u32, blob: BlobRef, bytes: u64) {
        let of_user = self.user_blobs.entry((blob, user)).or_insert(HeldBlob { holders: 0, bytes });
        of_user.holders += 1;
        if of_user.holders > 1 {
            return;
        }
        self.users.entry(user).or_default().blobs += of_user.bytes;
        let of_all = self.blobs.entry(blob).or_insert(HeldBlob { holders: 0, bytes });
        of_all.holders += 1;
        if of_all.holders == 1 {
            self.all.blobs += of_all.bytes;
        }
    }

    fn remove_blob(&mut self, user: u32, blob: BlobRef) {
        let Some(of_user) = self.user_blobs.get_mut(&(blob, user)) else { return };
        of_user.holders -= 1;
        if of_user.holders > 0 {
            return;
        }
        let bytes = of_user.bytes;
        self.user_blobs.remove(&(blob, user));
        self.users.entry(user).or_default().blobs -= bytes;
        let Some(of_all) = self.blobs.get_mut(&blob) else { return };
        of_all.holders -= 1;
        if of_all.holders == 0 {
            self.all.blobs -= of_all.bytes;
            self.blobs.remove(&blob);
        }
    }
}

fn own_bytes(job: &Job) -> u64 {
    let comment = job.admin_comment.as_ref().map_or(0, |text| text.len() as u64);
    let ranges = job.pending.as_ref().map_or(0, |pending| pending.indices.range_count() as u64);
    let steps = match &job.phase {
        Phase::Waiting => &[],
        Phase::Active(attempt) => attempt.steps.as_slice(),
        Phase::Ended(ended) => ended.steps.as_slice(),
    };
    comment + RANGE_BYTES * ranges + steps.iter().map(step_bytes).sum::<u64>()
}

pub(crate) fn step_bytes(step: &Step) -> u64 {
    let names = step.nodes.iter().map(|name| STEP_NODE_BYTES + name.len() as u64).sum::<u64>();
    STEP_BYTES + (step.name.len() + step.submit_line.len()) as u64 + names
}

/// The length of a value as it is written to the journal.
pub(crate) fn json_bytes(value: &impl Serialize) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // What cannot be written is refused before it is applied.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
