"""Machines of a cloud for tests: each is an agent on this machine, started from the user data that it was made with.

FOLDER/control.json says what is the case, FOLDER/log.jsonl has every create and terminate, FOLDER/address the cloud's own address,
FOLDER/machines/ID.json the agent's process.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(sys.argv[1])
SLUICE = sys.argv[-1]
LOCK = threading.RLock()
MACHINES = {}  # id -> {"pid", "made", "taken"}
COUNT = [0]


def control():
    try:
        return json.loads((FOLDER / "control.json").read_text())
    except (OSError, ValueError):
        return {}


def note(what, **more):
    with LOCK, open(FOLDER / "log.jsonl", "a") as log:
        log.write(json.dumps({"at": int(time.time() * 1000), "what": what, **more}) + "\n")


def write_machine(id):
    path = FOLDER / "machines" / f"{id}.json"
    path.with_suffix(".new").write_text(json.dumps({"pid": MACHINES[id]["pid"]}))
    path.with_suffix(".new").rename(path)


def start(id, text):
    """Runs the user data as the machine would, with a systemd-run that stays in the foreground."""
    # A short name: sockets are below it.
    with LOCK:
        COUNT[0] += 1
        home = FOLDER / f"m{COUNT[0]}"
    home.mkdir()
    (home / "user-data").write_text(text)
    environment = {
        "PATH": f"{FOLDER / 'shim'}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "SLUICE_STATE": str(home / "s"),
        "TMPDIR": str(home),
        "HOME": str(home),
    }
    with open(home / "out", "w") as out:
        started = subprocess.Popen(
            ["sh", str(home / "user-data")],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=environment,
        )
    threading.Thread(target=started.wait, daemon=True).start()
    with LOCK:
        MACHINES[id] = {"pid": started.pid, "made": time.time(), "taken": None}
        write_machine(id)


def switch_off(id):
    with LOCK:
        machine = MACHINES.pop(id, None)
        if machine is None:
            return
        note("terminate", id=id)
        kill_tree(machine["pid"])
        (FOLDER / "machines" / f"{id}.json").unlink()


def interruption(id, take_back):
    """When the machine will be taken back, if a storm takes it: `take_back` is called some time after the machine was told first."""
    with LOCK:
        machine, storm = MACHINES.get(id), control().get("storm")
        if machine is None or storm is None or machine["made"] * 1000 > storm["before"]:
            return None
        if machine["taken"] is None:
            machine["taken"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 120))
            threading.Thread(target=take_back, args=(id, storm["after"]), daemon=True).start()
        return machine["taken"]


def kill_tree(pid):
    """All that the machine runs is gone with it: also what has a session of its own."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    doomed, found = [], [pid]
    while found:
        doomed += found
        found = [child for child, parent in parents.items() if parent in found]
    for one in doomed:
        try:
            os.kill(one, signal.SIGKILL)
        except OSError:
            pass


def address():
    return (FOLDER / "address").read_text()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))


def serve(handler):
    (FOLDER / "machines").mkdir()
    shim = FOLDER / "shim"
    shim.mkdir()
    (shim / "sluice").symlink_to(SLUICE)
    run = shim / "systemd-run"
    run.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nuntil "$@"; do sleep 0.2; done\n')
    run.chmod(0o755)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    (FOLDER / "address.new").write_text(f"127.0.0.1:{server.server_port}")
    (FOLDER / "address.new").rename(FOLDER / "address")
    server.serve_forever()
