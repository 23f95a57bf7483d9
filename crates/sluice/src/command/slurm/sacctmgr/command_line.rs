//! The grammar of a `sacctmgr` command line: `VERB ENTITY [NAMES] [KEY=VALUE…] [where …] [set …]`.

use crate::command::slurm::query::CommandError;
use ::slurm::option::value;
use ::slurm::output::sacctmgr::Entity;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SacctmgrVerb {
    Show,
    Add,
    Modify,
    Delete,
}

const VERBS: &[(&str, SacctmgrVerb)] = &[
    ("show", SacctmgrVerb::Show),
    ("list", SacctmgrVerb::Show),
    ("add", SacctmgrVerb::Add),
    ("create", SacctmgrVerb::Add),
    ("modify", SacctmgrVerb::Modify),
    ("update", SacctmgrVerb::Modify),
    ("delete", SacctmgrVerb::Delete),
    ("remove", SacctmgrVerb::Delete),
];

/// How a value changes a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Set,
    /// `+=`
    Add,
    /// `-=`
    Remove,
}

/// `Key=Value`, `Key+=Value`, `Key-=Value`, or a word alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    pub key: String,
    pub operator: Operator,
    pub value: String,
    pub typed: String,
}

impl Term {
    fn parse(word: &str) -> Option<Self> {
        let (key, value) = word.split_once('=')?;
        let (key, operator) = match (key.strip_suffix('+'), key.strip_suffix('-')) {
            (Some(key), _) => (key, Operator::Add),
            (_, Some(key)) => (key, Operator::Remove),
            _ => (key, Operator::Set),
        };
        let value = value.trim_matches(['"', '\'']).to_owned();
        Some(Self { key: key.to_owned(), operator, value, typed: word.to_owned() })
    }

    pub fn is(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.key.eq_ignore_ascii_case(key))
    }
}

/// A parsed command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    pub verb: SacctmgrVerb,
    pub verb_word: String,
    pub entity: Entity,
    /// Names without a key.
    pub names: Vec<String>,
    /// The conditions of `where`, or with `add` the settings.
    pub terms: Vec<Term>,
    /// The settings of `modify`.
    pub set: Vec<Term>,
    /// Words of `show` that stand alone, such as `withassoc`.
    pub flags: Vec<String>,
}

/// Entities whose rows are associations, or can be.
const OF_ASSOCIATIONS: &[Entity] = &[Entity::Account, Entity::User, Entity::Association];

/// The words of `show` that stand alone, and the entities whose list each changes: any other refuses it. Not formatted by
/// rustfmt: a row is one line.
#[rustfmt::skip]
const FLAGS: &[(&str, &[Entity])] = &[
    ("all_time", &[Entity::Event]),
    // There is one cluster, this one.
    ("all_clusters", &[Entity::Event]),
    ("onlydefaults", OF_ASSOCIATIONS),
    ("tree", &[Entity::Association]),
    ("withassoc", OF_ASSOCIATIONS),
    ("withcoord", &[Entity::Account, Entity::User]),
    ("withcoordinator", &[Entity::Account, Entity::User]),
    ("withcoordinators", &[Entity::Account, Entity::User]),
    // What is counted is never deleted.
    ("withdeleted", &[Entity::Account, Entity::User, Entity::Association, Entity::Qos, Entity::Tres]),
    ("withrawqos", OF_ASSOCIATIONS),
    ("withrawqoslevel", OF_ASSOCIATIONS),
    ("withsubaccounts", OF_ASSOCIATIONS),
    ("wolimits", &[Entity::Association]),
    ("wopinfo", OF_ASSOCIATIONS),
    ("woplimits", OF_ASSOCIATIONS),
];

const CLUSTER_KEYS: [&str; 2] = ["Cluster", "Clusters"];

/// Keys whose value is a name.
const NAME_KEYS: [&str; 2] = ["name", "names"];

