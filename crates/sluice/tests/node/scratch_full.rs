//! A job that fills the disk of its scratch folder, without a quota: its writes fail, and node, agent and other jobs go on.

use crate::harness::{Cluster, until};

const USER: &str = "games";

fn conf(more: &str) -> String {
    format!(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=200\nKillWait=1 AuthInfo=cred_expire=0\n{more}\
         NodeName=node1 CPUs=8 RealMemory=4000 TmpDisk=1000\nPartitionName=main Nodes=node1 Default=YES State=UP\n"
    )
}

/// Writes until the disk is full, prints the error, then waits for a file.
const FILL: &str = "cd $SLURM_TMPDIR; dd if=/dev/zero of=big bs=64k 2>&1 | grep -o \"No space left on device\"; \
                    touch $SLURM_SUBMIT_DIR/full; until [ -e $SLURM_SUBMIT_DIR/go ]; do sleep 0.05; done";

fn submit_as_user(cluster: &Cluster, args: &str) -> String {
    cluster.shell_as(USER, &format!("sbatch --parsable {args}")).ok().trim().to_owned()
}

/// Waits until the node is idle: its agent may just have been restarted.
fn await_well(cluster: &Cluster) {
    until("the node is well", || {
        let said = cluster.sluice(&["sinfo", "-h", "-N", "-o", "%T|%E"]).ok();
        (said == "mixed|none\n" || said == "idle|none\n").then_some(())
    });
}

#[test]
fn root_up_a_full_scratch_disk_affects_only_its_job() {
    let mut cluster = Cluster::folder("");
    let scratch = cluster.path("scratch");
    cluster.mount(&scratch, 8);
    cluster.write_conf("slurm.conf", &conf(&format!("TmpFS={}\n", scratch.display())));
    cluster.start();
    let full = submit_as_user(&cluster, &format!("-o full.out --wrap '{FILL}'"));
    cluster.await_file("full", |_| true);
    assert_eq!(cluster.read("full.out"), "No space left on device\n");
    // While the disk is full, other jobs start, run steps and end, and the agent restarts.
    for n in 0..3 {
        let wrap = "srun -n2 true && echo fine";
        let job = submit_as_user(&cluster, &format!("-n2 -o beside.{n} --wrap '{wrap}'"));
        assert_eq!(cluster.await_end(&job), "COMPLETED|0:0");
        assert_eq!(cluster.read(&format!("beside.{n}")), "fine\n");
    }
    cluster.kill_alone("agent");
    await_well(&cluster);
    cluster.write("go", "");
    assert_eq!(cluster.await_end(&full), "COMPLETED|0:0");
    let next = "head -c 5000000 /dev/zero > $SLURM_TMPDIR/x && echo fits";
    let next = submit_as_user(&cluster, &format!("-o next.out --wrap '{next}'"));
    assert_eq!(cluster.await_end(&next), "COMPLETED|0:0");
    assert_eq!(cluster.read("next.out"), "fits\n", "all room is there again");
}

/// Scratch beside the spool, as without `TmpFS`: the spool uses the part of the disk that is reserved for root.
#[test]
fn root_up_a_full_disk_under_spool_and_scratch_leaves_space_for_the_spool() {
    let mut cluster = Cluster::folder("");
    cluster.mount_ext4(&cluster.state().join("nodes"), 64);
    cluster.write_conf("slurm.conf", &conf(""));
    cluster.start();
    let full = submit_as_user(&cluster, &format!("-o full.out --wrap '{FILL}'"));
    cluster.await_file("full", |_| true);
    assert_eq!(cluster.read("full.out"), "No space left on device\n");
    for n in 0..3 {
        let job = submit_as_user(&cluster, &format!("-o beside.{n} --wrap 'srun echo fine'"));
        assert_eq!(cluster.await_end(&job), "COMPLETED|0:0");
        assert_eq!(cluster.read(&format!("beside.{n}")), "fine\n");
    }
    await_well(&cluster);
    cluster.kill_alone("agent");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(&full), "COMPLETED|0:0");
    until("its folder is gone", || {
        let left = std::fs::read_dir(cluster.state().join("nodes/node1/scratch"));
        left.map_or(true, |mut left| left.next().is_none()).then_some(())
    });
    await_well(&cluster);
}
