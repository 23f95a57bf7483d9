//! `--get-user-env`: what the owner's own shell has on the node is added to the script's environment.

use crate::harness::{Cluster, TWO_NODES};

/// The environment of a script, line by line.
fn environment(cluster: &Cluster, before: &str, options: &str) -> Vec<String> {
    let line = format!("{before} sbatch -W -Q -o env.out {options} --wrap /usr/bin/env");
    cluster.shell(&line).ok();
    cluster.read("env.out").lines().map(str::to_owned).collect()
}

fn value<'a>(environment: &'a [String], name: &str) -> Option<&'a str> {
    environment.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn up_script_gets_what_the_login_has_where_its_submitter_exports_nothing_of_the_name() {
    let cluster = Cluster::up(TWO_NODES);
    let without = environment(&cluster, "", "--export=NIL");
    assert_eq!(value(&without, "SHELL"), None, "{without:?}");
    for options in ["--export=NIL --get-user-env", "--export=NIL --get-user-env=60S"] {
        let with = environment(&cluster, "", options);
        assert!(value(&with, "SHELL").is_some_and(|shell| shell.starts_with('/')), "{with:?}");
        assert!(value(&with, "HOME").is_some(), "{options}: {with:?}");
        assert!(value(&with, "PATH").is_some_and(|path| path.contains("/bin")), "{with:?}");
        assert!(value(&with, "SLURM_JOB_ID").is_some(), "{with:?}");
    }
    let own = environment(&cluster, "SHELL=/bin/own", "--get-user-env=60L");
    assert_eq!(value(&own, "SHELL"), Some("/bin/own"), "{own:?}");
}
