//! One call of EC2's API: a signed form, and its answer as XML or as an error of a source.

use super::super::http::{Http, Request, host_of};
use super::super::rest::shown;
use super::super::secret::SecretText;
use super::credentials::Credentials;
use super::sign::{self, Scope, amz_time, encode};
use crate::clock;
use crate::machines::source::SourceError;
use model::cloud_source::CloudConfig;
use model::machine::FailureKind;
use roxmltree::{Document, Node};
use std::time::Duration;

const VERSION: &str = "2016-11-15";
const SERVICE: &str = "ec2";
const CONTENT_TYPE: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// The most pages of one list.
const PAGES_MAX: usize = 200;

/// The codes of errors, and what they are to the caller. A code that is not here is a refusal, or with a status of 500 and above
/// unknown. The quota of virtual CPUs is one of a family of types: another offer may do.
const CODES: [(&str, FailureKind); 25] = [
    ("InsufficientInstanceCapacity", FailureKind::NoCapacity),
    ("InsufficientHostCapacity", FailureKind::NoCapacity),
    ("InsufficientReservedInstanceCapacity", FailureKind::NoCapacity),
    ("InsufficientCapacity", FailureKind::NoCapacity),
    ("InsufficientFreeAddressesInSubnet", FailureKind::NoCapacity),
    ("InsufficientVolumeCapacity", FailureKind::NoCapacity),
    ("UnfulfillableCapacity", FailureKind::NoCapacity),
    ("ReservationCapacityExceeded", FailureKind::NoCapacity),
    ("SpotMaxPriceTooLow", FailureKind::NoCapacity),
    ("MaxSpotInstanceCountExceeded", FailureKind::NoCapacity),
    ("VcpuLimitExceeded", FailureKind::NoCapacity),
    ("Unsupported", FailureKind::NoCapacity),
    ("InstanceLimitExceeded", FailureKind::Quota),
    ("VolumeLimitExceeded", FailureKind::Quota),
    ("RequestLimitExceeded", FailureKind::Throttled),
    ("RequestThrottled", FailureKind::Throttled),
    ("Throttling", FailureKind::Throttled),
    ("ThrottlingException", FailureKind::Throttled),
    ("Client.RequestLimitExceeded", FailureKind::Throttled),
    ("InvalidInstanceID.NotFound", FailureKind::NotFound),
    ("InvalidVolume.NotFound", FailureKind::NotFound),
    ("InvalidAttachment.NotFound", FailureKind::NotFound),
    // What is on its way from one state to another: the same call is good later.
    ("IncorrectState", FailureKind::Unknown),
    ("IncorrectInstanceState", FailureKind::Unknown),
    ("VolumeInUse", FailureKind::Unknown),
];

/// The parameters of a call.
#[derive(Debug, Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    /// `Name.1`, `Name.2` and so on.
    pub fn with_list<'a>(mut self, name: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        let values = values.into_iter().enumerate();
        self.0.extend(values.map(|(at, value)| (format!("{name}.{}", at + 1), value.to_owned())));
        self
    }

    /// The filter of this number: what is listed has one of the values.
    pub fn with_filter<'a>(
        self,
        number: usize,
        name: &str,
        values: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let filter = format!("Filter.{number}");
        self.with(&format!("{filter}.Name"), name).with_list(&format!("{filter}.Value"), values)
    }

    fn body(&self) -> String {
        let pairs = self.0.iter();
        let pairs: Vec<String> =
            pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect();
        pairs.join("&")
    }

    #[cfg(test)]
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }
}

/// A failed call: EC2's own code beside what it is to the caller.
#[derive(Debug)]
pub struct ApiError {
    pub code: String,
    pub error: SourceError,
}

impl From<SourceError> for ApiError {
    fn from(error: SourceError) -> Self {
        Self { code: String::new(), error }
    }
}

impl From<ApiError> for SourceError {
    fn from(failed: ApiError) -> Self {
        failed.error
    }
}

pub struct Api {
    http: Http,
    endpoint: Option<String>,
    credentials: Credentials,
}

