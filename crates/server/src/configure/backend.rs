//! A backend as dstack's API gives it: dstack's own words, and beside them the keys of a `[[source]]` of sluice.toml, which are read
//! by the same types as that file. Keys and tokens are parted from the rest, which may be shown.

use super::machine_source;
use dstack::backend_words::{self, RENAMED, WITHOUT_EFFECT};
use dstack::backends_file::{self, MACHINES};
use model::backend::source_name;
use model::fleet::MAIN_PROJECT;
use model::machine::SourceConfig;
use model::secret::SecretValue;
use serde_json::{Map, Value, json};

/// The kinds of sources that calls make. A provider program is run as the server's user, who has the keys: files alone name one.
pub const KINDS: [&str; 4] = ["aws", "gcp", "lambda", "kubernetes"];

/// The keys of `[[source]]` itself; any other is one of the table below it.
const OF_SOURCE: [&str; 9] = [
    "features",
    "machines",
    "price_per_hour",
    "budget_per_month",
    "idle",
    "min_life",
    "boot",
    "call_limit",
    "own_nodes_first",
];

/// Keys that a backend does not have: they name files or nodes of the site, or follow from its project and its type.
const OF_FILES: [&str; 9] = [
    "name",
    "kind",
    "program",
    "nodes",
    "account",
    "cloud",
    "kubernetes",
    "credentials",
    "project",
];

/// The key of the price file, which a call does not have: it would name a file of the server's machine.
const PRICES: &str = "prices";

#[derive(Debug, PartialEq)]
pub struct GivenBackend {
    pub source: SourceConfig,
    /// `shared: true`: its machines are made for jobs of every project, and take them.
    pub shared: bool,
    /// What was given, without keys and tokens.
    pub configuration: Value,
    /// The words of dstack's that were given and change nothing, each with the reason.
    pub notices: Vec<String>,
    pub credentials: GivenCredentials,
}

#[derive(Debug, PartialEq)]
pub enum GivenCredentials {
    /// The text that a file of credentials, or a kubeconfig, would have.
    Text(SecretValue),
    /// `creds: {type: default}`: the server uses the credentials of the machine that it runs on.
    OfMachine,
    /// No credentials were given: a backend that exists keeps its own. A new one is refused if its kind is `required` to have some.
    Unsaid { required: bool },
}

impl GivenCredentials {
    fn of(text: Option<String>, required: bool) -> Self {
        text.map_or(Self::Unsaid { required }, |text| Self::Text(SecretValue(text)))
    }
}

/// Reads the backend of a project as a call gives it, or says what is wrong: the key, and what would be right. No line has a key or a
/// token.
pub fn read(given: &Value, project: &str) -> Result<GivenBackend, String> {
    if given.get(PRICES).is_some_and(|file| !file.is_null()) {
        return Err(format!(
            "{PRICES}: a call names no file, only sluice.toml and config.yml name one"
        ));
    }
    read_with(given, project, None)
}

/// Reads the backend of a project as a file of the site gives it. It may name a price file, which is not shown: what is shown is sent
/// back by calls.
pub fn read_of_file(given: &Value, project: &str) -> Result<GivenBackend, String> {
    let mut given = given.clone();
    let prices = given.as_object_mut().and_then(|keys| keys.remove(PRICES));
    read_with(&given, project, prices.filter(|file| !file.is_null()))
}

/// What is said of a backend whose type no source here is of; `None` where there is one, or where the backend has no type.
pub fn refused_type(given: &Value) -> Option<String> {
    let kind = given["type"].as_str().filter(|kind| !kind.is_empty())?;
    (!KINDS.contains(&kind)).then(|| without_source(kind))
}

fn without_source(kind: &str) -> String {
    let known = KINDS.join(", ");
    format!("type: {kind:?}: expected {known}; others are provider programs of sluice.toml")
}

