#!/usr/bin/env python3
"""The job list of Slurm's REST API (v0.0.38) beside Debian's slurmrestd: rest.py SLUICE SUBMIT_RATE [--alone] [--record FILE]

Both run, and each lists the same number of waiting jobs in its turn, from the request to the last byte, each time on a connection that
was opened before. slurmrestd asks its slurmctld anew each time, as Sluice looks at its state. Prints a table; --record puts it into FILE between the lines
`<!-- bench rest -->` and `<!-- /bench rest -->`."""
import contextlib, json, os, shutil, subprocess, sys, tempfile

from compare import DEVNULL, LAB, Slurm, Sluice, run
from node import until
from record import progress, record

JOBS, ROUNDS = 10_000, 11
LIMIT = 0.1
PATH = '/slurm/v0.0.38/jobs'
# Run as the user of slurmrestd: it answers its own user's connections to its socket.
ASK = """
import http.client, json, socket, statistics, sys, time
address, path, headers, rounds = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])
def opened():
    if address.startswith('/'):
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(address)
    else:
        host, port = address.rsplit(':', 1)
        stream = socket.create_connection((host, int(port)))
    connection = http.client.HTTPConnection('localhost')
    connection.sock = stream
    return connection
times = []
for _ in range(rounds):
    connection = opened()
    begin = time.perf_counter()
    connection.request('GET', path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    times.append(time.perf_counter() - begin)
    connection.close()
    assert answer.status == 200, (answer.status, body[:200])
jobs = json.loads(body)['jobs']
print(json.dumps({'median_ms': statistics.median(times) * 1e3, 'bytes': len(body), 'jobs': len(jobs), 'keys': len(jobs[0])}))
"""


def ask(address, headers, user=None):
    words = [sys.executable, '-c', ASK, address, PATH, json.dumps(headers), str(ROUNDS)]
    if user:
        words = ['runuser', '-u', user, '--', '/usr/bin/python3', *words[1:]]
    seen = json.loads(run(words))
    assert seen['jobs'] >= JOBS, f'{seen["jobs"]} jobs are listed'
    return seen


def fill_sluice(sluice, rate):
    """Has so many jobs wait; where to ask for them, and with what headers."""
    sluice.up()
    run([rate, f'{sluice.state}/sluice.sock', str(JOBS), '32', 'equal'])
    progress('sluice', f'{JOBS} waiting')
    address = json.load(open(f'{sluice.state}/ports.json'))['listen']
    token = open(f'{sluice.state}/admin.token').read().strip()
    return address, {'X-SLURM-USER-TOKEN': token}


@contextlib.contextmanager
def slurmrestd(slurm, work):
    """The same for Slurm, with its slurmrestd: the socket of it."""
    # It brings what is missing: the header that the submitter needs, and slurmrestd.
    slurm.up('big')
    library = f'{work}/csubmit'
    run(['cc', '-O2', '-o', library, f'{LAB}/bin/csubmit.c', '-lslurm'])
    subprocess.run([library, str(JOBS), 'hold'], check=True, env=slurm.env, cwd=slurm.jobs, stdout=DEVNULL, stderr=DEVNULL)
    progress('slurm', f'{JOBS} waiting')
    folder = f'{work}/rest'
    os.mkdir(folder)
    shutil.chown(folder, 'nobody')
    socket = f'{folder}/socket'
    daemon = ['runuser', '-u', 'nobody', '--', 'env', f'SLURM_CONF={slurm.lab}/etc/slurm.conf', 'slurmrestd', '-a', 'rest_auth/local', '-s', 'openapi/v0.0.38', f'unix:{socket}']
    process = subprocess.Popen(daemon, stdout=DEVNULL, stderr=DEVNULL)
    try:
        until(lambda: os.path.exists(socket), 20, 'the socket of slurmrestd')
        yield socket
    finally:
        process.terminate()
        process.wait()


def table(ours, theirs):
    rows = ['| what | Sluice | slurmrestd 22.05 | wanted |', '|---|---:|---:|---:|']
    beside = f'{theirs["median_ms"]:.0f}' if theirs else 'not measured'
    wanted = f'under {theirs["median_ms"] * LIMIT:.0f}, a tenth' if theirs else 'a tenth of its time'
    rows.append(f'| list of {JOBS:,} jobs (`GET {PATH}`), median of {ROUNDS}, ms | {ours["median_ms"]:.0f} | {beside} | {wanted} |')
    size = f'{theirs["bytes"] / 1e6:.1f}' if theirs else 'not measured'
    rows.append(f'| the answer, MB | {ours["bytes"] / 1e6:.1f} | {size} | |')
    rows.append(f'| fields of a job | {ours["keys"]} | {theirs["keys"] if theirs else "not measured"} | the same |')
    return '\n'.join(rows)


def main(program, rate, *options):
    work = tempfile.mkdtemp()
    os.chmod(work, 0o755)
    os.makedirs(f'{work}/jobs')
    os.chmod(f'{work}/jobs', 0o1777)
    sluice, slurm = Sluice(os.path.abspath(program), work), Slurm(work)
    try:
        address, headers = fill_sluice(sluice, rate)
        if '--alone' in options:
            ours, theirs = ask(address, headers), None
        else:
            with slurmrestd(slurm, work) as socket:
                ours, theirs = ask(address, headers), ask(socket, {}, 'nobody')
    finally:
        sluice.down()
        slurm.down()
        shutil.rmtree(work, ignore_errors=True)
    text = table(ours, theirs)
    print(text)
    if '--record' in options:
        record(options[options.index('--record') + 1], 'bench rest', text)


if __name__ == '__main__':
    main(*sys.argv[1:])
