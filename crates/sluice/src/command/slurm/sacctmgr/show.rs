//! `sacctmgr show|list`.

use super::command_line::{CommandLine, Term, unknown_option};
use super::load;
use crate::command::slurm::query::{self, CommandError, Server};
use ::slurm::option::{OptionKey as K, Parsed};
use ::slurm::output::sacctmgr::{
    self as output, AssociationFilter, Conditions, ControlAddress, Entity, Options, SacctmgrError,
};
use ::slurm::output::table::field_table::Layout;
use model::account::{Association, ROOT_ACCOUNT};
use std::io;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::view::AccountsView;

const ACCOUNT_KEYS: &[&str] = &["Account", "Accounts"];
const USER_KEYS: &[&str] = &["User", "Users"];
const CLUSTER_KEYS: &[&str] = &["Cluster", "Clusters"];
const PARTITION_KEYS: &[&str] = &["Partition", "Partitions"];
const PARENT_KEYS: &[&str] = &["Parent", "Parents"];
const ORGANIZATION_KEYS: &[&str] = &["Organization", "Organizations"];
const DESCRIPTION_KEYS: &[&str] = &["Description", "Descriptions"];
const ADMIN_KEYS: &[&str] = &["AdminLevel", "AdminLevels"];
const DEFAULT_ACCOUNT_KEYS: &[&str] = &["DefaultAccount", "DefaultAccounts"];

/// The conditions, and the entities whose lists they choose from: any other refuses them, and does not show more than was
/// asked for. Accounts and users that are listed with their associations take those of associations too. Not formatted by
/// rustfmt: a row is one line.
#[rustfmt::skip]
const CONDITIONS: &[(&[&str], &[Entity])] = &[
    (ACCOUNT_KEYS, &[Entity::Account, Entity::User, Entity::Association]),
    (USER_KEYS, &[Entity::User, Entity::Association]),
    (CLUSTER_KEYS, &[Entity::Account, Entity::User, Entity::Association, Entity::Cluster, Entity::RunawayJob]),
    (PARTITION_KEYS, &[Entity::User, Entity::Association]),
    (PARENT_KEYS, &[Entity::Account, Entity::Association]),
    (ORGANIZATION_KEYS, &[Entity::Account]),
    (DESCRIPTION_KEYS, &[Entity::Account, Entity::Qos]),
    (ADMIN_KEYS, &[Entity::User]),
    (DEFAULT_ACCOUNT_KEYS, &[Entity::User]),
];

/// The columns of `show association wolimits`, as Slurm's manual names them.
const WITHOUT_LIMITS: &str = "Cluster,Account,User";

pub fn run(line: &CommandLine, parsed: &Parsed) -> Result<ExitCode, CommandError> {
    let mut terms = line.terms.clone();
    let format = CommandLine::take(&mut terms, &["Format"]);
    let associations = parsed.has(K::Associations) || line.has("withassoc");
    if let Some(term) = terms.iter().find(|term| !is_condition(term, line.entity, associations)) {
        return Err(unknown_option(&term.typed));
    }
    let mut take = |keys: &[&str]| CommandLine::take(&mut terms, keys);
    let mut accounts = take(ACCOUNT_KEYS);
    let users = take(USER_KEYS);
    let partitions = take(PARTITION_KEYS);
    let conditions = Conditions {
        parents: take(PARENT_KEYS),
        organizations: take(ORGANIZATION_KEYS),
        descriptions: take(DESCRIPTION_KEYS),
        admin_levels: take(ADMIN_KEYS),
        default_accounts: take(DEFAULT_ACCOUNT_KEYS),
    };
    let mut server = Server::find("sacctmgr: error")?;
    let mut view = load(&mut server)?;
    let deleted = line.has("withdeleted");
    if deleted {
        view = view.with_deleted();
    }
    if line.entity == Entity::Association {
        add_root(&mut view);
    }
    if line.is_elsewhere(&view.cluster) {
        view.associations.clear();
    }
    if line.has("withsubaccounts") {
        add_below(&view, &mut accounts);
    }
    let names = named(line, &accounts, &users);
    let own_limits = line.has("woplimits") || line.has("wopinfo");
    let raw_qos = line.has("withrawqos") || line.has("withrawqoslevel");
    let unsaid = (line.entity == Entity::Association && line.has("wolimits"))
        .then(|| WITHOUT_LIMITS.to_owned());
    let options = Options {
        format: (!format.is_empty()).then(|| format.join(",")).or(unsaid),
        no_header: parsed.has(K::Noheader),
        layout: layout(parsed),
        associations,
        coordinators: line.flags.iter().any(|flag| flag.starts_with("withcoord")),
        deleted,
        tree: line.entity == Entity::Association && line.has("tree"),
        no_parents: line.has("wopinfo"),
        own_limits,
        own_qos: own_limits && raw_qos,
        filter: AssociationFilter {
            accounts,
            users,
            partitions,
            only_defaults: line.has("onlydefaults"),
        },
        conditions,
        names,
    };
    let gres =
        if line.entity == Entity::Tres { query::gres_names(&mut server)? } else { Vec::new() };
    let control = match line.entity {
        Entity::Cluster => control_address(&mut server)?,
        _ => ControlAddress::default(),
    };
    let mut out = io::stdout().lock();
    match output::show(&mut out, line.entity, &view, &gres, &control, &options) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ SacctmgrError::UnknownField(_)) => {
            Err(CommandError::message(error.to_string()))
        }
        Err(SacctmgrError::Write(error)) => Err(error.into()),
    }
}

