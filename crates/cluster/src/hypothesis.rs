//! The state as it would be under another configuration, for questions about it. Nothing of it is ever stored.

use crate::command::{Command, Context};
use crate::config::ClusterConfig;
use crate::state::State;
use model::reason::Refusal;

impl State {
    /// A copy of the state with this configuration. Nodes that it adds are up.
    pub fn under(&self, config: ClusterConfig, context: &Context) -> Result<Self, Refusal> {
        let mut state = self.clone();
        state.carry_out(&Command::Configure(Box::new(config)), context)?;
        let is_new = |name: &&String| !self.nodes.contains_key(*name);
        let added: Vec<String> = state.nodes.keys().filter(is_new).cloned().collect();
        for node in added {
            let hello = Command::NodeHello { node, facts: Box::default(), held: Vec::new() };
            state.carry_out(&hello, context)?;
        }
        Ok(state)
    }

    fn carry_out(&mut self, command: &Command, context: &Context) -> Result<(), Refusal> {
        for event in &self.decide(command, context)?.events {
            self.apply(event);
        }
        Ok(())
    }
}
