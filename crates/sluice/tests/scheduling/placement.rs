//! What jobs are granted. The numbers are those of a real Slurm 22.05 for the same nodes and options.

use crate::harness::{Cluster, until};

/// Six nodes of two sockets with four cores each and two threads a core; four GPUs of two types, on two nodes also as shards.
const NODES: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
GresTypes=gpu,shard,nic AuthInfo=cred_expire=0
KillWait=1
NodeName=DEFAULT CPUs=16 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000
NodeName=n[1-2] Gres=gpu:a100:2,gpu:h100:2,shard:8,nic:no_consume:2 Feature=rack1
NodeName=n3 Gres=gpu:a100:2,gpu:h100:2 Feature=rack1,big
NodeName=n[4-6] Gres=gpu:a100:2,gpu:h100:2 Feature=rack2
";

const GRES: &str = "\
NodeName=n[1-6] Name=gpu Type=a100 Count=2 Cores=0-3
NodeName=n[1-6] Name=gpu Type=h100 Count=2 Cores=4-7
NodeName=n[1-2] Name=shard Count=8
";

const ONE_PARTITION: &str = "PartitionName=p Nodes=n[1-6] Default=YES MaxTime=1:00:00 State=UP\n";

fn up(conf: &str) -> Cluster {
    let cluster = Cluster::folder(&format!("{NODES}{conf}"));
    cluster.write_conf("gres.conf", GRES);
    cluster.start();
    cluster
}

/// What a job was granted.
#[derive(Debug)]
struct Granted {
    nodes: String,
    cpus: u32,
    mem_mib: String,
    tasks_per_node: String,
    details: String,
}

/// The value of `KEY=` in a record of `scontrol`.
fn value(record: &str, key: &str) -> String {
    let words = record.split_whitespace();
    let found = words.filter_map(|word| word.strip_prefix(key)).next();
    found.unwrap_or_else(|| panic!("no {key} in {record}")).to_string()
}

fn sleeper(cluster: &Cluster, args: &str) -> u32 {
    let script = "echo $SLURM_TASKS_PER_NODE > tasks.$SLURM_JOB_ID; exec sleep 600";
    let line = format!("sbatch --parsable {args} --wrap '{script}'");
    cluster.shell(&line).ok().trim().parse().expect("a job id")
}

fn grant(cluster: &Cluster, args: &str) -> Granted {
    let id = sleeper(cluster, args);
    cluster.await_state(id, "RUNNING");
    let tasks = cluster.await_file(&format!("tasks.{id}"), |text| text.ends_with('\n'));
    let details = cluster.shell(&format!("scontrol -d show job {id}")).ok();
    let tres = value(&details, "TRES=");
    let mem = tres.split(',').find_map(|part| part.strip_prefix("mem=")).unwrap_or("0");
    let granted = Granted {
        nodes: value(&details, "NodeList="),
        cpus: value(&details, "NumCPUs=").parse().expect("a number"),
        mem_mib: mem.to_string(),
        tasks_per_node: tasks.trim().to_string(),
        details,
    };
    cluster.shell(&format!("scancel {id}")).ok();
    until("it is gone", || cluster.shell("squeue -h").ok().trim().is_empty().then_some(()));
    granted
}

/// Options, nodes, CPUs, memory, SLURM_TASKS_PER_NODE.
type Row = (&'static str, &'static str, u32, &'static str, &'static str);

fn check(cluster: &Cluster, table: &[Row]) {
    for (args, nodes, cpus, mem, tasks) in table {
        let granted = grant(cluster, args);
        let got = (&*granted.nodes, granted.cpus, &*granted.mem_mib, &*granted.tasks_per_node);
        assert_eq!(got, (*nodes, *cpus, *mem, *tasks), "{args}: {}", granted.details);
    }
}

