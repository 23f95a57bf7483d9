//! `sprio` against what a real Slurm printed.

use super::*;
use model::id::JobId;
use model::priority::Factors;
use model::tres::TresKind;

fn weights() -> Weights {
    Weights {
        age: 100_000,
        association: 500,
        fair_share: 10_000,
        job_size: 1000,
        partition: 1000,
        qos: 10_000,
        dstack: 10_000,
        tres: vec![(TresKind::Cpu, 100.0), (TresKind::gpu(), 1000.0)],
    }
}

fn job(id: u32, user: &str, partition: &str, sum: f64, factors: Factors) -> PriorityView {
    PriorityView {
        job: JobId(id),
        array: None,
        user: user.into(),
        account: "chem".into(),
        qos: "normal".into(),
        partition: partition.into(),
        priority: sum as u64,
        sum,
        set: false,
        factors,
    }
}

/// Three of the captured jobs: a nice one, one that wants GPUs, one whose priority was set.
fn lab() -> PrioritiesView {
    let age = 13.0 / 3600.0;
    let nice = Factors {
        age,
        association: 1.0,
        fair_share: 0.625,
        job_size: 0.28125,
        partition: 0.01,
        tres: vec![(TresKind::Cpu, 4.0 / 64.0), (TresKind::gpu(), 0.0)],
        nice: 100,
        ..Factors::default()
    };
    let gpus = Factors {
        age,
        fair_share: 0.125,
        job_size: 0.2578125,
        partition: 1.0,
        tres: vec![(TresKind::Cpu, 1.0 / 64.0), (TresKind::gpu(), 2.0 / 16.0)],
        ..Factors::default()
    };
    let set = PriorityView { set: true, ..job(168, "root", "gpu", 5000.0, Factors::default()) };
    PrioritiesView {
        cluster: "lab".into(),
        basic: false,
        weights: weights(),
        jobs: vec![
            job(162, "alice", "gpu", 7308.6111, nice),
            job(163, "bob", "bill", 2995.4861, gpus),
            set,
        ],
    }
}

fn shown(options: &Options) -> String {
    let view = lab();
    let jobs: Vec<&PriorityView> = view.jobs.iter().collect();
    let mut out = Vec::new();
    show(&mut out, &view, &jobs, options).expect("sorted");
    String::from_utf8(out).expect("text")
}

#[test]
fn the_listings_are_those_of_slurm() {
    let usual = "          JOBID PARTITION   PRIORITY       SITE        AGE      ASSOC  FAIRSHARE    JOBSIZE  PARTITION        QOS                 TRES
            162 gpu             7308          0        361        500       6250        281         10          0                cpu=6
            163 bill            2995          0        361          0       1250        258       1000          0   cpu=2,gres/gpu=125
            168 gpu             5000          0          0          0          0          0          0          0                     
";
    assert_eq!(shown(&Options::default()), usual);
    let long = "          JOBID PARTITION     USER   PRIORITY       SITE        AGE      ASSOC  FAIRSHARE    JOBSIZE  PARTITION        QOS        NICE                 TRES
            162 gpu          alice       7308          0        361        500       6250        281         10          0         100                cpu=6
            163 bill           bob       2995          0        361          0       1250        258       1000          0           0   cpu=2,gres/gpu=125
            168 gpu           root       5000          0          0          0          0          0          0          0           0                     
";
    assert_eq!(shown(&Options { long: true, ..Options::default() }), long);
    let normal = "          JOBID PARTITION PRIORITY   AGE        ASSOC      FAIRSHARE  JOBSIZE    PARTITION  QOS        TRES                
            162 gpu       0.00000170 0.0036111  1.0000000  0.6250000  0.2812500  0.0100000  0.0000000  cpu=0.06            
            163 bill      0.00000069 0.0036111  0.0000000  0.1250000  0.2578125  1.0000000  0.0000000  cpu=0.02,gres/gpu=0.
            168 gpu       5000.00000 0.0000000  0.0000000  0.0000000  0.0000000  0.0000000  0.0000000                      
";
    assert_eq!(shown(&Options { normalized: true, ..Options::default() }), normal);
    let weights = "          JOBID PARTITION   PRIORITY       SITE        AGE      ASSOC  FAIRSHARE    JOBSIZE  PARTITION        QOS                 TRES
        Weights                               1     100000        500      10000       1000       1000      10000 cpu=100,gres/gpu=100
";
    assert_eq!(shown(&Options { weights: true, ..Options::default() }), weights);
}

#[test]
fn letters_choose_the_order_and_the_columns() {
    let options = Options {
        format: Some("%i %u %Y|%y".into()),
        sort: Some("-y,u".into()),
        no_header: true,
        ..Options::default()
    };
    let expected = "162 alice 7308|0.00000170166860\n168 root 5000|5000.00000000000000\n163 bob 2995|0.00000069744095\n";
    let found = shown(&options);
    // The last digits hang on the sum, of which the capture shows fewer.
    let cut = |text: &str| -> Vec<String> {
        text.lines().map(|line| line[..line.len().min(24)].to_owned()).collect()
    };
    assert_eq!(cut(&found), cut(expected));
    let view = lab();
    let bad = Options { sort: Some("Z".into()), ..Options::default() };
    assert!(show(&mut Vec::new(), &view, &[], &bad).is_err());
    let odd = Options { format: Some("%i|%Z|%u".into()), ..Options::default() };
    let warnings = show(&mut Vec::new(), &view, &[], &odd).expect("printed");
    assert_eq!(warnings, ["Invalid job format specification: Z"]);
}
