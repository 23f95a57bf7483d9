//! Tasks and dev environments, and what they share with services.

use super::profile::PROFILE;
use super::resources::RESOURCES;
use crate::configuration::property::{Default, Form, Property, Table, acts, acts_in_part, notice};
use crate::configuration::shape::{amount, env, mount, network, policy, run};

const FOR_CLIENT: &str =
    "is for the client, which prints a link: nothing of it is installed in the run";

/// A client is attached to the first node of a run.
const GROUP_PORTS: &str =
    "of a group come to your machine by `sluice port RUN.NODE PORT` alone, while the run runs";

pub const PORTS: Form = Form::List(&Form::Shape(network::port), "ports");
pub const COMMANDS: Form = Form::List(&Form::Shape(run::command), "shell commands");

static REGISTRY_AUTH: Table = Table {
    of: "registry_auth",
    sections: &[&[
        acts("username", Form::Shape(env::secret_text)).or(Default::Required("a user's name")),
        acts("password", Form::Shape(env::secret_text)).or(Default::Required("a password")),
    ]],
};

/// What tasks, dev environments and services have in common.
pub const RUN: &[Property] = &[
    acts("name", Form::Shape(run::run_name)),
    acts("image", Form::Shape(run::image_name)),
    acts("user", Form::Shape(run::user)),
    // `check` refuses it without an image. It takes the site's consent, which is checked at submit.
    acts_in_part("privileged", Form::Bool).or(Default::Written("false")),
    acts("entrypoint", Form::Shape(run::entrypoint)),
    acts("working_dir", Form::Shape(run::absolute_path)),
    notice("home_dir", Form::Text, "has no effect without a container")
        .or(Default::Written("/home/user")),
    acts_in_part("registry_auth", Form::Map(&REGISTRY_AUTH)),
    acts("python", Form::Shape(run::python)),
    // `check` refuses it beside an image.
    acts_in_part("nvcc", Form::Bool),
    acts("single_branch", Form::Bool),
    acts("env", Form::Shape(env::env)).or(Default::Empty),
    acts("shell", Form::Shape(run::shell)),
    acts("resources", Form::Map(&RESOURCES)).or(Default::Empty),
    acts("priority", Form::Integer(0, 100)),
    // `check` refuses folders that a run without an image would find at another path.
    acts_in_part("volumes", Form::List(&Form::Shape(mount::volume), "volumes")).or(Default::Empty),
    // It takes the site's consent as well.
    acts("docker", Form::Bool),
    // `check` refuses a second one.
    acts_in_part("repos", Form::List(&Form::Shape(mount::repo), "repos")).or(Default::Empty),
    acts("files", Form::List(&Form::Shape(mount::file), "files")).or(Default::Empty),
    notice("dstack", Form::Bool, "has no effect: the server can always be reached from a run")
        .or(Default::Written("false")),
];

/// `setup` of tasks and services.
pub const SETUP_IGNORED: &[Property] = &[notice(
    "setup",
    SETUP_LINES,
    "has no effect, as in dstack since 0.18: put the lines first in `commands`",
)
.or(Default::Empty)];

/// `setup` of dev environments: commands before those of `init`.
const SETUP: &[Property] = &[acts("setup", SETUP_LINES).or(Default::Empty)];

const SETUP_LINES: Form = Form::List(&Form::Shape(run::command), "shell commands");

/// Properties that Slurm's jobs have and dstack's do not.
pub const OURS: &[Property] = &[
    acts("depends_on", Form::Shape(run::depends_on)).or(Default::Absent),
    acts("array", Form::Shape(run::array)).or(Default::Absent),
    acts("account", Form::Text).or(Default::Absent),
    acts("qos", Form::Text).or(Default::Absent),
    acts_in_part("runtime", Form::Words(&["process", "container"])).or(Default::Absent),
];

pub static NODE_GROUP: Table = Table {
    of: "group",
    sections: &[&[
        acts("name", Form::Shape(run::group_name)),
        acts("nodes", Form::Integer(1, u32::MAX as i64)).or(Default::Written("1")),
        acts("resources", Form::Map(&RESOURCES)).or(Default::Empty),
        acts("commands", COMMANDS).or(Default::Empty),
        notice("ports", PORTS, GROUP_PORTS).or(Default::Empty),
    ]],
};

pub static TASK: Table = Table {
    of: "task",
    sections: &[
        &[
            acts("nodes", Form::Shape(amount::task_nodes)),
            acts("groups", Form::List(&Form::Map(&NODE_GROUP), "groups")),
            acts("ports", PORTS).or(Default::Empty),
            acts("commands", COMMANDS).or(Default::Empty),
            acts("type", Form::Text),
        ],
        RUN,
        SETUP_IGNORED,
        PROFILE,
        OURS,
    ],
};

pub static DEV_ENVIRONMENT: Table = Table {
    of: "dev-environment",
    sections: &[
        &[
            notice("ide", Form::Words(&["vscode", "cursor", "windsurf", "zed"]), FOR_CLIENT),
            notice("version", Form::Text, FOR_CLIENT),
            acts("init", COMMANDS).or(Default::Empty),
            acts("inactivity_duration", Form::Shape(policy::inactivity)),
            acts("ports", PORTS).or(Default::Empty),
            acts("type", Form::Text),
        ],
        RUN,
        SETUP,
        PROFILE,
        OURS,
    ],
};