#[test]
fn up_tasks_threads_and_nodes_are_granted_as_in_slurm() {
    let cluster = up(&format!("DefMemPerCPU=100\n{ONE_PARTITION}"));
    check(
        &cluster,
        &[
            ("-n1", "n1", 2, "200M", "1"),
            ("-N2 -n4", "n[1-2]", 4, "400M", "2(x2)"),
            ("-N2 -n4 --exclusive", "n[1-2]", 32, "3200M", "2(x2)"),
            ("-n4 --threads-per-core=1", "n1", 8, "400M", "4"),
            ("-n4 --hint=nomultithread", "n1", 8, "400M", "4"),
            ("-n4 --ntasks-per-core=1", "n1", 8, "800M", "4"),
            ("-c3", "n1", 4, "400M", "1"),
            ("--mincpus=5", "n1", 6, "600M", "6"),
            ("-N2-4 -n4", "n[1-4]", 8, "800M", "1(x4)"),
            ("-N1-4 --use-min-nodes", "n1", 2, "200M", "2"),
            ("-N 1,3", "n[1-3]", 6, "600M", "2(x3)"),
            ("--spread-job -n4", "n[1-4]", 8, "800M", "1(x4)"),
            ("-n20", "n[1-2]", 20, "2000M", "16,4"),
            ("-O -n40", "n1", 2, "200M", "40"),
            ("--mem=0", "n1", 2, "16000M", "2"),
            ("--exclusive", "n1", 16, "1600M", "16"),
            ("--contiguous -N3", "n[1-3]", 6, "600M", "2(x3)"),
            ("-w n1 -N2", "n[1-2]", 4, "400M", "2(x2)"),
            ("--cpus-per-gpu=3 --gpus=2", "n1", 6, "600M", "6"),
            ("--tres-per-task=cpu=4 -n2", "n1", 8, "800M", "2"),
        ],
    );
}

#[test]
fn up_constraints_and_preferred_features_select_nodes() {
    let cluster = up(&format!("DefMemPerCPU=100\n{ONE_PARTITION}"));
    for (args, nodes) in [
        ("-C 'rack1*2' -N4", "n[1-4]"),
        ("-C '[rack1*1&rack2*2]'", "n[1,4-5]"),
        ("-C '[rack1|rack2]' -N3", "n[1-3]"),
        ("-C '[rack1|rack2]&big'", "n3"),
        ("-C '(rack1|rack2)&big'", "n3"),
        ("--prefer=rack2", "n4"),
        ("--prefer=rack2 -C rack1 -N2", "n[4-5]"),
    ] {
        assert_eq!(grant(&cluster, args).nodes, nodes, "{args}");
    }
    for (args, said) in [
        ("-C nope", "sbatch: error: Batch job submission failed: Invalid feature specification"),
        ("-C '[rack1&rack2]'", "Batch job submission failed: Invalid feature specification"),
        ("-C '[rack1|rack2]&[big|rack1]'", "Invalid feature specification"),
        ("--prefer=nope", "Batch job submission failed: Invalid preferred feature specification"),
        ("-C '[rack1|rack2]' -N4", "Requested node configuration is not available"),
    ] {
        refused(&cluster, args, 1, said);
    }
}

fn refused(cluster: &Cluster, args: &str, code: i32, said: &str) {
    let line = format!("sbatch {args} --wrap true");
    let answer = cluster.shell(&line);
    assert_eq!(answer.code, code, "{args}: {}{}", answer.stdout, answer.stderr);
    assert!(answer.stderr.contains(said), "{args}: {}", answer.stderr);
    assert_eq!(cluster.shell("squeue -h").ok(), "", "{args}: nothing was submitted");
}

