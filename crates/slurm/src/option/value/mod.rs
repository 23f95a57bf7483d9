//! The values of options, from text to type. Each refusal is in Slurm's words.
//!
//! [`context`] has the values that depend on the caller, [`cpu_bind`] the bindings of tasks to CPUs and memory, [`cpu_freq`] the
//! frequencies of CPUs, [`node_count`]
//! the value of `--nodes`, and [`word_lists`] the values that are only checked against the words that Slurm knows.

pub mod context;
pub mod cpu_bind;
pub mod cpu_freq;
pub mod node_count;
pub mod word_lists;

use model::amount::Bytes;
use model::array::{ArraySpec, IndexSet};
use model::constraint::Constraint;
use model::dependency::Dependency;
use model::gres::{self, GresCount};
use model::hostlist;
use model::mail::MailType;
use model::run::LoginEnvironment;
use model::time::{self, TimeLimit};

use crate::option::error::OptionError;
use crate::option::job_options::{
    Distribution, Exclusive, Export, ExportVariable, GresFlag, LicenseCount, LocalDistribution,
    NodeDistribution, OpenMode, PriorityOption, SignalOption, SwitchesOption,
};
use crate::option::signal;
use crate::words::refusal;

/// The seconds of a `--signal` without a time.
const SIGNAL_SECS_DEFAULT: u32 = 60;
const SIGNAL_SECS_MAX: u32 = 65_535;
/// The seconds of a `--get-user-env` without a number, and the most that are waited.
const USER_ENV_SECS_DEFAULT: u32 = 8;
const USER_ENV_SECS_MAX: u32 = 3600;
const NICE_MAX: i64 = 2_147_483_645;
const NICE_DEFAULT: i32 = 100;
/// The largest array index that the grammar takes; the server has a smaller limit (`MaxArraySize`).
const ARRAY_INDEX_MAX: u32 = u32::MAX - 2;
const HET_COMPONENT_MAX: u32 = 127;
const PRIORITY_END: u64 = 4_294_967_294;

type Result<T> = std::result::Result<T, OptionError>;

/// A whole number of at least `min`. `option` is as Slurm names it in the refusal.
pub fn number_from(min: u32, text: &str, option: &str) -> Result<u32> {
    let digits = text.trim_start();
    digits
        .strip_prefix('+')
        .unwrap_or(digits)
        .parse::<i32>()
        .ok()
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| *number >= min)
        .ok_or_else(|| OptionError::number(text, option))
}

/// `--mem`, `--tmp` and other sizes.
pub fn size(text: &str, option: &'static str) -> Result<Bytes> {
    Bytes::parse_slurm(text).map_err(|_| OptionError::Specification(option))
}

/// `--time`: a limit; zero means unlimited.
pub fn limit(text: &str, option: &'static str) -> Result<TimeLimit> {
    time::parse_time_limit(text)
        .map(TimeLimit::zero_is_unlimited)
        .map_err(|_| OptionError::Specification(option))
}

/// A list of hosts, such as `node[1-3],gpu1`.
pub fn hosts(text: &str) -> Result<Vec<String>> {
    hostlist::expand(text).map_err(|_| OptionError::Refused(refusal::INVALID_NODE_NAME.text))
}

/// `a,b`; empty parts are dropped.
pub fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// `--gres`; `none` asks for nothing.
pub fn gres(text: &str) -> Result<Vec<GresCount>> {
    if text.eq_ignore_ascii_case("none") {
        return Ok(Vec::new());
    }
    gres::parse_request(text).map_err(OptionError::Gres)
}

/// `--gpus`, `--gpus-per-node` and the others.
pub fn gpus(text: &str) -> Result<Vec<GresCount>> {
    gres::parse_gpus(text).map_err(OptionError::Gres)
}

