//! A call of every kind of the wire, as JSON that the server can read. What varies is drawn from the dice.

use crate::harness::dice::Dice;
use serde_json::{Value, json};
use wire::client::Call;

/// What calls are made of.
pub struct Draw<'a> {
    pub dice: &'a mut Dice,
    /// Who calls.
    pub user: &'a str,
    /// A folder that every user may write to.
    pub work_dir: &'a str,
    /// Job numbers are drawn up to this one.
    pub jobs: u64,
    /// The cluster's slurm.conf.
    pub conf: &'a str,
}

impl Draw<'_> {
    fn job(&mut self) -> u64 {
        1 + self.dice.below(self.jobs)
    }

    fn word<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.dice.below(of.len() as u64) as usize]
    }

    fn partition(&mut self) -> &'static str {
        self.word(&["gpu", "gpu", "gpu", "debug", "rogue", "mixed", "mixed", "none"])
    }

    fn account(&mut self) -> &'static str {
        self.word(&["lab", "lab", "bench", "root", "none"])
    }

    fn node(&mut self) -> &'static str {
        self.word(&["node1", "node2", "rogue1", "none"])
    }

    fn member(&mut self) -> &'static str {
        self.word(&["man", "mail", "stranger"])
    }

    fn minutes(&mut self) -> Value {
        let limits = [json!({"Minutes": 5}), json!({"Minutes": 1})];
        self.dice.pick(&limits).clone()
    }

    fn job_ref(&mut self) -> Value {
        let id = self.job();
        let ranges = json!([[0, 3]]);
        let some = [json!({"id": id}), json!({"id": id, "tasks": ranges})];
        some[usize::from(self.dice.one_in(4))].clone()
    }

    fn filter(&mut self) -> Value {
        match self.dice.below(8) {
            0 => json!({"users": [self.user]}),
            1 => json!({"partitions": [self.partition()], "states": ["pending"]}),
            _ => json!({"jobs": [self.job_ref()]}),
        }
    }

    fn dependency(&mut self) -> Value {
        let kind = self.word(&["AfterAny", "AfterOk", "AfterNotOk", "AfterCorr", "Singleton"]);
        let job = (kind != "Singleton").then(|| json!({"id": self.job(), "task": "Whole"}));
        // The same many times: what is looked at has a bound, whatever is asked.
        let times = if self.dice.one_in(8) { 4096 } else { 1 };
        json!({"terms": vec![json!({"kind": kind, "job": job}); times], "join": "All"})
    }

    fn request(&mut self) -> Value {
        let mut request = json!({
            "partitions": [self.partition()],
            "nodes": {"min": 1, "max": 1 + self.dice.below(2)},
            "cpus_per_task": {"min": 1, "max": 1},
            "memory": "default",
            "time_limit": self.minutes(),
        });
        let more = [
            ("tasks", json!(1 + self.dice.below(4))),
            ("gres", json!([{"per": "node", "name": "gpu", "count": {"min": 1, "max": 1}}])),
            ("licenses", json!([["tool", 1]])),
            ("node_list", json!([self.node()])),
            ("begin", json!(1_900_000_000_000_i64)),
            ("deadline", json!(1_900_000_000_000_i64)),
            ("time_min", json!({"Minutes": 1})),
            ("tasks_per_node", json!(2)),
            ("node_counts", json!([1, 2])),
            ("switches", json!({"count": 1, "wait_s": 10})),
            ("segment", json!(1)),
            ("one_switch", json!(true)),
            ("reservation", json!("window")),
        ];
        for _ in 0..self.dice.below(6).saturating_sub(3) {
            let (key, value) = self.dice.pick(&more).clone();
            request[key] = value;
        }
        request
    }

    fn spec(&mut self, kind: &str) -> Value {
        let nap = self.dice.below(10);
        let mut spec = json!({
            "name": format!("random-{nap}"),
            "owner": {"name": self.user, "uid": 1, "gid": 1},
            "components": [{"request": self.request()}],
            "launch": {"kind": kind, "work_dir": self.work_dir, "stdout": "/dev/null"},
            "requeue": self.dice.one_in(2),
            "submit_line": "sbatch job.sh",
        });
        let more = [
            ("dependency", self.dependency()),
            ("account", json!(self.account())),
            ("qos", json!("normal")),
            ("comment", json!("a comment")),
            ("nice", json!(self.dice.below(100))),
            ("signal", json!({"signal": 10, "before_s": 30, "batch_only": true})),
        ];
        if self.dice.one_in(4) {
            let (key, value) = self.dice.pick(&more).clone();
            spec[key] = value;
        }
        spec
    }

    pub fn submission(&mut self) -> Value {
        let kind = self.word(&["batch", "batch", "batch", "interactive"]);
        let mut submission = json!({"spec": self.spec(kind)});
        if kind == "batch" {
            let nap = self.dice.below(5);
            submission["script"] = json!(format!("#!/bin/sh\nsleep 0.{nap}\n"));
            submission["environment"] = json!("PATH=/usr/bin:/bin\0");
        }
        match self.dice.below(8) {
            0 => submission["array"] = json!({"indices": [[0, 3]], "text": "0-3", "throttle": 2}),
            1 => submission["hold"] = json!("user"),
            2 => submission["with"] = json!([self.spec(kind)]),
            3 => submission["priority"] = json!(self.dice.below(1000)),
            _ => {}
        }
        submission
    }

    fn step_launch(&mut self) -> Value {
        json!({
            "name": "step", "argv": ["sleep", "0.1"], "environment": "PATH=/usr/bin:/bin\0",
            "work_dir": self.work_dir, "listen": [], "encrypted_listen": ["127.0.0.1:9"],
            "key": "00".repeat(32), "submit_line": "srun sleep 0.1", "shape": {"overlap": true},
            "tasks": 1 + self.dice.below(3),
        })
    }

    fn step_id(&mut self) -> Value {
        match self.dice.below(4) {
            0 => json!("batch"),
            number => json!({"number": number - 1}),
        }
    }

    fn change(&mut self) -> Value {
        match self.dice.below(9) {
            0 => json!({"hold": {"by": "user"}}),
            1 => json!("release"),
            2 => json!({"requeue": {}}),
            3 => json!({"requeue": {"hold": true}}),
            4 => json!("suspend"),
            5 => json!("resume"),
            6 => json!("top"),
            _ => json!({"fields": [self.field()]}),
        }
    }

    fn field(&mut self) -> Value {
        let fields = [
            json!({"time_limit": {"Minutes": 9}}),
            json!({"name": "renamed"}),
            json!({"partition": ["gpu"]}),
            json!({"qos": "normal"}),
            json!({"account": "lab"}),
            json!({"priority": 7}),
            json!({"nice": 3}),
            json!({"comment": "seen"}),
            json!({"begin": 1_900_000_000_000_i64}),
            json!({"deadline": 1_900_000_000_000_i64}),
            json!({"dependency": self.dependency()}),
            json!({"nodes": {"min": 1, "max": 2}}),
            json!({"tasks": 2}),
            json!({"cpus_per_task": 2}),
            json!({"memory_per_node": 1 << 24}),
            json!({"node_list": ["node1"]}),
            json!({"array_throttle": 1}),
            json!({"stdout": "/dev/null"}),
            json!({"end_time": 1_900_000_000_000_i64}),
            json!({"licenses": [["tool", 1]]}),
            json!("reset_accrue_time"),
        ];
        self.dice.pick(&fields).clone()
    }

    fn association(&mut self) -> Value {
        json!({
            "account": self.account(), "user": self.member(), "shares": 1 + self.dice.below(9),
            "limits": {"max_jobs": 50, "group_tres": {"cpu": 64}},
        })
    }

    fn reservation(&mut self) -> Value {
        json!({
            "name": "window", "start": 1_900_000_000_000_i64, "duration": {"set": {"Minutes": 60}},
            "node_count": 1, "users": {"edit": "set", "names": ["man"]}, "group_ids": [], "skip": false,
        })
    }
}