#[test]
fn up_contradicting_options_are_refused_in_slurms_words() {
    let cluster = up(ONE_PARTITION);
    let gres = "sbatch: error: Invalid generic resource (gres) specification";
    let exclusive =
        "sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.";
    let table = [
        ("--mem=10 --mem-per-cpu=10", 1, exclusive),
        ("--mem-per-gpu=10 --mem=10 --gpus=1", 1, exclusive),
        ("--mem-per-gpu=10", 1, "mem_per_tres=gres:gpu:10 but did not request any GPU."),
        ("--mem-per-gpu=10", 1, gres),
        ("--gpus=4 --gpus-per-node=3", 1, "--gpus is not multiple of --gres=gpu/--gpus-per-node"),
        ("--gpus=3 --gpus-per-task=2", 1, "--gpus not multiple of --gpus-per-task"),
        ("--gpus-per-task=1", 1, "used without either --gpus or -n/--ntasks is not allowed."),
        ("--gpus=a100:1,2", 1, "Invalid GRES specification (with and without type"),
        ("--gpus-per-socket=1", 1, "--gpus-per-socket option requires --sockets-per-node"),
        ("--cpus-per-gpu=2 -c2 --gpus=1", 1, "--cpus-per-gpu is mutually exclusive with"),
        ("--ntasks-per-gpu=1", 1, "--ntasks-per-tres needs either a GRES GPU specification"),
        ("--ntasks-per-gpu=1 --gpus=1 --gpus-per-task=1", 1, "sbatch: fatal: --gpus-per-task is"),
        ("--gres=shard:1,gpu:1", 1, gres),
        ("--gres=nope:1", 1, gres),
        ("--gres=gpu:nope:1", 1, "Requested node configuration is not available"),
        ("--gpus=99", 1, "Requested node configuration is not available"),
        ("--gres=gpu:1 --gres-flags=bad", 255, "Invalid --gres-flags specification"),
        ("-n0", 1, "Invalid numeric value \"0\" for --ntasks."),
        ("-N0", 1, "Batch job submission failed: Node count specification invalid"),
        ("-N 2-1", 255, "Maximum node count 1 is less than minimum node count 2"),
        ("-c0", 1, "Invalid numeric value \"0\" for --cpus-per-task."),
        ("--mincpus=0", 1, "Invalid numeric value \"0\" for --mincpus."),
        ("--exclusive=bad", 255, "Invalid --exclusive specification"),
        ("-w n1 -x n1", 1, "Batch job submission failed: Invalid node name specified"),
        ("-w n1,n2 -N1", 1, "sbatch: error: invalid number of nodes (-N 2-1)"),
        ("-x n1 -N6", 1, "Requested node configuration is not available"),
    ];
    for (args, code, said) in table {
        refused(&cluster, args, code, said);
    }
    let said = cluster.shell("sbatch -S1 --wrap true");
    assert_eq!(said.code, 0);
    let words = "sbatch: error: Ignoring -S since it's not allowed by configuration";
    assert!(said.stderr.contains(words), "{}", said.stderr);
}

#[test]
fn up_gres_are_granted_by_type_by_shard_and_near_the_cores() {
    let cluster = up(&format!("DefMemPerCPU=100\n{ONE_PARTITION}"));
    for (args, gres) in [
        ("--gres=gpu:a100:1,gpu:h100:1", "GRES=gpu:a100:1(IDX:0),gpu:h100:1(IDX:2)"),
        ("--gpus=a100:1,h100:1", "GRES=gpu:a100:1(IDX:0),gpu:h100:1(IDX:2)"),
        ("-n2 --gpus-per-task=1", "GRES=gpu:a100:2(IDX:0-1)"),
        ("-n4 --ntasks-per-gpu=2", "GRES=gpu:a100:2(IDX:0-1)"),
        ("--gpus=4 --gpus-per-node=2", "GRES=gpu:a100:2(IDX:0-1)"),
        ("--gpus-per-socket=1 --sockets-per-node=2", "gpu:a100:1(IDX:0),gpu:h100:1(IDX:2)"),
        ("--gres=gpu:h100:1", "CPU_IDs=8-9 Mem=200 GRES=gpu:h100:1(IDX:2)"),
        ("--gres=gpu:h100:1 --gres-flags=enforce-binding -c12", "CPU_IDs=0-3,8-15 Mem=1200"),
        ("--gres=shard:1", "GRES=shard:a100:1(IDX:0)"),
        ("--gres=nic:2", "GRES=nic:2"),
    ] {
        let granted = grant(&cluster, args);
        assert!(granted.details.contains(gres), "{args}: {}", granted.details);
    }
    // On one node: both types, then shards of a GPU that is still free.
    let whole = sleeper(&cluster, "-w n1 --gres=gpu:a100:1,gpu:h100:2");
    let share = sleeper(&cluster, "-w n1 --gres=shard:1");
    [whole, share].iter().for_each(|id| cluster.await_state(id, "RUNNING"));
    let node = cluster.shell("scontrol -d show node n1").ok();
    let total =
        "Gres=gpu:a100:2(S:0),gpu:h100:2(S:1),nic:no_consume:2,shard:a100:4(S:0),shard:h100:4(S:1)";
    assert!(node.contains(total), "{node}");
    let used = "GresUsed=gpu:a100:1(IDX:0),gpu:h100:2(IDX:2-3),nic:0(IDX:N/A),shard:a100:1(IDX:1),shard:h100:0(IDX:N/A)";
    assert!(node.contains(used), "{node}");
    // A GPU with used shards is not granted as a whole, and the others are in use.
    let waits = sleeper(&cluster, "-w n1 --gres=gpu:1");
    until("it waits", || (cluster.state_of(waits) == "PENDING|Resources").then_some(()));
    cluster.shell(&format!("scancel {share}")).ok();
    cluster.await_state(waits, "RUNNING");
}

