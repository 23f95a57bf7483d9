"""Our answers of one version of Slurm's REST API beside Slurm's own description of that version: every path that is read there is here,
every property that is described is there in its form, and no other. A place is the part of Slurm that answers and the keys that lead
there. What is known to differ is in the tables below."""

import json
import re
import sys
import time
import urllib.error
import urllib.request

# Paths with an empty list: keys are texts of jobs, so that none has an object.
EMPTY = {"/slurmdb/wckey/{id}", "/slurmdb/wckey/{wckey}"}

# v0.0.38: Slurm's own answers differ from its description here. Those of the controller are as `squeue --json` and `sinfo --json` of
# 22.05 print them; those of the database are described as numbers in one place and as texts in another, and as numbers later.
EARLY_OTHER_FORM = {
    "slurm.meta.Slurm.version.major",
    "slurm.meta.Slurm.version.micro",
    "slurm.meta.Slurm.version.minor",
    "slurm.jobs.cores_per_socket",
    "slurm.jobs.cpus_per_task",
    "slurm.jobs.profile",
    "slurm.jobs.job_resources.allocated_nodes.sockets",
    "slurmdb.meta.Slurm.version.major",
    "slurmdb.meta.Slurm.version.micro",
    "slurmdb.meta.Slurm.version.minor",
    "slurmdb.jobs.allocation_nodes",
    "slurmdb.jobs.reservation.name",
    "slurmdb.qos.id",
    "slurmdb.tres",
}
EARLY_LEFT_OUT = {
    "slurm.jobs.job_resources.allocated_cpus",
    "slurm.jobs.job_resources.allocated_nodes.cpus",
    "slurm.jobs.job_resources.allocated_nodes.memory",
    "slurmdb.associations.usage",
    # An end without a signal has none.
    "slurmdb.jobs.derived_exit_code.signal",
    "slurmdb.jobs.exit_code.signal",
    "slurmdb.jobs.steps.exit_code.signal",
}
# Slurm 22.05 prints them, or a later version describes them.
EARLY_BEYOND = {
    "slurm.jobs.group_name",
    "slurm.jobs.prefer",
    "slurm.jobs.tasks_per_node",
    "slurm.jobs.job_resources.allocated_cores",
    "slurm.jobs.job_resources.allocated_nodes.cpus_used",
    "slurm.jobs.job_resources.allocated_nodes.memory_allocated",
    "slurm.jobs.job_resources.allocated_nodes.memory_used",
    "slurm.nodes.comment",
    "slurm.nodes.extra",
    "slurm.nodes.last_busy",
    "slurm.errors.description",
    "slurm.errors.source",
    "slurm.meta",
    "slurmdb.clusters",
    "slurmdb.associations.max.jobs.accruing",
    "slurmdb.associations.max.jobs.active",
    "slurmdb.associations.max.jobs.total",
    "slurmdb.associations.max.jobs.per.accruing",
    "slurmdb.associations.max.jobs.per.count",
    "slurmdb.associations.max.jobs.per.submitted",
    "slurmdb.associations.max.tres.group",
    "slurmdb.jobs.submit_line",
    "slurmdb.jobs.steps.nodes.list",
    "slurmdb.qos.limits.grace_time",
    "slurmdb.qos.limits.max.active_jobs",
    "slurmdb.qos.limits.max.jobs.per",
    "slurmdb.qos.limits.max.tres.total",
}

# Later versions: a job without nodes has no resources to describe.
LATER_OTHER_FORM = {"slurm.jobs.job_resources"}

FORMS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}

