//! The words of a backend of dstack's `config.yml`, and what each of them is to a source of machines.

/// Words that a source has another key for: the backend, its word, the key.
pub const RENAMED: [(&str, &str, &str); 3] = [
    ("gcp", "project_id", "project"),
    ("gcp", "vm_service_account", "identity"),
    ("aws", "iam_instance_profile", "identity"),
];

/// Words that are keys of a source too, with the same values.
pub const SAME: [(&str, &str); 6] = [
    ("aws", "vpc_name"),
    ("aws", "vpc_ids"),
    ("aws", "default_vpcs"),
    ("aws", "public_ips"),
    ("aws", "os_images"),
    ("gcp", "public_ips"),
];

/// Words that are taken and change nothing, with the reason: the backend, its word, why.
pub const WITHOUT_EFFECT: [(&str, &str, &str); 8] = [
    ("aws", "os_images.cpu.user", NO_LOGIN),
    ("aws", "os_images.nvidia.user", NO_LOGIN),
    ("gcp", "extra_vpcs", ONE_INTERFACE),
    ("gcp", "roce_vpcs", ONE_INTERFACE),
    ("gcp", "nat_check", "a network is not looked at; a machine that does not join is given up"),
    ("gcp", "preview_features", "every type that has a price is offered"),
    ("kubernetes", "proxy_jump", DIALS_OUT),
    ("kubernetes", "contexts.0.proxy_jump", DIALS_OUT),
];

const NO_LOGIN: &str = "nobody logs in to a machine, its user data starts the agent";
const ONE_INTERFACE: &str = "a machine has one network interface, that of `vpc_name`";
const DIALS_OUT: &str = "the agents of pods dial out";

/// Why a word of this backend changes nothing, if that is so.
pub fn no_effect(backend: &str, word: &str) -> Option<&'static str> {
    let found = WITHOUT_EFFECT.iter().find(|(of, known, _)| *of == backend && *known == word);
    found.map(|(.., why)| *why)
}

/// The words of a backend that change nothing, each with the reason, where they ask for something.
pub fn notices(backend: &str, given: &serde_json::Value) -> Vec<String> {
    let of_backend = WITHOUT_EFFECT.iter().filter(|(of, ..)| *of == backend);
    let asked = of_backend.filter(|(_, word, _)| {
        let value = given.pointer(&format!("/{}", word.replace('.', "/")));
        value.is_some_and(|value| !is_off(value))
    });
    asked.map(|(_, word, why)| format!("`{word}` has no effect: {why}")).collect()
}

/// Nothing, `false`, or an empty list or mapping.
fn is_off(value: &serde_json::Value) -> bool {
    match value {
        serde_json::Value::Null | serde_json::Value::Bool(false) => true,
        serde_json::Value::Array(items) => items.is_empty(),
        serde_json::Value::Object(entries) => entries.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_without_effect_are_told_where_they_ask_for_something() {
        let gcp = json!({"extra_vpcs": ["a"], "roce_vpcs": [], "nat_check": false});
        let told = format!("`extra_vpcs` has no effect: {ONE_INTERFACE}");
        assert_eq!(notices("gcp", &gcp), [told]);
        assert_eq!(notices("aws", &gcp), Vec::<String>::new());
        let images = json!({"os_images": {"cpu": {"name": "lab", "user": "ubuntu"}}});
        let told = format!("`os_images.cpu.user` has no effect: {NO_LOGIN}");
        assert_eq!(notices("aws", &images), [told]);
        let contexts = json!({"contexts": [{"name": "lab", "proxy_jump": {"port": 22}}]});
        assert_eq!(notices("kubernetes", &contexts).len(), 1);
        assert_eq!(notices("kubernetes", &json!({"contexts": ["lab"]})).len(), 0);
        assert_eq!(no_effect("kubernetes", "proxy_jump"), Some(DIALS_OUT));
        assert_eq!(no_effect("aws", "nat_check"), None);
    }
}
