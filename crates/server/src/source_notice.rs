//! What keeps the machines of a source from joining, and its costs from an account: said in the log and by `sluice machine`.

use crate::agent_addresses::{addresses_for_agents, unreachable};
use cluster::State;
use model::machine::SourceConfig;

/// A line each. `bound`: the addresses of the agents' port.
pub fn notices(state: &State, source: &SourceConfig, bound: &[String]) -> Vec<String> {
    let addresses = addresses_for_agents(&state.config, bound);
    let lost = unreachable(&addresses).filter(|_| source.kind.is_elsewhere());
    let is_unknown = |name: &&String| !state.accounts.contains_key(name.as_str());
    let account = source.account.as_ref().filter(is_unknown);
    let unknown = |name: &String| format!("account {name:?}: no account or project is so called");
    lost.into_iter().chain(account.map(unknown)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cloud_source::SourceKind;

    #[test]
    fn cloud_whose_machines_find_no_server_and_an_unknown_account_are_said() {
        let state = State::default();
        let near = ["127.0.0.1:6821".to_owned()];
        let far = ["head.example:6821".to_owned()];
        let program = SourceConfig::new("own", "/opt/make");
        assert!(notices(&state, &program, &near).is_empty(), "its machines may be this one");
        let kind = SourceKind::Aws(Box::default());
        let cloud = SourceConfig::of_kind("ec2", kind);
        assert!(notices(&state, &cloud, &far).is_empty());
        let said = notices(&state, &cloud, &near);
        assert!(said.len() == 1 && said[0].contains("cannot reach the server"), "{said:?}");
        let charged = SourceConfig { account: Some("nosuch".into()), ..cloud };
        let said = notices(&state, &charged, &far);
        assert_eq!(said, ["account \"nosuch\": no account or project is so called"]);
    }
}
