//! Verbs and options of dstack's client that `sluice` does not have, each with what has its place here.
//!
//! Everything else of that client acts, or is told of by its name where it has no effect: the test goes through all of them.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A verb, or an option of it, that is refused.
struct Refused {
    /// `project add`; empty for the program itself.
    verb: &'static str,
    /// Empty where the whole verb is refused.
    options: &'static [&'static str],
    why: &'static str,
}

const fn verb(verb: &'static str, why: &'static str) -> Refused {
    Refused { verb, options: &[], why }
}

const fn option(
    verb: &'static str,
    options: &'static [&'static str],
    why: &'static str,
) -> Refused {
    Refused { verb, options, why }
}

const LISTEN: &str = "a server listens where --listen ADDR:PORT says";
const LOG_LEVEL: &str = "what the log tells is said by SLUICE_LOG";
const NO_QUESTION: &str = "a server asks nothing";
const OTHER_SERVER: &str =
    "another server is used with `sluice login URL`, its projects with --project NAME";
const AUTHORITY: &str =
    "a login asks about the server's authority alone: name it by --fingerprint or --ca";

const GATEWAY: &str = "a gateway is a process, which `sluice gateway` starts; dstack's own client lists those that run";

const REFUSED: &[Refused] = &[
    option("", &["-v"], "say -V or --version"),
    verb("export", "projects share nothing by exports: `sluice project add` makes members"),
    verb("import", "projects share nothing by imports: `sluice project add` makes members"),
    option("fleet", &["--id"], "fleets go by their names"),
    option(
        "gateway",
        &["--project", "-w", "--watch", "-v", "--verbose", "--format", "--json"],
        GATEWAY,
    ),
    verb("gateway list", GATEWAY),
    verb("gateway get", GATEWAY),
    verb("gateway update", GATEWAY),
    verb("gateway delete", GATEWAY),
    verb(
        "init",
        "a repository is named by `repos` in its configuration, and brought along by `sluice apply`",
    ),
    option("login", &["-p", "--provider"], "there is no single sign-on: a token is asked for"),
    option("login", &["-y", "--yes", "-n", "--no"], AUTHORITY),
    verb("preset", "presets are made and read by dstack's own client only"),
    option("project add", &["--name", "--url", "--token"], OTHER_SERVER),
    option("project add", &["-y", "--yes", "-n", "--no"], OTHER_SERVER),
    option(
        "project delete",
        &["--name"],
        "`sluice logout` forgets a server; `sluice project delete NAME` removes the project itself",
    ),
    verb("project set-default", "the project of a command is said by --project or DSTACK_PROJECT"),
    option("server", &["--host", "-p", "--port"], LISTEN),
    option("server", &["-d", "--debug", "-l", "--log-level"], LOG_LEVEL),
    option("server", &["-y", "--yes", "-n", "--no"], NO_QUESTION),
    option("server", &["--token"], "the administrator's token is made by the server: admin.token"),
];

/// Why this command line, which could not be read, names something of dstack's client that is not here. `None` for any other
/// mistake.
pub fn refusal(words: &[String], error: &Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return None,
    };
    let Some(ContextValue::String(unknown)) = error.get(kind) else { return None };
    let unknown = unknown.split(['=', ' ']).next().unwrap_or_default();
    let is_meant = |refused: &&Refused| match refused.options {
        [] => {
            let parts: Vec<&str> = refused.verb.split(' ').collect();
            parts.last() == Some(&unknown) && begins_with(words, refused.verb)
        }
        options => options.contains(&unknown) && begins_with(words, refused.verb),
    };
    let Refused { verb, why, .. } = REFUSED.iter().find(is_meant)?;
    let is_option = unknown.starts_with('-');
    let named = match (verb.is_empty(), is_option) {
        (true, _) => unknown.to_owned(),
        (false, true) => format!("{verb}: {unknown}"),
        (false, false) => (*verb).to_owned(),
    };
    Some(format!("{named}: {why}"))
}