fn read_with(given: &Value, project: &str, prices: Option<Value>) -> Result<GivenBackend, String> {
    let Some(given) = given.as_object() else {
        return Err("expected a mapping with a `type`".into());
    };
    let mut keys: Map<String, Value> = given.clone();
    keys.retain(|_, value| !value.is_null());
    let kind = keys.remove("type");
    let kind = kind.as_ref().and_then(Value::as_str).unwrap_or_default();
    let Some(kind) = KINDS.into_iter().find(|known| *known == kind) else {
        return Err(without_source(kind));
    };
    let (credentials, creds) = take_credentials(kind, &mut keys)?;
    if let Some(key) = OF_FILES.into_iter().find(|key| keys.contains_key(*key)) {
        return Err(format!("{key}: a backend has none, only a source of sluice.toml"));
    }
    let mut configuration = keys.clone();
    configuration.insert("type".into(), kind.into());
    configuration.extend(creds.map(|word| ("creds".to_owned(), json!({"type": word}))));
    let shared = match keys.remove("shared") {
        None => false,
        Some(Value::Bool(shared)) => shared,
        Some(_) => return Err("shared: expected true or false".into()),
    };
    keys.extend(prices.map(|file| (PRICES.to_owned(), file)));
    if kind == "kubernetes" {
        name_context(&mut keys)?;
    }
    let source = machine_source::of_backend(&table(kind, project, keys))?;
    let configuration: Value = configuration.into();
    let notices = backend_words::notices(kind, &configuration);
    Ok(GivenBackend { source, shared, configuration, notices, credentials })
}

/// The backend as a `[[source]]`.
fn table(kind: &str, project: &str, mut keys: Map<String, Value>) -> Value {
    // `proxy_jump` stays: a source of pods takes it, and says what is wrong with it.
    for (of, word, _) in WITHOUT_EFFECT {
        if of == kind && kind != "kubernetes" {
            keys.remove(word);
        }
    }
    for (_, word, key) in RENAMED.into_iter().filter(|(of, ..)| *of == kind) {
        if let Some(value) = keys.remove(word) {
            keys.insert(key.to_owned(), value);
        }
    }
    if kind == "gcp" {
        name_network(&mut keys);
    }
    if kind == "aws"
        && let Some(group) = keys.remove("security_group_id")
    {
        keys.insert("security_groups".into(), json!([group]));
    }
    // A number of YAML is a text to a cloud.
    if let Some(Value::Object(tags)) = keys.get_mut("tags") {
        for value in tags.values_mut().filter(|value| value.is_number()) {
            *value = value.to_string().into();
        }
    }
    // dstack has a list of regions where a backend names none. An image is one region's: where each has its own, those are meant.
    if !keys.contains_key("regions")
        && !keys.contains_key("image")
        && let Some(Value::Object(images)) = keys.get("images")
    {
        let regions: Vec<Value> = images.keys().map(|region| region.as_str().into()).collect();
        keys.insert("regions".into(), regions.into());
    }
    // Sources name zones of Google, and dstack's backends regions.
    if let Some(Value::Array(regions)) = keys.get_mut("regions").filter(|_| kind == "gcp") {
        let zones = regions.iter().flat_map(|region| match region.as_str() {
            Some(region) => {
                backends_file::google_zones(region).into_iter().map(Value::from).collect()
            }
            None => vec![region.clone()],
        });
        *regions = zones.collect();
    }
    let (mut source, below): (Map<String, Value>, Map<String, Value>) =
        keys.into_iter().partition(|(key, _)| OF_SOURCE.contains(&key.as_str()));
    source.entry("machines").or_insert(MACHINES.into());
    source.insert("name".into(), source_name(kind, project).into());
    source.insert("kind".into(), kind.into());
    if project != MAIN_PROJECT {
        source.insert("account".into(), project.into());
    }
    let name = if kind == "kubernetes" { kind } else { "cloud" };
    source.insert(name.into(), below.into());
    source.into()
}

