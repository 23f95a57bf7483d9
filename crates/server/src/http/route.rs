//! The routes of the API that Sluice's own commands use. Each needs a principal.

use crate::http::body_limits::{self, BodyLimits};
use crate::http::{backup, call, hold, logs, step_stream};
use crate::shared::Shared;
use axum::middleware;
use axum::routing::{MethodRouter, get, post};
use std::sync::Arc;
use wire::client::{BACKUP_PATH, CALL_PATH};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    Call,
    Hold,
    Logs,
    Step,
    Backup,
}

impl Route {
    pub const ALL: [Self; 5] = [Self::Call, Self::Hold, Self::Logs, Self::Step, Self::Backup];

    pub fn path(self) -> &'static str {
        match self {
            Self::Call => CALL_PATH,
            Self::Hold => "/api/v1/hold",
            Self::Logs => "/api/v1/logs",
            Self::Step => "/api/v1/step",
            Self::Backup => BACKUP_PATH,
        }
    }

    pub fn handler(self, bodies: &BodyLimits) -> MethodRouter<Arc<Shared>> {
        match self {
            Self::Call => post(call::call)
                .layer(middleware::from_fn_with_state(bodies.clone(), body_limits::read_whole)),
            Self::Hold => get(hold::hold),
            Self::Logs => get(logs::logs),
            Self::Step => get(step_stream::open),
            Self::Backup => get(backup::backup),
        }
    }
}
