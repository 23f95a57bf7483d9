//! TCP connections into a job's network and out of it (`ssh -L`, `-D` and `-R`): a step of the job makes and accepts
//! them, and their bytes travel over its input and output. The server itself connects to nothing.

use super::access::Access;
use super::channel_end::{ChannelOpen, ServedChannels, channel_end};
use super::forward_step::{ForwardClient, ForwardStep, Forwarded};
use super::launch::{Program, SessionRequest, launch};
use super::step_client;
use super::tunnel::{ForwarderOrders, Tunnels};
use crate::rate_limit::RateLimit;
use crate::shared::Shared;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wire::step::OwnProgram;

/// Orders that wait for the step.
const ORDERS_MAX: usize = 32;

/// Lines about one user: a client tries each connection anew while a run waits for its next attempt.
const REFUSED_LINES: RateLimit = RateLimit { burst: 5, interval: Duration::from_secs(60) };

/// The step of one connection. It ends when this is dropped, whoever still waits for it.
pub struct Forwarder {
    orders: ForwarderOrders,
    _open: ChannelOpen,
}

impl Forwarder {
    /// The step starts with this. `client` takes the connections that it accepts in the job; without one it accepts none.
    pub fn start(
        shared: Arc<Shared>,
        access: Access,
        client: Option<ForwardClient>,
        tunnels: Tunnels,
    ) -> Self {
        let (orders, receiver) = mpsc::channel(ORDERS_MAX);
        let own = orders.downgrade();
        let idle = tunnels.idle;
        let forwarded =
            Forwarded { counts: shared.volatile.forwarded.clone(), user: access.by.uid };
        // The step itself is no channel of the client's.
        let (open, mut end) = channel_end(&ServedChannels::default());
        let user = access.by.uid;
        tokio::spawn(async move {
            let request = SessionRequest {
                program: Program::Own(OwnProgram::Forward),
                terminal: None,
                variables: Vec::new(),
            };
            let launched = launch(&shared, access.job, access.rank, &request);
            let started = match launched {
                Ok(launch) => step_client::start(&shared, access.by, access.job, launch).await,
                Err(why) => Err(why),
            };
            match started {
                Ok(step) => tokio::select! {
                    () = ForwardStep::new(step, own, client, tunnels, forwarded).run(receiver) => {}
                    () = end.wait() => {}
                },
                // The receiver of orders is dropped here: a request to forward finds its queue closed and is refused.
                Err(why) => {
                    let lines = &shared.volatile.forward_lines;
                    if let Some(unlogged) = lines.take(REFUSED_LINES, user, Instant::now()) {
                        tracing::info!(unlogged, "no forwarding into job {}: {why}", access.job);
                    }
                }
            }
        });
        Self { orders: ForwarderOrders { orders, idle }, _open: open }
    }

    pub fn orders(&self) -> ForwarderOrders {
        self.orders.clone()
    }

    /// Whether the step has ended, or never started.
    pub fn has_ended(&self) -> bool {
        self.orders.orders.is_closed()
    }
}
