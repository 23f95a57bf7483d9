//! The options of `offer` that stand for properties of a profile. What each of them does here is said by the tables of the
//! configuration: one that has no effect is told of by its property.

use super::task_file;
use crate::command::verb::VerbError;
use clap::Args;
use serde_json::{Value, json};

/// Set where no profile is to be taken, unless one is named.
const NO_PROFILE: &str = "DSTACK_NO_PROFILE";

#[derive(Args)]
pub struct ProfileArgs {
    /// A profile of .dstack/profiles.yml, here or in your home; else the one that is the default there
    #[arg(long, env = "DSTACK_PROFILE", value_name = "NAME")]
    profile: Option<String>,
    /// Take no profile, also not the default one
    #[arg(long)]
    no_profile: bool,
    /// Only nodes that cost at most so many dollars an hour
    #[arg(long, value_name = "PRICE")]
    max_price: Option<f64>,
    /// How long the run may take, as in 2h; or off
    #[arg(long, value_name = "DURATION")]
    max_duration: Option<String>,
    /// Only of this backend; every node here is of `remote`
    #[arg(short, long, value_name = "NAME")]
    backend: Vec<String>,
    /// Regions of clouds
    #[arg(short, long, value_name = "NAME")]
    region: Vec<String>,
    /// Types of machines of clouds
    #[arg(long, value_name = "NAME")]
    instance_type: Vec<String>,
    /// Only of this fleet
    #[arg(long, value_name = "NAME")]
    fleet: Vec<String>,
    /// Only machines that are there already, as all here are
    #[arg(short = 'R', long, group = "after_the_run")]
    reuse: bool,
    /// Keep a machine of a cloud after the run
    #[arg(long, group = "after_the_run")]
    dont_destroy: bool,
    /// Keep an idle machine of a cloud for so long
    #[arg(long, value_name = "DURATION", group = "after_the_run")]
    idle_duration: Option<String>,
    /// Only spot machines of clouds
    #[arg(long, group = "spot_or_not")]
    spot: bool,
    /// Only machines of clouds that are no spot ones
    #[arg(long, group = "spot_or_not")]
    on_demand: bool,
    /// Spot machines of clouds and others
    #[arg(long, group = "spot_or_not")]
    spot_auto: bool,
    /// spot, on-demand or auto
    #[arg(long, value_name = "POLICY", group = "spot_or_not")]
    spot_policy: Option<String>,
    /// A run that waits for what is not free, and is tried again
    #[arg(long, group = "retry_or_not")]
    retry: bool,
    /// A run that does neither
    #[arg(long, group = "retry_or_not")]
    no_retry: bool,
    /// A run that does both for so long
    #[arg(long, value_name = "DURATION", group = "retry_or_not")]
    retry_duration: Option<String>,
}

impl ProfileArgs {
    /// The profile behind the options, as JSON.
    pub fn profile(&self) -> Result<Option<Value>, VerbError> {
        let is_off = || self.profile.is_none() && std::env::var_os(NO_PROFILE).is_some();
        if self.no_profile || is_off() {
            return Ok(None);
        }
        let found = task_file::profile(self.profile.as_deref())?;
        Ok(found.map(|profile| profile.to_json()))
    }

    /// The properties that the options say, by their names.
    pub fn properties(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let text = |said: &Option<String>| said.as_deref().map(Value::from);
        let list = |said: &[String]| (!said.is_empty()).then(|| json!(said));
        let keep = self.dont_destroy.then(|| Value::from("off"));
        let properties = [
            ("max_price", self.max_price.map(Value::from)),
            ("max_duration", text(&self.max_duration)),
            ("backends", list(&self.backend)),
            ("regions", list(&self.region)),
            ("instance_types", list(&self.instance_type)),
            ("fleets", list(&self.fleet)),
            ("creation_policy", self.reuse.then(|| Value::from("reuse"))),
            ("idle_duration", keep.or_else(|| text(&self.idle_duration))),
            ("spot_policy", self.spot_policy()),
            ("retry", self.retry()),
        ];
        properties.into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    fn spot_policy(&self) -> Option<Value> {
        let flags = [(self.spot, "spot"), (self.on_demand, "on-demand"), (self.spot_auto, "auto")];
        let word = flags.into_iter().find(|(said, _)| *said).map(|(_, word)| word);
        word.or(self.spot_policy.as_deref()).map(Value::from)
    }

    fn retry(&self) -> Option<Value> {
        let lasting = self.retry_duration.as_ref().map(|duration| json!({"duration": duration}));
        let flag = (self.retry || self.no_retry).then(|| Value::from(self.retry));
        lasting.or(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::dstack::configuration::from_json;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        profile: ProfileArgs,
    }

    /// The notices of a task with the properties of this line, or why it cannot be taken.
    fn told(line: &str) -> Result<Vec<String>, String> {
        let words = std::iter::once("offer").chain(line.split_whitespace());
        let Line { profile } = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let mut task = json!({"type": "task", "commands": ["true"]});
        for (name, value) in profile.properties() {
            task[name] = value;
        }
        let loaded = from_json(&task, None).map_err(|fault| fault.to_string())?;
        loaded.applicable().map_err(|fault| fault.to_string())?;
        Ok(loaded.notices.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn every_option_acts_or_is_told_of_by_its_property() {
        let acting = [
            "--max-price 2",
            "--max-duration 2h",
            "--fleet main",
            "--backend remote",
            "--backend aws",
            "-b remote",
            "--retry",
            "--no-retry",
            "--retry-duration 1h",
            "-r eu-west-1",
            "--region eu-west-1",
            "--instance-type big",
            "-R",
            "--reuse",
            "--dont-destroy",
            "--idle-duration 5m",
            "--spot",
            "--on-demand",
            "--spot-auto",
            "--spot-policy auto",
        ];
        for line in acting {
            assert_eq!(told(line), Ok(Vec::new()), "{line}");
        }
        for (line, word) in [
            ("--spot --on-demand", "cannot be used with"),
            ("--retry --no-retry", "cannot be used with"),
            ("-R --dont-destroy", "cannot be used with"),
            ("--spot-policy sometimes", "spot_policy"),
        ] {
            assert!(told(line).is_err_and(|why| why.contains(word)), "{line}");
        }
    }
}
