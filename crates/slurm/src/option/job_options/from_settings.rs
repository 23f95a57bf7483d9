//! From settings to [`JobOptions`]: every value is given its type here, or is refused.

use super::{JobOptions, SwitchesOption};
use crate::option::command::Command;
use crate::option::defined_options;
use crate::option::error::OptionError;
use crate::option::key::OptionKey as K;
use crate::option::setting::{Setting, Source};
use crate::option::signal;
use crate::option::table::{self, Verdict};
use crate::option::value::context::{self, ValueContext};
use crate::option::value::{self, cpu_bind, cpu_freq, node_count, number_from, word_lists};
use model::container::{Container, ContainerName, ContainerUser, Mount, Variables, parse_work_dir};
use model::grammar::GrammarError;
use model::secret::SecretVariable;
use model::volume::VolumeUse;

/// `--immediate` without a number.
const IMMEDIATE_SECS_DEFAULT: u32 = 1;
const SIGTERM: i32 = 15;

type Result<T> = std::result::Result<T, OptionError>;

impl JobOptions {
    /// Gives each setting its type. The last setting of a key counts. `settings` come from [`crate::option::merge`], which
    /// leaves at most one way of asking for memory in them.
    pub fn from_settings(
        command: Command,
        settings: &[Setting],
        context: &dyn ValueContext,
    ) -> Result<JobOptions> {
        assert!(command.submits(), "{} does not submit", command.name());
        let mut setter = Setter { command, context, options: JobOptions::default() };
        for setting in settings {
            setter.set(setting).map_err(|error| error.at(setting.source))?;
        }
        let mut options = setter.finish()?;
        if options.verbose > 0 {
            options.defined = defined_options::lines(command, settings, options.verbose);
        }
        Ok(options)
    }
}

struct Setter<'a> {
    command: Command,
    context: &'a dyn ValueContext,
    options: JobOptions,
}

