//! `sluice gateway` asks for its routes, and says what it passes on.

use crate::clock;
use crate::shared::Shared;
use crate::shared::gateways::Routes;
use cluster::State;
use cluster::authorise::{Act, authorise};
use cluster::rights::{Rights, role_of};
use cluster::token::{TokenStatus, UserToken};
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::time::Instant;
use wire::client::Answer;
use wire::gateway::{GatewayReport, GatewayRoutes, TokenRoute};

/// Characters of a gateway's name.
const NAME_CHARS_MAX: usize = 64;
/// The most tokens that a gateway gets. The server judges the others.
const TOKENS_MAX: usize = 10_000;

pub fn sync(shared: &Shared, by: &Principal, report: GatewayReport) -> Result<Answer, Refusal> {
    check(&shared.read(), by)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if report.name.is_empty()
        || report.name.len() > NAME_CHARS_MAX
        || !report.name.chars().all(is_name)
    {
        let name = report.name;
        return Err(Refusal::Other(format!("gateway {name:?}: expected a name such as edge1")));
    }
    let found = shared.volatile.gateways.report(report, Instant::now());
    let Routes { is_settled, services } =
        found.ok_or_else(|| Refusal::Other("there are too many gateways".into()))?;
    let state = shared.read();
    let projects: BTreeSet<&str> = services.iter().map(|one| one.project.as_str()).collect();
    let tokens = tokens(&state, &projects, clock::now());
    Ok(Answer::GatewayRoutes(Box::new(GatewayRoutes {
        is_settled,
        proxy_port: shared.setup.proxy.map(|at| at.port()),
        domain: state.config.proxy.domain.clone(),
        services,
        tokens,
    })))
}

/// Refuses whoever is no gateway. Its token is an operator's, and limited to this.
fn check(state: &State, by: &Principal) -> Result<(), Refusal> {
    if by.token_limit != Some(Role::Gateway) {
        return authorise(state, by, Act::Operate);
    }
    let whole = Principal { token_limit: None, ..by.clone() };
    if role_of(state, &whole) >= Role::Operator { Ok(()) } else { Err(Refusal::AccessDenied) }
}

/// The tokens that open services of these projects. What their users are to the operating system is not asked, which would take
/// long: nobody is taken for more than the cluster knows him to be. The administrator's own token is for the server's machine.
fn tokens(state: &State, projects: &BTreeSet<&str>, now: Timestamp) -> Vec<TokenRoute> {
    let is_good = |token: &&UserToken| {
        let is_active = state.users.get(token.user()).is_none_or(|user| user.active);
        let is_person = !token.is_admin_token() && token.limit != Some(Role::Gateway);
        is_person && is_active && token.status(now) == TokenStatus::Good
    };
    let route = |token: &UserToken| {
        let who = Principal {
            name: token.user().to_owned(),
            uid: u32::MAX,
            gid: u32::MAX,
            group: String::new(),
            groups: Vec::new(),
            role: Role::User,
            token_limit: Some(token.limit.unwrap_or(Role::Admin)),
        };
        let rights = Rights::of(state, &who);
        let is_member = |project: &&&str| rights.project_role(project).is_some();
        let projects = projects.iter().filter(is_member).map(|one| (*one).to_owned()).collect();
        TokenRoute { hash: token.hash.clone(), expires: token.expires, projects }
    };
    state.user_tokens.values().filter(is_good).take(TOKENS_MAX).map(route).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::calls;
    use crate::show::job_list::EncodedAnswer;
    use crate::testing::{TestServer, user};
    use wire::client::{Call, JobsQuery};

    #[test]
    fn token_of_a_gateway_is_an_operators_and_opens_no_service() {
        let mut state = State::default();
        let of_gateway = |who: Principal| Principal { token_limit: Some(Role::Gateway), ..who };
        let root = crate::auth::principal::server_principal();
        assert!(check(&state, &of_gateway(root)).is_ok());
        assert_eq!(check(&state, &of_gateway(user())), Err(Refusal::AccessDenied));
        assert_eq!(check(&state, &user()), Err(Refusal::AccessDenied));
        let token = |hash: &str, limit: Option<Role>, expires: Option<Timestamp>| UserToken {
            hash: hash.into(),
            name: "ada".into(),
            limit,
            expires,
            ..UserToken::default()
        };
        for one in [
            token("good", None, None),
            token("gateway", Some(Role::Gateway), None),
            token("late", None, Some(Timestamp(5))),
        ] {
            state.user_tokens.insert(one.hash.clone(), one);
        }
        let found = tokens(&state, &BTreeSet::from(["main", "other"]), Timestamp(10));
        let [token] = &found[..] else { panic!("{found:?}") };
        assert_eq!((&*token.hash, &*token.projects), ("good", &["main".to_owned()][..]));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn token_of_a_gateway_makes_no_call_but_its_own() {
        let server = TestServer::start().await;
        let root = crate::auth::principal::server_principal();
        let by = Principal { token_limit: Some(Role::Gateway), ..root };
        let answer = async |call: Call| {
            let answered = calls::call(&server.shared, by.clone(), call).await.expect("an answer");
            let EncodedAnswer::Json(json) = answered else { panic!("lines") };
            serde_json::from_slice::<Answer>(&json).expect("an answer")
        };
        for call in [Call::Ping, Call::Jobs(JobsQuery::default()), Call::Cluster] {
            let denied = answer(call).await;
            assert!(matches!(denied, Answer::Refused(Refusal::AccessDenied)), "{denied:?}");
        }
        let report = GatewayReport { name: "edge".into(), ..GatewayReport::default() };
        let own = answer(Call::SyncGateway(report)).await;
        assert!(matches!(own, Answer::GatewayRoutes(_)), "{own:?}");
        let unnamed = answer(Call::SyncGateway(GatewayReport::default())).await;
        assert!(matches!(unnamed, Answer::Refused(Refusal::Other(_))), "{unnamed:?}");
    }
}
