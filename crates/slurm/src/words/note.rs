//! The line after a refusal, which names the constraint that was not met: Slurm's own sentence does not.

use crate::words::reason;
use crate::words::refusal::{self, SlurmError};
use model::amount::Bytes;
use model::printable::printable;
use model::reason::{
    Limit, LimitKind, LimitScope, NeverFits, PartitionBound, Reason, Refusal, UnmetConstraint,
};
use model::time::{TimeLimit, format_limit_full};
use model::tres::TresKind;
use wire::view::{SubmitChoices, UnknownNames};

/// How many names are listed that could have been given.
const CHOICES_MAX: usize = 12;

/// The constraint that was not met; `None` when Slurm's own sentence names it or nothing more is known.
pub fn text(refusal: &Refusal) -> Option<String> {
    match refusal {
        Refusal::NodeConfiguration(unmet) => Some(match unmet.silence() {
            Some(silence) => format!("{}; {silence}, which may have one", unmet_text(unmet)),
            None => unmet_text(unmet),
        }),
        Refusal::UnknownFeature(name) | Refusal::UnknownPreference(name) => {
            Some(format!("no node has the feature {name}"))
        }
        Refusal::UnknownGres(name) if name == "gpu" => {
            Some("no node of this cluster has GPUs; sinfo -o '%N %G' lists what nodes have".into())
        }
        Refusal::UnknownGres(name) => Some(format!("no node has the generic resource {name}")),
        Refusal::UnknownNode(name) => Some(format!("there is no node {name}")),
        Refusal::RootJobsDisabled(name) => Some(format!("partition {name} takes no jobs of root")),
        Refusal::ReservationRequired(name) => {
            Some(format!("partition {name} takes jobs in reservations alone"))
        }
        Refusal::TimeLimit(Some(bound)) => {
            let PartitionBound { partition, most, asked } = bound;
            let (most, asked) = (minutes(*most), minutes(*asked));
            Some(format!("partition {partition} gives a job at most {most}; {asked} asked"))
        }
        Refusal::NodeCount(Some(bound)) => {
            let PartitionBound { partition, most, asked } = bound;
            let most = counted(*most, "node");
            Some(format!("partition {partition} gives a job at most {most}; {asked} asked"))
        }
        Refusal::ArrayIndex { most, asked } => Some(format!(
            "the highest index of an array is {most} here (MaxArraySize); {asked} asked"
        )),
        Refusal::ArrayTasks { most, asked } => Some(format!(
            "an array has at most {most} tasks here (max_array_tasks of SchedulerParameters); {asked} asked"
        )),
        Refusal::InvalidDependency => Some("a job cannot wait for itself".into()),
        Refusal::InvalidAccount(_) => Some(refusal.to_string()),
        Refusal::UnknownLicense(name) => Some(format!(
            "licence {name}: there is none of this name here, or there are fewer than asked; \
             `scontrol show licenses` lists them"
        )),
        Refusal::InvalidReservation(name) => Some(format!(
            "no reservation {name} can be used; `scontrol show reservation` lists those that there are"
        )),
        _ => None,
    }
}

/// The kind of a name that was refused, and that another could be given for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedName {
    Partition,
    Account,
    Qos,
}

impl RefusedName {
    pub fn of(refusal: &Refusal) -> Option<Self> {
        match refusal {
            Refusal::UnknownPartition(_) | Refusal::PartitionAccess(_) => Some(Self::Partition),
            Refusal::InvalidAccount(Some(_)) => Some(Self::Account),
            Refusal::InvalidQos(_) => Some(Self::Qos),
            _ => None,
        }
    }