pub type Sample = fn(&mut Draw<'_>) -> Value;

/// Makes the table of calls. The match has no wildcard: a call that is added to the wire without a row does not compile.
macro_rules! table_of_calls {
    ($draw:ident; $($call:pat => $sample:expr;)+) => {
        #[allow(dead_code)]
        fn has_a_row(call: &Call) {
            match call { $($call => {})+ }
        }

        pub const CALLS: &[(Sample, fn(&Call) -> bool)] =
            &[$((|$draw: &mut Draw<'_>| { let _ = &$draw; $sample }, |call| matches!(call, $call)),)+];
    };
}

table_of_calls! { d;
    Call::Ping => json!("ping");
    Call::Submit(_) => json!({"submit": d.submission()});
    Call::Resubmit(_) => json!({"resubmit": d.submission()});
    Call::TestSubmit(_) => json!({"test_submit": d.submission()});
    Call::AwaitStart { .. } => json!({"await_start": {"job": d.job(), "timeout_ms": 50, "ready": true}});
    Call::AwaitEnd { .. } => json!({"await_end": {"job": d.job(), "timeout_ms": 50}});
    Call::AwaitCommit { .. } => json!({"await_commit": {"seen": d.dice.below(20), "timeout_ms": 50}});
    Call::Jobs(_) => json!({"jobs": {
        "filter": d.filter(), "expand_arrays": true, "steps": true, "estimates_ms": d.dice.below(20),
        "lines": {"options": {"format": "%i %j %T"}, "zone": "UTC"},
    }});
    Call::QueueHead { .. } => json!({"queue_head": {"users": [d.member()], "rows": d.dice.below(20), "filter": d.member(), "order": d.word(&["queue", "id", "user", "name", "start"]), "from_end": d.dice.below(2) == 0}});
    Call::Cluster => json!("cluster");
    Call::Config => json!("config");
    Call::Cancel(_) => json!({"cancel": {"filter": d.filter(), "signal": d.word(&["", "10"]).parse::<i32>().ok()}});
    Call::UpdateJob { .. } => json!({"update_job": {"job": d.job_ref(), "change": d.change()}});
    Call::UpdateNode { .. } => {
        let changes = [
            json!("resume"), json!("undrain"), json!({"drain": {"reason": "random"}}), json!({"weight": 3}),
            json!({"down": {"reason": "random"}}), json!({"features": ["fast"]}),
        ];
        json!({"update_node": {"nodes": [d.node()], "change": d.dice.pick(&changes).clone()}})
    };
    Call::UpdatePartition { .. } => {
        let changes = [
            json!({"state": "up"}), json!({"max_time": "Unlimited"}), json!({"default": false}),
            json!({"default_time": null}), json!({"max_nodes": 7}), json!({"priority_tier": 2}),
            json!({"allow_accounts": "all"}), json!({"hidden": true}),
        ];
        json!({"update_partition": {"name": d.partition(), "change": d.dice.pick(&changes).clone()}})
    };
    Call::Reconfigure { .. } => json!({"reconfigure": {"files": {"slurm.conf": d.conf}}});
    Call::History(_) => json!({"history": {"users": [d.user], "from": 0, "limit": 20, "duplicates": true}});
    Call::UsageReport(_) => json!({"usage_report": {"filter": {"users": [d.user], "from": 0, "until": 4_000_000_000_000_i64}, "by_size": true, "cluster": true}});
    Call::Activities => json!("activities");
    Call::ActivityHistory(_) => json!({"activity_history": {"actors": [d.user], "from": 0}});
    Call::DeleteRuns { .. } => json!({"delete_runs": {"runs": ["7f8d2f6a-3c1b-4a52-9d0e-1b2c3d4e5f60"]}});
    Call::Projects => json!("projects");
    Call::SetDefaultGateway { .. } => json!({"set_default_gateway": {
        "project": d.word(&["main", "none"]), "gateway": d.word(&["edge", "a b"])}});
    Call::CreateProject { .. } => json!({"create_project": {"name": d.word(&["atlas", "lab"])}});
    Call::RemoveProject { .. } => json!({"remove_project": {"name": d.word(&["atlas", "none"])}});
    Call::SetMembers { .. } => {
        let role = d.word(&["user", "manager", "admin"]);
        let (member, change) = (d.member(), d.word(&["add", "remove"]));
        json!({"set_members": {"project": "atlas", "members": {member: role}, "change": change}})
    };
    Call::Usage { .. } => json!({"usage": {"jobs": [d.job_ref()]}});
    Call::Script { .. } => json!({"script": {"job": d.job()}});
    Call::KeptText { .. } => json!({"kept_text": {"job": d.job_ref(), "of": d.word(&["script", "environment"])}});
    Call::CreateStep(_) => json!({"create_step": {"job": d.job(), "launch": d.step_launch(), "wait_ms": 20}});
    Call::LeaveStep { .. } => json!({"leave_step": {"job": d.job(), "ticket": d.dice.below(9)}});
    Call::LaunchStep { .. } =>
        json!({"launch_step": {"job": d.job(), "step": d.step_id(), "launch": d.step_launch()}});
    Call::SignalStep { .. } => json!({"signal_step": {"job": d.job(), "step": d.step_id(), "signal": 15}});
    Call::Relinquish { .. } => json!({"relinquish": {"job": d.job(), "exit": {"code": 1, "signal": 0}}});
    Call::Accounts => json!("accounts");
    Call::Shares => json!("shares");
    Call::Priorities => json!("priorities");
    Call::SubmitChoices => json!("submit_choices");
    Call::SetAccount(_) => json!({"set_account": {"name": "bench", "parent": "lab", "coordinators": [d.member()]}});
    Call::RemoveAccount { .. } => json!({"remove_account": {"name": d.word(&["bench", "none"])}});
    Call::SetAssociation(_) => json!({"set_association": d.association()});
    Call::RemoveAssociation(_) =>
        json!({"remove_association": {"account": d.word(&["bench", "none"]), "user": d.member()}});
    Call::SetQos(_) => json!({"set_qos": model::account::Qos::named("spare")});
    Call::RemoveQos { .. } => json!({"remove_qos": {"name": d.word(&["spare", "none"])}});
    // Nobody who calls here: else one of them would run jobs as root.
    Call::SetRole { .. } => json!({"set_role": {"name": "stranger", "role": d.word(&["user", "operator"])}});
    // No program: an administrator among the callers would have it run.
    Call::SetTrigger(_) => json!({"set_trigger": {"subject": {"nodes": []}, "event": d.word(&["down", "idle"]),
        "program": d.word(&["", "none", "/"])}});
    Call::Triggers => json!("triggers");
    Call::ClearTriggers(_) => json!({"clear_triggers": {"user": d.member()}});
    Call::ForgetUsage(_) => json!({"forget_usage": {"user": {"account": d.account(), "user": d.member()}}});
    Call::NodeToken { .. } => json!({"node_token": {"nodes": ["spare1"]}});
    Call::GroupToken { .. } => json!({"group_token": {"pattern": d.word(&["spare[1-3]", "none[1-", ""]), "count": 2}});
    Call::Agents => json!("agents");
    Call::RejoinNode { .. } => json!({"rejoin_node": {"name": d.word(&["spare1", "none", ""])}});
    Call::CreateNodes(_) => json!({"create_nodes": {"names": d.word(&["dyn[1-2]", "spare1", "none[1-", ""]), "node": model::node::NodeConfig::plain("", 1, model::amount::Bytes::from_gib(1))}});
    Call::DeleteNodes { .. } => json!({"delete_nodes": {"nodes": [d.word(&["dyn1", "spare1", "none", ""])]}});
    // No node that runs jobs here: the fire would end there.
    Call::RemoveNode { .. } => json!({"remove_node": {"name": d.word(&["spare1", "none", ""])}});
    Call::RestToken { .. } => json!({"rest_token": {"user": d.member(), "life_s": 60}});
    Call::UserToken { .. } => json!({"user_token": {"name": d.member(), "token_name": "laptop"}});
    Call::Tokens => json!("tokens");
    Call::RevokeToken { .. } => json!({"revoke_token": {"name": d.word(&["laptop", "none"]), "user": d.member()}});
    Call::Ssh { .. } => json!({"ssh": {"user": d.member(), "request": d.word(&["list", "renew", "connect"])}});
    Call::RotateAdminToken { .. } => json!({"rotate_admin_token": {"hash": "00".repeat(32)}});
    Call::Secrets { .. } => json!({"secrets": {"project": "main"}});
    Call::Secret { .. } => json!({"secret": {"project": "main", "name": d.word(&["token", "none"])}});
    Call::SetSecret { .. } => json!({"set_secret": {"project": "main", "name": "token", "value": "hush"}});
    Call::RemoveSecrets { .. } =>
        json!({"remove_secrets": {"project": "main", "names": [d.word(&["token", "none"])]}});
    Call::RotateSecretKey => json!("rotate_secret_key");
    Call::WebLink(_) => json!({"web_link": {"job": d.dice.below(99), "port": d.dice.below(65536)}});
    Call::SyncGateway(_) => json!({"sync_gateway": {"name": d.word(&["edge", ""]), "loads": [
        {"project": "main", "run": "web", "requests": d.dice.below(99)}]}});
    Call::Volumes { .. } => json!({"volumes": {"project": "main"}});
    Call::CreateVolume { .. } => json!({"create_volume": {"project": "main", "name": d.word(&["data", "../x"]),
        "place": {"node": d.word(&["none", "node1"])}}});
    Call::DeleteVolume { .. } => json!({"delete_volume": {"project": "main", "name": d.word(&["data", "none"])}});
    Call::Reservations => json!("reservations");
    Call::Licenses => json!("licenses");
    Call::CreateReservation(_) => json!({"create_reservation": d.reservation()});
    Call::UpdateReservation { .. } => json!({"update_reservation": {"name": "window", "ask": d.reservation()}});
    Call::RemoveReservation { .. } => json!({"remove_reservation": {"name": "window"}});
    Call::Offers(_) => json!({"offers": d.submission()});
    Call::WhatIf(_) => json!({"what_if": {"added": [{"count": d.dice.below(9), "like": d.word(&["node1", "none"])}],
        "removed": [d.word(&["node1", "none", ""])]}});
    Call::Explain(_) => json!({"explain": {"jobs": [d.job_ref()]}});
    Call::Machines => json!("machines");
    Call::DeleteMachine { .. } => json!({"delete_machine": {"name": d.word(&["cloud-1", "none", ""])}});
    // No source is made of it: nothing is dialled.
    Call::SetBackend { .. } => json!({"set_backend": {"project": "main",
        "config_yaml": d.word(&["type: aws", "type: none", "a: [", ""])}});
    Call::RemoveBackends { .. } => json!({"remove_backends": {"project": "main", "names": [d.word(&["aws", "none"])]}});
    Call::Fleets => json!("fleets");
    // No key is one: nothing is dialled.
    Call::ApplyFleet { .. } => json!({"apply_fleet": {"project": "main", "configuration": {
        "type": "fleet",
        "name": format!("pool{}", d.dice.below(9)),
        "ssh_config": {
            "user": "root",
            "ssh_key": {"public": "", "private": "none"},
            "hosts": [format!("10.255.255.{}", d.dice.below(9))],
        },
    }}});
    Call::RemoveFleetHosts { .. } => json!({"remove_fleet_hosts": {
        "project": "main",
        "name": format!("pool{}", d.dice.below(9)),
        "numbers": [d.dice.below(9)],
    }});
    Call::Versions => json!("versions");
    Call::CreatePartition(_) => json!({"create_partition": {"name": d.word(&["new", "none", ""]), "nodes": [d.word(&["spare1", "none", ""])]}});
    Call::DeletePartition { .. } => json!({"delete_partition": {"name": d.word(&["new", "none", ""])}});
    Call::Handover => json!("handover");
    Call::SetLogLevel { .. } => json!({"set_log_level": {"level": d.word(&["error", "info"])}});
    Call::Diagnostics { .. } => json!({"diagnostics": {"reset": d.dice.one_in(2)}});
}

/// Whether a job's processes could come of it.
pub fn starts_processes(call: &Value) -> bool {
    ["submit", "create_step", "launch_step"].iter().any(|kind| call.get(kind).is_some())
}

/// Whether root sends it only as it was drawn: a mutated one could start processes as root, or remove a node that runs jobs here,
/// whose certificate then speaks for nobody until it joins again.
pub fn is_fixed_for_root(call: &Value) -> bool {
    let removals = ["remove_node", "rejoin_node"];
    starts_processes(call) || removals.iter().any(|kind| call.get(kind).is_some())
}

#[test]
fn no_call_of_root_removes_a_node_that_runs_jobs() {
    let mut dice = Dice::new(1);
    let mut is_named_by_a_mutation = false;
    for _ in 0..100_000 {
        let mut call = json!({"remove_node": {"name": "spare1"}});
        assert!(is_fixed_for_root(&call), "{call}");
        super::mutation::mutate(&mut call, &mut dice);
        is_named_by_a_mutation |= call["remove_node"]["name"] == "node1";
    }
    assert!(is_named_by_a_mutation, "a mutation names it: the call has to be fixed");
}

#[test]
fn every_drawn_call_is_one_of_its_row() {
    let mut dice = Dice::new(1);
    for (sample, is_of_row) in CALLS {
        for _ in 0..40 {
            let mut draw =
                Draw { dice: &mut dice, user: "man", work_dir: "/tmp", jobs: 9, conf: "" };
            let json = sample(&mut draw);
            let call: Call = serde_json::from_value(json.clone())
                .unwrap_or_else(|error| panic!("{error}: {json}"));
            assert!(is_of_row(&call), "{json}");
        }
    }
}
