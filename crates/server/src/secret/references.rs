//! References to secrets in an environment: checked when a job or step is asked for, filled in when its order is written.
//!
//! An environment is `NAME=value`, each ended by NUL. Only the variables that are named as such hold references: a value
//! that a user exported is passed on as it is.

use super::stored::{self, SECRET};
use crate::shared::Shared;
use cluster::State;
use model::bounds::{self, Bound};
use model::interpolation::{self, Piece, Place, Reference};
use model::reason::Refusal;
use model::run::JobSpec;
use model::secret::RegistryAuth;
use std::collections::{BTreeSet, HashSet};
use wire::client::Submission;
use wire::step::StepLaunch;

/// Refuses a submission that refers to secrets which its project does not have, or does not let its owner use.
pub fn check_submission(state: &State, submission: &Submission) -> Result<(), Refusal> {
    let spec = &submission.spec;
    let environment = submission.environment.as_deref().unwrap_or_default();
    check(state, spec, environment, &spec.launch.secret_variables)?;
    for texts in &submission.group_texts {
        check(state, spec, &texts.environment, &spec.launch.secret_variables)?;
    }
    check_auth(state, spec, submission.registry_auth.as_ref())?;
    submission.first_step.as_ref().map_or(Ok(()), |step| check_step(state, spec, step))
}

/// The same for a step of a job.
pub fn check_step(state: &State, job: &JobSpec, launch: &StepLaunch) -> Result<(), Refusal> {
    check_auth(state, job, launch.registry_auth.as_ref())?;
    check(state, job, &launch.environment, &launch.secret_variables)
}

fn check_auth(state: &State, job: &JobSpec, auth: Option<&RegistryAuth>) -> Result<(), Refusal> {
    let texts = auth.into_iter().flat_map(|auth| [&auth.username, &auth.password]);
    check_texts(state, job, texts.map(|text| ("registry_auth", text.0.as_str())))
}

fn check(
    state: &State,
    job: &JobSpec,
    environment: &str,
    variables: &[String],
) -> Result<(), Refusal> {
    if variables.is_empty() {
        return Ok(());
    }
    let variables = names(variables);
    let named = entries(environment).filter(|(name, _)| variables.contains(name));
    check_texts(state, job, named)
}

