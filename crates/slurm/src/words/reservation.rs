//! Flags of reservations, in the words of `scontrol`.

use model::partition::Access;
use model::reservation::{Reservation, ReservationFlag as Flag};
use model::time::format_elapsed_full;

/// In the order in which they are shown: the flag, the word that is read, and the word that is shown.
/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const FLAGS: [(Flag, &str, &str); 21] = [
    (Flag::Maint,           "MAINT",              "MAINT"),
    (Flag::Flex,            "FLEX",               "FLEX"),
    (Flag::Overlap,         "OVERLAP",            "OVERLAP"),
    (Flag::IgnoreJobs,      "IGNORE_JOBS",        "IGNORE_JOBS"),
    (Flag::Hourly,          "HOURLY",             "HOURLY"),
    (Flag::Daily,           "DAILY",              "DAILY"),
    (Flag::Weekday,         "WEEKDAY",            "WEEKDAY"),
    (Flag::Weekend,         "WEEKEND",            "WEEKEND"),
    (Flag::Weekly,          "WEEKLY",             "WEEKLY"),
    (Flag::SpecNodes,       "",                   "SPEC_NODES"),
    (Flag::AnyNodes,        "ANY_NODES",          "ANY_NODES"),
    (Flag::StaticAlloc,     "STATIC_ALLOC",       "STATIC"),
    (Flag::FirstCores,      "FIRST_CORES",        "FIRST_CORES"),
    (Flag::TimeFloat,       "TIME_FLOAT",         "TIME_FLOAT"),
    (Flag::Replace,         "REPLACE",            "REPLACE"),
    (Flag::ReplaceDown,     "REPLACE_DOWN",       "REPLACE_DOWN"),
    (Flag::PartNodes,       "PART_NODES",         "PART_NODES"),
    (Flag::PurgeComp,       "PURGE_COMP",         "PURGE_COMP"),
    (Flag::NoHoldJobsAfter, "NO_HOLD_JOBS_AFTER", "NO_HOLD_JOBS_AFTER_END"),
    (Flag::Magnetic,        "MAGNETIC",           "MAGNETIC"),
    (Flag::UserDelete,      "USER_DELETE",        "USER_DELETE"),
];

/// The flag that a word names, in any case, or by what it is shown as.
pub fn flag(word: &str) -> Option<Flag> {
    let is = |name: &str| !name.is_empty() && name.eq_ignore_ascii_case(word);
    if is("LICENSE_ONLY") {
        return Some(Flag::AnyNodes);
    }
    let row = FLAGS.iter().find(|(_, read, shown)| is(read) || (!read.is_empty() && is(shown)));
    row.map(|(flag, ..)| *flag)
}

/// `MAINT,DAILY,SPEC_NODES`; empty for none.
pub fn flags(reservation: &Reservation) -> String {
    let set = FLAGS.iter().filter(|(flag, ..)| reservation.has(*flag));
    let word = |(flag, _, shown): &(Flag, &str, &str)| match (flag, reservation.purge_after_s) {
        (Flag::PurgeComp, Some(after)) => {
            format!("{shown}={}", format_elapsed_full(u64::from(after)))
        }
        _ => (*shown).to_owned(),
    };
    set.map(word).collect::<Vec<_>>().join(",")
}

/// `alice,bob`, or `-bob` for an excluded name; `None` when nobody is named.
pub fn names(access: Option<&Access>) -> Option<String> {
    match access? {
        Access::All => None,
        Access::Only(names) => Some(names.join(",")),
        Access::Except(names) => {
            Some(names.iter().map(|name| format!("-{name}")).collect::<Vec<_>>().join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_in_any_case_and_shown_in_slurms_order() {
        let words = "maint,ignore_jobs,daily,flex,overlap,magnetic,no_hold_jobs_after,purge_comp,static_alloc,first_cores";
        let flags_read = words.split(',').map(|word| flag(word).expect(word));
        let reservation = Reservation {
            flags: flags_read.chain([Flag::SpecNodes]).collect(),
            purge_after_s: Some(300),
            ..Reservation::default()
        };
        let shown = "MAINT,FLEX,OVERLAP,IGNORE_JOBS,DAILY,SPEC_NODES,STATIC,FIRST_CORES,\
                     PURGE_COMP=00:05:00,NO_HOLD_JOBS_AFTER_END,MAGNETIC";
        assert_eq!(flags(&reservation), shown);
        for word in ["", "bogus", "spec_nodes"] {
            assert_eq!(flag(word), None, "{word}");
        }
        assert_eq!(flag("License_Only"), Some(Flag::AnyNodes));
    }
}
