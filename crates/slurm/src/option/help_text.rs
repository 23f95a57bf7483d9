//! What `--help` says before the options: the commands that a command has, and lines to begin with.

use super::command::Command;

/// A form, and what it does.
pub type HelpLine = (&'static str, &'static str);

/// The commands of `scontrol` and `sacctmgr`, a line each.
pub fn commands(command: Command) -> &'static [HelpLine] {
    match command {
        Command::Scontrol => SCONTROL,
        Command::Sacctmgr => SACCTMGR,
        Command::Sreport => SREPORT,
        _ => &[],
    }
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const SCONTROL: &[HelpLine] = &[
    ("show ENTITY [NAME]", "job step node partition reservation config"),
    ("", "licenses topology hostnames hostlist assoc_mgr"),
    ("update KEY=VALUE...", "JobId= NodeName= PartitionName= ReservationName="),
    ("create|delete KEY=VALUE...", "a reservation, a partition, a dynamic node"),
    ("hold|uhold|release JOBS", "keep jobs from starting, or let them"),
    ("requeue|requeuehold JOBS", "start jobs anew, or have them wait held"),
    ("suspend|resume JOBS", "stop jobs, and let them go on"),
    ("top JOBS", "before the user's other jobs"),
    ("write batch_script JOB", "the job's script, into a file or -"),
    ("listpids [JOB[.STEP]] [NODE]", "processes of steps on a node"),
    ("reboot|cancel_reboot NODES", "when they are free; ASAP: take no more jobs"),
    ("power up|down NODES", "start machines and shut them down"),
    ("reconfigure|setdebug LEVEL", "read the files again; how much is logged"),
    ("token|takeover|ping|version", "a token for the REST API; give up the lead"),
];

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const SACCTMGR: &[HelpLine] = &[
    ("show ENTITY [NAMES]", "account association cluster event qos"),
    ("", "runawayjobs transaction tres user"),
    ("add ENTITY NAMES KEY=VALUE...", "account coordinator qos user"),
    ("modify ENTITY where ... set ...", "account qos user"),
    ("delete ENTITY NAMES", "account coordinator qos user"),
    ("version", "the version of Slurm whose commands these are"),
];

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const SREPORT: &[HelpLine] = &[
    ("cluster REPORT", "utilization AccountUtilizationByUser UserUtilizationByAccount"),
    ("job REPORT", "SizesByAccount"),
    ("user REPORT", "TopUsage"),
];

/// Lines to begin with.
pub fn examples(command: Command) -> &'static [HelpLine] {
    match command {
        Command::Sbatch => &[
            ("sbatch job.sh", "submit a script"),
            ("sbatch -c4 --mem=8G -t 1:00:00 job.sh", "4 CPUs, 8 GB, an hour"),
            ("sbatch --gpus=1 --array=0-9 --wrap=\"./run\"", "ten tasks, a GPU each"),
        ],
        Command::Srun => &[
            ("srun hostname", "run a program on a node"),
            ("srun -N2 -n8 ./program", "8 tasks on 2 nodes"),
            ("srun --gpus=1 --pty bash", "a shell with a GPU"),
        ],
        Command::Salloc => &[
            ("salloc", "a shell with an allocation"),
            ("salloc -N2 --gpus=4 -t 30", "2 nodes, 4 GPUs, half an hour"),
            ("salloc -n4 srun ./program", "run it, then give all back"),
        ],
        Command::Squeue => &[
            ("squeue --me", "one's own jobs"),
            ("squeue --start", "when jobs are expected to start"),
            ("squeue -p gpu -t PD -o %i,%u,%r", "who waits, and for what"),
        ],
        Command::Sinfo => &[
            ("sinfo", "partitions and their nodes"),
            ("sinfo -N -l", "a line for each node"),
            ("sinfo -R", "why nodes are out of service"),
        ],
        Command::Scancel => &[
            ("scancel 12", "end a job"),
            ("scancel 12_[3-5]", "tasks of an array"),
            ("scancel --me -t PENDING", "all of one's own that wait"),
        ],
        Command::Sacct => &[
            ("sacct", "one's own jobs of today"),
            ("sacct -j 12 -o jobid,state,exitcode,maxrss", "what became of a job"),
            ("sacct -a -S now-7days -X --json", "everybody's week, for programs"),
        ],
        Command::Scontrol => &[
            ("scontrol show job 12", "all about a job"),
            ("scontrol update JobId=12 TimeLimit=2:00:00", "change a job"),
            ("scontrol update NodeName=n1 State=DRAIN Reason=disk", "no more jobs on a node"),
        ],
        Command::Sacctmgr => &[
            ("sacctmgr add account physics", "an account"),
            ("sacctmgr add user alice account=physics", "and who uses it"),
            ("sacctmgr modify qos normal set MaxTRESPU=gres/gpu=4", "a limit"),
        ],
        Command::Sreport => &[
            ("sreport cluster utilization", "how much of the cluster was used"),
            ("sreport user top", "who used most"),
            ("sreport job sizesbyaccount", "by the size of jobs"),
        ],
        Command::Sprio => &[
            ("sprio", "jobs that wait"),
            ("sprio -l", "with all factors"),
            ("sprio -w", "the weights of the factors"),
        ],
        Command::Sshare => &[
            ("sshare", "one's own shares"),
            ("sshare -a", "everybody's"),
            ("sshare -A physics -l", "an account's, with all columns"),
        ],
        Command::Sdiag => {
            &[("sdiag", "the scheduler's figures"), ("sdiag -r", "begin to count anew")]
        }
        Command::Sstat => &[
            ("sstat -j 12", "the first step of a job"),
            ("sstat -a -j 12", "all of its steps"),
            ("sstat -j 12.0 -o maxrss,avecpu", "memory and CPU of a step"),
        ],
        Command::Seff => &[("seff 12", "what a job used of what it had")],
        Command::Sattach => &[
            ("sattach 12.0", "see what a step prints"),
            ("sattach --output-filter=3 12.0", "of its task 3 alone"),
        ],
        Command::Sbcast => &[],
        Command::Strigger => &[
            ("strigger --get", "triggers that are set"),
            ("strigger --set --node=n1 --down --program=/opt/notify", "n1 goes down"),
            ("strigger --clear --id=3", "remove one"),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::option::parse::parse;

    #[test]
    fn examples_are_lines_that_the_command_takes() {
        for command in Command::ALL {
            for (line, _) in examples(command) {
                let mut words = line.split(' ');
                assert_eq!(words.next(), Some(command.name()), "{line}");
                let words: Vec<String> = words.map(|word| word.replace('"', "")).collect();
                assert!(parse(command, &words).is_ok(), "{line}");
            }
        }
    }
}
