//! Names that users give: what would forge a line or move the cursor where the name is shown or logged is refused.

use crate::command::Command;
use model::change::{JobChange, JobField};
use model::printable::{is_unprintable, printable};
use model::reason::Refusal;

/// Refuses a command that would give something an unprintable name.
pub(super) fn check_names(command: &Command) -> Result<(), Refusal> {
    match command {
        Command::Submit(submit) => {
            for spec in submit.het_components.iter().chain([&submit.spec]) {
                check("job name", &spec.name)?;
                check_all("wckey", &spec.wckey)?;
            }
            Ok(())
        }
        Command::ChangeJob { change: JobChange::Fields(fields), .. } => {
            fields.iter().try_for_each(|field| match field {
                JobField::Name(name) => check("job name", name),
                JobField::Wckey(wckey) => check("wckey", wckey),
                _ => Ok(()),
            })
        }
        Command::CreateStep { ask, .. } => check("step name", &ask.name),
        Command::CreateReservation(ask) => check_all("reservation name", &ask.name),
        Command::SetAccount(account) => check("account name", &account.name),
        Command::SetAssociation(association) => {
            check("account name", &association.account)?;
            check_all("user name", &association.user)
        }
        Command::SetQos(qos) => check("QOS name", &qos.name),
        Command::Configure(config) => {
            check_all("node name", config.nodes.iter().map(|node| &node.name))?;
            check_all("partition name", config.partitions.iter().map(|p| &p.name))
        }
        Command::SetFleet(set) => {
            check("fleet name", &set.name)?;
            let each = set.hosts.iter().flat_map(|host| [Some(&host.login), host.jump.as_ref()]);
            check_all("host", each.flatten().flat_map(|login| [&login.hostname, &login.user]))
        }
        Command::SetUser(set) => {
            check("user name", &set.name)?;
            check_all("e-mail address", &set.email)
        }
        Command::SetMembers { members, .. } => check_all("user name", members.keys()),
        Command::SetUserToken(token) => check("user name", &token.name),
        _ => Ok(()),
    }
}

fn check_all<'a>(what: &str, names: impl IntoIterator<Item = &'a String>) -> Result<(), Refusal> {
    names.into_iter().try_for_each(|name| check(what, name))
}

fn check(what: &str, name: &str) -> Result<(), Refusal> {
    if name.contains(is_unprintable) {
        let shown = printable(name);
        return Err(Refusal::Other(format!("{what} {shown}: expected no control characters")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClusterConfig;
    use crate::command::StepRequest;
    use model::amount::Bytes;
    use model::change::JobRef;
    use model::id::JobId;
    use model::node::NodeConfig;
    use model::partition::Partition;

    /// What would show a second job in a listing, or clear the screen.
    const FORGED: &[&str] =
        &["train\n 99 main sleep root R", "train\u{1b}[2J", "a\rb", "\u{202e}niart"];

    fn commands(name: &str) -> Vec<Command> {
        let fields = vec![JobField::Name(name.to_owned())];
        let job = JobRef::whole(JobId(1));
        let node = NodeConfig::plain(name, 1, Bytes(0));
        let nodes = ClusterConfig { nodes: vec![node], ..ClusterConfig::default() };
        let partitions = vec![Partition::over(name, Vec::new())];
        let partitions = ClusterConfig { partitions, ..ClusterConfig::default() };
        let ask = StepRequest { name: name.to_owned(), ..StepRequest::default() };
        vec![
            Command::ChangeJob { job, change: JobChange::Fields(fields) },
            Command::CreateStep { job: JobId(1), ask: Box::new(ask) },
            Command::Configure(Box::new(nodes)),
            Command::Configure(Box::new(partitions)),
        ]
    }

    #[test]
    fn name_that_could_forge_a_line_is_refused_in_one() {
        for forged in FORGED {
            for command in commands(forged) {
                let said = check_names(&command).expect_err("refused").to_string();
                assert!(said.ends_with(": expected no control characters"), "{said}");
                assert!(!said.contains(is_unprintable), "{said:?}");
            }
        }
        for plain in ["train", "Größe 漢字", "a b/c:d"] {
            commands(plain).iter().for_each(|command| check_names(command).expect("taken"));
        }
    }
}
