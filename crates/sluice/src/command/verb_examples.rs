//! Lines to begin with, for the end of each verb's help: what is typed, and after three spaces or more what it does. The test below
//! reads each as a command line.

pub const UP: &str = "\
Examples:
  sluice up --detach                 a cluster of this machine
  sluice up --state /srv/sluice      with its state there";
pub const DOWN: &str = "\
Examples:
  sluice down                        running jobs go on
  sluice down --jobs                 and here they do not";
pub const SERVER: &str = "\
Examples:
  sluice server --state /srv/sluice   with its state there
  sluice server handover             let another server take the lead";
pub const AGENT: &str = "\
Examples:
  sluice agent --join gpu1.join      with a file of `sluice token node gpu1`
  sluice agent --print-config        the NodeName line of this machine";
pub const GATEWAY: &str = "\
Examples:
  sluice gateway --server https://head:6820 --token-file gateway.token";
pub const TOKEN: &str = "\
Examples:
  sluice token node gpu1 --out gpu1.join
  sluice token list                  who has one, and until when";
pub const NODE: &str = "\
Examples:
  sluice node                        all machines
  sluice node show gpu1              one of them";
pub const MACHINE: &str = "\
Examples:
  sluice machine list --all          with those that have gone
  sluice machine show cloud3         why it failed";
pub const LOGIN: &str = "\
Examples:
  sluice login https://head:6820     asks for a token of `sluice token user`";
pub const LOGOUT: &str = "\
Examples:
  sluice logout";
pub const DEMO: &str = "\
Examples:
  sluice demo                        the tour
  sluice demo --keep                 and leave its cluster to practise in
  sluice demo down                   end that";
pub const DOCTOR: &str = "\
Examples:
  sluice doctor                      exit code 1 where something is wrong
  sluice doctor --json";
pub const APPLY: &str = "\
Examples:
  sluice apply -f train.dstack.yml   ask, submit, and follow it
  sluice apply -y -d -f job.sh       neither ask nor stay";
pub const PS: &str = "\
Examples:
  sluice ps                          what waits and runs
  sluice ps -n 10                    the last ten";
pub const ATTACH: &str = "\
Examples:
  sluice attach 13                   a shell in job 13
  sluice attach train nvidia-smi     a command in a run";
pub const PORT: &str = "\
Examples:
  sluice port train                  the ports that its configuration names
  sluice port 13 8080                its port 8080 at the same one here
  sluice port 13 9000:8080           at port 9000";
pub const KEY: &str = "\
Examples:
  sluice key add id_ed25519.pub
  sluice key list";
pub const LOGS: &str = "\
Examples:
  sluice logs train                  what the run has written
  sluice logs -f 13_2                follow task 2 of array 13";
pub const STOP: &str = "\
Examples:
  sluice stop train                  asks first
  sluice stop -y 13_2                one task of an array";
pub const DELETE: &str = "\
Examples:
  sluice delete -y train             take it out of the list";
pub const PROJECT: &str = "\
Examples:
  sluice project                     those that you are in
  sluice project add atlas ada bob";
pub const EVENT: &str = "\
Examples:
  sluice event                       the newest";
pub const RUN: &str = "\
Examples:
  sluice run get train --json";
pub const METRICS: &str = "\
Examples:
  sluice metrics train";
pub const OFFER: &str = "\
Examples:
  sluice offer                       what each node would give";
pub const FLEET: &str = "\
Examples:
  sluice fleet                       all of them
  sluice fleet get lab";
pub const SECRET: &str = "\
Examples:
  sluice secret list
  sluice secret set TOKEN            its value from standard input";
pub const VOLUME: &str = "\
Examples:
  sluice volume list
  sluice volume delete data -y";
pub const TOP: &str = "\
Examples:
  sluice top                         ? lists the keys
  sluice top --once                  one frame as text";
pub const EXPLAIN: &str = "\
Examples:
  sluice explain 13                  why it waits, or how it ended
  sluice explain train --json";
pub const CHECK: &str = "\
Examples:
  sluice check job.sh                a batch script
  sluice check /etc/sluice           a folder with slurm.conf";
pub const CONVERT: &str = "\
Examples:
  sluice convert job.sh              to a .dstack.yml
  sluice convert train.dstack.yml    to a batch script";
pub const SIM: &str = "\
Examples:
  sluice sim --synthetic lublin --jobs 1000 --nodes 64
  sluice sim --live --without gpu1   what would change for the queue";
pub const HELP: &str = "\
Examples:
  sluice help reasons                why jobs wait
  sluice help logs                   a verb";
pub const BACKUP: &str = "\
Examples:
  sluice backup /backups/today.tar";
pub const RESTORE: &str = "\
Examples:
  sluice restore /backups/today.tar --state /var/lib/sluice";
pub const STORE: &str = "\
Examples:
  sluice store check --state /var/lib/sluice";
pub const VERSION: &str = "\
Examples:
  sluice version";
pub const LINKS: &str = "\
Examples:
  sluice links /usr/local/bin        sbatch, squeue, … dstack and sluice there";
pub const COMPLETION: &str = "\
Examples:
  sluice completion bash             for bash; zsh and fish too";
pub const MAN: &str = "\
Examples:
  sluice man /usr/local/share/man/man1";

#[cfg(test)]
mod tests {
    use crate::command::Cli;
    use clap::{CommandFactory, Parser};

    /// The columns of a small terminal.
    const COLUMNS: usize = 80;

    #[test]
    fn every_verb_has_examples_that_are_right() {
        let cli = Cli::command();
        for verb in cli.get_subcommands() {
            let name = verb.get_name();
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = help.lines().skip_while(|line| *line != "Examples:").collect();
            assert!(lines.len() > 1, "{name} has no examples");
            for line in &lines[1..] {
                assert!(line.chars().count() <= COLUMNS, "{line}");
                let typed = line.trim_start().split("   ").next().unwrap_or_default();
                let words: Vec<&str> = typed.split_whitespace().collect();
                assert_eq!(words.get(..2), Some(&["sluice", name][..]), "{line}");
                let wrong = Cli::try_parse_from(&words).err();
                assert!(wrong.is_none(), "{typed}: {wrong:?}");
            }
        }
    }
}
