//! `scontrol show licenses`.

use super::Options;
use std::fmt::Write;
use wire::reservation::LicenseView;

/// Standard output without licenses.
pub const NO_LICENSES: &str = "No licenses configured in Slurm.\n";

pub fn push(out: &mut String, license: &LicenseView, options: Options) {
    let lead = if options.oneliner { " " } else { "\n    " };
    let LicenseView { name, total, used, reserved } = license;
    let free = total.saturating_sub(*used);
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "LicenseName={name}{lead}Total={total} Used={used} Free={free} Reserved={reserved} Remote=no"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licenses_are_shown_as_slurm_shows_them() {
        let license = LicenseView { name: "matlab".into(), total: 4, used: 3, reserved: 1 };
        let shown = |oneliner| {
            let mut text = String::new();
            push(&mut text, &license, Options { oneliner, details: false });
            text
        };
        let two_lines = "LicenseName=matlab\n    Total=4 Used=3 Free=1 Reserved=1 Remote=no\n";
        assert_eq!(shown(false), two_lines);
        let one = "LicenseName=matlab Total=4 Used=3 Free=1 Reserved=1 Remote=no\n";
        assert_eq!(shown(true), one);
    }
}
