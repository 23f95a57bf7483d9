mod support;
use support::*;
use wire::order::{Action, Output, EndOrder};
use wire::report::ReportEvent;
use wire::link::ToServer;
#[test]
fn root_rate() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let env: Vec<String> = (0..40).map(|i| format!("VARIABLE_{i}=some value that is about eighty characters long, as they are in practice {i}")).collect();
    let mut job = 0u32;
    for n in [1u32, 1, 1, 1, 200, 1000] {
        let t = std::time::Instant::now();
        let c0 = cpu();
        for j in 0..n {
            let mut l = cluster.batch("#!/bin/sh\nexit 0\n");
            l.stdout = Output::File { pattern: "/dev/null".into(), append: false };
            l.environment.extend(env.clone());
            cluster.order(&mut link, { job += 1; let _ = j; attempt(job, 1) }, Action::Launch(Box::new(l)));
        }
        let mut left = n;
        while left > 0 {
            if let ToServer::Report(r) = cluster.next(&mut link) {
                cluster.send(&mut link, &wire::link::ToAgent::Ack { serial: r.serial });
                match r.event { ReportEvent::Ended(_) => { left -= 1; cluster.order(&mut link, r.attempt, Action::Forget); }
                  ReportEvent::LaunchFailed{what} => panic!("{what}"), _ => {} }
            }
        }
        let el = t.elapsed();
        println!("{n} jobs: {:?} = {:.0}/s; cpu ticks {}", el, n as f64 / el.as_secs_f64(), cpu() - c0);
    }
    for e in std::fs::read_dir("/proc").unwrap().flatten() {
        let p = e.path();
        let Ok(st) = std::fs::read_to_string(p.join("stat")) else { continue };
        if st.contains("(sluice-launche") || st.contains("(zz_rate") || st.contains("(root_rate") {
            let f: Vec<&str> = st.rsplit_once(')').unwrap().1.split_whitespace().collect();
            println!("jobs: {} utime {} stime {} rss {}", st.split(')').next().unwrap(), f[11], f[12], f[21]);
        }
    }
    let _ = EndOrder { step: None, grace_s: 0, notice: None, exit: None };
}
fn cpu() -> u64 { // total machine busy ticks
    let s = std::fs::read_to_string("/proc/stat").unwrap();
    let f: Vec<u64> = s.lines().next().unwrap().split_whitespace().skip(1).map(|x| x.parse().unwrap()).collect();
    f[0] + f[1] + f[2] + f[5] + f[6]
}
