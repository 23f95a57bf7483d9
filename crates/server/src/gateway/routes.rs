//! The routes of a gateway: as the server said last, with the connections and counts of their own that it has for each.

use crate::proxy::place_use::PlaceUse;
use crate::proxy::pool::ConnectionPool;
use crate::proxy::service::balance::least_busy;
use crate::proxy::service::request_rate::RequestRates;
use crate::shared::service_counts::{ServiceCount, ServiceName, ServiceValues};
use model::id::AttemptId;
use model::time::Timestamp;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use wire::gateway::{GatewayRoutes, ReplicaRoute, ServiceLoad, ServiceRoute, TokenRoute};

/// Requests at once to one replica.
const OUTSTANDING_MAX: usize = 1024;

#[derive(Default)]
pub struct Routes {
    pub domain: Option<String>,
    pub proxy_port: Option<u16>,
    /// By `PROJECT/RUN`.
    services: HashMap<String, Arc<RoutedService>>,
    /// By their hashes.
    tokens: HashMap<String, TokenRoute>,
}

/// A service and its replicas that the gateway can connect to.
pub struct RoutedService {
    pub route: ServiceRoute,
    pub replicas: Vec<Arc<RoutedReplica>>,
    /// Replicas that get no more requests and have some to answer.
    leaving: Vec<Arc<RoutedReplica>>,
    pub counts: Arc<ServiceState>,
}

/// What a service keeps when its routes change.
#[derive(Default)]
pub struct ServiceState {
    /// Requests that the server has not been told of.
    requests: AtomicU64,
    turn: AtomicUsize,
    pub rates: RequestRates,
    /// For `/metrics`.
    pub figures: ServiceCount,
}

impl ServiceState {
    pub fn note_request(&self) {
        self.requests.fetch_add(1, Relaxed);
    }
}

/// What a replica has while it is reached at one place: its sockets come and go, and its connections and requests are counted together.
pub struct RoutedReplica {
    pub route: ReplicaRoute,
    pub pool: Arc<ConnectionPool>,
    /// The connections that it keeps may be closed for others.
    is_noted: Arc<AtomicBool>,
}

impl RoutedReplica {
    pub fn new(route: ReplicaRoute) -> Self {
        Self { route, pool: Arc::default(), is_noted: Arc::default() }
    }

    /// The same replica by a later route to the same place.
    fn by(&self, route: ReplicaRoute) -> Self {
        Self { route, pool: self.pool.clone(), is_noted: self.is_noted.clone() }
    }

    fn is_at(&self, route: &ReplicaRoute) -> bool {
        let own = &self.route;
        own.attempt == route.attempt && own.host == route.host && own.port == route.port
    }

    /// Whether its first connection is about to be made.
    pub fn begin_connecting(&self) -> bool {
        !self.is_noted.swap(true, Relaxed)
    }
}

/// Whether a token opens a service.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    Member,
    /// The server is asked: it may know the token.
    Unknown,
}

impl RoutedService {
    /// The replica that gets the next request; none of those that were tried, and none that has its part of those for this use.
    pub fn choose(&self, tried: &[AttemptId], place_use: PlaceUse) -> Option<Arc<RoutedReplica>> {
        let outstanding = |at: usize| {
            let replica = &self.replicas[at];
            let is_full =
                place_use != PlaceUse::Whole && replica.pool.is_full(place_use, OUTSTANDING_MAX);
            let is_left_out = is_full || tried.contains(&replica.route.attempt);
            (!is_left_out).then(|| replica.pool.outstanding())
        };
        let turn = self.counts.turn.fetch_add(1, Relaxed);
        let chosen = least_busy(self.replicas.len(), outstanding, turn, OUTSTANDING_MAX)?;
        Some(self.replicas[chosen].clone())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<RoutedReplica>> {
        self.replicas.iter().chain(&self.leaving)
    }
}

pub fn key(project: &str, run: &str) -> String {
    format!("{project}/{run}")
}

impl Routes {
    pub fn service(&self, key: &str) -> Option<&Arc<RoutedService>> {
        self.services.get(key)
    }

