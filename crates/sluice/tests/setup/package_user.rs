//! What the package does about its user, with a user database that the test plays.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const POSTINST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/debian/postinst");

#[test]
fn package_refuses_a_user_of_its_name_who_is_no_system_account() {
    for (uid, taken) in [(998, true), (0, false), (1000, false), (60_000, false)] {
        let dir = tempfile::tempdir().unwrap();
        let programs = [
            ("getent", format!("echo sluice:x:{uid}:{uid}::/home/sluice:/bin/bash")),
            ("systemctl", String::new()),
        ];
        for (name, text) in programs {
            let path = dir.path().join(name);
            std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:/usr/bin:/bin", dir.path().display());
        let said = Command::new("sh").args([POSTINST, "configure"]).env("PATH", path).output();
        let said = said.unwrap();
        assert_eq!(said.status.success(), taken, "{uid}: {said:?}");
        let text = String::from_utf8(said.stderr).unwrap();
        assert_eq!(text.lines().count(), usize::from(!taken), "{uid}: {text}");
        assert!(taken || text.contains(&format!("uid {uid}) is no system account")), "{text}");
    }
}
