//! `[oidc]` of sluice.toml: single sign-on by OpenID Connect, and what the provider's groups become here.

use cluster::config::{GroupGrant, OidcConfig};
use model::project::{PROJECT_NAME_RULE, ProjectRole, is_project_name};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The most groups that are mapped.
const GROUPS_MAX: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OidcToml {
    issuer: String,
    client_id: String,
    secret_file: Option<String>,
    authorities: Option<String>,
    redirect_url: String,
    scopes: Option<Vec<String>>,
    user_claim: Option<String>,
    groups_claim: Option<String>,
    #[serde(default)]
    groups: BTreeMap<String, Vec<GroupToml>>,
}

/// `{ project = "atlas", role = "manager" }` or `{ account = "physics" }`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupToml {
    project: Option<String>,
    role: Option<ProjectRole>,
    account: Option<String>,
}

impl OidcToml {
    /// The settings, or what is wrong with them. Paths begin at the folder of the configuration.
    pub fn config(&self, dir: &Path) -> Result<OidcConfig, String> {
        for (key, url) in [("issuer", &self.issuer), ("redirect_url", &self.redirect_url)] {
            if !is_safe_address(url) {
                return Err(format!(
                    ": [oidc] {key} = {url:?}: expected https://HOST…, or http:// on this machine"
                ));
            }
        }
        if self.client_id.is_empty() {
            return Err(": [oidc] client_id: expected the name of this client".into());
        }
        if self.groups.len() > GROUPS_MAX {
            return Err(format!(": [oidc.groups]: expected at most {GROUPS_MAX}"));
        }
        let mut groups = BTreeMap::new();
        for (name, given) in &self.groups {
            let grants: Result<Vec<GroupGrant>, String> =
                given.iter().map(GroupToml::grant).collect();
            let grants = grants.map_err(|why| format!(": [oidc.groups] {name}: {why}"))?;
            groups.insert(name.clone(), grants);
        }
        let path = |given: &String| dir.join(given).display().to_string();
        let or = |given: &Option<String>, usual: &str| given.clone().unwrap_or(usual.to_owned());
        let mut scopes = self.scopes.clone().unwrap_or_else(|| vec!["profile".to_owned()]);
        if !scopes.iter().any(|scope| scope == "openid") {
            scopes.insert(0, "openid".to_owned());
        }
        Ok(OidcConfig {
            issuer: self.issuer.clone(),
            client_id: self.client_id.clone(),
            secret_file: self.secret_file.as_ref().map(path),
            authorities: self.authorities.as_ref().map(path),
            redirect_url: self.redirect_url.clone(),
            scopes,
            user_claim: or(&self.user_claim, "preferred_username"),
            groups_claim: or(&self.groups_claim, "groups"),
            groups,
        })
    }
}

impl GroupToml {
    fn grant(&self) -> Result<GroupGrant, String> {
        match (&self.project, &self.account) {
            (Some(name), None) if is_project_name(name) => {
                let role = self.role.unwrap_or(ProjectRole::User);
                Ok(GroupGrant::Project { name: name.clone(), role })
            }
            (Some(name), None) => Err(format!("project {name:?}: expected {PROJECT_NAME_RULE}")),
            (None, Some(name)) if self.role.is_none() && !name.is_empty() => {
                Ok(GroupGrant::Account { name: name.clone() })
            }
            _ => Err("expected { project = 'NAME', role = 'user' } or { account = 'NAME' }".into()),
        }
    }
}

/// An address that nobody on the way can read or change what goes to: TLS, or this machine itself.
pub fn is_safe_address(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let is_plain =
        !host.is_empty() && !authority.contains('@') && !url.contains(char::is_whitespace);
    let is_here = matches!(host, "127.0.0.1" | "localhost" | "::1");
    is_plain && (scheme == "https" || scheme == "http" && is_here)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "issuer = 'https://id.example'\nclient_id = 'sluice'\n\
                        redirect_url = 'https://head:6820/api/web/oidc/callback'\n";

    fn config(text: &str) -> Result<OidcConfig, String> {
        let parsed: OidcToml = toml::from_str(text).map_err(|error| error.to_string())?;
        parsed.config(Path::new("/etc/sluice"))
    }

    #[test]
    fn groups_become_projects_and_accounts() {
        let text = format!(
            "{GOOD}secret_file = 'oidc.secret'\n[groups]\n\
             ml = [{{ project = 'atlas', role = 'manager' }}, {{ account = 'physics' }}]\n"
        );
        let found = config(&text).expect("it is good");
        assert_eq!(found.secret_file.as_deref(), Some("/etc/sluice/oidc.secret"));
        assert_eq!(found.scopes, ["openid", "profile"]);
        let project = GroupGrant::Project { name: "atlas".into(), role: ProjectRole::Manager };
        assert_eq!(found.groups["ml"], [project, GroupGrant::Account { name: "physics".into() }]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, word) in [
            (GOOD.replace("https://id", "http://id"), "issuer"),
            (GOOD.replace("https://head", "ftp://head"), "redirect_url"),
            (GOOD.replace("'sluice'", "''"), "client_id"),
            (format!("{GOOD}[groups]\nml = [{{ project = 'a b' }}]\n"), "ml: project"),
            (format!("{GOOD}[groups]\nml = [{{ account = 'a', role = 'user' }}]\n"), "ml: exp"),
            (format!("{GOOD}nonsense = 1\n"), "nonsense"),
        ] {
            let why = config(&text).expect_err(&text);
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn addresses_are_safe_by_tls_or_on_this_machine() {
        for good in ["https://id.example/realm", "http://127.0.0.1:9400", "http://[::1]:9/x"] {
            assert!(is_safe_address(good), "{good}");
        }
        let forged = "http://127.0.0.1@evil.example";
        for bad in ["http://id.example", forged, "id.example", "https://", ""] {
            assert!(!is_safe_address(bad), "{bad}");
        }
    }
}