/// Whether the command line is one of this verb, whatever options stand between its words.
fn begins_with(words: &[String], verb: &str) -> bool {
    let mut operands = words.iter().map(String::as_str).filter(|word| !word.starts_with('-'));
    let mut parts = verb.split(' ').filter(|part| !part.is_empty());
    operands.next() == parts.next() && parts.all(|part| operands.any(|word| word == part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::command_line;
    use clap::Command;

    /// Every verb of dstack's client 0.22.5, with its options as its help lists them; `-h` and `--help` are everywhere.
    const PUBLISHED: &[(&str, &str)] = &[
        ("", "-v --version"),
        ("apply", "--project -f --file -y --yes --force -d --detach -v --verbose"),
        ("attach", "--project --ssh-identity --logs --host -p --port --replica --job --since"),
        ("delete", "--project -f --file -y --yes"),
        ("event", EVENT),
        ("event list", EVENT),
        ("export", "--project"),
        ("export create", "--importer --fleet --gateway --global"),
        ("export list", ""),
        (
            "export update",
            "--add-importer --remove-importer --add-fleet --remove-fleet \
             --add-gateway --remove-gateway --set-global --unset-global",
        ),
        ("export delete", "-y --yes"),
        ("fleet", "--project -w --watch -v --verbose"),
        ("fleet list", "-w --watch -v --verbose"),
        ("fleet get", "--id --json"),
        ("fleet delete", "-i --instance -y --yes"),
        ("gateway", "--project -w --watch -v --verbose --format --json"),
        ("gateway list", "-w --watch -v --verbose --format --json"),
        ("gateway get", "--json"),
        ("gateway update", "--set-default --domain"),
        ("gateway delete", "-y --yes"),
        ("import", "--project"),
        ("import list", ""),
        ("import delete", "-y --yes"),
        ("init", "--project -P --repo -t --token --git-identity"),
        ("login", "--url -p --provider -y --yes -n --no"),
        ("logs", "--project -d --diagnose --replica --job --since"),
        ("metrics", "--project -w --watch --replica --job"),
        ("offer", OFFER),
        ("preset", "--project -v --verbose -w --watch --json -a --all -n --last --base --repo"),
        ("preset list", "-v --verbose -w --watch --json -a --all -n --last --base --repo"),
        ("preset get", "--json"),
        ("preset create", "-f --file -n --name --keep-service --trials --previous -y --yes"),
        ("preset delete", "--base --repo -y --yes"),
        ("project", "-v --verbose"),
        ("project add", "--name --url --token -y --yes -n --no"),
        ("project list", "-v --verbose"),
        ("project set-default", ""),
        ("project delete", "--name -y --yes"),
        ("ps", "--project -a --all -v --verbose -w --watch -n --last --format --json"),
        ("run", "--project"),
        ("run get", "--id --json"),
        ("secret", "--project"),
        ("secret list", ""),
        ("secret set", ""),
        ("secret get", ""),
        ("secret delete", "-y --yes"),
        ("server", "--host -p --port -d --debug -l --log-level -y --yes -n --no --token"),
        ("stop", "--project -x --abort -y --yes"),
        ("volume", "--project -w --watch -v --verbose"),
        ("volume list", "-w --watch -v --verbose"),
        ("volume get", "--json"),
        ("volume delete", "-y --yes"),
        ("completion", ""),
    ];

    const EVENT: &str = "--project -w --watch --since --target-fleet --target-run --target-volume --target-gateway \
        --target-secret --within-fleet --within-run --within-gateway --include-target-type";

    const OFFER: &str = "--project --format --json --group-by --max-offers --full-offers --unallocated --cpu --gpu \
        --memory --disk --profile --no-profile --max-price --max-duration -b --backend -r --region --instance-type \
        --fleet -R --reuse --dont-destroy --idle-duration --spot --on-demand --spot-auto --spot-policy --retry \
        --no-retry --retry-duration";

    /// The verb, or the nearest above it where its last word is an operand here.
    fn find<'c>(program: &'c Command, verb: &str) -> Option<&'c Command> {
        let mut words = verb.split(' ').filter(|word| !word.is_empty());
        let Some(first) = words.next() else { return Some(program) };
        let mut found = program.find_subcommand(first)?;
        for word in words {
            found = found.find_subcommand(word).unwrap_or(found);
        }
        Some(found)
    }

    fn has(command: &Command, option: &str) -> bool {
        command.get_arguments().any(|arg| match option.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => arg.get_short().map(|letter| format!("-{letter}")).as_deref() == Some(option),
        })
    }

    /// Why this line is refused; `None` where it is read, or wrong in another way.
    fn said(line: &str) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let whole = std::iter::once("sluice".to_owned()).chain(words.clone());
        let error = command_line::of_sluice().try_get_matches_from(whole).err()?;
        refusal(&words, &error)
    }

    #[test]
    fn every_verb_and_option_of_dstacks_client_acts_or_is_refused_by_its_name() {
        let mut program = command_line::of_sluice();
        program.build();
        for (verb, options) in PUBLISHED {
            let whole_verb = said(verb);
            if whole_verb.is_none() {
                assert!(find(&program, verb).is_some(), "{verb}: expected a verb, or a refusal");
            }
            for option in options.split_whitespace() {
                let acts = find(&program, verb).is_some_and(|found| has(found, option));
                let refused = said(&format!("{verb} {option}"));
                assert!(acts != refused.is_some(), "{verb} {option}: {acts}, {refused:?}");
                if let Some(why) = refused {
                    let is_named = whole_verb.is_some() || why.contains(option);
                    assert!(is_named && why.lines().count() == 1, "{verb} {option}: {why}");
                }
            }
        }
    }

    #[test]
    fn refusal_says_what_has_the_place_of_an_option() {
        let table = [
            ("server --port 3000", "server: --port: a server listens"),
            ("server --port=3000", "server: --port: a server listens"),
            ("gateway list", "gateway list: a gateway is a process"),
            ("gateway --json", "gateway: --json: a gateway is a process"),
            (
                "project add --name main --url http://a --token t",
                "project add: --name: another server",
            ),
            ("project set-default main", "project set-default: the project of a command"),
            ("project delete --name main", "project delete: --name: `sluice logout`"),
        ];
        for (line, begin) in table {
            let said = said(line).unwrap_or_else(|| panic!("{line}: not refused"));
            assert!(said.starts_with(begin), "{line}: {said}");
        }
        for other in ["gatway", "ps --nosuch", "volume frobnicate", "ps"] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}
