//! The web server that jobs and replicas of services run in these tests.

/// A program that answers GET with what it was asked, echoes the bodies of POST, and echoes the bytes of an upgraded connection. Requests
/// for `/never` are counted in a file, read, and never answered; `/events`, and a chat completion that is to be streamed, are two events, of which the second is
/// sent once the file `arrived` is there. Completions below `/loading` are refused until the file `loaded` is there, and the last that was
/// is in the file `asked`. It is
/// at the port of its argument, which replicas on this machine share; without one at any, which it writes to the file `port`.
pub const WEB_SERVER: &str = r#"
import http.server, os, socket, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *args): pass
    def never_answer(self):
        with open("never.count", "a") as file: file.write("x")
        while self.rfile.read1(65536): pass
        self.close_connection = True
    def send_events(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        def send(data): self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        send(b"data: first\n\n")
        while not os.path.exists("arrived"): time.sleep(0.01)
        send(b"data: second\n\n")
        send(b"")
    def do_GET(self):
        if self.path == "/events":
            self.send_events()
            return
        if self.path == "/never":
            self.never_answer()
            return
        if self.headers.get("Upgrade"):
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", self.headers["Upgrade"])
            self.end_headers()
            while (data := self.connection.recv(65536)):
                self.connection.sendall(data)
            self.close_connection = True
            return
        if self.path == "/health" and not os.path.exists("healthy"):
            self.send_error(503)
            return
        if self.path == "/slow":
            time.sleep(0.5)
        text = self.path + "\n" + "".join(f"{k.lower()}: {v}\n" for k, v in self.headers.items())
        if self.path == "/away":
            self.send_response(302)
            self.send_header("Location", "/there")
            text = ""
        else:
            self.send_response(200)
            self.send_header("Set-Cookie", "own=1; Path=/")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_POST(self):
        if self.path == "/never":
            self.never_answer()
            return
        length = int(self.headers["Content-Length"])
        asked = self.rfile.read(length) if self.path.endswith("/chat/completions") else b""
        if self.path.startswith("/loading/") and not os.path.exists("loaded"):
            with open("asked.new", "wb") as file: file.write(asked)
            os.rename("asked.new", "asked")
            self.send_error(503)
            return
        if b'"stream": true' in asked:
            self.send_events()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(length))
        self.send_header("X-Path", self.path)
        self.end_headers()
        self.wfile.write(asked)
        length -= len(asked)
        while length:
            data = self.rfile.read(min(length, 65536))
            length -= len(data)
            self.wfile.write(data)
class Server(http.server.ThreadingHTTPServer):
    def server_bind(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        super().server_bind()
port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
server = Server(("127.0.0.1", port), Handler)
if port == 0:
    with open("port.new", "w") as file: file.write(str(server.server_port))
    os.rename("port.new", "port")
server.serve_forever()
"#;
