//! A state folder that the build before left, killed in the midst, is read by this one: journal, books, blobs and spool.
//!
//! `scripts/state-fixture` made the folder and says what is in it.

mod harness;

use harness::{Cluster, until};
use std::process::Command;

const ENDED: &str = "\
1|done|COMPLETED|0:0|normal|physics
1.batch|batch|COMPLETED|0:0||physics
2|failed|FAILED|3:0|normal|physics
2.batch|batch|FAILED|3:0||physics
3_0|array|COMPLETED|0:0|normal|physics
3_0.batch|batch|COMPLETED|0:0||physics
3_1|array|FAILED|1:0|normal|physics
3_1.batch|batch|FAILED|1:0||physics
3_2|array|FAILED|2:0|normal|physics
3_2.batch|batch|FAILED|2:0||physics
3_3|array|FAILED|3:0|normal|physics
3_3.batch|batch|FAILED|3:0||physics
7+0|het|COMPLETED|0:0|normal|physics
7+0.batch|batch|COMPLETED|0:0||physics
7+1|het|COMPLETED|0:0|normal|physics
9|interactive|COMPLETED|0:0|normal|physics
9.0|interactive|COMPLETED|0:0||physics
10|yamltask|COMPLETED|0:0|normal|physics
10.batch|batch|COMPLETED|0:0||physics
";

const WAITING: &str = "\
11 held PENDING JobHeldUser
12 waits PENDING BeginTime
13 after PENDING Dependency
14_[1-1000:3] bigarray PENDING JobHeldUser
";

#[test]
fn root_state_folder_of_the_build_before_is_read() {
    if !nix::unistd::geteuid().is_root() {
        return harness::skip("root", "the folder's jobs are root's");
    }
    let cluster = Cluster::folder("");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/state.tar.gz");
    let unpack = Command::new("tar").args(["-xzf", fixture, "-C"]).arg(cluster.path("")).status();
    assert!(unpack.unwrap().success(), "the fixture is unpacked");
    cluster.start();

    // The spool: one job's end was not yet reported, the other's supervisor is gone.
    assert_eq!(cluster.await_end(15), "FAILED|7:0");
    assert_eq!(cluster.await_end(16), "NODE_FAIL|0:0");
    // The journal.
    let shown = cluster.sluice(&["squeue", "-h", "-S", "i", "-o", "%i %j %T %r"]).ok();
    assert_eq!(shown, WAITING);
    let reservation = cluster.sluice(&["scontrol", "show", "reservation", "-o"]).ok();
    assert!(reservation.starts_with("ReservationName=maint StartTime=2096-02-01T00:00:00"));
    assert_eq!(cluster.sluice(&["sinfo", "-h", "-R", "-o", "%E %N"]).ok(), "check_disk node2\n");
    let limits = ["sacctmgr", "-n", "-P", "show", "assoc", "format=account,user,qos,grpjobs"];
    let expected = "root||normal|\nphysics||normal|50\nphysics|root|high,normal|\n";
    assert_eq!(cluster.sluice(&limits).ok(), expected);
    // The books.
    let columns = "jobid,jobname,state,exitcode,qos,account";
    let ended = ["sacct", "-n", "-P", "-S", "2026-01-01", "-j", "1,2,3,7,9,10", "-o", columns];
    assert_eq!(cluster.sluice(&ended).ok(), ENDED);
    // The blobs: a job whose script the build before stored runs. Ids go on where they were.
    cluster.shell("scontrol release 11").ok();
    assert_eq!(cluster.await_end(11), "COMPLETED|0:0");
    assert_eq!(cluster.submit(&["-o", "/dev/null", "--wrap", "true"]), 17);
    until("the new job ends", || cluster.state_of(17).starts_with("COMPLETED").then_some(()));
}
