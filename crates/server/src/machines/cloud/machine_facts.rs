//! What catalogues of clouds say of a machine, as its system will find it.

use model::amount::Bytes;

/// The part of a machine's disk that jobs find free, in hundredths.
const DISK_PART: u64 = 90;

/// The memory that the system of a machine sees: firmware and kernel keep a part of what the catalogue says. A machine with less
/// than its offer would be drained.
pub fn visible_memory(mib: u64) -> Bytes {
    Bytes::from_mib(mib.saturating_sub(mib / 16 + 64))
}

pub fn free_disk(gb: u64) -> Bytes {
    Bytes::from_mib(gb.saturating_mul(1024 * DISK_PART) / 100)
}

/// The name of a GPU as the agent finds it: `T4` is `t4`, `Radeon Pro V520` is `radeon_pro_v520`.
pub fn gpu_kind(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    let plain = |c: char| if is_plain(c) { c } else { '_' };
    name.trim().to_ascii_lowercase().chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_has_a_little_less_than_its_catalogue_says() {
        assert_eq!(visible_memory(16384), Bytes::from_mib(16384 - 1024 - 64));
        assert_eq!(visible_memory(10), Bytes(0));
        assert_eq!(free_disk(100), Bytes::from_mib(92160));
        assert_eq!(gpu_kind("Radeon Pro V520"), "radeon_pro_v520");
    }
}
