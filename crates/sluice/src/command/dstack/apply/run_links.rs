//! What of a run a person opens beside its log: an editor, its web pages, its ports.

use crate::client::Client;
use crate::command::dstack::attach::AttemptListener;
use crate::command::dstack::{cluster, print};
use crate::command::port_forward::RunningForward;
use crate::command::port_mapping;
use crate::command::program_name::program_name;
use crate::command::verb::VerbError;
use crate::command::web_link;
use ::dstack::configuration::Loaded;
use ::dstack::configuration::task::Task;
use model::port_forward::PortForward;
use wire::client::WebLinkQuery;
use wire::view::JobView;

/// What of a run a person opens beside its log.
pub(super) struct RunLinks {
    ide: Option<String>,
    ports: Vec<PortForward>,
}

impl RunLinks {
    pub(super) fn of(task: &Task, loaded: &Loaded) -> Self {
        let ide = loaded.value.get("ide").as_text().map(str::to_owned);
        let ports = task.ports.iter();
        let ports = ports.map(|port| PortForward { of_run: port.of_run, local: port.local });
        Self { ide, ports: ports.collect() }
    }

    /// Prints what there is; a server without an endpoint or a proxy has less.
    pub(super) fn print(&self, client: &mut Client, run: &JobView) -> Result<(), VerbError> {
        let folder = &run.spec.launch.work_dir;
        let editor = self.ide.as_ref().and_then(|ide| {
            let link = web_link::editor_link(client, ide, run.id, folder)?;
            Some(format!("{ide}: {link}\n"))
        });
        print(&editor.unwrap_or_default())?;
        for PortForward { of_run: port, .. } in &self.ports {
            let wanted = WebLinkQuery { job: run.id, rank: 0, port: *port, whole_path: false };
            if let Ok(link) = web_link::link(client, wanted) {
                print(&format!("port {port}: {link}\n"))?;
            }
        }
        Ok(())
    }

    /// Brings the run's ports to this machine, until what is returned is dropped. What cannot be brought is told of. `locals` has the
    /// port of this machine that each had first.
    fn forward(
        &self,
        client: &mut Client,
        run: &JobView,
        locals: &mut [Option<u16>],
    ) -> Option<RunningForward> {
        let (name, program) = (&*run.name, program_name());
        let mut wanted = Vec::new();
        let is_here = !self.ports.is_empty() && shares_this_network(client, run);
        for (port, first) in self.ports.iter().zip(locals) {
            let (local, of_run) = match port_mapping::local_again(port, *first) {
                Ok(pair) => pair,
                Err(why) => {
                    eprintln!("{program}: note: port {} of {name}: {why}", port.of_run);
                    continue;
                }
            };
            first.get_or_insert(local);
            // The run itself listens there, or is about to.
            if is_here && local == of_run {
                eprintln!("port {of_run} of {name} is on this machine already: the run is here");
            } else if let Some(why) = port_mapping::refusal(local) {
                eprintln!(
                    "{program}: note: port {local} of this machine: {why}: \
                     `sluice port {name} LOCAL:{of_run}` brings port {of_run} of {name} to another"
                );
            } else {
                wanted.push((local, of_run));
            }
        }
        if wanted.is_empty() {
            return None;
        }
        RunningForward::start(client, run.id, name, &wanted)
            .inspect_err(|why| eprintln!("{program}: note: no ports of {name} here: {why}"))
            .ok()
    }
}

/// The ports of a run on this machine: of the attempt that runs, wherever it is.
pub(super) struct RunPorts<'l> {
    links: &'l RunLinks,
    /// The port of this machine that each of the run's had first.
    locals: Vec<Option<u16>>,
    /// The attempt whose ports were brought last; 0 where they are to be brought anew.
    attempt: u32,
    forward: Option<RunningForward>,
}

impl<'l> RunPorts<'l> {
    pub(super) fn of(links: &'l RunLinks) -> Self {
        Self { links, locals: vec![None; links.ports.len()], attempt: 0, forward: None }
    }
}

impl AttemptListener for RunPorts<'_> {
    fn running(&mut self, client: &mut Client, run: &JobView) {
        let attempt = run.restarts + 1;
        // A server that stops in its own time ends the connection too.
        let is_lost = self.forward.as_mut().is_some_and(RunningForward::has_ended);
        if attempt == self.attempt && !is_lost {
            return;
        }
        // The ports of the attempt before are free again before they are looked at.
        self.forward = None;
        self.attempt = attempt;
        self.forward = self.links.forward(client, run, &mut self.locals);
    }

    /// A run that starts anew on this machine may listen there itself.
    fn waiting(&mut self) {
        self.forward = None;
    }

    fn server_lost(&mut self) {
        self.attempt = 0;
    }
}

/// Whether the run's first node is this machine, and its network this machine's.
fn shares_this_network(client: &mut Client, run: &JobView) -> bool {
    if run.extras.as_ref().is_some_and(|extras| extras.network.is_some()) {
        return false;
    }
    let first = run.allocation.as_ref().and_then(|allocation| allocation.node_names().next());
    let (Some(first), Ok(host)) = (first, nix::unistd::gethostname()) else { return false };
    let host = host.to_string_lossy();
    let known = cluster(client).map(|cluster| cluster.nodes).unwrap_or_default();
    // An agent reports its host's name up to the first dot.
    known.iter().any(|node| {
        node.config.name == first && host.split('.').next() == Some(&*node.facts.hostname)
    })
}
