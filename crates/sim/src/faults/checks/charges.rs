//! What attempts are charged with, counted by the history itself: from the starts, suspensions and ends that are on disk, and kept
//! apart from the state.

use super::{Broken, Checked, hold};
use crate::faults::site;
use cluster::{Event, State};
use model::allocation::Allocation;
use model::id::JobId;
use model::raw_usage::RawUsage;
use model::time::Timestamp;
use model::tres::{Tres, TresKind};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The attempts that run, and what those of each QOS and of each member have used.
#[derive(Default)]
pub struct Charges {
    running: BTreeMap<JobId, Meter>,
    qos: BTreeMap<String, Amounts>,
    /// By user. Whoever is in no account is charged in QOS alone.
    members: BTreeMap<String, Amounts>,
}

/// One attempt.
struct Meter {
    qos: String,
    user: String,
    held: Tres,
    /// Since when it runs; `None` while it is suspended.
    since: Option<Timestamp>,
}

/// Amounts times seconds.
type Amounts = BTreeMap<TresKind, f64>;

impl Charges {
    /// An event is on disk.
    pub fn note(&mut self, state: &State, event: &Event) {
        match event {
            Event::Started(started) => {
                let id = started.attempt.job;
                // It may be gone again in the same commit: then nothing of it is charged.
                let Some(job) = state.job(id) else { return };
                let meter = Meter {
                    qos: job.qos.to_string(),
                    user: job.spec.owner.name.clone(),
                    held: resources(&started.allocation),
                    since: Some(started.at),
                };
                self.running.insert(id, meter);
            }
            Event::Suspended { job, at, .. } => self.stop(*job, *at),
            Event::Resumed { job, at } => {
                if let Some(meter) = self.running.get_mut(job) {
                    meter.since = Some(*at);
                }
            }
            // The first tick ends a period: what runs is charged so far, and nothing decays.
            Event::UsagePeriodEnded { at, .. } => {
                let running: Vec<JobId> = self.running.keys().copied().collect();
                for job in running {
                    let since = self.running.get(&job).and_then(|meter| meter.since);
                    self.stop(job, *at);
                    if let (Some(since), Some(meter)) = (since, self.running.get_mut(&job)) {
                        meter.since = Some(since.max(*at));
                    }
                }
            }
            Event::Ended { job, ended } | Event::Requeued { job, ended, .. } => {
                self.stop(*job, ended.end);
                self.running.remove(job);
            }
            _ => {}
        }
    }

    fn stop(&mut self, job: JobId, at: Timestamp) {
        let Some(meter) = self.running.get_mut(&job) else { return };
        let Some(since) = meter.since.take() else { return };
        let seconds = at.since(since).as_secs_f64();
        if seconds == 0.0 {
            return;
        }
        let of_qos = self.qos.entry(meter.qos.clone()).or_default();
        let of_member = site::MEMBERS.contains(&meter.user.as_str());
        let of_member = of_member.then(|| self.members.entry(meter.user.clone()).or_default());
        for amounts in of_member.into_iter().chain([of_qos]) {
            for (kind, amount) in meter.held.iter() {
                *amounts.entry(kind.clone()).or_default() += amount as f64 * seconds;
            }
        }
    }

    /// The state charges what was counted here, to nobody else, and of nothing else.
    pub fn hold(&self, state: &State) -> Checked {
        let charged = &state.charged_usage;
        for (name, usage) in &charged.qos {
            are_equal(|| format!("QOS {name}"), usage, self.qos.get(name))?;
        }
        let missing = self.qos.keys().find(|name| !charged.qos.contains_key(*name));
        hold(missing.is_none(), || format!("nothing is charged to QOS {missing:?}"))?;
        for (key, usage) in &charged.associations {
            let user = key.user.as_deref().unwrap_or_default();
            let counted = self.members.get(user).filter(|_| key.account == site::LIMITED_ACCOUNT);
            are_equal(|| format!("{user} in {}", key.account), usage, counted)?;
        }
        hold(charged.associations.len() == self.members.len(), || {
            format!(
                "{} users are charged, and {} ran",
                charged.associations.len(),
                self.members.len()
            )
        })
    }
}

/// CPUs, memory, nodes and GPUs of all shares together.
fn resources(allocation: &Allocation) -> Tres {
    let mut held = Tres::new();
    held.add(TresKind::Node, allocation.nodes.len() as u64);
    for share in &allocation.nodes {
        held.add(TresKind::Cpu, u64::from(share.cpus.len()));
        for gres in &share.gres {
            held.add(TresKind::gres(&gres.name, None), gres.count);
        }
    }
    // Rounded once, for the sum.
    let memory: u64 = allocation.nodes.iter().map(|share| share.memory.mib()).sum();
    held.add(TresKind::Mem, memory);
    held
}

/// What is charged. Made once: it is asked for after every commit.
static CHARGED: LazyLock<[TresKind; 4]> =
    LazyLock::new(|| [TresKind::Cpu, TresKind::Mem, TresKind::Node, TresKind::gpu()]);

fn are_equal(whose: impl Fn() -> String, charged: &RawUsage, counted: Option<&Amounts>) -> Checked {
    for kind in &*CHARGED {
        let charged = charged.seconds(kind);
        let counted = counted.and_then(|amounts| amounts.get(kind)).copied().unwrap_or_default();
        let is_equal = (charged - counted).abs() <= 1e-6 * (1.0 + counted);
        if !is_equal {
            let whose = whose();
            let what =
                format!("{charged} {kind} seconds are charged to {whose}, and {counted} ran");
            return Err(Broken(what));
        }
    }
    Ok(())
}
