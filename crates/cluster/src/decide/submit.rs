//! A new job: whatever is refused is refused here, before an id is used.

use super::assign::Assignment;
use super::request_lists::check_lists;
use crate::authorise::{Act, authorise};
use crate::command::{Command, Context, Decision, Reply, Submit};
use crate::event::{Event, Submitted};
use crate::state::State;
use crate::state::job::Job;
use model::account::{NORMAL_QOS, QosFlag, ROOT_ACCOUNT};
use model::bounds;
use model::id::{JobId, RunId};
use model::partition::{Partition, PartitionState};
use model::principal::Principal;
use model::priority::RUN_PRIORITY_MAX;
use model::reason::{NeverFits, PartitionBound, Refusal, UnmetConstraint};
use model::request::{Grant, Request, WaitPolicy};
use model::run::{Hold, JobSpec, LaunchKind, RunKind};
use model::time::{TimeLimit, Timestamp};
use std::sync::Arc;

const PRIVILEGED_NOT_ALLOWED: &str = "privileged containers, docker: true among them, are not allowed here: \
     the administrator allows them with privileged = true below [containers] in sluice.toml";

pub(super) fn run_priority_refused(priority: u8) -> Refusal {
    Refusal::InvalidValue {
        what: "priority".into(),
        value: priority.to_string(),
        expected: format!("expected a number from 0 to {RUN_PRIORITY_MAX}"),
    }
}

impl State {
    pub(super) fn decide_submit(
        &self,
        submit: &Submit,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let mut specs = std::iter::once(&submit.spec).chain(&submit.het_components);
        let is_group = |spec: &JobSpec| {
            spec.launch.service.as_ref().is_some_and(|service| service.group.is_some())
        };
        if specs.any(is_group) {
            return self.decide_submit_replica_groups(submit, context);
        }
        if !submit.het_components.is_empty() {
            return self.decide_submit_het_job(submit, context);
        }
        self.decide_submit_job(submit, 1, context)
    }

    /// One of `jobs` jobs that are submitted at once; one that is an array counts as its tasks.
    pub(super) fn decide_submit_job(
        &self,
        submit: &Submit,
        jobs: u64,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let mut spec = submit.spec.clone();
        authorise(self, &context.by, Act::SubmitAs(&spec.owner))?;
        self.check_size(submit)?;
        self.check_unique_name(submit)?;
        self.check_room_for_job(&spec, submit.array.as_ref(), context)?;
        self.settle_volumes(&mut spec, jobs > 1)?;
        self.settle_pod(&mut spec)?;
        let tasks = submit.array.as_ref().map_or(1, |array| array.indices.len());
        let asked = (jobs - 1).saturating_add(tasks);
        let Assignment { account, qos, partitions } = self.assign(&spec, asked, None, context)?;
        self.keep_partitions(&mut spec, &partitions);
        self.check_volume_nodes(&spec, &partitions)?;
        self.check_request(&spec, &account, &qos, &partitions, context)?;
        self.check_wait_policy(&spec, &partitions, context)?;
        let computed = if self.config.parameters.priority.is_computed() {
            self.probe_entry(&spec, &account, &qos, &partitions, context).priority
        } else {
            self.next_priority
        };
        self.check_precedence(&spec, submit, computed, context)?;
        let id = JobId(self.next_job);
        if id.0 > self.config.parameters.max_job_id {
            return Err(Refusal::TooManyJobs {
                limit: u64::from(self.config.parameters.max_job_id),
            });
        }
        self.check_dependency(&spec, id)?;
        if submit.test_only {
            return Ok(Decision::default());
        }
        let run = RunId::from_random(context.random);
        let event = self.submitted(submit, spec, account, qos, run, context);
        Ok(Decision { events: vec![event], reply: Reply::Submitted { job: id, run } })
    }

