#!/usr/bin/env python3
"""operation.py PROGRAM SUBMIT [--record FILE]: what an operator's tools cost, as a table: `sluice explain` in a long queue, `sluice top`
of a large cluster (by top.py), and the log at its usual level beside no log at all. SUBMIT is the example `submit_rate`.
Each part has a server of its own with declared nodes. Not under load: other work of the machine counts too.
"""
import os, re, statistics, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
import top
from record import progress, record

NODES, CPUS, WAITING = 50, 4, 5000
ROUNDS = 11
SUBMITS, IN_FLIGHT = 20_000, 32
CONFIGURATION = f"""ClusterName=operation
SlurmdParameters=config_overrides
MaxJobCount={4 * SUBMITS}
DefMemPerCPU=10
KillWait=1
NodeName=node[01-{NODES}] CPUs={CPUS} RealMemory=16000
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=120
"""


class Cluster:
    """A server and its agent in a folder, with these variables in their environment."""

    def __init__(self, program, folder, **variables):
        self.program, self.folder, self.state, conf = program, folder, f'{folder}/state', f'{folder}/conf'
        os.mkdir(conf)
        open(f'{conf}/slurm.conf', 'w').write(CONFIGURATION)
        self.environment = {**os.environ, 'SLUICE_STATE': self.state, **variables}
        self.sluice('up', '--detach', '--config', conf, '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0')

    def sluice(self, *words):
        return subprocess.run([self.program, *words], env=self.environment, cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def down(self):
        self.sluice('down', '--jobs')


def until(done, seconds, what):
    deadline = time.perf_counter() + seconds
    while not done():
        assert time.perf_counter() < deadline, f'{seconds} s were not enough for {what}'
        time.sleep(0.2)


def in_cluster(program, measure, **variables):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        cluster = Cluster(program, folder, **variables)
        try:
            return measure(cluster)
        finally:
            cluster.down()


def explain(cluster):
    """Seconds that `sluice explain` takes for the first, the middle and the last of the jobs that wait."""
    script = ['-o', '/dev/null', '--wrap', 'exec sleep 600']
    full = NODES * CPUS
    cluster.sluice('sbatch', f'--array=1-{full}', '-t', '60', *script)
    until(lambda: len(cluster.sluice('squeue', '-h', '-t', 'R', '-o', '%i').split()) == full, 120, 'a full cluster')
    shape = lambda n: ['-c', str(1 + n % CPUS), '-t', str(5 + n % 60)]
    with ThreadPoolExecutor(8) as submitters:
        list(submitters.map(lambda n: cluster.sluice('sbatch', *shape(n), *script), range(WAITING)))
    waiting = cluster.sluice('squeue', '-h', '-t', 'PD', '-o', '%i').split()
    assert len(waiting) == WAITING, len(waiting)
    times = []
    for job in (waiting[0], waiting[WAITING // 2], waiting[-1]):
        for _ in range(ROUNDS):
            begin = time.perf_counter()
            text = cluster.sluice('explain', job)
            times.append(time.perf_counter() - begin)
            assert f'Job {job} ' in text, text
    return times


def submits(submit):
    """Submits a second to a cluster."""
    def measure(cluster):
        said = subprocess.run([submit, f'{cluster.state}/sluice.sock', str(SUBMITS), str(IN_FLIGHT)], check=True, capture_output=True, text=True).stdout
        return float(re.search(r'per_s=(\d+)', said)[1])
    return measure


def main():
    program, submit = map(os.path.abspath, sys.argv[1:3])
    progress('operation', f'explain with {WAITING} waiting jobs')
    times = in_cluster(program, explain)
    progress('operation', 'top')
    own, server, alone, _ = top.measure(program)
    rates = {'info': [], 'off': []}
    for turn in range(5):
        # In turns, so that what else the machine does weighs on both.
        for level, found in rates.items():
            progress('operation', f'submits with SLUICE_LOG={level}, {turn + 1} of 5')
            found.append(in_cluster(program, submits(submit), SLUICE_LOG=level))
    logged, silent = (statistics.median(rates[level]) for level in ('info', 'off'))
    text = '\n'.join([
        '| what | here | wanted |',
        '|---|---:|---:|',
        f'| `sluice explain` with {WAITING:,} waiting jobs, median, s | {statistics.median(times):.3f} | under 0.3 |',
        f'| the same, the longest of {len(times)}, s | {max(times):.3f} | under 0.3 |',
        f'| `sluice top` with {top.NODES:,} nodes and {top.JOBS:,} waiting jobs, one changed each second, % of a core | {own:.1f} | under 5 |',
        f'| the server for it (it takes {alone:.1f} by itself), % of a core | {server - alone:.1f} | under 5 |',
        f'| submits a second with the usual log ({silent:.0f} without one), % fewer, medians of 5 | {(1 - logged / silent) * 100:.1f} | under 3 |',
    ])
    print(text)
    if '--record' in sys.argv:
        record(sys.argv[sys.argv.index('--record') + 1], 'bench operation', text)


if __name__ == '__main__':
    main()
