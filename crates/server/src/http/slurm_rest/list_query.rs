//! How a query narrows a list of the accounting. Each parameter that Slurm describes is a row: it names a field of the list's objects,
//! or asks for more or less of each object. What there is of an object is always shown. The fields are those of the latest version: a
//! parameter means the same in all of them, also where v0.0.38 has the field by another name (`QOS`) or does not show it.

use super::client::{Client, Refused};
use super::query::{self, Query};
use serde_json::Value;
use slurm::openapi::accounts::List::{self, Accounts, Associations, Clusters, Qos, Users, WcKeys};
use slurm::openapi::field::Context;
use slurm::openapi::{Version, accounts};
use wire::view::AccountsView;

/// What a parameter does to a list.
enum Effect {
    /// Leaves the objects whose field is one of the parameter's words.
    Field(&'static str),
    /// Leaves the objects whose field is true.
    Only(&'static str),
    /// Leaves all objects.
    Nothing,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const PARAMETERS: &[(&[List], &str, Effect)] = &[
    (&[Associations],                 "account",          Effect::Field("/account")),
    (&[Users],                        "admin_level",      Effect::Field("/administrator_level")),
    (&[Associations, WcKeys],         "cluster",          Effect::Field("/cluster")),
    (&[Clusters],                     "cluster",          Effect::Field("/name")),
    (&[Users],                        "default_account",  Effect::Field("/default/account")),
    (&[Associations],                 "default_qos",      Effect::Field("/default/qos")),
    (&[Users],                        "default_wckey",    Effect::Field("/default/wckey")),
    (&[Accounts, Qos],                "description",      Effect::Field("/description")),
    (&[Associations, Qos, WcKeys],    "id",               Effect::Field("/id")),
    (&[Users, Accounts, Qos, Clusters, WcKeys], "name",   Effect::Field("/name")),
    (&[Associations],                 "parent_account",   Effect::Field("/parent_account")),
    (&[Associations],                 "partition",        Effect::Field("/partition")),
    (&[Qos],                          "preempt_mode",     Effect::Field("/preempt/mode")),
    (&[Associations],                 "qos",              Effect::Field("/qos")),
    (&[Associations, WcKeys],         "user",             Effect::Field("/user")),
    (&[Associations],                 "only_defaults",    Effect::Only("/is_default")),
    (&[Associations],                 "Filter to only defaults", Effect::Only("/is_default")),
];

/// Parameters that ask for what was deleted too, by the versions' names.
const WITH_DELETED: &[&str] =
    &["DELETED", "Include deleted QOS", "Include deleted associations", "with_deleted"];

/// Parameters that ask for more or less of each object, or for what is not kept: usage by the hour.
#[rustfmt::skip]
const WITHOUT_EFFECT: &[&str] = &[
    "Exclude limits from parents", "Exclude parent id/name", "Include sub acct information", "Include the raw QOS or delta_qos",
    "Include usage", "NoUsersAreCoords", "UsersAreCoords", "WithAssociations", "WithCoordinators", "format", "update_time", "usage_end",
    "usage_start", "with_assocs", "with_coords", "with_raw_qos", "with_sub_accts", "with_usage",
    "with_wckeys", "without_defaults", "without_parent_info", "without_parent_limits",
];

/// Whether a query asks for what was deleted too.
pub fn wants_deleted(query: &Query) -> bool {
    WITH_DELETED.iter().any(|key| query::flag(query, key))
}

/// The objects that a query asks for, as the client's version writes them; refuses a parameter that the list does not have.
pub fn objects(
    client: &Client,
    list: List,
    query: &Query,
    view: &AccountsView,
) -> Result<Vec<Value>, Refused> {
    let context = client.context();
    let shown = accounts::objects(&context, view, list, None);
    let latest = Context { version: Version::V42, ..context };
    let fields = accounts::objects(&latest, view, list, None);
    let mut rows: Vec<(Value, Value)> = fields.into_iter().zip(shown).collect();
    for key in query.keys() {
        match effect(list, key) {
            None => return Err(client.bad(&unknown(list, key))),
            Some(Effect::Nothing) => {}
            Some(Effect::Field(place)) => {
                let words = query::list(query, key);
                rows.retain(|(fields, _)| fields.pointer(place).is_some_and(|v| is_one(v, &words)));
            }
            Some(Effect::Only(place)) if query::flag(query, key) => {
                rows.retain(|(fields, _)| fields.pointer(place) == Some(&Value::Bool(true)));
            }
            Some(Effect::Only(_)) => {}
        }
    }
    Ok(rows.into_iter().map(|(_, shown)| shown).collect())
}

fn effect(list: List, key: &str) -> Option<&'static Effect> {
    if WITH_DELETED.contains(&key) || WITHOUT_EFFECT.contains(&key) {
        return Some(&Effect::Nothing);
    }
    let row = PARAMETERS.iter().find(|(lists, name, _)| *name == key && lists.contains(&list));
    row.map(|(_, _, effect)| effect)
}

fn unknown(list: List, key: &str) -> String {
    let of_list = PARAMETERS.iter().filter(|(lists, ..)| lists.contains(&list));
    let names: Vec<&str> = of_list.map(|(_, name, _)| *name).collect();
    format!("{key}: this parameter is not taken; expected one of {}", names.join(", "))
}

/// Whether a field is one of the words, or has one of them.
fn is_one(value: &Value, words: &[String]) -> bool {
    let is_word = |text: &str| words.iter().any(|word| word == text);
    match value {
        Value::String(text) => is_word(text),
        Value::Number(number) => is_word(&number.to_string()),
        Value::Array(items) => items.iter().any(|item| is_one(item, words)),
        Value::Object(_) | Value::Bool(_) | Value::Null => false,
    }
}
