//! The whole addresses of a service and its model, where the server knows them by their paths: as the caller reaches the server.

use super::cluster;
use crate::client::{Client, ServerLocation};
use crate::command::verb::VerbError;
use model::service::Service;
use serde_json::{Value, json};
use wire::view::JobView;

/// What stands before a path at the server.
#[derive(Default)]
pub(super) struct ServerBase(String);

impl ServerBase {
    /// The address by which the caller reaches the server, as dstack's client has it. Who asks by a socket is told by the server
    /// where its proxy is.
    pub fn of(client: &mut Client) -> Result<Self, VerbError> {
        let known = match client.location() {
            ServerLocation::Socket(_) => None,
            ServerLocation::Http { address, .. } => Some(format!("http://{address}")),
            ServerLocation::Https(server) => {
                server.addresses().next().map(|address| format!("https://{address}"))
            }
        };
        match known {
            Some(base) => Ok(Self(base)),
            None => Ok(Self(cluster(client)?.proxy_url.unwrap_or_default())),
        }
    }

    /// The same, without asking where none of the runs is a service.
    pub fn for_runs<'j>(
        client: &mut Client,
        mut runs: impl Iterator<Item = &'j JobView>,
    ) -> Result<Self, VerbError> {
        let has_service = runs.any(|run| run.spec.launch.service.is_some());
        if has_service { Self::of(client) } else { Ok(Self::default()) }
    }

    /// The whole address of what may be a path.
    pub fn whole(&self, place: &str) -> String {
        if place.starts_with('/') { format!("{}{place}", self.0) } else { place.to_owned() }
    }

    /// Where the service is, and its model: dstack's `service` of a run. `None` for what is no service.
    pub fn service(&self, run: &JobView) -> Option<Value> {
        let url = run.service_url()?;
        let model = run.spec.launch.service.as_ref()?.model.as_ref().map(|model| {
            let base_url = self.whole(&Service::models_path(run.spec.project()));
            json!({ "name": model.name, "base_url": base_url, "type": "chat" })
        });
        Some(json!({ "url": self.whole(&url), "model": model }))
    }
}
