//! Checks of a submission, and its owner, before it goes to the writer.

use crate::auth::principal;
use crate::shared::Shared;
use cluster::State;
use cluster::authorise::{Act, authorise};
use model::bounds;
use model::id::BlobRef;
use model::principal::{Principal, Role};
use model::reason::Refusal;
use model::run::{BlobBytes, JobSpec, Launch, LaunchKind};
use std::collections::HashSet;
use std::sync::Arc;
use store::BlobId;
use wire::byte_text::ByteText;
use wire::client::{GroupTexts, SCRIPT_BYTES_MAX, Submission};
use wire::workspace::{self, Workspace};

/// The bytes that script and environment may take in an order; the rest is left for its other fields.
const ORDER_TEXT_MAX: usize = wire::frame::PAYLOAD_MAX - (2 << 20);

/// Refuses what no order could carry and what no node would unpack. It may take long, and needs no state: nobody is to hold
/// it meanwhile.
pub fn check_texts(submission: &Submission) -> Result<(), Refusal> {
    std::iter::once(&submission.spec).chain(&submission.het_components).try_for_each(check_spec)?;
    let further = submission.group_texts.iter().map(|texts| texts.script.len());
    let size = submission.script.as_ref().map_or(0, ByteText::len);
    let size = further.fold(size, usize::max);
    if size > SCRIPT_BYTES_MAX {
        return Err(Refusal::InvalidValue {
            what: "script".into(),
            value: format!("{size} bytes"),
            expected: format!("at most {SCRIPT_BYTES_MAX} bytes"),
        });
    }
    check_group_texts(submission)?;
    let script = submission.script.as_ref().map_or(&[][..], ByteText::as_bytes);
    let environment = submission.environment.as_deref().unwrap_or_default();
    let step = submission.first_step.as_deref();
    let step_text = step.map_or("", |s| s.environment.as_str());
    let workspace_bytes = submission.workspace.as_deref().map_or(Ok(0), check_workspace)?;
    for GroupTexts { script, environment, .. } in &submission.group_texts {
        let texts = [script.as_bytes(), environment.as_bytes()];
        fits_an_order(texts.into_iter(), workspace_bytes)?;
    }
    let texts = [script, environment.as_bytes(), step_text.as_bytes()];
    fits_an_order(texts.into_iter(), workspace_bytes)
}

/// Holds a specification to the bounds of its fields. One that was made here, of a script or of a run of dstack's, came by fields of
/// other names.
fn check_spec(spec: &JobSpec) -> Result<(), Refusal> {
    bounds::JOB_NAME_BYTES.hold(spec.name.len())?;
    bounds::COMMENT_BYTES.hold(spec.comment.as_ref().map_or(0, String::len))?;
    bounds::SECRET_VARIABLES.hold(spec.launch.secret_variables.len())
}

/// Groups of replicas bring a script and an environment each, and nothing else does.
fn check_group_texts(submission: &Submission) -> Result<(), Refusal> {
    let others = &submission.het_components;
    let has_groups = submission.spec.launch.kind == LaunchKind::Task
        && others.iter().any(|other| other.launch.service.is_some());
    let needed = if has_groups { others.len() } else { 0 };
    if submission.group_texts.len() == needed {
        return Ok(());
    }
    let found = submission.group_texts.len();
    Err(Refusal::Other(format!("{needed} scripts of groups are expected, and {found} came")))
}

/// Sets the job's owner: the caller, unless an administrator submits for another. The state is not held while that one is looked up:
/// the user database may be slow.
pub fn settle_owner(
    shared: &Shared,
    submission: &mut Submission,
    by: &Principal,
) -> Result<(), Refusal> {
    let is_for_another = is_for_another(&shared.read(), submission, by);
    set_owner(submission, by, is_for_another)
}

/// Whether somebody who may do so submits for another.
fn is_for_another(state: &State, submission: &Submission, by: &Principal) -> bool {
    let named = &submission.spec.owner;
    let is_named = named.uid != by.uid && !named.name.is_empty();
    is_named && authorise(state, by, Act::SubmitAs(named)).is_ok()
}