    pub fn services(&self) -> impl Iterator<Item = &Arc<RoutedService>> {
        self.services.values()
    }

    /// What `/metrics` shows.
    pub fn figures(&self) -> Vec<(ServiceName, ServiceValues)> {
        let figures = |service: &Arc<RoutedService>| {
            let ServiceRoute { project, run, .. } = &service.route;
            let count = &service.counts.figures;
            count.set_replicas(service.replicas.len());
            count.set_websockets(service.all().map(|one| one.pool.websockets()).sum());
            (ServiceName { project: project.clone(), run: run.clone() }, count.values())
        };
        let mut all: Vec<_> = self.services.values().map(figures).collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Whether a token, by its hash, opens the services of a project.
    pub fn admit(&self, hash: &str, project: &str, now: Timestamp) -> Admission {
        let is_member = |token: &TokenRoute| {
            let is_good = token.expires.is_none_or(|at| at > now);
            is_good && token.projects.iter().any(|one| one == project)
        };
        if self.tokens.get(hash).is_some_and(is_member) {
            Admission::Member
        } else {
            Admission::Unknown
        }
    }

    /// The routes after an answer of the server. One that has just started knows neither all services nor their replicas: what was
    /// known before stays until it does.
    pub fn after(&self, answer: GatewayRoutes) -> Self {
        let GatewayRoutes { is_settled, proxy_port, domain, services, withdrawn, tokens } = answer;
        let mut next: HashMap<String, Arc<RoutedService>> = services
            .into_iter()
            .map(|route| {
                let key = key(&route.project, &route.run);
                let service = self.next_service(self.services.get(&key), route, is_settled);
                (key, Arc::new(service))
            })
            .collect();
        if !is_settled {
            let withdrawn: HashSet<String> = withdrawn.into_iter().collect();
            let stay = self.services.iter().filter(|(key, _)| !withdrawn.contains(*key));
            for (key, before) in stay {
                next.entry(key.clone()).or_insert_with(|| before.clone());
            }
        }
        let token = |mut token: TokenRoute| {
            // Without services it knows no project that a token could open.
            let before = self.tokens.get(&token.hash).filter(|_| !is_settled);
            if let Some(before) = before.filter(|_| token.projects.is_empty()) {
                token.projects.clone_from(&before.projects);
            }
            (token.hash.clone(), token)
        };
        let tokens = tokens.into_iter().map(token).collect();
        Self { domain, proxy_port, services: next, tokens }
    }

    fn next_service(
        &self,
        before: Option<&Arc<RoutedService>>,
        mut route: ServiceRoute,
        is_settled: bool,
    ) -> RoutedService {
        let known: Vec<Arc<RoutedReplica>> =
            before.map(|before| before.all().cloned().collect()).unwrap_or_default();
        let counts = before.map(|before| before.counts.clone()).unwrap_or_default();
        let of_route = |route: &ReplicaRoute| match known.iter().find(|one| one.is_at(route)) {
            Some(same) if same.route == *route => same.clone(),
            Some(known) => Arc::new(known.by(route.clone())),
            None => Arc::new(RoutedReplica::new(route.clone())),
        };
        let mut replicas: Vec<Arc<RoutedReplica>> = route.replicas.iter().map(of_route).collect();
        if let Some(before) = before.filter(|_| replicas.is_empty() && !is_settled) {
            replicas.clone_from(&before.replicas);
            // They see the paths that they did.
            route.strip_prefix = before.route.strip_prefix;
        }
        let is_left = |one: &Arc<RoutedReplica>| {
            let stays = replicas.iter().any(|other| other.is_at(&one.route));
            !stays && one.pool.outstanding() > 0
        };
        let leaving = known.iter().filter(|one| is_left(one)).cloned().collect();
        RoutedService { route, replicas, leaving, counts }
    }

    /// The routes as the server would say them, for the next start.
    pub fn saved(&self) -> GatewayRoutes {
        let route = |service: &Arc<RoutedService>| ServiceRoute {
            replicas: service.replicas.iter().map(|one| one.route.clone()).collect(),
            ..service.route.clone()
        };
        let mut services: Vec<ServiceRoute> = self.services.values().map(route).collect();
        services.sort_by(|a, b| (&a.project, &a.run).cmp(&(&b.project, &b.run)));
        let mut tokens: Vec<TokenRoute> = self.tokens.values().cloned().collect();
        tokens.sort_by(|a, b| a.hash.cmp(&b.hash));
        let (domain, proxy_port) = (self.domain.clone(), self.proxy_port);
        let withdrawn = Vec::new();
        GatewayRoutes { is_settled: true, proxy_port, domain, services, withdrawn, tokens }
    }

    /// What is reported, and counted anew from now on.
    pub fn take_loads(&self) -> Vec<ServiceLoad> {
        let load = |service: &Arc<RoutedService>| {
            // A replica whose node has another address now has requests by its route of before, and by that of now.
            let mut outstanding: BTreeMap<AttemptId, u32> = BTreeMap::new();
            for one in service.all().filter(|one| one.pool.outstanding() > 0) {
                let count = u32::try_from(one.pool.outstanding()).unwrap_or(u32::MAX);
                let all = outstanding.entry(one.route.attempt).or_default();
                *all = all.saturating_add(count);
            }
            let outstanding = outstanding.into_iter().collect();
            ServiceLoad {
                project: service.route.project.clone(),
                run: service.route.run.clone(),
                requests: service.counts.requests.swap(0, Relaxed),
                outstanding,
            }
        };
        let is_busy = |load: &ServiceLoad| load.requests > 0 || !load.outstanding.is_empty();
        self.services.values().map(load).filter(is_busy).collect()
    }

    /// Counts requests again that could not be reported.
    pub fn put_back(&self, loads: &[ServiceLoad]) {
        for load in loads {
            if let Some(service) = self.services.get(&key(&load.project, &load.run)) {
                service.counts.requests.fetch_add(load.requests, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;
    use model::publication::HttpsChoice;

    fn answer(is_settled: bool, replicas: &[u32]) -> GatewayRoutes {
        let replica = |job: &u32| ReplicaRoute {
            attempt: AttemptId { job: JobId(*job), number: 1 },
            host: "n1".into(),
            port: 80,
            sockets: Vec::new(),
            uid: None,
        };
        let service = ServiceRoute {
            project: "main".into(),
            run: "web".into(),
            auth: true,
            strip_prefix: true,
            https: HttpsChoice::Auto,
            is_ready: true,
            rate_limits: Vec::new(),
            replicas: replicas.iter().map(replica).collect(),
        };
        let projects = vec!["main".to_owned()];
        let token = TokenRoute { hash: "h".into(), expires: Some(Timestamp(10)), projects };
        let (services, tokens) = (vec![service], vec![token]);
        GatewayRoutes { is_settled, services, tokens, ..GatewayRoutes::default() }
    }

    fn jobs(routes: &Routes) -> Vec<u32> {
        let service = routes.service("main/web").expect("a service");
        service.replicas.iter().map(|one| one.route.attempt.job.0).collect()
    }

    #[test]
    fn connections_stay_when_routes_change_and_a_replica_that_leaves_is_reported_until_it_is_idle()
    {
        let first = Routes::default().after(answer(true, &[1, 2]));
        let one = first.service("main/web").expect("a service").replicas[0].clone();
        let entered = one.pool.enter();
        let second = first.after(answer(true, &[2, 3]));
        assert_eq!(jobs(&second), [2, 3]);
        let loads = second.take_loads();
        assert_eq!(loads[0].outstanding, [(one.route.attempt, 1)]);
        drop(entered);
        assert!(second.take_loads().is_empty());
        let same = &second.service("main/web").expect("a service").replicas[0].pool;
        assert!(Arc::ptr_eq(same, &first.service("main/web").expect("one").replicas[1].pool));
    }

    #[test]
    fn replica_at_the_same_place_keeps_its_connections_and_is_reported_with_all_its_requests() {
        let mut said = answer(true, &[1]);
        let of =
            |routes: &Routes| routes.service("main/web").expect("a service").replicas[0].clone();
        let first = Routes::default().after(said.clone());
        let _before = of(&first).pool.enter();
        // Its server has other sockets.
        said.services[0].replicas[0].sockets = vec![8];
        let second = first.after(said.clone());
        assert_eq!(of(&second).route.sockets, [8]);
        assert!(Arc::ptr_eq(&of(&first).pool, &of(&second).pool), "one bound for both");
        assert!(of(&first).begin_connecting() && !of(&second).begin_connecting());
        let _now = of(&second).pool.enter();
        let attempt = of(&second).route.attempt;
        assert_eq!(second.take_loads()[0].outstanding, [(attempt, 2)]);
        said.services[0].replicas[0].host = "n2".into();
        let third = second.after(said);
        assert!(!Arc::ptr_eq(&of(&second).pool, &of(&third).pool), "it is somewhere else");
        let _there = of(&third).pool.enter();
        assert_eq!(third.take_loads()[0].outstanding, [(attempt, 3)]);
    }

    #[test]
    fn replicas_that_stay_while_the_server_does_not_know_them_see_the_paths_of_before() {
        let known = Routes::default().after(answer(true, &[1]));
        let newer = |is_settled, replicas: &[u32]| {
            let mut said = answer(is_settled, replicas);
            said.services[0].strip_prefix = false;
            let routes = known.after(said);
            let service = routes.service("main/web").expect("a service").clone();
            (service.replicas.len(), service.route.strip_prefix)
        };
        assert_eq!(newer(false, &[]), (1, true));
        assert_eq!(newer(false, &[2]), (1, false));
        assert_eq!(newer(true, &[]), (0, false));
    }

    #[test]
    fn server_that_has_just_started_takes_no_route_away() {
        let known = Routes::default().after(answer(true, &[1]));
        let bare = |is_settled: bool| {
            let token = TokenRoute { hash: "h".into(), expires: None, projects: Vec::new() };
            let tokens = vec![token];
            known.after(GatewayRoutes { is_settled, tokens, ..GatewayRoutes::default() })
        };
        let none = bare(false);
        assert_eq!(jobs(&none), [1], "it knows no service yet");
        let withdrawn = vec!["main/web".to_owned()];
        let elsewhere = known.after(GatewayRoutes { withdrawn, ..GatewayRoutes::default() });
        assert!(elsewhere.service("main/web").is_none(), "it knows that others publish it");
        assert_eq!(none.admit("h", "main", Timestamp(5)), Admission::Member);
        assert_eq!(bare(true).admit("h", "main", Timestamp(5)), Admission::Unknown);
        let revoked = known.after(GatewayRoutes::default());
        assert_eq!(revoked.admit("h", "main", Timestamp(5)), Admission::Unknown, "it is gone");
        let unready = known.after(answer(false, &[]));
        assert_eq!(jobs(&unready), [1], "nor which replicas are ready");
        assert_eq!(jobs(&known.after(answer(true, &[]))), [] as [u32; 0]);
        let gone = known.after(GatewayRoutes { is_settled: true, ..GatewayRoutes::default() });
        assert!(gone.service("main/web").is_none());
    }

    #[test]
    fn token_opens_the_projects_of_its_user_until_it_expires() {
        let routes = Routes::default().after(answer(true, &[1]));
        let admit = |hash, project, now| routes.admit(hash, project, Timestamp(now));
        assert_eq!(admit("h", "main", 9), Admission::Member);
        assert_eq!(admit("h", "main", 10), Admission::Unknown);
        assert_eq!(admit("h", "other", 9), Admission::Unknown);
        assert_eq!(admit("x", "main", 9), Admission::Unknown);
        assert_eq!(Routes::default().after(routes.saved()).saved(), routes.saved());
    }
}