    /// The names that could have been given, the first few of many.
    pub fn choices(self, valid: &SubmitChoices) -> Option<String> {
        let (what, names) = match self {
            Self::Partition => ("partitions", &valid.partitions),
            Self::Account => ("accounts", &valid.accounts),
            Self::Qos => ("QOS", &valid.qos),
        };
        let mut listed = names.iter().take(CHOICES_MAX).cloned().collect::<Vec<_>>().join(", ");
        if names.len() > CHOICES_MAX {
            listed += &format!(" and {} more", names.len() - CHOICES_MAX);
        }
        (!names.is_empty()).then(|| format!("{what} that you may use: {listed}"))
    }
}

/// What can be written where a value could not be read: Slurm's own sentence does not say it.
pub fn grammar(error: SlurmError) -> Option<&'static str> {
    match error {
        refusal::INVALID_ARRAY => {
            Some("expected indices and ranges, as in 1-10, 1,3,7, 0-15:4 or 1-10%2")
        }
        refusal::INVALID_DEPENDENCY => Some(
            "expected TYPE:JOB, as in afterok:12 or afterany:12:13, with , for all of several and ? for any; or singleton. \
             TYPE is one of after, afterany, aftercorr, afternotok, afterok",
        ),
        _ => None,
    }
}

/// Why a node could not start a job; `None` for every other reason.
pub fn launch_failure(reason: &Reason) -> Option<String> {
    match reason {
        Reason::NotLaunched(why) => {
            Some(format!("the job could not be started: {}", printable(&why.what)))
        }
        Reason::UserRefused(_) => {
            Some(format!("the job could not be started: {}", reason::text(reason)))
        }
        _ => None,
    }
}

/// That a job asks for more nodes than any of its partitions gives, and so waits.
pub fn beyond_partition(bound: &PartitionBound) -> String {
    let PartitionBound { partition, most, asked } = bound;
    let most = counted(*most, "node");
    format!(
        "partition {partition} gives a job at most {most}, {asked} asked: the job waits until that changes"
    )
}

/// That a job's time limit is beyond that of all of its partitions, and so it waits.
pub fn beyond_time(bound: &PartitionBound) -> String {
    let PartitionBound { partition, most, asked } = bound;
    let (most, asked) = (minutes(*most), minutes(*asked));
    format!(
        "partition {partition} gives a job at most {most}, {asked} asked: the job waits until that changes"
    )
}

/// That a job names an account, a QOS or jobs that are not known, and is taken all the same.
pub fn unknown_names(unknown: &UnknownNames) -> Vec<String> {
    let of_account = |name: &String| {
        format!("there is no account {name} here: the name is only noted with the job")
    };
    let of_qos = |name: &String| {
        format!("there is no QOS {name} here: the job is taken as if it named none")
    };
    let of_job =
        |name: &String| format!("job {name} is not known here: a dependency on it counts as met");
    let account = unknown.account.iter().map(of_account);
    let qos = unknown.qos.iter().map(of_qos);
    account.chain(qos).chain(unknown.jobs.iter().map(of_job)).collect()
}

fn minutes(minutes: u64) -> String {
    let limit = u32::try_from(minutes).map_or(TimeLimit::Unlimited, TimeLimit::Minutes);
    format_limit_full(limit)
}

/// `1 node`, `2 nodes`
pub fn counted(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {what}{s}")
}

/// `8 GPUs`, `2 fpga`
pub fn units(count: u64, gres: &str) -> String {
    match gres.split_once(':') {
        None if gres == "gpu" => counted(count, "GPU"),
        Some(("gpu", kind)) => counted(count, &format!("{kind} GPU")),
        _ => format!("{count} {gres}"),
    }
}

/// `128000M`, in the largest unit that leaves it whole.
pub fn memory(mib: u64) -> String {
    Bytes::from_mib(mib).to_string()
}