/// dstack names Google's network, and its project where that is another; sources have the path that the API knows it by.
fn name_network(keys: &mut Map<String, Value>) {
    let text = |key: &str| keys.get(key).and_then(Value::as_str);
    let (name, project) = (text("vpc_name"), text("vpc_project_id"));
    // What is no text stays, and is refused with the keys of the source.
    let is_odd = |key: &str| keys.get(key).is_some_and(|value| !value.is_string());
    let is_unsaid = name.is_none() && project.is_none();
    if is_unsaid || is_odd("vpc_name") || is_odd("vpc_project_id") {
        return;
    }
    let network = backends_file::google_network(name, project);
    keys.remove("vpc_name");
    keys.remove("vpc_project_id");
    keys.insert("network".into(), network.into());
}

/// dstack names the contexts of a kubeconfig, by themselves or with how to reach each; a source has one.
fn name_context(keys: &mut Map<String, Value>) -> Result<(), String> {
    let Some(given) = keys.remove("contexts") else { return Ok(()) };
    let context = match given.as_array().map(Vec::as_slice) {
        Some([]) => return Ok(()),
        Some([context]) => context.as_str().or_else(|| context["name"].as_str()),
        Some(more) => {
            let count = more.len();
            return Err(format!(
                "contexts: {count} of them: expected one, a source is one cluster"
            ));
        }
        None => None,
    };
    let Some(name) = context else {
        return Err("contexts: expected a list with the name of one context".into());
    };
    match keys.insert("context".into(), name.into()) {
        Some(_) => Err("contexts: expected none beside context".into()),
        None => Ok(()),
    }
}

/// Takes the credentials out, with the word of their form.
fn take_credentials(
    kind: &str,
    keys: &mut Map<String, Value>,
) -> Result<(GivenCredentials, Option<&'static str>), String> {
    if kind == "kubernetes" {
        let Some(given) = keys.remove("kubeconfig") else {
            return Ok((GivenCredentials::Unsaid { required: false }, None));
        };
        let text = text_of(&given, "kubeconfig", "data")?;
        return Ok((GivenCredentials::of(text, false), None));
    }
    let Some(given) = keys.remove("creds") else {
        return Ok((GivenCredentials::Unsaid { required: kind == "lambda" }, None));
    };
    let words = backends_file::creds_words(kind);
    let asked = given["type"].as_str().unwrap_or_default();
    let Some(word) = words.iter().copied().find(|word| *word == asked) else {
        // The value may be a key: it is not shown.
        return Err(format!("creds.type: expected {}", words.join(" or ")));
    };
    let value = |key: &str| text_of(&given, "creds", key);
    let text = match (kind, word) {
        (_, "default") => return Ok((GivenCredentials::OfMachine, Some(word))),
        ("aws", _) => match (value("access_key")?, value("secret_key")?) {
            (None, None) => None,
            (Some(id), Some(secret)) if is_plain(&id) && is_plain(&secret) => {
                Some(format!("aws_access_key_id = {id}\naws_secret_access_key = {secret}\n"))
            }
            _ => return Err("creds: expected access_key and secret_key, of letters".into()),
        },
        ("gcp", _) => value("data")?,
        _ => value("api_key")?,
    };
    let is_account = |text: &str| {
        let key: Value = serde_json::from_str(text).unwrap_or_default();
        ["client_email", "private_key", "token_uri"].iter().all(|field| key[field].is_string())
    };
    if kind == "gcp" && text.as_ref().is_some_and(|text| !is_account(text)) {
        return Err("creds.data: expected a service account's key, as JSON".into());
    }
    Ok((GivenCredentials::of(text, true), Some(word)))
}

/// One text of the credentials; an empty one is none. A file is on the machine of whoever asks, and not on the server's.
fn text_of(given: &Value, of: &str, key: &str) -> Result<Option<String>, String> {
    let text = |key: &str| given[key].as_str().filter(|text| !text.is_empty());
    match text(key) {
        Some(text) => Ok(Some(text.to_owned())),
        None if key == "data" && text("filename").is_some() => {
            Err(format!("{of}.filename: expected the file's text, as `data`"))
        }
        None => Ok(None),
    }
}

fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::cloud_source::SourceKind;

    fn of(text: &str, project: &str) -> Result<GivenBackend, String> {
        let given = dstack::yaml_file::values(text.as_bytes()).expect("good YAML");
        read(&given, project)
    }

    #[test]
    fn backend_is_a_source_in_dstacks_words_and_ours() {
        let text = "type: gcp\nproject_id: lab-1\nregions: [us-east1, us-west1-b]\nimage: images/lab\n\
                    machines: 3\nidle: 1m\nspot: auto\nvpc_name: lab\nvpc_project_id: net\ntags: {team: my team, cost: 7}\n\
                    creds: {type: service_account, data: '{\"client_email\": \"a\", \"private_key\": \"hush\", \"token_uri\": \"https://t\"}'}\n";
        let found = of(text, "vision").expect("it is good");
        let source = &found.source;
        assert_eq!((source.name.as_str(), source.machines_max), ("gcp-vision", 3));
        assert_eq!(source.idle_s, 60);
        assert_eq!((source.account.as_deref(), found.shared), (Some("vision"), false));
        let SourceKind::Gcp(cloud) = &source.kind else { panic!("{:?}", source.kind) };
        assert_eq!(cloud.regions, ["us-east1-b", "us-east1-c", "us-east1-d", "us-west1-b"]);
        assert_eq!((cloud.project.as_deref(), &cloud.credentials), (Some("lab-1"), &None));
        assert_eq!(cloud.network.as_deref(), Some("projects/net/global/networks/lab"));
        let tags = [("team", "my team"), ("cost", "7")];
        let tags = tags.map(|(key, text)| (key.to_owned(), text.to_owned()));
        assert_eq!(cloud.tags, tags.into());
        let has_key =
            matches!(&found.credentials, GivenCredentials::Text(key) if key.0.contains("hush"));
        assert!(has_key);
        let shown = found.configuration.to_string();
        assert!(!shown.contains("hush") && !format!("{found:?}").contains("hush"), "{shown}");
        assert_eq!(found.configuration["creds"], json!({"type": "service_account"}));
        assert_eq!(found.configuration["regions"], json!(["us-east1", "us-west1-b"]));
        let shared = of(&format!("{text}shared: true\n"), "vision").expect("it is good");
        assert!(shared.shared && shared.configuration["shared"] == json!(true));
        // What is shown is good again, and leaves the credentials alone.
        let again = read(&found.configuration, "vision").expect("it is good");
        assert_eq!(again.source, found.source);
        assert_eq!(again.credentials, GivenCredentials::Unsaid { required: true });
    }

    #[test]
    fn words_of_dstacks_backends_act_or_are_told() {
        let text = "type: aws\nregions: [eu-west-1, eu-west-2]\nimage: ami-1\nvpc_ids: {eu-west-1: vpc-1}\n\
                    default_vpcs: true\npublic_ips: false\niam_instance_profile: nodes\nsecurity_group_id: sg-1\n\
                    os_images: {nvidia: {name: lab gpu, owner: 123456789012, user: ubuntu}}\n";
        let found = of(text, "main").expect("it is good");
        let SourceKind::Aws(cloud) = &found.source.kind else { panic!("{:?}", found.source.kind) };
        assert_eq!(cloud.vpc_ids, [("eu-west-1".to_owned(), "vpc-1".to_owned())].into());
        assert_eq!((cloud.public_ips, cloud.identity.as_deref()), (Some(false), Some("nodes")));
        assert_eq!(cloud.security_groups, ["sg-1"]);
        let image = cloud.os_images.of(true).map(|of| (of.name.as_str(), of.owner.as_str()));
        assert_eq!(image, Some(("lab gpu", "123456789012")));
        assert_eq!(found.notices.len(), 1, "{:?}", found.notices);
        assert!(found.notices[0].starts_with("`os_images.nvidia.user` has no effect: "));
        let again = read(&found.configuration, "main").expect("what is shown is good again");
        assert_eq!(again.source, found.source);
        let text = "type: gcp\nproject_id: lab-1\nregions: [us-east1]\nimage: images/lab\npublic_ips: false\n\
                    vpc_project_id: net\nextra_vpcs: [a, b]\nroce_vpcs: [c]\nnat_check: true\n\
                    preview_features: []\n";
        let found = of(text, "main").expect("it is good");
        let SourceKind::Gcp(cloud) = &found.source.kind else { panic!("{:?}", found.source.kind) };
        assert_eq!(cloud.network.as_deref(), Some("projects/net/global/networks/default"));
        assert_eq!(cloud.public_ips, Some(false));
        let told: Vec<&str> =
            found.notices.iter().filter_map(|line| line.split('`').nth(1)).collect();
        assert_eq!(told, ["extra_vpcs", "roce_vpcs", "nat_check"]);
        let pods = "type: kubernetes\nimage: a\nrunner_image: b\ncontexts: ";
        for (contexts, told) in [("[lab]", 0), ("[{name: lab, proxy_jump: {port: 32000}}]", 1)] {
            let found = of(&format!("{pods}{contexts}\n"), "main").expect(contexts);
            let SourceKind::Kubernetes(pods) = &found.source.kind else { panic!("{contexts}") };
            assert_eq!((pods.context.as_deref(), found.notices.len()), (Some("lab"), told));
        }
    }

    #[test]
    fn backend_without_regions_has_those_of_its_images() {
        let regions = |text: &str| {
            of(text, "main")
                .map(|found| found.source.kind.cloud().map(|cloud| cloud.regions.clone()))
        };
        let images = "type: aws\nimages: {eu-west-1: ami-1, us-east-1: ami-2}\n";
        let named = Some(vec!["eu-west-1".to_owned(), "us-east-1".to_owned()]);
        assert_eq!(regions(images), Ok(named));
        let said = Some(vec!["us-east-1".to_owned()]);
        assert_eq!(regions(&format!("{images}regions: [us-east-1]\n")), Ok(said));
        for image in ["", "image: ami-1\n", "image: ami-1\nimages: {eu-west-1: ami-2}\n"] {
            let why = regions(&format!("type: aws\n{image}")).expect_err("no region");
            assert!(why.contains("regions: expected at least one"), "{image}: {why}");
        }
    }

    #[test]
    fn backend_of_a_file_may_name_a_price_file_which_is_not_shown() {
        let text = "type: aws\nregions: [r]\nimage: ami-1\nprices: ";
        let of_file = |path: &str| {
            let given = dstack::yaml_file::values(format!("{text}{path}\n").as_bytes());
            read_of_file(&given.expect("good YAML"), "main")
        };
        let found = of_file("/etc/sluice/prices.json").expect("it is good");
        let prices = found.source.kind.cloud().and_then(|cloud| cloud.prices.as_deref());
        assert_eq!(prices, Some("/etc/sluice/prices.json"));
        assert_eq!(found.configuration["prices"], Value::Null);
        assert!(read(&found.configuration, "main").is_ok(), "what is shown is good again");
        let said = of_file("p").expect_err("no path");
        assert!(said.starts_with("cloud.prices: \"p\": expected an absolute path"), "{said}");
        let said = of(&format!("{text}/etc/sluice/prices.json"), "main").expect_err("a call");
        assert_eq!(said, "prices: a call names no file, only sluice.toml and config.yml name one");
    }

    #[test]
    fn credentials_have_dstacks_forms() {
        let aws = "type: aws\nregions: [r]\nimage: ami-1\ncreds: ";
        let key = "{type: access_key, access_key: A, secret_key: s/+=}";
        let found = of(&format!("{aws}{key}"), "main");
        let text = "aws_access_key_id = A\naws_secret_access_key = s/+=\n";
        let text = GivenCredentials::Text(SecretValue(text.into()));
        assert_eq!(found.expect("it is good").credentials, text);
        let found = of(&format!("{aws}{{type: default}}"), "main").expect("it is good");
        assert_eq!((found.source.name.as_str(), found.source.machines_max), ("aws", MACHINES));
        assert_eq!(found.credentials, GivenCredentials::OfMachine);
        let lambda = "type: lambda\nregions: [r]\nssh_key: lab\n";
        let found = of(lambda, "main").expect("it is good");
        assert_eq!(found.credentials, GivenCredentials::Unsaid { required: true });
        let pods = "type: kubernetes\nimage: a\nrunner_image: b\nproxy_jump: {port: 32000}\n";
        let found = of(pods, "main").expect("it is good");
        assert_eq!(found.credentials, GivenCredentials::Unsaid { required: false });
        let found = of(&format!("{pods}kubeconfig: {{data: hush}}\n"), "main").expect("it is good");
        assert_eq!(found.credentials, GivenCredentials::Text(SecretValue("hush".into())));
        assert!(!found.configuration.to_string().contains("hush"));
        // As dstack's clients send what was shown to them.
        let shown = format!("{pods}kubeconfig: {{filename: '', data: ''}}\n");
        let found = of(&shown, "main").expect("it is good");
        assert_eq!(found.credentials, GivenCredentials::Unsaid { required: false });
        let shown = "{type: access_key, access_key: '', secret_key: ''}";
        let found = of(&format!("{aws}{shown}"), "main").expect("it is good");
        assert_eq!(found.credentials, GivenCredentials::Unsaid { required: true });
    }

    #[test]
    fn faults_of_a_backend_are_one_line_without_its_keys() {
        let aws = |more: &str| format!("type: aws\nregions: [r]\nimage: ami-1\n{more}\n");
        let table = [
            ("[a]".to_owned(), "expected a mapping"),
            ("regions: [a]".to_owned(), "type: \"\": expected aws, gcp, lambda, kubernetes"),
            ("type: runpod".to_owned(), "others are provider programs of sluice.toml"),
            ("type: aws\nregions: [r]".to_owned(), "cloud.image: missing for r"),
            (aws("program: /bin/sh"), "program: a backend has none"),
            (aws("credentials: /etc/shadow"), "credentials: a backend has none"),
            (aws("colour: red"), "unknown field `colour`"),
            (aws("shared: 1"), "shared: expected true or false"),
            (aws("tags: {'': a}"), "tags: expected at most 40 names"),
            (aws("extra_vpcs: [lab]"), "unknown field `extra_vpcs`"),
            (aws("vpc_name: 7"), "cloud.vpc_name: 7: expected a text in quotes"),
            (aws("tags: {a: [b]}"), "cloud.tags: a list: expected a text in quotes"),
            (aws("idle: {a: b}"), "idle: a table: expected a text in quotes"),
            (aws("default_vpcs: false"), "cloud.vpc_ids: missing for r"),
            (
                "type: gcp\nregions: [r]\nvpc_name: 7\nvpc_project_id: net".to_owned(),
                "cloud.vpc_name: 7: expected a text in quotes",
            ),
            ("type: kubernetes\ncontexts: [a, b]".to_owned(), "contexts: 2 of them: expected one"),
            ("type: kubernetes\ncontexts: [3]".to_owned(), "the name of one context"),
            ("type: kubernetes\ncontexts: [a]\ncontext: a".to_owned(), "none beside context"),
            (aws("machines: many"), "machines: \"many\": expected a whole number"),
            (aws("idle: soon"), "idle: \"soon\": expected a time"),
            (aws("creds: {access_key: hush}"), "creds.type: expected access_key or default"),
            (aws("creds: {type: access_key, access_key: hush}"), "access_key and secret_key"),
            (
                aws("creds: {type: access_key, access_key: hush, secret_key: \"a\\nb\"}"),
                "access_key and secret_key",
            ),
            ("type: gcp\ncreds: {type: service_account, filename: a}".to_owned(), "as `data`"),
            ("type: gcp\ncreds: {type: service_account, data: hush}".to_owned(), "as JSON"),
            ("type: kubernetes\nkubeconfig: {filename: a}".to_owned(), "as `data`"),
        ];
        for (text, words) in table {
            let said = of(&text, "main").expect_err(&text);
            assert!(said.contains(words) && !said.contains("hush"), "{words}: {said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }
}
