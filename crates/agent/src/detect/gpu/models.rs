//! Names of models by their numbers on the PCI bus, for GPUs whose driver names none.

use std::path::Path;

use super::{Vendor, trimmed};

/// The vendor's number of a device, and the name under which it is sold. Virtual functions have numbers of their own.
const MODELS: &[(Vendor, u16, &str)] = &[
    (Vendor::Amd, 0x66a1, "AMD Radeon Instinct MI50"),
    (Vendor::Amd, 0x738c, "AMD Instinct MI100"),
    (Vendor::Amd, 0x7408, "AMD Instinct MI250X"),
    (Vendor::Amd, 0x740c, "AMD Instinct MI250"),
    (Vendor::Amd, 0x740f, "AMD Instinct MI210"),
    (Vendor::Amd, 0x7448, "AMD Radeon PRO W7900"),
    (Vendor::Amd, 0x744c, "AMD Radeon RX 7900"),
    (Vendor::Amd, 0x74a0, "AMD Instinct MI300A"),
    (Vendor::Amd, 0x74a1, "AMD Instinct MI300X"),
    (Vendor::Amd, 0x74a2, "AMD Instinct MI308X"),
    (Vendor::Amd, 0x74a5, "AMD Instinct MI325X"),
    (Vendor::Amd, 0x74b5, "AMD Instinct MI300X"),
    (Vendor::Amd, 0x74b9, "AMD Instinct MI325X"),
    (Vendor::Amd, 0x75a0, "AMD Instinct MI350X"),
    (Vendor::Amd, 0x75a3, "AMD Instinct MI355X"),
    (Vendor::Intel, 0x0bd5, "Intel Data Center GPU Max 1550"),
    (Vendor::Intel, 0x0bd6, "Intel Data Center GPU Max 1550"),
    (Vendor::Intel, 0x0bd9, "Intel Data Center GPU Max 1100"),
    (Vendor::Intel, 0x0bda, "Intel Data Center GPU Max 1100"),
    (Vendor::Intel, 0x56a0, "Intel Arc A770"),
    (Vendor::Intel, 0x56a1, "Intel Arc A750"),
    (Vendor::Intel, 0x56c0, "Intel Data Center GPU Flex 170"),
    (Vendor::Intel, 0x56c1, "Intel Data Center GPU Flex 140"),
    (Vendor::Intel, 0xe20b, "Intel Arc B580"),
    (Vendor::Intel, 0xe20c, "Intel Arc B570"),
    (Vendor::Intel, 0xe211, "Intel Arc Pro B60"),
    (Vendor::Intel, 0xe212, "Intel Arc Pro B50"),
];

/// The model of a device by its folder in `/sys`; `None` if its number is not listed.
pub(super) fn of_device(vendor: Vendor, device: &Path) -> Option<String> {
    let text = trimmed(&device.join("device"))?;
    let id = u16::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    let listed = MODELS.iter().find(|(maker, number, _)| (*maker, *number) == (vendor, id));
    listed.map(|(.., name)| (*name).to_owned())
}
