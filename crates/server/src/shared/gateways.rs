//! The gateways that pass requests on beside the server: what they reported, and the routes that they get. Lost with the process:
//! each reports again within a second.

use crate::shared::service_counts::ServiceName;
use model::id::AttemptId;
use model::publication::GatewayChoice;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use wire::gateway::{GATEWAYS_MAX, GatewayReport, SERVICES_MAX, ServiceRoute};

/// A gateway that was not heard for so long is gone, and what it had to answer with it.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A gateway reports each second: while one is heard, no other of its name is.
const HEARD_MAX: Duration = Duration::from_secs(3);
/// Characters of an address or a domain, and replicas of one service, of which a gateway may speak.
const TEXT_CHARS_MAX: usize = 255;
const REPLICAS_MAX: usize = 10_000;

#[derive(Default)]
pub struct Gateways(Mutex<Known>);

#[derive(Default)]
struct Known {
    gateways: BTreeMap<String, Gateway>,
    /// Requests that came since the scaling last asked.
    arrived: BTreeMap<ServiceName, u64>,
    /// `None` where nobody has looked since there is a gateway: what was known before may be of long ago.
    routes: Option<Routes>,
}

/// The services as gateways get them.
#[derive(Default)]
pub struct Routes {
    pub is_settled: bool,
    pub services: Vec<PublishedRoute>,
}

/// A service, and which gateways get it.
pub struct PublishedRoute {
    pub gateway: GatewayChoice,
    /// The default gateway of its project, or of the site.
    pub default: Option<String>,
    pub route: ServiceRoute,
}

impl Routes {
    /// The routes of one gateway.
    fn of(&self, gateway: &str, has_tls: bool) -> OwnRoutes {
        let mut own = OwnRoutes { is_settled: self.is_settled, ..OwnRoutes::default() };
        for PublishedRoute { gateway: choice, default, route } in &self.services {
            if choice.includes(gateway, default.as_deref()) && route.https.admits(has_tls) {
                own.services.push(route.clone());
            } else if !self.is_settled {
                own.withdrawn.push(format!("{}/{}", route.project, route.run));
            }
        }
        own
    }
}

/// The routes of one gateway: of the services that it publishes.
#[derive(Default)]
pub struct OwnRoutes {
    pub is_settled: bool,
    pub services: Vec<ServiceRoute>,
    /// Services that others publish, as `PROJECT/RUN`. A gateway that is told all of its own needs none of them.
    pub withdrawn: Vec<String>,
}

struct Gateway {
    heard: Instant,
    address: String,
    domain: String,
    plain_address: String,
    has_tls: bool,
    outstanding: HashMap<AttemptId, u32>,
}

impl Gateway {
    /// Whether a report of its name is another's: it is heard itself, and listens elsewhere.
    fn is_another(&self, report: &GatewayReport, now: Instant) -> bool {
        let is_heard = now.saturating_duration_since(self.heard) < HEARD_MAX;
        is_heard && self.address != shown(report.address.clone())
    }
}

/// A gateway as it is listed.
pub struct ListedGateway {
    pub name: String,
    pub address: String,
    pub domain: String,
    /// Where it answers plain HTTP; empty where it has no port for it.
    pub plain_address: String,
    /// It has a certificate, by files or by ACME.
    pub has_tls: bool,
}

impl Gateways {
    fn held(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no panic with the gateways held")
    }

    /// Notes a report, and answers with the routes, or with why there are none: too many gateways, or another of this name. A gateway that
    /// was not known gets routes that take nothing away from it until they were looked at for it.
    pub fn report(&self, report: GatewayReport, now: Instant) -> Result<OwnRoutes, String> {
        let mut known = self.held();
        known.forget_silent(now);
        match known.gateways.get(&report.name) {
            None if known.gateways.len() >= GATEWAYS_MAX => {
                return Err(format!("there are {GATEWAYS_MAX} gateways already"));
            }
            Some(one) if one.is_another(&report, now) => {
                return Err(format!(
                    "gateway {} runs at {} already: give one of them another --name",
                    report.name, one.address
                ));
            }
            None | Some(_) => {}
        }
        let mut outstanding = HashMap::new();
        for load in report.loads.into_iter().take(SERVICES_MAX) {
            outstanding.extend(load.outstanding.into_iter().take(REPLICAS_MAX));
            let name = ServiceName { project: load.project, run: load.run };
            let is_short = name.project.len().max(name.run.len()) <= TEXT_CHARS_MAX;
            let has_room = known.arrived.len() < SERVICES_MAX || known.arrived.contains_key(&name);
            if is_short && has_room {
                let count = known.arrived.entry(name).or_default();
                *count = count.saturating_add(load.requests);
            }
        }
        let GatewayReport { name, address, domain, plain_address, has_tls, .. } = report;
        let [address, domain, plain_address] = [address, domain, plain_address].map(shown);
        let own = known.routes.as_ref().map(|routes| routes.of(&name, has_tls));
        let gateway = Gateway { heard: now, address, domain, plain_address, has_tls, outstanding };
        known.gateways.insert(name, gateway);
        Ok(own.unwrap_or_default())
    }

