//! `sshare` against what a real Slurm printed.

use super::*;
use model::account::Association;
use model::raw_usage::RawUsage;
use model::tres::Tres;

fn row(depth: u32, association: Association, numbers: (f64, f64, f64)) -> ShareView {
    let (shares, usage, billed) = numbers;
    let mut raw_usage = RawUsage::default();
    raw_usage.charge(&Tres::parse("cpu=1,billing=1").expect("a list"), billed, 1.0);
    ShareView {
        association,
        id: 1,
        depth,
        shares,
        effective_usage: usage,
        usage: (depth > 0).then_some(usage),
        level: (usage > 0.0).then(|| shares / usage),
        fair_share: None,
        raw_usage,
        run_minutes: Tres::new(),
    }
}

fn of(account: &str, user: Option<&str>, shares: Shares) -> Association {
    Association { shares, ..Association::plain(account, user) }
}

/// The captured cluster: bob has his account's shares.
fn lab() -> SharesView {
    let mut rows = vec![
        row(0, of("root", None, Shares::Count(1)), (0.0, 1.0, 1614.9)),
        row(1, of("root", Some("root"), Shares::Count(1)), (1.0 / 6.0, 0.047_051, 75.98)),
        row(1, of("bad", None, Shares::Count(1)), (1.0 / 6.0, 0.0, 0.0)),
        row(1, of("p1", None, Shares::Count(3)), (0.5, 0.618_579, 998.9)),
        row(2, of("p1", Some("alice"), Shares::Count(9)), (0.692_308, 0.120_121, 119.99)),
        row(2, of("p1", Some("bob"), Shares::PARENT), (0.5, 0.240_242, 239.98)),
    ];
    rows[1].fair_share = Some(1.0);
    rows[4].fair_share = Some(0.625);
    rows[4].association.partition = Some("gpu".into());
    rows[5].fair_share = Some(0.875);
    SharesView {
        cluster: "lab".into(),
        basic: false,
        gres: vec!["gpu".into()],
        rows,
        qos: Default::default(),
    }
}

fn shown(options: &Options) -> String {
    let mut out = Vec::new();
    show(&mut out, &lab(), options).expect("known fields");
    String::from_utf8(out).expect("text")
}

#[test]
fn the_default_listing_is_that_of_slurm() {
    let expected = "\
Account                    User  RawShares  NormShares    RawUsage  EffectvUsage  FairShare 
-------------------- ---------- ---------- ----------- ----------- ------------- ---------- 
root                                          0.000000        1614      1.000000            
 root                      root          1    0.166667          75      0.047051   1.000000 
 bad                                     1    0.166667           0      0.000000            
 p1                                      3    0.500000         998      0.618579            
  p1                      alice          9    0.692308         119      0.120121   0.625000 
  p1                        bob     parent    0.500000         239      0.240242   0.875000 
";
    assert_eq!(shown(&Options::default()), expected);
    let mine = Options { users: Some(vec!["root".into()]), ..Options::default() };
    let lines: Vec<&str> = expected.lines().take(6).collect();
    assert_eq!(shown(&mine), lines.join("\n") + "\n");
}

#[test]
fn the_long_listing_has_levels_and_every_resource() {
    let options = Options {
        long: true,
        partition: true,
        layout: Layout::Separated("|".into()),
        ..Options::default()
    };
    let none = "cpu=0,mem=0,energy=0,node=0,billing=0,fs/disk=0,vmem=0,pages=0,gres/gpu=0";
    let text = shown(&options);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "Account|User|Partition|RawShares|NormShares|RawUsage|NormUsage|EffectvUsage|FairShare|LevelFS|GrpTRESMins|TRESRunMins"
    );
    assert_eq!(lines[1], format!("root||||0.000000|1614||1.000000||||{none}"));
    assert_eq!(lines[3], format!(" bad|||1|0.166667|0|0.000000|0.000000||inf||{none}"));
    assert_eq!(
        lines[6],
        format!("  p1|bob||parent|0.500000|239|0.240242|0.240242|0.875000|||{none}")
    );
    assert!(lines[5].starts_with("  p1|alice|gpu|9|"), "{}", lines[5]);
}

#[test]
fn accounts_and_users_filter_rows_and_lower_the_indent() {
    let options = Options { accounts: vec!["p1".into()], ..Options::default() };
    let names = |text: String| -> Vec<String> {
        text.lines().skip(2).map(|line| line[..32].trim_end().to_owned()).collect()
    };
    assert_eq!(
        names(shown(&options)),
        ["p1", " p1                       alice", " p1                         bob"]
    );
    let options =
        Options { users_only: true, users: Some(vec!["alice".into()]), ..Options::default() };
    assert_eq!(names(shown(&options)), ["p1                        alice"]);
}

#[test]
fn an_unknown_field_is_refused_by_name() {
    let options = Options { format: Some("Account%10,bogus".into()), ..Options::default() };
    let error = show(&mut Vec::new(), &lab(), &options).expect_err("unknown");
    assert_eq!(error.to_string(), "Invalid field requested: \"bogus\"");
    assert!(help().starts_with(
        "Account           Cluster           EffectvUsage      FairShare        \nGrpTRESMins "
    ));
}

#[test]
fn without_multifactor_priority_only_usage_is_shown() {
    let view = SharesView { basic: true, ..lab() };
    let mut out = Vec::new();
    let options = Options {
        format: Some(
            "Account,User,NormShares,RawUsage,NormUsage,EffectvUsage,FairShare,LevelFS".into(),
        ),
        layout: Layout::Separated("|".into()),
        no_header: true,
        ..Options::default()
    };
    show(&mut out, &view, &options).expect("known fields");
    let text = String::from_utf8(out).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "root|||1614||0.000000||0.000000");
    assert_eq!(lines[1], " root|root||75||0.000000|0.000000|0.000000");
    assert_eq!(lines[5], "  p1|bob||239||0.000000|0.000000|");
}
