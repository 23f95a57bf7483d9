//! `sluice token`: makes join files for nodes and tokens for users, lists and revokes them.

mod list;
mod secret_file;

use super::daemon::admin_token;
use super::program_name::program_name;
use super::verb::{ServerLocationArgs, VerbError, VerbResult, ask, unexpected};
use clap::{Args, Subcommand, ValueEnum};
use model::hostlist;
use model::principal::Role;
use model::time::parse_duration;
use secret_file::SecretFile;
use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::token::{LoginHint, TokenLife};

#[derive(Args)]
pub struct TokenArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(subcommand)]
    action: TokenAction,
}

#[derive(Subcommand)]
enum TokenAction {
    /// Make a join file for a node (or a host list of nodes on one machine), good once; or for many machines
    Node {
        #[arg(required_unless_present = "pattern", conflicts_with = "pattern")]
        name: Option<String>,
        /// For every machine whose name is in this host list, as gpu[001-100], once each: for images
        #[arg(long, value_name = "HOSTS")]
        pattern: Option<String>,
        /// How many machines may join with it [default: as many as the pattern has names]
        #[arg(long, value_name = "N", requires = "pattern", value_parser = clap::value_parser!(u32).range(1..))]
        count: Option<u32>,
        /// Machines that no configuration file names may become nodes with it: `sluice agent --dynamic`
        #[arg(long, requires = "pattern")]
        dynamic: bool,
        /// Write it to this new file, which only you can read, instead of printing it
        #[arg(long)]
        out: Option<PathBuf>,
        /// How long it may wait to be used, as in 2h or 7d [default: 1d]
        #[arg(long, value_name = "T", value_parser = life)]
        expires: Option<TokenLife>,
    },
    /// Make a token for a user of the HTTP port
    User {
        name: String,
        #[arg(long)]
        account: Option<String>,
        #[arg(long)]
        unix_user: Option<String>,
        /// The most that its holder may do: user, operator or admin; or gateway, of an operator's, for `sluice gateway` alone
        #[arg(long, value_parser = role)]
        role: Option<Role>,
        /// The token's own name, by which it is listed and revoked
        #[arg(long = "name", value_name = "TOKEN")]
        token_name: Option<String>,
        /// How long it is good for, as in 12h or 30d, or never [default: 90d]
        #[arg(long, value_name = "T", value_parser = life)]
        expires: Option<TokenLife>,
        /// Write it to this new file, which only you can read, instead of printing it
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// List your tokens; an administrator sees all, and join tokens that wait
    List {
        /// Also those that have expired or were revoked
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token by its name: it is refused from now on
    Revoke {
        name: String,
        /// The token's user; without it, yourself
        #[arg(long)]
        user: Option<String>,
    },
    /// Replace a token by a new one in the same file: the old one is refused from now on
    Rotate { which: Rotated },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Rotated {
    Admin,
}

fn role(text: &str) -> Result<Role, String> {
    let found = Role::ALL.into_iter().find(|role| role.word() == text);
    found.ok_or_else(|| "expected user, operator, admin or gateway".into())
}

fn life(text: &str) -> Result<TokenLife, String> {
    if text == "never" {
        return Ok(TokenLife::Never);
    }
    match parse_duration(text) {
        Ok(Some(life)) if !life.is_zero() => Ok(TokenLife::Seconds(life.as_secs())),
        _ => Err("expected a whole number with s, m, h, d or w, as in 90d, or never".into()),
    }
}

pub fn run(args: TokenArgs) -> VerbResult {
    let TokenArgs { server, action } = args;
    match action {
        TokenAction::Node { name, pattern, count, dynamic, out, expires } => {
            let life = expires.unwrap_or_default();
            let mut named = Vec::new();
            let (call, to) = match (name, pattern) {
                (_, Some(pattern)) => {
                    (Call::GroupToken { pattern: pattern.clone(), count, dynamic, life }, pattern)
                }
                (name, None) => {
                    let name = name.unwrap_or_default();
                    let nodes =
                        hostlist::expand(&name).map_err(|e| VerbError::Message(e.to_string()))?;
                    named.clone_from(&nodes);
                    (Call::NodeToken { nodes, life }, name)
                }
            };
            let dynamic = if dynamic { " --dynamic" } else { "" };
            make(&server, call, out.clone(), |text| {
                // A person pastes it on the node; a script makes a file of it.
                if std::io::stdout().is_terminal() {
                    paste_line(text, dynamic)
                } else {
                    text.to_owned()
                }
            })?;
            // The token of a pattern is for nodes without a certificate alone.
            if !named.is_empty() {
                note_connected(&server, &named)?;
            }
            if let Some(file) = out {
                let file = file.display();
                println!("copy {file} to {to}, and there: sluice agent --join {file}{dynamic}");
            }
        }
        TokenAction::User { name, account, unix_user, role, token_name, expires, out } => {
            let life = expires.unwrap_or_default();
            let user = unix_user.clone().unwrap_or_else(|| name.clone());
            let call = Call::UserToken { name, account, unix_user, role, token_name, life };
            if make(&server, call, out, str::to_owned)? {
                let program = program_name();
                eprintln!(
                    "{program}: note: the server's machine has no user {user:?}: the token is refused until it has one"
                );
            }
        }
        TokenAction::List { all, json } => {
            let mut tokens = match ask(&mut server.client()?, Call::Tokens)? {
                Answer::Tokens(tokens) => tokens,
                other => return Err(unexpected(&other)),
            };
            list::select(&mut tokens, all);
            print!("{}", if json { list::json(&tokens) } else { list::table(&tokens) });
        }
        TokenAction::Revoke { name, user } => {
            let call = Call::RevokeToken { name: name.clone(), user };
            match ask(&mut server.client()?, call)? {
                Answer::Done => println!("token {name} is revoked"),
                other => return Err(unexpected(&other)),
            }
        }
        TokenAction::Rotate { which: Rotated::Admin } => {
            let file = admin_token::rotate(&server.state_dir())?;
            println!("the administrator's token is a new one, in {}", file.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says which of these nodes have an agent that is connected, and what a join with the token does to it.
fn note_connected(server: &ServerLocationArgs, nodes: &[String]) -> Result<(), VerbError> {
    // The token is made: that nothing can be said of the agents is no error.
    let Ok(Answer::Agents(agents)) = ask(&mut server.client()?, Call::Agents) else {
        return Ok(());
    };
    let connected = agents.iter().filter(|agent| agent.connected.is_some());
    let connected: BTreeSet<&str> = connected.map(|agent| agent.node.as_str()).collect();
    let nodes: Vec<&String> =
        nodes.iter().filter(|node| connected.contains(node.as_str())).collect();
    if nodes.is_empty() {
        return Ok(());
    }
    let has = if nodes.len() == 1 { "has" } else { "have" };
    let (program, nodes) = (program_name(), hostlist::compress(nodes));
    eprintln!(
        "{program}: note: {nodes} {has} an agent that is connected: a machine that joins with this token takes its place. \
         The agent that is there is refused from then on, and its jobs run on unseen beside what is requeued: end them and \
         stop it first"
    );
    Ok(())
}

/// Makes a token, and prints it or writes it. Returns whether nobody is known by the name of its user.
fn make(
    server: &ServerLocationArgs,
    call: Call,
    out: Option<PathBuf>,
    shown: impl FnOnce(&str) -> String,
) -> Result<bool, VerbError> {
    // Made before the token is: no token is left over that nobody has.
    let file = out.map(SecretFile::make).transpose()?;
    if file.is_none() {
        secret_file::close_to_others(std::io::stdout())
            .map_err(VerbError::file("standard output"))?;
    }
    let (text, login, user_unknown) = match ask(&mut server.client()?, call)? {
        Answer::Token { text, login, user_unknown } => (text, login, user_unknown),
        other => return Err(unexpected(&other)),
    };
    match file {
        Some(file) => file.write(&text)?,
        None => println!("{}", shown(text.trim_end())),
    }
    // Not on standard output, which is the token and may be a file.
    if let Some(LoginHint { url, fingerprint, loopback }) = login {
        let fingerprint = fingerprint.map(|f| format!(" --fingerprint {f}")).unwrap_or_default();
        if loopback {
            eprintln!(
                "to use it on this machine: SLUICE_SERVER={url} and the token in SLUICE_TOKEN"
            );
            eprintln!(
                "from others, once the server is started with --listen 0.0.0.0:PORT: sluice login https://HOST:PORT{fingerprint}"
            );
        } else {
            eprintln!("to use it from another machine: sluice login {url}{fingerprint}");
        }
    }
    Ok(user_unknown)
}

/// A line of shell that writes the join file, for its owner alone, and starts the agent with it.
fn paste_line(join_file: &str, options: &str) -> String {
    let quoted = join_file.replace('\'', r"'\''");
    format!(
        "(umask 077; printf '%s\\n' '{quoted}' > node.join) && sluice agent --join node.join{options}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_to_paste_writes_the_join_file_as_it_is() {
        let dir = tempfile::tempdir().expect("a folder");
        let text = r#"{"token":"a'b","authority":"-----BEGIN\n%s"}"#;
        let line = paste_line(text, " --dynamic");
        let (writes, starts) = line.split_once(" && ").expect("two commands");
        assert_eq!(starts, "sluice agent --join node.join --dynamic");
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", writes]).current_dir(&dir).status().expect("a shell").success());
        let file = dir.path().join("node.join");
        assert_eq!(std::fs::read_to_string(&file).expect("written"), format!("{text}\n"));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&file).expect("there").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn lives_are_durations_or_never() {
        assert_eq!(life("90d"), Ok(TokenLife::Seconds(90 * 24 * 3600)));
        assert_eq!(life("30"), Ok(TokenLife::Seconds(30)));
        assert_eq!(life("never"), Ok(TokenLife::Never));
        for wrong in ["0", "0d", "off", "", "soon", "-1d", "1.5d"] {
            assert!(life(wrong).is_err(), "{wrong}");
        }
    }
}