impl CommandLine {
    pub fn parse(words: &[String]) -> Result<Self, CommandError> {
        let Some((verb_word, rest)) = words.split_first() else {
            let text = "sacctmgr: error: no keyword given, as in: sacctmgr show qos";
            return Err(CommandError::message(text));
        };
        let verb = VERBS.iter().find(|(name, _)| name.eq_ignore_ascii_case(verb_word));
        let Some((_, verb)) = verb else {
            let known: Vec<&str> = VERBS.iter().map(|(name, _)| *name).collect();
            return Err(CommandError::message(format!(
                "invalid keyword: {verb_word}\nsacctmgr: note: expected one of {}",
                known.join(", ")
            )));
        };
        let entity = |word: &str| {
            let found = Entity::parse(word)?;
            // Coordinators are shown with their accounts or users.
            (found != Entity::Coordinator || *verb != SacctmgrVerb::Show).then_some(found)
        };
        let Some((entity, rest)) =
            rest.split_first().and_then(|(word, rest)| Some((entity(word)?, rest)))
        else {
            let none = |word: &String| format!("\nsacctmgr: note: {word:?} is none of them");
            let typed = rest.first().map(none);
            return Err(CommandError::message(format!(
                "No valid entity in {verb_word} command\n\
                 Input line must include \"Account\", \"Association\", \"Cluster\", \"Event\", \"QOS\", \"RunawayJobs\", \"Transaction\", \"TRES\" or \"User\"{}",
                typed.unwrap_or_default()
            )));
        };
        let mut line = CommandLine {
            verb: *verb,
            verb_word: verb_word.clone(),
            entity,
            names: Vec::new(),
            terms: Vec::new(),
            set: Vec::new(),
            flags: Vec::new(),
        };
        line.take_words(rest)?;
        Ok(line)
    }

    fn take_words(&mut self, words: &[String]) -> Result<(), CommandError> {
        let mut setting = false;
        for word in words {
            match word.to_ascii_lowercase().as_str() {
                "where" => setting = false,
                "set" => setting = true,
                // Beside `show` it is a name like any other.
                flag if self.verb == SacctmgrVerb::Show
                    && FLAGS.iter().any(|(name, _)| *name == flag) =>
                {
                    self.add_flag(flag, word)?;
                }
                _ => match Term::parse(word) {
                    Some(term) if setting => self.set.push(term),
                    Some(term) if term.is(&NAME_KEYS) => {
                        self.names.extend(value::list(&term.value));
                    }
                    Some(term) => self.terms.push(term),
                    None if setting => return Err(unknown_option(word)),
                    None => self.names.extend(value::list(word)),
                },
            }
        }
        Ok(())
    }

    pub fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|said| said == flag)
    }

    /// Refuses a word that would change nothing in this entity's list.
    fn add_flag(&mut self, flag: &str, typed: &str) -> Result<(), CommandError> {
        let takes =
            |(name, entities): &(&str, &[Entity])| *name == flag && entities.contains(&self.entity);
        if !FLAGS.iter().any(takes) {
            return Err(unknown_option(typed));
        }
        self.flags.push(flag.to_owned());
        Ok(())
    }

    /// The clusters that the line names.
    pub fn clusters(&self) -> impl Iterator<Item = String> {
        let terms = self.terms.iter().chain(&self.set).filter(|term| term.is(&CLUSTER_KEYS));
        terms.flat_map(|term| value::list(&term.value))
    }

    /// Whether the line is about other clusters alone, of which nothing is known here.
    pub fn is_elsewhere(&self, ours: &str) -> bool {
        let named: Vec<String> = self.clusters().collect();
        !named.is_empty() && !named.iter().any(|name| name.eq_ignore_ascii_case(ours))
    }

    /// Refuses a change of another cluster: there is one, and nothing of it was meant.
    pub fn check_cluster(&self, ours: &str) -> Result<(), CommandError> {
        match self.clusters().find(|name| !name.eq_ignore_ascii_case(ours)) {
            Some(other) => Err(CommandError::message(format!(
                "sacctmgr: error: Cluster={other}: there is one cluster, {ours}"
            ))),
            None => Ok(()),
        }
    }

    /// Removes the terms with one of these keys, and returns their values.
    pub fn take(terms: &mut Vec<Term>, keys: &[&str]) -> Vec<String> {
        let (taken, rest): (Vec<Term>, Vec<Term>) = terms.drain(..).partition(|term| term.is(keys));
        *terms = rest;
        taken.iter().flat_map(|term| value::list(&term.value)).collect()
    }
}

