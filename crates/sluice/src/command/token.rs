//! `sluice token`: a one-time join file for a node, or a token for a user.

use super::verb::{ServerLocationArgs, VerbError, VerbResult};
use clap::{Args, Subcommand};
use model::principal::Role;
use std::process::ExitCode;
use wire::client::{Answer, Call};

#[derive(Args)]
pub struct TokenArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(subcommand)]
    kind: TokenKind,
}

#[derive(Subcommand)]
enum TokenKind {
    /// A join file for a node (or a host list of nodes on one machine); good once
    Node { name: String },
    /// A token for a user of the HTTP port
    User {
        name: String,
        #[arg(long)]
        account: Option<String>,
        #[arg(long)]
        unix_user: Option<String>,
        /// user, operator or admin
        #[arg(long, value_parser = role)]
        role: Option<Role>,
    },
}

fn role(text: &str) -> Result<Role, String> {
    match text {
        "user" => Ok(Role::User),
        "operator" => Ok(Role::Operator),
        "admin" => Ok(Role::Admin),
        _ => Err("expected user, operator or admin".into()),
    }
}

pub fn run(args: TokenArgs) -> VerbResult {
    let call = match args.kind {
        TokenKind::Node { name } => {
            let nodes =
                model::hostlist::expand(&name).map_err(|e| VerbError::Message(e.to_string()))?;
            Call::NodeToken { nodes }
        }
        TokenKind::User { name, account, unix_user, role } => {
            Call::UserToken { name, account, unix_user, role }
        }
    };
    match args.server.client()?.call(call)? {
        Answer::Token { text } => {
            println!("{}", text.trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Answer::Refused(why) => Err(why.into()),
        other => Err(VerbError::Message(format!("the server answered {other:?}"))),
    }
}
