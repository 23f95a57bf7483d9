//! What `sluice token list` prints.

use crate::command::verb::in_columns;
use jiff::tz::TimeZone;
use model::principal::TokenStatus;
use model::printable::printable;
use model::time::{Timestamp, format_iso};
use wire::token::{TokenOf, TokenView};

const HEAD: [&str; 6] = ["NAME", "FOR", "MAY", "MADE", "EXPIRES", "LAST USE"];

/// Leaves out what has ended, unless `all`, and puts the rest in order: by whom they are for, then by name.
pub fn select(tokens: &mut Vec<TokenView>, all: bool) {
    tokens.retain(|token| all || token.status == TokenStatus::Good);
    tokens.sort_by_cached_key(|token| (is_for(token), token.name.clone(), token.made));
}

pub fn json(tokens: &[TokenView]) -> String {
    serde_json::to_string_pretty(tokens).unwrap_or_default() + "\n"
}

pub fn table(tokens: &[TokenView]) -> String {
    let zone = timezone::local();
    let mut lines = vec![HEAD.map(String::from)];
    lines.extend(tokens.iter().map(|token| row(token, &zone)));
    in_columns(&lines)
}

fn row(token: &TokenView, zone: &TimeZone) -> [String; 6] {
    let time = |at: Option<Timestamp>, without: &str| {
        at.map_or_else(|| without.to_string(), |at| format_iso(at, zone))
    };
    let may = match &token.of {
        TokenOf::User { limit, .. } => limit.map_or("all", |role| role.word()).to_owned(),
        TokenOf::Nodes(_) => "join".into(),
        TokenOf::Group { count, used, dynamic: true, .. } => format!("join {used}/{count} dynamic"),
        TokenOf::Group { count, used, .. } => format!("join {used}/{count}"),
    };
    let expires = match token.status {
        TokenStatus::Good => time(token.expires, "never"),
        TokenStatus::Expired => "expired".into(),
        TokenStatus::Revoked => "revoked".into(),
    };
    [
        printable(&token.name).into_owned(),
        printable(&is_for(token)).into_owned(),
        may,
        time(token.made, "-"),
        expires,
        time(token.last_use, "-"),
    ]
}

fn is_for(token: &TokenView) -> String {
    match &token.of {
        TokenOf::User { name, .. } => name.clone(),
        TokenOf::Nodes(nodes) => model::hostlist::compress(nodes),
        TokenOf::Group { pattern, .. } => pattern.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::principal::Role;

    #[test]
    fn tokens_that_have_ended_are_listed_only_when_asked_for() {
        let token = |name: &str, status, limit| TokenView {
            name: name.into(),
            of: TokenOf::User { name: "ann".into(), limit },
            made: None,
            expires: None,
            last_use: None,
            status,
        };
        let nodes = ["n1", "n2"].map(String::from).to_vec();
        let join =
            TokenView { of: TokenOf::Nodes(nodes), ..token("join-1", TokenStatus::Good, None) };
        let pattern = "gpu[1-9]".into();
        let group = TokenOf::Group { pattern, count: 5, used: 2, dynamic: false };
        let group = TokenView { of: group, ..token("join-2", TokenStatus::Good, None) };
        let tokens = vec![
            join,
            group,
            token("old", TokenStatus::Revoked, None),
            token("ci", TokenStatus::Good, Some(Role::User)),
        ];
        let shown = |all| {
            let mut tokens = tokens.clone();
            select(&mut tokens, all);
            table(&tokens)
        };
        let lines = [
            "NAME    FOR       MAY       MADE  EXPIRES  LAST USE",
            "ci      ann       user      -     never    -",
            "old     ann       all       -     revoked  -",
            "join-2  gpu[1-9]  join 2/5  -     never    -",
            "join-1  n[1-2]    join      -     never    -",
        ];
        assert_eq!(shown(true), lines.join("\n") + "\n");
        assert!(!shown(false).contains("old"));
    }
}