version, url, token, folder, job, user, work = sys.argv[1:]
is_early = version == "v0.0.38"
OTHER_FORM, LEFT_OUT, BEYOND = (EARLY_OTHER_FORM, EARLY_LEFT_OUT, EARLY_BEYOND) if is_early else (LATER_OTHER_FORM, set(), set())
NAMES = {
    "job_id": job,
    "node_name": "node1",
    "partition_name": "gpu",
    "reservation_name": "weekly",
    "qos_name": "high",
    "qos": "high",
    "user_name": user,
    "name": user,
    "account_name": "physics",
    "cluster_name": "test",
    "id": "1",
    "wckey": "1",
}
documents = [json.load(open(f"{folder}/{name}.json")) for name in ([version, f"db{version}"] if is_early else [version])]
schemas = {name: schema for document in documents for name, schema in document["components"]["schemas"].items()}
faults = set()


def request(path, body=None, method=None):
    """The status of an answer, and its document."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url + path, data=data, method=method, headers={"X-SLURM-USER-TOKEN": token, "Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


def answered(path):
    """The books learn of a job a moment after it ended."""
    deadline = time.monotonic() + 30
    while True:
        status, document = request(path)
        if status == 200:
            return document
        assert status == 404 and time.monotonic() < deadline, (path, status, document)
        time.sleep(0.1)


def resolved(schema):
    while "$ref" in schema:
        schema = schemas[schema["$ref"].rsplit("/", 1)[1]]
    return schema


def is_form(value, form):
    return isinstance(value, FORMS[form]) and (form == "boolean" or not isinstance(value, bool))


def compare(value, schema, place):
    schema = resolved(schema)
    form = schema.get("type", "object" if "properties" in schema else None)
    # Null stands for what is not set, in Slurm's own answers too, whatever the description says.
    is_unset = value is None and (form not in ("array", "object") or place in OTHER_FORM)
    if form is None or is_unset or (is_early and place in OTHER_FORM):
        return
    if not is_form(value, form):
        faults.add(f"{place}: {json.dumps(value)[:60]}: described as {form}")
    elif form == "array":
        for item in value:
            compare(item, schema.get("items", {}), place)
    elif form == "object" and value and "properties" in schema:
        compare_properties(value, schema["properties"], place)


def compare_properties(value, described, place):
    for key, item in value.items():
        if key in described:
            compare(item, described[key], f"{place}.{key}")
        elif f"{place}.{key}" not in BEYOND:
            faults.add(f"{place}.{key}: not described")
    for key in described.keys() - value.keys():
        if f"{place}.{key}" not in LEFT_OUT:
            faults.add(f"{place}.{key}: described, and not there")


def described_answer(operation):
    """The schema of what is answered; the description itself is served too, and has none."""
    responses = operation["responses"]
    answer = responses.get("200") or responses.get("default", {})
    return answer.get("content", {}).get("application/json", {}).get("schema")


def described_operation(path, method):
    """What the description has of a path that names something."""
    if method in paths.get(path, {}):
        return paths[path][method]
    for described, operations in paths.items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(described))
        if method in operations and re.fullmatch(pattern, path):
            return operations[method]
    return None


# Whole paths: those of v0.0.38 are below the address of their document.
paths = {}
for document in documents:
    base = document["servers"][0]["url"].rstrip("/") if is_early else ""
    paths |= {base + path: operations for path, operations in document["paths"].items()}

compared = set()
for path, operations in paths.items():
    schema = described_answer(operations["get"]) if "get" in operations else None
    if schema is None:
        continue
    part = path.split("/")[1]
    answer = answered(re.sub(r"\{(\w+)\}", lambda name: NAMES[name[1]], path))
    if path.replace(f"/{version}", "") in EMPTY:
        assert answer["wckeys"] == [], answer
        continue
    # v0.0.38 describes one cluster, without the document around it.
    if is_early and "/cluster" in path:
        for cluster in answer["clusters"]:
            compare(cluster, schema, f"{part}.clusters")
    else:
        compare(answer, schema, part)
    compared.add(path)
    lists = [value for key, value in answer.items() if isinstance(value, list) and key not in ("errors", "warnings", "wckeys", "instances")]
    assert not lists or any(lists), f"{path}: nothing was there to compare"

environment = {"A": "1"} if is_early else ["A=1"]
wanted = {"name": "described", "current_working_directory": work, "environment": environment}
status, answer = request(f"/slurm/{version}/job/submit", {"script": "#!/bin/sh\ntrue\n", "job": wanted})
assert status == 200, answer
compare(answer, described_answer(paths[f"/slurm/{version}/job/submit"]["post"]), "slurm")
held = wanted | {"hold": True}
numbers = [request(f"/slurm/{version}/job/submit", {"script": "#!/bin/sh\ntrue\n", "job": held})[1]["job_id"] for _ in range(2)]

# What is changed, each answer compared with its description; v0.0.38 does not have all of them, and describes no answer for some.
allocation = [("post", f"slurm/{version}/job/allocate", {"job": {"name": "described", "hold": True}})] if version >= "v0.0.41" else []
nobody = {"name": "nobody", "default": {"account": "described"}}
for method, path, body in [
    ("post", f"slurm/{version}/job/{numbers[0]}", {"comment": "described"}),
    ("delete", f"slurm/{version}/job/{numbers[0]}", None),
    *allocation,
    ("delete", f"slurm/{version}/jobs/", {"job_name": "described"}),
    ("post", f"slurm/{version}/node/node2", {"weight": {"set": True, "infinite": False, "number": 1}}),
    ("post", f"slurm/{version}/nodes/", {"name": ["node2"], "weight": {"set": True, "infinite": False, "number": 1}}),
    ("post", f"slurmdb/{version}/accounts/", {"accounts": [{"name": "described", "description": "of a test"}]}),
    ("post", f"slurmdb/{version}/qos/", {"qos": [{"name": "described", "priority": 5}]}),
    ("post", f"slurmdb/{version}/users/", {"users": [nobody]}),
    ("delete", f"slurmdb/{version}/association/?user=nobody&account=described", None),
    ("post", f"slurmdb/{version}/associations/", {"associations": [{"account": "described", "user": "nobody", "shares_raw": 2}]}),
    ("delete", f"slurmdb/{version}/associations/?user=nobody&account=described", None),
    ("post", f"slurmdb/{version}/config", {"users": [nobody], "accounts": [{"name": "described", "organization": "tests"}]}),
    ("post", f"slurmdb/{version}/accounts_association/", {"association_condition": {"accounts": ["another"]}, "account": {}}),
    ("post", f"slurmdb/{version}/users_association/", {"association_condition": {"users": ["nobody"], "accounts": ["another"]}, "user": {}}),
    ("delete", f"slurmdb/{version}/user/nobody", None),
    ("delete", f"slurmdb/{version}/account/described", None),
    ("delete", f"slurmdb/{version}/qos/described", None),
]:
    operation = described_operation("/" + path.split("?")[0], method)
    assert operation or is_early, f"{method} {path}: not described"
    if operation:
        status, answer = request("/" + path, body, method.upper())
        assert status == 200, (method, path, answer)
        schema = described_answer(operation)
        if schema:
            compare(answer, schema, path.split("/")[0])
if not is_early:
    assert request(f"/slurmdb/{version}/account/another", method="DELETE")[0] == 200

# What nobody changes here is said in one line; no path is missing.
for method, path, body in [
    ("post", "clusters/", {"clusters": [{"name": "other"}]}),
    ("post", "tres/", {"TRES": []}),
    ("post", "wckeys/", {"wckeys": [{"name": "other"}]}),
    ("delete", "cluster/test", None),
    ("delete", "wckey/1", None),
]:
    status, answer = request(f"/slurmdb/{version}/{path}", body, method.upper())
    assert status == 400 and "nothing to" in answer["errors"][0]["error" if is_early else "description"], (method, path, answer)

status, answer = request(f"/slurm/{version}/job/4000000000")
assert status >= 400 and answer["errors"], (status, answer)
described = resolved(described_answer(paths[f"/slurm/{version}/jobs/"]["get"]))["properties"]["errors"]
compare(answer["errors"], described, "slurm.errors")
assert not faults, "\n".join(sorted(faults))
print(len(compared))
