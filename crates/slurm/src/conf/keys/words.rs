//! Keys whose words act one by one: which of them do. A notice names each word that has no effect.

use crate::conf::error::{Findings, NoticeKind};
use crate::conf::keys::edit_distance;
use crate::conf::keys::record::Record;

/// Which words of a key act; a word may have a value (`name=value`).
pub enum WordSupport {
    /// These, and no others.
    Only(&'static [&'static str]),
    /// All but these.
    AllBut(&'static [&'static str]),
}
use WordSupport::{AllBut, Only};

pub const WORDS: &[(&str, WordSupport)] = &[
    ("AccountingStorageParameters", Only(&["kept_text_days", "kept_text_mib"])),
    // A job's comment is always recorded, its output's file names never.
    ("AccountingStoreFlags", Only(&["job_env", "job_script"])),
    ("AuthAltParameters", Only(&["jwt_key"])),
    ("AuthAltTypes", Only(&["auth/jwt"])),
    ("AuthInfo", Only(&["cred_expire"])),
    ("DependencyParameters", Only(&["kill_invalid_depend"])),
    (
        "PriorityFlags",
        AllBut(&["CALCULATE_RUNNING", "DEPTH_OBLIVIOUS", "INCR_ONLY", "NO_FAIR_TREE"]),
    ),
    // It shows nodes that are powered down in a cloud: all nodes are shown here.
    ("PrivateData", AllBut(&["cloud"])),
    ("PrologFlags", AllBut(&["ForceRequeueOnFail", "RunInJob", "X11"])),
    ("SchedulerParameters", Only(SCHEDULER_PARAMETERS)),
    (
        "SlurmctldParameters",
        Only(&[
            "cloud_reg_addrs",
            "idle_on_node_suspend",
            "power_save_interval",
            "power_save_min_interval",
        ]),
    ),
    (
        "SelectTypeParameters",
        AllBut(&[
            "ENFORCE_BINDING_GRES",
            "LL_SHARED_GRES",
            "MULTIPLE_SHARING_GRES_PJ",
            "ONE_TASK_PER_SHARING_GRES",
        ]),
    ),
    ("SlurmdParameters", Only(&["config_overrides"])),
    // No node is in these states here.
    ("SuspendExcStates", AllBut(&["PERFCTRS", "PLANNED"])),
    ("TaskPluginParam", AllBut(&["OOMKillStep", "SlurmdOffSpec"])),
    ("TopologyParam", Only(&["TopoOptional"])),
];

/// The others tune how Slurm's own scheduler walks its queue, while Sluice plans the whole queue.
const SCHEDULER_PARAMETERS: &[&str] = &[
    "bf_window",
    "bf_max_job_test",
    "bf_max_job_part",
    "bf_max_job_user",
    "bf_max_job_start",
    "bf_max_job_array_resv",
    "bf_min_prio_reserve",
    "bf_min_age_reserve",
    "enable_user_top",
    "kill_invalid_depend",
    "max_array_tasks",
    "max_script_size",
    "max_switch_wait",
    "nohold_on_prolog_fail",
    "pack_serial_at_end",
    // These two are always in effect.
    "bf_continue",
    "preempt_youngest_first",
];

/// No word of Slurm that has no effect is as near as this to one that acts.
const MISSPELT_EDITS_MAX: usize = 2;

/// The word that acts and that this one was most likely meant to be.
fn nearest(name: &str, words: &[&'static str]) -> Option<&'static str> {
    let ranked = words.iter().map(|word| (edit_distance(name, word), *word));
    let near = ranked.filter(|(distance, _)| *distance <= MISSPELT_EDITS_MAX);
    near.min().map(|(_, word)| word)
}

/// Notices the words of the record that have no effect.
pub fn notice(record: &Record, findings: &mut Findings) {
    for (key, support) in WORDS {
        let Some(entry) = record.entry(key) else { continue };
        for word in record.words(key) {
            let name = word.split('=').next().unwrap_or_default();
            let listed = |words: &[&str]| words.iter().any(|w| w.eq_ignore_ascii_case(name));
            let (acts, nearest) = match support {
                Only(words) => (listed(words), nearest(name, words)),
                AllBut(words) => (!listed(words), None),
            };
            if !acts {
                let why = match nearest {
                    Some(nearest) => NoticeKind::Misspelt { nearest: nearest.to_owned() },
                    None => NoticeKind::NoEffect,
                };
                findings.notice(&entry.place, format!("{key}={name}"), why);
            }
        }
    }
}