impl Setter<'_> {
    /// The options fall into groups. The first group that knows the key takes the setting; a setting that none knows is kept
    /// as text.
    fn set(&mut self, setting: &Setting) -> Result<()> {
        let (key, text, value) = (setting.key, setting.text(), setting.value.as_deref());
        // A variable of the environment may be the site's, for other clusters too.
        let is_given = !matches!(setting.source, Source::Environment(_));
        match table::verdict(self.command, key) {
            Verdict::NoMeaning(_) if is_given => {
                self.options.without_meaning.insert(key);
            }
            // What `srun` refuses, it refuses with words of its own.
            Verdict::Refused(why) if self.command != Command::Srun => {
                let name = table::long_name(self.command, key);
                return Err(OptionError::failure(format!("--{name} is not supported: {why}")));
            }
            _ => {}
        }
        let inherited = &mut self.options.step.inherited;
        match setting.source {
            Source::Environment(_) if self.command == Command::Srun => inherited.insert(key),
            _ => inherited.remove(&key),
        };
        let taken = self.set_identity(key, text)?
            || self.set_schedule(key, text, value)?
            || self.set_tasks(key, text)?
            || self.set_resources(key, text, value)?
            || self.set_container(key, text)?
            || self.set_processes(key, text, value)?
            || self.set_behaviour(key, text, value)?
            || self.set_step(key, text, value)?
            || self.set_step_flag(key);
        if !taken {
            self.options.untyped.insert(key, word_lists::check_untyped(key, text)?);
        }
        Ok(())
    }

    fn set_identity(&mut self, key: K, text: &str) -> Result<bool> {
        let options = &mut self.options;
        let given = || Some(text.to_owned()).filter(|text| !text.is_empty());
        match key {
            K::Account => options.account = given(),
            K::Comment => options.comment = given(),
            K::JobName => options.job_name = given(),
            // Each adds to those before it.
            K::MailType => {
                options.mail_types.extend(value::mail_types(text)?);
                options.mail_types.sort();
                options.mail_types.dedup();
            }
            K::MailUser => options.mail_user = given(),
            K::Partition => options.partitions = value::list(text),
            K::Qos => options.qos = given(),
            K::Reservation => options.reservation = given(),
            K::Wckey => options.wckey = given(),
            K::Uid => options.uid = Some(context::user(self.context, text)?),
            K::Gid => options.gid = Some(context::group(self.context, text)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_schedule(&mut self, key: K, text: &str, value: Option<&str>) -> Result<bool> {
        let options = &mut self.options;
        match key {
            K::Array => options.array = Some(value::array(text)?),
            K::Begin => options.begin = Some(context::when(self.context, text, "begin")?),
            K::Deadline => options.deadline = Some(context::when(self.context, text, "deadline")?),
            K::DelayBoot => options.delay_boot = Some(value::limit(text, "delay-boot")?),
            K::Dependency => options.dependency = value::dependency(text)?,
            K::Hold => options.hold = true,
            K::Immediate => {
                let secs = value.map(|text| number_from(0, text, "immediate")).transpose()?;
                options.immediate_secs = Some(secs.unwrap_or(IMMEDIATE_SECS_DEFAULT));
            }
            K::KillOnInvalidDep => {
                options.kill_on_invalid_dep = Some(value::yes_or_no(text, "kill-on-invalid-dep")?);
            }
            K::Nice => options.nice = Some(value::nice(value)?),
            K::NoKill => {
                options.no_kill = match value {
                    None => true,
                    Some(off) if off.eq_ignore_ascii_case("off") => false,
                    Some(on) if on.eq_ignore_ascii_case("set") => true,
                    Some(_) => return Err(OptionError::Specification("no-kill")),
                };
            }
            K::Priority => options.priority = Some(value::priority(text)?),
            // A job that expects fresh nodes must not run on others.
            K::Reboot => {
                let line = "--reboot is not supported: nodes are rebooted by `scontrol reboot`";
                return Err(OptionError::value(line));
            }
            K::Requeue => options.requeue = Some(true),
            K::NoRequeue => options.requeue = Some(false),
            K::Signal => {
                let batch = self.command == Command::Sbatch;
                options.signal = Some(value::signal_option(text, batch)?);
            }
            K::Time => options.time = Some(value::limit(text, "time")?),
            K::TimeMin => options.time_min = Some(value::limit(text, "time-min")?),
            K::WaitAllNodes => {
                options.wait_all_nodes = match number_from(0, text, "--wait-all-nodes")? {
                    wait @ (0 | 1) => Some(wait == 1),
                    _ => return Err(OptionError::Specification("wait-all-nodes")),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Counts of tasks, cores and the like.
    fn set_tasks(&mut self, key: K, text: &str) -> Result<bool> {
        let options = &mut self.options;
        let positive = |option: &str| number_from(1, text, option).map(Some);
        match key {
            K::CoreSpec => options.core_spec = Some(number_from(0, text, "--core-spec")?),
            K::ThreadSpec => options.thread_spec = Some(number_from(0, text, "--thread-spec")?),
            K::CoresPerSocket => options.cores_per_socket = positive("--cores-per-socket")?,
            K::CpusPerGpu => options.cpus_per_gpu = positive("--cpus-per-gpu")?,
            K::CpusPerTask => options.cpus_per_task = positive("--cpus-per-task")?,
            K::ExtraNodeInfo => self.set_extra_node_info(text)?,
            K::Mincpus => options.mincpus = positive("--mincpus")?,
            K::Nodes => {
                let (nodes, listed) = node_count::node_counts(text)?;
                (options.nodes, options.node_counts) = (Some(nodes), listed);
            }
            K::Segment => options.segment = positive("--segment")?,
            K::Ntasks => options.ntasks = positive("--ntasks")?,
            K::NtasksPerCore => options.ntasks_per_core = positive("--ntasks-per-core")?,
            K::NtasksPerGpu => options.ntasks_per_gpu = positive("--ntasks-per-gpu")?,
            K::NtasksPerNode => options.ntasks_per_node = positive("--ntasks-per-node")?,
            K::NtasksPerSocket => options.ntasks_per_socket = positive("--ntasks-per-socket")?,
            K::SocketsPerNode => options.sockets_per_node = positive("--sockets-per-node")?,
            K::ThreadsPerCore => options.threads_per_core = positive("--threads-per-core")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_resources(&mut self, key: K, text: &str, value: Option<&str>) -> Result<bool> {
        let options = &mut self.options;
        match key {
            K::Constraint => options.constraint = value::constraint(text)?,
            K::Contiguous => options.contiguous = true,
            K::Exclude => options.exclude = context::hosts(self.context, text)?,
            K::Exclusive => {
                options.exclusive = Some(value::exclusive(value)?);
                options.oversubscribe = false;
            }
            K::Gpus => options.gpus = value::gpus(text)?,
            K::GpusPerNode => options.gpus_per_node = value::gpus(text)?,
            K::GpusPerSocket => options.gpus_per_socket = value::gpus(text)?,
            K::GpusPerTask => options.gpus_per_task = value::gpus(text)?,
            K::Gres => {
                options.gres = value::gres(text)?;
                options.step.no_gres = text.trim().eq_ignore_ascii_case("none");
            }
            K::GresFlags => options.gres_flags = value::gres_flags(text)?,
            K::Licenses => options.licenses = value::licenses(text)?,
            K::Mem => options.mem = Some(value::size(text, "mem")?),
            K::MemPerCpu => options.mem_per_cpu = Some(value::size(text, "mem-per-cpu")?),
            K::MemPerGpu => options.mem_per_gpu = Some(value::size(text, "mem-per-gpu")?),
            K::Nodefile => options.nodelist = context::node_file(self.context, text)?,
            K::Nodelist => options.nodelist = context::hosts(self.context, text)?,
            K::Overcommit => options.overcommit = true,
            K::Oversubscribe => {
                options.oversubscribe = true;
                options.exclusive = None;
            }
            K::Prefer => options.prefer = value::constraint(text)?,
            K::SpreadJob => options.spread_job = true,
            K::Switches => {
                let wait_before = options.switches.and_then(|switches| switches.wait);
                let SwitchesOption { count, wait } = value::switches(text)?;
                options.switches = Some(SwitchesOption { count, wait: wait.or(wait_before) });
            }
            K::Wait4Switch => {
                let wait = Some(value::switch_wait(text)?);
                if let Some(switches) = &mut options.switches {
                    switches.wait = switches.wait.or(wait);
                }
            }
            K::Tmp => options.tmp = Some(value::size(text, "tmp")?),
            K::TresPerTask => self.set_tres_per_task(text)?,
            K::UseMinNodes => options.use_min_nodes = true,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `--container` and the flags of Pyxis, which say more of the same container.
    fn set_container(&mut self, key: K, text: &str) -> Result<bool> {
        let wrong = |error: GrammarError| OptionError::failure(error.to_string());
        let given = || Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut container = self.options.container.take().unwrap_or_default();
        let as_root = |on: bool| if on { ContainerUser::Root } else { ContainerUser::JobUser };
        match key {
            K::Container | K::ContainerImage => container.image = given(),
            K::ContainerEntrypoint => container.entrypoint = true,
            // What an entrypoint prints is the output of its task in any case.
            K::ContainerEntrypointLog => {}
            K::NoContainerEntrypoint => container.entrypoint = false,
            K::ContainerEnv => {
                let names = text.split(',').filter(|name| !name.is_empty());
                container.variables = Variables::Named(names.map(str::to_owned).collect());
            }
            K::ContainerMountHome => container.mount_home = Some(true),
            K::NoContainerMountHome => container.mount_home = Some(false),
            // Given several times, all are mounted, as with Pyxis.
            K::ContainerMounts => {
                container.mounts.extend(Mount::parse_list(text).map_err(wrong)?);
            }
            K::ContainerName => container.name = Some(ContainerName::parse(text).map_err(wrong)?),
            K::ContainerReadonly => container.read_only = true,
            K::ContainerWritable => container.read_only = false,
            K::ContainerRemapRoot => container.user = as_root(true),
            K::NoContainerRemapRoot => container.user = as_root(false),
            K::ContainerSave => container.save = given(),
            K::ContainerWorkdir => {
                let folder = given().map(|folder| parse_work_dir(&folder)).transpose();
                container.work_dir = folder.map_err(wrong)?;
            }
            _ => {
                self.options.container = Some(container).filter(|one| *one != Container::default());
                return Ok(false);
            }
        }
        self.options.container = Some(container).filter(|one| *one != Container::default());
        Ok(true)
    }

    fn set_processes(&mut self, key: K, text: &str, value: Option<&str>) -> Result<bool> {
        let options = &mut self.options;
        let given = || Some(text.to_owned()).filter(|text| !text.is_empty());
        match key {
            K::Chdir => options.chdir = given(),
            K::CpuBind => options.cpu_bind = Some(cpu_bind::cpu_bind(text)?),
            K::Distribution => options.distribution = Some(value::distribution(text)?),
            K::CpuFreq => options.cpu_freq = Some(cpu_freq::cpu_freq(text)?),
            K::Error => options.error = given(),
            K::Export => options.export = Some(value::export(text)?),
            K::Secret => {
                let wrong = |error: GrammarError| OptionError::failure(error.to_string());
                options.secrets.extend(SecretVariable::parse_list(text).map_err(wrong)?);
            }
            K::Volume => {
                let wrong = |error: GrammarError| OptionError::failure(error.to_string());
                options.volumes.extend(VolumeUse::parse_list(text).map_err(wrong)?);
            }
            K::Service => options.service = Some(service_port(text)?),
            K::ExportFile => options.export_file = given(),
            K::GetUserEnv => options.get_user_env = Some(value::get_user_env(text)?),
            K::GpuBind => options.gpu_bind = Some(word_lists::gpu_bind(text)?),
            K::TresBind => options.gpu_bind = Some(word_lists::tres_bind(text)?),
            K::Hint => options.hint = Some(word_lists::hint(text)?),
            K::Input => options.input = given(),
            K::MemBind => options.mem_bind = Some(cpu_bind::mem_bind(text)?),
            K::OpenMode => options.open_mode = Some(value::open_mode(text)?),
            K::Output => options.output = given(),
            K::Profile => options.profile = Some(word_lists::profile(text)?),
            K::Propagate => options.propagate = Some(word_lists::propagate(value)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_behaviour(&mut self, key: K, text: &str, value: Option<&str>) -> Result<bool> {
        let options = &mut self.options;
        match key {
            K::Bell => options.bell = Some(true),
            K::NoBell => options.bell = Some(false),
            K::Clusters => options.clusters = value::list(text),
            K::IgnorePbs => options.ignore_pbs = true,
            K::KillCommand => {
                let refused = || OptionError::Specification("kill-command");
                let number =
                    value.map(|text| signal::number(text).ok_or_else(refused)).transpose()?;
                options.kill_command = Some(number.unwrap_or(SIGTERM));
            }
            K::NoShell => options.no_shell = true,
            K::Parsable => options.parsable = true,
            K::Quiet => options.quiet = true,
            K::TestOnly => options.test_only = true,
            // Each -v counts once; a variable says the whole number.
            K::Verbose => {
                options.verbose += value.map_or(1, |text| text.trim().parse().unwrap_or(0))
            }
            K::Wait if self.command == Command::Sbatch => options.wait = true,
            K::Wrap => options.wrap = Some(text.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_step(&mut self, key: K, text: &str, value: Option<&str>) -> Result<bool> {
        let step = &mut self.options.step;
        let given = || Some(text.to_owned()).filter(|text| !text.is_empty());
        match key {
            K::Bcast => step.bcast = Some(text.to_owned()),
            K::Epilog => step.epilog = given(),
            K::HetGroup => step.het_group = Some(value::het_group(text)?),
            K::JobId => step.job_id = Some(number_from(1, text, "--jobid")?),
            K::KillOnBadExit => {
                let number = value.map(|text| number_from(0, text, "--kill-on-bad-exit"));
                step.kill_on_bad_exit = Some(number.transpose()?.unwrap_or(1) != 0);
            }
            K::Mpi => step.mpi = given(),
            K::Prolog => step.prolog = given(),
            K::Relative => step.relative = Some(number_from(0, text, "--relative")?),
            K::SlurmdDebug => step.slurmd_debug = given(),
            K::TaskEpilog => step.task_epilog = given(),
            K::TaskProlog => step.task_prolog = given(),
            K::Threads => step.threads = Some(number_from(1, text, "--threads")?),
            K::Wait => step.wait_secs = Some(number_from(0, text, "--wait")?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn set_step_flag(&mut self, key: K) -> bool {
        let step = &mut self.options.step;
        let flag = match key {
            K::DisableStatus => &mut step.disable_status,
            K::Exact => &mut step.exact,
            K::Label => &mut step.label,
            K::MultiProg => &mut step.multi_prog,
            K::NoAllocate => &mut step.no_allocate,
            K::Overlap => &mut step.overlap,
            K::PreserveEnv => &mut step.preserve_env,
            K::Pty => &mut step.pty,
            K::QuitOnInterrupt => &mut step.quit_on_interrupt,
            K::Unbuffered => &mut step.unbuffered,
            K::Whole => &mut step.whole,
            _ => return false,
        };
        *flag = true;
        true
    }

    /// `cpu=4,gres/gpu:h100=1`: the same as the options for each of them.
    fn set_tres_per_task(&mut self, text: &str) -> Result<()> {
        let options = &mut self.options;
        for part in value::list(text) {
            let refused = || OptionError::Specification("tres-per-task");
            let (name, count) = part.rsplit_once(['=', ':']).ok_or_else(refused)?;
            if name.eq_ignore_ascii_case("cpu") {
                options.cpus_per_task = Some(number_from(1, count, "--tres-per-task")?);
                continue;
            }
            let gres = name.strip_prefix("gres/").or(name.strip_prefix("gres:"));
            let asked = format!("{}:{count}", gres.ok_or_else(refused)?);
            for gres in value::gres(&asked)? {
                match gres.name.as_str() {
                    "gpu" => options.gpus_per_task.push(gres),
                    _ => options.gres_per_task.push(gres),
                }
            }
        }
        Ok(())
    }

    /// `sockets[:cores[:threads]]`, where `*` leaves a level open and of a range the smaller number counts.
    fn set_extra_node_info(&mut self, text: &str) -> Result<()> {
        let options = &mut self.options;
        let levels = [
            (&mut options.sockets_per_node, "first arg of -B"),
            (&mut options.cores_per_socket, "second arg of -B"),
            (&mut options.threads_per_core, "third arg of -B"),
        ];
        if text.split(':').count() > levels.len() {
            return Err(OptionError::Specification("extra-node-info"));
        }
        for (part, (level, name)) in text.split(':').zip(levels) {
            let min = part.split_once('-').map_or(part, |(min, _)| min);
            *level = if min == "*" { None } else { Some(number_from(1, min, name)?) };
        }
        Ok(())
    }

    /// Checks what depends on several values.
    fn finish(self) -> Result<JobOptions> {
        let options = self.options;
        if options.is_arbitrary() && options.nodelist.is_empty() {
            return Err(OptionError::failure(
                "With Arbitrary distribution you need to specify a nodelist or hostfile \
                 with the -w option",
            ));
        }
        Ok(options)
    }
}

/// The port of `--service`.
fn service_port(text: &str) -> Result<u16> {
    let port = text.parse::<u16>().ok().filter(|port| *port > 0);
    port.ok_or_else(|| {
        OptionError::failure(format!("--service={text}: expected a port from 1 to 65535"))
    })
}
