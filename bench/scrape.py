#!/usr/bin/env python3
"""scrape.py PROGRAM: how long a scrape of a large cluster takes, and how long a machine is looked at when an agent starts,
as a table. The cluster is a real server of its own with declared nodes; Prometheus' part is played by this program.
"""
import http.client, json, os, re, statistics, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor

NODES, JOBS, RUNNING = 1000, 10_000, 1000
ROUNDS = 11
# The text is made once a second, however often it is read.
PAUSE_S = 1.2
CONFIGURATION = f"""ClusterName=scrape
SlurmdParameters=config_overrides
MaxJobCount={2 * JOBS}
GresTypes=gpu
DefMemPerCPU=10
KillWait=1
NodeName=node[0001-{NODES:04}] CPUs=4 RealMemory=16000 Gres=gpu:8
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=60
"""


def scrape(address, token):
    """Milliseconds from the request to the last byte, and the text."""
    host, port = address.rsplit(':', 1)
    connection = http.client.HTTPConnection(host, int(port))
    connection.connect()
    begin = time.perf_counter()
    connection.request('GET', '/metrics', headers={'Authorization': f'Bearer {token}'})
    answer = connection.getresponse()
    text = answer.read()
    took = (time.perf_counter() - begin) * 1e3
    assert answer.status == 200, answer.status
    return took, text.decode()


def measure(program, folder):
    state, conf = f'{folder}/state', f'{folder}/conf'
    os.mkdir(conf)
    open(f'{conf}/slurm.conf', 'w').write(CONFIGURATION)
    environment = {**os.environ, 'SLUICE_STATE': state}

    def sluice(*words):
        return subprocess.run([program, *words], env=environment, cwd=folder, check=True, capture_output=True, text=True).stdout

    sluice('up', '--detach', '--config', conf, '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0')
    try:
        until(lambda: sluice('sinfo', '-h', '-o', '%t %D').split() == ['idle', str(NODES)], 120, 'all nodes to be idle')
        quick = ['-o', '/dev/null', '--mem=10', '-t', '30', '--wrap', 'exec sleep 600']
        sluice('sbatch', f'--array=1-{RUNNING}', *quick)
        with ThreadPoolExecutor(8) as submitters:
            list(submitters.map(lambda _: sluice('sbatch', '-H', *quick), range(JOBS - RUNNING)))
        until(lambda: len(sluice('squeue', '-h', '-t', 'R', '-o', '%i').split()) == RUNNING, 300, f'{RUNNING} running jobs')
        address = json.load(open(f'{state}/ports.json'))['listen']
        token = open(f'{state}/admin.token').read().strip()
        times = []
        for _ in range(ROUNDS):
            took, text = scrape(address, token)
            times.append(took)
            time.sleep(PAUSE_S)
        assert f'sluice_jobs{{state="running"}} {RUNNING}' in text, 'the running jobs are counted'
        return times, text
    finally:
        sluice('scancel', '--state=PENDING')
        sluice('scancel', '--state=RUNNING')
        until(lambda: not sluice('squeue', '-h').strip(), 300, 'the end of all jobs')
        sluice('down')


def detection(program):
    """Milliseconds that the program says it looked at this machine, and whether GPUs were among what it found."""
    said = [subprocess.run([program, 'agent', '--print-config'], check=True, capture_output=True, text=True).stdout for _ in range(ROUNDS)]
    times = [float(re.search(r'detected in ([0-9.]+) ms', text)[1]) for text in said]
    return times, 'Gres=' in said[0]


def until(done, seconds, what):
    deadline = time.perf_counter() + seconds
    while not done():
        assert time.perf_counter() < deadline, f'{seconds} s were not enough for {what}'
        time.sleep(0.2)


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        times, text = measure(program, folder)
    looked, has_gpus = detection(program)
    lines, kib = text.count('\n'), len(text) // 1024
    gpus = 'with GPUs' if has_gpus else 'without GPUs'
    print('| what | median | most | wanted |')
    print('|---|---:|---:|---:|')
    print(f'| a scrape with {NODES:,} nodes and {JOBS:,} jobs, {RUNNING:,} running ({lines:,} lines, {kib:,} KiB), ms | {statistics.median(times):.1f} | {max(times):.1f} | under 50 |')
    print(f'| a machine {gpus} is detected, ms | {statistics.median(looked):.1f} | {max(looked):.1f} | under 100 |')


if __name__ == '__main__':
    main()
