//! What a request takes a place of a replica for. Those that may hold one for long without any work for the replica have a part of its
//! places alone, and leave the rest to others.

/// WebSockets have one of so many parts of a replica's places, and requests whose bodies are still on their way.
const WEBSOCKET_PART: usize = 2;
const UPLOAD_PART: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceUse {
    /// All of the request is there: how long it takes is the replica's to say.
    Whole,
    /// Its body is on its way, as fast as its client sends it.
    Upload,
    /// It becomes a WebSocket, which may be idle.
    WebSocket,
}

impl PlaceUse {
    /// That of a request which asks for a WebSocket or not, and of which more is to come or not.
    pub fn of(upgrades: bool, is_under_way: bool) -> Self {
        match (upgrades, is_under_way) {
            (true, _) => Self::WebSocket,
            (false, true) => Self::Upload,
            (false, false) => Self::Whole,
        }
    }

    /// How many of a replica's places may be held for this at once.
    pub fn most(self, places: usize) -> usize {
        match self {
            Self::Whole => places,
            Self::Upload => places / UPLOAD_PART,
            Self::WebSocket => places / WEBSOCKET_PART,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_uses_together_leave_places_to_whole_requests() {
        for places in [4, 240, 1024] {
            let slow = PlaceUse::Upload.most(places) + PlaceUse::WebSocket.most(places);
            assert!(slow < PlaceUse::Whole.most(places), "{places}");
        }
    }
}