#[test]
fn up_select_type_parameters_set_sockets_or_cpus_as_units() {
    let sockets = up(&format!(
        "SelectTypeParameters=CR_Socket_Memory\nDefMemPerCPU=100\n{ONE_PARTITION}\
         PartitionName=q Nodes=n[1-6] SelectTypeParameters=CR_Core_Memory\n"
    ));
    check(&sockets, &[("-n1", "n1", 8, "800M", "1"), ("-p q -n1", "n1", 2, "200M", "1")]);
    let cpus =
        up(&format!("SelectTypeParameters=CR_CPU_Memory\nDefMemPerCPU=100\n{ONE_PARTITION}"));
    check(&cpus, &[("-n1", "n1", 1, "100M", "1"), ("-n3", "n1", 3, "300M", "3")]);
    // No two jobs share a core.
    let ids: Vec<u32> = (0..9).map(|_| sleeper(&cpus, "-n1 -w n1")).collect();
    ids[..8].iter().for_each(|id| cpus.await_state(id, "RUNNING"));
    until("the ninth waits", || (cpus.state_of(ids[8]) == "PENDING|Resources").then_some(()));
}

#[test]
fn up_memory_that_is_not_consumable_only_excludes_nodes() {
    let cluster = up(&format!("SelectTypeParameters=CR_Core\n{ONE_PARTITION}"));
    let ids: Vec<u32> = (0..2).map(|_| sleeper(&cluster, "-w n1 --mem=16000")).collect();
    ids.iter().for_each(|id| cluster.await_state(id, "RUNNING"));
    let details = cluster.shell(&format!("scontrol -d show job {}", ids[0])).ok();
    assert!(details.contains("Mem=0 ") && details.contains("MinMemoryNode=16000M"), "{details}");
    assert!(cluster.shell("scontrol show node n1").ok().contains("AllocMem=0 "));
    cluster.shell("scancel -u $(id -un)").ok();
    // Steps need none either.
    assert_eq!(cluster.shell("srun -n2 --mem=100 echo here").ok(), "here\nhere\n");
    cluster.submit(&["-n2", "--wrap", "srun echo one > steps; srun --mem=100 echo two >> steps"]);
    cluster.await_file("steps", |text| text == "one\none\ntwo\ntwo\n");
    let said = cluster.shell("sbatch --mem=17000 --wrap true");
    assert!(said.stderr.contains("Requested node configuration is not available"), "{said:?}");
}

#[test]
fn up_select_linear_grants_whole_nodes() {
    let cluster = up(&format!(
        "SelectType=select/linear\n{ONE_PARTITION}PartitionName=f Nodes=n1 OverSubscribe=FORCE:2\n"
    ));
    check(
        &cluster,
        &[
            ("-n1", "n1", 16, "0", "1"),
            ("-N2 -n4", "n[1-2]", 32, "0", "2(x2)"),
            ("-n20", "n[1-2]", 32, "0", "10(x2)"),
        ],
    );
    let ids: Vec<u32> = (0..3).map(|_| sleeper(&cluster, "-p f -n2")).collect();
    ids[..2].iter().for_each(|id| cluster.await_state(id, "RUNNING"));
    until("the third waits", || (cluster.state_of(ids[2]) == "PENDING|Resources").then_some(()));
}

