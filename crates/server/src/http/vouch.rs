//! For whom a node may vouch: on its socket the kernel of another machine says who asks, and the server has its word for it.
//! A login node vouches for every ordinary user, any other node for the owners of the jobs that it runs at that moment. No
//! node vouches for root, operators or administrators: who becomes root on a node does not become master of the cluster.

use crate::auth::principal;
use crate::shared::Shared;
use cluster::authorise::{Act, authorise};
use cluster::state::State;
use model::principal::{Principal, Role};
use std::time::Duration;
use tokio::sync::Semaphore;
use wire::link::NodeClient;

/// Users of nodes who are looked up at a time, and how long that may take: nodes choose whom to ask for.
const LOOKUPS_MAX: usize = 4;
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// Who is said to ask, and by the holder of which certificate.
pub struct NodeAsked {
    pub client: NodeClient,
    pub fingerprint: String,
}

/// A user for whom a node vouches.
pub struct NodeUser {
    asked: NodeAsked,
    /// As this machine knows the user. It has no more rights than a token for an ordinary user: a node's word must not be
    /// turned into a token, which would outlast it.
    pub who: Principal,
}

impl NodeAsked {
    /// The user, if the node may speak for that user now. Asked after [`check`](Self::check): a node has nobody looked up for
    /// whom it cannot speak.
    pub async fn admit(self, shared: &Shared) -> Result<NodeUser, String> {
        let NodeClient { uid, gid, .. } = self.client;
        let look_up = async {
            let place = LOOKUPS.acquire().await.ok()?;
            let look_up = move || {
                // Kept until the database has answered, also when nobody waits for it any more.
                let _place = place;
                principal::with_account(uid, gid)
            };
            tokio::task::spawn_blocking(look_up).await.ok()
        };
        let answer = tokio::time::timeout(LOOKUP_TIMEOUT, look_up).await.ok().flatten();
        let found = answer.ok_or_else(|| {
            format!("the server's user database does not answer for user {uid}: try again")
        })?;
        let who = found.ok_or_else(|| format!("user {uid} has no account on the server"))?;
        let user =
            NodeUser { asked: self, who: Principal { token_limit: Some(Role::User), ..who } };
        user.check(&shared.read())?;
        Ok(user)
    }

    fn node(&self) -> String {
        self.client.nodes.join(",")
    }

    /// Whether one of the nodes may speak for this user id. The certificate may have been replaced since it connected.
    pub fn check(&self, state: &State) -> Result<(), String> {
        let NodeClient { nodes, uid, user, .. } = &self.client;
        let is_its =
            |node: &String| state.has_machine(node) && state.speaks_for(node, &self.fingerprint);
        let is_login = |node: &String| state.config.login_nodes.contains(node);
        let mut own = nodes.iter().filter(|node| is_its(node));
        if *uid == 0 {
            return Err(not_vouched(&self.node(), user));
        }
        if own.any(|node| is_login(node) || has_job(state, *uid, node)) {
            return Ok(());
        }
        let node = self.node();
        Err(format!("user {user} has no running job on node {node}, which is not a login node"))
    }
}

impl NodeUser {
    /// Whether the node may still speak for the user.
    pub fn check(&self, state: &State) -> Result<(), String> {
        self.asked.check(state)?;
        let NodeClient { uid, user, .. } = &self.asked.client;
        let (node, here) = (self.asked.node(), &self.who.name);
        // The users of an image are not those of the cluster: a pod calls its user by the id.
        let is_pod = self.asked.client.nodes.iter().all(|node| state.is_pod(node));
        let is_by_id = is_pod && *user == uid.to_string();
        if here != user && !is_by_id {
            return Err(format!("user {uid} is {user} on node {node}, and {here} on the server"));
        }
        let unlimited = Principal { token_limit: None, ..self.who.clone() };
        if authorise(state, &unlimited, Act::Operate).is_ok() {
            return Err(not_vouched(&node, user));
        }
        Ok(())
    }
}

fn not_vouched(node: &str, user: &str) -> String {
    format!(
        "node {node} cannot speak for {user}: operators and administrators ask on the server's machine"
    )
}

