//! `scontrol show ENTITY [NAME]`.

use super::{reservation, show_assoc_mgr};
use crate::command::slurm::query::job_names::{self, NamedJob};
use crate::command::slurm::query::{self, CommandError, Server};
use ::slurm::output::scontrol::{self as output, Options};
use model::change::JobFilter;
use model::hostlist;
use model::os_text;
use std::fs::File;
use std::io::{self, Read};
use std::process::ExitCode;
use wire::client::{Answer, Call, Detail, JobsQuery};
use wire::job_list::JobList;
use wire::view::{ClusterView, JobView};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entity {
    Aliases,
    AssocMgr,
    Config,
    Daemons,
    Federation,
    HostList,
    HostListSorted,
    HostNames,
    Job,
    Licenses,
    Node,
    Partition,
    Reservation,
    Step,
    Topology,
}

/// Entities by their names and synonyms. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const ENTITIES: &[(&str, Entity)] = &[
    ("aliases",        Entity::Aliases),
    ("assoc_mgr",      Entity::AssocMgr),
    ("config",         Entity::Config),
    ("configuration",  Entity::Config),
    ("daemons",        Entity::Daemons),
    ("federation",     Entity::Federation),
    ("hostlist",       Entity::HostList),
    ("hostlistsorted", Entity::HostListSorted),
    ("hostnames",      Entity::HostNames),
    ("hostname",       Entity::HostNames),
    ("job",            Entity::Job),
    ("jobs",           Entity::Job),
    ("jobid",          Entity::Job),
    ("licenses",       Entity::Licenses),
    ("node",           Entity::Node),
    ("nodes",          Entity::Node),
    ("nodename",       Entity::Node),
    ("partition",      Entity::Partition),
    ("partitions",     Entity::Partition),
    ("partitionname",  Entity::Partition),
    ("reservation",    Entity::Reservation),
    ("reservations",   Entity::Reservation),
    ("reservationname", Entity::Reservation),
    ("step",           Entity::Step),
    ("steps",          Entity::Step),
    ("stepid",         Entity::Step),
    ("topology",       Entity::Topology),
];