    fn submitted(
        &self,
        submit: &Submit,
        spec: JobSpec,
        account: Arc<str>,
        qos: Arc<str>,
        run: RunId,
        context: &Context,
    ) -> Event {
        let kind = match (spec.launch.kind, &submit.array) {
            (_, Some(_)) => RunKind::Array,
            (LaunchKind::Batch, None) => RunKind::Batch,
            (LaunchKind::Interactive, None) => RunKind::Interactive,
            (LaunchKind::Task, None) => RunKind::Task,
        };
        let base = submit.priority.unwrap_or(self.next_priority);
        let priority = (base as i64 - i64::from(spec.nice)).max(1) as u64;
        let hold = match submit.priority {
            Some(0) => Some(Hold::User),
            _ => submit.hold,
        };
        let by_expansion = self.config.parameters.priority.expansion;
        let expected_s = Some(spec.owner.uid)
            .filter(|_| by_expansion)
            .and_then(|uid| self.last_runs.expected_s(uid));
        Event::Submitted(Box::new(Submitted {
            job: JobId(self.next_job),
            run,
            kind,
            spec: Arc::new(spec),
            account,
            qos,
            tasks: submit.array.as_ref().map(|a| a.indices.clone()),
            throttle: submit.array.as_ref().and_then(|a| a.throttle),
            hold,
            priority,
            priority_set: submit.priority.is_some(),
            expected_s,
            het: None,
            at: context.now,
        }))
    }

    /// A privileged container takes the site's consent.
    fn check_privileged(&self, spec: &JobSpec) -> Result<(), Refusal> {
        let asks =
            spec.launch.container.as_ref().is_some_and(|container| container.takes_consent());
        if asks && !self.config.site.containers.privileged {
            return Err(Refusal::Other(PRIVILEGED_NOT_ALLOWED.into()));
        }
        Ok(())
    }

    /// Anybody may lower a job's priority; only an operator may raise it.
    fn check_precedence(
        &self,
        spec: &JobSpec,
        submit: &Submit,
        computed: u64,
        context: &Context,
    ) -> Result<(), Refusal> {
        if spec.nice < 0 {
            authorise(self, &context.by, Act::Operate).map_err(|_| Refusal::Nice)?;
        }
        if let Some(priority) = spec.dstack_priority.filter(|asked| *asked > RUN_PRIORITY_MAX) {
            return Err(run_priority_refused(priority));
        }
        if submit.priority.is_some_and(|asked| asked > computed) {
            authorise(self, &context.by, Act::Operate)?;
        }
        Ok(())
    }

    fn check_size(&self, submit: &Submit) -> Result<(), Refusal> {
        let parameters = &self.config.parameters;
        let limit = u64::from(parameters.max_job_count);
        // Ended records that await their purge do not count against a new job.
        let alive = (self.jobs.len() - self.ended.len()) as u64;
        if alive >= limit {
            return Err(Refusal::TooManyJobs { limit });
        }
        let Some(array) = &submit.array else { return Ok(()) };
        let highest = array.indices.last().unwrap_or(0);
        if array.indices.is_empty() {
            return Err(Refusal::InvalidArray);
        }
        if highest >= parameters.max_array_size {
            let most = parameters.max_array_size.saturating_sub(1);
            return Err(Refusal::ArrayIndex { most, asked: highest });
        }
        let asked = array.indices.len();
        match parameters.max_array_tasks {
            Some(most) if asked > u64::from(most) => Err(Refusal::ArrayTasks { most, asked }),
            _ => Ok(()),
        }
    }

    /// The account that a job is charged to.
    pub(super) fn effective_account(&self, spec: &JobSpec) -> Result<Arc<str>, Refusal> {
        let of_user =
            |a: &&model::account::Association| a.user.as_deref() == Some(spec.owner.name.as_str());
        let enforced = self.config.parameters.enforce_associations;
        // A project's owner is a member of it only for having made it: jobs that name no account are not charged to it.
        let made = |a: &&model::account::Association| {
            let project = self.projects.get(&a.account);
            project.is_some_and(|project| project.owner == spec.owner.name)
        };
        let of_user = || self.associations.iter().filter(of_user);
        let default = of_user().find(|a| a.default).or(of_user().find(|a| enforced || !made(a)));
        let named = spec.account.clone();
        // As in Slurm, root is a user of the root account without having been added to it.
        let is_root = spec.owner.uid == 0;
        let Some(name) = named.or(default.map(|a| a.account.clone())) else {
            return match (enforced, is_root) {
                (true, true) => Ok(ROOT_ACCOUNT.into()),
                (true, false) => Err(Refusal::InvalidAccount(None)),
                (false, _) => Ok("".into()),
            };
        };
        let asked = &spec.request().partitions;
        let partition = asked.first().map(String::as_str);
        let partition = partition.or(self.default_partition().map(|p| p.name.as_str()));
        let member = self.tree().find_user(&name, &spec.owner.name, partition).is_some()
            || (is_root && name == ROOT_ACCOUNT);
        if enforced && !member { Err(Refusal::InvalidAccount(Some(name))) } else { Ok(name.into()) }
    }

