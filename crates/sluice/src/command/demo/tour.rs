//! The scenes of the tour.

use super::cluster::DemoCluster;

type StepResult = Result<(), String>;

/// What can be shown.
#[derive(Debug, Clone, Copy)]
pub enum Scene {
    OneGpu,
    TooLarge,
    Capped,
    Array,
    Drill,
}

impl Scene {
    pub const ALL: [Self; 5] =
        [Self::OneGpu, Self::TooLarge, Self::Capped, Self::Array, Self::Drill];

    fn title(self) -> &'static str {
        match self {
            Self::OneGpu => "One GPU: it runs",
            Self::TooLarge => "Sixteen GPUs on one node: it can never run, and is refused at once",
            Self::Capped => "A QOS that caps each user at four GPUs: the job waits, and says why",
            Self::Array => "An array of 24 one-GPU tasks: it fills both nodes, the rest waits",
            Self::Drill => "The drain drill: work routes around a drained node, and comes back",
        }
    }

    fn play(self, cluster: &DemoCluster) -> StepResult {
        match self {
            Self::OneGpu => one_gpu(cluster),
            Self::TooLarge => too_large(cluster),
            Self::Capped => capped(cluster),
            Self::Array => array(cluster),
            Self::Drill => drain(cluster),
        }
    }
}

/// Plays the scenes in this order. Each begins and ends with an empty queue.
pub fn play(cluster: &DemoCluster, scenes: &[Scene]) -> StepResult {
    for scene in scenes {
        title(scene.title());
        clear(cluster)?;
        scene.play(cluster)?;
        clear(cluster)?;
    }
    Ok(())
}

/// Ends the jobs of whoever plays.
fn clear(cluster: &DemoCluster) -> StepResult {
    cluster.quietly(&["scancel", "--me"])?;
    cluster.until("nothing is left", &["squeue", "-h"], |t| t.trim().is_empty()).map(drop)
}

/// What nodes, queue, limits and books say now.
pub fn evidence(cluster: &DemoCluster) -> StepResult {
    let files: [(&str, &str, &[&[&str]]); 4] = [
        (
            "sinfo.txt",
            "the nodes",
            &[
                &["sinfo"],
                &["sinfo", "-R"],
                &["sinfo", "-N", "-O", "NodeList,Gres:20,GresUsed:30,StateLong"],
                &["scontrol", "show", "node"],
            ],
        ),
        ("squeue.txt", "the queue", &[&["squeue"], &["squeue", "-r", "-o", "%i %T %r %N %b"]]),
        (
            "qos.txt",
            "the limits",
            &[&["sacctmgr", "-n", "-P", "show", "qos", "format=name,maxtresperuser"]],
        ),
        (
            "sacct.txt",
            "the books",
            &[&["sacct", "-X", "-o", "JobID%10,JobName,State%15,ExitCode,NodeList,AllocTRES%50"]],
        ),
    ];
    for (file, note, lines) in files {
        cluster.keep(file, note, lines)?;
    }
    Ok(())
}

fn title(text: &str) {
    println!("\n== {text}");
}

/// Submits with `sbatch --parsable`, and returns the job id.
fn submit(cluster: &DemoCluster, line: &[&str]) -> Result<String, String> {
    let text = cluster.run(line)?;
    let id = text.trim().split(';').next().unwrap_or_default().to_string();
    match id.parse::<u32>() {
        Ok(_) => Ok(id),
        Err(_) => Err(format!("sbatch answered {text:?}")),
    }
}

fn state_of(id: &str) -> [&str; 6] {
    ["squeue", "-h", "-j", id, "-o", "%T|%r"]
}

fn one_gpu(cluster: &DemoCluster) -> StepResult {
    let id = submit(
        cluster,
        &["sbatch", "--parsable", "-J", "small", "--gres=gpu:1", "--wrap", "sleep 300"],
    )?;
    cluster.until("the job runs", &state_of(&id), |t| t.trim() == "RUNNING|None")?;
    cluster.run(&["squeue"])?;
    Ok(())
}

fn too_large(cluster: &DemoCluster) -> StepResult {
    let said = cluster.refused(&["sbatch", "--gres=gpu:16", "--wrap", "sleep 300"])?;
    if said.contains("Requested node configuration is not available") {
        Ok(())
    } else {
        Err(format!("a job of 16 GPUs was refused with {said:?}"))
    }
}