/// As [`unknown_option`], with the keys that could have been given: `what` is what they are.
pub fn unknown_key<'k>(
    word: &str,
    what: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> CommandError {
    let known: Vec<&str> = known.into_iter().collect();
    CommandError::message(format!(
        "{}\nsacctmgr: note: {what}: {}",
        unknown_option(word),
        known.join(", ")
    ))
}

pub fn unknown_option(word: &str) -> CommandError {
    CommandError::message(format!(
        " Unknown option: {word}\n Use keyword 'where' to modify condition"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<CommandLine, CommandError> {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        CommandLine::parse(&words)
    }

    fn terms(terms: &[Term]) -> Vec<(&str, Operator, &str)> {
        terms.iter().map(|t| (t.key.as_str(), t.operator, t.value.as_str())).collect()
    }

    #[test]
    fn names_conditions_and_settings_are_parsed() {
        let line =
            read("modify user where name=alice account=physics set QOS+=capped,high Fairshare=3");
        let line = line.expect("right");
        assert_eq!((line.verb, line.entity), (SacctmgrVerb::Modify, Entity::User));
        assert_eq!(line.names, ["alice"]);
        assert_eq!(terms(&line.terms), [("account", Operator::Set, "physics")]);
        assert_eq!(
            terms(&line.set),
            [("QOS", Operator::Add, "capped,high"), ("Fairshare", Operator::Set, "3")]
        );
        let line = read("add qos high,low Priority=1000 MaxTRESPerUser=gres/gpu=4").expect("right");
        assert_eq!(line.names, ["high", "low"]);
        assert_eq!(
            terms(&line.terms),
            [("Priority", Operator::Set, "1000"), ("MaxTRESPerUser", Operator::Set, "gres/gpu=4")]
        );
        let line = read("list assoc withassoc tree format=user,qos%20").expect("right");
        assert_eq!(
            (line.entity, line.flags),
            (Entity::Association, vec!["withassoc".into(), "tree".into()])
        );
    }

    #[test]
    fn words_that_would_change_nothing_are_refused() {
        let flags = |text: &str| read(text).map(|line| line.flags);
        let taken = flags("show assoc onlydefaults wolimits Tree WithDeleted").expect("right");
        assert_eq!(taken, ["onlydefaults", "wolimits", "tree", "withdeleted"]);
        for (text, word) in [
            ("show qos tree", "tree"),
            ("show event withdeleted", "withdeleted"),
            ("show transactions WithAssoc", "WithAssoc"),
            ("show user all_clusters", "all_clusters"),
        ] {
            let error = flags(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!(" Unknown option: {word}\n")), "{error}");
        }
        // The name of somebody who is not listed but made.
        let line = read("add user tree account=physics").expect("right");
        assert_eq!((line.names, line.flags), (vec!["tree".to_owned()], Vec::new()));
    }

    #[test]
    fn a_change_of_another_cluster_is_refused_and_a_list_of_it_is_empty() {
        let is_elsewhere = |text: &str| read(text).expect("right").is_elsewhere("lab");
        assert!(is_elsewhere("show assoc cluster=other"));
        assert!(!is_elsewhere("show assoc cluster=other,Lab") && !is_elsewhere("show assoc"));
        let check = |text: &str| read(text).expect("right").check_cluster("lab");
        assert!(check("delete user alice").is_ok());
        assert!(check("delete user alice cluster=Lab").is_ok());
        let error = check("delete user where name=alice cluster=other").expect_err("not ours");
        assert_eq!(error.to_string(), "sacctmgr: error: Cluster=other: there is one cluster, lab");
    }

    #[test]
    fn an_unknown_verb_or_entity_is_refused() {
        let table = [
            ("bogus qos", "invalid keyword: bogus\nsacctmgr: note: expected one of show, list"),
            ("show bogus", "No valid entity in show command\nInput line must"),
            ("modify qos a set b", " Unknown option: b\n Use keyword"),
        ];
        for (text, said) in table {
            let error = read(text).expect_err(text).to_string();
            assert!(error.starts_with(said), "{text}: {error}");
        }
        let error = read("show bogus").expect_err("no entity").to_string();
        assert!(error.ends_with("\nsacctmgr: note: \"bogus\" is none of them"), "{error}");
        assert!(CommandLine::parse(&[]).is_err());
    }
}
