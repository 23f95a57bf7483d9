//! Which path a replica sees of a request, as its own deployment says: an update may change it, and replicas of both deployments answer
//! meanwhile.

use super::request_head::WHOLE_HOST;
use axum::http::Uri;
use model::service::Service;

/// Where the API of a model has its chat completions, behind the prefix of the model.
const COMPLETIONS: &str = "/chat/completions";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    pub strip_prefix: bool,
    /// Where its model is found; `None` where it serves none.
    model_prefix: Option<String>,
}

impl PathRule {
    pub fn of(service: &Service) -> Self {
        let model_prefix = service.model.as_ref().map(|model| model.prefix.clone());
        Self { strip_prefix: service.strip_prefix, model_prefix }
    }

    /// Whether a replica sees the whole path of a request whose service is found at a prefix.
    pub fn is_whole(&self, prefix: &str) -> bool {
        !self.strip_prefix || prefix == WHOLE_HOST
    }

    /// The path and query of a request for the service, which another rule has written. `rest`: what is behind the prefix.
    pub fn rewrite(&self, written: &Uri, prefix: &str, rest: &str) -> Option<Uri> {
        if prefix == WHOLE_HOST {
            // Every rule leaves it as it came, which `rest` does not say (`//a`, `*`).
            return Some(written.clone());
        }
        let before = if self.is_whole(prefix) { prefix } else { "/" };
        let query = written.query().map(|query| format!("?{query}")).unwrap_or_default();
        Uri::try_from(format!("{before}{rest}{query}")).ok()
    }

    /// The path of a chat completion; `None` where the replica serves no model, or its path cannot be read.
    pub fn completions(&self) -> Option<Uri> {
        Uri::try_from(format!("{}{COMPLETIONS}", self.model_prefix.as_ref()?)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::service::ServedModel;

    fn rule(strip_prefix: bool) -> PathRule {
        PathRule::of(&Service { strip_prefix, ..Service::at(80) })
    }

    #[test]
    fn replica_sees_the_path_that_its_own_deployment_says() {
        let prefix = "/proxy/services/main/web/";
        for (strip_prefix, prefix, written, expected) in [
            (true, prefix, "/proxy/services/main/web/a%2Fb?q=1", "/a%2Fb?q=1"),
            (false, prefix, "/a%2Fb?q=1", "/proxy/services/main/web/a%2Fb?q=1"),
            (true, WHOLE_HOST, "/a%2Fb", "/a%2Fb"),
            (true, WHOLE_HOST, "//a%2Fb?q=1", "//a%2Fb?q=1"),
            (false, WHOLE_HOST, "*", "*"),
        ] {
            let written: Uri = written.parse().expect("a path");
            let found = rule(strip_prefix).rewrite(&written, prefix, "a%2Fb").expect("a path");
            assert_eq!(found.to_string(), expected);
        }
        assert!(rule(false).is_whole(prefix) && !rule(true).is_whole(prefix));
    }

    #[test]
    fn model_is_asked_where_the_replicas_own_deployment_has_it() {
        let text = r#"{"name":"m","prefix":"/v2"}"#;
        let model: ServedModel = serde_json::from_str(text).expect("a model");
        let of_model = PathRule::of(&Service { model: Some(model), ..Service::at(80) });
        let found = of_model.completions().map(|path| path.to_string());
        assert_eq!(found.as_deref(), Some("/v2/chat/completions"));
        assert_eq!(rule(true).completions(), None);
    }
}