fn set_owner(
    submission: &mut Submission,
    by: &Principal,
    is_for_another: bool,
) -> Result<(), Refusal> {
    if is_for_another {
        let named = &submission.spec.owner;
        submission.spec.owner = Arc::new(principal::of_uid(named.uid, named.gid));
    } else {
        submission.spec.owner =
            Arc::new(Principal { role: Role::User, token_limit: None, ..by.clone() });
    }
    let Submission { spec, het_components, registry_auth, .. } = submission;
    let known: HashSet<&String> = spec.launch.secret_variables.iter().collect();
    let of_others = het_components.iter().flat_map(|other| &other.launch.secret_variables);
    if let Some(variable) = of_others.into_iter().find(|variable| !known.contains(*variable)) {
        let text = "expected with the first component, whose environment all of them have";
        return Err(Refusal::Other(format!("--secret of {variable}: {text}")));
    }
    let has_secrets = !spec.launch.secret_variables.is_empty() || registry_auth.is_some();
    if spec.launch.has_project_secrets != has_secrets {
        Arc::make_mut(&mut spec.launch).has_project_secrets = has_secrets;
    }
    for other in het_components.iter_mut() {
        other.owner = spec.owner.clone();
        other.launch = Arc::new(match spec.launch.kind {
            LaunchKind::Task => group(&spec.launch, &other.launch),
            LaunchKind::Batch | LaunchKind::Interactive => follower(&other.launch),
        });
    }
    if std::iter::once(&*spec).chain(&*het_components).any(|spec| spec.components.len() != 1) {
        return Err(Refusal::Other("a job has one request".into()));
    }
    Ok(())
}

/// The launch of a group after the first. The nodes of a task run what those of the first group do, with shared memory of their own; the
/// replicas of a service run their own script in their own container, with what all of them bring along.
pub fn group(first: &Launch, own: &Launch) -> Launch {
    if own.service.is_some() {
        return replica_group(first, own);
    }
    let mut launch = first.clone();
    if let (Some(container), Some(asked)) = (&mut launch.container, &own.container) {
        container.shared_memory = asked.shared_memory;
    }
    launch
}

fn replica_group(first: &Launch, own: &Launch) -> Launch {
    let auth = first.registry_auth.clone().filter(|_| own.container.is_some());
    let BlobBytes { script, environment, .. } = own.blob_bytes;
    Launch {
        kind: first.kind,
        secret_variables: first.secret_variables.clone(),
        has_project_secrets: first.has_project_secrets,
        registry_auth: auth,
        // With its script and its environment it comes beside the specification.
        workspace: None,
        git_credentials: first.git_credentials.clone(),
        configuration: first.configuration.clone(),
        first_step: None,
        blob_bytes: BlobBytes {
            script,
            environment,
            first_step: 0,
            workspace: 0,
            ..first.blob_bytes
        },
        ..own.clone()
    }
}

/// The launch of a het component after the first: it has nodes for the first one's steps, runs nothing of its own, and
/// no client holds it.
fn follower(first: &Launch) -> Launch {
    Launch {
        work_dir: first.work_dir.clone(),
        umask: first.umask,
        rlimits: first.rlimits.clone(),
        unattended: true,
        volumes: first.volumes.clone(),
        ..Launch::empty(LaunchKind::Interactive)
    }
}

/// The specifications of all groups as they are stored: script and environment by the names of their contents.
pub fn stored_form(submission: &Submission) -> Vec<JobSpec> {
    let named = |text: &[u8]| BlobRef::from(&BlobId::of(text));
    let blob = |text: &Option<String>| text.as_ref().map(|text| named(text.as_bytes()));
    let mut spec = submission.spec.clone();
    let launch = Arc::make_mut(&mut spec.launch);
    launch.script = submission.script.as_ref().map(|script| named(script.as_bytes()));
    launch.environment = blob(&submission.environment);
    // As the writer names it.
    let workspace = submission.workspace.as_ref().and_then(|w| serde_json::to_string(w).ok());
    launch.workspace = blob(&workspace).map(Box::new);
    let of_group = |other: &JobSpec| JobSpec {
        launch: Arc::new(group(&spec.launch, &other.launch)),
        ..other.clone()
    };
    let mut others: Vec<JobSpec> = submission.het_components.iter().map(of_group).collect();
    for (other, texts) in others.iter_mut().zip(&submission.group_texts) {
        let launch = Arc::make_mut(&mut other.launch);
        launch.script = Some(named(texts.script.as_bytes()));
        launch.environment = Some(named(texts.environment.as_bytes()));
        let workspace = texts.workspace_with(submission.workspace.as_deref());
        let workspace = workspace.and_then(|own| serde_json::to_string(&own).ok());
        launch.workspace = blob(&workspace).map(Box::new);
    }
    std::iter::once(spec).chain(others).collect()
}

