//! The paths of the accounting database: users, accounts, associations and QOS, and the jobs of the books.

use super::client::{Client, Refused, RestResult};
use super::history_query::{self, Wanted};
use super::jobs::job_ref;
use super::list_query;
use super::query::{self, Query};
use crate::http::body_limits::HeldRequest;
use axum::Extension;
use axum::body::Bytes;
use axum::extract::Path;
use axum::response::Response;
use model::account::{Association, AssociationKey};
use model::record::HistoryFilter;
use serde_json::Value;
use slurm::openapi::account_additions::{self, Additions};
use slurm::openapi::accounts::{self, List};
use slurm::openapi::{account_changes, rest};
use slurm::output::Moment;
use store::books::{ANSWER_BYTES_MAX, BooksError};
use wire::client::{Answer, Call};
use wire::view::AccountsView;

pub async fn accounts(client: &Client) -> Result<AccountsView, Refused> {
    match client.ask(Call::Accounts).await? {
        Answer::Accounts(view) => Ok(view),
        _ => Err(client.unexpected()),
    }
}

pub async fn ping(client: Client) -> Response {
    client.document(&rest::database_ping(&client.context(), &client.shared.setup.hostname))
}

pub async fn diagnostics(client: Client) -> RestResult {
    match client.ask(Call::Diagnostics { reset: false }).await? {
        Answer::Diagnostics(view) => {
            Ok(client.document(&rest::database_diagnostics(&client.context(), &view)))
        }
        _ => Err(client.unexpected()),
    }
}

/// Ways to narrow the machines of clouds.
const INSTANCES: &[&str] = &[
    "cluster",
    "extra",
    "format",
    "instance_id",
    "instance_type",
    "node_list",
    "time_end",
    "time_start",
];

pub async fn instances(client: Client, query: Query) -> RestResult {
    query::check(&client, &query, INSTANCES)?;
    Ok(client.document(&rest::instances(&client.context())))
}

pub async fn configuration(client: Client) -> RestResult {
    let view = accounts(&client).await?;
    client.at_turn(|| client.document(&rest::configuration(&client.context(), &view))).await
}

/// The list that a word of a path names.
fn list_of(client: &Client, word: &str, name: fn(List) -> &'static str) -> Result<List, Refused> {
    let found = List::ALL.into_iter().find(|list| name(*list) == word);
    found.ok_or_else(|| client.unknown("path for", word))
}

pub async fn list(client: Client, Path(word): Path<String>, query: Query) -> RestResult {
    // One association has no name: it is the one of a query.
    let list = if word == List::Associations.singular() {
        List::Associations
    } else {
        list_of(&client, &word, List::key)?
    };
    let mut view = accounts(&client).await?;
    if list_query::wants_deleted(&query) {
        view = view.with_deleted();
    }
    let made = client.at_turn(|| {
        let objects = list_query::objects(&client, list, &query, &view)?;
        client.send(rest::list(&client.context(), list, &objects))
    });
    made.await?
}

pub async fn one(client: Client, Path((kind, name)): Path<(String, String)>) -> RestResult {
    let list = list_of(&client, &kind, List::singular)?;
    let view = accounts(&client).await?;
    let find = || accounts::objects(&client.context(), &view, list, Some(&name));
    let objects = client.at_turn(find).await?;
    // No key is kept: whichever is asked for, the list of it is empty.
    if objects.is_empty() && list != List::WcKeys {
        return Err(client.unknown(&kind, &name));
    }
    client.send(rest::list(&client.context(), list, &objects))
}

/// What a request's body says, and the accounting that it is to change.
async fn read_change(client: &Client, body: &Bytes) -> Result<(Value, AccountsView), Refused> {
    let document: Value = client.read(body)?;
    Ok((document, accounts(client).await?))
}

/// Makes calls one after the other: the first that is refused says so, and those before it are done.
async fn make(client: &Client, held: HeldRequest, calls: Vec<Call>) -> Result<(), Refused> {
    for call in calls {
        client.ask_with(Some(held.clone()), call).await?;
    }
    Ok(())
}

/// Sets what a document says of accounts, associations, QOS or users.
pub async fn change(
    client: Client,
    Path(word): Path<String>,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let list = list_of(&client, &word, List::key)?;
    let (document, view) = read_change(&client, &body).await?;
    let calls = client.at_turn(|| account_changes::calls(list, &document, &view)).await?;
    make(&client, held, calls.map_err(|why| client.bad(&why))?).await?;
    Ok(client.document(&rest::accounting_set(&client.context())))
}

/// Sets several lists by one document.
pub async fn configure(
    client: Client,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let (document, view) = read_change(&client, &body).await?;
    let calls = client.at_turn(|| account_changes::configuration(&document, &view)).await?;
    make(&client, held, calls.map_err(|why| client.bad(&why))?).await?;
    Ok(client.document(&rest::accounting_set(&client.context())))
}

/// Adds users to accounts, all with the same limits.
pub async fn add_users(
    client: Client,
    query: Query,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    query::check(&client, &query, &["update_time", "flags"])?;
    let (document, view) = read_change(&client, &body).await?;
    let added = client.at_turn(|| account_additions::users(&document, &view)).await?;
    add(&client, List::Users, held, added).await
}

