//! A step's request for a part of its job's share, taken from its launch.

use cluster::command::StepRequest;
use model::container::Container;
use wire::step::StepLaunch;

pub fn step_ask(launch: &StepLaunch) -> StepRequest {
    StepRequest {
        name: launch.name.clone(),
        tasks: launch.tasks,
        nodes: launch.nodes,
        tasks_per_node: launch.tasks_per_node,
        cpus_per_task: launch.cpus_per_task,
        node_list: launch.node_list.clone(),
        overcommit: launch.overcommit,
        submit_line: launch.submit_line.clone(),
        cpu_frequency: launch.cpu_frequency,
        image: launch.container.as_deref().and_then(Container::image_of_step).map(str::to_owned),
        joins_script: launch.joins_script,
        shape: launch.shape.clone(),
    }
}