    /// Whether one passes requests on.
    pub fn is_any(&self, now: Instant) -> bool {
        let mut known = self.held();
        known.forget_silent(now);
        !known.gateways.is_empty()
    }

    /// Whether a gateway has a certificate. One that is not known yet is taken to have one: its routes say what it publishes.
    pub fn has_tls(&self, name: &str) -> bool {
        self.held().gateways.get(name).is_none_or(|one| one.has_tls)
    }

    /// The requests of a service that came since this was last asked.
    pub fn take_arrived(&self, service: &ServiceName) -> u64 {
        self.held().arrived.remove(service).unwrap_or(0)
    }

    /// Forgets requests to what is no service: nobody will ask for them.
    pub fn keep_arrived(&self, is_service: impl Fn(&ServiceName) -> bool) {
        self.held().arrived.retain(|name, _| is_service(name));
    }

    /// Requests that a replica has not answered yet to gateways.
    pub fn outstanding(&self, attempt: AttemptId) -> usize {
        let known = self.held();
        let each = known.gateways.values().filter_map(|one| one.outstanding.get(&attempt));
        each.fold(0, |sum: usize, count| sum.saturating_add(*count as usize))
    }

    pub fn set_routes(&self, routes: Routes) {
        self.held().routes = Some(routes);
    }

    /// Forgets the routes: nobody asks for them, and a gateway that comes back later must not get those of now.
    pub fn forget_routes(&self) {
        self.held().routes = None;
    }

    pub fn list(&self, now: Instant) -> Vec<ListedGateway> {
        let mut known = self.held();
        known.forget_silent(now);
        let listed = |(name, one): (&String, &Gateway)| ListedGateway {
            name: name.clone(),
            address: one.address.clone(),
            domain: one.domain.clone(),
            plain_address: one.plain_address.clone(),
            has_tls: one.has_tls,
        };
        known.gateways.iter().map(listed).collect()
    }
}

/// An address or a domain as it is listed: of a bounded length, and of characters that a terminal only shows.
fn shown(text: String) -> String {
    let is_good = |c: &char| c.is_ascii_alphanumeric() || "-._:[]*".contains(*c);
    text.chars().filter(is_good).take(TEXT_CHARS_MAX).collect()
}

