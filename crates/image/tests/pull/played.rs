//! A registry that is played: it serves what it is given, and each test may answer differently.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use super::made::Made;

#[derive(Debug, Clone)]
pub struct Request {
    pub path: String,
    pub authorisation: Option<String>,
    /// The first byte that a `Range` asks for.
    pub from: Option<u64>,
}

#[derive(Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Only so many bytes of the body are sent.
    pub cut: Option<usize>,
    /// After what is sent the connection stays open, silent.
    pub hang: bool,
}

impl Reply {
    pub fn ok(body: &[u8]) -> Self {
        Self { status: 200, body: body.to_vec(), ..Default::default() }
    }

    pub fn status(status: u16) -> Self {
        Self { status, ..Default::default() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

pub struct Played {
    pub host: String,
    pub log: Arc<Mutex<Vec<Request>>>,
}

type Answer = dyn Fn(&Request) -> Reply + Send + Sync;

impl Played {
    /// Serves an image under any name and tag.
    pub fn serving(made: &Made) -> Self {
        let made = made.clone();
        Self::new(move |request| serve(&made, request))
    }

    pub fn new(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::over(None, answer)
    }

    /// Speaks TLS where a configuration is given.
    pub fn over(
        tls: Option<Arc<rustls::ServerConfig>>,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer): (_, Arc<Answer>) = (log.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (seen, answer, tls) = (seen.clone(), answer.clone(), tls.clone());
                std::thread::spawn(move || match tls {
                    None => converse(stream, &seen, &*answer),
                    Some(tls) => {
                        let connection = rustls::ServerConnection::new(tls).unwrap();
                        converse(rustls::StreamOwned::new(connection, stream), &seen, &*answer);
                    }
                });
            }
        });
        Self { host, log }
    }

    pub fn requests(&self, part: &str) -> Vec<Request> {
        self.log.lock().unwrap().iter().filter(|r| r.path.contains(part)).cloned().collect()
    }
}

pub fn serve(made: &Made, request: &Request) -> Reply {
    if request.path.contains("/manifests/") {
        return Reply::ok(&made.manifest);
    }
    let Some(blob) = request.path.rsplit('/').next().and_then(|digest| made.blobs.get(digest))
    else {
        return Reply::status(404);
    };
    match request.from {
        Some(from) if (from as usize) < blob.len() => {
            let range = format!("bytes {from}-{}/{}", blob.len() - 1, blob.len());
            let mut reply = Reply::ok(&blob[from as usize..]).header("Content-Range", &range);
            reply.status = 206;
            reply
        }
        Some(_) => Reply::status(416),
        None => Reply::ok(blob),
    }
}

fn converse(mut stream: impl Read + Write, log: &Mutex<Vec<Request>>, answer: &Answer) {
    let mut reader = BufReader::new(&mut stream);
    let mut line = String::new();
    match reader.read_line(&mut line) {
        Ok(0) => return,
        Ok(_) => {}
        // TLS is spoken to it: it answers as other servers do.
        Err(_) => return drop(stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut request = Request { path, authorisation: None, from: None };
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).unwrap_or(0) == 0 || header.trim().is_empty() {
            break;
        }
        let (name, value) = header.trim().split_once(": ").unwrap();
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.authorisation = Some(value.to_owned()),
            "range" => {
                request.from =
                    value.strip_prefix("bytes=").and_then(|v| v.trim_end_matches('-').parse().ok())
            }
            _ => {}
        }
    }
    log.lock().unwrap().push(request.clone());
    let reply = answer(&request);
    if reply.status == 0 {
        std::thread::park();
    }
    let mut head = format!(
        "HTTP/1.1 {} x\r\nConnection: close\r\nContent-Length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&reply.body[..reply.cut.unwrap_or(reply.body.len())]);
    let _ = stream.flush();
    if reply.hang {
        std::thread::park();
    }
}
