//! Orders of the server: carried out here, passed on to the attempt's supervisor, or refused with a reason.

use super::energy::CpuPart;
use super::{Agent, AttemptEntry};
use crate::attempt_key::AttemptKey;
use crate::error::AgentError;
use crate::order_gate::{OrderRefusal, Refused};
use crate::volume::VolumeWork;
use crate::wall_clock;
use model::id::AttemptId;
use model::reason::LaunchFault;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use tokio::net::UnixStream;
use wire::link::{RefusedOrder, ToServer};
use wire::order::{Action, JobLaunch, Order, SignedOrder};
use wire::report::ReportEvent;
use wire::supervisor::{SupervisorEvent, ToSupervisor};

impl Agent {
    /// Carries out an order, or returns the message that refuses it.
    pub fn on_order(&mut self, signed: &SignedOrder) -> Option<ToServer> {
        self.measure_skew();
        let held = &self.attempts;
        let uid_of = |node: &str, attempt: AttemptId| {
            held.get(&AttemptKey { node: node.to_owned(), attempt }).and_then(|held| held.uid)
        };
        let now = self.skew.to_server(wall_clock::now());
        let refused = match self.gate.admit(signed, now, uid_of) {
            Ok(order) => {
                let (serial, attempt, node) = (order.serial, order.attempt, order.node.clone());
                let launch = matches!(order.action, Action::Launch(_));
                match self.carry_out(order) {
                    Ok(()) => return None,
                    Err(why) => (serial, attempt, node, launch, why),
                }
            }
            // The contents of a forged order are only hints for the refusal.
            Err(Refused { order, why }) => match order {
                Some(order) => {
                    let launch = matches!(order.action, Action::Launch(_));
                    (order.serial, order.attempt, order.node, launch, why)
                }
                None => {
                    let hint: Order = serde_json::from_str(&signed.body).ok()?;
                    (hint.serial, hint.attempt, hint.node, false, why)
                }
            },
        };
        let (serial, attempt, node, launch, why) = refused;
        let before = matches!(&why, OrderRefusal::Stale(stale) if stale.was_taken());
        let held = self.attempts.contains_key(&AttemptKey { node: node.clone(), attempt });
        tracing::warn!(node, %attempt, serial, %why, "order refused");
        let order = match (&why, launch) {
            // A repeated launch of an attempt that is here, whatever is wrong with it. Its own reports follow, and it must not
            // be taken for lost.
            (_, true) if held => RefusedOrder::Other,
            (_, true) if before => RefusedOrder::LaunchedBefore,
            (_, true) => RefusedOrder::Launch,
            (OrderRefusal::UnknownAttempt(_), false) => RefusedOrder::UnknownAttempt,
            (_, false) => RefusedOrder::Other,
        };
        let unfit = match &why {
            OrderRefusal::Node(error) => error.unfit(),
            _ => None,
        };
        Some(ToServer::OrderRefused { serial, attempt, node, order, why: why.to_string(), unfit })
    }

    /// Checks an order about a volume as any other. Returns what is to be done.
    pub fn admit_volume(&mut self, signed: &SignedOrder) -> Result<VolumeWork, String> {
        self.measure_skew();
        let now = self.skew.to_server(wall_clock::now());
        let order = self.gate.admit(signed, now, |_, _| None).map_err(|e| e.why.to_string())?;
        let Action::Volume(volume) = order.action else {
            return Err("the order is about no volume".to_owned());
        };
        let node = self.nodes.get(&order.node).ok_or("there is no such node here")?;
        Ok(VolumeWork { node: node.folder.clone(), uid: order.uid, order: volume })
    }

    fn carry_out(&mut self, order: Order) -> Result<(), OrderRefusal> {
        let key = AttemptKey { node: order.node, attempt: order.attempt };
        match order.action {
            Action::Launch(mut launch) => {
                self.set_state_folder(&mut launch.environment);
                if let Some(step) = &mut launch.first_step {
                    self.set_state_folder(&mut step.environment);
                }
                self.launch(key, *launch);
                Ok(())
            }
            Action::Step(mut order) => {
                self.set_state_folder(&mut order.environment);
                self.pass_on(&key, Action::Step(order))
            }
            Action::Forget => self.forget(&key),
            Action::Reboot { program, since } => {
                self.reboot(&key.node, &program, since);
                Ok(())
            }
            Action::ExtendTo { end } => {
                let end = end.map(|end| self.skew.to_own(end));
                self.pass_on(&key, Action::ExtendTo { end })
            }
            action => self.pass_on(&key, action),
        }
    }

