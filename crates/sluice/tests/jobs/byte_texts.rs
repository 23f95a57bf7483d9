//! What users write need not be UTF-8: scripts, variables, arguments and folders are bytes.

use crate::harness::{Cluster, TWO_NODES};

/// Latin-1 in comments, behind a directive and in a command; the bytes come from `printf`.
const LATIN: &str =
    r"printf '#!/bin/sh\n# gr\374n\n#SBATCH -n 1 # gr\374n\nprintf %%s gr\374n\n' > latin.sh";

/// `grün` in Latin-1, as `od` shows it.
const GREEN: &str = "67 72 fc 6e";

#[test]
fn up_script_that_is_not_utf_8_runs_and_comes_back_byte_for_byte() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.shell(LATIN).ok();
    cluster.sluice(&["check", "latin.sh"]).ok();
    for script in ["latin.sh", "< latin.sh"] {
        let id = cluster.shell(&format!("sbatch -W -Q --parsable -o said {script}")).ok();
        let id = id.trim();
        assert_eq!(cluster.shell("od -An -tx1 said").ok().trim(), GREEN, "{script}");
        for line in [
            format!("scontrol write batch_script {id} - | cmp - latin.sh"),
            format!("scontrol write batch_script {id} copy.sh && cmp copy.sh latin.sh"),
            format!("sacct -B -j {id} | tail -n +3 | head -c -1 | cmp - latin.sh"),
        ] {
            cluster.shell(&line).ok();
        }
    }
    cluster.shell(r"printf '#!/bin/sh\n#SBATCH -o gr\374n.out\nprintf gr\374n\n' > named.sh").ok();
    cluster.shell("sbatch -W -Q named.sh").ok();
    assert_eq!(cluster.shell("od -An -tx1 gr*n.out").ok().trim(), GREEN);
}

#[test]
fn up_variables_arguments_and_folders_that_are_not_utf_8_reach_the_job_as_they_are() {
    let cluster = Cluster::up(TWO_NODES);
    let shell = |line: &str| {
        cluster.shell(&format!(r"G=$(printf 'gr\374n'); export G LC_ALL=C; {line}")).ok()
    };
    cluster.write("words.sh", "#!/bin/sh\nprintf %s \"$1\"\n");
    for line in [
        r#"sbatch -W -Q -o said words.sh "$G" >&2; cat said"#,
        r#"cp words.sh "$G.sh"; sbatch -W -Q -o said "$G.sh" "$G" >&2; cat said"#,
        r#"sbatch -W -Q -o said --wrap "printf %s '$G'" >&2; cat said"#,
        r#"sbatch -W -Q -o said --wrap 'printf %s "$G"' >&2; cat said"#,
        r#"sbatch -W -Q -o "$G.out" --wrap 'printf %s "$G"' >&2; cat "$G.out""#,
        r#"mkdir "$G"; cd "$G"; sbatch -W -Q -o o --wrap 'basename "$(pwd)"' >&2; head -c 4 o"#,
        r#"srun -Q printf %s "$G""#,
        r#"srun -Q sh -c 'printf %s "$G"'"#,
        r#"srun -Q -o "$G.step" printf %s "$G"; cat "$G.step""#,
        r#"salloc -Q sh -c 'printf %s "$1"' sh "$G""#,
    ] {
        assert_eq!(shell(&format!("({line}) | od -An -tx1")).trim(), GREEN, "{line}");
    }
    let id = shell("sbatch -W -Q --parsable --wrap true");
    let kept = format!(r#"sacct --env-vars -j {} | grep -acx "G=$G""#, id.trim());
    assert_eq!(shell(&kept).trim(), "1");
}
