#!/usr/bin/env python3
"""many_agents.py PROGRAM LOAD SUBMIT [--minutes N] [--record FILE]: a server with a thousand agents, and ten thousand declared
nodes on one agent, as a table. LOAD is the example `many_agents` (950 agents in one process that speak the real protocol),
SUBMIT the example `submit_rate`; 50 agents are real ones. All on this machine.
"""
import argparse, concurrent.futures, json, os, re, signal, statistics, subprocess, sys, tempfile, threading, time
from record import progress, record

LOAD, REAL, CPUS = 950, 50, 5
RUNNING, WAITING = (LOAD + REAL) * CPUS, 100_000
JOB_S = 300
LISTS_PER_S = 100
USER, OWN_JOBS = 'daemon', 50
CONFIGURATION = f"""ClusterName=many
SlurmdParameters=config_overrides
MaxJobCount=300000
ReturnToService=1
KillWait=1
NodeName=m[0001-{LOAD:04}],r[01-{REAL:02}] CPUs={CPUS} RealMemory=100000
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=60
"""
DECLARED = """ClusterName=declared
KillWait=1
NodeName=n[1-10000] CPUs=4 RealMemory=4000
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Cluster:
    """A state folder with a configuration, and the commands in it."""

    def __init__(self, program, folder, configuration):
        self.program, self.folder, self.state, self.conf = program, folder, f'{folder}/state', f'{folder}/conf'
        os.makedirs(self.conf)
        open(f'{self.conf}/slurm.conf', 'w').write(configuration)
        self.environment = {**os.environ, 'SLUICE_STATE': self.state}

    def run(self, *words):
        return subprocess.run([self.program, *words], env=self.environment, cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def timed(self, *words):
        begin = time.perf_counter()
        self.run(*words)
        return time.perf_counter() - begin


class Load:
    """The process that is many agents; the last line that it said."""

    def __init__(self, program, folder, joins):
        self.process = subprocess.Popen([program, f'{folder}/load', joins, str(JOB_S)], stdout=subprocess.PIPE, text=True)
        self.last, self.times = {'connected': 0, 'refused': 0, 'running': 0}, []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.last = json.loads(line)
            if self.last['reports']:
                self.times.append(self.last['p99_ms'])


def until(done, seconds, what):
    begin = time.perf_counter()
    while not done():
        assert time.perf_counter() < begin + seconds, f'{seconds} s were not enough for {what}'
        time.sleep(0.05)
    return time.perf_counter() - begin


def start_server(cluster):
    words = ['server', '--config', cluster.conf]
    if not os.path.exists(f'{cluster.state}/ports.json'):
        words += ['--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0']
    server = subprocess.Popen([cluster.program, *words], env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout.readline().startswith('sluice is up')
    return server


def cpu_seconds(pid):
    fields = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def memory_mib(pid):
    return int(re.search(r'VmRSS:\s+(\d+)', open(f'/proc/{pid}/status').read())[1]) / 1024


def percentile(times, part):
    times = sorted(times)
    return times[min(len(times) - 1, int(len(times) * part))] * 1e3


def many_agents(options, folder):
    """Rows of a server with a thousand agents."""
    cluster = Cluster(options.program, folder, CONFIGURATION)
    server = start_server(cluster)
    joins = f'{folder}/joins'
    os.makedirs(joins)
    for number in range(1, LOAD + 1):
        open(f'{joins}/m{number:04}', 'w').write(cluster.run('token', 'node', f'm{number:04}'))
    for number in range(1, REAL + 1):
        open(f'{folder}/r{number:02}.join', 'w').write(cluster.run('token', 'node', f'r{number:02}'))
    before = len(os.listdir(f'/proc/{server.pid}/fd'))
    begin = time.perf_counter()
    load = Load(options.load, folder, joins)
    real = [
        subprocess.Popen([options.program, 'agent', '--state', f'{folder}/r{number:02}', '--join', f'{folder}/r{number:02}.join'], stderr=subprocess.DEVNULL)
        for number in range(1, REAL + 1)
    ]

    def all_up():
        """Whether every agent has a link; a node that does not answer has a star behind its state."""
        states = (line.split() for line in cluster.run('sinfo', '-h', '-o', '%D %t').splitlines())
        up = sum(int(count) for count, state in states if state in ('idle', 'alloc', 'mix', 'comp'))
        return load.last['connected'] == LOAD and up == LOAD + REAL

    try:
        until(all_up, 120, 'all agents')
        joined = time.perf_counter() - begin
        descriptors = len(os.listdir(f'/proc/{server.pid}/fd')) - before
        progress('many', f'{LOAD + REAL} agents joined in {joined:.1f} s')
        # The jobs of the user whose list is asked for, among those of others.
        as_user = ['setpriv', f'--reuid={USER}', f'--regid={USER}', '--clear-groups']
        for _ in range(OWN_JOBS):
            subprocess.run([*as_user, options.program, 'sbatch', '-H', '-D', '/', '--wrap', 'true'], env=cluster.environment, check=True, stdout=subprocess.DEVNULL)
        words = [f'{cluster.state}/sluice.sock', str(RUNNING + WAITING), '32', 'equal', 'ready', f'sleep={JOB_S}']
        subprocess.run([options.submit, *words], check=True, stdout=subprocess.DEVNULL)
        until(lambda: load.last['running'] >= LOAD * CPUS * 0.95, 300, f'{RUNNING} running jobs')
        progress('many', f'{load.last["running"]} jobs run')
        load.times.clear()
        lists, wholes, submits, memory, cpu, seconds = ask_for(options.minutes * 60, cluster, server)
        reports = list(load.times)
        progress('many', 'asked')
        # The storm: nobody is told that the server goes. It counts from the start of the next server, which reads its journal first.
        server.kill()
        server.wait()
        until(lambda: load.last['connected'] == 0, 60, 'the agents to notice')
        begin = time.perf_counter()
        server = start_server(cluster)
        until(all_up, 120, 'all agents after the restart')
        storm, refused = time.perf_counter() - begin, load.last['refused']
        return [
            (f'{LOAD + REAL:,} agents joined and connected, s', f'{joined:.1f}', 'under 10'),
            (f'all of them back after a kill of the server, with {RUNNING:,} jobs running and {WAITING:,} waiting, s ({refused} refused)', f'{storm:.1f}', 'under 10, none refused'),
            ('descriptors of the server for each agent', f'{descriptors / (LOAD + REAL):.2f}', 'at most 1'),
            (f'the server with as many jobs, % of one CPU over {seconds / 60:.0f} min', f'{100 * cpu / seconds:.0f}', ''),
            ('its memory, MiB, at the beginning and at most', f'{memory[0]:.0f}, {max(memory):.0f}', 'bounded'),
            (f'`squeue -u USER` of {OWN_JOBS} jobs, {LISTS_PER_S} a second asked, {len(lists) / seconds:.0f} done, median and p99, ms', f'{percentile(lists, 0.5):.0f}, {percentile(lists, 0.99):.0f}', ''),
            (f'`squeue` of all, once a second, {len(wholes)} done, median and p99, ms', f'{percentile(wholes, 0.5):.0f}, {percentile(wholes, 0.99):.0f}', ''),
            (f'`sbatch`, once a second, {len(submits)} done, median and p99, ms', f'{percentile(submits, 0.5):.0f}, {percentile(submits, 0.99):.0f}', ''),
            ('a report of an agent, behind its heartbeat, until it is on disk, p99 of each half second: median and most, ms', f'{statistics.median(reports):.0f}, {max(reports):.0f}', ''),
        ]
    finally:
        # The jobs of real agents outlive them.
        subprocess.run([options.program, 'scancel', '-u', 'root'], env=cluster.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            until(lambda: not cluster.run('squeue', '-h', '-w', f'r[01-{REAL:02}]').strip(), 120, 'the jobs of real agents to end')
        finally:
            for process in [load.process, *real, server]:
                process.terminate()
            for process in [load.process, *real, server]:
                process.wait()


def ask_for(seconds, cluster, server):
    """Asks as many users would. Times of lists, of whole lists and of submits, the memory each second, the server's CPU, and how long it took."""
    lists, wholes, submits, memory = [], [], [], [memory_mib(server.pid)]
    end, began, cpu = time.perf_counter() + seconds, time.perf_counter(), cpu_seconds(server.pid)

    def every(interval, kept, *words):
        due = time.perf_counter()
        while due < end:
            time.sleep(max(0, due - time.perf_counter()))
            kept.append(cluster.timed(*words))
            # What cannot be done in time is left out: a queue of askers would measure itself.
            due = max(due + interval, time.perf_counter() - interval)

    askers = 16
    with concurrent.futures.ThreadPoolExecutor(askers + 3) as pool:
        tasks = [pool.submit(every, askers / LISTS_PER_S, lists, 'squeue', '-u', USER) for _ in range(askers)]
        tasks.append(pool.submit(every, 1, wholes, 'squeue', '-h'))
        tasks.append(pool.submit(every, 1, submits, 'sbatch', '-o', '/dev/null', '--wrap', 'sleep 1'))
        while time.perf_counter() < end:
            time.sleep(1)
            memory.append(memory_mib(server.pid))
        [task.result() for task in tasks]
    return lists, wholes, submits, memory, cpu_seconds(server.pid) - cpu, time.perf_counter() - began


