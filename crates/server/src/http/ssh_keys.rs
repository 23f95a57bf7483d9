//! The calls about the SSH endpoint: its address, and the keys with which a user comes in.

use crate::auth::identity;
use crate::clock;
use crate::shared::Shared;
use crate::shared::ssh_keys::{Registration, is_proof};
use cluster::State;
use cluster::authorise::{Act, authorise};
use model::id::JobId;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::secret::SecretValue;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::BTreeSet;
use tokio::task::block_in_place;
use wire::client::Answer;
use wire::ssh::{SshAnswer, SshRequest, key_proof_text};

/// Certificates of the site's file that are looked at.
const CHAIN_MAX: usize = 8;

/// The key that the server holds for a user, for a caller who may have it. It outlasts a job, so it is given to those alone who may do all
/// that their user may: by the kernel's word on the server's own socket, or by a token without a limit. It ends with that token
/// ([`settle_held_key`]).
pub fn held_private_key(shared: &Shared, by: &Principal, user: &str) -> Option<SecretValue> {
    let is_whole = by.token_limit.is_none_or(|limit| limit == Role::Admin);
    is_whole.then(|| {
        settle_held_key(shared, user);
        shared.ssh_keys.held_private_text(user)
    })
}

/// Replaces the key that the server holds for a user if a token that may have been given it has ended since: no key outlives
/// the token that got it. To be called before the key counts or is given out.
pub fn settle_held_key(shared: &Shared, user: &str) {
    let now = clock::now();
    let ended = {
        let state = shared.read();
        let tokens = state.user_tokens.values().filter(|token| token.user() == user);
        let whole = tokens.filter(|token| token.limit.is_none_or(|limit| limit == Role::Admin));
        whole.filter_map(|token| token.ended(now)).max()
    };
    let Some(ended) = ended.filter(|ended| shared.ssh_keys.is_held_since_before(user, *ended))
    else {
        return;
    };
    if let Err(why) = shared.ssh_keys.renew_if_older(user, ended, now) {
        tracing::error!(
            "the SSH key of {user} could not be renewed after a token ended at {ended:?}: {why}"
        );
    }
}

/// The users whose held keys somebody may have seen.
fn known_users(state: &State) -> Vec<String> {
    let named = state.users.keys().chain(state.roles.keys()).map(String::as_str);
    let of_tokens = state.user_tokens.values().map(|token| token.user());
    let of_jobs = state.jobs.values().map(|job| job.spec.owner.name.as_str());
    let names: BTreeSet<&str> = named.chain(of_tokens).chain(of_jobs).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Registering a key needs the same right as making a token: a token that leaked could otherwise register a key and
/// outlive its own end.
pub fn answer(
    shared: &Shared,
    by: &Principal,
    user: Option<String>,
    request: SshRequest,
    job: Option<JobId>,
) -> Result<Answer, Refusal> {
    let user = user.unwrap_or_else(|| by.name.clone());
    let is_own = user == by.name && matches!(request, SshRequest::List | SshRequest::Connect);
    if !is_own {
        authorise(&shared.read(), by, Act::ManageTokens(&user))?;
    }
    if let Some(job) = job {
        let state = shared.read();
        let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
        authorise(&state, by, Act::ActAsOwner(found))?;
    }
    let keys = &shared.ssh_keys;
    let mut private_key = None;
    block_in_place(|| match &request {
        SshRequest::List => Ok(()),
        SshRequest::Add { key, proof } => {
            let (known, is_vouched) = {
                let state = shared.read();
                (known_users(&state), authorise(&state, by, Act::Administer).is_ok())
            };
            // Without an endpoint there is nothing that a signature could be for.
            let signed = shared.setup.ssh.as_ref().zip(proof.as_ref());
            let is_proved = signed.is_some_and(|(endpoint, proof)| {
                let mut authorities = authorities(shared).into_iter();
                authorities.any(|of| is_proof(key, &key_proof_text(&user, &of, endpoint), proof))
            });
            if signed.is_some() && !is_proved {
                let why =
                    "the signature does not prove the key: it is of another key, user or server";
                return Err(Refusal::Other(why.into()));
            }
            let registration =
                if is_proved || is_vouched { Registration::Proved } else { Registration::Unproved };
            keys.add(&user, key, registration, &known)
        }
        SshRequest::Remove { key } => keys.remove(&user, key),
        SshRequest::Renew => keys.renew(&user, clock::now()),
        SshRequest::Connect => {
            private_key = held_private_key(shared, by, &user);
            Ok(())
        }
    })?;
    let endpoint = shared.setup.ssh.clone();
    let listed = keys.list(&user);
    let authorities = if request == SshRequest::List {
        block_in_place(|| authorities(shared))
    } else {
        Vec::new()
    };
    Ok(Answer::Ssh(SshAnswer { endpoint, user, authorities, keys: listed, private_key }))
}

/// The fingerprints of what a client may have pinned at its login: the cluster's own authority, and those that come with the
/// site's certificate.
fn authorities(shared: &Shared) -> Vec<String> {
    let own = shared.identity.authority_fingerprint().ok();
    let files = shared.read().config.server_certificate.clone();
    let site = files.and_then(|files| std::fs::read(&files.certificate).ok()).unwrap_or_default();
    let chain = CertificateDer::pem_slice_iter(&site).flatten().take(CHAIN_MAX);
    own.into_iter().chain(chain.map(|one| identity::fingerprint(&one))).collect()
}
