//! `sshare`: the shares and the usage of each association.

use crate::output::table::field_table::{self, ChosenColumn, Layout, Table, named_column};
use crate::output::text::push;
use model::account::Shares;
use model::tres::TresKind;
use std::fmt::Write;
use std::io;
use wire::view::{ShareView, SharesView};

/// The options that shape the table.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub format: Option<String>,
    pub no_header: bool,
    pub layout: Layout,
    pub long: bool,
    /// `-m`: the partition of an association.
    pub partition: bool,
    /// `-U`: users and no accounts.
    pub users_only: bool,
    /// `None` shows all users.
    pub users: Option<Vec<String>>,
    /// Empty shows all accounts.
    pub accounts: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SshareError {
    #[error("Invalid field requested: \"{0}\"")]
    UnknownField(String),
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// An association as it is printed.
struct Row<'a> {
    share: &'a ShareView,
    view: &'a SharesView,
    indent: usize,
}

struct Field {
    name: &'static str,
    width: i16,
    render: fn(&Row<'_>, &mut String),
}

named_column!(Field);

const fn field(name: &'static str, width: i16, render: fn(&Row<'_>, &mut String)) -> Field {
    Field { name, width, render }
}

/// In the order of `--helpformat`. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static FIELDS: &[Field] = &[
    field("Account", -20, |r, c| push!(c, "{:indent$}{}", "", r.share.association.account, indent = r.indent)),
    field("Cluster", 10, |r, c| c.push_str(&r.view.cluster)),
    field("EffectvUsage", 13, |r, c| push!(c, "{:.6}", if r.view.basic { 0.0 } else { r.share.effective_usage })),
    field("FairShare", 10, |r, c| number(c, r.share.fair_share.map(|f| if r.view.basic { 0.0 } else { f }))),
    field("GrpTRESMins", 30, |r, c| push!(c, "{}", r.share.association.limits.group_tres_minutes)),
    field("GrpTRESRaw", 30, |r, c| every_tres(c, r.view, |kind| r.share.raw_usage.minutes(kind))),
    field("ID", 6, |r, c| push!(c, "{}", r.share.id)),
    field("LevelFS", 10, level),
    field("NormShares", 11, |r, c| number(c, Some(r.share.shares).filter(|_| !r.view.basic))),
    field("NormUsage", 11, |r, c| number(c, r.share.usage.filter(|_| !r.view.basic))),
    field("Partition", 12, |r, c| c.push_str(r.share.association.partition.as_deref().unwrap_or(""))),
    field("RawShares", 10, |r, c| if r.share.depth > 0 { push!(c, "{}", r.share.association.shares) }),
    field("RawUsage", 11, |r, c| push!(c, "{}", r.share.raw_usage.billing_s() as u64)),
    field("TRESRunMins", 30, |r, c| every_tres(c, r.view, |kind| r.share.run_minutes.amount(kind))),
    field("User", 10, |r, c| c.push_str(r.share.association.user.as_deref().unwrap_or(""))),
];

const DEFAULT: &[&str] =
    &["Account", "User", "RawShares", "NormShares", "RawUsage", "EffectvUsage", "FairShare"];
#[rustfmt::skip]
const LONG: &[&str] = &[
    "Account", "User", "RawShares", "NormShares", "RawUsage", "NormUsage", "EffectvUsage", "FairShare", "LevelFS",
    "GrpTRESMins", "TRESRunMins",
];

fn number(cell: &mut String, value: Option<f64>) {
    if let Some(value) = value {
        push!(cell, "{value:.6}");
    }
}

/// LevelFS. The root, and an association with its parent's shares, have none.
fn level(row: &Row<'_>, cell: &mut String) {
    let inherits = matches!(row.share.association.shares, Shares::Parent(_));
    match row.share.level {
        _ if inherits => {}
        // Under `priority/basic` Slurm prints zero for all.
        _ if row.view.basic => cell.push_str("0.000000"),
        _ if row.share.depth == 0 => {}
        Some(level) => push!(cell, "{level:.6}"),
        None => cell.push_str("inf"),
    }
}

/// All resources that the cluster counts, with zeros.
fn every_tres(cell: &mut String, view: &SharesView, amount: impl Fn(&TresKind) -> u64) {
    for (at, kind) in counted_kinds(&view.gres).into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        push!(cell, "{comma}{kind}={}", amount(&kind));
    }
}

/// The resources that a cluster with these generic resources counts.
pub fn counted_kinds(gres: &[String]) -> Vec<TresKind> {
    let always = [
        TresKind::Cpu,
        TresKind::Mem,
        TresKind::Energy,
        TresKind::Node,
        TresKind::Billing,
        TresKind::FsDisk,
        TresKind::Vmem,
        TresKind::Pages,
    ];
    always.into_iter().chain(gres.iter().map(|name| TresKind::gres(name, None))).collect()
}

/// The names of all columns, four on a line.
pub fn help() -> String {
    let mut out = String::new();
    for (at, field) in FIELDS.iter().enumerate() {
        if at > 0 {
            out.push(if at % 4 == 0 { '\n' } else { ' ' });
        }
        push!(out, "{:<17}", field.name);
    }
    out.push('\n');
    out
}

pub fn show(
    out: &mut impl io::Write,
    view: &SharesView,
    options: &Options,
) -> Result<(), SshareError> {
    let columns = columns(options)?;
    let table = Table { columns: &columns, layout: &options.layout };
    let mut text = String::new();
    if !options.no_header {
        table.push_header(&mut text);
    }
    for share in view.rows.iter().filter(|share| is_shown(share, options)) {
        let row = Row { share, view, indent: indent(share, options) };
        table.push_line(&mut text, |field, cell| (field.render)(&row, cell));
    }
    Ok(out.write_all(text.as_bytes())?)
}

fn columns(options: &Options) -> Result<Vec<ChosenColumn<Field>>, SshareError> {
    if let Some(format) = &options.format {
        return field_table::parse(FIELDS, format)
            .map_err(|unknown| SshareError::UnknownField(unknown.0));
    }
    let mut names = if options.long { LONG.to_vec() } else { DEFAULT.to_vec() };
    if options.partition {
        names.insert(2, "Partition");
    }
    Ok(field_table::default_columns(FIELDS, &names))
}

/// Whether the options choose an association.
pub fn is_shown(share: &ShareView, options: &Options) -> bool {
    let association = &share.association;
    let account = options.accounts.is_empty() || options.accounts.contains(&association.account);
    let user = match &association.user {
        None => !options.users_only,
        Some(user) => options.users.as_ref().is_none_or(|users| users.contains(user)),
    };
    account && user
}

/// The indent of a row: its depth below the root. If accounts were named, only their users are indented.
fn indent(share: &ShareView, options: &Options) -> usize {
    match (options.users_only, options.accounts.is_empty()) {
        (true, _) => 0,
        (false, true) => share.depth as usize,
        (false, false) => usize::from(share.association.user.is_some()),
    }
}

#[cfg(test)]
mod tests;
