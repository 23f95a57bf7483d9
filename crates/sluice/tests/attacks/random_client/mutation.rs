//! Mutations of JSON: what is missing, too much, of another type, extreme, at a bound or beyond it, or broken as text.

use crate::harness::dice::Dice;
use model::bounds::{self, Unit};
use serde_json::{Map, Value, json};

/// Once in so many mutations a text or a list is about as large as its bound; most bounds are megabytes.
const LARGE_ONE_IN: u64 = 80;

/// One value of a tree is changed.
pub fn mutate(value: &mut Value, dice: &mut Dice) {
    let count = count_values(value);
    let at = dice.below(count as u64) as usize;
    let target = nth_value(value, &mut { at }).expect("a value of the tree");
    match (dice.below(6), &mut *target) {
        (0, Value::Object(fields)) => remove_field(fields, dice),
        (1, Value::Object(fields)) => add_field(fields, dice),
        (2, Value::Object(fields)) => rename_field(fields, dice),
        (0 | 1, Value::Array(items)) if !items.is_empty() => {
            let item = dice.pick(items).clone();
            let most = if dice.one_in(LARGE_ONE_IN) { item_count(dice) } else { 50 };
            items.extend(std::iter::repeat_n(item, most));
        }
        (2, Value::Array(items)) => items.clear(),
        (0 | 1, Value::Number(_)) => *target = extreme_number(dice),
        (0 | 1, Value::String(_)) => *target = Value::String(text(dice)),
        _ => *target = any_value(dice),
    }
}

/// One value of a tree becomes a text or a list about as large as a bound.
pub fn overgrow(value: &mut Value, dice: &mut Dice) {
    let at = dice.below(count_values(value) as u64) as usize;
    let target = nth_value(value, &mut { at }).expect("a value of the tree");
    *target = if dice.one_in(2) {
        Value::String("x".repeat(byte_count(dice)))
    } else {
        let item = std::mem::take(target);
        let most = 2 * bounds::REQUEST_BYTES.most / item.to_string().len();
        Value::Array(vec![item; item_count(dice).min(most)])
    };
}

/// The text of a value, broken somewhere once in a while.
pub fn to_text(value: &Value, dice: &mut Dice) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(value).expect("JSON");
    if !dice.one_in(6) {
        return bytes;
    }
    let at = dice.below(bytes.len() as u64) as usize;
    match dice.below(6) {
        0 => bytes.truncate(at),
        1 => bytes[at] = dice.next() as u8,
        2 => drop(bytes.splice(at..at, dice.bytes(8))),
        3 => {
            let depth = 1 + dice.below(100_000) as usize;
            let open = *dice.pick(b"[{");
            bytes.splice(at..at, std::iter::repeat_n(open, depth));
        }
        4 => {
            let whole = bytes.clone();
            bytes.extend(whole);
        }
        _ => bytes = nested(&bytes, dice.below(300) as usize),
    }
    bytes
}

fn nested(inner: &[u8], depth: usize) -> Vec<u8> {
    [&b"[".repeat(depth)[..], inner, &b"]".repeat(depth)].concat()
}

fn count_values(value: &Value) -> usize {
    1 + match value {
        Value::Object(fields) => fields.values().map(count_values).sum(),
        Value::Array(items) => items.iter().map(count_values).sum(),
        _ => 0,
    }
}

fn nth_value<'a>(value: &'a mut Value, at: &mut usize) -> Option<&'a mut Value> {
    if *at == 0 {
        return Some(value);
    }
    *at -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().find_map(|field| nth_value(field, at)),
        Value::Array(items) => items.iter_mut().find_map(|item| nth_value(item, at)),
        _ => None,
    }
}

fn key(fields: &Map<String, Value>, dice: &mut Dice) -> Option<String> {
    let keys: Vec<&String> = fields.keys().collect();
    (!keys.is_empty()).then(|| (*dice.pick(&keys)).clone())
}