/// Refuses texts, each with what it is the value of, that refer to secrets which the job may not have.
fn check_texts<'a>(
    state: &State,
    job: &JobSpec,
    texts: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), Refusal> {
    let mut wanted = BTreeSet::new();
    for (name, value) in texts {
        let pieces = parse(name, value)?;
        wanted.extend(interpolation::references(&pieces).filter_map(|reference| match reference {
            Reference::Secret(secret) => Some(secret.clone()),
            _ => None,
        }));
    }
    if wanted.is_empty() {
        return Ok(());
    }
    super::check_member(state, job)?;
    let known = state.secrets_of(super::asked_project(job));
    let missing: Vec<String> =
        wanted.into_iter().filter(|name| !known.contains_key(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let what = if missing.len() == 1 { SECRET.to_owned() } else { format!("{SECRET}s") };
    Err(Refusal::UnknownThing { what, name: missing.join(", ") })
}

/// The environment with the values of secrets in place of references. No error holds a value.
pub fn fill_in(
    shared: &Shared,
    job: &JobSpec,
    environment: &str,
    variables: &[String],
) -> Result<String, Refusal> {
    if variables.is_empty() {
        return Ok(environment.to_owned());
    }
    let variables = names(variables);
    let mut filled = String::with_capacity(environment.len());
    for (name, value) in entries(environment) {
        let value = if variables.contains(name) {
            filled_value(shared, job, name, value)?
        } else {
            value.to_owned()
        };
        filled.extend([name, "=", value.as_str(), "\0"]);
        hold(bounds::ENVIRONMENT_BYTES, filled.len())?;
    }
    Ok(filled)
}

/// The environment without the variables that hold references.
pub fn leave_out(environment: &str, variables: &[String]) -> String {
    let variables = names(variables);
    let kept = entries(environment).filter(|(name, _)| !variables.contains(name));
    kept.map(|(name, value)| format!("{name}={value}\0")).collect()
}

/// One text with the values of secrets; `name` is what it is the value of.
pub fn filled_value(
    shared: &Shared,
    job: &JobSpec,
    name: &str,
    value: &str,
) -> Result<String, Refusal> {
    let mut filled = String::new();
    for piece in parse(name, value)? {
        match piece {
            Piece::Text(text) => filled.push_str(&text),
            Piece::Reference(Reference::Secret(secret)) => {
                let project = super::project_with(&shared.read(), job, &secret)?;
                filled.push_str(&stored::value(shared, project, &secret)?.0);
            }
            Piece::Reference(other) => {
                return Err(Refusal::Other(format!("{name}: {other} has no value here")));
            }
        }
        hold(bounds::ARGUMENT_BYTES, filled.len())?;
    }
    Ok(filled)
}

fn hold(bound: Bound, found: usize) -> Result<(), Refusal> {
    if found <= bound.most {
        return Ok(());
    }
    Err(Refusal::InvalidValue {
        what: format!("{} with its secrets", bound.what),
        value: format!("{found} bytes"),
        expected: format!("at most {} bytes", bound.most),
    })
}

fn parse(name: &str, value: &str) -> Result<Vec<Piece>, Refusal> {
    let pieces = interpolation::parse(value, Place::Environment);
    pieces.map_err(|error| Refusal::Other(format!("{name}: {error}")))
}

fn entries(environment: &str) -> impl Iterator<Item = (&str, &str)> {
    environment.split('\0').filter_map(|entry| entry.split_once('='))
}

/// For looking up: an environment may have many variables.
fn names(variables: &[String]) -> HashSet<&str> {
    variables.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;
    use cluster::Command;
    use model::fleet::MAIN_PROJECT;
    use model::secret::SecretValue;

    async fn server_with(name: &str, value: &str) -> TestServer {
        let server = TestServer::start().await;
        let value = SecretValue(value.into());
        let sealed = stored::seal(&server.shared, MAIN_PROJECT, name, &value).expect("sealed");
        let (project, name) = (MAIN_PROJECT.into(), name.into());
        server.run(Command::SetSecret { project, name, sealed }).await.expect("set");
        server
    }

    /// A job of the main project.
    fn job() -> JobSpec {
        crate::testing::submission("").spec
    }

    fn names(of: &[&str]) -> Vec<String> {
        of.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_named_variables_are_filled_in() {
        let server = server_with("tok", "hush ${{ secrets.tok }} $$").await;
        let environment = "A=a ${{ secrets.tok }} $${{ b }}\0B=${{ secrets.tok }}\0C=$$\0";
        let filled = fill_in(&server.shared, &job(), environment, &names(&["A"]));
        // A value is not read for references itself.
        let expected = "A=a hush ${{ secrets.tok }} $$ ${{ b }}\0B=${{ secrets.tok }}\0C=$$\0";
        assert_eq!(filled.as_deref(), Ok(expected));
        assert_eq!(leave_out(environment, &names(&["A", "B"])), "C=$$\0");
    }

    /// A job of a build whose secrets were all of the main project may name an account besides.
    #[tokio::test(flavor = "multi_thread")]
    async fn job_that_waited_through_an_upgrade_gets_the_secret_of_the_main_project() {
        let server = server_with("tok", "hush").await;
        let of_account = JobSpec { account: Some("physics".into()), ..job() };
        let environment = "A=${{ secrets.tok }}\0";
        let filled = fill_in(&server.shared, &of_account, environment, &names(&["A"]));
        assert_eq!(filled.as_deref(), Ok("A=hush\0"));
        let state = server.shared.read();
        assert!(check(&state, &of_account, environment, &names(&["A"])).is_err(), "not at submit");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn unknown_secrets_are_named_and_long_values_have_a_bound() {
        let server = server_with("tok", &"x".repeat(16 << 10)).await;
        let environment = "A=${{ secrets.b }}${{ secrets.tok }}${{ secrets.a }}\0";
        let state = server.shared.read();
        let refused = check(&state, &job(), environment, &names(&["A"]));
        assert_eq!(refused.unwrap_err().to_string(), "secrets a, b do not exist");
        let one = check(&state, &job(), "A=${{ secrets.b }}\0", &names(&["A"]));
        assert_eq!(one.unwrap_err().to_string(), "secret b does not exist");
        assert_eq!(check(&state, &job(), environment, &[]), Ok(()));
        assert!(check(&state, &job(), "A=${{ x }}\0", &names(&["A"])).is_err());
        drop(state);
        let long = format!("A={}\0", "${{ secrets.tok }}".repeat(9));
        let refused = fill_in(&server.shared, &job(), &long, &names(&["A"])).unwrap_err();
        assert!(refused.to_string().contains("at most 131072 bytes"), "{refused}");
    }
}
