//! How an agent becomes one of the cluster's: a join file with a token, which is good for one certificate,
//! or for one of each node of a group; and how it gets the next one.

use crate::agent_addresses::addresses_for_agents;
use crate::auth::principal::server_principal;
use crate::auth::token;
use crate::clock;
use crate::shared::Shared;
use crate::shared::agent_links::Link;
use cluster::command::JoinAttempt;
use cluster::{Command, Reply};
use model::hostlist;
use model::principal::Principal;
use model::reason::Refusal;
use model::time::Timestamp;
use std::time::Duration;
use wire::link::{Hello, JoinAccepted, JoinFile, JoinRequest, RENEWALS_MAX, Renewal, ToAgent};

/// Issues a token for these nodes; the file carries it to their machine.
pub async fn issue_join_file(
    shared: &Shared,
    by: Principal,
    nodes: Vec<String>,
    life: Duration,
) -> Result<JoinFile, Refusal> {
    let (token, expires) = (token::generate(), clock::now() + life);
    let command = Command::IssueToken { hash: token::hash(&token), nodes: nodes.clone(), expires };
    shared.writer.run(command, by).await?;
    Ok(join_file(shared, token, nodes))
}

/// The same for the host of a fleet that is this node, if it still is.
pub async fn issue_host_join_file(
    shared: &Shared,
    node: &str,
    id: &str,
    life: Duration,
) -> Result<JoinFile, Refusal> {
    let (token, expires) = (token::generate(), clock::now() + life);
    let (hash, node, id) = (token::hash(&token), node.to_owned(), id.to_owned());
    let nodes = vec![node.clone()];
    let command = Command::IssueHostToken { hash, node, id, expires };
    shared.writer.run(command, server_principal()).await?;
    Ok(join_file(shared, token, nodes))
}

/// The nodes that are to join with one file.
pub struct JoinGroupRequest {
    /// Their names, as a host list.
    pub pattern: String,
    /// How many may join; without it, each name once.
    pub count: Option<u32>,
    /// Machines that no configuration file names may become nodes with it.
    pub dynamic: bool,
}

/// Issues a token for every node of a pattern.
pub async fn issue_group_join_file(
    shared: &Shared,
    by: Principal,
    group: JoinGroupRequest,
    life: Duration,
) -> Result<JoinFile, Refusal> {
    let JoinGroupRequest { pattern, count, dynamic } = group;
    let (token, expires) = (token::generate(), clock::now() + life);
    let (hash, names) = (token::hash(&token), pattern.clone());
    let command = Command::IssueGroupToken { hash, pattern: names, count, dynamic, expires };
    shared.writer.run(command, by).await?;
    Ok(JoinFile { pattern: Some(pattern), ..join_file(shared, token, Vec::new()) })
}

fn join_file(shared: &Shared, token: String, nodes: Vec<String>) -> JoinFile {
    let state = shared.read();
    JoinFile {
        version: wire::version::PROTOCOL,
        servers: addresses_for_agents(&state.config, &shared.setup.agents_addresses),
        authority: shared.identity.authority_pem().to_string(),
        token,
        nodes,
        pattern: None,
        cluster: state.config.name.clone(),
    }
}

/// When a certificate ends that is issued now.
fn certificate_end(shared: &Shared) -> Timestamp {
    clock::now() + shared.read().config.certificate_life
}

/// Answers an agent that wants to join: its token is spent, and its key certified.
pub async fn admit(shared: &Shared, join: &JoinRequest) -> ToAgent {
    let refused = |why: String| ToAgent::Refused { why };
    if !wire::version::compatible(join.version) {
        return refused(format!("protocol {} is not spoken here", join.version));
    }
    let end = certificate_end(shared);
    let attempt = JoinAttempt {
        hash: token::hash(&join.token),
        fingerprint: String::new(),
        request: token::hash(&join.certificate_request),
        certificate_end: end,
        node: join.node.clone(),
        dynamic: join.dynamic,
        future: join.future.clone(),
    };
    let turned_away = |why: Refusal| {
        let line = format!("an agent was turned away: {why}");
        shared.volatile.agent_warnings.warn_of_stranger(&line);
        refused(why.to_string())
    };
    // The token is looked up before anything is signed or written: a stranger without one must cost little.
    let (ask, context) = (Command::UseToken(attempt.clone()), clock::context(server_principal()));
    if let Err(why) = shared.read().decide(&ask, &context) {
        return turned_away(why);
    }
    let (certificate, fingerprint) = match shared.identity.certify(&join.certificate_request, end) {
        Ok(signed) => signed,
        Err(error) => return refused(format!("the certificate request cannot be used: {error}")),
    };
    let attempt = JoinAttempt { fingerprint, ..attempt };
    match shared.writer.run(Command::UseToken(attempt), server_principal()).await {
        Ok(Reply::TokenNodes(nodes)) => {
            tracing::info!("an agent joined for {}", hostlist::compress(&nodes));
            // The certificate that these nodes had before is void: links that use it end.
            nodes.iter().for_each(|node| shared.agents.cut(node));
            let order_key = shared.identity.order_public_key();
            ToAgent::Joined(JoinAccepted { certificate, order_key, nodes, expires: Some(end) })
        }
        Ok(_) => refused("the token was not taken".into()),
        Err(why) => turned_away(why),
    }
}