fn capped(cluster: &DemoCluster) -> StepResult {
    let known = cluster.quietly(&["sacctmgr", "-n", "-P", "show", "qos", "format=name"])?;
    // A lab may have it from an earlier time.
    if !known.lines().any(|name| name == "capped") {
        cluster.run(&[
            "sacctmgr",
            "-i",
            "add",
            "qos",
            "capped",
            "set",
            "MaxTRESPerUser=gres/gpu=4",
        ])?;
    }
    let line = |name| {
        ["sbatch", "--parsable", "-J", name, "-q", "capped", "--gres=gpu:4", "--wrap", "sleep 300"]
    };
    let first = submit(cluster, &line("within"))?;
    cluster.until("the first job runs", &state_of(&first), |t| t.trim() == "RUNNING|None")?;
    let second = submit(cluster, &line("beyond"))?;
    let wanted = "PENDING|QOSMaxGRESPerUser";
    cluster
        .until("the second job waits for the cap", &state_of(&second), |t| t.trim() == wanted)?;
    cluster.run(&["squeue"])?;
    cluster.keep(
        "qos.txt",
        "a job beyond the QOS's cap of four GPUs a user waits",
        &[&["sacctmgr", "-n", "-P", "show", "qos", "format=name,maxtresperuser"], &["squeue"]],
    )
}

const COUNT_BY_STATE: [&str; 5] = ["squeue", "-h", "-r", "-o", "%T|%r|%N"];

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.starts_with(what)).count()
}

/// Sixteen tasks run on both nodes, and eight wait.
fn fill(cluster: &DemoCluster) -> StepResult {
    submit(
        cluster,
        &[
            "sbatch",
            "--parsable",
            "-J",
            "sweep",
            "--array=0-23",
            "--gres=gpu:1",
            "--wrap",
            "sleep 300",
        ],
    )?;
    let is_full = |t: &str| count(t, "RUNNING") == 16 && count(t, "PENDING|Resources") == 8;
    cluster.until("16 run and 8 wait", &COUNT_BY_STATE, is_full).map(drop)
}

fn array(cluster: &DemoCluster) -> StepResult {
    fill(cluster)?;
    cluster.run(&["squeue"])?;
    cluster.run(&["sinfo"])?;
    cluster.keep(
        "squeue.txt",
        "an array of 24 tasks on 16 GPUs",
        &[&["squeue"], &["squeue", "-r", "-o", "%i %T %r %N %b"]],
    )?;
    cluster.keep(
        "sinfo.txt",
        "both nodes are full of GPUs",
        &[
            &["sinfo"],
            &["sinfo", "-N", "-O", "NodeList,Gres:20,GresUsed:30,StateLong"],
            &["scontrol", "show", "node", "gpu1"],
        ],
    )
}

fn drain(cluster: &DemoCluster) -> StepResult {
    fill(cluster)?;
    cluster.run(&["scontrol", "update", "NodeName=gpu1", "State=DRAIN", "Reason=drill"])?;
    cluster.until("gpu1 drains", &["sinfo", "-h", "-n", "gpu1", "-o", "%T"], |t| {
        t.trim() == "draining"
    })?;
    cluster.run(&["sinfo", "-R"])?;
    // Jobs on gpu1 are cancelled; waiting ones go to gpu2 alone.
    cluster.quietly(&["scancel", "-w", "gpu1", "-t", "RUNNING"])?;
    cluster.until("gpu1 is drained", &["sinfo", "-h", "-n", "gpu1", "-o", "%T"], |t| {
        t.trim() == "drained"
    })?;
    cluster.quietly(&["scancel", "-w", "gpu2", "-t", "RUNNING"])?;
    cluster.until("the rest runs on gpu2", &COUNT_BY_STATE, |t| {
        t.lines().filter(|l| l.starts_with("RUNNING") && l.ends_with("|gpu2")).count() == 8
            && !t.contains("|gpu1")
    })?;
    cluster.run(&["squeue"])?;
    cluster.run(&["scontrol", "update", "NodeName=gpu1", "State=RESUME"])?;
    let id = submit(
        cluster,
        &["sbatch", "--parsable", "-J", "back", "-w", "gpu1", "--gres=gpu:1", "--wrap", "true"],
    )?;
    cluster.until(
        "a job runs on gpu1 again",
        &["sacct", "-n", "-X", "-P", "-j", &id, "-o", "State,NodeList"],
        |t| t.trim() == "COMPLETED|gpu1",
    )?;
    clear(cluster)?;
    cluster.run(&["sacct", "-X", "-o", "JobID%10,JobName,State%15,ExitCode,AllocTRES%50"])?;
    cluster.keep(
        "sacct.txt",
        "the books after the tour",
        &[&["sacct", "-X", "-o", "JobID%10,JobName,State%15,ExitCode,NodeList,AllocTRES%50"]],
    )
}
