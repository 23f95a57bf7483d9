//! Servers that are there and say nothing: a leader that stays frozen, and one whose database hangs for it alone. Agents and commands
//! find the next leader while the former one is still there, and every server says what it lacks.

use crate::database::TestDatabase;
use crate::harness::{Cluster, CommandOutput, TIMEOUT, TWO_NODES, signal, within};
use crate::servers::{
    Pair, Server, agent, agent_with_log, await_backup, before_commits, job_until_go, jobs,
};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

#[test]
fn up_agents_leave_a_leader_that_stays_frozen_and_their_jobs_go_on() {
    // Shorter than the job that follows under the next leader: a node that did not come to it would be down by then.
    let conf = format!("{TWO_NODES}SlurmdTimeout=12\n");
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(&conf), Cluster::folder(&conf));
    let mut leader = Server::lead(&first, &database);
    let standby = Server::wait_beside(&first, &second, &database);
    let _agent = agent("node1", &[&first, &second]);
    let job = job_until_go(&first, &["-w", "node1"]);
    signal(leader.process.id() as i32, "STOP");
    standby.await_line("sluice is up");

    let later = second.submit(&["-w", "node1", "-o", "/dev/null", "--wrap", "sleep 13"]);
    assert_eq!(second.await_end(later), "COMPLETED|0:0");
    assert_eq!(second.state_of(job), "RUNNING|None");
    let ping = first.sluice(&["scontrol", "ping"]);
    assert!(ping.code != 0 && ping.stdout.contains(" is DOWN"), "{ping:?}");
    assert_eq!(leader.process.try_wait().expect("its end"), None, "it is frozen still");
    first.write("go", "");
    assert_eq!(second.await_end(job), "FAILED|3:0");
    assert_eq!(first.read("runs"), "run\n", "it ran once");
}

/// Sessions of servers, each a process of the database, which can be made to hang. They go on when this is dropped.
struct Sessions {
    client: postgres::Client,
    pids: Vec<i32>,
}

impl Sessions {
    /// The sessions that servers have with the database now.
    fn of_servers(database: &TestDatabase) -> Self {
        let mut client = database.take_sessions("sluice", 1).remove(0);
        let there = "SELECT pid FROM pg_stat_activity WHERE application_name = 'sluice'";
        let pids = client.query(there, &[]).expect("the sessions");
        Self { client, pids: pids.iter().map(|row| row.get(0)).collect() }
    }

    fn signal(&self, name: &str) {
        self.pids.iter().for_each(|pid| signal(*pid, name));
    }

