//! Checks of a submission, and its owner, before it goes to the writer.

use crate::auth::principal;
use cluster::State;
use cluster::authorise::{Act, authorise};
use model::bounds;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::run::{Launch, LaunchKind};
use std::sync::Arc;
use wire::client::{SCRIPT_BYTES_MAX, Submission};
use wire::workspace;

/// The bytes that script and environment may take in an order; the rest is left for its other fields.
const ORDER_TEXT_MAX: usize = wire::frame::PAYLOAD_MAX - (2 << 20);

/// Sets the job's owner: the caller, unless an administrator submits for another. Refuses what no order could carry.
pub fn settle_owner(
    state: &State,
    submission: &mut Submission,
    by: &Principal,
) -> Result<(), Refusal> {
    let named = &submission.spec.owner;
    let for_another = named.uid != by.uid && !named.name.is_empty();
    if for_another && authorise(state, by, Act::SubmitAs(named)).is_ok() {
        submission.spec.owner = Arc::new(principal::of_uid(named.uid, named.gid));
    } else {
        submission.spec.owner =
            Arc::new(Principal { role: Role::User, token_limit: None, ..by.clone() });
    }
    let size = submission.script.as_ref().map_or(0, String::len);
    if size > SCRIPT_BYTES_MAX {
        return Err(Refusal::InvalidValue {
            what: "script".into(),
            value: format!("{size} bytes"),
            expected: format!("at most {SCRIPT_BYTES_MAX} bytes"),
        });
    }
    let environment = submission.environment.as_deref().unwrap_or_default();
    let step = submission.first_step.as_deref();
    let texts = [submission.script.as_deref().unwrap_or_default(), environment];
    let step_text = step.map_or("", |s| s.environment.as_str());
    let workspace_bytes = check_workspace(submission)?;
    fits_an_order(texts.into_iter().chain([step_text]), workspace_bytes)?;
    let Submission { spec, het_components, .. } = submission;
    let known = &spec.launch.secret_variables;
    let of_others = het_components.iter().flat_map(|other| &other.launch.secret_variables);
    if let Some(variable) = of_others.into_iter().find(|variable| !known.contains(variable)) {
        let text = "expected with the first component, whose environment all of them have";
        return Err(Refusal::Other(format!("--secret of {variable}: {text}")));
    }
    for other in het_components.iter_mut() {
        other.owner = spec.owner.clone();
        *Arc::make_mut(&mut other.launch) = follower(&other.launch);
    }
    if std::iter::once(&*spec).chain(&*het_components).any(|spec| spec.components.len() != 1) {
        return Err(Refusal::Other("a job has one request".into()));
    }
    Ok(())
}

/// The launch of a het component after the first: it has nodes for the first one's steps, runs nothing of its own, and
/// no client holds it.
fn follower(first: &Launch) -> Launch {
    Launch {
        work_dir: first.work_dir.clone(),
        umask: first.umask,
        rlimits: first.rlimits.clone(),
        unattended: true,
        ..Launch::empty(LaunchKind::Interactive)
    }
}

/// Refuses what no node would unpack, and more than is kept. Returns the bytes that it takes in an order.
fn check_workspace(submission: &Submission) -> Result<usize, Refusal> {
    let Some(workspace) = submission.workspace.as_deref() else { return Ok(0) };
    let diff = workspace.repository.iter().filter_map(|repository| repository.diff.as_ref());
    let blobs = workspace.files.iter().map(|file| &file.archive).chain(diff);
    let bytes = blobs.map(|blob| blob.0.len().div_ceil(3) * 4).sum::<usize>();
    let bound = bounds::WORKSPACE_BYTES;
    if bytes > bound.most {
        return Err(Refusal::InvalidValue {
            what: bound.what.into(),
            value: format!("{bytes} bytes"),
            expected: format!("at most {} bytes", bound.most),
        });
    }
    let hash = workspace.repository.as_ref().and_then(|repository| repository.hash.as_deref());
    if let Some(bad) = hash.filter(|hash| !workspace::is_commit(hash)) {
        return Err(Refusal::InvalidValue {
            what: "`repos`: hash".into(),
            value: bad.into(),
            expected: "expected 4 to 64 hexadecimal digits".into(),
        });
    }
    for file in &workspace.files {
        workspace::entries(&file.archive.0)
            .map_err(|error| Refusal::Other(format!("`files`: {}: {error}", file.path)))?;
    }
    Ok(bytes)
}

/// Refuses texts that would not fit into the order that carries them to a node, beside so many other bytes.
pub fn fits_an_order<'a>(
    texts: impl Iterator<Item = &'a str>,
    other_bytes: usize,
) -> Result<(), Refusal> {
    // An order is JSON within JSON: a quote takes four bytes there, a control character seven.
    let encoded_len = |byte: u8| match byte {
        b'"' | b'\\' => 4,
        0..0x20 => 7,
        _ => 1,
    };
    let most = ORDER_TEXT_MAX - other_bytes;
    let texts: Vec<&str> = texts.collect();
    if texts.iter().map(|text| text.len()).sum::<usize>() <= most / 7 {
        return Ok(());
    }
    let bytes: usize = texts.into_iter().flat_map(str::bytes).map(encoded_len).sum();
    if bytes <= most {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: "script and environment".into(),
        value: format!("{bytes} bytes in an order"),
        expected: format!("at most {most}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;
    use crate::testing::{submission, user};

    #[test]
    fn only_an_administrator_may_submit_for_another() {
        let mut of_user = submission("");
        of_user.spec.owner = Arc::new(Principal { uid: 2000, ..user() });
        settle_owner(&State::default(), &mut of_user, &user()).expect("settled");
        assert_eq!(of_user.spec.owner.uid, user().uid, "it is the caller's");
        let mut of_admin = submission("");
        settle_owner(&State::default(), &mut of_admin, &server_principal()).expect("settled");
        assert_eq!(of_admin.spec.owner.uid, user().uid, "it stays the named owner's");
        assert_eq!(of_admin.spec.owner.role, Role::User);
    }

    #[test]
    fn text_that_no_order_could_carry_is_refused() {
        let plain = "x".repeat(ORDER_TEXT_MAX);
        assert!(fits_an_order([plain.as_str()].into_iter(), 0).is_ok());
        // A quote takes four bytes in JSON within JSON.
        let quotes = "\"".repeat(ORDER_TEXT_MAX / 4 + 1);
        let refused = fits_an_order([quotes.as_str()].into_iter(), 0);
        assert!(matches!(refused, Err(Refusal::InvalidValue { .. })));
        let mut long = submission("");
        long.script = Some("x".repeat(SCRIPT_BYTES_MAX + 1));
        assert!(settle_owner(&State::default(), &mut long, &user()).is_err());
    }
}
