//! A proxy that connects its clients to what they name (`CONNECT`), as sites have at their border.

use super::relay::in_namespace;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

pub struct ConnectProxy {
    /// The request line and the headers of each connection, in order.
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl ConnectProxy {
    /// Listens at `at` in one network namespace, and connects from another, until the test's process ends. Who does not bring
    /// `login`, in the form of `Basic`, is refused.
    pub fn start(from: &Path, at: &str, through: &Path, login: &str) -> Self {
        let listener = in_namespace(from, || TcpListener::bind(at).expect("the proxy listens"));
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let proxy = Self { asked: asked.clone() };
        let (through, login) = (through.to_path_buf(), login.to_owned());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let (through, login, asked) = (through.clone(), login.clone(), asked.clone());
                std::thread::spawn(move || serve(client, &through, &login, &asked));
            }
        });
        proxy
    }

    /// The servers that were asked for.
    pub fn targets(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter_map(|text| text.split_whitespace().nth(1).map(str::to_owned)).collect()
    }
}

fn serve(client: TcpStream, through: &Path, login: &str, asked: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(client.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
    }
    asked.lock().unwrap().push(head.clone());
    let mut answer = client.try_clone().unwrap();
    if !head.contains(&format!("Proxy-Authorization: Basic {login}\r\n")) {
        let _ = answer.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
        return;
    }
    let target = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let Ok(server) = in_namespace(through, || TcpStream::connect(target.as_str())) else {
        let _ = answer.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n");
        return;
    };
    let _ = answer.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n");
    let mut up = server.try_clone().unwrap();
    let mut back = server;
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut reader, &mut up);
        let _ = up.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut back, &mut answer);
    let _ = answer.shutdown(Shutdown::Both);
}
