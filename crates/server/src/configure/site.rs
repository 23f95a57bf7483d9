//! Prolog, epilog, health check, sampling and private folders, from slurm.conf and job_container.conf.

use model::health::{HealthCheck, NodeLoad};
use model::site::{ContainerSite, SAMPLE_S_DEFAULT, Site};
use slurm::conf::Conf;
use slurm::conf::keys::choices::{Choice, HealthCheckState, PrologFlag};
use slurm::conf::slurm_conf::globals::Programs;

pub fn site(conf: &Conf) -> Site {
    let globals = &conf.slurm.globals;
    let programs = &globals.programs;
    let list = |text: &Option<String>| -> Vec<String> {
        let parts = text.iter().flat_map(|text| text.split(','));
        parts.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
    };
    let has = |flag| programs.prolog_flags.contains(&flag);
    Site {
        prolog: list(&programs.prolog),
        epilog: list(&programs.epilog),
        task_prolog: programs.task_prolog.clone(),
        task_epilog: programs.task_epilog.clone(),
        srun_prolog: programs.srun_prolog.clone(),
        srun_epilog: programs.srun_epilog.clone(),
        controller_prolog: programs.prolog_slurmctld.clone(),
        controller_epilog: programs.epilog_slurmctld.clone(),
        mail_program: programs.mail_program.clone(),
        mail_domain: programs.mail_domain.clone(),
        prolog_at_allocation: has(PrologFlag::Alloc)
            || has(PrologFlag::Contain)
            || has(PrologFlag::RunInJob)
            || has(PrologFlag::X11),
        no_hold: has(PrologFlag::NoHold),
        defer_batch: has(PrologFlag::DeferBatch),
        one_at_a_time: has(PrologFlag::Serial),
        timeout_s: globals.times.prolog_epilog_timeout_s,
        hold_on_failure: !globals.scheduling.parameters.has("nohold_on_prolog_fail"),
        health_check: health_check(programs),
        sample_s: globals.accounting.sample_s.unwrap_or(SAMPLE_S_DEFAULT),
        scratch: conf.slurm.raw.get("TmpFS").map(|given| given.text.clone()),
        private: conf.private.all.clone(),
        private_of: conf.private.nodes.clone(),
        containers: ContainerSite {
            runtime: globals.launch.container_type.map(|runtime| runtime.word().to_owned()),
            ..ContainerSite::default()
        },
        dcgm_exporter: None,
        cpu_frequency: globals.launch.cpu_frequency.clone(),
    }
}

/// `CYCLE` alone checks every node, as `ANY` does.
fn health_check(programs: &Programs) -> Option<HealthCheck> {
    let program = programs.health_check.clone().filter(|_| programs.health_check_interval_s > 0)?;
    let states = &programs.health_check_states;
    let load = |state: &HealthCheckState| match state {
        HealthCheckState::Alloc => Some(NodeLoad::Allocated),
        HealthCheckState::Idle => Some(NodeLoad::Idle),
        HealthCheckState::Mixed => Some(NodeLoad::Mixed),
        HealthCheckState::Any | HealthCheckState::Cycle => None,
    };
    let mut loads: Vec<NodeLoad> = states.iter().filter_map(load).collect();
    if loads.is_empty() || states.contains(&HealthCheckState::Any) {
        loads = NodeLoad::ALL.to_vec();
    }
    let spread = states.contains(&HealthCheckState::Cycle);
    Some(HealthCheck { program, interval_s: programs.health_check_interval_s, loads, spread })
}
