//! Single sign-on by OpenID Connect: the code flow with PKCE, by hand over HTTP.
//!
//! - `provider`: what the provider says of itself, its keys, and the exchange of a code for a token
//! - `id_token`: whether that token is the provider's, for us, and for this browser
//! - `url`: addresses with texts in them

pub mod id_token;
pub mod provider;
pub mod url;

/// Why somebody is not signed in. What the provider sent is not repeated to browsers.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    #[error("the identity provider cannot be reached: {0}")]
    Unreachable(String),
    #[error("the identity provider answered with status {0}")]
    Status(u16),
    #[error("the identity provider's answer cannot be read: {0}")]
    Answer(String),
    #[error("the file of the client's secret cannot be read: {0}")]
    Secret(String),
    #[error("the identity token is not taken: {0}")]
    Token(#[from] id_token::TokenError),
}
