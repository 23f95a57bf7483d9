//! `decide`: from a command and the state to events, or to a refusal that changes nothing. A file for each kind of command.
//!
//! - A new job: `submit`, with `assign` (account, QOS, partitions), `limits`, `names`, `room`, `request_lists`, `het`, `replica_groups`, `probe`;
//!   `submit_choices` is what it may name.
//! - A job that waits: `field` and `change` (`scontrol`), `top`, `wait`, `cancel`, `delete_run`.
//! - A job that starts, runs and ends: `start`, `step/`, `preempt`, `gang`, `report` (what agents say), `end`.
//! - Nodes: `node`, `node_health`, `membership`, `dynamic_node`, `power`, `fleet`, `restore_wait`.
//! - Machines on demand: `machine`, `backed_node`, `pod`, `interruption`.
//! - Volumes: `volume`, `cloud_volume`, `claim_volume`.
//! - Administration: `account`, `user`, `coordinator`, `project`, `partition`, `partition_change`, `reservation/`, `secret`, `token`, `trigger`,
//!   `web_session`; `activity` is what is noted of it.
//! - Time: `tick`, `usage_period`.

mod account;
mod activity;
mod assign;
mod backed_node;
mod backend;
mod cancel;
mod change;
mod claim_volume;
mod cloud_volume;
mod coordinator;
mod delete_run;
mod dynamic_node;
mod end;
mod field;
mod fleet;
mod gang;
mod het;
mod interruption;
mod limits;
mod machine;
mod membership;
mod names;
mod node;
mod node_health;
mod partition;
mod partition_change;
mod pod;
mod power;
mod preempt;
mod probe;
mod project;
mod replica_groups;
mod report;
mod request_lists;
mod reservation;
mod restore_wait;
mod room;
mod secret;
mod start;
mod step;
mod submit;
mod submit_choices;
mod tick;
mod token;
mod top;
mod trigger;
mod usage_period;
mod user;
mod volume;
mod wait;
mod web_session;

use crate::command::{Command, Context, Decision};
use crate::event::Event;
use crate::state::State;
use model::priority::UsageReset;
use model::reason::Refusal;

impl State {
    /// Decides on a command. The state is not changed: `apply` does that with the events.
    pub fn decide(&self, command: &Command, context: &Context) -> Result<Decision, Refusal> {
        names::check_names(command)?;
        let mut decision = self.decide_without_het(command, context)?;
        self.end_het_jobs(&mut decision.events, context.now);
        self.end_unlaunched(&mut decision.events, context.now);
        self.note_waited_priorities(&mut decision.events, context.now);
        let noted = self.site_activity(command, &decision, context);
        decision.events.extend(noted);
        let machines = self.machine_activities(&decision.events, context);
        decision.events.extend(machines);
        Ok(decision)
    }