    pub(super) fn effective_qos(
        &self,
        spec: &JobSpec,
        account: &str,
        partitions: &[u32],
    ) -> Result<Arc<str>, Refusal> {
        let tree = self.tree();
        let partition = partitions.first().map(|at| self.partitions[*at as usize].name.as_str());
        let member = tree.find_user(account, &spec.owner.name, partition);
        let default = member.and_then(|at| tree.nearest(at, |a| a.default_qos.clone()));
        let member = member.filter(|_| self.config.parameters.enforce_qos);
        let listed = |at| tree.nearest(at, |a| Some(a.qos.clone()).filter(|q| !q.is_empty()));
        let list = member.map(|at| listed(at).unwrap_or_else(|| vec![NORMAL_QOS.to_string()]));
        // A user with one QOS need not name it.
        let only = list.as_ref().filter(|list| list.len() == 1).map(|list| list[0].clone());
        // Where nothing is enforced, one that does not exist is as none.
        let ignored = |name: &String| {
            !self.config.parameters.enforce_associations && !self.qos.contains_key(name)
        };
        let name = spec.qos.clone().filter(|name| !ignored(name)).or(default).or(only);
        let name = name.unwrap_or_else(|| NORMAL_QOS.to_string());
        let refused = || Err(Refusal::InvalidQos(name.clone()));
        let Some(known) = self.qos.get(&name) else { return refused() };
        let allowed = list.is_none_or(|list| list.contains(&name));
        let reserved = spec.request().reservation.is_some();
        let needs = known.has(QosFlag::RequiresReservation) && !reserved;
        let admitted = |p: &u32| self.partitions[*p as usize].allow_qos.admits(&name);
        let enforced = self.config.parameters.enforce_partition_limits;
        if !allowed || needs || (enforced && !partitions.iter().any(admitted)) {
            return refused();
        }
        Ok(name.into())
    }

    /// The requested partitions that admit the job; refused if none does.
    pub(super) fn admitted_partitions(
        &self,
        spec: &JobSpec,
        account: &str,
    ) -> Result<Vec<u32>, Refusal> {
        let asked = &spec.request().partitions;
        if asked.is_empty() && self.default_partition().is_none() {
            return Err(Refusal::NoDefaultPartition);
        }
        if let Some(unknown) = asked.iter().find(|name| self.partition(name).is_none()) {
            return Err(Refusal::UnknownPartition(unknown.clone()));
        }
        let indices = self.partition_indices(asked).unwrap_or_default();
        let mut refusal = None;
        let mut admitted = Vec::new();
        for index in indices {
            match self.admits(&self.partitions[index as usize], spec, account) {
                Ok(()) => admitted.push(index),
                Err(why) => refusal = refusal.or(Some(why)),
            }
        }
        let all = self.config.parameters.enforce_all_partitions;
        match (admitted.is_empty() || all, refusal) {
            (true, Some(why)) => Err(why),
            _ => Ok(admitted),
        }
    }

    /// Keeps the partitions that are open to the account and the QOS, if any is. A job that none is open to waits, as it
    /// would in Slurm.
    pub(super) fn keep_admitted(&self, partitions: &mut Vec<u32>, account: &str, qos: &str) {
        let open = |at: &u32| {
            let partition = &self.partitions[*at as usize];
            partition.allow_qos.admits(qos)
                && (account.is_empty() || partition.allow_accounts.admits(account))
        };
        if partitions.iter().any(open) {
            partitions.retain(open);
        }
    }

    /// Keeps the admitted partitions in the request: the plan considers no others.
    fn keep_partitions(&self, spec: &mut JobSpec, admitted: &[u32]) {
        // A request that names none stays shared with others that are the same.
        if spec.request().partitions.is_empty() {
            return;
        }
        let asked =
            &mut Arc::make_mut(&mut Arc::make_mut(&mut spec.components)[0].request).partitions;
        let kept =
            |name: &String| admitted.iter().any(|p| self.partitions[*p as usize].name == *name);
        asked.retain(kept);
    }

