#!/usr/bin/env python3
"""many_agents.py PROGRAM LOAD SUBMIT [--minutes N] [--within N] [--short] [--part NAME] [--record FILE]: a server with a thousand
agents, a step on the nodes of several agents, and ten thousand declared nodes on one agent, as a table. LOAD is the example
`many_agents` (950 agents in one process that speak the real protocol), SUBMIT the example `submit_rate`; 50 agents are real ones.
All on this machine, as root.

--minutes is how long clients ask (10), --within the bound on the whole run (12): the asking gets what is left. --short is a minute of
clients with 10,000 waiting jobs. A figure is said as soon as it is known; where a part breaks off, the others and the table follow,
and the exit status is 1.
"""
import argparse, concurrent.futures, json, os, re, statistics, subprocess, sys, tempfile, threading, time
from record import Table, progress

LOAD, REAL, CPUS = 950, 50, 5
AGENTS, RUNNING = LOAD + REAL, (LOAD + REAL) * CPUS
WAITING, WAITING_SHORT = 100_000, 10_000
JOB_S = 300
LISTS_PER_S, ASKERS = 100, 16
USER, OWN_JOBS = 'daemon', 50
# What the storm, the last look and the end of the jobs may take of the whole time.
AFTER_S = 75
COMMAND_S = 60
STEP_AGENTS, STEP_NODES = 5, 500
CONFIGURATION = f"""ClusterName=many
SlurmdParameters=config_overrides
MaxJobCount=300000
ReturnToService=1
KillWait=1
NodeName=m[0001-{LOAD:04}],r[01-{REAL:02}] CPUs={CPUS} RealMemory=100000
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=60
"""
STEPS = f"""ClusterName=steps
SlurmdParameters=config_overrides
KillWait=1
NodeName=n[1-{STEP_NODES}] CPUs=4 RealMemory=4000
PartitionName=main Nodes=ALL Default=YES State=UP
"""
DECLARED = """ClusterName=declared
KillWait=1
NodeName=n[1-10000] CPUs=4 RealMemory=4000
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class TimedTable(Table):
    """The rows so far, and the time that is left of the whole."""

    def __init__(self, within):
        super().__init__('many')
        self.deadline = time.perf_counter() + within * 60

    def left(self):
        return self.deadline - time.perf_counter()

    def until(self, done, seconds, what):
        """Waits until it is done; how long that took."""
        begin = time.perf_counter()
        end = begin + max(1, min(seconds, self.left()))
        while not done():
            assert time.perf_counter() < end, f'{end - begin:.0f} s were not enough for {what}'
            time.sleep(0.1)
        return time.perf_counter() - begin


class Cluster:
    """A state folder with a configuration, the commands in it, and the processes that were started for it."""

    def __init__(self, program, folder, configuration):
        self.program, self.folder, self.state, self.conf = program, folder, f'{folder}/state', f'{folder}/conf'
        os.makedirs(self.conf)
        open(f'{self.conf}/slurm.conf', 'w').write(configuration)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(('SLUICE_', 'SLURM_', 'SBATCH_', 'SQUEUE_'))}
        self.environment = {**kept, 'SLUICE_STATE': self.state}
        self.server, self.processes = None, []

    def run(self, *words, seconds=COMMAND_S):
        done = subprocess.run([self.program, *words], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=seconds)
        assert done.returncode == 0, f'{" ".join(words)}: {done.stderr.strip() or done.returncode}'
        return done.stdout

    def timed(self, *words, seconds=COMMAND_S):
        """How long the command took. Its output is dropped: the clients of the load share two processors with the server."""
        begin = time.perf_counter()
        done = subprocess.run(
            [self.program, *words], env=self.environment, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=seconds
        )
        took = time.perf_counter() - begin
        assert done.returncode == 0, f'{" ".join(words)}: {done.stderr.strip() or done.returncode}'
        return took

    def start_server(self):
        words = ['server', '--config', self.conf]
        if not os.path.exists(f'{self.state}/ports.json'):
            words += ['--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0']
        self.server = subprocess.Popen(
            [self.program, *words], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        line = self.server.stdout.readline()
        assert line.startswith('sluice is up'), f'the server says: {line.strip() or self.server.wait()}'

    def join_file(self, name, nodes):
        path = f'{self.folder}/{name}'
        open(path, 'w').write(self.run('token', 'node', nodes))
        return path

    def start_agent(self, name):
        words = ['agent', '--state', f'{self.folder}/{name}', '--join', f'{self.folder}/{name}.join']
        self.processes.append(subprocess.Popen([self.program, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def nodes_up(self):
        """How many nodes answer: one that does not has a sign behind its state."""
        states = (line.split() for line in self.run('sinfo', '-h', '-o', '%D %t').splitlines())
        return sum(int(count) for count, state in states if state.rstrip('+').isalpha() and state not in ('down', 'unk'))

    def stop_agents(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        self.processes = []

    def stop(self):
        self.stop_agents()
        if self.server:
            self.server.terminate()
            self.server.wait()


class Load:
    """The process that is many agents: the last line that it said, and the times of reports."""

    def __init__(self, program, folder, joins):
        self.process = subprocess.Popen([program, f'{folder}/load', joins, str(JOB_S)], stdout=subprocess.PIPE, text=True)
        self.last, self.times = {'connected': 0, 'refused': 0, 'running': 0, 'last_refusal': ''}, []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.last = json.loads(line)
            self.times += self.last['times_ms']


def cpu_seconds(pid):
    fields = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def memory_mib(pid):
    return int(re.search(r'VmRSS:\s+(\d+)', open(f'/proc/{pid}/status').read())[1]) / 1024


def descriptors(pid):
    return len(os.listdir(f'/proc/{pid}/fd'))


def percentiles(times, scale=1.0):
    """The median and the 99th percentile in words."""
    if not times:
        return 'none'
    times = sorted(times)
    at = lambda part: times[min(len(times) - 1, int(len(times) * part))] * scale
    return f'{at(0.5):.0f}, {at(0.99):.0f}'


def many_agents(options, folder, table):
    """A server with a thousand agents."""
    waiting = WAITING_SHORT if options.short else WAITING
    cluster = Cluster(options.program, folder, CONFIGURATION)
    joins = f'{folder}/joins'
    os.makedirs(joins)
    real = [f'r{number:02}' for number in range(1, REAL + 1)]
    files = [(f'joins/m{number:04}', f'm{number:04}') for number in range(1, LOAD + 1)] + [(f'{name}.join', name) for name in real]
    load = None

    def start_agents():
        nonlocal load
        load = Load(options.load, folder, joins)
        cluster.processes.append(load.process)
        for name in real:
            cluster.start_agent(name)

    def all_up():
        return load.last['connected'] == LOAD and cluster.nodes_up() == AGENTS

    try:
        cluster.start_server()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda file: cluster.join_file(*file), files))
        before = descriptors(cluster.server.pid)
        begin = time.perf_counter()
        start_agents()
        table.until(all_up, 120, 'all agents to join')
        table.add(f'{AGENTS:,} agents joined for the first time and connected, s', f'{time.perf_counter() - begin:.1f}')
        held = descriptors(cluster.server.pid) - before
        table.add('descriptors of the server for each agent', f'{held / AGENTS:.2f}', 'at most 1')
        cluster.stop()
        begin = time.perf_counter()
        cluster.start_server()
        start_agents()
        table.until(all_up, 120, 'all agents after a start')
        table.add(f'{AGENTS:,} agents connected after a start of server and agents, s', f'{time.perf_counter() - begin:.1f}', 'under 10')

        fill_queue(options, cluster, RUNNING + waiting)
        table.until(lambda: load.last['running'] >= LOAD * CPUS * 0.95, 300, f'{RUNNING} running jobs')
        time.sleep(2)
        load.times.clear()
        seconds = max(30, min(options.minutes * 60, table.left() - AFTER_S))
        asked = Asked(cluster)
        asked.ask_for(seconds)
        reports = list(load.times)
        running, left = (len(cluster.run('squeue', '-h', '-t', state, '-o', '%i').split()) for state in ('R', 'PD'))
        jobs = f'{running:,} jobs running and {left:,} waiting'
        table.add(f'the server with {jobs}, % of one CPU over {asked.seconds / 60:.1f} min', f'{100 * asked.cpu / asked.seconds:.0f}')
        table.add('its memory, MiB, at the beginning, at most, and at the end', f'{asked.memory[0]:.0f}, {max(asked.memory):.0f}, {asked.memory[-1]:.0f}', 'bounded')
        for what, kept, rate in (
            (f'`squeue -u USER` of {OWN_JOBS} jobs, {LISTS_PER_S} a second asked', 'lists', True),
            ('`squeue` of all, once a second', 'wholes', False),
            ('`sbatch`, once a second', 'submits', False),
        ):
            times, failed = asked.times[kept], asked.failures[kept]
            done = f'{len(times) / asked.seconds:.0f} a second done' if rate else f'{len(times)} done'
            table.add(f'{what}, {done}, {failed} failed, median and p99, ms', percentiles(times, 1e3))
        table.add(f'a report of an agent, behind its heartbeat, until it is on disk, {len(reports):,} of them, median and p99, ms', percentiles(reports))
        if asked.failure:
            progress('many', f'the first that failed: {asked.failure}')

        # The storm: nobody is told that the server goes. It counts from the start of the next server, which reads its journal first.
        cluster.server.kill()
        cluster.server.wait()
        table.until(lambda: load.last['connected'] == 0, 60, 'the agents to notice')
        refused = load.last['refused']
        begin = time.perf_counter()
        cluster.start_server()
        journal = time.perf_counter() - begin
        table.until(all_up, 120, 'all agents after the restart')
        storm, refused = time.perf_counter() - begin, load.last['refused'] - refused
        table.add(f'all of them back after a kill of the server, with {jobs}, s ({journal:.1f} of them until it answers; {refused} refused)', f'{storm:.1f}', 'under 10, none refused')
        if refused:
            progress('many', f'the last refusal: {load.last["last_refusal"]}')
    finally:
        # The jobs of real agents outlive them: nothing more starts, and those that run there are ended first.
        try:
            cluster.run('scontrol', 'update', 'partitionname=main', 'state=down')
            cluster.run('scancel', '-w', f'r[01-{REAL:02}]')
            table.until(lambda: not cluster.run('squeue', '-h', '-w', f'r[01-{REAL:02}]').strip(), 60, 'the jobs of real agents to end')
        except (AssertionError, subprocess.TimeoutExpired) as error:
            progress('many', f'jobs of real agents may go on for {JOB_S} s: {error}')
        cluster.stop()


def fill_queue(options, cluster, count):
    """The jobs of the user whose list is asked for, which are held, among those of others."""
    as_user = ['setpriv', f'--reuid={USER}', f'--regid={USER}', '--clear-groups', options.program]
    own = [*as_user, 'sbatch', '-H', '-D', '/', '-o', '/dev/null', '--wrap', 'true']
    for _ in range(OWN_JOBS):
        subprocess.run(own, env={**cluster.environment, 'HOME': '/'}, cwd='/', check=True, stdout=subprocess.DEVNULL, timeout=COMMAND_S)
    begin = time.perf_counter()
    words = [f'{cluster.state}/sluice.sock', str(count), '32', 'equal', 'ready', f'sleep={JOB_S}']
    subprocess.run([options.submit, *words], check=True, stdout=subprocess.DEVNULL, timeout=300)
    progress('many', f'{count:,} jobs submitted in {time.perf_counter() - begin:.0f} s')


class Asked:
    """Clients that ask as many users would: the times of their commands, the server's memory in each second, and its CPU."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.times = {'lists': [], 'wholes': [], 'submits': []}
        self.failures, self.failure = dict.fromkeys(self.times, 0), ''

    def every(self, interval, kept, *words):
        due = time.perf_counter()
        while due < self.end:
            time.sleep(max(0, due - time.perf_counter()))
            try:
                self.times[kept].append(self.cluster.timed(*words))
            except (AssertionError, subprocess.TimeoutExpired) as error:
                self.failures[kept] += 1
                self.failure = self.failure or str(error)
            # What cannot be done in time is left out: a queue of askers would measure itself.
            due = max(due + interval, time.perf_counter() - interval)

    def ask_for(self, seconds):
        pid = self.cluster.server.pid
        self.memory = [memory_mib(pid)]
        began, cpu = time.perf_counter(), cpu_seconds(pid)
        self.end = began + seconds
        with concurrent.futures.ThreadPoolExecutor(ASKERS + 2) as pool:
            tasks = [pool.submit(self.every, ASKERS / LISTS_PER_S, 'lists', 'squeue', '-u', USER) for _ in range(ASKERS)]
            tasks.append(pool.submit(self.every, 1, 'wholes', 'squeue', '-h'))
            tasks.append(pool.submit(self.every, 1, 'submits', 'sbatch', '-o', '/dev/null', '--wrap', 'sleep 1'))
            while time.perf_counter() < self.end:
                time.sleep(1)
                self.memory.append(memory_mib(pid))
            [task.result() for task in tasks]
        self.seconds, self.cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu


def steps(cluster, table, where):
    """The time of a step on 10, 100 and 500 nodes."""
    for nodes in (10, 100, 500):
        times = [cluster.timed('srun', '-N', str(nodes), 'true', seconds=120) for _ in range(3)]
        table.add(f'`srun -N {nodes} true` on declared nodes of {where}, s', f'{statistics.median(times):.2f}')


def several_agents(options, folder, table):
    """A step on declared nodes of several agents."""
    cluster = Cluster(options.program, folder, STEPS)
    try:
        cluster.start_server()
        each = STEP_NODES // STEP_AGENTS
        for number in range(STEP_AGENTS):
            cluster.join_file(f'a{number}.join', f'n[{number * each + 1}-{(number + 1) * each}]')
            cluster.start_agent(f'a{number}')
        table.until(lambda: cluster.nodes_up() == STEP_NODES, 60, f'{STEP_AGENTS} agents')
        steps(cluster, table, f'{STEP_AGENTS} agents')
    finally:
        cluster.stop()


def declared_nodes(options, folder, table):
    """Ten thousand declared nodes on one agent."""
    cluster = Cluster(options.program, folder, DECLARED)
    up = cluster.timed('up', '--detach', '--config', cluster.conf, '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0')
    try:
        table.add('`sluice up` with 10,000 declared nodes, s', f'{up:.1f}', 'under 10')
        agent = int(open(f'{cluster.state}/agent.pid').read())
        table.add('descriptors of their agent', str(descriptors(agent)))
        steps(cluster, table, 'one agent')
        begin = time.perf_counter()
        job = cluster.run('sbatch', '--parsable', '-N', '5000', '-o', '/dev/null', '--wrap', 'true').strip()
        table.until(lambda: not cluster.run('squeue', '-h', '-j', job).strip(), 120, 'the job of 5,000 nodes')
        took = time.perf_counter() - begin
        end = cluster.run('sacct', '-n', '-X', '-P', '-j', job, '-o', 'State').strip()
        table.add(f'a job of 5,000 nodes ({end}), s', f'{took:.1f}', 'it ends')
    finally:
        cluster.run('down', '--jobs', seconds=120)


PARTS = {'declared': declared_nodes, 'steps': several_agents, 'agents': many_agents}


def main():
    options = argparse.ArgumentParser()
    [options.add_argument(name) for name in ('program', 'load', 'submit')]
    options.add_argument('--minutes', type=float, default=10)
    options.add_argument('--within', type=float, default=12)
    options.add_argument('--short', action='store_true')
    options.add_argument('--part', choices=PARTS, action='append')
    options.add_argument('--record')
    options = options.parse_args()
    for name in ('program', 'load', 'submit'):
        setattr(options, name, os.path.abspath(getattr(options, name)))
    if options.short:
        options.minutes = min(options.minutes, 1)
    table, failed = TimedTable(options.within), False
    for name in options.part or PARTS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.chmod(folder, 0o755)
            try:
                PARTS[name](options, folder, table)
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                failed = True
                progress('many', f'{name} broke off: {error}')
    table.finish(None if failed else options.record)
    sys.exit(failed)


if __name__ == '__main__':
    main()
