//! The subnetwork of a machine, where the site names a network. Google chooses one by itself in networks that have one in every
//! region from their start; in others, and in those of another project, it has to be named.

use super::GcpSource;
use super::request::region_of;
use crate::machines::cloud::rest::word;
use crate::machines::source::SourceError;
use model::machine::FailureKind;
use serde_json::Value;

impl GcpSource {
    /// `None` in the default network, and where the subnetworks may not be listed: Google says by itself what it misses then.
    pub(super) fn subnetwork(&self, zone: &str) -> Result<Option<String>, SourceError> {
        let Some(network) = &self.cloud.network else { return Ok(None) };
        let (project, name) = network_of(network, self.project());
        let region = region_of(zone);
        let below = format!("projects/{project}/regions/{region}");
        let path = "subnetworks?maxResults=500";
        let answer = match self.call_below("GET", &below, region, path, None) {
            Err(error) if error.kind == FailureKind::Refused => return Ok(None),
            answer => answer?,
        };
        let found = of_network(&answer, name);
        Ok(found.map(|name| format!("{below}/subnetworks/{name}")))
    }
}

/// The project and the name of a network as the API names it.
fn network_of<'a>(network: &'a str, own_project: &'a str) -> (&'a str, &'a str) {
    let name = network.rsplit('/').next().unwrap_or(network);
    let project = network.split_once("projects/").and_then(|(_, rest)| rest.split('/').next());
    (project.unwrap_or(own_project), name)
}

/// The first subnetwork of this network by its name. Those for load balancers and the like have another purpose.
fn of_network<'a>(answer: &'a Value, network: &str) -> Option<&'a str> {
    let end = format!("/global/networks/{network}");
    let items = answer["items"].as_array().into_iter().flatten();
    let own = items.filter(|item| word(item, "/network").ends_with(&end));
    let own = own.filter(|item| matches!(word(item, "/purpose"), "" | "PRIVATE"));
    own.map(|item| word(item, "/name")).filter(|name| !name.is_empty()).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn subnetwork_is_the_first_of_its_network_that_machines_may_be_in() {
        for (network, expected) in [
            ("global/networks/lab", ("own", "lab")),
            ("projects/net/global/networks/lab", ("net", "lab")),
            ("https://compute.example.org/v1/projects/net/global/networks/lab", ("net", "lab")),
            ("lab", ("own", "lab")),
        ] {
            assert_eq!(network_of(network, "own"), expected, "{network}");
        }
        let item = |name: &str, network: &str, purpose: &str| {
            let network = format!("https://google/v1/projects/net/global/networks/{network}");
            json!({"name": name, "network": network, "purpose": purpose})
        };
        let items = [
            item("d", "lab", "PRIVATE"),
            item("a", "old-lab", "PRIVATE"),
            item("b", "lab", "REGIONAL_MANAGED_PROXY"),
            item("c", "lab", "PRIVATE"),
        ];
        let answer = json!({ "items": items });
        assert_eq!(of_network(&answer, "lab"), Some("c"));
        assert_eq!(of_network(&answer, "new"), None);
        assert_eq!(of_network(&json!({}), "lab"), None);
    }
}
