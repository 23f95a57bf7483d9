//! The shell texts that run on hosts. They are written for a POSIX `sh`, and each begins from nothing: a step may be repeated.

use model::shell::quoted;

/// Where everything of ours is on a host of a fleet.
pub const DIR: &str = "/var/lib/sluice-fleet";

/// The state folder of a server or agent that root started by hand.
pub const NODE_DIR: &str = "/var/lib/sluice";

/// The unit, where systemd runs.
const UNIT: &str = "sluice-fleet.service";

/// The agent's unit as packages bring it.
const PACKAGED_UNIT: &str = include_str!("../../../../packaging/systemd/sluice-agent.service");

/// The unit on a host: the packaged one, with the paths of a host and with the log in a file, whose last words are asked for.
fn unit() -> String {
    let line = |line: &str| match line.split_once('=') {
        Some(("ExecStart", _)) => Some(format!(
            "ExecStart={DIR}/sluice agent --state {DIR}/state --join {DIR}/join\n\
             StandardError=append:{DIR}/state/agent.log\n"
        )),
        Some(("EnvironmentFile" | "Documentation", _)) => None,
        _ if line.starts_with('#') => None,
        _ => Some(format!("{line}\n")),
    };
    PACKAGED_UNIT.lines().filter_map(line).collect()
}

/// Runs a script as root: as it is, or by `sudo` that must not ask.
pub fn as_root(is_root: bool, script: &str) -> String {
    let sudo = if is_root { "" } else { "sudo -n " };
    format!("{sudo}sh -c {}", quoted(script))
}

/// What the host is, a line `name=value` each. Nothing is changed.
pub fn probe() -> String {
    let script = format!(
        r#"LC_ALL=C; export LC_ALL
echo uid=$(id -u)
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then echo sudo=there is no sudo
  elif said=$(sudo -n true 2>&1 </dev/null); then echo sudo=yes
  else echo "sudo=$said"; fi
fi
echo os=$(uname -s)
echo arch=$(uname -m)
set -- $(df -Pk /var/lib 2>/dev/null | tail -n 1); echo free_kib=${{4:-}}
if grep -q cgroup /proc/mounts 2>/dev/null; then echo cgroup=yes; else echo cgroup=no; fi
if [ -d /run/systemd/system ]; then echo systemd=yes; else echo systemd=no; fi
if [ -e {NODE_DIR} ]; then echo node=yes; else echo node=no; fi
echo owner=$(cat {DIR}/owner 2>/dev/null)
if [ -s {DIR}/join ]; then echo join=yes; else echo join=no; fi
echo digest=$(sha256sum {DIR}/sluice 2>/dev/null | cut -d ' ' -f 1)
"#
    );
    format!("sh -c {}", quoted(&script))
}

/// The addresses of the host's interfaces that are up, a word each. The kernel lists them where no program does.
pub fn addresses() -> String {
    let script = r#"while read -r mark name scope kind; do
  case $mark in '|--') ip=$name ;; /32) if [ "$name $scope" = 'host LOCAL' ]; then echo "$ip"; fi ;; esac
done 2>/dev/null </proc/net/fib_trie
cut -d ' ' -f 1 /proc/net/if_inet6 2>/dev/null
true
"#;
    format!("sh -c {}", quoted(script))
}

/// Takes the program from standard input, on a host that is the owner's. The name is given once the file is whole, on disk,
/// and runs here, unless the host was given up meanwhile. Until then the file has a name that no other upload has: a script goes
/// on when its connection breaks, and must not remove what the next one brings.
pub fn upload(digest: &str, owner: &str) -> String {
    format!(
        r#"umask 022; D={DIR}; N=$D/sluice.new.$$; rm -f $D/sluice.new.*; cat > $N && chmod 755 $N || {{ rm -f $N; exit 1; }}
found=$(sha256sum < $N | cut -d ' ' -f 1)
if [ "$found" != {digest} ]; then rm -f $N; echo "the program did not arrive whole" >&2; exit 1; fi
sync $N 2>/dev/null || sync
$N --version >/dev/null || {{ rm -f $N; exit 1; }}
{lock}if [ "$(cat $D/owner 2>/dev/null)" != {owner} ]; then rm -f $N; echo "the host became another instance meanwhile" >&2; exit 1; fi
mv -f $N $D/sluice"#,
        lock = installation_lock(),
        owner = quoted(owner)
    )
}

/// What stops the agent, if it runs. Jobs go on under their supervisors.
fn stop() -> String {
    format!(
        "if [ -e /etc/systemd/system/{UNIT} ]; then systemctl stop {UNIT}; fi\n\
         if [ -x $D/sluice ]; then $D/sluice down --state $D/state >/dev/null || exit 1; fi\n"
    )
}

