//! The options of a `squeue` listing. With them a server answers with the lines themselves, so that ten thousand views
//! need not travel and be read only to become text.

use serde::{Deserialize, Serialize};

/// What a listing looks like.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListingOptions {
    /// `-o`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// `-O`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_format: Option<String>,
    /// `-S`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<String>,
    pub no_header: bool,
    /// `-l`
    pub long: bool,
    /// `-s`
    pub steps: bool,
    /// `--start`
    pub start: bool,
    /// `-r`: every pending task of an array on its own line.
    pub expand_arrays: bool,
    /// `-P`: by priority alone.
    pub by_priority: bool,
    /// `-i`: the time stands above each of many listings.
    pub repeated: bool,
}

/// Asks for lines instead of views.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingQuery {
    pub options: ListingOptions,
    /// The client's time zone: a name, an offset, or a rule as in `TZ`.
    pub zone: String,
}
