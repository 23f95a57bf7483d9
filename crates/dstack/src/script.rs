//! The commands of a task as one script.
//!
//! dstack hands its shell the commands joined by ` && `. The promise is kept, each command runs only if
//! the one before ended well, but each stands on lines of its own: so a command may end in a comment, a
//! here-document or `&`, and `set -e` holds inside every one of them, where ` && ` would switch it off.

use crate::configuration::task::Shell;

/// The shells that have `$?` and `[`.
const POSIX: &[&str] = &["sh", "bash", "dash", "ksh", "zsh", "ash", "busybox"];

/// Ends the script with the status of a command that failed. The empty line before it keeps a
/// backslash at the end of the command from swallowing it.
const CHECK: &str =
    "\n\ndstack_status=$?; [ \"$dstack_status\" -eq 0 ] || exit \"$dstack_status\"\n\n";

pub fn script(shell: &Shell, commands: &[String]) -> String {
    let shell_name = shell.0.rsplit('/').next().unwrap_or_default();
    let separator = if POSIX.contains(&shell_name) { CHECK } else { " && " };
    let commands: Vec<&str> = commands.iter().map(|command| command.trim()).collect();
    format!("#!{}\n\n{}\n", shell.0, commands.join(separator))
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
    fn an_unknown_shell_gets_the_commands_as_dstack_joins_them() {
        let commands = ["echo a\n".to_owned(), "echo b".to_owned()];
        let text = script(&Shell("/usr/bin/fish".into()), &commands);
        assert_eq!(text, "#!/usr/bin/fish\n\necho a && echo b\n");
    }
}
