//! `sluice port JOB PORT…`: ports of a running job on this machine, until it is interrupted.

use super::attach::Login;
use super::verb::{VerbError, VerbResult};
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
    let ports = args.ports.iter().map(|said| parse(said)).collect::<Result<Vec<_>, _>>()?;
    let mut login = Login::new()?;
    login.ssh.args(["-N", "-o", "ExitOnForwardFailure=yes"]);
    for (local, port) in &ports {
        login.ssh.arg("-L").arg(format!("127.0.0.1:{local}:localhost:{port}"));
    }
    // Said by `ssh` itself, once it is in.
    let leads = |(local, port): &(u16, u16)| {
        format!("127.0.0.1:{local} leads to port {port} of {}", args.job)
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

/// The port of this machine and the job's.
fn parse(said: &str) -> Result<(u16, u16), VerbError> {
    let (local, port) = said.split_once(':').unwrap_or((said, said));
    match (local.parse(), port.parse()) {
        (Ok(local), Ok(port)) if local > 0 && port > 0 => Ok((local, port)),
        _ => {
            let text = format!("port {said:?}: expected PORT or LOCAL:PORT, from 1 to 65535");
            Err(VerbError::Message(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_number_or_two() {
        assert_eq!(parse("8080").ok(), Some((8080, 8080)));
        assert_eq!(parse("80:8080").ok(), Some((80, 8080)));
        for bad in ["", "0", "a", "80:", ":80", "1:2:3", "65536", "80:0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
