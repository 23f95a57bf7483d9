//! What administrators set: accounts, associations, QOS, roles, partitions, tokens.

use crate::command::{Command, Context, Decision, Reply};
use crate::event::Event;
use crate::state::State;
use model::reason::Refusal;

impl State {
    pub(super) fn decide_administration(
        &self,
        command: &Command,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let event = match command {
            Command::ChangeNode { nodes, change } => {
                return self.decide_change_nodes(nodes, change, context);
            }
            Command::ChangePartition { name, change } => {
                self.partition(name).ok_or_else(|| Refusal::UnknownPartition(name.clone()))?;
                Event::PartitionSet { partition: name.clone(), change: change.clone() }
            }
            Command::SetAccount(account) => {
                if let Some(parent) = &account.parent
                    && parent != "root"
                    && !self.accounts.contains_key(parent)
                {
                    return Err(unknown("account", parent));
                }
                Event::AccountSet(account.clone())
            }
            Command::RemoveAccount { name } => {
                if name == "root" {
                    return Err(Refusal::Other("the root account cannot be removed".into()));
                }
                self.accounts.get(name).ok_or_else(|| unknown("account", name))?;
                Event::AccountRemoved { name: name.clone() }
            }
            Command::SetAssociation(association) => {
                if !self.accounts.contains_key(&association.account) {
                    return Err(unknown("account", &association.account));
                }
                if let Some(missing) = association.qos.iter().find(|q| !self.qos.contains_key(*q)) {
                    return Err(Refusal::InvalidQos(missing.clone()));
                }
                Event::AssociationSet(association.clone())
            }
            Command::RemoveAssociation { account, user } => {
                let same =
                    |a: &&model::account::Association| a.account == *account && a.user == *user;
                let name = user.as_ref().unwrap_or(account);
                self.associations.iter().find(same).ok_or_else(|| unknown("association", name))?;
                Event::AssociationRemoved { account: account.clone(), user: user.clone() }
            }
            Command::SetQos(qos) => Event::QosSet(qos.clone()),
            Command::RemoveQos { name } => {
                if name == model::account::NORMAL_QOS {
                    return Err(Refusal::Other(format!("QOS {name} cannot be removed")));
                }
                self.qos.get(name).ok_or_else(|| unknown("qos", name))?;
                Event::QosRemoved { name: name.clone() }
            }
            Command::SetRole { name, role } => Event::RoleSet { name: name.clone(), role: *role },
            Command::IssueToken { hash, nodes, expires } => {
                if let Some(missing) = nodes.iter().find(|n| !self.nodes.contains_key(*n)) {
                    return Err(Refusal::UnknownNode(missing.clone()));
                }
                Event::TokenIssued { hash: hash.clone(), nodes: nodes.clone(), expires: *expires }
            }
            Command::SetUserToken(token) => Event::UserTokenSet(token.clone()),
            other => unreachable!("{other:?} is decided elsewhere"),
        };
        Ok(vec![event].into())
    }

    /// A token works once, and until it expires.
    pub(super) fn decide_use_token(
        &self,
        hash: &str,
        fingerprint: &str,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let token = self.tokens.get(hash).filter(|t| t.expires > context.now);
        let token = token.ok_or_else(|| {
            Refusal::Other("the join token is wrong, was used, or has expired".into())
        })?;
        let nodes = token.nodes.clone();
        let event = Event::TokenUsed {
            hash: hash.to_string(),
            nodes: nodes.clone(),
            fingerprint: fingerprint.to_string(),
        };
        Ok(Decision { events: vec![event], reply: Reply::TokenNodes(nodes) })
    }
}

fn unknown(what: &str, name: &str) -> Refusal {
    Refusal::UnknownThing { what: what.into(), name: name.into() }
}
