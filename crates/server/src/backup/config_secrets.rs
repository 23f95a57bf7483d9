//! Configuration files without their passwords, for a backup without keys: an administrator with a token gets that from anywhere.

/// What stands for a value that is left out.
const LEFT_OUT: &str = "(left out)";

/// How the name of a key ends whose value is a secret. Keys whose value is the path of a file are none.
const SECRET_KEYS: [&str; 8] =
    ["pass", "password", "passwd", "secret", "token", "credential", "credentials", "jwtkey"];

/// Whether a file is there for its password. Slurm's own is readable by its user alone.
pub fn is_secret_file(name: &str) -> bool {
    name.eq_ignore_ascii_case("slurmdbd.conf")
}

/// The text with the value of every key that names a secret left out, to the end of its line. `None` where it cannot be told
/// how far such a value goes.
pub fn without_secrets(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut shown = String::with_capacity(text.len());
    // A line that ends in a backslash goes on in the next.
    let mut continues = false;
    for line in text.lines() {
        if continues {
            continues = line.ends_with('\\');
            continue;
        }
        match secret_value(line) {
            None => shown.push_str(line),
            Some(at) if goes_on(line[at..].trim()) => return None,
            Some(at) => {
                continues = line.ends_with('\\');
                shown.push_str(&line[..at]);
                shown.push_str(LEFT_OUT);
            }
        }
        shown.push('\n');
    }
    Some(shown.into_bytes())
}

/// Where in a line the value of the first key begins that names a secret, in a comment too.
fn secret_value(line: &str) -> Option<usize> {
    let is_secret = |at: &usize| {
        let before = line[..*at].trim_end();
        let is_part = |c: char| c.is_alphanumeric() || "_-\"'".contains(c);
        let start = before.char_indices().rev().take_while(|(_, c)| is_part(*c)).last();
        start.is_some_and(|(start, _)| names_a_secret(&before[start..]))
    };
    line.match_indices('=').map(|(at, _)| at).find(is_secret).map(|at| at + 1)
}

fn names_a_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let key = key.trim_matches(['"', '\'']);
    SECRET_KEYS.iter().any(|end| key.ends_with(end))
}

/// Whether a value of TOML may go on in the next line.
fn goes_on(value: &str) -> bool {
    let opens =
        |open: char, close: char| value.matches(open).count() > value.matches(close).count();
    let is_long = ["\"\"\"", "'''"].iter().any(|quote| value.starts_with(quote));
    is_long || opens('[', ']') || opens('{', '}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        without_secrets(text.as_bytes()).map(|text| String::from_utf8(text).expect("text"))
    }

    #[test]
    fn passwords_are_left_out_and_all_else_stays() {
        let conf = "ClusterName=a\n# StoragePass=old\nJobCompPass = hunter2 # x\n\
                    AuthAltParameters=jwt_key=/etc/key\naccountingstoragepass=a\\\nb\\\nc\n\
                    NodeName=n1 CPUs=4\nJwtKey=zzz\n";
        let expected = "ClusterName=a\n# StoragePass=(left out)\nJobCompPass =(left out)\n\
                        AuthAltParameters=jwt_key=/etc/key\naccountingstoragepass=(left out)\n\
                        NodeName=n1 CPUs=4\nJwtKey=(left out)\n";
        assert_eq!(shown(conf).as_deref(), Some(expected));
        let toml = "[registry]\nuser = \"u\"\n\"password\" = \"hunter2\"\n";
        let expected = "[registry]\nuser = \"u\"\n\"password\" =(left out)\n";
        assert_eq!(shown(toml).as_deref(), Some(expected));
        for long in ["token = \"\"\"\nx\n\"\"\"\n", "token = [\n\"x\"\n]\n", "secret = {a =\nx}\n"]
        {
            assert_eq!(shown(long), None, "{long}");
        }
        assert!(without_secrets(b"\xff").is_none(), "what is no text cannot be looked through");
        assert!(is_secret_file("slurmdbd.conf") && !is_secret_file("slurm.conf"));
    }
}
