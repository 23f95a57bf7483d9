//! docs/slurm-options.md, made from the tables.

use super::command::Command;
use super::help;
use super::table::{Arg, OptionSpec, Verdict, options, verdict};

const HEAD: &str = "\
# Slurm's options

Made from the option tables of the program; a test compares it, and `SLUICE_WRITE_DOCS=1 cargo nextest run --workspace --lib slurm_options` writes it anew.
Each option is one of these: it **acts**; what it asks for **is so anyway**; it has **no meaning here**, and the command says so in one line; or it is **refused**, with what to do instead.
Another test submits every option of `sbatch`, `srun` and `salloc` that is said to act and sees that something changed; others do the same through the program for the commands that list, report and administer.
";

/// The whole page.
pub fn document() -> String {
    let mut page = HEAD.to_owned();
    for command in Command::ALL {
        page += &format!("\n## {}\n\n{}.\n", command.name(), help::about(command));
        let rows: Vec<&OptionSpec> = options(command).collect();
        let acting = rows.iter().filter(|spec| verdict(command, spec.key) == Verdict::Acts);
        let acting: Vec<String> = acting.map(|spec| spelled(spec)).collect();
        if !acting.is_empty() {
            page += &format!("\nActs: {}\n", acting.join(" · "));
        }
        let others: Vec<&&OptionSpec> =
            rows.iter().filter(|spec| verdict(command, spec.key) != Verdict::Acts).collect();
        if others.is_empty() {
            continue;
        }
        page += "\n| option | | why, or what instead |\n|---|---|---|\n";
        for spec in others {
            let verdict = verdict(command, spec.key);
            let why = verdict.why().replace('|', "\\|");
            page += &format!("| {} | {} | {why} |\n", spelled(spec), verdict.word());
        }
    }
    page
}

/// `-n`, `--ntasks=count`, as code.
fn spelled(spec: &OptionSpec) -> String {
    let argument = match spec.arg {
        Arg::None => String::new(),
        Arg::Required(value) => format!("={value}"),
        Arg::Optional(value) => format!("[={value}]"),
    };
    let short = spec.short.map(|short| format!("-{short}"));
    let long = (!spec.long.is_empty()).then(|| format!("--{}{argument}", spec.long));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    format!("`{}`", names.join(" ").replace('|', "\\|"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slurm_options_page_is_made_from_the_tables() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/slurm-options.md");
        let page = document();
        if std::env::var_os("SLUICE_WRITE_DOCS").is_some() {
            std::fs::write(path, &page).expect("the page is written");
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == page,
            "docs/slurm-options.md is not what the tables say; see its first lines"
        );
    }
}
