//! The multifactor priority: a weighted sum of a job's factors.
//!
//! ```text
//! priority = site + age·W + association·W + fair share·W + job size·W + partition·W + QOS·W + dstack·W
//!            + Σ tres·W − nice
//! ```

use model::priority::{Factors, PriorityPolicy, RUN_PRIORITY_MAX, Weights};
use model::tres::{Tres, TresKind};

/// The highest priority that there is.
const PRIORITY_MAX: f64 = u32::MAX as f64;

/// The maxima that the factors of all jobs are relative to.
#[derive(Debug, Clone, Default)]
pub struct Scale {
    pub nodes: u64,
    pub cpus: u64,
    /// The highest priorities of associations, partitions and QOS.
    pub association: u32,
    pub partition: u32,
    pub qos: u32,
}

/// The inputs of one job's priority in one partition.
#[derive(Debug, Clone)]
pub struct PriorityInputs<'a> {
    /// The seconds that count as its age.
    pub waited_s: u64,
    pub association_priority: u32,
    pub fair_share: f64,
    pub nodes: u64,
    pub cpus: u64,
    /// Its time limit.
    pub minutes: u64,
    pub partition_priority: u32,
    pub qos_priority: u32,
    pub tres: &'a Tres,
    /// The TRES that the partition has in all.
    pub partition_tres: &'a Tres,
    /// 0 to [`RUN_PRIORITY_MAX`].
    pub dstack: u8,
    pub site: i64,
    pub nice: i64,
}

pub fn factors(policy: &PriorityPolicy, scale: &Scale, job: &PriorityInputs<'_>) -> Factors {
    let flags = &policy.flags;
    let part = |value: u32, most: u32, whole: bool| match (whole, most) {
        (true, _) => f64::from(value),
        (false, 0) => 0.0,
        (false, most) => f64::from(value) / f64::from(most),
    };
    Factors {
        age: share(job.waited_s, policy.max_age_s).min(1.0),
        association: part(job.association_priority, scale.association, flags.no_normal_association),
        fair_share: job.fair_share,
        job_size: job_size(policy, scale, job),
        partition: part(job.partition_priority, scale.partition, flags.no_normal_partition),
        qos: part(job.qos_priority, scale.qos, flags.no_normal_qos),
        dstack: f64::from(job.dstack.min(RUN_PRIORITY_MAX)) / f64::from(RUN_PRIORITY_MAX),
        tres: policy
            .weights
            .tres
            .iter()
            .map(|(kind, _)| (kind.clone(), tres_factor(job, kind, flags.no_normal_tres)))
            .collect(),
        site: job.site,
        nice: job.nice,
    }
}

