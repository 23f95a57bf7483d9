//! Power saving in slurm.conf.

use super::{accepted, refused};
use model::power::{ExemptState, SuspendTime};

#[test]
fn keys_of_power_saving_are_read() {
    let conf = accepted(&[(
        "slurm.conf",
        "SuspendProgram=/sbin/down\nResumeProgram=/sbin/up\nResumeFailProgram=/sbin/failed\n\
         RebootProgram=/sbin/reboot\nSuspendTime=600\nSuspendTimeout=45\nResumeTimeout=300\n\
         SuspendRate=10\nResumeRate=0\nSuspendExcNodes=n[1-4,6]:2,m1\nSuspendExcParts=p\n\
         SuspendExcStates=down,CLOUD\n\
         SlurmctldParameters=idle_on_node_suspend,power_save_interval=3,cloud_reg_addrs\n\
         NodeName=n[1-6]\nNodeName=m1 State=CLOUD\n\
         PartitionName=p Nodes=n[1-6] SuspendTime=INFINITE ResumeTimeout=7 PowerDownOnIdle=YES\n\
         PartitionName=q Nodes=m1 SuspendTime=60 SuspendTimeout=5\n",
    )]);
    let power = &conf.slurm.globals.power;
    assert_eq!(power.suspend_program.as_deref(), Some("/sbin/down"));
    assert_eq!(power.reboot_program.as_deref(), Some("/sbin/reboot"));
    assert_eq!((power.suspend_time_s, power.suspend_timeout_s), (Some(600), 45));
    assert_eq!((power.resume_timeout_s, power.suspend_rate, power.resume_rate), (300, 10, 0));
    let sets: Vec<_> = power.exempt_nodes.iter().map(|s| (s.nodes.join(" "), s.count)).collect();
    assert_eq!(sets, [("n1 n2 n3 n4 n6".to_owned(), Some(2)), ("m1".to_owned(), None)]);
    assert_eq!(power.exempt_partitions, ["p"]);
    assert_eq!(power.exempt_states, [ExemptState::Down, ExemptState::Cloud]);
    assert!(power.idle_on_suspend && power.reported_addresses);
    assert_eq!((power.interval_s, power.min_interval_s), (3, 0));
    let of = |name: &str| conf.slurm.partition(name).expect("declared").partition.power.clone();
    assert_eq!(
        (of("p").suspend_time, of("p").resume_timeout_s),
        (Some(SuspendTime::Never), Some(7))
    );
    assert!(of("p").down_on_idle && !of("q").down_on_idle);
    assert_eq!(of("q").suspend_time, Some(SuspendTime::Seconds(60)));
    assert!(conf.slurm.node("m1").expect("declared").config.cloud);
}

#[test]
fn wrong_values_of_power_saving_are_refused_in_one_line() {
    let table = [
        ("SuspendProgram=down.sh", "SuspendProgram: \"down.sh\": expected an absolute path"),
        ("RebootProgram=reboot", "RebootProgram: \"reboot\": expected an absolute path"),
        ("SuspendTime=-5", "expected a whole number of seconds, INFINITE or -1"),
        ("SuspendTimeout=-5", "expected a whole number"),
        ("ResumeTimeout=soon", "expected a whole number"),
        ("SuspendExcNodes=n[1-2]:x", "expected nodes, or nodes and a count"),
        ("SuspendExcStates=SLEEPY", "\"SLEEPY\" is none of"),
        ("SlurmctldParameters=power_save_interval=often", "expected a whole number of seconds"),
        ("NodeName=n\nPartitionName=p Nodes=n SuspendTime=-7", "INFINITE or -1"),
    ];
    for (text, said) in table {
        let error = refused(&[("slurm.conf", text)]);
        assert!(error.contains(said) && error.lines().count() == 1, "{text}: {error}");
    }
}