    pub(super) fn admits(
        &self,
        partition: &Partition,
        spec: &JobSpec,
        account: &str,
    ) -> Result<(), Refusal> {
        if matches!(partition.state, PartitionState::Drain | PartitionState::Inactive) {
            return Err(Refusal::PartitionNotAvailable(partition.name.clone()));
        }
        check_access(partition, &spec.owner)?;
        self.check_fleet_use(&partition.name, spec)?;
        let request = spec.request();
        if partition.require_reservation && request.reservation.is_none() {
            return Err(Refusal::ReservationRequired(partition.name.clone()));
        }
        if self.config.parameters.enforce_partition_limits {
            if !account.is_empty() && !partition.allow_accounts.admits(account) {
                return Err(Refusal::InvalidAccount(Some(account.to_string())));
            }
            let qos = spec.qos.as_ref().and_then(|name| self.qos.get(name));
            let lifted = |flag| qos.is_some_and(|qos| qos.has(flag));
            let minutes = |limit: TimeLimit| limit.minutes().map_or(u64::MAX, u64::from);
            let too_long = request.time_limit.is_some_and(|limit| limit > partition.max_time);
            if too_long && !lifted(QosFlag::PartitionTimeLimit) {
                return Err(Refusal::TimeLimit(Some(PartitionBound {
                    partition: partition.name.clone(),
                    most: minutes(partition.max_time),
                    asked: request.time_limit.map_or(0, minutes),
                })));
            }
            let too_wide = partition.max_nodes.is_some_and(|max| request.nodes.min > max);
            if too_wide && !lifted(QosFlag::PartitionMaxNodes) {
                return Err(Refusal::NodeCount(Some(PartitionBound {
                    partition: partition.name.clone(),
                    most: partition.max_nodes.map_or(0, u64::from),
                    asked: u64::from(request.nodes.min),
                })));
            }
        }
        Ok(())
    }

    /// Whether the cluster, its partitions, reservations and limits have what is asked for. A submit and an update ask so.
    pub(super) fn check_request(
        &self,
        spec: &JobSpec,
        account: &str,
        qos: &str,
        partitions: &[u32],
        context: &Context,
    ) -> Result<(), Refusal> {
        self.check_privileged(spec)?;
        let request = spec.request();
        check_lists(request)?;
        let (nodes, most) = (request.nodes.min, bounds::NODES.most);
        if nodes as usize > most {
            return Err(Refusal::InvalidValue {
                what: bounds::NODES.what.into(),
                value: nodes.to_string(),
                expected: format!("at most {most}"),
            });
        }
        let named = request.node_list.iter().chain(&request.exclude).chain(&request.node_pool);
        for node in named {
            if !self.nodes.contains_key(node) {
                return Err(Refusal::UnknownNode(node.clone()));
            }
        }
        for gres in &request.gres {
            let configured = self.config.parameters.gres_types.contains(&gres.name);
            if !configured && self.nodes.values().all(|n| n.config.gres_total(&gres.name) == 0) {
                return Err(Refusal::UnknownGres(gres.name.clone()));
            }
        }
        if request.reservation.is_some() {
            self.check_fits_reservation(request)?;
        }
        self.check_licenses(&request.licenses)?;
        if request.time_min.is_some_and(|least| !time_min_fits(request, least, context.now)) {
            return Err(Refusal::TimeMin);
        }
        if request.deadline.is_some_and(|d| d < request.begin.unwrap_or(context.now)) {
            return Err(Refusal::DeadlineImpossible);
        }
        let fits = self.hardware().check(spec, account, partitions);
        fits.map_err(|why| self.beside_silent_sources(why, request, account, partitions))?;
        self.check_alone(spec, account, qos, partitions, context)
    }

    /// The refusal of a request that no node meets, with the sources that have told no offers: their machines might.
    fn beside_silent_sources(
        &self,
        why: Refusal,
        request: &Request,
        account: &str,
        partitions: &[u32],
    ) -> Refusal {
        let silent_sources = self.silent_sources(account, partitions);
        if silent_sources.is_empty() {
            return why;
        }
        let unmet = match why {
            Refusal::NodeConfiguration(unmet) => unmet,
            Refusal::UnknownFeature(name) => NeverFits::Features(name).into(),
            Refusal::UnknownGres(name) => {
                let asked = request.gres.iter().find(|gres| gres.name == name);
                let asked = asked.map_or(1, |gres| gres.count.min);
                let kinds_there = Vec::new();
                NeverFits::Gres { name, asked, most: 0, larger_memory: false, kinds_there }.into()
            }
            why => return why,
        };
        Refusal::NodeConfiguration(UnmetConstraint { silent_sources, ..unmet })
    }

