//! Secrets: their names, a value that does not print itself, the form in which a value is stored, and logins to registries.

use crate::grammar::GrammarError;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a name must look like, for error lines.
pub const NAME_RULE: &str = "1 to 200 letters, digits, - and _";
const NAME_BYTES_MAX: usize = 200;

pub fn is_name(name: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(letter)
}

/// A variable of a job whose value is a secret: `NAME`, or `NAME=VARIABLE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretVariable {
    pub secret: String,
    pub variable: String,
}

impl SecretVariable {
    pub fn parse(text: &str) -> Result<Self, GrammarError> {
        let (secret, variable) = text.split_once('=').unwrap_or((text, text));
        let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        let first = variable.as_bytes().first();
        let is_variable = first.is_some_and(|b| !b.is_ascii_digit()) && variable.bytes().all(word);
        match (is_name(secret), is_variable) {
            (true, true) => Ok(Self { secret: secret.into(), variable: variable.into() }),
            (true, false) => {
                let expected = "NAME=VARIABLE, the variable of letters, digits and _";
                Err(GrammarError::new("secret", text, expected))
            }
            (false, _) => {
                Err(GrammarError::new("secret", text, format!("NAME[=VARIABLE], {NAME_RULE}")))
            }
        }
    }

    /// Several, separated by commas.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, GrammarError> {
        text.split(',').map(Self::parse).collect()
    }
}

impl fmt::Display for SecretVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.secret, self.variable)
    }
}

/// The value of a secret on its way between a client, the server and a node. Its debug form hides it: calls, answers and
/// orders are printed in errors.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretValue(pub String);

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

/// A user's name and password for the registry of one image. On the way to the server they may refer to secrets, and a `$`
/// is `$$`; on the way to a node they are as the registry gets them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryAuth {
    pub username: SecretValue,
    pub password: SecretValue,
}

/// What a private repository is cloned with: a token over HTTPS, or a key over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GitCredentials {
    pub oauth_token: Option<SecretValue>,
    pub private_key: Option<SecretValue>,
}

impl GitCredentials {
    pub fn is_empty(&self) -> bool {
        self.oauth_token.is_none() && self.private_key.is_none()
    }
}

/// An encrypted value, with the name of its key: `KEY.CIPHERTEXT`. The state and the journal hold values in this form alone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sealed(pub String);

impl Sealed {
    pub fn new(key: &str, ciphertext: &str) -> Self {
        Self(format!("{key}.{ciphertext}"))
    }

    /// The name of the key and the ciphertext; `None` for a text of another form.
    pub fn parts(&self) -> Option<(&str, &str)> {
        self.0.split_once('.')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dstacks() {
        for good in ["a", "HF_TOKEN", "a-b_1", &"x".repeat(200)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "a b", "a.b", "é", "a\n", &"x".repeat(201)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn variable_has_the_secrets_name_unless_it_has_its_own() {
        let shown = |text: &str| match SecretVariable::parse_list(text) {
            Ok(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown("token"), "token=token");
        assert_eq!(shown("hf-token=HF_TOKEN,b"), "hf-token=HF_TOKEN,b=b");
        for wrong in ["hf-token", "a=1x", "a=", "a=b=c", "", "a,", "a b=C"] {
            assert!(shown(wrong).contains("NAME"), "{wrong}: {}", shown(wrong));
        }
    }

    #[test]
    fn value_is_not_in_its_debug_form() {
        assert!(!format!("{:?}", SecretValue("hush".into())).contains("hush"));
    }
}