/// How soon after a renewal its former certificate is renewed again: the answer may have been lost.
const LOST_ANSWER_PAUSE: Duration = Duration::from_secs(30);

/// How much before its time a request may come.
const EARLY_MAX: Duration = Duration::from_secs(1);

/// When the agent with this certificate is to ask for the next one: when half of its life is over. At once where the end is
/// not known.
pub fn renewal_time(shared: &Shared, nodes: &[String], fingerprint: &str) -> Timestamp {
    let state = shared.read();
    let life = state.config.certificate_life;
    let before = |end: Timestamp, rest: Duration| {
        Timestamp::from_millis(end.millis().saturating_sub(rest.as_millis() as i64))
    };
    let of_node = |node: &String| {
        let end = state.joins.get(node)?.certificate_end;
        let is_current = state.agents.get(node).is_some_and(|known| known == fingerprint);
        Some(if is_current { before(end, life / 2) } else { before(end, life) + LOST_ANSWER_PAUSE })
    };
    let times: Option<Vec<Timestamp>> = nodes.iter().map(of_node).collect();
    times.and_then(|times| times.into_iter().min()).unwrap_or(Timestamp(0))
}

/// Gives the agent of a link a new certificate, if it still speaks for its nodes.
pub async fn renew(shared: &Shared, nodes: Vec<String>, link: &Link, request: &str) {
    // An agent that asks again and again makes no work for the journal.
    if clock::now() + EARLY_MAX < renewal_time(shared, &nodes, &link.fingerprint) {
        return;
    }
    let end = certificate_end(shared);
    let (certificate, fingerprint) = match shared.identity.certify(request, end) {
        Ok(signed) => signed,
        Err(error) => {
            return tracing::warn!("{}: no new certificate: {error}", hostlist::compress(&nodes));
        }
    };
    let former = link.fingerprint.to_string();
    let word = Renewal { former: former.clone(), renewed: fingerprint.clone(), expires: end };
    let names = hostlist::compress(&nodes);
    let command = Command::RenewCertificate { nodes, former, fingerprint, end };
    match shared.writer.run(command, server_principal()).await {
        Ok(_) => {
            tracing::info!("{names}: its certificate was renewed");
            let proof = shared.identity.sign_renewal(&word).ok();
            let _ = link.outbox.try_send(ToAgent::Renewed { certificate, expires: end, proof });
        }
        Err(why) => tracing::warn!("{names}: no new certificate: {why}"),
    }
}

/// The renewal by which this certificate follows, over others, from one that `is_known`: the fingerprint of that one, and the end of this.
fn follows(
    words: &[Renewal],
    fingerprint: &str,
    is_known: impl Fn(&str) -> bool,
) -> Option<(String, Timestamp)> {
    let before = |renewed: &str| words.iter().find(|word| word.renewed == renewed);
    let newest = before(fingerprint)?;
    let mut word = newest;
    // A circle of words ends too.
    for _ in 0..words.len() {
        if is_known(&word.former) {
            return Some((word.former.clone(), newest.expires));
        }
        word = before(&word.former)?;
    }
    None
}