impl Api {
    pub fn new(cloud: &CloudConfig, given: Option<&SecretText>, limit: Duration) -> Self {
        Self {
            http: Http::new(cloud, limit),
            endpoint: cloud.endpoint.clone(),
            credentials: Credentials::new(cloud, given),
        }
    }

    /// The text of an answer that is XML.
    pub fn call(&self, region: &str, action: &str, form: &Form) -> Result<String, ApiError> {
        let url = endpoint(self.endpoint.as_deref(), region);
        let form = form.clone().with("Action", action).with("Version", VERSION);
        let body = form.body();
        let (key, time) = (self.credentials.key()?, amz_time(clock::now()));
        let host = host_of(&url);
        let mut headers = vec![
            ("content-type", CONTENT_TYPE),
            ("host", host.as_str()),
            ("x-amz-date", time.as_str()),
        ];
        if let Some(session) = &key.session {
            headers.push(("x-amz-security-token", session.expose()));
        }
        let scope = Scope { region, service: SERVICE, time: &time };
        let authorization = sign::authorization(&key, &scope, &headers, body.as_bytes());
        headers.push(("authorization", authorization.as_str()));
        let (method, body) = ("POST", Some(body.as_bytes()));
        let reply = self.http.send(&Request { method, url: &url, headers: &headers, body })?;
        let text = reply.text()?;
        if reply.status != 200 {
            return Err(failure(region, action, reply.status, text));
        }
        Ok(text.to_owned())
    }

    /// Calls for each page of a list, and hands each answer on.
    pub fn call_pages(
        &self,
        region: &str,
        action: &str,
        form: &Form,
        mut take: impl FnMut(Node<'_, '_>),
    ) -> Result<(), ApiError> {
        let mut next = String::new();
        for _ in 0..PAGES_MAX {
            let page = match next.as_str() {
                "" => form.clone(),
                token => form.clone().with("NextToken", token),
            };
            let text = self.call(region, action, &page)?;
            let document = parse(action, &text)?;
            let root = document.root_element();
            take(root);
            next = value(root, "nextToken").unwrap_or_default().to_owned();
            if next.is_empty() {
                return Ok(());
            }
        }
        let why = format!("{action} in {region}: more than {PAGES_MAX} pages");
        Err(SourceError::unknown(why).into())
    }
}

/// The address of a region's API.
fn endpoint(given: Option<&str>, region: &str) -> String {
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    match given {
        Some(address) => format!("{}/", address.replace("{region}", region)),
        None => format!("https://ec2.{region}.amazonaws.com{suffix}/"),
    }
}

/// An answer as a tree. One with a document type is refused: it could grow without bound.
pub fn parse<'a>(action: &str, text: &'a str) -> Result<Document<'a>, SourceError> {
    let wrong = |_| SourceError::unknown(format!("{action}: the answer is no XML"));
    Document::parse(text).map_err(wrong)
}

/// The child of this name.
pub fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|child| child.tag_name().name() == name)
}

/// The text of the descendant on this way: `instanceState/name`.
pub fn value<'a>(node: Node<'a, '_>, way: &str) -> Option<&'a str> {
    let found = way.split('/').try_fold(node, |node, name| child(node, name))?;
    found.text().map(str::trim)
}

/// The elements `item` of the descendant on this way.
pub fn items<'a, 'i>(node: Node<'a, 'i>, way: &str) -> Vec<Node<'a, 'i>> {
    let found = way.split('/').try_fold(node, |node, name| child(node, name));
    let items = found.into_iter().flat_map(|found| found.children());
    items.filter(|item| item.tag_name().name() == "item").collect()
}