    /// Decides without regard to het jobs, whose other components are decided afterwards.
    fn decide_without_het(
        &self,
        command: &Command,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        match command {
            Command::StartTerm { term } => {
                Ok(vec![Event::TermStarted { term: *term, at: context.now }].into())
            }
            Command::Configure(config) => {
                self.check_beside_fleets(config)?;
                self.check_beside_dynamic_nodes(config)?;
                self.check_beside_machines(config)?;
                Ok(self.decide_configure(config, context))
            }
            Command::SetTrigger(request) => self.decide_set_trigger(request, context),
            Command::ClearTriggers(filter) => self.decide_clear_triggers(filter, context),
            Command::SettleTrigger { id } => Ok(self.decide_settle_trigger(*id)),
            Command::SetFleet(set) => self.decide_set_fleet(set, context),
            Command::RemoveFleetHosts { project, name, numbers } => {
                self.decide_remove_fleet_hosts(project, name, numbers.as_deref(), context)
            }
            Command::FleetHost { node, id, report } => {
                self.decide_fleet_host(node, id, report, context)
            }
            Command::SetBackend(backend) => self.decide_set_backend(backend, context),
            Command::RemoveBackends { project, names } => {
                self.decide_remove_backends(project, names, context)
            }
            Command::RetainFileBackends { sources } => {
                self.decide_retain_file_backends(sources, context)
            }
            Command::ResealBackend { source, before, after } => {
                self.decide_reseal_backend(source, before, after, context)
            }
            Command::ResealFleet { name, forms } => self.decide_reseal_fleet(name, forms, context),
            Command::Submit(submit) => self.decide_submit(submit, context),
            Command::Start(start) => self.decide_start(start, context),
            Command::StartHetJob(starts) => self.decide_start_het_job(starts, context),
            Command::Preempt(preempt) => self.decide_preempt(preempt, context),
            Command::Resume { job } => self.decide_resume(*job, context),
            Command::Cancel(cancel) => Ok(self.decide_cancel(cancel, context)),
            Command::DeleteRuns(runs) => self.decide_delete_runs(runs, context),
            Command::CreateProject { name } => self.decide_create_project(name, context),
            Command::RemoveProject { name } => self.decide_remove_project(name, context),
            Command::SetMembers { project, members, change } => {
                self.decide_set_members(project, members, *change, context)
            }
            Command::SetDefaultGateway { project, gateway } => {
                self.decide_set_default_gateway(project, gateway.as_deref(), context)
            }
            Command::SetUser(set) => self.decide_set_user(set, context),
            Command::RemoveUsers { names } => self.decide_remove_users(names, context),
            Command::ChangeJob { job, change } => self.decide_change_job(job, change, context),
            Command::Relinquish { job, exit } => self.decide_relinquish(*job, *exit, context),
            Command::EndByPolicy { attempt, cause } => {
                Ok(self.decide_end_by_policy(*attempt, *cause, context))
            }
            Command::ClientLost { job } => Ok(self.decide_client_lost(*job, context)),
            Command::CreateStep { job, ask } => self.decide_step(*job, ask, context),
            Command::Report { node, attempt, at, what } => {
                Ok(self.decide_report(node, *attempt, *at, what, context.now).into())
            }
            Command::NodeHello { node, facts, held } => {
                self.decide_hello(node, facts, held, context)
            }
            Command::CreateNodes(nodes) => self.decide_create_nodes(nodes, context),
            Command::RegisterNode(said) => self.decide_register_node(said, context),
            Command::DeleteNodes { nodes } => self.decide_delete_nodes(nodes, context),
            Command::NodeLost { node } => Ok(self.decide_node_lost(node, context)),
            Command::NodeHealth { node, source, failure } => {
                Ok(self.decide_node_health(node, *source, failure.as_deref(), context).into())
            }
            Command::AskMachine(order) => self.decide_ask_machine(order, context),
            Command::MachineReport { token, report } => {
                self.decide_machine_report(token, report, context)
            }
            Command::SetOffers { source, offers } => {
                self.decide_set_offers(source, offers, context)
            }
            Command::DeleteMachine { node } => self.decide_delete_machine(node, context),
            Command::PowerSave => Ok(self.decide_power_save(context.now).into()),
            Command::PowerProgramEnded { nodes, program } => {
                Ok(self.decide_power_program_ended(nodes, *program, context.now).into())
            }
            Command::Tick { booked } => Ok(self.decide_tick(*booked, context).into()),
            Command::UseToken(join) => self.decide_join(join, context),
            Command::RenewCertificate { nodes, former, fingerprint, end } => {
                self.decide_renew_certificate(nodes, former, fingerprint, *end, context)
            }
            Command::RejoinNode { node } => self.decide_rejoin_node(node, context),
            Command::RemoveAgent { node } => self.decide_remove_agent(node, context),
            Command::SetUserToken(_)
            | Command::SetAdminToken(_)
            | Command::RevokeToken { .. }
            | Command::IssueToken { .. }
            | Command::IssueGroupToken { .. }
            | Command::IssueHostToken { .. } => self.decide_token(command, context),
            Command::SetWebSessions { open, close } => {
                self.decide_web_sessions(open.as_deref(), close, context)
            }
            Command::SetSecret { .. }
            | Command::RemoveSecrets { .. }
            | Command::ResealSecrets(_) => self.decide_secret(command, context),
            Command::CreateVolume(create) => self.decide_create_volume(create, context),
            Command::DeleteVolume { project, name } => {
                self.decide_delete_volume(project, name, context)
            }
            Command::SettleVolume { project, name, id, is_there } => {
                self.decide_settle_volume(project, name, id, *is_there, context)
            }
            Command::VolumeReport { project, name, id, report } => {
                self.decide_volume_report(project, name, id, report, context)
            }
            Command::CreateReservation(ask) => self.decide_create_reservation(ask, context),
            Command::UpdateReservation { name, ask } => {
                self.decide_update_reservation(name, ask, context)
            }
            Command::RemoveReservation { name } => self.decide_remove_reservation(name, context),
            _ => {
                self.authorise_administration(command, &context.by)?;
                let mut decision = self.decide_administration(command, context)?;
                let noted: Vec<Event> = decision
                    .events
                    .iter()
                    .filter_map(|event| self.account_activity(event, context))
                    .collect();
                decision.events.extend(noted);
                Ok(decision)
            }
        }
    }

    fn decide_configure(&self, config: &crate::ClusterConfig, context: &Context) -> Decision {
        let mut events = Vec::new();
        if *self.config != *config {
            events.push(Event::Configured { config: Box::new(config.clone()), at: context.now });
        }
        let used =
            !self.charged_usage.associations.is_empty() || !self.charged_usage.qos.is_empty();
        if config.parameters.priority.reset == UsageReset::Now && used {
            events.push(Event::UsagePeriodEnded { at: context.now, reset: true });
        }
        events.into()
    }
}