/// Adds accounts, all with the same limits.
pub async fn add_accounts(
    client: Client,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> RestResult {
    let (document, view) = read_change(&client, &body).await?;
    let added = client.at_turn(|| account_additions::accounts(&document, &view)).await?;
    add(&client, List::Accounts, held, added).await
}

async fn add(
    client: &Client,
    list: List,
    held: HeldRequest,
    added: Result<Additions, String>,
) -> RestResult {
    let Additions { calls, names } = added.map_err(|why| client.bad(&why))?;
    make(client, held, calls).await?;
    Ok(client.document(&rest::added(&client.context(), list, &names)))
}

/// Removes an account, a QOS, or all associations of a user.
pub async fn remove(client: Client, Path((kind, name)): Path<(String, String)>) -> RestResult {
    let list = list_of(&client, &kind, List::singular)?;
    if let Some(why) = list.why_fixed() {
        return Err(client.bad(&format!("{kind} {name}: nothing to remove: {why}")));
    }
    let calls = match list {
        List::Accounts => vec![Call::RemoveAccount { name: name.clone() }],
        List::Qos => vec![Call::RemoveQos { name: name.clone() }],
        List::Users => {
            let view = accounts(&client).await?;
            let of_user = |one: &&Association| one.user.as_deref() == Some(name.as_str());
            let own = view.associations.iter().filter(of_user);
            own.map(|one| Call::RemoveAssociation(one.key())).collect()
        }
        _ => return Err(client.bad(&format!("{kind} {name}: name its account and user instead"))),
    };
    if calls.is_empty() {
        return Err(client.unknown(&kind, &name));
    }
    for call in calls {
        client.ask(call).await?;
    }
    Ok(client.document(&rest::removed(&client.context(), list, &[name])))
}

/// Removes the association that a query names, or with the path of the list all that it chooses.
pub async fn remove_associations(
    client: Client,
    Path(word): Path<String>,
    query: Query,
) -> RestResult {
    let is_list = word == List::Associations.key();
    if !is_list && word != List::Associations.singular() {
        return Err(client.bad(&format!("{word}: expected the name of one")));
    }
    query::check(&client, &query, &["account", "cluster", "partition", "user"])?;
    let text = |name: &str| query.get(name).filter(|text| !text.is_empty()).cloned();
    let (account, user, partition) = (text("account"), text("user"), text("partition"));
    let keys = match (is_list, account) {
        (true, account) => chosen(&client, account, user, partition).await?,
        (false, Some(account)) => vec![AssociationKey { account, user, partition }],
        (false, None) => return Err(client.bad("account: expected a name")),
    };
    let mut removed = Vec::new();
    for key in keys {
        removed.push(match &key.user {
            Some(user) => format!("{}/{user}", key.account),
            None => key.account.clone(),
        });
        client.ask(Call::RemoveAssociation(key)).await?;
    }
    Ok(client.document(&rest::removed(&client.context(), List::Associations, &removed)))
}

/// The associations of an account, a user, a partition, or of what is given of these together; users before the account itself.
/// Nothing is no choice: all would be removed.
async fn chosen(
    client: &Client,
    account: Option<String>,
    user: Option<String>,
    partition: Option<String>,
) -> Result<Vec<AssociationKey>, Refused> {
    if account.is_none() && user.is_none() && partition.is_none() {
        return Err(client.bad("expected an account, a user or a partition"));
    }
    let view = accounts(client).await?;
    let is_chosen = |one: &&Association| {
        account.as_ref().is_none_or(|name| one.account == *name)
            && (user.is_none() || one.user == user)
            && (partition.is_none() || one.partition == partition)
    };
    let mut keys: Vec<AssociationKey> =
        view.associations.iter().filter(is_chosen).map(Association::key).collect();
    if keys.is_empty() {
        return Err(client.unknown("association", "like this"));
    }
    keys.sort_by_key(|key| key.user.is_none());
    Ok(keys)
}

pub async fn jobs(client: Client, query: Query) -> RestResult {
    let wanted = history_query::read(&client, &query)?;
    recorded(&client, wanted).await
}

pub async fn job(client: Client, Path(job): Path<String>) -> RestResult {
    let jobs = vec![job_ref(&client, &job)?];
    recorded(&client, HistoryFilter { jobs, ..HistoryFilter::default() }.into()).await
}

async fn recorded(client: &Client, wanted: Wanted) -> RestResult {
    let found = client.ask_held(Call::History(wanted.filter.clone())).await?;
    found.make(|answer| {
        let Answer::History(mut records) = answer else { return Err(client.unexpected()) };
        let warning = wanted.warning(records.len());
        if let Some(text) = warning
            && !client.version.is_typed()
        {
            // The documents of v0.0.38 have no warnings.
            return Err(client.bad(text));
        }
        let context = client.context();
        let tz = timezone::local();
        let moment = Moment::at(context.now, &tz);
        wanted.narrow(&context.cluster, &mut records);
        match rest::recorded_jobs(&context, moment, &records, warning, ANSWER_BYTES_MAX) {
            Err(error) if error.is_io() => Err(client.bad(&BooksError::too_long().to_string())),
            written => client.send(written),
        }
    })
}