fn remove_field(fields: &mut Map<String, Value>, dice: &mut Dice) {
    if let Some(key) = key(fields, dice) {
        fields.remove(&key);
    }
}

fn rename_field(fields: &mut Map<String, Value>, dice: &mut Dice) {
    if let Some(key) = key(fields, dice) {
        let value = fields.remove(&key).expect("a field");
        fields.insert(text(dice), value);
    }
}

fn add_field(fields: &mut Map<String, Value>, dice: &mut Dice) {
    // Fields that the program knows somewhere, and one that it knows nowhere.
    let names = [
        "name",
        "account",
        "qos",
        "comment",
        "dependency",
        "array",
        "with",
        "hold",
        "priority",
        "licenses",
        "time_limit",
        "begin",
        "deadline",
        "gres",
        "constraint",
        "nodes",
        "tasks",
        "uid",
        "role",
        "unknown",
    ];
    fields.insert((*dice.pick(&names)).to_owned(), any_value(dice));
}

fn any_value(dice: &mut Dice) -> Value {
    match dice.below(8) {
        0 => Value::Null,
        1 => json!(true),
        2 | 3 => extreme_number(dice),
        4 => Value::String(text(dice)),
        5 => json!([]),
        6 => json!({}),
        _ => json!([[0, u32::MAX], [u32::MAX, 0], [1, 1]]),
    }
}

fn extreme_number(dice: &mut Dice) -> Value {
    let numbers = [
        json!(0),
        json!(-1),
        json!(1),
        json!(u64::MAX),
        json!(i64::MAX),
        json!(i64::MIN),
        json!(u32::MAX),
        json!(u64::from(u32::MAX) + 1),
        json!(i32::MIN),
        json!(i32::MAX),
        json!(1e308),
        json!(-0.0),
        json!(0.5),
        json!(65_536),
        json!(1_u64 << 53),
        json!(i64::MAX / 1000),
        json!(u64::MAX / 2 + 1),
    ];
    dice.pick(&numbers).clone()
}

fn text(dice: &mut Dice) -> String {
    if dice.one_in(LARGE_ONE_IN) {
        return "x".repeat(byte_count(dice));
    }
    // No absolute paths: nothing of this machine is named.
    let texts = [
        "",
        " ",
        "x",
        "0",
        "-1",
        "18446744073709551616",
        "%j",
        "%s%n%x%",
        "null",
        "lab",
        "gpu",
        "node1",
        "rogue1",
        "node[1-99999999]",
        "[",
        "n[1-",
        "a,b,,c",
        "\0",
        "a\nb",
        "\u{1b}[2J",
        "\u{202e}",
        "é",
        "\u{10ffff}",
        "'; drop table jobs; --",
        "../..",
        "infinite",
        "4-00:00:00",
        "gpu:h100:99999999999999999999",
        "a&b|(c",
        "((((((((",
        "all",
        "normal",
        "window",
        "1970-01-01T00:00:00",
    ];
    (*dice.pick(&texts)).to_owned()
}

/// At a bound, or a byte or an item less or more, or twice as much.
fn around(bound: usize, dice: &mut Dice) -> usize {
    *dice.pick(&[bound - 1, bound, bound + 1, 2 * bound])
}

fn byte_count(dice: &mut Dice) -> usize {
    let bytes = bounds::ALL.iter().filter(|bound| bound.unit == Unit::Bytes);
    // What all jobs may hold together does not come in one request.
    let bytes: Vec<_> = bytes.filter(|bound| bound.most <= bounds::REQUEST_BYTES.most).collect();
    around(dice.pick(&bytes).most, dice)
}

fn item_count(dice: &mut Dice) -> usize {
    let items: Vec<_> = bounds::ALL.iter().filter(|bound| bound.unit == Unit::Items).collect();
    // The ranges of an array have the largest bound of all, and one of them is twelve bytes.
    around(dice.pick(&items).most, dice).min(200_000)
}
