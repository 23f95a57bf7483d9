//! The forms that have short forms or rules of their own, by subject. Each reader returns dstack's long form.

pub mod amount;
pub mod env;
pub mod mount;
pub mod network;
pub mod policy;
pub mod run;
