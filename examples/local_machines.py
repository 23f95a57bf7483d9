#!/usr/bin/env python3
"""A provider program for sluice: "machines" are agents on this machine, and disks are files of it (docs/machines.md).

It is asked once a process: a JSON object on standard input, one on standard output. What it may do is in a file beside it,
with the same name and the ending .json:

    {"sluice": "/usr/bin/sluice", "folder": "/var/lib/local-machines",
     "offers": [{"id": "small", "cpus": 1, "memory_mib": 500, "price": 0.36}]}

Every call may be made again: a token is one machine or disk, and what is not there is deleted already. A disk is attached as a loop
device, which root alone can make.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


class Refused(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def main():
    request = json.load(sys.stdin)
    settings = json.loads(Path(__file__).with_suffix(".json").read_text())
    folder = Path(settings["folder"])
    (folder / "machines").mkdir(parents=True, exist_ok=True)
    (folder / "volumes").mkdir(exist_ok=True)
    calls = {"offers": offers, "create": create, "describe": describe, "delete": delete}
    calls |= {"volume_create": volume_create, "volume_describe": volume_describe, "volume_delete": volume_delete}
    calls |= {"volume_attach": volume_attach, "volume_detach": volume_detach}
    with open(folder / "lock", "w") as lock:
        # Calls come at the same time, also of a server that was killed and one that was started since.
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if request.get("version") != 1 or request.get("call") not in calls:
                raise Refused("refused", "expected a call of version 1")
            answer = calls[request["call"]](request, settings, folder)
        except Refused as error:
            answer = {"error": {"kind": error.kind, "message": str(error)}}
    json.dump(answer, sys.stdout)


def offers(_request, settings, _folder):
    return {"offers": settings["offers"]}


def record_of(folder, token, kind="machines"):
    if "/" in token or token.startswith("."):
        raise Refused("refused", "a token is a plain name")
    return folder / kind / f"{token}.json"


def write(path, record):
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record))
    new.rename(path)


def note(folder, what, token):
    with open(folder / "log", "a") as log:
        log.write(f"{what} {token}\n")


def create(request, settings, folder):
    token = request["token"]
    if request["offer"] not in [offer["id"] for offer in settings["offers"]]:
        raise Refused("refused", f"{request['offer']}: no such offer")
    path = record_of(folder, token)
    if path.exists():
        record = json.loads(path.read_text())
    else:
        record = {"token": token, "id": f"local-{request['node']}", "cluster": request["cluster"], "pid": None}
        write(path, record)
        note(folder, "create", token)
    if record["pid"] is None:
        record["pid"] = start_agent(request, settings, folder)
        write(path, record)
    return {"machine": {"token": token, "id": record["id"]}}


def start_agent(request, settings, folder):
    state, join = folder / request["node"], folder / f"{request['node']}.join"
    with open(os.open(join, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(request["join"], file)
    command = [settings["sluice"], "agent", "--state", str(state), "--join", str(join)]
    command += ["--node", request["node"]]
    if request["conf"]:
        # Without it the node is one of slurm.conf.
        command += ["--dynamic", "--conf", request["conf"]]
    # As a service manager does: an agent that cannot join, as while the server is started again, is started once more.
    command = ["sh", "-c", 'until "$@"; do sleep 0.2; done', "agent", *command]
    with open(folder / f"{request['node']}.out", "a") as out:
        agent = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    return agent.pid


def describe(request, _settings, folder):
    records = [json.loads(path.read_text()) for path in (folder / "machines").glob("*.json")]
    ours = [record for record in records if record["cluster"] == request["cluster"]]
    return {"machines": [{"token": record["token"], "id": record["id"]} for record in ours]}


def is_running(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return ") Z " not in stat


def delete(request, _settings, folder):
    path = record_of(folder, request["token"])
    if path.exists():
        pid = json.loads(path.read_text())["pid"]
        if pid is not None:
            stop(pid)
        note(folder, "delete", request["token"])
        path.unlink()
    return {"deleted": True}


def volume_create(request, _settings, folder):
    token = request["token"]
    if request["volume_id"] is not None:
        raise Refused("refused", f"{request['volume_id']}: no disk is here that was not made here")
    path = record_of(folder, token, "volumes")
    if not path.exists():
        with open(path.with_suffix(".disk"), "wb") as disk:
            disk.truncate(request["size_gb"] << 30)
        record = {"token": token, "id": f"disk-{token}", "size_gb": request["size_gb"], "cluster": request["cluster"]}
        write(path, record)
    record = json.loads(path.read_text())
    return {"volume": {key: record[key] for key in ("token", "id", "size_gb")}}


def volume_describe(request, _settings, folder):
    records = [json.loads(path.read_text()) for path in (folder / "volumes").glob("*.json")]
    ours = [record for record in records if record["cluster"] == request["cluster"]]
    return {"volumes": [{"token": record["token"], "id": record["id"]} for record in ours]}


def losetup(*words):
    done = subprocess.run(["losetup", *words], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused("refused", f"losetup: {done.stderr.strip()}")
    return done.stdout.split()


def loop_devices(path):
    disk = os.path.realpath(path.with_suffix(".disk"))
    files = Path("/sys/block").glob("loop*/loop/backing_file")
    return [f"/dev/{file.parts[3]}" for file in files if file.read_text().strip() == disk]


def volume_attach(request, _settings, folder):
    path = record_of(folder, request["token"], "volumes")
    if not path.exists():
        raise Refused("not_found", "there is no such disk")
    devices = loop_devices(path) or losetup("--find", "--show", str(path.with_suffix(".disk")))
    return {"devices": devices}


def volume_detach(request, _settings, folder):
    path = record_of(folder, request["token"], "volumes")
    for device in loop_devices(path) if path.exists() else []:
        losetup("--detach", device)
    return {"detached": True}


def volume_delete(request, settings, folder):
    path = record_of(folder, request["token"], "volumes")
    if path.exists():
        volume_detach(request, settings, folder)
        path.with_suffix(".disk").unlink(missing_ok=True)
        path.unlink()
    return {"deleted": True}


def stop(pid):
    deadline = time.monotonic() + 5
    kind = signal.SIGTERM
    while is_running(pid):
        try:
            os.killpg(pid, kind)
        except ProcessLookupError:
            return
        time.sleep(0.05)
        if time.monotonic() > deadline:
            kind = signal.SIGKILL


if __name__ == "__main__":
    main()
