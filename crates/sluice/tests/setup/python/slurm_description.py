"""Our answers of v0.0.38 beside Slurm's own description of them: every path that is read there is here, every property that is described
is there in its form, and no other. Where Slurm itself answers otherwise than its description says, the tables below say so."""

import json
import re
import sys
import time
import urllib.error
import urllib.request

# Paths that are not here: keys are texts of jobs, so that none has an object; the books are part of the server, which counts in
# /slurm/v0.0.38/diag.
ABSENT = {"/slurmdb/v0.0.38/wckey/{wckey}", "/slurmdb/v0.0.38/diag/"}

# Places whose form Slurm describes otherwise than it is. Those of the controller are as `squeue --json` and `sinfo --json` of 22.05 print
# them; those of the database are described as numbers in one version and as texts in another.
OTHER_FORM = {
    "meta.Slurm.version.major",
    "meta.Slurm.version.micro",
    "meta.Slurm.version.minor",
    "job_response_properties.cores_per_socket",
    "job_response_properties.cpus_per_task",
    "job_response_properties.profile",
    "node_allocation.sockets",
    "config_info.tres",
    "job.allocation_nodes",
    "job.reservation.name",
    "qos.id",
}

# Described, and left out by Slurm itself where there is nothing to say.
LEFT_OUT = {
    "association.usage",
    "job_exit_code.signal",
    "job_resources.allocated_cpus",
    "node_allocation.cpus",
    "node_allocation.memory",
}

# Not described in this version: Slurm 22.05 prints them, or a later version describes them.
BEYOND = {
    "job_response_properties.group_name",
    "job_response_properties.prefer",
    "job_response_properties.tasks_per_node",
    "job_resources.allocated_cores",
    "node_allocation.cpus_used",
    "node_allocation.memory_allocated",
    "node_allocation.memory_used",
    "node.comment",
    "node.extra",
    "node.last_busy",
    "licenses.meta",
    "error.description",
    "error.source",
    "job.submit_line",
    "job_step.nodes.list",
    "config_info.clusters",
    "association.max.jobs.accruing",
    "association.max.jobs.active",
    "association.max.jobs.total",
    "association.max.jobs.per.accruing",
    "association.max.jobs.per.count",
    "association.max.jobs.per.submitted",
    "association.max.tres.group",
    "qos.limits.grace_time",
    "qos.limits.max.active_jobs",
    "qos.limits.max.jobs.count",
    "qos.limits.max.jobs.per",
    "qos.limits.max.tres.minutes.total",
    "qos.limits.max.tres.total",
}

FORMS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}

url, token, folder, job, user, work = sys.argv[1:]
NAMES = {
    "job_id": job,
    "node_name": "node1",
    "partition_name": "gpu",
    "reservation_name": "weekly",
    "qos_name": "high",
    "user_name": user,
    "account_name": "physics",
    "cluster_name": "test",
}
documents = [json.load(open(f"{folder}/{name}.json")) for name in ("v0.0.38", "dbv0.0.38")]
schemas = {name: schema for document in documents for name, schema in document["components"]["schemas"].items()}
faults = set()


def request(path, body=None):
    """The status of an answer, and its document."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url + path, data=data, headers={"X-SLURM-USER-TOKEN": token, "Content-Type": "application/json"})
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


def component(reference):
    """`#/components/schemas/dbv0.0.38_qos` is `qos`, with its schema."""
    name = reference.rsplit("/", 1)[1]
    return re.sub(r"^(db)?v0\.0\.38_", "", name), schemas[name]


def is_form(value, form):
    return isinstance(value, FORMS[form]) and (form == "boolean" or not isinstance(value, bool))


def compare(value, schema, place):
    if "$ref" in schema:
        place, schema = component(schema["$ref"])
    form = schema.get("type", "object" if "properties" in schema else None)
    if form is None:
        return
    # Null stands for what is not set, in Slurm's own answers too, whatever the description says.
    if place in OTHER_FORM or (value is None and form not in ("array", "object")):
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
    return operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")


compared = set()
for document in documents:
    base = document["servers"][0]["url"].rstrip("/")
    for path, operations in document["paths"].items():
        schema = described_answer(operations.get("get", {"responses": {}}))
        if schema is None or base + path in ABSENT:
            continue
        answer = answered(base + re.sub(r"\{(\w+)\}", lambda name: NAMES[name[1]], path))
        # The description of clusters is that of one, without the document around it.
        for shown in answer["clusters"] if schema["$ref"].endswith("_cluster_info") else [answer]:
            compare(shown, schema, path)
        compared.add(base + path)
        lists = [value for key, value in answer.items() if isinstance(value, list) and key not in ("errors", "wckeys")]
        assert not lists or any(lists), f"{base + path}: nothing was there to compare"

wanted = {"script": "#!/bin/sh\ntrue\n", "job": {"name": "described", "current_working_directory": work, "environment": {"A": "1"}}}
status, answer = request("/slurm/v0.0.38/job/submit", wanted)
assert status == 200, answer
compare(answer, described_answer(documents[0]["paths"]["/job/submit"]["post"]), "submit")
status, answer = request("/slurm/v0.0.38/job/4000000000")
assert status >= 400 and answer["errors"], (status, answer)
compare(answer["errors"], {"$ref": "#/components/schemas/v0.0.38_errors"}, "errors")
assert not faults, "\n".join(sorted(faults))
print(len(compared))
