"""pyslurmutils, unmodified, against Slurm's REST API: submit, look, list, cancel. Its models are generated from Slurm's own
description: an answer that they cannot read is warned of, and fails here."""

import logging
import sys

from pyslurmutils.client.rest import SlurmBaseRestClient


class Refuse(logging.Handler):
    def emit(self, record):
        if "invalid response" in record.getMessage():
            raise AssertionError(record.getMessage())


url, user, token, version, folder = sys.argv[1:]
handler = Refuse(level=logging.WARNING)
logging.getLogger("pyslurmutils").addHandler(handler)
client = SlurmBaseRestClient(
    url=url,
    user_name=user,
    token=token,
    api_version=version,
    log_directory=folder,
    use_env_credentials=False,
)
parameters = {
    "name": "rest",
    "time_limit": "00:05:00",
    "memory_per_node": "64M",
    "current_working_directory": folder,
    "environment": {"GREETING": f"hello from {version}"},
}
job = client.submit_job('#!/bin/bash\necho "$GREETING"\n', parameters=parameters)
state = client.wait_finished(job, timeout=60, period=0.1)
assert state == "COMPLETED", state
found = client.get_job_properties(job)
assert found.job_id == job and found.name == "rest", found
assert found.time_limit.set and found.time_limit.number == 5, found.time_limit
assert found.memory_per_node.number == 64, found.memory_per_node
assert found.user_name == user, found.user_name
assert found.exit_code.status == ["SUCCESS"], found.exit_code
with open(f"{folder}/rest.{job}.outerr") as log:
    assert log.read() == f"hello from {version}\n"
sleeper = client.submit_job("#!/bin/bash\nsleep 600\n", parameters=parameters)
assert client.wait_states(sleeper, ("RUNNING",), timeout=60, period=0.1) == "RUNNING"
assert {one.job_id for one in client.get_all_job_properties()} >= {job, sleeper}
client.cancel_job(sleeper)
assert client.wait_finished(sleeper, timeout=60, period=0.1) == "CANCELLED"
print(f"{version} ok")
