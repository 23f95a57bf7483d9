//! Tokens through the program: they are named, limited, listed, expire, are revoked, and survive restarts. Needs root.

use crate::harness::{Cluster, CommandOutput, TWO_NODES, until};
use std::os::unix::fs::MetadataExt;

const USER: &str = "games";
const OTHER: &str = "daemon";

struct Port {
    cluster: Cluster,
    server: String,
}

impl Port {
    fn up() -> Self {
        let cluster = Cluster::up(TWO_NODES);
        let ports = std::fs::read_to_string(cluster.state().join("ports.json")).unwrap();
        let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
        let server = format!("http://{}", ports["listen"].as_str().unwrap());
        Self { cluster, server }
    }

    /// A command that shows this token on the port.
    fn with(&self, token: &str, line: &str) -> CommandOutput {
        let server = &self.server;
        self.cluster.shell(&format!("SLUICE_SERVER={server} SLUICE_TOKEN={token} {line}"))
    }

    fn token(&self, args: &[&str]) -> String {
        let words: Vec<&str> = ["token", "user"].iter().chain(args).copied().collect();
        self.cluster.sluice(&words).ok().trim().to_string()
    }

    fn admin_token(&self) -> String {
        let text = std::fs::read_to_string(self.cluster.state().join("admin.token")).unwrap();
        text.trim().to_string()
    }

    fn list(&self, args: &str) -> String {
        self.cluster.shell(&format!("{} token list {args}", crate::harness::program())).ok()
    }

    fn assert_refused(&self, token: &str, words: &str) {
        let said = self.with(token, "squeue");
        assert_eq!(said.code, 1, "{said:?}");
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
        assert!(said.stderr.contains("401") && said.stderr.contains(words), "{}", said.stderr);
    }
}

/// The line of a listing that begins with this name, as words.
fn line<'a>(listing: &'a str, name: &str) -> Vec<&'a str> {
    let found = listing.lines().find(|l| l.split_whitespace().next() == Some(name));
    found.unwrap_or_else(|| panic!("{name} in\n{listing}")).split_whitespace().collect()
}

#[test]
fn root_tokens_are_named_listed_and_revoked_for_good() {
    let port = Port::up();
    let ci = port.token(&[USER, "--name", "ci", "--role", "user", "--expires", "30d"]);
    let forever = port.token(&[USER, "--name", "forever", "--expires", "never"]);
    port.with(&ci, "squeue").ok();
    let listed = port.list("");
    let words = line(&listed, "ci");
    assert_eq!(words[1..3], [USER, "user"], "{listed}");
    assert!(words[3..].iter().all(|time| time.starts_with("20")), "made, expires, used: {listed}");
    assert_eq!(line(&listed, "forever")[4..], ["never", "-"], "{listed}");
    assert_eq!(line(&listed, "admin")[1..3], ["root", "all"], "{listed}");
    let second = port.cluster.sluice(&["token", "user", USER, "--name", "ci"]);
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains("has a token ci already"), "{}", second.stderr);
    port.cluster.sluice(&["token", "revoke", "ci"]).ok();
    port.assert_refused(&ci, "this token was revoked");
    assert!(!port.list("").contains("ci "), "{}", port.list(""));
    assert_eq!(line(&port.list("--all"), "ci")[4], "revoked");
    port.cluster.kill("server");
    port.cluster.start();
    port.assert_refused(&ci, "this token was revoked");
    port.with(&forever, "squeue").ok();
    let guessed = port.with(&"0".repeat(64), "squeue").stderr;
    assert!(guessed.contains("needs a valid token"), "nothing is said of unknown ones: {guessed}");
    for secret in [&ci, &forever] {
        assert!(!port.list("--all --json").contains(secret.as_str()));
        let found =
            port.cluster.shell(&format!("grep -rl {secret} {}", port.cluster.state().display()));
        assert_eq!(found.stdout, "", "only hashes are kept");
    }
}

#[test]
fn root_expired_tokens_are_refused_and_say_so() {
    let port = Port::up();
    let short = port.token(&[USER, "--expires", "1s"]);
    until("it expires", || (port.with(&short, "squeue").code == 1).then_some(()));
    port.assert_refused(&short, "this token has expired");
    for wrong in ["0d", "soon", "off"] {
        let said = port.cluster.sluice(&["token", "user", USER, "--expires", wrong]);
        assert_eq!(said.code, 2, "{wrong}: {said:?}");
        assert!(said.stderr.contains("expected a whole number with s, m, h, d or w"), "{said:?}");
    }
}

