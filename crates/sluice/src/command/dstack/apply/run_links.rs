//! What of a run a person opens beside its log: an editor, its web pages, its ports.

use crate::client::Client;
use crate::command::dstack::print;
use crate::command::verb::VerbError;
use crate::command::web_link;
use ::dstack::configuration::Loaded;
use ::dstack::configuration::task::{Port, Task};
use wire::client::WebLinkQuery;
use wire::view::JobView;

/// A port as `sluice port` takes it.
fn port_word(port: &Port) -> String {
    match port.local {
        Some(local) if local != port.of_run => format!("{local}:{}", port.of_run),
        _ => port.of_run.to_string(),
    }
}

/// What of a run a person opens beside its log.
pub(super) struct RunLinks {
    ide: Option<String>,
    ports: Vec<u16>,
    /// As `sluice port` takes them.
    port_words: Vec<String>,
}

impl RunLinks {
    pub(super) fn of(task: &Task, loaded: &Loaded) -> Self {
        let ide = loaded.value.get("ide").as_text().map(str::to_owned);
        let ports = task.ports.iter().map(|port| port.of_run).collect();
        Self { ide, ports, port_words: task.ports.iter().map(port_word).collect() }
    }

    /// Prints what there is; a server without an endpoint or a proxy has less.
    pub(super) fn print(&self, client: &mut Client, run: &JobView) -> Result<(), VerbError> {
        let folder = &run.spec.launch.work_dir;
        let editor = self.ide.as_ref().and_then(|ide| {
            let link = web_link::editor_link(client, ide, run.id, folder)?;
            Some(format!("{ide}: {link}\n"))
        });
        print(&editor.unwrap_or_default())?;
        for port in &self.ports {
            let wanted = WebLinkQuery { job: run.id, rank: 0, port: *port, whole_path: false };
            if let Ok(link) = web_link::link(client, wanted) {
                print(&format!("port {port}: {link}\n"))?;
            }
        }
        if !self.port_words.is_empty() {
            let (name, words) = (&run.name, self.port_words.join(" "));
            eprintln!("its ports on this machine: sluice port {name} {words}");
        }
        Ok(())
    }
}
