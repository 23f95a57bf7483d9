//! Every dependency has a license that allows our use. Needs no network.

use std::process::Command;

/// Licenses that are compatible with distributing an Apache-2.0 program.
const ACCEPTED: [&str; 10] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
];

/// `A OR B` needs one of them, `A AND B` both; parentheses group.
fn accepted(expression: &str) -> bool {
    let plain = expression.replace('/', " OR ");
    let one = |term: &str| ACCEPTED.contains(&term.trim().trim_matches(['(', ')']));
    let all = |terms: &str| terms.split(" AND ").all(one);
    match plain.split_once(") AND ") {
        Some((first, rest)) => accepted(first.trim_start_matches('(')) && accepted(rest),
        None => plain.split(" OR ").any(all),
    }
}

#[test]
fn every_dependency_has_an_accepted_license() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--offline", "--locked"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 50, "the list is whole");
    let wrong: Vec<String> = packages
        .iter()
        .filter(|p| !p["license"].as_str().is_some_and(accepted))
        .map(|p| format!("{} {}", p["name"], p["license"]))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn license_expressions_are_parsed() {
    for good in ["MIT", "MIT OR GPL-3.0", "(MIT OR Apache-2.0) AND Unicode-3.0", "MIT/Apache-2.0"] {
        assert!(accepted(good), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-2.0", "(MIT OR Apache-2.0) AND GPL-3.0", ""] {
        assert!(!accepted(bad), "{bad}");
    }
}
