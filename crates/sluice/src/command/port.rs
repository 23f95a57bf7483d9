//! `sluice port JOB PORT…`: ports of a running job on this machine, until it is interrupted.

use super::attach::Destination;
use super::dstack::OfProject;
use super::port_mapping::{self, LOOPBACK};
use super::verb::{VerbError, VerbResult};
use super::web_link;
use crate::client::Client;
use clap::Args;
use model::port_forward::PortForward;
use wire::view::JobView;

#[derive(Args)]
pub struct PortArgs {
    /// A run's name or a job's number; JOB.RANK for another of its nodes
    job: String,
    /// A port of the job; LOCAL:PORT for another number on this machine than the run's `ports` name. Without one, all of those
    #[arg(value_name = "[LOCAL:]PORT")]
    ports: Vec<String>,
    /// Print a link for a browser in place of a port here: it is good once, and the server passes the page on
    #[arg(long)]
    web: bool,
    /// With --web: the job's server sees the whole path of the address, as servers want it that are told where they are
    #[arg(long, requires = "web")]
    whole_path: bool,
}

pub fn run(args: &PortArgs) -> VerbResult {
    let job = &args.job;
    if args.web && args.ports.is_empty() {
        return Err(which(job, "--web"));
    }
    if args.web {
        return web_link::print_links(&args.job, &args.ports, args.whole_path);
    }
    // What is wrong with a port is said before anybody is asked.
    port_mapping::parse_all(&args.ports)?;
    let mut client = Client::find()?;
    let to = Destination::find(&mut client, job, &OfProject::main())?;
    let ports = port_mapping::of_run(&args.ports, &named_ports(&to.run))?;
    if ports.is_empty() {
        return Err(which(job, "its configuration names no `ports`"));
    }
    let (mut login, name) = to.login(&mut client, None)?;
    port_mapping::check_free(job, &ports)?;
    login.ssh.args(["-N", "-o", "ExitOnForwardFailure=yes"]);
    login.forward(LOOPBACK, &ports);
    // Said by `ssh` itself, once it is in.
    let said: Vec<String> = ports.iter().map(|ports| leads(ports, &args.job)).collect();
    if is_plain(&args.job) {
        login.ssh.args(["-o", "PermitLocalCommand=yes", "-o"]);
        login.ssh.arg(format!("LocalCommand=echo '{}'", said.join("; ")));
    }
    login.run(&name, &[])
}

/// No port was said, and there is none to be taken for it.
fn which(job: &str, why: &str) -> VerbError {
    VerbError::Message(format!("port {job}: {why}: say which, as in `sluice port {job} 8080`"))
}

/// `127.0.0.1:8080 leads to port 80 of web`
pub(super) fn leads((local, port): &(u16, u16), job: &str) -> String {
    format!("{LOOPBACK}:{local} leads to port {port} of {job}")
}

/// The ports that the run's configuration names.
fn named_ports(run: &JobView) -> Vec<PortForward> {
    let forwards = run.spec.launch.port_forwards.as_ref();
    forwards.map(|ports| ports.to_vec()).unwrap_or_default()
}

/// Whether a shell and `ssh` take the word as it is.
fn is_plain(job: &str) -> bool {
    job.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
