//! The name of the network stack of this process: two processes with the same name share their loopback addresses.

use std::fs::File;
use std::io::Read;
use std::path::Path;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// More than the id of a boot has: 36 characters, and the end of the line.
const BOOT_ID_BYTES_MAX: usize = 64;

/// Identifies the running kernel among all machines, and one network namespace in it. `None` without `/proc`.
pub fn network_stack() -> Option<String> {
    let boot = boot_id()?;
    let namespace = std::fs::read_link(Path::new("/proc/self/ns/net")).ok()?;
    Some(format!("{boot} {}", namespace.display()))
}

/// Read in one piece, which the kernel gives of so short a file: `srun` and the supervisor of each node wait for it at every step.
fn boot_id() -> Option<String> {
    let mut bytes = [0; BOOT_ID_BYTES_MAX];
    let length = File::open(BOOT_ID).ok()?.read(&mut bytes).ok()?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_stack_has_a_name_and_keeps_it() {
        let name = super::network_stack().expect("a kernel with /proc");
        assert!(name.contains(" net:["), "{name}");
        let boot = std::fs::read_to_string(super::BOOT_ID).expect("a kernel with /proc");
        assert_eq!(name.split(' ').next(), Some(boot.trim()));
        assert_eq!(Some(name), super::network_stack());
    }
}