    /// Sets where the commands in a job find their server; the last value of a name counts.
    fn set_state_folder(&self, environment: &mut Vec<String>) {
        environment.extend(self.client_state.iter().map(|dir| format!("SLUICE_STATE={dir}")));
    }

    fn launch(&mut self, key: AttemptKey, launch: JobLaunch) {
        let entry = self.entry(&key.node, launch.user.uid, &launch.share);
        let entry = AttemptEntry { call: launch.call.clone(), ..entry };
        let call = launch.call.as_ref().map(|call| call.as_str());
        tracing::info!(node = key.node, attempt = %key.attempt, call, "launch ordered");
        self.attempts.insert(key.clone(), entry);
        match self.start_supervisor(&key, launch) {
            Ok(stream) => self.connect_supervisor(key, stream),
            Err(error) => {
                tracing::warn!(node = key.node, attempt = %key.attempt, %error, "launch failed");
                let (what, unfit) = (error.to_string(), error.unfit());
                let fault = LaunchFault::Other;
                let event =
                    ReportEvent::LaunchFailed { what, fault, unfit, hold: false, user: None };
                self.on_event(&key, SupervisorEvent { number: 1, at: wall_clock::now(), event });
            }
        }
    }

    fn start_supervisor(
        &self,
        key: &AttemptKey,
        launch: JobLaunch,
    ) -> Result<UnixStream, AgentError> {
        let node = self
            .nodes
            .get(&key.node)
            .ok_or_else(|| AgentError::NodeName { name: key.node.clone() })?;
        let request = node.accept(key.attempt, launch, self.skew)?;
        let failed = |e| AgentError::file("start a supervisor for", &request.folder, e);
        let (ours, theirs) = StdUnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let stream = UnixStream::from_std(ours).map_err(failed)?;
        self.launcher.get_ref().launch(&request, theirs.as_fd()).map_err(failed)?;
        Ok(stream)
    }

    fn pass_on(&mut self, key: &AttemptKey, action: Action) -> Result<(), OrderRefusal> {
        let step = match &action {
            Action::Step(order) => Some((order.step, order.share.clone())),
            _ => None,
        };
        // A step without a share of its own has all that its job has.
        let own = step
            .as_ref()
            .and_then(|(_, share)| share.as_ref())
            .map(|share| (self.gpus_of(&key.node, share), CpuPart::of(&share.cpus, &self.machine)));
        let unknown = || OrderRefusal::UnknownAttempt(key.attempt);
        let held = self.attempts.get_mut(key).ok_or_else(unknown)?;
        if held.has_ended() {
            // Its end is on the way to the server. Only a step order needs an answer.
            return if matches!(action, Action::Step(_)) { Err(unknown()) } else { Ok(()) };
        }
        let sent =
            held.orders.as_ref().map(|orders| orders.try_send(ToSupervisor::Execute(action)));
        match sent {
            Some(Ok(())) => {
                if let Some((step, _)) = step {
                    let of_job = || (held.gpus.numbers().to_vec(), held.cpus.clone());
                    let (gpus, cpus) = own.clone().unwrap_or_else(of_job);
                    let began = (cpus, self.energy.mark(&gpus));
                    held.step_energy.entry(step).or_insert(began);
                    if let Some((gpus, _)) = own {
                        held.gpus.start_step(step, gpus);
                    }
                }
                Ok(())
            }
            // Without a supervisor the attempt is already being killed.
            None => Ok(()),
            Some(Err(_)) => Err(OrderRefusal::SupervisorBusy(key.attempt)),
        }
    }

    fn forget(&mut self, key: &AttemptKey) -> Result<(), OrderRefusal> {
        if self.attempts.get(key).is_some_and(|held| !held.has_ended()) {
            return Err(OrderRefusal::StillRuns(key.attempt));
        }
        self.attempts.remove(key);
        self.reports.forget(key);
        let noted = self.gate.replay_guard(&key.node).map(|guard| guard.forget(key.attempt));
        if let Some(node) = self.nodes.get(&key.node) {
            // The attempt is removed even if the disk was too full to note it: the removal frees space.
            node.spool.remove(key.attempt)?;
        }
        Ok(noted.unwrap_or(Ok(()))?)
    }
}
