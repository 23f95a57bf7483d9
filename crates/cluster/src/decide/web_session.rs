//! Commands about sessions of browsers. The server gives them when somebody signs in or out, by what it has verified.

use crate::authorise::{Act, authorise};
use crate::command::{Context, Decision};
use crate::event::Event;
use crate::state::State;
use crate::web_session::{ALL_MAX, OF_USER_MAX, WebSession};
use model::reason::Refusal;
use std::collections::HashSet;

impl State {
    /// Sessions that are over go with the next change, so that there are never many of them.
    pub(super) fn decide_web_sessions(
        &self,
        open: Option<&WebSession>,
        close: &[String],
        context: &Context,
    ) -> Result<Decision, Refusal> {
        authorise(self, &context.by, Act::Administer)?;
        // As many as somebody puts into one request.
        let close: HashSet<&String> = close.iter().collect();
        let is_over =
            |known: &WebSession| close.contains(&known.hash) || known.has_ended(context.now);
        let (mut over, lasting): (Vec<&WebSession>, Vec<&WebSession>) =
            self.web_sessions.values().partition(|known| is_over(known));
        if let Some(open) = open {
            let mut own: Vec<&WebSession> =
                lasting.iter().copied().filter(|known| known.who.uid == open.who.uid).collect();
            own.sort_by_key(|known| known.made);
            let surplus = (own.len() + 1).saturating_sub(OF_USER_MAX);
            over.extend(own.into_iter().take(surplus));
            if self.web_sessions.len() - over.len() >= ALL_MAX {
                return Err(Refusal::Other("too many browsers are signed in".into()));
            }
        }
        let closed = over.iter().map(|known| Event::WebSessionClosed { hash: known.hash.clone() });
        let mut events: Vec<Event> = closed.collect();
        events.extend(open.map(|open| Event::WebSessionOpened(Box::new(open.clone()))));
        Ok(events.into())
    }
}
