//! A builder of submissions: `ask().cpus(2).array("0-3%2").after("afterok:1")`.

use cluster::command::Submit;
use model::amount::Bytes;
use model::array::ArraySpec;
use model::dependency::Dependency;
use model::principal::{Principal, Role};
use model::range::Range;
use model::request::{DeviceMake, GresRequest, Memory, Per, Request};
use model::run::{Component, Hold, JobSpec, Launch, LaunchKind, Retry};
use model::time::TimeLimit;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Ask(pub Submit);

pub fn user(name: &str, uid: u32) -> Principal {
    Principal {
        name: name.into(),
        uid,
        gid: uid,
        group: name.into(),
        groups: Vec::new(),
        role: Role::User,
        token_limit: None,
    }
}

pub fn alice() -> Principal {
    user("alice", 1000)
}

pub fn bob() -> Principal {
    user("bob", 1001)
}

pub fn root() -> Principal {
    Principal { role: Role::Admin, ..user("root", 0) }
}

/// A batch job of alice: one CPU with 1 GiB for an hour, not requeued when its node fails.
pub fn ask() -> Ask {
    let request = Request {
        memory: Memory::PerNode(Range::exactly(Bytes::from_gib(1))),
        time_limit: Some(TimeLimit::Minutes(60)),
        ..Request::default()
    };
    let launch = Launch {
        rlimits_asked: false,
        sample_s: None,
        container: None,
        kind: LaunchKind::Batch,
        script: None,
        environment: None,
        arguments: Vec::new(),
        work_dir: "/tmp".into(),
        command: None,
        stdin: None,
        stdout: None,
        stderr: None,
        first_step: None,
        configuration: None,
        service: None,
        port_forwards: None,
        secret_variables: Vec::new(),
        has_project_secrets: false,
        volumes: Vec::new(),
        without_container: false,
        shared_memory: None,
        startup_order: Default::default(),
        ends_with_first_node: false,
        limit_s: None,
        stop_s: None,
        login_environment: None,
        registry_auth: None,
        workspace: None,
        git_credentials: None,
        blob_bytes: Default::default(),
        unattended: false,
        append_output: false,
        umask: 0o022,
        rlimits: Arc::default(),
    };
    let spec = JobSpec {
        name: "job".into(),
        owner: Arc::new(alice()),
        account: None,
        qos: None,
        components: [Component { request: Arc::new(request) }].into(),
        launch: Arc::new(launch),
        dependency: None,
        kill_on_invalid_dependency: false,
        nice: 0,
        dstack_priority: None,
        requeue: false,
        retry: None,
        signal: None,
        comment: None,
        wckey: None,
        submit_line: "".into(),
        submit_host: "".into(),
        submit_sid: 0,
        mail: None,
        schedule: None,
        utilization: None,
        inactivity_s: None,
        call: None,
    };
    Ask(Submit {
        spec,
        array: None,
        hold: None,
        priority: None,
        het_components: Vec::new(),
        test_only: false,
        unique_name: false,
    })
}

impl Ask {
    pub fn with(mut self, set: impl FnOnce(&mut JobSpec)) -> Self {
        set(&mut self.0.spec);
        self
    }

    pub fn asking(self, set: impl FnOnce(&mut Request)) -> Self {
        self.with(|spec| set(Arc::make_mut(&mut Arc::make_mut(&mut spec.components)[0].request)))
    }

    /// With so many others of the same owner that have nothing to run.
    pub fn het(mut self, others: u8) -> Self {
        for cpus in 1..=u32::from(others) {
            let mut spec = ask().cpus(cpus).interactive().0.spec;
            spec.owner = self.0.spec.owner.clone();
            Arc::make_mut(&mut spec.launch).unattended = true;
            self.0.het_components.push(spec);
        }
        self
    }

    /// With another group: together they are one task.
    pub fn group(mut self, other: Ask) -> Self {
        self.0.het_components.push(other.0.spec);
        self
    }

    pub fn of(self, owner: Principal) -> Self {
        self.with(|spec| spec.owner = Arc::new(owner))
    }

    pub fn named(self, name: &str) -> Self {
        self.with(|spec| spec.name = name.into())
    }

    /// A dstack task: its commands on every node.
    pub fn task(self) -> Self {
        self.with(|spec| Arc::make_mut(&mut spec.launch).kind = LaunchKind::Task)
    }

    /// An allocation that a client holds.
    pub fn interactive(self) -> Self {
        self.with(|spec| Arc::make_mut(&mut spec.launch).kind = LaunchKind::Interactive)
    }

    pub fn nodes(self, count: u32) -> Self {
        self.asking(|r| (r.nodes, r.nodes_given) = (Range::exactly(count), true))
    }

    pub fn cpus(self, count: u32) -> Self {
        self.asking(|r| r.cpus_per_task = Range::exactly(count))
    }

    pub fn gpus(self, count: u64) -> Self {
        let gres = GresRequest {
            per: Per::Node,
            name: "gpu".into(),
            kinds: Vec::new(),
            count: Range::exactly(count),
            by_model: false,
            make: DeviceMake::default(),
            device_memory: None,
            total_memory: None,
        };
        self.asking(|r| r.gres.push(gres))
    }

    pub fn on(self, node: &str) -> Self {
        self.asking(|r| r.node_list = vec![node.into()])
    }

    pub fn array(mut self, text: &str) -> Self {
        self.0.array = Some(ArraySpec::parse(text, 1000).expect("an array of a test"));
        self
    }

    pub fn after(self, text: &str) -> Self {
        let dependency = Dependency::parse(text).expect("a dependency of a test");
        self.with(|spec| spec.dependency = Some(Box::new(dependency)))
    }

    pub fn held(mut self, by: Hold) -> Self {
        self.0.hold = Some(by);
        self
    }

    pub fn requeue(self) -> Self {
        self.with(|spec| spec.requeue = true)
    }

    pub fn retry(self, set: impl FnOnce(&mut Retry)) -> Self {
        let mut retry = Retry {
            on_no_capacity: false,
            on_interruption: false,
            on_error: false,
            duration_s: None,
            attempts_max: None,
        };
        set(&mut retry);
        self.with(|spec| spec.retry = Some(Box::new(retry)))
    }
}
