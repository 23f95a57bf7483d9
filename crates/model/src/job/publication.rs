//! How a service is published: which gateways pass requests to it on, and whether by HTTPS.

use serde::{Deserialize, Serialize};

/// Characters of a gateway's name.
const NAME_CHARS_MAX: usize = 64;

/// What is wrong with the name of a gateway, in one line.
pub fn check_gateway_name(name: &str) -> Result<(), String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_name = !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(is_good);
    let wrong = || format!("gateway {name:?}: expected a name such as edge1");
    if is_name { Ok(()) } else { Err(wrong()) }
}

/// The gateways of a service. A site may name its default gateway; where it names none, every gateway is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GatewayChoice {
    /// The default gateway, where there is one; the server's own proxy answers too.
    #[default]
    Default,
    /// The same, and there must be one when the service is submitted.
    Required,
    /// No gateway: the server's own proxy alone.
    Off,
    /// The gateway of this name and nobody else, the server's own proxy neither.
    Named(String),
}

impl GatewayChoice {
    pub fn is_usual(&self) -> bool {
        *self == Self::Default
    }

    /// Whether the gateway of this name passes requests on. `default`: the site's default gateway.
    pub fn includes(&self, gateway: &str, default: Option<&str>) -> bool {
        match self {
            Self::Default | Self::Required => default.is_none_or(|default| default == gateway),
            Self::Off => false,
            Self::Named(name) => name == gateway,
        }
    }

    /// Whether the server's own proxy answers who asks it directly.
    pub fn includes_server(&self) -> bool {
        !matches!(self, Self::Named(_))
    }

    /// What is wrong with it, in one line.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::Named(name) => check_gateway_name(name),
            Self::Default | Self::Required | Self::Off => Ok(()),
        }
    }
}

/// Whether gateways answer for a service by HTTPS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpsChoice {
    /// By HTTPS where the gateway has a certificate, and else by plain HTTP.
    #[default]
    Auto,
    /// By HTTPS alone: a gateway without a certificate does not publish the service.
    On,
    /// By plain HTTP: no certificate is ordered for the service.
    Off,
}

impl HttpsChoice {
    pub fn is_usual(&self) -> bool {
        *self == Self::Auto
    }

    /// Whether a gateway answers by plain HTTP. `has_tls`: it has a certificate, or orders them.
    pub fn is_plain(self, has_tls: bool) -> bool {
        match self {
            Self::Auto => !has_tls,
            Self::On => false,
            Self::Off => true,
        }
    }

    /// Whether a gateway can publish the service.
    pub fn admits(self, has_tls: bool) -> bool {
        has_tls || self != Self::On
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn https_is_the_gateways_own_where_a_service_does_not_say_it() {
        for (choice, has_tls, is_plain, admits) in [
            (HttpsChoice::Auto, true, false, true),
            (HttpsChoice::Auto, false, true, true),
            (HttpsChoice::On, true, false, true),
            (HttpsChoice::On, false, false, false),
            (HttpsChoice::Off, true, true, true),
            (HttpsChoice::Off, false, true, true),
        ] {
            let found = (choice.is_plain(has_tls), choice.admits(has_tls));
            assert_eq!(found, (is_plain, admits), "{choice:?} {has_tls}");
        }
    }

    #[test]
    fn service_is_published_by_the_gateways_that_it_names_alone() {
        let named = GatewayChoice::Named("edge2".into());
        for (choice, default, published, at_server) in [
            (GatewayChoice::Default, None, [true, true], true),
            (GatewayChoice::Default, Some("edge2"), [false, true], true),
            (GatewayChoice::Required, Some("edge1"), [true, false], true),
            (GatewayChoice::Off, None, [false, false], true),
            (named.clone(), None, [false, true], false),
            (named, Some("edge1"), [false, true], false),
        ] {
            let found = ["edge1", "edge2"].map(|gateway| choice.includes(gateway, default));
            assert_eq!((found, choice.includes_server()), (published, at_server), "{choice:?}");
        }
        for bad in ["", "a b", "a/b", &"x".repeat(65)] {
            assert!(check_gateway_name(bad).is_err(), "{bad:?}");
        }
        assert_eq!(GatewayChoice::Named("edge-1.example".into()).check(), Ok(()));
    }
}