fn is_condition(term: &Term, entity: Entity, with_associations: bool) -> bool {
    let lists_associations = with_associations && matches!(entity, Entity::Account | Entity::User);
    let takes = |entities: &[Entity]| {
        entities.contains(&entity)
            || (lists_associations && entities.contains(&Entity::Association))
    };
    CONDITIONS.iter().any(|(keys, entities)| term.is(keys) && takes(entities))
}

pub fn layout(parsed: &Parsed) -> Layout {
    let separator = Layout::SEPARATOR.to_owned();
    let kind = parsed.values.iter().rev().find(|s| matches!(s.key, K::Parsable | K::Parsable2));
    match kind.map(|setting| setting.key) {
        Some(K::Parsable) => Layout::Ended(separator),
        Some(_) => Layout::Separated(separator),
        None => Layout::Aligned,
    }
}

/// The named entities: `show account physics` and `show account where account=physics` mean the same.
fn named(line: &CommandLine, accounts: &[String], users: &[String]) -> Vec<String> {
    let same = match line.entity {
        Entity::Account => accounts.to_vec(),
        Entity::User => users.to_vec(),
        Entity::Cluster => line.clusters().collect(),
        _ => Vec::new(),
    };
    line.names.iter().cloned().chain(same).collect()
}

/// Adds a row for the root account, which is shown even without an association of its own.
fn add_root(view: &mut AccountsView) {
    let known = view.associations.iter().any(|a| a.user.is_none() && a.account == ROOT_ACCOUNT);
    if !known {
        view.associations.push(Association::plain(ROOT_ACCOUNT, None));
    }
}

/// Adds the accounts below these.
fn add_below(view: &AccountsView, accounts: &mut Vec<String>) {
    let mut at = 0;
    while let Some(above) = accounts.get(at).cloned() {
        let below = view.accounts.iter().filter(|account| account.parent.as_ref() == Some(&above));
        for account in below {
            if !accounts.contains(&account.name) {
                accounts.push(account.name.clone());
            }
        }
        at += 1;
    }
}

/// The controller's address. The port is 0: the server has no port that speaks Slurm's protocol.
fn control_address(server: &mut Server) -> Result<ControlAddress, CommandError> {
    match server.ask(Call::Ping)? {
        Answer::Pong { hostname, .. } => Ok(ControlAddress { host: hostname, port: 0 }),
        other => Err(CommandError::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::association_key::view;
    use super::*;
    use model::account::Account;

    #[test]
    fn conditions_of_associations_are_taken_where_associations_are_listed() {
        let takes = |entity: &str, condition: &str, with_associations: bool| {
            let words = ["show", entity, condition].map(str::to_owned);
            let line = CommandLine::parse(&words).expect("right");
            is_condition(&line.terms[0], line.entity, with_associations)
        };
        for (entity, condition) in
            [("account", "user=alice"), ("account", "Partition=gpu"), ("user", "parent=physics")]
        {
            assert!(takes(entity, condition, true), "{entity} {condition}");
            assert!(!takes(entity, condition, false), "{entity} {condition}");
        }
        assert!(takes("account", "cluster=lab", false) && takes("assoc", "user=alice", false));
        for (entity, condition) in
            [("qos", "user=alice"), ("account", "adminlevel=none"), ("user", "bogus=1")]
        {
            assert!(!takes(entity, condition, true), "{entity} {condition}");
        }
    }

    #[test]
    fn accounts_below_are_added_however_deep() {
        let account = |name: &str, parent: &str| Account {
            name: name.to_owned(),
            parent: Some(parent.to_owned()),
            ..view().accounts[0].clone()
        };
        let mut view = view();
        view.accounts.extend([account("optics", "physics"), account("lasers", "optics")]);
        let mut accounts = vec!["physics".to_owned()];
        add_below(&view, &mut accounts);
        assert_eq!(accounts, ["physics", "optics", "lasers"]);
    }
}
