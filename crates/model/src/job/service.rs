//! Services: runs whose replicas answer HTTP requests. What the server must know of one to pass requests on to its replicas.

use serde::{Deserialize, Serialize};

/// The most replicas of one service.
pub const REPLICAS_MAX: u32 = 1000;

/// A service as it was submitted. Each replica is a job; several are the tasks of one array.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Service {
    /// The port that each replica listens at, on the loopback address of its own network.
    pub port: u16,
    pub replicas: u32,
    /// Requests need a token of a member of the project.
    #[serde(default = "yes")]
    pub auth: bool,
    /// Replicas see the path that follows the service's own address, and else the whole path.
    #[serde(default = "yes")]
    pub strip_prefix: bool,
}

fn yes() -> bool {
    true
}

impl Service {
    /// A service of one replica that takes the server's defaults.
    pub fn at(port: u16) -> Self {
        Self { port, replicas: 1, auth: true, strip_prefix: true }
    }

    /// The path at which the server passes requests on to a service. It ends with a slash.
    pub fn path(project: &str, run: &str) -> String {
        format!("/proxy/services/{project}/{run}/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_service_leaves_out_is_as_dstack_has_it() {
        let read: Service = serde_json::from_str(r#"{"port":80,"replicas":1}"#).expect("a service");
        assert_eq!(read, Service::at(80));
        assert!(read.auth && read.strip_prefix);
        assert_eq!(Service::path("main", "web"), "/proxy/services/main/web/");
    }
}
