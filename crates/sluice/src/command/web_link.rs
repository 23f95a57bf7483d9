//! Links into a running job: to its web pages through the server's proxy, and for an editor over SSH.

use super::attach::split_rank;
use super::dstack::{OfProject, find_run};
use super::key;
use super::verb::{VerbError, VerbResult};
use crate::client::Client;
use model::id::JobId;
use std::process::ExitCode;
use wire::client::{Answer, Call, WebLinkQuery};
use wire::ssh::SshRequest;

/// `sluice port JOB PORT… --web`: prints a link for each port.
pub fn print_links(job: &str, ports: &[String], whole_path: bool) -> VerbResult {
    let mut client = Client::find()?;
    let (word, rank) = split_rank(job);
    let too_high = |_| VerbError::Message(format!("{job}: no run has so many nodes"));
    let rank = u32::try_from(rank.unwrap_or(0)).map_err(too_high)?;
    let id = find_run(&mut client, word, &OfProject::main())?.id;
    for said in ports {
        let port = said.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
            VerbError::Message(format!("port {said:?}: expected a number from 1 to 65535"))
        })?;
        let wanted = WebLinkQuery { job: id, rank, port, whole_path };
        println!("{}", link(&mut client, wanted)?);
    }
    Ok(ExitCode::SUCCESS)
}

/// A link that opens a web page of a job in a browser, once.
pub fn link(client: &mut Client, wanted: WebLinkQuery) -> Result<String, VerbError> {
    match client.call(Call::WebLink(wanted))? {
        Answer::WebLink { url } => Ok(url.0),
        Answer::Refused(why) => Err(why.into()),
        _ => Err(VerbError::Message("the server made no link".into())),
    }
}

/// The address that opens an editor in a folder of the job; nothing where the server has no SSH endpoint.
pub fn editor_link(client: &mut Client, ide: &str, job: JobId, folder: &str) -> Option<String> {
    let endpoint = key::ask_about_keys(client, None, SshRequest::Connect).ok()?.endpoint?;
    let place = format!("{job}@{}:{}", endpoint.host, endpoint.port);
    let folder = folder.trim_end_matches('/');
    Some(match ide {
        "zed" => format!("zed://ssh/{place}{folder}/"),
        scheme => format!("{scheme}://vscode-remote/ssh-remote+{place}{folder}/"),
    })
}
