//! The bounds of a client's call: every text and list in it is held to its row of `model::bounds`, by the name of its field.
//!
//! The check reads the JSON and not the types: a field that is added to a call has the bounds of any text and any list.

use model::bounds::{self, Bound};
use model::reason::Refusal;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;

/// The rows of fields that have bounds of their own; they hold for all that is within the field.
struct FieldBounds {
    fields: &'static [&'static str],
    text: Bound,
    list: Bound,
    /// Whether its texts count to all texts of a request.
    counted: bool,
    /// Whether a user chooses the names within it: a variable called `script` is no script.
    has_free_names: bool,
}

const ANY: FieldBounds = FieldBounds {
    fields: &[],
    text: bounds::TEXT_BYTES,
    list: bounds::LIST_ITEMS,
    counted: true,
    has_free_names: false,
};

const FIELDS: &[FieldBounds] = &[
    FieldBounds { fields: &["script"], text: bounds::SCRIPT_BYTES, counted: false, ..ANY },
    FieldBounds {
        fields: &["environment"],
        text: bounds::ENVIRONMENT_BYTES,
        counted: false,
        ..ANY
    },
    FieldBounds {
        fields: &["argv", "arguments", "programs", "format"],
        text: bounds::ARGUMENT_BYTES,
        counted: false,
        ..ANY
    },
    // Commands, variables and tags in a configuration that dstack's client sends.
    FieldBounds { fields: &["commands", "init"], text: bounds::ARGUMENT_BYTES, ..ANY },
    FieldBounds { fields: &["env"], text: bounds::ARGUMENT_BYTES, has_free_names: true, ..ANY },
    FieldBounds { fields: &["tags"], has_free_names: true, ..ANY },
    FieldBounds { fields: &["runs_names", "runs"], list: bounds::RUN_NAMES, ..ANY },
    // Each is compared with every project, and with every event of a page.
    FieldBounds {
        fields: &[
            "target_projects",
            "target_users",
            "target_fleets",
            "target_instances",
            "target_runs",
            "target_jobs",
            "target_volumes",
            "target_gateways",
            "target_secrets",
            "within_projects",
            "within_fleets",
            "within_runs",
            "include_target_types",
            "actors",
        ],
        list: bounds::EVENT_IDS,
        ..ANY
    },
    FieldBounds { fields: &["config_yaml"], text: bounds::BACKEND_BYTES, ..ANY },
    FieldBounds { fields: &["secret_variables"], list: bounds::SECRET_VARIABLES, ..ANY },
    FieldBounds { fields: &["name"], text: bounds::JOB_NAME_BYTES, ..ANY },
    FieldBounds { fields: &["comment", "admin_comment"], text: bounds::COMMENT_BYTES, ..ANY },
    FieldBounds { fields: &["submit_line"], text: bounds::SUBMIT_LINE_BYTES, ..ANY },
    FieldBounds { fields: &["files"], text: bounds::CONFIGURATION_BYTES, counted: false, ..ANY },
    // What a run brings along, in base 64; beside it in `files` is where it belongs.
    FieldBounds {
        fields: &["archive", "diff"],
        text: bounds::WORKSPACE_BYTES,
        counted: false,
        ..ANY
    },
    FieldBounds { fields: &["path"], ..ANY },
    FieldBounds { fields: &["array", "tasks", "indices"], list: bounds::ARRAY_RANGES, ..ANY },
    FieldBounds { fields: &["dependency"], list: bounds::DEPENDENCY_ITEMS, ..ANY },
    // Limits of a QOS and of an association: kinds of resources.
    FieldBounds {
        fields: &[
            "group_tres",
            "group_tres_minutes",
            "group_tres_run_minutes",
            "max_tres_per_job",
            "max_tres_per_node",
            "max_tres_minutes_per_job",
            "max_tres_per_user",
            "max_tres_per_account",
            "min_tres_per_job",
        ],
        list: bounds::LIMITED_KINDS,
        ..ANY
    },
];

/// Refuses a call of which a text or a list is beyond its bound. What is not JSON passes: reading the call refuses it.
///
/// What is JSON to a reader that skips a value and not to one that reads it (a number or a depth beyond all bounds, half a character)
/// is refused here: the check would end at it, and the reader of the call would skip it in a field that it does not know, and read on.
pub fn check(body: &[u8]) -> Result<(), Refusal> {
    let sums = Sums::default();
    let mut reader = serde_json::Deserializer::from_slice(body);
    let read = Value { bounds: &ANY, field: "", sums: &sums }.deserialize(&mut reader);
    match (sums.refusal.into_inner(), read) {
        (Some(refusal), _) => Err(refusal),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => Err(Refusal::Other(format!("the call cannot be read: {error}"))),
            Err(_) => Ok(()),
        },
    }
}

