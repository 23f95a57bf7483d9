//! Names that users give: what would forge a line or move the cursor where the name is shown or logged is refused, and so
//! are names of accounts, users and QOS that a list or a row could not be told apart with.

use crate::command::Command;
use model::change::{JobChange, JobField};
use model::mail::check_address;
use model::node::NodeConfig;
use model::printable::{is_unprintable, printable};
use model::reason::Refusal;

/// Refuses a command that would give something an unprintable name.
pub(super) fn check_names(command: &Command) -> Result<(), Refusal> {
    match command {
        Command::Submit(submit) => {
            for spec in submit.het_components.iter().chain([&submit.spec]) {
                check("job name", &spec.name)?;
                check_all("wckey", &spec.wckey)?;
                spec.mail.iter().flat_map(|mail| &mail.user).try_for_each(|to| check_mail(to))?;
            }
            Ok(())
        }
        Command::ChangeJob { change: JobChange::Fields(fields), .. } => {
            fields.iter().try_for_each(|field| match field {
                JobField::Name(name) => check("job name", name),
                JobField::Wckey(wckey) => check("wckey", wckey),
                JobField::MailUser(to) if !to.is_empty() => check_mail(to),
                _ => Ok(()),
            })
        }
        Command::CreateStep { ask, .. } => check("step name", &ask.name),
        Command::CreateReservation(ask) => check_all("reservation name", &ask.name),
        Command::SetAccount(account) => check_listed("account name", &account.name),
        Command::SetAssociation(association) => {
            check_listed("account name", &association.account)?;
            association.user.iter().try_for_each(|user| check_listed("user name", user))
        }
        Command::SetQos(qos) => check_listed("QOS name", &qos.name),
        Command::Configure(config) => {
            check_all("node name", config.nodes.iter().map(|node| &node.name))?;
            check_all("partition name", config.partitions.iter().map(|p| &p.name))
        }
        Command::CreatePartition(partition) => check_listed("partition name", &partition.name),
        Command::CreateNodes(nodes) => {
            let texts = |node: &NodeConfig| [node.address.clone(), node.hostname.clone()];
            nodes.iter().try_for_each(|node| {
                check_all("feature", &node.features)?;
                check_all("host", &texts(node))?;
                check_all("reason", &node.initial_reason)
            })
        }
        Command::SetFleet(set) => {
            check("fleet name", &set.name)?;
            let each = set.hosts.iter().flat_map(|host| [Some(&host.login), host.jump.as_ref()]);
            check_all("host", each.flatten().flat_map(|login| [&login.hostname, &login.user]))
        }
        Command::SetUser(set) => {
            check_listed("user name", &set.name)?;
            check_all("e-mail address", &set.email)
        }
        Command::SetMembers { members, .. } => {
            members.keys().try_for_each(|user| check_listed("user name", user))
        }
        Command::SetUserToken(token) => check_listed("user name", &token.name),
        _ => Ok(()),
    }
}

fn check_all<'a>(what: &str, names: impl IntoIterator<Item = &'a String>) -> Result<(), Refusal> {
    names.into_iter().try_for_each(|name| check(what, name))
}

/// A name that stands in lists with commas and in rows with bars, beside columns that may be empty.
fn check_listed(what: &str, name: &str) -> Result<(), Refusal> {
    check(what, name)?;
    if name.is_empty() || name.contains([',', '|', '"']) || name.trim() != name {
        let expected = "at least one character, no comma, bar or quote, no space around it";
        return Err(Refusal::Other(format!("{what} {name:?}: expected {expected}")));
    }
    Ok(())
}

fn check_mail(address: &str) -> Result<(), Refusal> {
    check_address(address).map_err(Refusal::Other)
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
    use model::account::Account;
    use model::amount::Bytes;
    use model::change::JobRef;
    use model::id::JobId;
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

    #[test]
    fn name_that_a_list_or_a_row_would_lose_is_refused() {
        let account = |name: &str| {
            check_names(&Command::SetAccount(Account {
                name: name.to_owned(),
                description: String::new(),
                organization: String::new(),
                parent: None,
                coordinators: Vec::new(),
            }))
        };
        for wrong in ["", " ", " a", "a ", "a,b", "a|b", "\"a\""] {
            let said = account(wrong).expect_err("refused").to_string();
            assert!(said.starts_with("account name"), "{said}");
        }
        for plain in ["physics", "Größe", "DOM\\ada", "ada@site", "a b", "((", "-1"] {
            account(plain).expect("taken");
        }
    }
}
