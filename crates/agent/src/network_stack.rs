//! The name of the network stack of this process: two processes with the same name share their loopback addresses.

use std::path::Path;

/// Identifies the running kernel among all machines, and one network namespace in it. `None` without `/proc`.
pub fn network_stack() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = std::fs::read_link(Path::new("/proc/self/ns/net")).ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_stack_has_a_name_and_keeps_it() {
        let name = super::network_stack().expect("a kernel with /proc");
        assert!(name.contains(" net:["), "{name}");
        assert_eq!(Some(name), super::network_stack());
    }
}