fn failure(region: &str, action: &str, status: u16, text: &str) -> ApiError {
    let told = Document::parse(text).ok().and_then(|document| {
        let error = document.descendants().find(|node| node.tag_name().name() == "Error")?;
        let code = value(error, "Code")?.to_owned();
        Some((code, value(error, "Message").unwrap_or_default().to_owned()))
    });
    let Some((code, message)) = told else {
        let is_busy = matches!(status, 429 | 503);
        let kind = if is_busy { FailureKind::Throttled } else { FailureKind::Unknown };
        let text = format!("{action} in {region}: status {status} and no error of EC2's");
        return SourceError { kind, text }.into();
    };
    let known = CODES.iter().find(|(of, _)| *of == code).map(|(_, kind)| *kind);
    let other = if status >= 500 { FailureKind::Unknown } else { FailureKind::Refused };
    let advice = advice(&code, action);
    let told = (shown(&code), shown(&message));
    let text = format!("{action} in {region}: {}: {}{advice}", told.0, told.1);
    ApiError { error: SourceError { kind: known.unwrap_or(other), text }, code }
}

/// What the site can do about an error.
fn advice(code: &str, action: &str) -> String {
    match code {
        "AuthFailure" | "InvalidClientTokenId" | "SignatureDoesNotMatch" => {
            " (the credentials are not accepted, or this machine's clock is wrong)".to_owned()
        }
        "UnauthorizedOperation" | "AccessDenied" => format!(" (allow ec2:{action})"),
        "RequestExpired" | "RequestTimeTooSkewed" => {
            " (this machine's clock is wrong, or the credentials have ended)".to_owned()
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_kind_that_the_caller_acts_by() {
        let answer = |code: &str| {
            format!(
                "<Response><Errors><Error><Code>{code}</Code><Message>so</Message></Error></Errors></Response>"
            )
        };
        let table = [
            (400, answer("InsufficientInstanceCapacity"), FailureKind::NoCapacity),
            (400, answer("MaxSpotInstanceCountExceeded"), FailureKind::NoCapacity),
            (400, answer("InstanceLimitExceeded"), FailureKind::Quota),
            (503, answer("RequestLimitExceeded"), FailureKind::Throttled),
            (400, answer("InvalidInstanceID.NotFound"), FailureKind::NotFound),
            (403, answer("UnauthorizedOperation"), FailureKind::Refused),
            (401, answer("AuthFailure"), FailureKind::Refused),
            (500, answer("InternalError"), FailureKind::Unknown),
            (502, "<html>a gateway</html>".to_owned(), FailureKind::Unknown),
            (503, "busy".to_owned(), FailureKind::Throttled),
        ];
        for (status, text, kind) in table {
            let failed = failure("r", "RunInstances", status, &text);
            assert_eq!(failed.error.kind, kind, "{text}");
            assert_eq!(failed.error.text.lines().count(), 1, "{text}");
        }
        let denied = failure("r", "RunInstances", 403, &answer("UnauthorizedOperation"));
        assert!(denied.error.text.ends_with("(allow ec2:RunInstances)"), "{denied:?}");
        assert_eq!(denied.code, "UnauthorizedOperation");
        let odd = failure("r", "RunInstances", 400, &answer(&"x\ny".repeat(10_000)));
        assert_eq!(odd.error.text.lines().count(), 1);
        assert!(odd.error.text.len() < 1_000, "{}", odd.error.text.len());
    }

    #[test]
    fn form_is_written_and_an_answer_is_read() {
        let form = Form::default().with("A", "x y").with_filter(1, "tag:a", ["1", "2"]);
        assert_eq!(
            form.body(),
            "A=x%20y&Filter.1.Name=tag%3Aa&Filter.1.Value.1=1&Filter.1.Value.2=2"
        );
        let text =
            "<R xmlns='urn:x'><set><item><state><name> on </name></state></item><item/></set></R>";
        let document = parse("List", text).expect("XML");
        let all = items(document.root_element(), "set");
        assert_eq!((all.len(), value(all[0], "state/name")), (2, Some("on")));
        assert_eq!(value(all[1], "state/name"), None);
        assert!(parse("List", "<a><b></a>").is_err() && parse("List", "words").is_err());
        assert_eq!(endpoint(None, "eu-west-1"), "https://ec2.eu-west-1.amazonaws.com/");
        assert_eq!(endpoint(Some("http://{region}.a"), "eu-west-1"), "http://eu-west-1.a/");
    }
}
