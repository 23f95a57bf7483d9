"""Our own Python client against a server: submit, wait, logs, list, cancel, and what is refused."""

import sys

from sluice_client import Sluice, SluiceError

url, token, folder = sys.argv[1:]
sluice = Sluice(url, token)
options = f"#SBATCH -D {folder} -o {folder}/%j.out -t 5"
job = sluice.submit(f"#!/bin/sh\n{options} -J hello\necho hello\n")
page = sluice.wait(job, timeout=60)
assert page["job"]["state"] == "COMPLETED" and page["exit_code"] == 0, page
assert sluice.logs(job) == b"hello\n", sluice.logs(job)
sleeper = sluice.submit(f"#!/bin/sh\n{options} -J sleeper\nsleep 600\n")
rows = {row["id"]: row["name"] for row in sluice.jobs()}
assert rows == {sleeper: "sleeper"}, rows
try:
    sluice.wait(sleeper, timeout=0.2)
    raise AssertionError("it runs on")
except TimeoutError:
    pass
sluice.cancel(sleeper)
assert sluice.wait(sleeper, timeout=60)["job"]["state"] == "CANCELLED"
checked = sluice.check("#!/bin/sh\n#SBATCH --no-such-option\n")
assert checked["errors"], checked
unknown = 4_000_000
for bad in (lambda: sluice.job(unknown), lambda: sluice.logs(unknown), lambda: Sluice(url, "wrong").jobs()):
    try:
        bad()
        raise AssertionError("it was not refused")
    except SluiceError as error:
        assert error.status in (401, 404) and not set("\n{") & set(str(error)), error
print("ok")
