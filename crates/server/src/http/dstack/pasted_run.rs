//! A configuration that is pasted into the web page, as the submission that dstack's client would have it made into.

use super::run_request::{self, KeptRequest, Purpose};
use crate::shared::Shared;
use dstack::api::run::RunSpec;
use dstack::configuration::parse;
use model::fleet::MAIN_PROJECT;
use model::principal::Principal;
use wire::client::Submission;

/// The name under which lines speak of what was pasted.
const FILE: &str = "configuration";

/// The submission and what there is to say about it; or what is wrong, each in a line with its place.
pub fn read(
    shared: &Shared,
    by: &Principal,
    text: &str,
) -> Result<(Submission, Vec<String>), Vec<String>> {
    let loaded = parse(FILE, text.as_bytes()).map_err(|error| error.lines())?;
    let notes = loaded.notices.iter().map(|notice| notice.in_file(FILE)).collect();
    let asked =
        run_request::of_loaded(shared, by, MAIN_PROJECT, loaded, RunSpec::default(), Purpose::Run);
    let asked = asked.map_err(|refused| vec![refused.text()])?;
    let KeptRequest { mut submission, text, .. } = asked.kept();
    submission.unique_name = true;
    submission.configuration = Some(text.get().to_owned());
    Ok((submission, notes))
}