#[test]
fn root_users_manage_their_own_tokens_and_none_beyond_their_right() {
    let port = Port::up();
    let sluice = crate::harness::program();
    let as_user = |user: &str, line: &str| port.cluster.shell_as(user, &format!("{sluice} {line}"));
    let own = as_user(USER, &format!("token user {USER} --name laptop")).ok().trim().to_string();
    port.with(&own, "squeue").ok();
    assert!(!as_user(USER, "token list").ok().contains("admin"), "others' are not shown");
    assert!(!as_user(OTHER, "token list").ok().contains("laptop"));
    let denied = "sluice: error: access denied\n";
    for (user, line) in [
        (USER, format!("token user {OTHER}")),
        (USER, format!("token user {USER} --role operator")),
        (USER, "token node node1".to_string()),
        (OTHER, format!("token revoke laptop --user {USER}")),
    ] {
        let said = as_user(user, &line);
        assert_eq!((said.code, said.stderr.as_str()), (1, denied), "{user}: {line}");
    }
    let said = as_user(USER, &format!("token user {USER} --expires never"));
    assert!(said.code == 1 && said.stderr.contains("at most 365d"), "{said:?}");
    // A token makes no other: it would outlive its own end.
    let said = port.with(&own, &format!("{sluice} token user {USER}"));
    assert_eq!((said.code, said.stderr.as_str()), (1, denied));
    as_user(USER, "token revoke laptop").ok();
    port.assert_refused(&own, "this token was revoked");
}

#[test]
fn root_a_tokens_role_is_the_most_that_its_holder_may_do() {
    let port = Port::up();
    let drain = "scontrol update nodename=node1 state=drain reason=x";
    let limited = port.token(&["root", "--role", "user"]);
    let said = port.with(&limited, drain);
    assert_eq!((said.code, said.stderr.as_str()), (1, "slurm_update error: Invalid user id\n"));
    let whole = port.token(&["root"]);
    port.with(&whole, drain).ok();
}

#[test]
fn root_the_admin_token_is_rotated_in_place() {
    let port = Port::up();
    let (old, file) = (port.admin_token(), port.cluster.state().join("admin.token"));
    port.with(&old, "scontrol reconfigure").ok();
    let said = port.cluster.sluice(&["token", "revoke", "admin"]);
    assert!(said.code == 1 && said.stderr.contains("sluice token rotate admin"), "{said:?}");
    port.cluster.sluice(&["token", "rotate", "admin"]).ok();
    let new = port.admin_token();
    assert!(new != old && new.len() == old.len());
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    port.assert_refused(&old, "this token was revoked");
    port.with(&new, "scontrol reconfigure").ok();
    let stranger =
        port.cluster.shell_as(USER, &format!("{} token rotate admin", crate::harness::program()));
    assert_eq!(stranger.code, 1, "{stranger:?}");
    assert_eq!(port.admin_token(), new);
    port.cluster.kill("server");
    // A file that was replaced by hand counts at the next start, and only that one.
    std::fs::write(&file, "f".repeat(64)).unwrap();
    port.cluster.start();
    port.assert_refused(&new, "this token was revoked");
    port.with(&"f".repeat(64), "scontrol reconfigure").ok();
}

#[test]
fn root_join_tokens_that_wait_are_listed_and_revoked() {
    let port = Port::up();
    let out = port.cluster.path("n.join");
    let args = ["token", "node", "node[1-2]", "--expires", "2h", "--out", out.to_str().unwrap()];
    port.cluster.sluice(&args).ok();
    let listed = port.list("");
    let join = listed.lines().find(|l| l.starts_with("join-")).expect("the join token");
    assert!(join.contains("node[1-2]  join"), "{listed}");
    let name = join.split_whitespace().next().unwrap();
    port.cluster.sluice(&["token", "revoke", name]).ok();
    assert!(!port.list("--all").contains("join-"));
    let said = port.cluster.sluice(&["token", "node", "node1", "--expires", "31d"]);
    assert!(said.code == 1 && said.stderr.contains("at most 30d"), "{said:?}");
}