    /// Refuses a job that is to start at once, if the plan would not start it now.
    fn check_wait_policy(
        &self,
        spec: &JobSpec,
        partitions: &[u32],
        context: &Context,
    ) -> Result<(), Refusal> {
        if spec.request().wait_policy != WaitPolicy::Now || self.overtakes_update(spec) {
            return Ok(());
        }
        let probe = self.probe(spec, partitions, context);
        let plan = sched::plan(&probe, context.now, &mut sched::Memo::default());
        let starts = plan.starts.iter().any(|s| s.job.0 == self.next_job);
        let may_start = starts || self.gets_machine(spec, &probe, &plan, context.now);
        if may_start { Ok(()) } else { Err(Refusal::NoCapacityNow) }
    }

    /// Whether a service replaces one that is being updated. What the update has of places is given up for it. Of replicas in
    /// groups the server gives up all or none, so that it may have none to give.
    fn overtakes_update(&self, spec: &JobSpec) -> bool {
        if spec.launch.service.as_ref().is_none_or(|service| service.group.is_some()) {
            return false;
        }
        let replaced = self.replaced_by(spec);
        let mut deployments =
            replaced.filter_map(|job| Some(job.spec.launch.service.as_ref()?.deployment));
        let first = deployments.next();
        first.is_some_and(|first| deployments.any(|other| other != first))
    }

    /// The jobs of the earlier deployments of a service, those that have not ended.
    pub(super) fn replaced_by<'a>(
        &'a self,
        spec: &'a JobSpec,
    ) -> impl Iterator<Item = &'a Arc<Job>> {
        let jobs = self.replicas.iter().filter_map(move |id| self.jobs.get(id));
        jobs.filter(move |job| !job.has_ended() && replaces(spec, &job.spec))
    }

    /// Whether a machine is made for a run that does not start now, or one on its way has room for it. A job of Slurm's language
    /// that is to start at once does not wait for a machine.
    fn gets_machine(
        &self,
        spec: &JobSpec,
        probe: &sched::View,
        plan: &sched::Plan,
        now: Timestamp,
    ) -> bool {
        if spec.request().grant != Grant::Offer || !self.has_sources() {
            return false;
        }
        let made = sched::machines::machines(probe, plan, now, &self.machine_view(now));
        made.answers.iter().any(|(job, answer)| job.0 == self.next_job && answer.is_coming())
    }

    /// Two submits at once of one name are decided one after the other: the second finds the first.
    fn check_unique_name(&self, submit: &Submit) -> Result<(), Refusal> {
        let spec = &submit.spec;
        let is_namesake = |job: &Job| {
            !job.has_ended()
                && job.spec.launch.kind == LaunchKind::Task
                && job.spec.owner.uid == spec.owner.uid
                && job.spec.name == spec.name
                && !replaces(spec, &job.spec)
        };
        if submit.unique_name && self.jobs.values().any(|job| is_namesake(job)) {
            let name = spec.name.to_string();
            return Err(Refusal::AlreadyExists { what: "run".into(), name });
        }
        self.check_service(spec, submit.test_only)
    }

    /// A service's address is its project's and its own name: nobody else's service is found there, whoever comes first. A test
    /// takes no address: offers are shown also for what is to replace another.
    fn check_service(&self, spec: &JobSpec, is_test: bool) -> Result<(), Refusal> {
        let Some(service) = &spec.launch.service else { return Ok(()) };
        service.check().map_err(Refusal::Other)?;
        let is_word = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        if !spec.name.bytes().all(is_word) {
            return Err(Refusal::InvalidValue {
                what: "the name of a service".into(),
                value: spec.name.to_string(),
                expected: "letters, digits, -, _ and ., as it is part of its address".into(),
            });
        }
        if is_test { Ok(()) } else { self.check_address(spec, None) }
    }

    /// Refuses a service whose name, or whose model's name, another run of its project has. `own` is its own run, where it is not new.
    pub(super) fn check_address(&self, spec: &JobSpec, own: Option<RunId>) -> Result<(), Refusal> {
        let Some(service) = &spec.launch.service else { return Ok(()) };
        let project = spec.project();
        let is_own =
            |job: &Job| own.is_some_and(|own| own == job.run || is_other_group(spec, &job.spec));
        let is_rival = |job: &Job| {
            !job.has_ended()
                && !is_own(job)
                && job.spec.project() == project
                && !replaces(spec, &job.spec)
        };
        let jobs = self.replicas.iter().filter_map(|id| self.jobs.get(id));
        let mut rivals = jobs.filter(|job| is_rival(job));
        if rivals.clone().any(|job| job.spec.name == spec.name) {
            let name = &spec.name;
            return Err(Refusal::Other(format!("project {project} has a service {name} already")));
        }
        let Some(model) = &service.model else { return Ok(()) };
        let has_model = |job: &Job| {
            let other = job.spec.launch.service.as_ref().and_then(|other| other.model.as_ref());
            other.is_some_and(|other| other.name == model.name)
        };
        if let Some(other) = rivals.find(|job| has_model(job)) {
            let (run, name) = (&other.spec.name, &model.name);
            return Err(Refusal::Other(format!("service {run} of {project} has model {name}")));
        }
        Ok(())
    }

    fn check_dependency(&self, spec: &JobSpec, own: JobId) -> Result<(), Refusal> {
        let Some(dependency) = &spec.dependency else { return Ok(()) };
        let names_itself = dependency.terms.iter().any(|t| t.job.is_some_and(|j| j.id == own.0));
        if names_itself { Err(Refusal::InvalidDependency) } else { Ok(()) }
    }

    /// Why the request can never be granted, even alone; for dstack's plan.
    pub fn never_fits(&self, spec: &JobSpec) -> Option<NeverFits> {
        let partitions = self.partition_indices(&spec.request().partitions)?;
        let account = self.effective_account(spec).ok()?;
        match self.hardware().check(spec, &account, &partitions) {
            Err(Refusal::NodeConfiguration(unmet)) => Some(unmet.why),
            _ => None,
        }
    }

    /// Checks a submit without submitting.
    pub fn check_submit(&self, submit: &Submit, context: &Context) -> Result<(), Refusal> {
        let test = Command::Submit(Box::new(Submit { test_only: true, ..submit.clone() }));
        self.decide(&test, context).map(|_| ())
    }
}