/// Keeps every other start and removal out until the script ends: a script goes on when its connection breaks. The folder
/// is locked by its handle, so that nothing is left of it.
fn installation_lock() -> &'static str {
    "if command -v flock >/dev/null 2>&1; then\n\
       exec 9</var/lib; flock -w 45 9 || { echo 'another installation is under way' >&2; exit 1; }\n\
     fi\n"
}

/// Says whose host this is, before anything is brought there: what removes it goes by that. `before` is the owner that was
/// found and may be replaced, whose join file is of no use: the host may be somebody else's by now.
pub fn claim(owner: &str, before: &str) -> String {
    format!(
        r#"umask 022; D={DIR}; {lock}mkdir -p $D/state || exit 1
if ! (set -C; printf '%s\n' {owner} > $D/owner) 2>/dev/null; then
  found=$(cat $D/owner)
  if [ "$found" != {owner} ]; then
    if [ "$found" != {before} ]; then echo "the host became another instance meanwhile" >&2; exit 1; fi
    rm -f $D/join; printf '%s\n' {owner} > $D/owner.new && mv -f $D/owner.new $D/owner || exit 1
  fi
fi
"#,
        lock = installation_lock(),
        owner = quoted(owner),
        before = quoted(before)
    )
}

/// Makes sure whose host this is, takes a join file from standard input if there is one, and starts the agent anew.
pub fn start(owner: &str, before: &str, with_systemd: bool) -> String {
    let begin = format!(
        "{}umask 077; cat > $D/join.new || exit 1\n\
         : >> $D/state/agent.log\n\
         if [ -s $D/join.new ]; then mv -f $D/join.new $D/join; else rm -f $D/join.new; fi\n\
         umask 022\n",
        claim(owner, before)
    );
    let agent = "$D/sluice agent --state $D/state --join $D/join";
    let run = if with_systemd {
        let unit = quoted(&unit());
        format!(
            "printf %s {unit} > /etc/systemd/system/{UNIT} && systemctl daemon-reload && \
             systemctl enable --quiet {UNIT} && systemctl restart {UNIT}\n"
        )
    } else {
        // A session of its own: the agent stays when the login ends.
        format!(
            "cd / && if command -v setsid >/dev/null; then S=setsid; else S=; fi\n\
             $S {agent} --keep </dev/null >/dev/null 2>>$D/state/agent.log 9<&-\n"
        )
    };
    format!("{begin}{}{run}", stop())
}

/// The last words of the agent.
pub fn last_words() -> String {
    format!("tail -n 1 {DIR}/state/agent.log 2>/dev/null || true")
}

