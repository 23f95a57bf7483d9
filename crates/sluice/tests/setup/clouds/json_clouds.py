#!/usr/bin/env python3
"""Google Compute Engine and Lambda Cloud for tests: the calls of their documents that a source of machines makes.

    json_clouds.py FOLDER SLUICE     FOLDER/key.pub: the public half of the service account's key, as OpenSSH writes it
"""

import base64
import hashlib
import json
import re
import time
import urllib.parse

from machine_host import FOLDER, LOCK, MACHINES, Handler, address, control, interruption, note, serve, start, switch_off

TYPES = [
    {"name": "e2-small", "guestCpus": 2, "memoryMb": 2048, "architecture": "X86_64"},
    {"name": "e2-medium", "guestCpus": 2, "memoryMb": 4096, "architecture": "X86_64"},
    {"name": "t2a-standard-1", "guestCpus": 1, "memoryMb": 4096, "architecture": "ARM64"},
]
LAMBDA_TYPES = {
    "cpu_4x_general": {
        "instance_type": {
            "name": "cpu_4x_general",
            "price_cents_per_hour": 720,
            "gpu_description": "N/A",
            "specs": {"vcpus": 4, "memory_gib": 4, "storage_gib": 10, "gpus": 0},
        },
        "regions_with_capacity_available": [{"name": "us-west-1", "description": "California, USA"}],
    }
}
SUBNETWORKS = [
    {"name": name, "network": f"https://www.googleapis.com/compute/v1/projects/net/global/networks/{network}"}
    for name, network in (("lab-b", "lab"), ("aside", "other"), ("lab-a", "lab"))
]
INSTANCES = {}  # of Google, by name
DISKS = {}  # of Google, by name
OPERATIONS = {}  # by name
REQUESTS = {}  # requestId -> the name of its operation
LAMBDAS = {}  # id -> name
LAUNCHES = [0]
THROTTLED = [0]


class Fault(Exception):
    def __init__(self, status, body):
        super().__init__(status)
        self.status, self.body = status, body


def decoded(text):
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def public_key():
    """The exponent and the modulus of the service account's key."""
    blob = base64.b64decode((FOLDER / "key.pub").read_text().split()[1])
    parts = []
    while blob:
        length = int.from_bytes(blob[:4], "big")
        parts.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return int.from_bytes(parts[1], "big"), int.from_bytes(parts[2], "big")