def declared_nodes(options, folder):
    """Rows of ten thousand declared nodes on one agent."""
    cluster = Cluster(options.program, folder, DECLARED)
    up = cluster.timed('up', '--detach', '--config', cluster.conf, '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0')
    try:
        agent = int(open(f'{cluster.state}/agent.pid').read())
        rows = [
            ('`sluice up` with 10,000 declared nodes, s', f'{up:.1f}', 'under 10'),
            ('descriptors of their agent', str(len(os.listdir(f'/proc/{agent}/fd'))), ''),
        ]
        for nodes in (10, 100, 500):
            times = [cluster.timed('srun', '-N', str(nodes), 'true') for _ in range(3)]
            rows.append((f'`srun -N {nodes} true`, s', f'{statistics.median(times):.2f}', ''))
        begin = time.perf_counter()
        job = cluster.run('sbatch', '--parsable', '-N', '5000', '-o', '/dev/null', '--wrap', 'true').strip()
        until(lambda: not cluster.run('squeue', '-h', '-j', job).strip(), 600, 'the job of 5,000 nodes')
        took = time.perf_counter() - begin
        end = cluster.run('sacct', '-n', '-X', '-P', '-j', job, '-o', 'State').strip()
        rows.append((f'a job of 5,000 nodes ({end}), s', f'{took:.1f}', 'it ends'))
        return rows
    finally:
        cluster.run('down', '--jobs')


def main():
    options = argparse.ArgumentParser()
    [options.add_argument(name) for name in ('program', 'load', 'submit')]
    options.add_argument('--minutes', type=float, default=10)
    options.add_argument('--record')
    options = options.parse_args()
    for name in ('program', 'load', 'submit'):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    rows = []
    for part in (declared_nodes, many_agents):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            rows += part(options, folder)
    lines = ['| what | here | wanted |', '|---|---:|---|', *(f'| {what} | {here} | {wanted} |' for what, here, wanted in rows)]
    print('\n'.join(lines))
    if options.record:
        record(options.record, 'bench many', '\n'.join(lines))


if __name__ == '__main__':
    main()