fn has_job(state: &State, uid: u32, node: &str) -> bool {
    let active = state.active.iter().filter_map(|id| state.jobs.get(id));
    let mut own = active.filter(|job| job.spec.owner.uid == uid).filter_map(|job| job.attempt());
    own.any(|attempt| attempt.held_nodes.iter().any(|held| held == node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::testing::{NODE, TestServer, user};
    use cluster::Command;
    use cluster::command::JoinAttempt;
    use model::machine_choice::MachineKind;
    use model::pod::PodKind;
    use std::sync::Arc;

    const LOGIN: &str = "login1";

    fn named(name: &str, uid: u32) -> Principal {
        Principal { name: name.into(), uid, ..user() }
    }

    /// The node asks for this user, and the server knows the user by the same name.
    fn through(node: &str, who: &Principal) -> NodeUser {
        let (uid, gid, user) = (who.uid, who.gid, who.name.clone());
        let client = NodeClient { version: 1, nodes: vec![node.into()], uid, gid, user };
        let asked = NodeAsked { client, fingerprint: format!("certificate of {node}") };
        NodeUser { asked, who: who.clone() }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn node_vouches_for_the_owners_of_its_jobs_and_a_login_node_for_ordinary_users() {
        let server = TestServer::start().await;
        server.node_up().await;
        let job = server.submit("name: here").await.expect("a job");
        server.plan();
        let mut state = (*server.shared.read()).clone();
        assert!(state.active.contains(&job), "it runs");
        Arc::make_mut(&mut state.config).login_nodes = vec![LOGIN.into()];
        for node in [NODE, "n2", LOGIN] {
            state.agents.insert(node.into(), format!("certificate of {node}"));
        }
        state.roles.insert("olga".into(), Role::Operator);
        state.roles.insert("adam".into(), Role::Admin);
        let (owner, other) = (user(), named("bob", 1001));
        let (operator, admin) = (named("olga", 1002), named("adam", 1003));
        let root = Principal { role: Role::User, ..named("root", 0) };
        let table = [
            (NODE, &owner, None),
            (
                NODE,
                &other,
                Some("user bob has no running job on node n1, which is not a login node"),
            ),
            ("n2", &owner, Some("user ada has no running job on node n2")),
            (LOGIN, &owner, None),
            (LOGIN, &other, None),
            (LOGIN, &root, Some("node login1 cannot speak for root")),
            (NODE, &root, Some("node n1 cannot speak for root")),
            (LOGIN, &operator, Some("node login1 cannot speak for olga")),
            (LOGIN, &admin, Some("node login1 cannot speak for adam")),
        ];
        for (node, who, expected) in table {
            let said = through(node, who).check(&state);
            let is_right = match (&said, expected) {
                (Ok(()), None) => true,
                (Err(why), Some(expected)) => why.starts_with(expected),
                _ => false,
            };
            assert!(is_right, "{node}, {}: {said:?}", who.name);
        }
        let mut claimed = through(NODE, &owner);
        claimed.asked.client.user = "bob".into();
        let why = claimed.check(&state).expect_err("another name");
        assert_eq!(why, "user 1000 is bob on node n1, and ada on the server");
        claimed.asked.client.user = "1000".into();
        claimed.check(&state).expect_err("a machine knows its users by their names");
        let mut of_pod = state.clone();
        let node = of_pod.nodes.get_mut(NODE).expect("a node");
        Arc::make_mut(&mut node.config).machine = Some(Box::new(MachineKind {
            source: "pods".into(),
            backend: "kubernetes".into(),
            offer: "4cpu".into(),
            region: String::new(),
            zone: None,
            open_zone: false,
            spot: false,
            pod: PodKind::ForAny,
            project: None,
        }));
        claimed.check(&of_pod).expect("a pod knows its user by the id");

        let asked = through(NODE, &owner);
        state.agents.insert(NODE.into(), "its new certificate".into());
        asked.check(&state).expect_err("the node joined anew");
        state.agents.insert(NODE.into(), asked.asked.fingerprint.clone());
        asked.check(&state).expect("its certificate");
        state.active.clear();
        asked.check(&state).expect_err("a job that has ended");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn user_without_an_account_on_the_server_is_refused_and_no_word_becomes_a_token() {
        let server = TestServer::start().await;
        let config = || {
            let mut config = (*server.shared.read().config).clone();
            config.login_nodes = vec![LOGIN.into()];
            Box::new(config)
        };
        server.run(Command::Configure(config())).await.expect("a login node");
        let expires = clock::now() + Duration::from_secs(60);
        let issue = Command::IssueToken { hash: "h".into(), nodes: vec![LOGIN.into()], expires };
        server.run(issue).await.expect("a token for it");
        let fingerprint = "certificate of login1".to_owned();
        let (hash, node) = ("h".into(), None);
        let join = Command::UseToken(JoinAttempt {
            hash,
            fingerprint,
            request: "request of login1".into(),
            certificate_end: expires,
            node,
            dynamic: false,
            future: None,
        });
        server.run(join).await.expect("it joined");

        let unknown = named("3999999999", 3_999_999_999);
        let refused = through(LOGIN, &unknown).asked.admit(&server.shared).await;
        assert_eq!(refused.err().as_deref(), Some("user 3999999999 has no account on the server"));
        let known = principal::of_name("nobody").expect("every machine has nobody");
        let admitted = through(LOGIN, &known).asked.admit(&server.shared).await.expect("nobody");
        let manages = Act::ManageTokens(&known.name);
        assert!(authorise(&server.shared.read(), &admitted.who, manages).is_err());
    }
}