/// Whether the minimum time is within the time limit, and ends before the deadline.
fn time_min_fits(request: &Request, least: TimeLimit, now: Timestamp) -> bool {
    let in_time = |deadline: Timestamp| {
        let secs = least.secs().and_then(|secs| i64::try_from(secs).ok());
        secs.is_some_and(|secs| now.millis().saturating_add(secs * 1_000) <= deadline.millis())
    };
    request.time_limit.is_none_or(|limit| least <= limit) && request.deadline.is_none_or(in_time)
}

/// Whether the partition is open to a job's owner.
pub(super) fn check_access(partition: &Partition, owner: &Principal) -> Result<(), Refusal> {
    let root = owner.uid == 0;
    let further = owner.groups.iter().any(|g| partition.allow_group_ids.contains(g));
    let group_ok = root || further || partition.allow_groups.admits(&owner.group);
    if !root && partition.root_only {
        return Err(Refusal::AccessDenied);
    }
    if !group_ok {
        return Err(Refusal::PartitionAccess(partition.name.clone()));
    }
    if root && partition.disable_root_jobs {
        return Err(Refusal::RootJobsDisabled(partition.name.clone()));
    }
    Ok(())
}

/// Whether both are groups of one deployment of a service.
fn is_other_group(spec: &JobSpec, other: &JobSpec) -> bool {
    let place = |spec: &JobSpec| {
        let service = spec.launch.service.as_ref()?;
        Some((service.deployment, service.group.as_ref()?.count))
    };
    place(spec).is_some_and(|own| place(other) == Some(own))
        && spec.name == other.name
        && spec.project() == other.project()
        && spec.owner.uid == other.owner.uid
}

/// Whether a service is a later deployment of another.
fn replaces(spec: &JobSpec, other: &JobSpec) -> bool {
    let deployment = |spec: &JobSpec| Some(spec.launch.service.as_ref()?.deployment);
    let is_later = deployment(spec).zip(deployment(other)).is_some_and(|(own, other)| own > other);
    is_later
        && spec.name == other.name
        && spec.project() == other.project()
        && spec.owner.uid == other.owner.uid
}