fn tres_factor(job: &PriorityInputs<'_>, kind: &TresKind, whole: bool) -> f64 {
    let asked = job.tres.amount(kind);
    if whole { asked as f64 } else { share(asked, job.partition_tres.amount(kind)) }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The mean of the parts of nodes and CPUs; with `SMALL_RELATIVE_TO_TIME` the larger of both over the minutes of the
/// time limit.
fn job_size(policy: &PriorityPolicy, scale: &Scale, job: &PriorityInputs<'_>) -> f64 {
    let (nodes, cpus) = (share(job.nodes, scale.nodes), share(job.cpus, scale.cpus));
    let size = if policy.flags.small_relative_to_time {
        nodes.max(cpus) / job.minutes.max(1) as f64
    } else {
        (nodes + cpus) / 2.0
    };
    if policy.favor_small { 1.0 - size } else { size }
}

/// The sum as a whole number, at least one: a priority of zero is a hold.
pub fn priority(weights: &Weights, factors: &Factors) -> u64 {
    sum(weights, factors).clamp(1.0, PRIORITY_MAX) as u64
}

/// The weighted sum before it is rounded.
pub fn sum(weights: &Weights, factors: &Factors) -> f64 {
    let tres: f64 = weighted_tres(weights, factors).map(|(_, value)| value).sum();
    factors.site as f64
        + f64::from(weights.age) * factors.age
        + f64::from(weights.association) * factors.association
        + f64::from(weights.fair_share) * factors.fair_share
        + f64::from(weights.job_size) * factors.job_size
        + f64::from(weights.partition) * factors.partition
        + f64::from(weights.qos) * factors.qos
        + f64::from(weights.dstack) * factors.dstack
        + tres
        - factors.nice as f64
}

fn weighted_tres<'a>(
    weights: &'a Weights,
    factors: &'a Factors,
) -> impl Iterator<Item = (&'a TresKind, f64)> {
    weights.tres.iter().map(|(kind, weight)| {
        let factor = factors.tres.iter().find(|(of, _)| of == kind).map_or(0.0, |(_, f)| *f);
        (kind, weight * factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::priority::PriorityFlags;

    /// The lab's weights: two nodes of 32 CPUs and eight GPUs.
    fn lab() -> (PriorityPolicy, Scale, Tres) {
        let weights = Weights {
            age: 1000,
            fair_share: 10_000,
            job_size: 1000,
            partition: 1000,
            qos: 10_000,
            tres: vec![(TresKind::Cpu, 100.0), (TresKind::gpu(), 1000.0)],
            ..Weights::default()
        };
        let policy = PriorityPolicy { multifactor: true, weights, ..PriorityPolicy::default() };
        let scale = Scale { nodes: 2, cpus: 64, association: 0, partition: 1, qos: 1000 };
        (policy, scale, Tres::parse("cpu=64,node=2,gres/gpu=16").expect("a list"))
    }

    fn job<'a>(nodes: u64, cpus: u64, tres: &'a Tres, whole: &'a Tres) -> PriorityInputs<'a> {
        PriorityInputs {
            waited_s: 0,
            association_priority: 0,
            fair_share: 0.0,
            nodes,
            cpus,
            minutes: 60,
            partition_priority: 1,
            qos_priority: 0,
            tres,
            partition_tres: whole,
            dstack: 0,
            site: 0,
            nice: 0,
        }
    }

    fn of(text: &str) -> Tres {
        Tres::parse(text).expect("a list")
    }

    /// `sprio -l` of a real Slurm printed these priorities for these jobs.
    #[test]
    fn the_captured_jobs_have_the_captured_priorities() {
        let (policy, scale, whole) = lab();
        let table = [
            // (3/2 + 3/64)/2·1000 = 773.4, partition 1000, 3/64·100 = 4.7
            (3, 3, "cpu=3", 0.0, 1778),
            // (1/2 + 1/64)/2·1000 = 257.8, 1000, 1/64·100 = 1.6, 2/16·1000 = 125
            (1, 1, "cpu=1,gres/gpu=2", 0.0, 1384),
            (1, 1, "cpu=1,gres/gpu=5", 0.0, 1571),
            (1, 1, "cpu=1,gres/gpu=1", 0.0, 1321),
            // the same without GPUs, and a third of 10000
            (1, 1, "cpu=1", 1.0 / 3.0, 4592),
        ];
        for (nodes, cpus, tres, fair_share, expected) in table {
            let tres = of(tres);
            let facts = PriorityInputs { fair_share, ..job(nodes, cpus, &tres, &whole) };
            let factors = factors(&policy, &scale, &facts);
            assert_eq!(priority(&policy.weights, &factors), expected, "{tres}");
        }
    }

    #[test]
    fn each_factor_adds_its_weight_and_nice_takes_away() {
        let (mut policy, scale, whole) = lab();
        policy.weights.dstack = 10_000;
        let tres = of("cpu=1");
        let plain = job(1, 1, &tres, &whole);
        let of = |facts: &PriorityInputs<'_>| {
            priority(&policy.weights, &factors(&policy, &scale, facts))
        };
        let base = of(&plain);
        // A week is the oldest: half of it is half of 1000, two are the same as one.
        const WEEK_S: u64 = 7 * 24 * 3600;
        assert_eq!(of(&PriorityInputs { waited_s: WEEK_S / 2, ..plain.clone() }), base + 500);
        assert_eq!(of(&PriorityInputs { waited_s: WEEK_S * 2, ..plain.clone() }), base + 1000);
        assert_eq!(of(&PriorityInputs { qos_priority: 500, ..plain.clone() }), base + 5000);
        assert_eq!(of(&PriorityInputs { dstack: 50, ..plain.clone() }), base + 5000);
        assert_eq!(of(&PriorityInputs { nice: 100, ..plain.clone() }), base - 100);
        assert_eq!(of(&PriorityInputs { nice: -100, ..plain.clone() }), base + 100);
        assert_eq!(of(&PriorityInputs { site: 7, ..plain.clone() }), base + 7);
        assert_eq!(of(&PriorityInputs { nice: i64::from(i32::MAX), ..plain.clone() }), 1);
    }

    #[test]
    fn flags_change_what_a_factor_is_measured_against() {
        let (mut policy, scale, whole) = lab();
        policy.flags = PriorityFlags {
            no_normal_qos: true,
            no_normal_tres: true,
            no_normal_partition: true,
            no_normal_association: true,
            ..PriorityFlags::default()
        };
        let tres = of("cpu=4,gres/gpu=2");
        let facts = PriorityInputs {
            qos_priority: 10,
            association_priority: 3,
            partition_priority: 5,
            ..job(1, 4, &tres, &whole)
        };
        let found = factors(&policy, &scale, &facts);
        assert_eq!((found.qos, found.association, found.partition), (10.0, 3.0, 5.0));
        assert_eq!(found.tres, [(TresKind::Cpu, 4.0), (TresKind::gpu(), 2.0)]);
    }

    /// `sprio -n` of a real Slurm printed these sizes for these jobs, with each of the flags.
    #[test]
    fn job_size_factor_is_as_captured_from_slurm() {
        let (mut policy, scale, whole) = lab();
        let tres = of("cpu=1");
        let mut size = |small: bool, relative: bool, nodes, cpus, minutes| {
            policy.favor_small = small;
            policy.flags.small_relative_to_time = relative;
            let facts = PriorityInputs { minutes, ..job(nodes, cpus, &tres, &whole) };
            format!("{:.7}", factors(&policy, &scale, &facts).job_size)
        };
        let table = [
            // (1/2 + 2/64)/2, (2/2 + 40/64)/2, (1/2 + 64/64)/2
            ((false, false), ["0.2656250", "0.8125000", "0.7500000"]),
            ((true, false), ["0.7343750", "0.1875000", "0.2500000"]),
            // 1/2 over 60, 2/2 over 20, 64/64 over 1
            ((false, true), ["0.0083333", "0.0500000", "1.0000000"]),
            ((true, true), ["0.9916667", "0.9500000", "0.0000000"]),
        ];
        for ((small, relative), expected) in table {
            let found = [(1, 2, 60), (2, 40, 20), (1, 64, 1)]
                .map(|(nodes, cpus, minutes)| size(small, relative, nodes, cpus, minutes));
            assert_eq!(found, expected, "{small} {relative}");
        }
    }
}
