//! `sluice port JOB PORT…`: ports of a running job on this machine, until it is interrupted.

use super::attach::Login;
use super::port_mapping::{self, LOOPBACK};
use super::verb::VerbResult;
use super::web_link;
use clap::Args;

#[derive(Args)]
pub struct PortArgs {
    /// A run's name or a job's number; JOB.RANK for another of its nodes
    job: String,
    /// A port of the job; LOCAL:PORT for another number on this machine
    #[arg(required = true, value_name = "[LOCAL:]PORT")]
    ports: Vec<String>,
    /// Print a link for a browser in place of a port here: it is good once, and the server passes the page on
    #[arg(long)]
    web: bool,
    /// With --web: the job's server sees the whole path of the address, as servers want it that are told where they are
    #[arg(long, requires = "web")]
    whole_path: bool,
}

pub fn run(args: &PortArgs) -> VerbResult {
    if args.web {
        return web_link::print_links(&args.job, &args.ports, args.whole_path);
    }
    let ports = port_mapping::parse_all(&args.ports)?;
    let mut login = Login::new()?;
    login.ssh.args(["-N", "-o", "ExitOnForwardFailure=yes"]);
    for (local, port) in &ports {
        login.ssh.arg("-L").arg(format!("{LOOPBACK}:{local}:localhost:{port}"));
    }
    // Said by `ssh` itself, once it is in.
    let leads = |(local, port): &(u16, u16)| {
        format!("{LOOPBACK}:{local} leads to port {port} of {}", args.job)
    };
    let said: Vec<String> = ports.iter().map(leads).collect();
    if is_plain(&args.job) {
        login.ssh.args(["-o", "PermitLocalCommand=yes", "-o"]);
        login.ssh.arg(format!("LocalCommand=echo '{}'", said.join("; ")));
    }
    login.run(&args.job, &[])
}

/// Whether a shell and `ssh` take the word as it is.
fn is_plain(job: &str) -> bool {
    job.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