    /// Hangs them while they have nothing to do: what holds a lock would keep others from taking the lead.
    fn hang(&mut self) {
        let busy = "SELECT 1 FROM pg_stat_activity WHERE pid = ANY($1) AND state <> 'idle'";
        within(TIMEOUT, "all are idle", || {
            self.signal("STOP");
            let is_any = self.client.query_opt(busy, &[&self.pids]).expect("the sessions");
            is_any.inspect(|_| self.signal("CONT")).is_none().then_some(())
        });
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

#[test]
fn up_leader_whose_database_hangs_lets_agents_and_passed_on_calls_go_before_it_ends() {
    let database = TestDatabase::start();
    let [first, second, third] = [(); 3].map(|()| Cluster::folder(TWO_NODES));
    let mut leader = Server::lead(&first, &database);
    // The standbys' sessions come later, so these are the leader's alone.
    let mut own = Sessions::of_servers(&database);
    let _standbys = [&second, &third].map(|own| Server::wait_beside(&first, own, &database));
    let _agent = agent("node1", &[&first, &second, &third]);
    let job = job_until_go(&first, &["-w", "node1"]);
    await_backup(&first);
    own.hang();

    // Passed on to the leader, which cannot commit it.
    let held = second.submit(&["-H", "--wrap", "true"]);
    let later = third.submit(&["-w", "node1", "-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(third.await_end(later), "COMPLETED|0:0");
    assert_eq!(leader.process.try_wait().expect("its end"), None, "it was not waited for");
    assert!(jobs(&third).is_superset(&BTreeSet::from([job, held])));
    first.write("go", "");
    assert_eq!(third.await_end(job), "FAILED|3:0");
    assert_eq!(first.read("runs"), "run\n", "it ran once");
    leader.await_succeeded();
}

/// Root's own word counts for nothing on a node.
#[test]
fn root_client_on_a_node_is_let_go_by_a_leader_whose_database_hangs() {
    const USER: &str = "games";
    let database = TestDatabase::start();
    let [first, second] = [(); 2].map(|()| Cluster::folder(TWO_NODES));
    let mut leader = Server::lead(&first, &database);
    let mut own = Sessions::of_servers(&database);
    let _standby = Server::wait_beside(&first, &second, &database);
    let _agent = agent("node1", &[&first, &second]);
    let state = first.path("agent-node1");
    let on_node =
        |line: &str| first.shell_as(USER, &format!("SLUICE_STATE={} {line}", state.display()));
    // A node speaks for those who have a job there.
    let body = "-w node1 -o /dev/null --wrap 'until [ -e go ]; do sleep 0.05; done'";
    let job = first.submit_as(USER, body);
    first.await_state(job, "RUNNING|None");
    assert!(on_node("squeue").ok().contains(&job.to_string()));
    await_backup(&first);
    own.hang();
    let said = on_node("sbatch --parsable -H --wrap true");
    assert_eq!(leader.process.try_wait().expect("its end"), None, "it was not waited for");
    let held: u32 = said.ok().trim().parse().expect("a job id");
    assert_eq!(jobs(&second), BTreeSet::from([job, held]));
    first.write("go", "");
    assert_eq!(second.await_end(job), "COMPLETED|0:0");
    leader.await_succeeded();
}

/// Whether a server answers on its port for clients.
fn is_healthy(server: &Cluster) -> bool {
    let asked = TcpStream::connect(server.address_of("listen")).and_then(|mut stream| {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: server\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    });
    asked.is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 "))
}

#[test]
fn up_leader_of_a_slow_database_shows_that_it_lives_while_it_commits() {
    let pair = Pair::up();
    let log = std::fs::File::create(pair.first.path("agent.log")).expect("a log");
    let _agent = agent_with_log("node1", &[&pair.first, &pair.second], log.into());
    await_backup(&pair.first);
    within(TIMEOUT, "the node is idle", || {
        pair.first.node_states().lines().any(|state| state.starts_with("idle")).then_some(())
    });
    // Longer than an agent bears silence.
    before_commits(&pair.database, "PERFORM pg_sleep(8);");
    let submit = |server: &Cluster| {
        let mut command = server.command(&["sbatch", "--parsable", "-H", "--wrap", "true"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("sbatch runs")
    };
    let mut held = submit(&pair.first);
    let mut client = pair.database.take_sessions("sluice", 1).remove(0);
    within(TIMEOUT, "the commit is under way", || {
        let sleeps = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
        client.query_opt(sleeps, &[]).expect("the sessions").map(drop)
    });
    // More than the server has threads: each waits for the state.
    let looks = [(); 8].map(|()| pair.first.spawn(&["squeue"]));
    let mut answers = 0;
    within(TIMEOUT, "the commit is done", || {
        assert!(is_healthy(&pair.first));
        answers += 1;
        held.try_wait().expect("its end").map(drop)
    });
    assert!(answers > 5, "{answers} answers meanwhile");
    for mut look in looks {
        assert!(look.wait().expect("its end").success());
    }
    let said = std::fs::read_to_string(pair.first.path("agent.log")).expect("a log");
    assert!(!said.contains("says nothing"), "{said}");
}

#[test]
fn up_lease_is_renewed_while_somebody_holds_the_list_of_servers() {
    const RENEWALS: usize = 20;
    let pair = Pair::up();
    await_backup(&pair.first);
    let [mut holder, mut looker] =
        <[_; 2]>::try_from(pair.database.take_sessions("sluice", 2)).ok().expect("two");
    let mut held = holder.transaction().expect("a transaction");
    held.batch_execute("LOCK TABLE sluice.server").expect("a lock");
    let mut seen = BTreeSet::new();
    let mut epochs = BTreeSet::new();
    within(TIMEOUT, "the lease is renewed", || {
        let lease = "SELECT epoch, valid_until::text FROM sluice.lease";
        let row = looker.query_one(lease, &[]).expect("the lease");
        epochs.insert(row.get::<_, i64>(0));
        seen.insert(row.get::<_, String>(1));
        (seen.len() > RENEWALS).then_some(())
    });
    assert_eq!(epochs.len(), 1, "it was taken from the leader");
}

#[test]
fn up_servers_whose_database_is_away_say_so_to_whoever_asks_for_their_health() {
    let mut pair = Pair::up();
    // The standby before the leader: its state is soon too old to answer from.
    let servers = [&pair.second, &pair.first];
    let well = |said: &CommandOutput| !said.stdout.contains("the database has failed it");
    assert!(servers.iter().all(|server| well(&server.sluice(&["doctor"]))));
    pair.database.crash();
    for server in servers {
        let said = within(TIMEOUT, "it is a problem to doctor", || {
            Some(server.sluice(&["doctor"])).filter(|said| !well(said))
        });
        assert_ne!(said.code, 0, "{}", said.stdout);
        assert!(!said.stdout.contains("nothing is out of service"), "{}", said.stdout);
        let ping = server.sluice(&["scontrol", "ping"]);
        assert!(ping.code != 0 && ping.stderr.contains("the database has failed it"), "{ping:?}");
    }
}