/// `name[:count]`, with commas or semicolons between them.
pub fn licenses(text: &str) -> Result<Vec<LicenseCount>> {
    let refused = || OptionError::Refused(refusal::INVALID_LICENSES.text);
    list(&text.replace(';', ","))
        .into_iter()
        .map(|part| {
            let (name, count) = match part.rsplit_once(':') {
                Some((name, count)) => (name, count.parse().map_err(|_| refused())?),
                None => (part.as_str(), 1),
            };
            match name {
                "" => Err(refused()),
                _ => Ok(LicenseCount { name: name.to_owned(), count }),
            }
        })
        .collect()
}

/// `[R][B]:signal[@seconds]`. Only a batch job has a script that can be meant by `B`.
pub fn signal_option(text: &str, batch: bool) -> Result<SignalOption> {
    let refused = || OptionError::Specification("signal");
    let (flags, rest) = text.split_once(':').unwrap_or(("", text));
    let mut option = SignalOption {
        signal: 0,
        before_secs: SIGNAL_SECS_DEFAULT,
        batch_only: false,
        for_reservation: false,
    };
    for flag in flags.chars() {
        match flag.to_ascii_uppercase() {
            'B' if batch => option.batch_only = true,
            'R' => option.for_reservation = true,
            _ => return Err(refused()),
        }
    }
    let (name, secs) = match rest.split_once('@') {
        Some((name, secs)) => (name, Some(secs)),
        None => (rest, None),
    };
    option.signal = signal::number(name).ok_or_else(refused)?;
    if let Some(secs) = secs {
        option.before_secs =
            secs.parse().ok().filter(|secs| *secs <= SIGNAL_SECS_MAX).ok_or_else(refused)?;
    }
    Ok(option)
}

/// `--nice[=value]`.
pub fn nice(text: Option<&str>) -> Result<i32> {
    let Some(text) = text else { return Ok(NICE_DEFAULT) };
    let value: i64 = text.trim().parse().map_err(|_| OptionError::Specification("nice"))?;
    if value.abs() > NICE_MAX {
        let words = format!("Invalid --nice value, out of range (+/- {NICE_MAX})");
        return Err(OptionError::value(words));
    }
    i32::try_from(value).map_err(|_| OptionError::Specification("nice"))
}

pub fn priority(text: &str) -> Result<PriorityOption> {
    if text.eq_ignore_ascii_case("TOP") {
        return Ok(PriorityOption::Top);
    }
    let value: i64 = text.trim().parse().map_err(|_| OptionError::Specification("priority"))?;
    let Ok(value) = u64::try_from(value) else {
        return Err(OptionError::value("Priority must be >= 0"));
    };
    match u32::try_from(value) {
        Ok(small) if value < PRIORITY_END => Ok(PriorityOption::Value(small)),
        _ => Err(OptionError::value(format!("Priority must be < {PRIORITY_END}"))),
    }
}

/// `ALL`, `NONE`, `NIL`, or a list of names with or without values, to which `ALL` may be added.
pub fn export(text: &str) -> Result<Export> {
    match text.to_ascii_uppercase().as_str() {
        "ALL" => return Ok(Export::All(Vec::new())),
        "NONE" => return Ok(Export::None),
        "NIL" => return Ok(Export::Nil),
        _ => {}
    }
    let mut all = false;
    let mut variables = Vec::new();
    for part in split_outside_quotes(text) {
        if part.eq_ignore_ascii_case("ALL") {
            all = true;
            continue;
        }
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (part.as_str(), None),
        };
        if name.is_empty() {
            return Err(OptionError::Specification("export"));
        }
        variables.push(ExportVariable { name: name.to_owned(), value });
    }
    Ok(if all { Export::All(variables) } else { Export::Only(variables) })
}