/// What was counted so far, and the first bound that was passed.
#[derive(Default)]
struct Sums {
    text_bytes: Cell<usize>,
    refusal: RefCell<Option<Refusal>>,
}

/// Any value within a field.
#[derive(Clone, Copy)]
struct Value<'a> {
    bounds: &'static FieldBounds,
    field: &'a str,
    sums: &'a Sums,
}

impl Value<'_> {
    fn hold<E: Error>(&self, bound: Bound, found: usize) -> Result<(), E> {
        if found <= bound.most {
            return Ok(());
        }
        let what = if self.field.is_empty() { bound.what } else { self.field };
        *self.sums.refusal.borrow_mut() = Some(Refusal::InvalidValue {
            what: what.to_string(),
            value: format!("{found} {}", bound.unit.word()),
            expected: format!("at most {} {}", bound.most, bound.unit.word()),
        });
        Err(E::custom("beyond a bound"))
    }

    fn text<E: Error>(&self, text: &str) -> Result<(), E> {
        self.hold(self.bounds.text, text.len())?;
        if self.bounds.counted {
            let sum = self.sums.text_bytes.get() + text.len();
            self.sums.text_bytes.set(sum);
            let all = Value { field: "", ..*self };
            all.hold(bounds::REQUEST_TEXT_BYTES, sum)?;
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.text(text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut count = 0;
        while items.next_element_seed(self)?.is_some() {
            count += 1;
            self.hold(self.bounds.list, count)?;
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut count = 0;
        while let Some(name) = entries.next_key_seed(Name)? {
            count += 1;
            self.hold(self.bounds.list, count)?;
            self.text(&name)?;
            let has_row = |row: &&FieldBounds| row.fields.contains(&&*name);
            let own = FIELDS.iter().find(has_row).filter(|_| !self.bounds.has_free_names);
            let bounds = own.unwrap_or(self.bounds);
            entries.next_value_seed(Value { bounds, field: &name, sums: self.sums })?;
        }
        Ok(())
    }
}

/// The name of a field. It is a part of the body where it has no escapes: a body has many of them.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a field")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::account::{AssociationLimits, Qos};

    fn refusal(body: &serde_json::Value) -> Option<String> {
        let refused = check(body.to_string().as_bytes()).err()?.to_string();
        assert_eq!(refused.lines().count(), 1, "{refused}");
        Some(refused)
    }

    /// A call with this value in this field, somewhere below the top.
    fn call(field: &str, value: impl Into<serde_json::Value>) -> serde_json::Value {
        let mut inner = serde_json::Map::new();
        inner.insert(field.into(), value.into());
        serde_json::json!({"version": 1, "call": {"any": [1, null, inner, true, 1.5, -1]}})
    }

    #[test]
    fn text_at_its_bound_passes_and_one_byte_more_is_refused_by_its_name() {
        let rows = FIELDS.iter().flat_map(|row| row.fields.iter().map(move |f| (*f, row.text)));
        for (field, bound) in rows.chain([("new_field", bounds::TEXT_BYTES)]) {
            assert_eq!(refusal(&call(field, "x".repeat(bound.most))), None, "{field}");
            let said = refusal(&call(field, "x".repeat(bound.most + 1))).expect(field);
            assert!(said.contains(field) && said.contains("at most"), "{said}");
        }
    }

    #[test]
    fn lists_and_the_sum_of_texts_have_bounds() {
        let list = |n: usize| vec![serde_json::Value::from(1); n];
        assert_eq!(refusal(&call("jobs", list(bounds::LIST_ITEMS.most))), None);
        assert!(refusal(&call("jobs", list(bounds::LIST_ITEMS.most + 1))).is_some());
        assert!(refusal(&call("dependency", list(bounds::DEPENDENCY_ITEMS.most + 1))).is_some());
        assert_eq!(refusal(&call("within_projects", list(bounds::EVENT_IDS.most))), None);
        assert!(refusal(&call("within_projects", list(bounds::EVENT_IDS.most + 1))).is_some());
        let texts = |n: usize| vec![serde_json::Value::from("x".repeat(16 << 10)); n];
        assert_eq!(refusal(&call("nodes", texts(63))), None);
        let said = refusal(&call("nodes", texts(65))).expect("a refusal");
        assert!(said.contains("all texts of a request"), "{said}");
        // What travels as blobs or in orders has its own bounds.
        assert_eq!(refusal(&call("argv", texts(65))), None);
    }

    #[test]
    fn every_limit_of_a_qos_and_of_an_association_names_a_bounded_number_of_kinds() {
        let qos = serde_json::to_value(Qos::named("q")).expect("JSON");
        let association = serde_json::to_value(AssociationLimits::default()).expect("JSON");
        let fields = [&qos, &association].into_iter().filter_map(|one| one.as_object()).flatten();
        let limits = fields.filter(|(_, value)| value.is_object());
        let kinds = |count: usize| -> serde_json::Map<String, serde_json::Value> {
            (0..count).map(|n| (format!("license/{n}"), 1.into())).collect()
        };
        let most = bounds::LIMITED_KINDS.most;
        let mut found = 0;
        for (field, _) in limits {
            assert_eq!(refusal(&call(field, kinds(most))), None, "{field}");
            assert!(refusal(&call(field, kinds(most + 1))).is_some(), "{field}");
            found += 1;
        }
        assert!(found > 0, "limits are written as objects");
    }

    #[test]
    fn texts_of_a_workspace_beside_its_archives_are_texts_as_any() {
        let long = "x".repeat(bounds::TEXT_BYTES.most + 1);
        for field in ["url", "path", "branch", "hash", "user_name", "user_email"] {
            let repository = serde_json::json!({"repository": {field: long, "diff": long}});
            let said = refusal(&call("workspace", repository)).expect(field);
            assert!(said.contains(field), "{said}");
        }
        let file = |path: &str| serde_json::json!({"files": [{"path": path, "archive": long}]});
        assert_eq!(refusal(&call("workspace", file("a"))), None);
        assert!(refusal(&call("workspace", file(&long))).is_some_and(|said| said.contains("path")));
        let python = serde_json::json!({"python": long});
        assert!(refusal(&call("workspace", python)).is_some());
    }

    #[test]
    fn names_that_a_user_chooses_lift_no_bound() {
        for (field, bound) in [("env", bounds::ARGUMENT_BYTES), ("tags", bounds::TEXT_BYTES)] {
            for name in ["script", "environment", "files", "archive", "any"] {
                let with = |bytes: usize| {
                    let value = serde_json::json!({ name: "x".repeat(bytes) });
                    refusal(&call(field, value))
                };
                assert_eq!(with(bound.most), None, "{field} {name}");
                assert!(with(bound.most + 1).is_some(), "{field} {name}");
            }
        }
    }

    #[test]
    fn field_is_known_by_its_name_also_where_that_is_written_with_escapes() {
        let long = "x".repeat(bounds::JOB_NAME_BYTES.most + 1);
        let body = format!("{{\"n\\u0061me\": \"{long}\"}}");
        let said = check(body.as_bytes()).expect_err("beyond its bound").to_string();
        assert!(said.contains("name"), "{said}");
    }

    #[test]
    fn what_is_no_json_passes_to_the_reader_that_refuses_it() {
        assert!(check(b"{").is_ok());
        assert!(check(b"").is_ok());
    }

    #[test]
    fn value_that_a_reader_skips_without_reading_it_hides_nothing_behind_it() {
        let long = "x".repeat(bounds::REQUEST_TEXT_BYTES.most + 1);
        let deep = "[".repeat(200) + &"]".repeat(200);
        for skipped in ["1e999", "-1e999", r#""\ud800""#, deep.as_str()] {
            for body in [
                format!(r#"{{"unknown": {skipped}, "comment": "{long}"}}"#),
                format!(r#"{{"list": [{{"unknown": {skipped}}}, "{long}"]}}"#),
            ] {
                // As a call's own reader does with a field that it does not know.
                assert!(serde_json::from_str::<IgnoredAny>(&body).is_ok(), "{skipped:.20}");
                let said = check(body.as_bytes()).expect_err(skipped).to_string();
                assert!(said.starts_with("the call cannot be read: "), "{said}");
            }
        }
        let begin = b"{\"unknown\": \"\xff\", \"name\": \"".as_slice();
        let bytes = [begin, long.as_bytes(), b"\"}".as_slice()].concat();
        assert!(check(&bytes).is_err(), "a byte that is no character");
    }

    #[test]
    fn every_bound_is_a_row_of_the_documents() {
        let text = include_str!("../../../../docs/limits.md");
        for bound in bounds::ALL {
            let slurm = if bound.slurm.is_empty() { "none" } else { bound.slurm };
            let row =
                format!("| {} | {} {} | {slurm} |", bound.what, bound.most, bound.unit.word());
            assert!(text.lines().any(|line| line == row), "missing: {row}");
        }
    }
}