/// Removes all of it, if it is this owner's.
pub fn remove(owner: &str) -> String {
    format!(
        r#"D={DIR}
{lock}if [ ! -e $D/owner ] || [ "$(cat $D/owner)" != {owner} ]; then exit 0; fi
{stop}if [ -e /etc/systemd/system/{UNIT} ]; then
  systemctl disable --quiet {UNIT}; rm -f /etc/systemd/system/{UNIT}; systemctl daemon-reload
fi
cd / && rm -rf $D/state $D/join $D/join.new $D/owner.new $D/sluice.new* $D/sluice && rm -f $D/owner && rmdir $D"#,
        lock = installation_lock(),
        owner = quoted(owner),
        stop = stop()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Every text is one that a shell can read, whatever the owner is called.
    #[test]
    fn scripts_are_read_by_a_shell() {
        let owner = "abc it's-0";
        let scripts = [
            claim(owner, ""),
            upload("00", owner),
            start(owner, "", true),
            start(owner, "b", false),
            remove(owner),
        ];
        let whole = scripts.iter().flat_map(|s| [as_root(true, s), as_root(false, s)]);
        for script in
            scripts.iter().cloned().chain(whole).chain([probe(), addresses(), last_words()])
        {
            let read = Command::new("sh").args(["-n", "-c", &script]).output().expect("a shell");
            assert!(read.status.success(), "{script}\n{}", String::from_utf8_lossy(&read.stderr));
        }
    }

    /// A host's agent runs as one from a package does: with the same limits, and its jobs stay when it is stopped.
    #[test]
    fn unit_of_a_host_is_the_packaged_one_at_its_own_place() {
        let found = unit();
        let has = |line: &str| found.lines().any(|one| one == line);
        for line in ["[Unit]", "[Service]", "[Install]", "KillMode=process", "Delegate=yes"] {
            assert!(has(line), "{line}: {found}");
        }
        let start = format!("ExecStart={DIR}/sluice agent --state {DIR}/state --join {DIR}/join");
        assert!(has(&start), "{found}");
        assert!(has(&format!("StandardError=append:{DIR}/state/agent.log")), "{found}");
        let packaged = ["/usr/bin", "/etc/sluice", "/etc/default", "/var/lib/sluice/"];
        assert!(!packaged.iter().any(|path| found.contains(path)), "{found}");
    }

    #[test]
    fn probe_of_this_machine_says_what_it_is() {
        let said = Command::new("sh").args(["-c", &probe()]).output().expect("a shell");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        for name in
            ["uid=", "os=Linux", "arch=", "free_kib=", "cgroup=", "systemd=", "node=", "digest="]
        {
            assert!(said.lines().any(|line| line.starts_with(name)), "{name}: {said}");
        }
    }

    /// The script of a server that was killed ends when the next server's upload is under way.
    #[test]
    fn broken_upload_leaves_the_next_one_alone() {
        use std::io::Write;
        use std::process::Stdio;
        let place = tempfile::tempdir().expect("a folder");
        std::fs::write(place.path().join("owner"), "c a-0 1\n").expect("written");
        let program = b"#!/bin/sh\nexit 0\n";
        let digest = ring::digest::digest(&ring::digest::SHA256, program);
        let digest: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let begin = || {
            let dir = place.path().display().to_string();
            let script = upload(&digest, "c a-0 1").replace(DIR, &dir);
            let script = script.replace("9</var/lib", &format!("9<{dir}"));
            let mut command = Command::new("sh");
            command.args(["-c", &script]).stdin(Stdio::piped()).stderr(Stdio::null());
            command.spawn().expect("a shell")
        };
        let arriving = || {
            let entries = std::fs::read_dir(place.path()).expect("the folder").flatten();
            entries.filter(|e| e.file_name().to_string_lossy().starts_with("sluice.new.")).count()
        };
        let mut first = begin();
        first.stdin.as_mut().expect("a pipe").write_all(b"a part").expect("taken");
        while arriving() == 0 {
            std::thread::yield_now();
        }
        let mut second = begin();
        second.stdin.as_mut().expect("a pipe").write_all(&program[..5]).expect("taken");
        // The second has made its own file, and the first one's is gone.
        let is_second = || place.path().join(format!("sluice.new.{}", second.id())).exists();
        while !is_second() {
            std::thread::yield_now();
        }
        assert!(!first.wait_with_output().expect("it ends").status.success());
        second.stdin.as_mut().expect("a pipe").write_all(&program[5..]).expect("taken");
        assert!(second.wait_with_output().expect("it ends").status.success());
        assert_eq!(std::fs::read(place.path().join("sluice")).expect("the program"), program);
        assert_eq!(arriving(), 0, "nothing is left");
    }

    /// Of two that found the host free, or left by the same node, one gets it; and only its owner removes it.
    #[test]
    fn host_has_the_owner_who_came_first() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().expect("a folder");
        let dir = place.path().join("fleet");
        std::fs::create_dir(&dir).expect("a folder");
        let program = dir.join("sluice");
        std::fs::write(&program, "#!/bin/sh\nexit 0\n").expect("written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("a mode");
        let here = |script: String| {
            let script = script.replace(DIR, &dir.display().to_string());
            let script = script.replace("9</var/lib", &format!("9<{}", place.path().display()));
            let said = Command::new("sh").args(["-c", &script]).output().expect("a shell");
            (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
        };
        let owner = || std::fs::read_to_string(dir.join("owner")).expect("an owner");
        assert_eq!(here(start("c a-0 1", "", false)), (true, String::new()));
        assert_eq!(owner(), "c a-0 1\n");
        let (is_started, said) = here(start("c b-0 2", "", false));
        assert!(!is_started && said.contains("another instance meanwhile"), "{said}");
        assert!(here(start("c a-0 1", "", false)).0, "its own is started again");
        assert!(here(start("c b-0 2", "c a-0 1", false)).0, "what is no more is taken over");
        assert!(!here(start("c d-0 3", "c a-0 1", false)).0, "once");
        assert!(here(remove("c a-0 1")).0);
        assert_eq!(owner(), "c b-0 2\n");
        assert_eq!(here(remove("c b-0 2")), (true, String::new()));
        assert!(!dir.exists());
        // A host that is given up amid the upload keeps nothing of it, and the upload does not bring it back.
        assert_eq!(here(claim("c a-0 1", "")), (true, String::new()));
        assert!(!here(claim("c b-0 2", "")).0, "it has an owner before the program comes");
        std::fs::write(dir.join("sluice.new.7"), "a part of it").expect("written");
        assert_eq!(here(remove("c a-0 1")), (true, String::new()));
        assert!(!dir.exists());
        assert!(!here(upload("00", "c a-0 1")).0);
        assert!(!dir.exists());
    }
}