/// Splits at commas outside `'…'` and `"…"`, and removes the quotes and empty parts.
fn split_outside_quotes(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quote = None;
    for c in text.chars() {
        match c {
            _ if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => quote = Some(c),
            ',' if quote.is_none() => parts.push(String::new()),
            _ => parts.last_mut().expect("there is a first part").push(c),
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// `--exclusive[=user|mcs]`.
pub fn exclusive(text: Option<&str>) -> Result<Exclusive> {
    match text.unwrap_or_default().to_ascii_lowercase().as_str() {
        "" | "exclusive" => Ok(Exclusive::AnyJob),
        "user" => Ok(Exclusive::OtherUsers),
        "mcs" => Ok(Exclusive::OtherLabels),
        // A value of Slurm since 24.05.
        "topo" => {
            let why = "jobs would share the blocks and switches that are to be theirs alone";
            Err(OptionError::value(format!("--exclusive=topo is not supported: {why}")))
        }
        _ => Err(OptionError::Specification("exclusive")),
    }
}

/// Slurm looks at the first letter only.
pub fn open_mode(text: &str) -> Result<OpenMode> {
    match text.chars().next() {
        Some('a' | 'A') => Ok(OpenMode::Append),
        Some('t' | 'T') => Ok(OpenMode::Truncate),
        _ => Err(OptionError::Specification("open-mode")),
    }
}

/// How near the CPUs must be to the devices, by the last of the flags that says it. Slurm since 23.11 takes several
/// flags, also of how tasks get the shares of a GPU.
pub fn gres_flags(text: &str) -> Result<Option<GresFlag>> {
    let mut binding = None;
    for flag in text.split(',') {
        match flag.to_ascii_lowercase().as_str() {
            "enforce-binding" => binding = Some(GresFlag::EnforceBinding),
            "disable-binding" => binding = Some(GresFlag::DisableBinding),
            // So anyway.
            "multiple-tasks-per-sharing" => {}
            "one-task-per-sharing" => {
                let why = "tasks may get shares of the same GPU";
                let line = format!("--gres-flags={flag} is not supported: {why}");
                return Err(OptionError::value(line));
            }
            _ => return Err(OptionError::Specification("gres-flags")),
        }
    }
    Ok(binding)
}

/// `--get-user-env[=timeout][mode]`: seconds, and `L` for the environment of a login or `S` for that of another shell.
pub fn get_user_env(text: &str) -> Result<LoginEnvironment> {
    let refused = || OptionError::Specification("get-user-env");
    let (digits, login) = match text.char_indices().next_back() {
        Some((at, 'l' | 'L')) => (&text[..at], true),
        Some((at, 's' | 'S')) => (&text[..at], false),
        _ => (text, true),
    };
    let timeout_s = match digits {
        "" => USER_ENV_SECS_DEFAULT,
        digits => {
            let seconds = digits.parse::<u32>().ok();
            seconds.filter(|seconds| *seconds <= USER_ENV_SECS_MAX).ok_or_else(refused)?
        }
    };
    Ok(LoginEnvironment { timeout_s, login })
}

/// `yes` or `no`.
pub fn yes_or_no(text: &str, option: &'static str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(OptionError::Specification(option)),
    }
}

/// How long a job waits for few switches; zero does not wait.
pub fn switch_wait(text: &str) -> Result<TimeLimit> {
    time::parse_time_limit(text).map_err(|_| OptionError::Specification("switches"))
}

/// `max[@wait]`.
pub fn switches(text: &str) -> Result<SwitchesOption> {
    let (count, wait) = match text.split_once('@') {
        Some((count, wait)) => (count, Some(switch_wait(wait)?)),
        None => (text, None),
    };
    Ok(SwitchesOption { count: number_from(1, count, "--switches")?, wait })
}

/// How many of [`MailType::ALL`] the word `ALL` names.
pub const MAIL_ALL: usize = 6;

/// The events of `--mail-type`, sorted; none if `NONE` is among them.
pub fn mail_types(text: &str) -> Result<Vec<MailType>> {
    let words = list(text);
    if words.is_empty() {
        return Err(OptionError::Specification("mail-type"));
    }
    let mut events = Vec::new();
    for word in &words {
        let named = MailType::ALL.into_iter().find(|e| e.name().eq_ignore_ascii_case(word));
        match named {
            Some(event) => events.push(event),
            None if word.eq_ignore_ascii_case("ALL") => {
                events.extend(&MailType::ALL[..MAIL_ALL]);
            }
            None if word.eq_ignore_ascii_case("NONE") => return Ok(Vec::new()),
            None => return Err(OptionError::Specification("mail-type")),
        }
    }
    events.sort();
    events.dedup();
    Ok(events)
}

/// `nodes[:sockets[:cores]][,Pack|NoPack]`, where `*` is the default of a level.
pub fn distribution(text: &str) -> Result<Distribution> {
    let refused = || OptionError::Specification("distribution");
    let mut found = Distribution::default();
    for part in text.to_ascii_lowercase().split(',') {
        match part {
            "pack" => found.pack = Some(true),
            "nopack" => found.pack = Some(false),
            levels => {
                let levels: Vec<&str> = levels.split(':').collect();
                if levels.len() > 3 {
                    return Err(refused());
                }
                found.nodes = node_distribution(levels[0]).ok_or_else(|| {
                    match levels[0].strip_prefix("plane") {
                        Some(_) => OptionError::Value(vec![
                            "Invalid plane size or size not specified".to_owned(),
                            "Invalid --distribution specification".to_owned(),
                        ]),
                        None => refused(),
                    }
                })?;
                found.sockets = local_distribution(levels.get(1)).ok_or_else(refused)?;
                found.cores = local_distribution(levels.get(2)).ok_or_else(refused)?;
            }
        }
    }
    Ok(found)
}

/// The outer `None` is an unknown word, the inner one the default.
fn node_distribution(word: &str) -> Option<Option<NodeDistribution>> {
    match word {
        "*" => Some(None),
        "block" => Some(Some(NodeDistribution::Block)),
        "cyclic" => Some(Some(NodeDistribution::Cyclic)),
        "arbitrary" => Some(Some(NodeDistribution::Arbitrary)),
        _ => {
            let size = word.strip_prefix("plane=")?.parse().ok()?;
            (size > 0).then_some(Some(NodeDistribution::Plane(size)))
        }
    }
}

fn local_distribution(word: Option<&&str>) -> Option<Option<LocalDistribution>> {
    match word.copied() {
        None | Some("*") => Some(None),
        Some("block") => Some(Some(LocalDistribution::Block)),
        Some("cyclic") => Some(Some(LocalDistribution::Cyclic)),
        Some("fcyclic") => Some(Some(LocalDistribution::Fcyclic)),
        Some(_) => None,
    }
}

/// `--array`.
pub fn array(text: &str) -> Result<ArraySpec> {
    ArraySpec::parse(text, ARRAY_INDEX_MAX)
        .map_err(|_| OptionError::Unreadable(refusal::INVALID_ARRAY))
}

/// `--dependency`; an empty text takes an earlier one back.
pub fn dependency(text: &str) -> Result<Option<Dependency>> {
    if text.is_empty() {
        return Ok(None);
    }
    Dependency::parse(text)
        .map(Some)
        .map_err(|_| OptionError::Unreadable(refusal::INVALID_DEPENDENCY))
}

/// `--constraint` and `--prefer`; an empty text takes an earlier one back.
pub fn constraint(text: &str) -> Result<Option<Constraint>> {
    if text.is_empty() {
        return Ok(None);
    }
    Constraint::parse(text)
        .map(Some)
        .map_err(|_| OptionError::Refused(refusal::INVALID_FEATURE.text))
}

/// `--het-group`: the components to run on.
pub fn het_group(text: &str) -> Result<IndexSet> {
    IndexSet::parse(text, HET_COMPONENT_MAX)
        .map_err(|_| OptionError::failure(format!("Invalid --het-group value: {text}")))
}

#[cfg(test)]
mod tests;