fn unmet_text(unmet: &UnmetConstraint) -> String {
    let place = unmet.partition.as_ref().map_or_else(String::new, |p| format!(" of partition {p}"));
    match &unmet.why {
        NeverFits::Cpus { asked, most } => {
            let most = counted(*most, "CPU");
            format!("no node{place} has more than {most}; {asked} asked on one node")
        }
        NeverFits::Memory { asked_mib, most_mib } => {
            let (most, asked) = (memory(*most_mib), memory(*asked_mib));
            format!("no node{place} has more than {most} of memory; {asked} asked on one node")
        }
        NeverFits::Gres { name, asked, most: 0, .. } => {
            let asked = units(*asked, name);
            format!("no node{place} has any {}; {asked} asked", plural(name))
        }
        NeverFits::Gres { name, asked, most, .. } => {
            let most = units(*most, name);
            format!("no node{place} has more than {most}; {asked} asked on one node")
        }
        NeverFits::Nodes { asked, most } => {
            let most = match most {
                0 => "no node".to_owned(),
                most => format!("only {}", counted(*most, "node")),
            };
            let needed = counted(*asked, "node");
            format!("{most}{place} can hold a part of the job; it takes {needed}")
        }
        NeverFits::Switch { asked, most } => {
            let most = counted(*most, "node");
            format!("no switch has more than {most}{place} for it; {asked} asked below one switch")
        }
        NeverFits::Features(features) => {
            format!("no node{place} has the features {features} together")
        }
        NeverFits::Disk { asked_mib, most_mib } => {
            let (most, asked) = (memory(*most_mib), memory(*asked_mib));
            format!("no node{place} has more than {most} of local disk (TmpDisk); {asked} asked")
        }
        NeverFits::Waits(why) => {
            format!("as things stand it would not start at all: {}", reason::text(why))
        }
        NeverFits::NotShown => "no node can hold it; what the nodes have is not shown".to_owned(),
        NeverFits::Architecture(asked) => format!("no node{place} has {asked} processors"),
        NeverFits::Machines => format!(
            "no node{place} is of the backends, regions, instance types and spot policy that are asked for"
        ),
        NeverFits::OtherProject => format!(
            "no node{place} is for jobs of this project: machines of a project's backend are for its own"
        ),
        NeverFits::Price { most } => format!("no node{place} costs {most} an hour or less"),
        NeverFits::Layout(asked) => format!("no node{place} has {asked}"),
        NeverFits::NamedNodes => format!("the nodes named{place} cannot hold the job"),
        NeverFits::NamedElsewhere(names) => {
            let partition = unmet.partition.as_ref();
            let partition =
                partition.map_or("its partition".to_owned(), |p| format!("partition {p}"));
            format!("{partition} does not have {names}, which the job names")
        }
        NeverFits::Reservation { name, asked, most, named } => {
            let what = if *named { "of the nodes named" } else { "nodes for it" };
            format!("reservation {name} has {most} {what}; {asked} asked")
        }
    }
}

fn plural(gres: &str) -> String {
    let one = units(2, gres);
    one.trim_start_matches("2 ").to_owned()
}

/// `QOS t allows a user 2 jobs at a time; 2 are there`
pub fn limit_text(limit: &Limit) -> String {
    let who = holder(limit);
    let most = amount(limit, limit.limit);
    let (asked, in_use) = (amount(limit, limit.asked), amount(limit, limit.in_use));
    let (verb, most) = match limit.scope {
        LimitScope::QosLeast => ("asks for", format!("at least {most}")),
        _ => ("allows", most),
    };
    let scope = scope(limit);
    match limit.in_use {
        0 => format!("{who} {verb} {most}{scope}; {asked} asked"),
        _ => format!("{who} {verb} {most}{scope}; {in_use} in use, {asked} asked"),
    }
}

/// The association or QOS that has the limit.
pub fn holder(limit: &Limit) -> String {
    match limit.scope {
        LimitScope::AssociationPerJob
        | LimitScope::AssociationPerNode
        | LimitScope::AssociationGroup => format!("association {}", limit.holder),
        _ => format!("QOS {}", limit.holder),
    }
}

