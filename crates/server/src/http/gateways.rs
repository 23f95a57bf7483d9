//! `sluice gateway` asks for its routes, and says what it passes on.

use crate::clock;
use crate::shared::Shared;
use crate::shared::gateways::OwnRoutes;
use cluster::authorise::{Act, authorise};
use cluster::rights::{Rights, is_project, role_of};
use cluster::token::{TokenStatus, UserToken};
use cluster::{Command, State};
use model::fleet::MAIN_PROJECT;
use model::principal::{Principal, Role};
use model::project::ProjectRole;
use model::publication::check_gateway_name;
use model::reason::Refusal;
use model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;
use tokio::task::block_in_place;
use wire::client::Answer;
use wire::gateway::{GatewayReport, GatewayRoutes, TokenRoute};

/// The most tokens that a gateway gets. The server judges the others.
const TOKENS_MAX: usize = 10_000;

pub fn sync(shared: &Shared, by: &Principal, report: GatewayReport) -> Result<Answer, Refusal> {
    check(&shared.read(), by)?;
    check_gateway_name(&report.name).map_err(Refusal::Other)?;
    let found = shared.volatile.gateways.report(report, Instant::now());
    let OwnRoutes { is_settled, services, withdrawn } = found.map_err(Refusal::Other)?;
    // It takes long where there are many tokens: the thread answers nobody else meanwhile, and others take its place.
    let (domain, tokens) = block_in_place(|| {
        let state = shared.read();
        let projects: BTreeSet<&str> = services.iter().map(|one| one.project.as_str()).collect();
        (state.config.proxy.domain.clone(), tokens(&state, &projects, clock::now()))
    });
    Ok(Answer::GatewayRoutes(Box::new(GatewayRoutes {
        is_settled,
        proxy_port: shared.setup.proxy.map(|at| at.port()),
        domain,
        services,
        withdrawn,
        tokens,
    })))
}

/// Makes a gateway that runs the default one of a project; `None`: the site's is.
pub async fn set_default(
    shared: &Shared,
    by: Principal,
    project: String,
    gateway: Option<String>,
) -> Result<(), Refusal> {
    authorise(&shared.read(), &by, Act::InProject(&project, ProjectRole::Admin))?;
    let running = shared.volatile.gateways.list(Instant::now());
    let is_running = |name: &String| running.iter().any(|one| one.name == *name);
    if let Some(name) = gateway.as_ref().filter(|name| !is_running(name)) {
        return Err(Refusal::UnknownThing { what: "gateway".into(), name: name.clone() });
    }
    shared.writer.run(Command::SetDefaultGateway { project, gateway }, by).await?;
    Ok(())
}

/// Refuses whoever is no gateway. Its token is an operator's, and limited to this.
pub(super) fn check(state: &State, by: &Principal) -> Result<(), Refusal> {
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
    let members = Members::of(state, projects);
    // A user's tokens are judged once: of one user there may be many.
    let mut judged: BTreeMap<(&str, Option<Role>), Vec<String>> = BTreeMap::new();
    let mut routes = Vec::new();
    for token in state.user_tokens.values().filter(is_good).take(TOKENS_MAX) {
        let of_user = judged.entry((token.user(), token.limit));
        let projects = of_user.or_insert_with(|| members.projects(token.user(), token.limit));
        routes.push(TokenRoute {
            hash: token.hash.clone(),
            expires: token.expires,
            projects: projects.clone(),
        });
    }
    routes
}

/// Who belongs to the projects of services, found in one pass over associations and accounts: a gateway asks every second.
struct Members<'a> {
    state: &'a State,
    projects: &'a BTreeSet<&'a str>,
    /// The projects in which each user has an association.
    associated: HashMap<&'a str, BTreeSet<&'a str>>,
    /// The users who coordinate any account.
    coordinators: HashSet<&'a str>,
}

impl<'a> Members<'a> {
    fn of(state: &'a State, projects: &'a BTreeSet<&'a str>) -> Self {
        let mut associated: HashMap<&str, BTreeSet<&str>> = HashMap::new();
        for one in &state.associations {
            let project = projects.get(one.account.as_str()).filter(|name| is_project(state, name));
            if let (Some(user), Some(project)) = (one.user.as_deref(), project) {
                associated.entry(user).or_default().insert(*project);
            }
        }
        let all = state.accounts.values().flat_map(|account| &account.coordinators);
        Self { state, projects, associated, coordinators: all.map(String::as_str).collect() }
    }

    /// The projects whose services a token of this user with this limit opens.
    fn projects(&self, user: &str, limit: Option<Role>) -> Vec<String> {
        let who = Principal {
            name: user.to_owned(),
            uid: u32::MAX,
            gid: u32::MAX,
            group: String::new(),
            groups: Vec::new(),
            role: Role::User,
            token_limit: Some(limit.unwrap_or(Role::Admin)),
        };
        let rights = Rights::of(self.state, &who);
        let own = self.associated.get(user);
        let may_coordinate = self.coordinators.contains(user);
        let is_member = |project: &&&str| {
            rights.operator
                || **project == MAIN_PROJECT
                || own.is_some_and(|own| own.contains(**project))
                || may_coordinate && is_project(self.state, project) && rights.coordinates(project)
        };
        self.projects.iter().filter(is_member).map(|one| (*one).to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::calls;
    use crate::show::job_list::EncodedAnswer;
    use crate::testing::{TestServer, user};
    use model::account::{Account, Association};
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

    #[test]
    fn token_opens_the_projects_that_its_user_is_a_member_of() {
        let mut state = State::default();
        let account = |name: &str, parent: Option<&str>, coordinator: &str| Account {
            name: name.to_owned(),
            description: String::new(),
            organization: String::new(),
            parent: parent.map(str::to_owned),
            coordinators: vec![coordinator.to_owned()],
        };
        for one in [account("lab", None, "eve"), account("atlas", Some("lab"), "bob")] {
            state.accounts.insert(one.name.clone(), one);
        }
        state.associations.push(Association::plain("atlas", Some("ada")));
        state.roles.insert("ops".into(), Role::Operator);
        let projects = BTreeSet::from(["atlas", "gone", "lab", "main"]);
        for (user, limit, expected) in [
            ("ada", None, &["atlas", "main"][..]),
            ("bob", None, &["atlas", "main"]),
            ("eve", None, &["atlas", "lab", "main"]),
            ("eve", Some(Role::User), &["main"]),
            ("ops", None, &["atlas", "gone", "lab", "main"]),
            ("tom", None, &["main"]),
        ] {
            let members = Members::of(&state, &projects);
            let token_limit = Some(limit.unwrap_or(Role::Admin));
            let who = Principal { name: user.into(), token_limit, ..crate::testing::user() };
            let found = members.projects(user, limit);
            assert_eq!(found, expected, "{user}");
            let rights = Rights::of(&state, &who);
            let asked = projects.iter().filter(|name| rights.project_role(name).is_some());
            assert!(asked.eq(expected), "{user}: as the server itself judges");
        }
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
