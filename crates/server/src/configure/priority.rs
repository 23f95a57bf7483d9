//! The multifactor priority, from `Priority*` in slurm.conf.

use model::priority::{PriorityFlags, PriorityPolicy, RUN_PRIORITY_MAX, UsageReset, Weights};
use model::tres::TresKind;
use slurm::conf::keys::choices::{PriorityFlag, PriorityType};

/// dstack's priority weighs as much as the QOS. Where the site gives the QOS less weight than a run's highest priority, each
/// unit of the run's priority is a point, as each unit of `--nice` is: so it orders runs that are equal otherwise, and the
/// site's own weights still come before it.
pub(super) fn priority_policy(conf: &slurm::conf::slurm_conf::globals::Priority) -> PriorityPolicy {
    let has = |flag| conf.flags.contains(&flag);
    let no_normal = |flag| has(flag) || has(PriorityFlag::NoNormalAll);
    let tres = conf.weight_tres.iter();
    let tres = tres.filter_map(|(name, weight)| Some((name.parse::<TresKind>().ok()?, *weight)));
    let minute = |minutes: u32| u64::from(minutes) * 60;
    PriorityPolicy {
        multifactor: conf.kind == PriorityType::Multifactor,
        expansion: conf.kind == PriorityType::Sluice,
        weights: Weights {
            age: conf.weight_age,
            association: conf.weight_assoc,
            fair_share: conf.weight_fairshare,
            job_size: conf.weight_job_size,
            partition: conf.weight_partition,
            qos: conf.weight_qos,
            dstack: conf.weight_qos.max(RUN_PRIORITY_MAX.into()),
            tres: tres.collect(),
        },
        max_age_s: minute(conf.max_age_min),
        favor_small: conf.favor_small,
        calc_period_s: minute(conf.calc_period_min),
        half_life_s: conf.decay_half_life_min.map(minute),
        reset: match conf.usage_reset {
            slurm::conf::keys::choices::UsageReset::None => UsageReset::None,
            slurm::conf::keys::choices::UsageReset::Now => UsageReset::Now,
            slurm::conf::keys::choices::UsageReset::Daily => UsageReset::Daily,
            slurm::conf::keys::choices::UsageReset::Weekly => UsageReset::Weekly,
            slurm::conf::keys::choices::UsageReset::Monthly => UsageReset::Monthly,
            slurm::conf::keys::choices::UsageReset::Quarterly => UsageReset::Quarterly,
            slurm::conf::keys::choices::UsageReset::Yearly => UsageReset::Yearly,
        },
        flags: PriorityFlags {
            accrue_always: has(PriorityFlag::AccrueAlways),
            max_tres: has(PriorityFlag::MaxTres),
            no_normal_association: no_normal(PriorityFlag::NoNormalAssoc),
            no_normal_partition: no_normal(PriorityFlag::NoNormalPart),
            no_normal_qos: no_normal(PriorityFlag::NoNormalQos),
            no_normal_tres: no_normal(PriorityFlag::NoNormalTres),
            small_relative_to_time: has(PriorityFlag::SmallRelativeToTime),
        },
        utc_offset_s: timezone::now().offset().seconds(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priority_of_a_run_counts_also_where_the_qos_has_no_weight() {
        let weight = |weight_qos| {
            let conf = slurm::conf::slurm_conf::globals::Priority {
                kind: PriorityType::Multifactor,
                weight_qos,
                ..Default::default()
            };
            priority_policy(&conf).weights.dstack
        };
        assert_eq!((weight(0), weight(7), weight(10_000)), (100, 100, 10_000));
    }
}
