//! Ports of a run that its user wants on his own machine while he is attached to it: dstack's `ports`.

use crate::bounds::CONTAINER_PORTS;
use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};

/// A port of the run, and the one of the client's machine that leads to it: any free one if `local` is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PortForward {
    pub of_run: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<u16>,
}

/// The ports in the order of the configuration. Read only as what [`PortForwards::new`] takes, which bounds their number.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<PortForward>")]
pub struct PortForwards(Vec<PortForward>);

impl PortForwards {
    /// As many as a container may name: a port of the run may be among them more than once, at several of the client's.
    pub fn new(ports: Vec<PortForward>) -> Result<Self, GrammarError> {
        let is_zero = |port: &PortForward| port.of_run == 0 || port.local == Some(0);
        if ports.len() > CONTAINER_PORTS.most || ports.iter().any(is_zero) {
            let found = format!("{} ports", ports.len());
            let expected = format!("at most {}, each above 0", CONTAINER_PORTS.most);
            return Err(GrammarError::new("ports of a run", &found, expected));
        }
        Ok(Self(ports))
    }
}

impl std::ops::Deref for PortForwards {
    type Target = [PortForward];

    fn deref(&self) -> &[PortForward] {
        &self.0
    }
}

impl TryFrom<Vec<PortForward>> for PortForwards {
    type Error = GrammarError;

    fn try_from(ports: Vec<PortForward>) -> Result<Self, GrammarError> {
        Self::new(ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_travel_as_a_list_and_are_few() {
        let text = r#"[{"of_run":80,"local":8080},{"of_run":9000}]"#;
        let ports: PortForwards = serde_json::from_str(text).expect("two ports");
        assert_eq!((ports[0].local, ports[1].local), (Some(8080), None));
        assert_eq!(serde_json::to_string(&ports).expect("JSON"), text);
        // The same port of the run counts each time.
        let at = |local: u16| PortForward { of_run: 80, local: Some(local) };
        let many = |count: u16| PortForwards::new((1..=count).map(at).collect());
        assert!(many(64).is_ok() && many(65).is_err());
        for zero in [r#"[{"of_run":0}]"#, r#"[{"of_run":80,"local":0}]"#] {
            assert!(serde_json::from_str::<PortForwards>(zero).is_err(), "{zero}");
        }
    }
}