#[test]
fn up_oversubscribe_limits_the_jobs_on_a_core() {
    let cluster = up("DefMemPerCPU=100\n\
         PartitionName=f Nodes=n1 Default=YES OverSubscribe=FORCE:2\n\
         PartitionName=y Nodes=n2 OverSubscribe=YES:2\n\
         PartitionName=x Nodes=n3 OverSubscribe=EXCLUSIVE\n\
         PartitionName=l Nodes=n[4-6] LLN=YES\n");
    let ids: Vec<u32> = (0..5).map(|_| sleeper(&cluster, "-n8")).collect();
    ids[..4].iter().for_each(|id| cluster.await_state(id, "RUNNING"));
    until("the fifth waits", || (cluster.state_of(ids[4]) == "PENDING|Resources").then_some(()));
    let node = cluster.shell("scontrol show node n1").ok();
    assert!(node.contains("CPUAlloc=16 ") && node.contains("AllocTRES=cpu=16,mem=3200M"), "{node}");
    cluster.shell(&format!("scancel {}", ids[0])).ok();
    cluster.await_state(ids[4], "RUNNING");
    // The same after a restart.
    cluster.kill("server");
    cluster.start();
    let sixth = sleeper(&cluster, "-n1");
    until("it waits", || (cluster.state_of(sixth) == "PENDING|Resources").then_some(()));

    let asks: Vec<u32> = (0..2).map(|_| sleeper(&cluster, "-p y -s -n16")).collect();
    asks.iter().for_each(|id| cluster.await_state(id, "RUNNING"));
    let not = sleeper(&cluster, "-p y -n16");
    until("it waits", || (cluster.state_of(not) == "PENDING|Resources").then_some(()));
    cluster.shell("scancel -u $(id -un)").ok();
    until("nothing is left", || cluster.shell("squeue -h").ok().trim().is_empty().then_some(()));

    check(&cluster, &[("-p x -n1", "n3", 16, "1600M", "1")]);
    let spread: Vec<u32> = (0..3)
        .map(|_| {
            let id = sleeper(&cluster, "-p l -n2");
            cluster.await_state(id, "RUNNING");
            id
        })
        .collect();
    let on = |id: &u32| cluster.shell(&format!("squeue -h -j {id} -o %N")).ok().trim().to_string();
    let nodes: Vec<String> = spread.iter().map(on).collect();
    assert_eq!(nodes, ["n4", "n5", "n6"]);
}

#[test]
fn up_site_limits_of_memory_and_cpus_are_enforced() {
    let cluster = up(&format!(
        "MaxMemPerCPU=1000\nDefMemPerCPU=100\nDefCpuPerGPU=3\n{ONE_PARTITION}\
         PartitionName=q Nodes=n[1-6] MaxCPUsPerNode=4 DefCpuPerGPU=5\n\
         PartitionName=r Nodes=n[1-6] DefMemPerGPU=700\n"
    ));
    check(
        &cluster,
        &[
            ("-n2 --mem-per-cpu=2500", "n1", 6, "5004M", "2"),
            ("-n1 --mem=5000", "n1", 6, "5000M", "1"),
            ("--mem=0", "n1", 16, "16000M", "16"),
            ("--gpus=2", "n1", 6, "600M", "6"),
            ("--gpus=2 -c2", "n1", 2, "200M", "1"),
            ("-p q -n6", "n[1-2]", 6, "600M", "4,2"),
            ("-p r --gpus=2", "n1", 6, "1400M", "6"),
        ],
    );
    refused(&cluster, "-p q --gpus=2", 1, "Requested node configuration is not available");
    refused(&cluster, "-p q -n5 -N1", 1, "Requested node configuration is not available");
    refused(&cluster, "-n1 --mem=50000", 1, "Requested node configuration is not available");
    let packed = up(&format!(
        "SelectTypeParameters=CR_Core_Memory,CR_ONE_TASK_PER_CORE,CR_Pack_Nodes\nDefMemPerCPU=100\n\
         {ONE_PARTITION}"
    ));
    check(
        &packed,
        &[
            ("-n3", "n1", 6, "600M", "3"),
            ("-n3 -c2", "n1", 6, "600M", "3"),
            ("-N2 -n4 --exclusive", "n[1-2]", 32, "3200M", "3,1"),
            ("--ntasks-per-core=2 -n4", "n1", 4, "400M", "4"),
        ],
    );
}
