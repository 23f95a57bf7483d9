//! What each association was promised and has used, as `GET …/shares` has it: the numbers of `sshare`.

use super::Version;
use super::accounts::PARENT_SHARES;
use super::field::Form::{self, Absent, Plain, Set};
use super::field::{Cell, Context, Field, Number, field, number, optional_text, text, values};
use crate::output::sshare;
use model::account::Shares;
use model::tres::TresKind;
use serde_json::{Value, json};
use wire::view::{AccountsView, ShareView, SharesView};

/// An association with the account above it.
struct ShareRow {
    share: ShareView,
    parent: String,
    /// Priorities are not worked out from shares here.
    is_basic: bool,
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static SHARE: &[Field<ShareRow>] = &[
    field("id",                Plain,  Plain, |_, s| number(s.share.id)),
    field("cluster",           Plain,  Plain, |c, _| text(&*c.cluster)),
    field("name",              Plain,  Plain, |_, s| text(name(&s.share))),
    field("parent",            Plain,  Plain, |_, s| text(&*s.parent)),
    field("partition",         Plain,  Plain, |_, s| optional_text(s.share.association.partition.as_deref())),
    field("shares_normalized", Plain,  Set,   |_, s| float(Some(s.share.shares).filter(|_| !s.is_basic))),
    field("shares",            Plain,  Set,   |_, s| Cell::Number(shares(&s.share))),
    field("tres",              Plain,  Plain, |c, s| Cell::Value(tres(c, &s.share))),
    field("effective_usage",   Plain,  Plain, |_, s: &ShareRow| effective_usage(s)).until(Version::V41),
    field("effective_usage",   Absent, Set,   |_, s: &ShareRow| effective_usage(s)).since(Version::V42),
    field("usage_normalized",  Plain,  Set,   |_, s| float(s.share.usage.filter(|_| !s.is_basic))),
    field("usage",             Plain,  Plain, |_, s| number(s.share.raw_usage.billing_s() as u64)),
    field("fairshare",         Plain,  Plain, |c, s| Cell::Value(fair_share(c, s))),
    field("type",              Plain,  Form::List, |_, s| text(if s.share.association.user.is_some() { "USER" } else { "ASSOCIATION" })),
];

/// The associations that are chosen, and the sum of their shares.
pub fn document(
    context: &Context,
    view: &SharesView,
    accounts: &AccountsView,
    wanted: &sshare::Options,
) -> Value {
    let shown = view.rows.iter().filter(|share| sshare::is_shown(share, wanted));
    let rows: Vec<ShareRow> = shown
        .map(|share| ShareRow {
            parent: parent(share, accounts),
            share: share.clone(),
            is_basic: view.basic,
        })
        .collect();
    let count = |row: &ShareRow| match shares(&row.share) {
        Number::Of(count) if !inherits(&row.share) => count,
        _ => 0,
    };
    let total: u64 = rows.iter().map(count).sum();
    json!({"shares": values(context, SHARE, &rows), "total_shares": total})
}

fn name(share: &ShareView) -> &str {
    share.association.user.as_deref().unwrap_or(&share.association.account)
}

/// The account of a user, and the account above an account; empty for the root.
fn parent(share: &ShareView, accounts: &AccountsView) -> String {
    let association = &share.association;
    if association.user.is_some() {
        return association.account.clone();
    }
    let own = accounts.accounts.iter().find(|account| account.name == association.account);
    own.and_then(|account| account.parent.clone()).unwrap_or_default()
}

fn inherits(share: &ShareView) -> bool {
    matches!(share.association.shares, Shares::Parent(_))
}

/// The root has none.
fn shares(share: &ShareView) -> Number {
    match share.association.shares {
        _ if share.depth == 0 => Number::Unset,
        Shares::Count(count) => count.into(),
        Shares::Parent(_) => PARENT_SHARES.into(),
    }
}

fn float<'a>(value: Option<f64>) -> Cell<'a> {
    value.map_or(Cell::Number(Number::Unset), Cell::Float)
}

fn effective_usage<'a>(row: &ShareRow) -> Cell<'a> {
    Cell::Float(if row.is_basic { 0.0 } else { row.share.effective_usage })
}

fn fair_share(context: &Context, row: &ShareRow) -> Value {
    let form = if context.version >= Version::V42 { Set } else { Plain };
    let factor = row.share.fair_share.map(|factor| if row.is_basic { 0.0 } else { factor });
    // The root, and an association with its parent's shares, have no level.
    let level = match row.share.level {
        _ if inherits(&row.share) || row.share.depth == 0 => Cell::Number(Number::Unset),
        _ if row.is_basic => Cell::Float(0.0),
        Some(level) => Cell::Float(level),
        None => Cell::Number(Number::Infinite),
    };
    json!({"factor": float(factor).value(form), "level": level.value(form)})
}

/// All resources that the cluster counts, with zeros.
fn tres(context: &Context, share: &ShareView) -> Value {
    let kinds = sshare::counted_kinds(&context.gres);
    let limits = &share.association.limits.group_tres_minutes;
    let limit = |kind: &TresKind| limits.get(kind).map_or(Number::Infinite, Number::Of);
    let run_seconds = |kind: &TresKind| share.run_minutes.amount(kind).saturating_mul(60);
    json!({
        "run_seconds": of_each(&kinds, |kind| context.number(run_seconds(kind))),
        "group_minutes": of_each(&kinds, |kind| context.number(limit(kind))),
        "usage": of_each(&kinds, |kind| json!(share.raw_usage.seconds(kind))),
    })
}

fn of_each(kinds: &[TresKind], value: impl Fn(&TresKind) -> Value) -> Vec<Value> {
    kinds.iter().map(|kind| json!({"name": kind.to_string(), "value": value(kind)})).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::account::{Account, Association};
    use model::raw_usage::RawUsage;
    use model::time::Timestamp;
    use model::tres::Tres;

    fn row(depth: u32, association: Association) -> ShareView {
        ShareView {
            association,
            id: depth + 1,
            depth,
            shares: 0.5,
            effective_usage: 0.25,
            usage: None,
            level: None,
            fair_share: (depth > 1).then_some(0.75),
            raw_usage: RawUsage::default(),
            run_minutes: Tres::parse("cpu=2").expect("amounts"),
        }
    }

    fn shown(version: Version, wanted: &sshare::Options) -> Value {
        let physics = Account {
            name: "physics".into(),
            description: String::new(),
            organization: String::new(),
            parent: Some("root".into()),
            coordinators: Vec::new(),
        };
        let mut alice = Association::plain("physics", Some("alice"));
        alice.shares = Shares::Count(3);
        let view = SharesView {
            cluster: "lab".into(),
            basic: false,
            gres: vec!["gpu".into()],
            rows: vec![
                row(0, Association::plain("root", None)),
                row(1, Association::plain("physics", None)),
                row(2, alice),
            ],
            qos: Default::default(),
        };
        let accounts = AccountsView {
            cluster: "lab".into(),
            accounts: vec![physics],
            associations: Vec::new(),
            qos: Vec::new(),
            roles: Default::default(),
            only_user: None,
            deleted: Default::default(),
        };
        let gres = vec!["gpu".to_owned()];
        let context = Context { version, cluster: "lab".into(), gres, now: Timestamp(0) };
        document(&context, &view, &accounts, wanted)
    }

    #[test]
    fn shares_have_parents_and_numbers_in_the_form_of_each_version() {
        let set = |number: f64| json!({"set": true, "infinite": false, "number": number});
        let late = shown(Version::V42, &sshare::Options::default());
        assert_eq!(late["total_shares"], 4);
        let [root, physics, alice] = late["shares"].as_array().expect("rows").as_slice() else {
            panic!("{late}")
        };
        assert_eq!((&root["parent"], &root["shares"]["set"]), (&json!(""), &json!(false)));
        assert_eq!((&physics["name"], &physics["parent"]), (&json!("physics"), &json!("root")));
        assert_eq!(physics["fairshare"]["level"]["infinite"], true);
        assert_eq!((&alice["name"], &alice["parent"]), (&json!("alice"), &json!("physics")));
        assert_eq!((&alice["type"], &physics["type"]), (&json!(["USER"]), &json!(["ASSOCIATION"])));
        assert_eq!(alice["fairshare"]["factor"], set(0.75));
        assert_eq!(alice["effective_usage"], set(0.25));
        assert_eq!(alice["tres"]["run_seconds"][0]["value"]["number"], 120);
        let early = shown(Version::V40, &sshare::Options::default());
        let alice = &early["shares"][2];
        assert_eq!(alice["effective_usage"], 0.25);
        assert_eq!(alice["fairshare"]["factor"], 0.75);
        assert_eq!(alice["shares_normalized"], set(0.5));
        let users = Some(vec!["bob".to_owned()]);
        let none = shown(Version::V42, &sshare::Options { users, ..Default::default() });
        assert_eq!(none["shares"].as_array().map(Vec::len), Some(2), "the accounts alone");
    }
}