def access_token(form):
    """Checks the signed statement as Google does: RS256 by the account's key, for a time that is now."""
    head, claims, signature = form["assertion"].split(".")
    exponent, modulus = public_key()
    size = (modulus.bit_length() + 7) // 8
    padded = pow(int.from_bytes(decoded(signature), "big"), exponent, modulus).to_bytes(size, "big")
    digest = hashlib.sha256(f"{head}.{claims}".encode()).digest()
    expected = bytes.fromhex("3031300d060960864801650304020105000420") + digest
    expected = b"\0\1" + b"\xff" * (size - len(expected) - 3) + b"\0" + expected
    claims = json.loads(decoded(claims))
    is_known = claims["iss"] == "lab@test.iam.gserviceaccount.com"
    is_now = claims["iat"] - 60 <= time.time() <= claims["exp"] <= claims["iat"] + 3600
    if padded != expected or not is_known or not is_now:
        raise Fault(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
    return {"access_token": "gcp-token", "expires_in": 3600, "token_type": "Bearer"}


def refusal(status, reason):
    message = f"The request was refused: {reason}"
    return Fault(status, {"error": {"code": status, "message": message, "errors": [{"reason": reason}]}})


def operation(status="DONE", error=None):
    name = f"operation-{len(OPERATIONS)}"
    OPERATIONS[name] = {"name": name, "status": status}
    if error:
        OPERATIONS[name]["error"] = {"errors": [{"code": error, "message": "none is left"}]}
    return OPERATIONS[name]


def google(method, zone, path, query, body):
    if zone != "us-central1-a":
        raise refusal(404, "notFound")
    if path == "machineTypes":
        # One at a time: there are pages.
        at = int(query.get("pageToken", 0))
        more = {"nextPageToken": str(at + 1)} if at + 1 < len(TYPES) else {}
        return {"items": TYPES[at : at + 1], **more}
    if path == "instances" and method == "GET":
        key, value = re.fullmatch(r"labels\.([a-z-]+)=(.*)", query["filter"]).groups()
        return {"items": [of for of in INSTANCES.values() if of["labels"].get(key) == value]}
    if path == "instances" and method == "POST":
        return insert(query["requestId"], body)
    if path.startswith("operations/") and path.endswith("/wait"):
        done = OPERATIONS[path.split("/")[1]]
        done["status"] = "DONE"
        return done
    if path.startswith("instances/") and method == "DELETE":
        name = path.split("/")[1]
        if INSTANCES.pop(name, None) is None:
            raise refusal(404, "notFound")
        switch_off(name)
        return operation()
    if path == "disks" or path.startswith("disks/"):
        return disks(method, path.removeprefix("disks").removeprefix("/"), query, body)
    raise refusal(404, "notFound")


def disks(method, name, query, body):
    if method == "POST":
        if body["name"] in DISKS:
            raise refusal(409, "alreadyExists")
        DISKS[body["name"]] = {**body, "status": "READY"}
        note("disk", action="insert", id=body["name"])
        return operation("RUNNING")
    if not name:
        key, value = re.fullmatch(r"labels\.([a-z-]+)=(.*)", query["filter"]).groups()
        return {"items": [of for of in DISKS.values() if of["labels"].get(key) == value]}
    if name not in DISKS:
        raise refusal(404, "notFound")
    if method == "DELETE":
        note("disk", action="delete", id=name)
        del DISKS[name]
        return operation()
    return DISKS[name]


def insert(request, body):
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", request), request
    if request in REQUESTS:
        return OPERATIONS[REQUESTS[request]]
    if THROTTLED[0] < control().get("throttle", 0):
        THROTTLED[0] += 1
        raise refusal(403, "rateLimitExceeded")
    kind, name = body["machineType"].rsplit("/", 1)[1], body["name"]
    if kind in control().get("sold_out", []):
        note("sold_out", type=kind)
        made = operation(error="ZONE_RESOURCE_POOL_EXHAUSTED")
    else:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000-00:00", time.gmtime())
        INSTANCES[name] = {
            "name": name,
            "status": "RUNNING",
            "labels": body["labels"],
            "creationTimestamp": stamp,
        }
        interface = body["networkInterfaces"][0]
        token = body["labels"]["sluice-token"]
        spot = body["scheduling"].get("provisioningModel") == "SPOT"
        note("create", id=name, token=token, type=kind, spot=spot, interface=interface)
        own, machines = f"http://{address()}/imds", f"http://{address()}/imds/{name}"
        start(name, body["metadata"]["items"][0]["value"].replace(f"'{own}'", f"'{machines}'"))
        made = operation("RUNNING")
    REQUESTS[request] = made["name"]
    return made


def take_back(name, after):
    """Google takes a spot machine back some time after it has told so."""
    time.sleep(after)
    note("interrupted", id=name)
    with LOCK:
        INSTANCES.pop(name, None)
        switch_off(name)


def lambda_cloud(method, path, body):
    if path == "/instance-types":
        return LAMBDA_TYPES
    if path == "/instances":
        region = {"name": "us-west-1"}
        return [
            {"id": id, "name": name, "status": "active", "region": region}
            for id, name in LAMBDAS.items()
            if id in MACHINES
        ]
    if path == "/instance-operations/launch":
        LAUNCHES[0] += 1
        if LAUNCHES[0] == 1:
            raise Fault(429, {"error": {"code": "global/too-many-requests", "message": "slow down"}})
        assert body["ssh_key_names"] == ["lab"] and len(body["name"]) <= 64, body
        id = hashlib.md5(body["name"].encode()).hexdigest()
        LAMBDAS[id] = body["name"]
        note("create", id=id, token=body["name"].split("/")[1], type=body["instance_type_name"], spot=False)
        start(id, body["user_data"])
        return {"instance_ids": [id]}
    if path == "/instance-operations/terminate":
        for id in body["instance_ids"]:
            if id not in LAMBDAS:
                raise Fault(404, {"error": {"code": "global/object-does-not-exist", "message": id}})
            switch_off(id)
        return {"terminated_instances": []}
    raise Fault(404, {"error": {"code": "global/object-does-not-exist", "message": path}})


class Clouds(Handler):
    def answer(self):
        body = self.body()
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        bearer = self.headers.get("Authorization")
        if url.path == "/token":
            return access_token(dict(urllib.parse.parse_qsl(body.decode())))
        body = json.loads(body) if body else None
        found = re.fullmatch(r"/compute/v1/projects/lab/zones/([^/]+)/(.+)", url.path)
        if found:
            if bearer != "Bearer gcp-token":
                raise refusal(401, "authError")
            with LOCK:
                return google(self.command, found.group(1), found.group(2), query, body)
        if url.path == "/compute/v1/projects/net/regions/us-central1/subnetworks":
            if bearer != "Bearer gcp-token":
                raise refusal(401, "authError")
            return {"items": SUBNETWORKS}
        if url.path.startswith("/api/v1"):
            if bearer != "Bearer lambda-key":
                raise Fault(401, {"error": {"code": "global/invalid-api-key", "message": "API key was invalid."}})
            with LOCK:
                return {"data": lambda_cloud(self.command, url.path.removeprefix("/api/v1"), body)}
        raise refusal(404, "notFound")

    def respond(self):
        found = re.fullmatch(r"/imds/([^/]+)/computeMetadata/v1/instance/preempted", self.path)
        if found:
            if self.headers.get("Metadata-Flavor") != "Google":
                return self.say(403, b"")
            return self.say(200, b"TRUE" if interruption(found.group(1), take_back) else b"FALSE")
        try:
            status, value = 200, self.answer()
        except Fault as fault:
            status, value = fault.status, fault.body
        self.say(status, json.dumps(value).encode())

    do_GET = do_POST = do_DELETE = respond


if __name__ == "__main__":
    serve(Clouds)