/// Refuses what no node would unpack, and more than is kept. Returns the bytes that it takes in an order.
fn check_workspace(workspace: &Workspace) -> Result<usize, Refusal> {
    bounds::FILES.hold(workspace.files.len())?;
    let json = serde_json::to_string(workspace).map_err(|e| Refusal::Other(e.to_string()))?;
    // It is JSON once more there.
    let encoded_len = |byte: u8| if matches!(byte, b'"' | b'\\') { 2 } else { 1 };
    let bytes = json.bytes().map(encoded_len).sum();
    bounds::WORKSPACE_BYTES.hold(bytes)?;
    let hash = workspace.repository.as_ref().and_then(|repository| repository.hash.as_deref());
    if let Some(bad) = hash.filter(|hash| !workspace::is_commit(hash)) {
        return Err(Refusal::InvalidValue {
            what: "`repos`: hash".into(),
            value: bad.into(),
            expected: "expected 4 to 64 hexadecimal digits".into(),
        });
    }
    let repository = workspace.repository.as_ref();
    if let Some(diff) = repository.and_then(|repository| repository.diff.as_ref()) {
        bounds::ARCHIVE_BYTES.hold(diff.0.len())?;
    }
    if repository.is_some_and(|repository| workspace::has_credentials(&repository.url)) {
        let why = "the address holds a user or a password, which others would see: expected it without, and \
                   credentials by `dstack init`";
        return Err(Refusal::Other(format!("`repos`: {why}")));
    }
    for file in &workspace.files {
        bounds::ARCHIVE_BYTES.hold(file.archive.0.len())?;
        workspace::entries(&file.archive.0)
            .map_err(|error| Refusal::Other(format!("`files`: {}: {error}", file.path)))?;
    }
    Ok(bytes)
}

/// Refuses texts that would not fit into the order that carries them to a node, beside so many other bytes.
pub fn fits_an_order<'a>(
    texts: impl Iterator<Item = &'a [u8]>,
    other_bytes: usize,
) -> Result<(), Refusal> {
    // An order is JSON within JSON: a quote takes four bytes there, a control character seven.
    let byte_len = |byte: &u8| match byte {
        b'"' | b'\\' => 4,
        0..0x20 => 7,
        _ => 1,
    };
    // What is not UTF-8 travels in base 64.
    let encoded_len = |text: &[u8]| {
        if std::str::from_utf8(text).is_ok() {
            text.iter().map(byte_len).sum::<usize>()
        } else {
            text.len().div_ceil(3) * 4
        }
    };
    let most = ORDER_TEXT_MAX - other_bytes;
    let texts: Vec<&[u8]> = texts.collect();
    if texts.iter().map(|text| text.len()).sum::<usize>() <= most / 7 {
        return Ok(());
    }
    let bytes: usize = texts.into_iter().map(encoded_len).sum();
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
    use wire::workspace::{Blob, FileArchive};

    #[test]
    fn only_an_administrator_may_submit_for_another() {
        let settle = |submission: &mut Submission, by: &Principal| {
            let is_for_another = is_for_another(&State::default(), submission, by);
            set_owner(submission, by, is_for_another).expect("settled");
        };
        let mut of_user = submission("");
        of_user.spec.owner = Arc::new(Principal { uid: 2000, ..user() });
        settle(&mut of_user, &user());
        assert_eq!(of_user.spec.owner.uid, user().uid, "it is the caller's");
        let mut of_admin = submission("");
        settle(&mut of_admin, &server_principal());
        assert_eq!(of_admin.spec.owner.uid, user().uid, "it stays the named owner's");
        assert_eq!(of_admin.spec.owner.role, Role::User);
    }

    #[test]
    fn text_that_no_order_could_carry_is_refused() {
        let plain = "x".repeat(ORDER_TEXT_MAX);
        assert!(fits_an_order([plain.as_bytes()].into_iter(), 0).is_ok());
        // A quote takes four bytes in JSON within JSON.
        let quotes = "\"".repeat(ORDER_TEXT_MAX / 4 + 1);
        let refused = fits_an_order([quotes.as_bytes()].into_iter(), 0);
        assert!(matches!(refused, Err(Refusal::InvalidValue { .. })));
        // Three bytes that are not UTF-8 take four.
        let bytes = vec![0xff; ORDER_TEXT_MAX / 4 * 3 + 3];
        assert!(fits_an_order([&bytes[3..]].into_iter(), 0).is_ok());
        assert!(fits_an_order([&bytes[..]].into_iter(), 0).is_err());
        let mut long = submission("");
        long.script = Some("x".repeat(SCRIPT_BYTES_MAX + 1).into());
        assert!(check_texts(&long).is_err());
    }

    #[test]
    fn workspace_counts_to_the_order_with_all_its_texts() {
        let file = |path: &str| FileArchive { path: path.into(), archive: Blob(archive()) };
        let with = |files: Vec<FileArchive>| {
            let mut brought = submission("");
            brought.workspace = Some(Box::new(Workspace { files, ..Workspace::default() }));
            check_texts(&brought).map_err(|refused| refused.to_string())
        };
        assert_eq!(with(vec![file("a")]), Ok(()));
        let many = with(vec![file("a"); bounds::FILES.most + 1]);
        assert!(many.is_err_and(|said| said.contains("at most 1000 items")));
        // A control character takes seven bytes in an order.
        let long = file(&"\u{1}".repeat(bounds::TEXT_BYTES.most));
        let said = with(vec![long; 80]);
        assert!(said.is_err_and(|said| said.contains("at most 8388608 bytes")));
    }

    fn archive() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(0);
        header.set_mode(0o644);
        builder.append_data(&mut header, "a", &[][..]).expect("an entry");
        builder.into_inner().expect("an archive")
    }
}