fn scope(limit: &Limit) -> &'static str {
    let counts_jobs = matches!(limit.kind, LimitKind::Jobs | LimitKind::SubmitJobs);
    match limit.scope {
        LimitScope::QosPerUser => " for each user",
        LimitScope::QosPerAccount => " for each account",
        LimitScope::QosGroup | LimitScope::AssociationGroup => " for all together",
        LimitScope::AssociationPerJob if counts_jobs => "",
        LimitScope::QosPerJob | LimitScope::AssociationPerJob | LimitScope::QosLeast => {
            " for one job"
        }
        LimitScope::QosPerNode | LimitScope::AssociationPerNode => " on one node",
    }
}

/// `count` in the unit of the limit.
pub fn amount(limit: &Limit, count: u64) -> String {
    match &limit.kind {
        LimitKind::Jobs => counted(count, "running job"),
        LimitKind::SubmitJobs => counted(count, "job"),
        LimitKind::Wall => minutes(count),
        LimitKind::Tres(kind) => tres(kind, count),
        LimitKind::TresMinutes(kind) => format!("{} minutes", tres(kind, count)),
        LimitKind::TresRunMinutes(kind) => format!("{} minutes still to run", tres(kind, count)),
    }
}

fn tres(kind: &TresKind, count: u64) -> String {
    match kind {
        TresKind::Cpu => counted(count, "CPU"),
        TresKind::Node => counted(count, "node"),
        TresKind::Mem => format!("{} of memory", memory(count)),
        TresKind::Gres { name, kind: None } => units(count, name),
        TresKind::Gres { name, kind: Some(kind) } => units(count, &format!("{name}:{kind}")),
        other => format!("{count} of {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_listed_up_to_a_bound() {
        let names = |count: usize| (1..=count).map(|at| format!("p{at}")).collect::<Vec<_>>();
        let valid = |partitions| SubmitChoices { partitions, ..SubmitChoices::default() };
        let unknown = RefusedName::of(&Refusal::UnknownPartition("nosuch".into()));
        let unknown = unknown.expect("a name");
        let said = unknown.choices(&valid(names(2)));
        assert_eq!(said.as_deref(), Some("partitions that you may use: p1, p2"));
        let many = unknown.choices(&valid(names(14))).expect("a note");
        assert!(many.ends_with(", p11, p12 and 2 more"), "{many}");
        assert_eq!(unknown.choices(&valid(names(0))), None);
        assert_eq!(RefusedName::of(&Refusal::InvalidArray), None);
    }

    #[test]
    fn an_unmet_constraint_is_named_with_the_most_there_is_and_the_amount_asked() {
        let on_gpu = |why: NeverFits| {
            let partition = Some("gpu".to_owned());
            Refusal::NodeConfiguration(UnmetConstraint { partition, ..UnmetConstraint::from(why) })
        };
        let cloud = UnmetConstraint {
            silent_sources: vec!["ec2".into()],
            ..NeverFits::Cpus { asked: 64, most: 32 }.into()
        };
        let gpus = |name: &str, asked, most| NeverFits::Gres {
            name: name.into(),
            asked,
            most,
            larger_memory: false,
            kinds_there: Vec::new(),
        };
        let bound = PartitionBound { partition: "debug".into(), most: 30, asked: 90 };
        let table = [
            (
                on_gpu(gpus("gpu", 9, 8)),
                "no node of partition gpu has more than 8 GPUs; 9 asked on one node",
            ),
            (
                on_gpu(gpus("gpu:v100", 1, 0)),
                "no node of partition gpu has any v100 GPUs; 1 v100 GPU asked",
            ),
            (
                on_gpu(NeverFits::Cpus { asked: 64, most: 32 }),
                "no node of partition gpu has more than 32 CPUs; 64 asked on one node",
            ),
            (
                on_gpu(NeverFits::Memory { asked_mib: 921_600, most_mib: 128_000 }),
                "no node of partition gpu has more than 125G of memory; 900G asked on one node",
            ),
            (
                on_gpu(NeverFits::Nodes { asked: 3, most: 2 }),
                "only 2 nodes of partition gpu can hold a part of the job; it takes 3 nodes",
            ),
            (
                on_gpu(NeverFits::NamedElsewhere("m[1-2]".into())),
                "partition gpu does not have m[1-2], which the job names",
            ),
            (
                Refusal::NodeConfiguration(cloud),
                "no node has more than 32 CPUs; 64 asked on one node; source ec2 has told no offers yet, which may have one",
            ),
            (Refusal::UnknownFeature("a100".into()), "no node has the feature a100"),
            (
                Refusal::TimeLimit(Some(bound.clone())),
                "partition debug gives a job at most 00:30:00; 01:30:00 asked",
            ),
            (
                Refusal::NodeCount(Some(PartitionBound { most: 1, asked: 2, ..bound })),
                "partition debug gives a job at most 1 node; 2 asked",
            ),
        ];
        for (refusal, line) in table {
            assert_eq!(text(&refusal).as_deref(), Some(line));
        }
        assert_eq!(text(&Refusal::InvalidArray), None);
        let table = [
            (Refusal::ArrayIndex { most: 1000, asked: 9999 }, "is 1000 here (MaxArraySize); 9999"),
            (Refusal::ArrayTasks { most: 10, asked: 99 }, "at most 10 tasks here"),
            (Refusal::InvalidAccount(None), "your user has no account here"),
            (Refusal::InvalidAccount(Some("physics".into())), "account physics does not have"),
            (Refusal::UnknownLicense("matlab".into()), "licence matlab: there is none"),
            (Refusal::InvalidReservation("none".into()), "no reservation none can be used"),
        ];
        for (refusal, part) in table {
            let said = text(&refusal).expect("a note");
            assert!(said.contains(part), "{said}");
        }
    }

    #[test]
    fn names_that_are_not_known_are_named() {
        assert_eq!(unknown_names(&UnknownNames::default()), Vec::<String>::new());
        let (account, qos) = (Some("phys".into()), Some("hihg".into()));
        let unknown = UnknownNames { account, qos, jobs: vec!["99999".into()] };
        let [account, qos, job] = &unknown_names(&unknown)[..] else { panic!("three lines") };
        assert!(job.starts_with("job 99999 is not known here: "), "{job}");
        assert!(account.starts_with("there is no account phys here"), "{account}");
        assert!(qos.starts_with("there is no QOS hihg here"), "{qos}");
    }

    #[test]
    fn a_launch_that_failed_says_why_and_another_end_does_not() {
        let failed = Reason::NotLaunched(Box::new("Prolog: exit code 3".to_owned().into()));
        let said = launch_failure(&failed);
        assert_eq!(said.as_deref(), Some("the job could not be started: Prolog: exit code 3"));
        assert_eq!(launch_failure(&Reason::TimeLimit), None);
    }

    #[test]
    fn a_limit_names_its_holder_and_what_is_in_use() {
        let limit = |scope, kind, in_use| Limit {
            scope,
            kind,
            holder: "capped".into(),
            limit: 4,
            in_use,
            asked: 2,
        };
        let gpu = LimitKind::Tres(TresKind::gpu());
        assert_eq!(
            limit_text(&limit(LimitScope::QosPerUser, gpu.clone(), 3)),
            "QOS capped allows 4 GPUs for each user; 3 GPUs in use, 2 GPUs asked"
        );
        assert_eq!(
            limit_text(&limit(LimitScope::QosLeast, gpu, 0)),
            "QOS capped asks for at least 4 GPUs for one job; 2 GPUs asked"
        );
        assert_eq!(
            limit_text(&limit(LimitScope::AssociationPerJob, LimitKind::SubmitJobs, 3)),
            "association capped allows 4 jobs; 3 jobs in use, 2 jobs asked"
        );
    }
}
