//! TCP connections in a job's network over one pair of byte streams: between the server's SSH endpoint and a program of
//! Sluice's own that runs as a step of the job.
//!
//! Frames (`frame.rs`): control messages as JSON, and data behind the number of its connection. Each direction of a
//! connection has a window (`stream.rs`), so that one that is not read holds up no other.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// The largest payload of a frame.
pub const PAYLOAD_MAX: usize = 64 << 10;
/// The most bytes of data in a frame.
pub const DATA_MAX: usize = 32 << 10;

/// Sockets of a server that are named: each process of a server may have one of its own.
pub const SERVER_SOCKETS_MAX: usize = 64;

/// Numbers of connections that the program has accepted begin here.
pub const ACCEPTED_FIRST: u32 = 1 << 31;

pub mod channel {
    pub const CONTROL: u8 = 0;
    /// The connection's number, 4 bytes little-endian, then the data.
    pub const DATA: u8 = 1;
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToForwarder {
    Connect {
        connection: u32,
        host: String,
        port: u16,
        /// Only a server of the job's own is to have the connection.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        of_job: bool,
    },
    Listen {
        listener: u32,
        host: String,
        port: u16,
    },
    /// Listen at a socket of the job's user for the client's agent of keys.
    ListenForAgent {
        listener: u32,
    },
    StopListening {
        listener: u32,
    },
    /// No more data comes on this connection.
    End {
        connection: u32,
    },
    /// Nobody reads or writes this connection any more.
    Close {
        connection: u32,
    },
    Credit {
        connection: u32,
        bytes: u32,
    },
}

/// A server of a job's own, as the kernel's lists of sockets have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnServer {
    /// Where it listens: an address, or `0.0.0.0` or `::` for all of a family.
    pub address: IpAddr,
    /// The inodes of its sockets that listen there, of as many as `SERVER_SOCKETS_MAX`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromForwarder {
    Connected {
        connection: u32,
        /// Where only a server of the job's own was to have it: that server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<OwnServer>,
    },
    /// It was not made, or it broke.
    Failed {
        connection: u32,
        why: String,
    },
    Listening {
        listener: u32,
        port: u16,
    },
    ListeningForAgent {
        listener: u32,
        /// The path of the agent's socket in the job.
        path: String,
    },
    NotListening {
        listener: u32,
        why: String,
    },
    /// A connection to an agent's socket has no host and no port.
    Accepted {
        listener: u32,
        connection: u32,
        host: String,
        port: u16,
    },
    End {
        connection: u32,
    },
    Credit {
        connection: u32,
        bytes: u32,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_names() {
        let connect = |of_job| ToForwarder::Connect {
            connection: 1,
            host: "localhost".into(),
            port: 80,
            of_job,
        };
        let json = r#"{"connect":{"connection":1,"host":"localhost","port":80}}"#;
        assert_eq!(serde_json::to_string(&connect(false)).unwrap(), json);
        let json = r#"{"connect":{"connection":1,"host":"localhost","port":80,"of_job":true}}"#;
        assert_eq!(serde_json::to_string(&connect(true)).unwrap(), json);
        let failed = FromForwarder::Failed { connection: 1, why: "refused".into() };
        let json = r#"{"failed":{"connection":1,"why":"refused"}}"#;
        assert_eq!(serde_json::from_str::<FromForwarder>(json).unwrap(), failed);
        let connected = |server| FromForwarder::Connected { connection: 1, server };
        let json = r#"{"connected":{"connection":1}}"#;
        assert_eq!(serde_json::from_str::<FromForwarder>(json).unwrap(), connected(None));
        let server = OwnServer { address: "0.0.0.0".parse().unwrap(), sockets: vec![7] };
        let json = r#"{"connected":{"connection":1,"server":{"address":"0.0.0.0","sockets":[7]}}}"#;
        assert_eq!(serde_json::to_string(&connected(Some(server))).unwrap(), json);
        let agent = ToForwarder::ListenForAgent { listener: 1 };
        let json = r#"{"listen_for_agent":{"listener":1}}"#;
        assert_eq!(serde_json::to_string(&agent).unwrap(), json);
        let there = FromForwarder::ListeningForAgent { listener: 1, path: "/tmp/a".into() };
        let json = r#"{"listening_for_agent":{"listener":1,"path":"/tmp/a"}}"#;
        assert_eq!(serde_json::from_str::<FromForwarder>(json).unwrap(), there);
    }
}
