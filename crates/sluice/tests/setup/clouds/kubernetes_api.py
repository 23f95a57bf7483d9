#!/usr/bin/env python3
"""The API of Kubernetes for tests, as far as a source of pods calls it: lists with pages, watches by resourceVersion with bookmarks
and 410, conflicts, admission, and objects that are held to their schema. Each pod's agent runs on this machine.

    kubernetes_api.py FOLDER SLUICE

control.json: `conflicts` (so many creations meet another writer), `deny` (images that admission refuses), `no_image` (images that
there are none of), `full` (no node has room), `evict` and `stop` (when the number rises, all running pods are evicted, or told to
stop), `compact` (when it rises, all former versions are forgotten).
"""

import base64
import json
import os
import re
import shlex
import signal
import threading
import time
import urllib.parse

from machine_host import LOCK, MACHINES, Handler, control, note, serve, start, switch_off

NODES = [
    {
        "metadata": {"name": f"worker-{at}", "labels": {"kubernetes.io/arch": "amd64", "pool": pool}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    for at, pool in enumerate(["jobs", "jobs", "web"])
]

# What an object of ours may have, by its keys; a list is a list of such objects, None is anything.
TEXT, NUMBER, YES, ANY = str, int, bool, None
SECURITY = {"allowPrivilegeEscalation": YES, "capabilities": {"drop": ANY}}
CONTAINER = {
    "name": TEXT,
    "image": TEXT,
    "imagePullPolicy": TEXT,
    "command": ANY,
    "env": [{"name": TEXT, "value": TEXT, "valueFrom": {"fieldRef": {"fieldPath": TEXT}}}],
    "resources": {"requests": ANY, "limits": ANY},
    "securityContext": SECURITY,
    "volumeMounts": [{"name": TEXT, "mountPath": TEXT, "readOnly": YES}],
}
METADATA = {"name": TEXT, "labels": ANY, "annotations": ANY, "ownerReferences": ANY}
SCHEMAS = {
    "pods": {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": METADATA,
        "spec": {
            "restartPolicy": TEXT,
            "hostname": TEXT,
            "enableServiceLinks": YES,
            "automountServiceAccountToken": YES,
            "shareProcessNamespace": YES,
            "hostUsers": YES,
            "terminationGracePeriodSeconds": NUMBER,
            "securityContext": {
                "runAsUser": NUMBER,
                "runAsGroup": NUMBER,
                "runAsNonRoot": YES,
                "fsGroup": NUMBER,
                "supplementalGroups": ANY,
                "seccompProfile": {"type": TEXT},
            },
            "initContainers": [CONTAINER],
            "containers": [CONTAINER],
            "volumes": [
                {
                    "name": TEXT,
                    "emptyDir": {"medium": TEXT},
                    "secret": {"secretName": TEXT, "defaultMode": NUMBER, "items": [{"key": TEXT, "path": TEXT}]},
                    "persistentVolumeClaim": {"claimName": TEXT, "readOnly": YES},
                }
            ],
            "nodeSelector": ANY,
            "affinity": {"nodeAffinity": ANY},
            "imagePullSecrets": [{"name": TEXT}],
            "tolerations": [{"key": TEXT, "operator": TEXT, "value": TEXT, "effect": TEXT}],
            "serviceAccountName": TEXT,
            "priorityClassName": TEXT,
        },
    },
    "persistentvolumeclaims": {
        "apiVersion": TEXT,
        "kind": TEXT,
        "metadata": METADATA,
        "spec": {"accessModes": ANY, "resources": {"requests": ANY}, "storageClassName": TEXT},
    },
    "secrets": {"apiVersion": TEXT, "kind": TEXT, "metadata": METADATA, "type": TEXT, "data": ANY},
}

OBJECTS = {"pods": {}, "secrets": {}, "persistentvolumeclaims": {}}
EVENTS = []  # (version, type, pod)
VERSION = [100]
OLDEST = [0]
CONFLICTS = [0]
CHANGED = threading.Condition(LOCK)


class Fault(Exception):
    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code = code
        self.body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


def check(value, schema, place):
    if schema is None:
        return
    if isinstance(schema, list):
        if not isinstance(value, list):
            raise Fault(400, "BadRequest", f"{place}: expected a list")
        for at, item in enumerate(value):
            check(item, schema[0], f"{place}[{at}]")
    elif isinstance(schema, dict):
        if not isinstance(value, dict):
            raise Fault(400, "BadRequest", f"{place}: expected an object")
        for key, item in value.items():
            if key not in schema:
                raise Fault(400, "BadRequest", f'strict decoding error: unknown field "{place}.{key}"')
            check(item, schema[key], f"{place}.{key}")
    elif not isinstance(value, schema):
        raise Fault(400, "BadRequest", f"{place}: expected {schema.__name__}")


def check_pod(pod):
    spec = pod["spec"]
    names = {volume["name"] for volume in spec["volumes"]}
    for container in spec["initContainers"] + spec["containers"]:
        for mount in container["volumeMounts"]:
            if mount["name"] not in names:
                raise Fault(422, "Invalid", f"volumeMounts: Not found: {mount['name']}")
        for amounts in container["resources"].values():
            for amount in amounts.values():
                if not re.fullmatch(r"[0-9]+(m|[KMGT]i)?", amount):
                    raise Fault(422, "Invalid", f"resources: Invalid value: {amount}")
    for volume in spec["volumes"]:
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim is not None and claim not in OBJECTS["persistentvolumeclaims"]:
            raise Fault(422, "Invalid", f'persistentvolumeclaim "{claim}" not found')
    for value in pod["metadata"]["labels"].values():
        if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value):
            raise Fault(422, "Invalid", f"metadata.labels: Invalid value: {value}")
    denied = [name for name in control().get("deny", []) if name in spec["containers"][0]["image"]]
    if denied:
        message = f'admission webhook "images.lab" denied the request: {denied[0]} is not signed'
        raise Fault(403, "Forbidden", message)
    if CONFLICTS[0] < control().get("conflicts", 0):
        CONFLICTS[0] += 1
        note("conflict")
        raise Fault(409, "Conflict", 'Operation cannot be fulfilled on resourcequotas "jobs": the object has been modified')


def changed(kind, pod):
    """A new version of a pod, and its event."""
    VERSION[0] += 1
    pod["metadata"]["resourceVersion"] = str(VERSION[0])
    EVENTS.append((VERSION[0], kind, json.loads(json.dumps(pod))))
    CHANGED.notify_all()


def create(kind, body, is_dry_run):
    check(body, SCHEMAS[kind], "")
    name = body["metadata"]["name"]
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        raise Fault(422, "Invalid", f"metadata.name: Invalid value: {name}")
    if name in OBJECTS[kind]:
        raise Fault(409, "AlreadyExists", f'{kind} "{name}" already exists')
    if kind == "pods" and control().get("without_user_namespaces"):
        body["spec"].pop("hostUsers", None)
    if is_dry_run:
        return body
    if kind == "pods":
        check_pod(body)
    body["metadata"]["uid"] = f"uid-{VERSION[0]}-{name}"
    body["metadata"]["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    OBJECTS[kind][name] = body
    if kind == "persistentvolumeclaims":
        note("claim", name=name)
    if kind == "pods":
        body["status"] = {"phase": "Pending"}
        changed("ADDED", body)
        run(body)
    return body


def run(pod):
    name, job = pod["metadata"]["name"], pod["spec"]["containers"][0]
    secret = OBJECTS["secrets"].get(name)
    if secret is None or control().get("full"):
        message = "0/3 nodes are available: 3 Insufficient cpu."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"]["conditions"] = [condition]
        return changed("MODIFIED", pod)
    if job["image"] in control().get("no_image", []):
        waiting = {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{job["image"]}"'}
        pod["status"]["containerStatuses"] = [{"name": "job", "image": job["image"], "state": {"waiting": waiting}}]
        return changed("MODIFIED", pod)
    amounts = job["resources"]["limits"]
    token = pod["metadata"]["labels"]["sluice-token"]
    claims = {of["name"]: of["persistentVolumeClaim"]["claimName"] for of in pod["spec"]["volumes"] if "persistentVolumeClaim" in of}
    mounts = {of["mountPath"]: claims[of["name"]] for of in job["volumeMounts"] if of["name"] in claims}
    note("create", id=name, token=token, type=amounts["cpu"], memory=amounts["memory"], image=job["image"], claims=mounts, user=pod["spec"]["securityContext"].get("runAsUser"))
    join = base64.b64decode(secret["data"]["join"]).decode()
    words = [word.replace("$(POD_IP)", "127.0.0.1") for word in job["command"][1:]]
    words = " ".join('"$HOME/join"' if word == "/sluice-join/join" else shlex.quote(word) for word in words)
    # The image has a variable of its own.
    start(name, f"set -eu\numask 077\nexport IN_IMAGE=variables-of-its-own\nprintf %s {shlex.quote(join)} >\"$HOME/join\"\nexec sluice {words}\n")
    pod["status"] = {"phase": "Running", "podIP": "127.0.0.1"}
    changed("MODIFIED", pod)


def mounted(claim):
    """Whether a pod has the claim."""
    volumes = [volume for pod in OBJECTS["pods"].values() for volume in pod["spec"]["volumes"]]
    return any(of.get("persistentVolumeClaim", {}).get("claimName") == claim for of in volumes)


def delete(kind, name):
    found = OBJECTS[kind].pop(name, None)
    if found is None:
        raise Fault(404, "NotFound", f'{kind} "{name}" not found')
    if kind == "secrets":
        note("delete-secret", name=name)
    if kind == "persistentvolumeclaims":
        note("delete-claim", name=name, used=mounted(name))
    if kind == "pods":
        changed("DELETED", found)
        if name in MACHINES:
            switch_off(name)
        for other in [of for of in OBJECTS["secrets"].values() if of["metadata"].get("ownerReferences")]:
            if other["metadata"]["ownerReferences"][0]["uid"] == found["metadata"]["uid"]:
                del OBJECTS["secrets"][other["metadata"]["name"]]
    return found


def page(items, query, kind):
    at, limit = int(query.get("continue") or 0), int(query.get("limit") or 500)
    metadata = {"resourceVersion": str(VERSION[0])}
    # One node at a time: there are pages.
    limit = 1 if kind == "NodeList" else limit
    if at + limit < len(items):
        metadata["continue"] = str(at + limit)
    return {"kind": kind, "metadata": metadata, "items": items[at : at + limit]}


def selected(pod, query):
    key, _, value = query.get("labelSelector", "").partition("=")
    return not key or pod["metadata"]["labels"].get(key) == value


def follow_control():
    """Does to pods what a cluster does by itself."""
    seen = {"evict": 0, "stop": 0, "compact": 0}
    while True:
        time.sleep(0.1)
        said = control()
        with LOCK:
            due = {key for key in seen if said.get(key, 0) > seen[key]}
            seen.update({key: said[key] for key in due})
            if "compact" in due:
                VERSION[0] += 10
                OLDEST[0] = VERSION[0]
                EVENTS.clear()
                CHANGED.notify_all()
            for pod in [of for of in OBJECTS["pods"].values() if of["status"]["phase"] == "Running"]:
                name = pod["metadata"]["name"]
                if "evict" in due:
                    switch_off(name)
                    pod["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
                    changed("MODIFIED", pod)
                if "stop" in due:
                    note("stop", id=name)
                    os.kill(MACHINES[name]["pid"], signal.SIGTERM)


class Api(Handler):
    def answer(self, url, query):
        body = self.body()
        body = json.loads(body) if body else None
        if url.path == "/api/v1/nodes":
            return page(NODES, query, "NodeList")
        found = re.fullmatch(r"/api/v1/namespaces/([a-z]+)/(pods|secrets|persistentvolumeclaims)(?:/([a-z0-9-]+))?", url.path)
        if not found or found.group(1) != "jobs":
            raise Fault(404, "NotFound", f"{url.path} not found")
        kind, name = found.group(2), found.group(3)
        if self.command == "POST":
            return create(kind, body, query.get("dryRun") == "All")
        if self.command == "DELETE":
            return delete(kind, name)
        if name is None:
            return page([of for of in OBJECTS[kind].values() if selected(of, query)], query, "PodList")
        if name not in OBJECTS[kind]:
            raise Fault(404, "NotFound", f'{kind} "{name}" not found')
        if self.command == "PUT":
            check(body, SCHEMAS[kind], "")
            if body.get("type") != OBJECTS[kind][name].get("type"):
                raise Fault(422, "Invalid", "type: field is immutable")
            OBJECTS[kind][name] |= {"data": body["data"]}
        if self.command == "PATCH":
            assert self.headers["Content-Type"] == "application/merge-patch+json"
            OBJECTS[kind][name]["metadata"] |= body["metadata"]
        return OBJECTS[kind][name]

    def watch(self, query):
        version, until = int(query["resourceVersion"]), time.time() + int(query["timeoutSeconds"])
        with LOCK:
            if version < OLDEST[0]:
                note("gone")
                raise Fault(410, "Expired", f"too old resource version: {version}")
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        while time.time() < until:
            with LOCK:
                if version < OLDEST[0]:
                    note("gone")
                    gone = Fault(410, "Expired", f"too old resource version: {version}").body
                    self.event("ERROR", gone)
                    return
                due = [of for of in EVENTS if of[0] > version]
                if not due:
                    CHANGED.wait(0.5)
            for number, kind, pod in due:
                version = number
                if selected(pod, query):
                    self.event(kind, pod)
            if due and query.get("allowWatchBookmarks") == "true":
                self.event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})

    def event(self, kind, value):
        self.wfile.write(json.dumps({"type": kind, "object": value}).encode() + b"\n")
        self.wfile.flush()

    def respond(self):
        url = urllib.parse.urlparse(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        try:
            if self.headers.get("Authorization") != "Bearer pod-token":
                raise Fault(401, "Unauthorized", "Unauthorized")
            if query.get("watch"):
                return self.watch(query)
            with LOCK:
                status, value = 200, self.answer(url, query)
        except Fault as fault:
            status, value = fault.code, fault.body
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
            return
        self.say(status, json.dumps(value).encode())

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = respond


if __name__ == "__main__":
    threading.Thread(target=follow_control, daemon=True).start()
    serve(Api)
