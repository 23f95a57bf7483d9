//! The commands of a task as one script.
//!
//! dstack hands its shell the commands joined by ` && `. The promise is kept, each command runs only if
//! the one before ended well, but each stands on lines of its own: so a command may end in a comment, a
//! here-document or `&`, and `set -e` holds inside every one of them, where ` && ` would switch it off.

use crate::configuration::task::Shell;
use model::shell::quoted;

/// The shells that have `$?` and `[`.
const POSIX: &[&str] = &["sh", "bash", "dash", "ksh", "zsh", "ash", "busybox"];

/// Ends the script with the status of a command that failed. The empty line before it keeps a
/// backslash at the end of the command from swallowing it.
const CHECK: &str =
    "\n\ndstack_status=$?; [ \"$dstack_status\" -eq 0 ] || exit \"$dstack_status\"\n\n";

pub fn script(shell: &Shell, commands: &[String]) -> String {
    format!("#!{}\n\n{}\n", shell.0, joined(shell, commands))
}

fn joined(shell: &Shell, commands: &[String]) -> String {
    let separator = if is_posix(shell) { CHECK } else { " && " };
    let commands: Vec<&str> = commands.iter().map(|command| command.trim()).collect();
    commands.join(separator)
}

/// Words in place of a shell with commands: the first is the program.
pub fn of_words(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("#!/bin/sh\n\nexec {}\n", words.join(" "))
}

/// Starts a Docker daemon in the container and waits until it answers. It is told that its root is a user namespace's: it then
/// leaves control groups as they are, which are the job's.
pub const START_DOCKER: &str = r#"dockerd --rootless >/var/log/dockerd.log 2>&1 &
dstack_dockerd=$!
until docker version >/dev/null 2>&1; do
  if ! kill -0 "$dstack_dockerd" 2>/dev/null; then
    echo "dockerd has ended:" >&2
    tail -n 20 /var/log/dockerd.log >&2
    exit 1
  fi
  sleep 0.2
done"#;

/// Whether the shell has `$?`, `[` and `if`.
pub fn is_posix(shell: &Shell) -> bool {
    POSIX.contains(&shell.0.rsplit('/').next().unwrap_or_default())
}

/// The commands of several groups of nodes, each with the rank after its last node: a node runs those of its own group.
pub fn of_groups(shell: &Shell, groups: &[(u32, &[String])]) -> String {
    let mut text = format!("#!{}\n\n", shell.0);
    for (at, (end, commands)) in groups.iter().enumerate() {
        let word = if at == 0 { "if" } else { "elif" };
        let commands = joined(shell, commands);
        text.push_str(&format!(
            "{word} [ \"$DSTACK_NODE_RANK\" -lt {end} ]; then\n\n{commands}\n\n"
        ));
    }
    text + "fi\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn run(commands: &[&str]) -> (String, Option<i32>) {
        let commands: Vec<String> = commands.iter().map(|c| c.to_string()).collect();
        let text = script(&Shell("/bin/sh".into()), &commands);
        let output = Command::new("/bin/sh").arg("-c").arg(text).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        (said.replace('\n', ";"), output.status.code())
    }

    #[test]
    fn a_command_runs_only_if_the_one_before_ended_well() {
        let cases: [(&[&str], &str, i32); 11] = [
            (&["echo a", "echo b"], "a;b;", 0),
            (&["echo a", "false", "echo b"], "a;", 1),
            (&["exit 7"], "", 7),
            (&["(exit 3)", "echo b"], "", 3),
            (&["(exit 3)"], "", 3),
            (&["cd /", "pwd"], "/;", 0),
            (&["X=1\necho $X\n", "echo $X # last"], "1;1;", 0),
            (&["echo a # note", "cat <<E\nb\nE", "echo c"], "a;b;c;", 0),
            (&["true &", "wait", "echo d"], "d;", 0),
            (&["echo a \\\n  b \\", "echo c"], "a b;c;", 0),
            (&["set -e\nfalse\necho no", "echo no"], "", 1),
        ];
        for (commands, said, code) in cases {
            assert_eq!(run(commands), (said.to_owned(), Some(code)), "{commands:?}");
        }
    }

    #[test]
    fn each_node_runs_the_commands_of_its_group() {
        let own = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
        let (head, rest) = (own(&["echo head # note", "exit 3"]), own(&["cat <<E\nrest\nE"]));
        let groups = [(1, &head[..]), (3, &rest[..])];
        let text = of_groups(&Shell("/bin/sh".into()), &groups);
        for (rank, said, code) in [("0", "head\n", 3), ("1", "rest\n", 0), ("2", "rest\n", 0)] {
            let mut shell = Command::new("/bin/sh");
            let output = shell.args(["-c", &text]).env("DSTACK_NODE_RANK", rank).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), said);
            assert_eq!(output.status.code(), Some(code));
        }
    }

    #[test]
    fn an_unknown_shell_gets_the_commands_as_dstack_joins_them() {
        let commands = ["echo a\n".to_owned(), "echo b".to_owned()];
        let text = script(&Shell("/usr/bin/fish".into()), &commands);
        assert_eq!(text, "#!/usr/bin/fish\n\necho a && echo b\n");
    }
}