pub fn run(words: &[String], options: Options) -> Result<ExitCode, CommandError> {
    let Some((first, rest)) = words.split_first() else { return Err(super::too_few("show")) };
    // `show job=5` is `show job 5`.
    let (word, attached) = match first.split_once('=') {
        Some((word, name)) => (word, Some(name)),
        None => (first.as_str(), None),
    };
    let Some((_, entity)) = super::lookup(ENTITIES, word) else {
        return Err(CommandError::message(format!("invalid entity:{word} for keyword:show ")));
    };
    // The records of `assoc_mgr` alone are chosen by several words.
    if rest.len() + usize::from(attached.is_some()) > 1 && *entity != Entity::AssocMgr {
        return Err(CommandError::message("too many arguments for keyword:show"));
    }
    let name = attached.or(rest.first().map(String::as_str));
    let text = match entity {
        Entity::Job => return jobs(name, options),
        Entity::Step => return steps(name, options),
        Entity::Node => return nodes(name, options),
        Entity::Partition => return partitions(name, options),
        Entity::Reservation => return reservation::show(name, options),
        Entity::Licenses => return reservation::show_licenses(name, options),
        Entity::Config => return config(),
        Entity::HostNames => return hosts(name, output::hostnames),
        Entity::HostList | Entity::HostListSorted => {
            let listed = name.filter(|name| name.starts_with('/')).map(host_file).transpose()?;
            let name = listed.as_deref().or(name);
            return match entity {
                Entity::HostList => hosts(name, output::host_list),
                _ => hosts(name, output::host_list_sorted),
            };
        }
        Entity::Topology => topology(name)?,
        Entity::Aliases => aliases()?,
        Entity::AssocMgr => return show_assoc_mgr::run(rest),
        Entity::Daemons => "slurmctld slurmd\n".to_owned(),
        Entity::Federation => String::new(),
    };
    query::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// How long the request may wait for estimates of start times.
const ESTIMATES_MS: u64 = 5_000;

/// The named jobs, or all, including those that have ended and are still in memory.
fn load(
    named: &[NamedJob],
    steps: bool,
) -> Result<(Vec<JobView>, model::time::Timestamp), CommandError> {
    let mut server = Server::find("slurm_load_jobs error")?;
    let wanted = JobsQuery {
        detail: Detail::Full,
        filter: JobFilter {
            jobs: named.iter().map(|named| named.job.clone()).collect(),
            all_states: true,
            ..JobFilter::default()
        },
        steps,
        estimates_ms: ESTIMATES_MS,
        ..JobsQuery::default()
    };
    match server.ask(Call::Jobs(wanted))? {
        Answer::Jobs { now, jobs: JobList(mut jobs) } => {
            jobs.sort_by_key(|job| job.id);
            Ok((jobs, now))
        }
        other => Err(CommandError::unexpected(&other)),
    }
}

fn parse_named(name: Option<&str>) -> Result<Vec<NamedJob>, CommandError> {
    job_names::parse_jobs(name.unwrap_or_default())
        .map_err(|word| CommandError::message(format!("{}: {word}", output::NO_JOB)))
}

fn jobs(name: Option<&str>, options: Options) -> Result<ExitCode, CommandError> {
    let named = parse_named(name)?;
    let (jobs, now) = load(&named, false)?;
    let tz = timezone::local();
    let mut text = String::new();
    for job in &jobs {
        output::job::push(&mut text, job, query::moment(now, &tz), options);
    }
    if jobs.is_empty() && named.is_empty() {
        text.push_str(output::NO_JOBS);
    } else if jobs.is_empty() {
        return Err(CommandError::message(output::NO_JOB));
    }
    query::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn steps(name: Option<&str>, options: Options) -> Result<ExitCode, CommandError> {
    let named = parse_named(name)?;
    let (jobs, now) = load(&named, true)?;
    let wanted = named.first().and_then(|named| named.step);
    let tz = timezone::local();
    let mut text = String::new();
    for job in &jobs {
        output::step::push(&mut text, job, wanted, query::moment(now, &tz), options);
    }
    match (text.is_empty(), name) {
        (true, None) => text.push_str(output::NO_STEPS),
        (true, Some(name)) => text = format!("Job step {name} not found\n"),
        (false, _) => {}
    }
    query::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn cluster(server: &mut Server) -> Result<ClusterView, CommandError> {
    match server.ask(Call::Cluster)? {
        Answer::Cluster(cluster) => Ok(cluster),
        other => Err(CommandError::unexpected(&other)),
    }
}

fn nodes(name: Option<&str>, options: Options) -> Result<ExitCode, CommandError> {
    let cluster = cluster(&mut Server::find("slurm_load_node error")?)?;
    let tz = timezone::local();
    let moment = query::moment(cluster.now, &tz);
    let names: Vec<String> = match name {
        Some(list) => hostlist::expand(list).map_err(|e| CommandError::message(e.to_string()))?,
        None => cluster.nodes.iter().map(|node| node.config.name.clone()).collect(),
    };
    let mut text = String::new();
    let mut code = ExitCode::SUCCESS;
    for name in &names {
        match cluster.nodes.iter().find(|node| node.config.name == *name) {
            Some(node) => output::node::push(&mut text, node, moment, options),
            None => {
                text.push_str(&output::no_node(name));
                code = ExitCode::FAILURE;
            }
        }
    }
    if names.is_empty() {
        text.push_str("No nodes in the system\n");
    }
    query::print(&text)?;
    Ok(code)
}

fn partitions(name: Option<&str>, options: Options) -> Result<ExitCode, CommandError> {
    let cluster = cluster(&mut Server::find("slurm_load_partitions error")?)?;
    let chosen = cluster.partitions.iter().filter(|p| name.is_none_or(|name| p.name == name));
    let mut text = String::new();
    for partition in chosen {
        output::partition::push(&mut text, partition, &cluster, options);
    }
    let code = match (text.is_empty(), name) {
        (true, Some(name)) => {
            text = output::no_partition(name);
            ExitCode::FAILURE
        }
        (true, None) => {
            text = "No partitions in the system\n".to_owned();
            ExitCode::SUCCESS
        }
        (false, _) => ExitCode::SUCCESS,
    };
    query::print(&text)?;
    Ok(code)
}

fn config() -> Result<ExitCode, CommandError> {
    let mut server = Server::find("slurm_load_ctl_conf error")?;
    let config = match server.ask(Call::Config)? {
        Answer::Config(config) => config,
        other => return Err(CommandError::unexpected(&other)),
    };
    let hostname = match server.ask(Call::Ping)? {
        Answer::Pong { hostname, .. } => hostname,
        other => return Err(CommandError::unexpected(&other)),
    };
    let tz = timezone::local();
    let mut text = String::new();
    output::config::push(&mut text, &config, query::moment(config.now, &tz), &hostname);
    query::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// A missing topology is reported, and is no failure.
fn topology(name: Option<&str>) -> Result<String, CommandError> {
    let cluster = cluster(&mut Server::find("slurm_load_topo error")?)?;
    let Some(topology) = &cluster.topology else {
        eprintln!("{}", output::topology::NO_TOPOLOGY);
        return Ok(String::new());
    };
    Ok(output::topology::text(topology, name).unwrap_or_else(|| {
        eprintln!("{}", output::topology::unknown(name.unwrap_or_default()));
        String::new()
    }))
}

fn aliases() -> Result<String, CommandError> {
    let cluster = cluster(&mut Server::find("slurm_load_node error")?)?;
    let names: Vec<&str> = cluster.nodes.iter().map(|node| node.config.name.as_str()).collect();
    Ok(format!("{}\n", names.join(" ")))
}

/// The longest file of host names that is read.
const HOST_FILE_BYTES: u64 = 1 << 20;

/// The names in a file, for `show hostlist` with an absolute path.
fn host_file(path: &str) -> Result<String, CommandError> {
    let unreadable =
        |error: io::Error| CommandError::message(format!("scontrol: error: {path}: {error}"));
    let mut names = String::new();
    let file = File::open(os_text::to_os(path)).map_err(unreadable)?;
    file.take(HOST_FILE_BYTES + 1).read_to_string(&mut names).map_err(unreadable)?;
    if names.len() as u64 > HOST_FILE_BYTES {
        let text = format!("scontrol: error: {path}: expected at most {HOST_FILE_BYTES} bytes");
        return Err(CommandError::message(text));
    }
    Ok(names)
}

/// Prints host lists, without a server. The default is the list of the job that this runs in.
fn hosts<E>(
    list: Option<&str>,
    render: impl Fn(&str) -> Result<String, E>,
) -> Result<ExitCode, CommandError> {
    let own = std::env::var("SLURM_JOB_NODELIST").or_else(|_| std::env::var("SLURM_NODELIST"));
    let list = match (list, own) {
        (Some(list), _) => list.to_owned(),
        (None, Ok(own)) => own,
        (None, Err(_)) => return Err(super::too_few("show")),
    };
    match render(&list) {
        Ok(text) => query::print(&text)?,
        Err(_) => eprintln!("Invalid hostlist: {list}"),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::slurm::scontrol::lookup;

    #[test]
    fn entities_have_synonyms() {
        let table = [
            ("job", Some(Entity::Job)),
            ("JobId", Some(Entity::Job)),
            ("nodes", Some(Entity::Node)),
            ("part", Some(Entity::Partition)),
            ("partition", Some(Entity::Partition)),
            ("hostnames", Some(Entity::HostNames)),
            ("bogus", None),
        ];
        for (word, entity) in table {
            assert_eq!(lookup(ENTITIES, word).map(|(_, entity)| *entity), entity, "{word}");
        }
    }

    #[test]
    fn host_names_are_read_from_a_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "n2\nn1\nn3\n").expect("its names are written");
        let names = host_file(&file.path().display().to_string()).expect("its names");
        assert_eq!(output::host_list_sorted(&names).expect("names"), "n[1-3]\n");
        let missing = host_file("/no/such/file").expect_err("no file").to_string();
        assert!(missing.starts_with("scontrol: error: /no/such/file: "), "{missing}");
    }

    #[test]
    fn an_unknown_entity_is_refused() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let said = |text| run(&words(text), Options::default()).expect_err("wrong").to_string();
        assert_eq!(said("bogus"), "invalid entity:bogus for keyword:show ");
        assert_eq!(said("job 1 2"), "too many arguments for keyword:show");
        assert_eq!(said("job abc"), "slurm_load_jobs error: Invalid job id specified: abc");
    }
}