impl Known {
    fn forget_silent(&mut self, now: Instant) {
        self.gateways.retain(|_, one| now.saturating_duration_since(one.heard) < SILENCE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::JobId;
    use model::publication::HttpsChoice;
    use wire::gateway::ServiceLoad;

    #[test]
    fn gateway_that_comes_back_gets_no_routes_of_long_ago() {
        let (gateways, now) = (Gateways::default(), Instant::now());
        let ask = || {
            let report = GatewayReport { name: "edge".into(), ..Default::default() };
            gateways.report(report, now).expect("routes").is_settled
        };
        assert!(!ask(), "nobody has looked for it yet");
        gateways.set_routes(Routes { is_settled: true, ..Routes::default() });
        assert!(ask());
        gateways.forget_routes();
        assert!(!ask(), "what is not settled takes nothing away from it");
    }

    #[test]
    fn gateway_of_a_name_that_another_has_is_refused_until_that_one_is_gone() {
        let (gateways, now) = (Gateways::default(), Instant::now());
        let report = |address: &str, at: Instant| {
            let (name, address) = ("edge".to_owned(), address.to_owned());
            gateways.report(GatewayReport { name, address, ..Default::default() }, at)
        };
        let second = Duration::from_secs(1);
        assert!(report("one:443", now).is_ok() && report("one:443", now + second).is_ok());
        let refused = report("other:443", now + second).err().unwrap_or_default();
        assert!(refused.contains("runs at one:443 already"), "{refused}");
        let later = now + second + HEARD_MAX;
        assert!(report("other:443", later).is_ok());
        assert!(report("one:443", later).is_err());
    }

    #[test]
    fn gateway_gets_the_services_that_it_publishes_alone() {
        let gateways = Gateways::default();
        let service = |run: &str, gateway: GatewayChoice, default: Option<&str>| PublishedRoute {
            gateway,
            default: default.map(str::to_owned),
            route: ServiceRoute {
                project: "main".into(),
                run: run.into(),
                auth: true,
                strip_prefix: true,
                https: HttpsChoice::Auto,
                is_ready: true,
                rate_limits: Vec::new(),
                replicas: Vec::new(),
            },
        };
        let all = |default: Option<&str>| Routes {
            is_settled: true,
            services: vec![
                service("usual", GatewayChoice::Default, default),
                service("required", GatewayChoice::Required, default),
                service("off", GatewayChoice::Off, default),
                service("named", GatewayChoice::Named("edge2".into()), default),
            ],
        };
        let published = |gateway: &str| {
            let report = GatewayReport { name: gateway.into(), ..Default::default() };
            let routes = gateways.report(report, Instant::now()).expect("routes");
            routes.services.into_iter().map(|route| route.run).collect::<Vec<String>>()
        };
        gateways.set_routes(all(None));
        assert_eq!(published("edge1"), ["usual", "required"]);
        assert_eq!(published("edge2"), ["usual", "required", "named"]);
        gateways.set_routes(all(Some("edge1")));
        assert_eq!(published("edge1"), ["usual", "required"]);
        assert_eq!(published("edge2"), ["named"]);
        let mut secure = all(None);
        secure.services.iter_mut().for_each(|one| one.route.https = HttpsChoice::On);
        gateways.set_routes(secure);
        assert!(published("edge2").is_empty(), "it has no certificate");
        assert!(!gateways.has_tls("edge2") && gateways.has_tls("unknown"));
        gateways.set_routes(Routes { is_settled: false, ..all(None) });
        let report = GatewayReport { name: "edge1".into(), ..Default::default() };
        let routes = gateways.report(report, Instant::now()).expect("routes");
        assert_eq!(routes.withdrawn, ["main/off", "main/named"]);
    }

    #[test]
    fn loads_of_gateways_add_up_and_those_of_a_silent_one_are_forgotten() {
        let (gateways, now) = (Gateways::default(), Instant::now());
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let report = |name: &str, requests: u64, outstanding: u32, at: Instant| {
            let (project, run) = ("main".to_owned(), "web".to_owned());
            let outstanding = vec![(attempt, outstanding)];
            let loads = vec![ServiceLoad { project, run, requests, outstanding }];
            let report = GatewayReport { name: name.into(), loads, ..Default::default() };
            assert!(gateways.report(report, at).is_ok());
        };
        report("a", 3, 1, now);
        report("b", 4, 2, now);
        report("a", 5, 0, now + Duration::from_secs(10));
        let name = ServiceName { project: "main".into(), run: "web".into() };
        assert_eq!((gateways.take_arrived(&name), gateways.take_arrived(&name)), (12, 0));
        assert_eq!(gateways.outstanding(attempt), 2);
        let later = now + Duration::from_secs(20);
        assert!(gateways.is_any(later));
        assert_eq!((gateways.outstanding(attempt), gateways.list(later).len()), (0, 1));
        report("a", u64::MAX, u32::MAX, later);
        report("b", u64::MAX, u32::MAX, later);
        assert_eq!(gateways.outstanding(attempt), 2 * u32::MAX as usize);
        gateways.keep_arrived(|known| *known == name);
        assert_eq!(gateways.take_arrived(&name), u64::MAX);
        report("a", 3, 0, later);
        gateways.keep_arrived(|_| false);
        assert_eq!(gateways.take_arrived(&name), 0, "nobody asks for what is no service");
        assert_eq!(shown("a\u{1b}[2J.example:6824".repeat(100)).len(), TEXT_CHARS_MAX);
        assert_eq!(shown("\u{1b}[::1]:6824\n".into()), "[::1]:6824");
        for n in 0..GATEWAYS_MAX {
            let name = format!("one-{n}");
            let _ = gateways.report(GatewayReport { name, ..Default::default() }, later);
        }
        assert_eq!(gateways.list(later).len(), GATEWAYS_MAX);
    }
}