/// Takes over the certificate of an agent that was renewed after the backup from which this state was restored, for all nodes that the
/// certificate of before speaks for.
pub async fn take_renewals(shared: &Shared, hello: &Hello, fingerprint: &str) {
    let is_needed = || {
        let state = shared.read();
        let is_known = hello.nodes.iter().any(|node| state.speaks_for(&node.name, fingerprint));
        state.restored.is_some() && !is_known
    };
    if hello.renewals.is_empty() || !is_needed() {
        return;
    }
    let signed = hello.renewals.iter().take(RENEWALS_MAX);
    let words: Vec<Renewal> = signed.filter_map(|s| shared.identity.verify_renewal(s)).collect();
    let spoken_for = |former: &str| -> Vec<String> {
        let state = shared.read();
        state.agents.keys().filter(|node| state.speaks_for(node, former)).cloned().collect()
    };
    let found = follows(&words, fingerprint, |former| !spoken_for(former).is_empty());
    let Some((former, end)) = found else { return };
    let nodes = spoken_for(&former);
    let names = hostlist::compress(&nodes);
    let fingerprint = fingerprint.to_owned();
    let command = Command::RenewCertificate { nodes, former, fingerprint, end };
    match shared.writer.run(command, server_principal()).await {
        Ok(_) => tracing::info!("{names}: its certificate was renewed after the backup"),
        Err(why) => tracing::warn!("{names}: its newer certificate is not taken: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use rcgen::{CertificateParams, KeyPair};
    use wire::link::SignedRenewal;

    #[test]
    fn certificate_follows_from_a_known_one_by_signed_renewals_alone() {
        let word = |former: &str, renewed: &str, at| Renewal {
            former: former.into(),
            renewed: renewed.into(),
            expires: Timestamp(at),
        };
        let words = [word("c", "d", 4), word("b", "c", 3), word("a", "b", 2)];
        let known = |name: &'static str| move |former: &str| former == name;
        assert_eq!(follows(&words, "d", known("a")), Some(("a".into(), Timestamp(4))));
        assert_eq!(follows(&words, "d", known("c")), Some(("c".into(), Timestamp(4))));
        assert_eq!(follows(&words, "d", known("x")), None);
        assert_eq!(follows(&words, "a", known("d")), None, "none leads back");
        let circle = [word("b", "a", 1), word("a", "b", 1)];
        assert_eq!(follows(&circle, "a", known("x")), None);

        let server = TestServer::without_writer();
        let identity = &server.shared.identity;
        let signed = identity.sign_renewal(&words[0]).expect("signed");
        assert_eq!(identity.verify_renewal(&signed).as_ref(), Some(&words[0]));
        let forged = SignedRenewal { body: signed.body.replace('d', "e"), ..signed.clone() };
        assert_eq!(identity.verify_renewal(&forged), None);
        let other = TestServer::without_writer();
        assert_eq!(other.shared.identity.verify_renewal(&signed), None, "of another cluster");
    }

    fn certificate_request() -> String {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        params.serialize_request(&key).and_then(|request| request.pem()).expect("a request")
    }

    #[tokio::test]
    async fn agent_whose_answer_was_lost_after_the_commit_is_answered_again_and_no_other_key() {
        let server = TestServer::start().await;
        let shared = &server.shared;
        let node = shared.read().nodes.keys().next().cloned().expect("a node");
        let nodes = vec![node.clone()];
        let by = server_principal();
        let file = issue_join_file(shared, by, nodes.clone(), Duration::from_secs(60)).await;
        let join = JoinRequest {
            version: wire::version::PROTOCOL,
            token: file.expect("a join file").token,
            certificate_request: certificate_request(),
            node: None,
            dynamic: false,
            future: None,
        };
        // The commit is made, and the connection breaks before the answer is sent.
        drop(admit(shared, &join).await);
        let first = shared.read().agents.get(&node).cloned();
        let stranger = JoinRequest { certificate_request: certificate_request(), ..join.clone() };
        assert!(matches!(admit(shared, &stranger).await, ToAgent::Refused { .. }));
        assert_eq!(shared.read().agents.get(&node).cloned(), first, "it speaks for nothing");
        let ToAgent::Joined(joined) = admit(shared, &join).await else {
            panic!("the same request is refused");
        };
        assert_eq!(joined.nodes, nodes);
        assert!(joined.certificate.contains("BEGIN CERTIFICATE"));
    }

    #[tokio::test]
    async fn join_without_a_token_is_refused_without_a_signature_or_a_turn_of_the_writer() {
        let server = TestServer::without_writer();
        let join = JoinRequest {
            version: wire::version::PROTOCOL,
            token: "guessed".into(),
            certificate_request: "no request".into(),
            node: None,
            dynamic: false,
            future: None,
        };
        // Nobody takes what is sent to the writer.
        let answer = tokio::time::timeout(Duration::from_secs(30), admit(&server.shared, &join));
        let ToAgent::Refused { why } = answer.await.expect("an answer without the writer") else {
            panic!("a stranger joined");
        };
        assert!(why.contains("the join token is wrong"), "{why}");
    }
}
