#!/usr/bin/env python3
"""several_servers.py PROGRAM SUBMIT POSTGRES_BENCH [--waiting N] [--running N] [--record FILE]: servers on one PostgreSQL beside a
server with its state in files, in one run on this machine, as a table. SUBMIT is the example `submit_rate`, POSTGRES_BENCH the example
`postgres_bench` of the store. PostgreSQL is started in a scratch folder, by an ordinary user where this is root.

A plain commit is one prepared INSERT of as many bytes as a submit writes, which commits by itself, on a connection that is there: the
time of many in a row, as that of submits one at a time, whose connection is there too, and whose requests are made while the server has the
one before. They are asked for as the program's commands do, by HTTP/1.1 from a client that blocks, and over HTTP/2. All go over a socket of this
machine, into tables that are stored alike, and are measured in turns. No two submits bring the same script: each writes all its bytes.
"""
import argparse, glob, os, re, shutil, signal, statistics, subprocess, sys, tempfile, time
from record import Table

SUBMITS, IN_FLIGHT, ALONE = 20_000, 32, 1_000
# What a standby follows: so many submits, at this rate a second.
FOLLOWED, FOLLOWED_RATE = 10_000, 1_000
TURNS = 5
# How submits that come alone are asked for, with the words of it.
KINDS = {'as commands ask': ('http1',), 'over HTTP/2': ()}
LISTS = 30
ORDINARY_USER = 65534
ANSWER_S = 60
CONFIGURATION = """ClusterName=several
SlurmdParameters=config_overrides
MaxJobCount=300000
KillWait=1
NodeName=n[1-100] CPUs=8 RealMemory=4000
PartitionName=main Nodes=ALL Default=YES State=UP
"""


class Postgres:
    """A database of the run's own, on a socket in a scratch folder."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder)
        if os.geteuid() == 0:
            os.chown(folder, ORDINARY_USER, ORDINARY_USER)
            os.chmod(folder, 0o755)
        self.run('initdb', '--username=sluice', '--auth=trust', '--encoding=UTF8', '--locale=C', '--pgdata', f'{folder}/data')
        words = [self.path('postgres'), '-D', f'{folder}/data', '-k', folder, '-c', 'listen_addresses=']
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self.user())
        await_that(lambda: subprocess.run([self.path('pg_isready'), '-h', folder], capture_output=True).returncode == 0, 'PostgreSQL')
        self.run('createdb', '-h', folder, '-U', 'sluice', 'sluice')
        self.run('createdb', '-h', folder, '-U', 'sluice', 'plain')

    def path(self, name):
        found = sorted(glob.glob(f'/usr/lib/postgresql/*/bin/{name}')) or [shutil.which(name)]
        return found[-1]

    def user(self):
        return {'user': ORDINARY_USER, 'group': ORDINARY_USER, 'cwd': self.folder} if os.geteuid() == 0 else {}

    def run(self, name, *words):
        subprocess.run([self.path(name), *words], check=True, stdout=subprocess.DEVNULL, **self.user())

    def value(self, database, sql):
        """The one value that a statement returns."""
        words = [self.path('psql'), '-X', '-A', '-t', '-h', self.folder, '-U', 'sluice', '-d', database, '-c', sql]
        return subprocess.run(words, check=True, capture_output=True, text=True, **self.user()).stdout.strip()

    def url(self, database):
        return f'postgres:///{database}?host={self.folder}&user=sluice'

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()


def await_that(done, what, seconds=ANSWER_S, pause=0.01):
    """How long it took."""
    begin = time.perf_counter()
    while not done():
        assert time.perf_counter() - begin < seconds, f'{seconds} s were not enough for {what}'
        time.sleep(pause)
    return time.perf_counter() - begin


class Server:
    """A server in a state folder of its own."""

    def __init__(self, program, folder, store=None, key=None):
        self.program, self.state = program, f'{folder}/state'
        conf = f'{folder}/conf'
        os.makedirs(conf)
        open(f'{conf}/slurm.conf', 'w').write(CONFIGURATION)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(('SLUICE_', 'SLURM_', 'SBATCH_', 'SQUEUE_'))}
        self.environment = {**kept, 'SLUICE_STATE': self.state}
        self.words = ['server', '--config', conf, '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0']
        if store:
            self.words += ['--store', store, '--store-key-file', key]
        self.process = None

    def start(self, says='sluice is up'):
        self.process = subprocess.Popen(
            [self.program, *self.words], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        line = self.process.stdout.readline()
        assert line.startswith(says), f'the server says: {line.strip() or self.process.wait()}'
        return self

    def run(self, *words, check=True):
        done = subprocess.run([self.program, *words], env=self.environment, capture_output=True, text=True, timeout=ANSWER_S)
        assert not check or done.returncode == 0, f'{" ".join(words)}: {done.stderr.strip()}'
        return done

    def submits(self, submit, jobs, in_flight, *words):
        """Submits a second."""
        done = subprocess.run([submit, f'{self.state}/sluice.sock', str(jobs), str(in_flight), *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return float(re.search(r'per_s=(\d+)', done.stdout).group(1))

    def cpu_s(self):
        fields = open(f'/proc/{self.process.pid}/stat').read().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    def rss_mb(self):
        return int(re.search(r'VmRSS:\s+(\d+)', open(f'/proc/{self.process.pid}/status').read()).group(1)) / 1024

    def first_submit(self):
        """When a submit is acknowledged, from now on."""
        return await_that(lambda: self.run('sbatch', '-H', '--wrap', 'true', check=False).returncode == 0, 'a submit')

    def end(self, by=signal.SIGTERM):
        if self.process and self.process.poll() is None:
            self.process.send_signal(by)
            self.process.wait()


class Scratch:
    """A scratch folder with a database, and the servers in it. All of it is gone at the end."""

    def __init__(self, program, prefix):
        self.program, self.servers = os.path.abspath(program), []
        self.folder = tempfile.mkdtemp(prefix=prefix)
        os.chmod(self.folder, 0o755)
        self.key = f'{self.folder}/store.key'
        open(self.key, 'w').write('5e' * 32)
        self.database = Postgres(f'{self.folder}/postgres')

    def server(self, name, is_shared=True):
        """A server that is not started: on the database, or with its state in files."""
        store = (self.database.url('sluice'), self.key) if is_shared else ()
        server = Server(self.program, f'{self.folder}/{name}', *store)
        self.servers.append(server)
        return server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.end()
        self.database.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def plain_commit_ms(program, url, size):
    said = subprocess.run([program, url, str(size)], capture_output=True, text=True, check=True).stdout
    return 1000 / float(re.search(r'plain commits of \d+ bytes: (\d+)/s', said).group(1))


def bytes_of_a_submit(database, submits):
    """What a history of so many submits has written for each: its events, and its scripts and environments."""
    frames = 'SELECT sum(octet_length(frame)) FROM sluice.journal'
    texts = "SELECT sum(octet_length(bytes)) FROM sluice.extent e JOIN sluice.file f ON f.id = e.file WHERE f.path LIKE 'blobs/%'"
    return int(database.value('sluice', f'SELECT (({frames}) + ({texts})) / {submits}'))


def one_at_a_time(args, scratch, alone, leader, table):
    leader.submits(args.submit, ALONE, 1)
    alone.submits(args.submit, ALONE, 1)
    size = bytes_of_a_submit(scratch.database, ALONE)
    took = {'plain': [], **{(name, kind): [] for name in ('shared', 'files') for kind in KINDS}}
    for _ in range(TURNS):
        # In turns, so that what else the machine does weighs on all of them.
        took['plain'].append(plain_commit_ms(args.postgres_bench, scratch.database.url('plain'), size))
        for kind, words in KINDS.items():
            took['shared', kind].append(1000 / leader.submits(args.submit, ALONE, 1, *words))
            took['files', kind].append(1000 / alone.submits(args.submit, ALONE, 1, *words))
    ms = {of: statistics.median(times) for of, times in took.items()}
    for kind in KINDS:
        shared, files, plain = ms['shared', kind], ms['files', kind], ms['plain']
        what = f'one at a time on PostgreSQL {kind}, ms; one plain commit of its {size:,} bytes takes {plain:.2f}, a submit with files {files:.2f}'
        table.add(f'{what} (medians of {TURNS} in turns)', f'{shared:.2f}, {shared / plain:.1f} times', 'at most 2.5 times')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program'), parser.add_argument('submit'), parser.add_argument('postgres_bench')
    parser.add_argument('--waiting', type=int, default=50_000), parser.add_argument('--running', type=int, default=500)
    parser.add_argument('--record')
    args = parser.parse_args()
    table = Table('servers')
    with Scratch(args.program, 'several-') as scratch:
        measure(args, scratch, table)
    table.finish(args.record)


def measure(args, scratch, table):
    alone, leader = scratch.server('alone', is_shared=False).start(), scratch.server('first').start()
    one_at_a_time(args, scratch, alone, leader, table)
    files = alone.submits(args.submit, SUBMITS, IN_FLIGHT)
    alone.end()
    shared = leader.submits(args.submit, SUBMITS, IN_FLIGHT)
    table.add(f'durable submits a second, {IN_FLIGHT} in flight, on PostgreSQL; with files {files:.0f}', f'{shared:.0f}, {shared / files:.2f} times', 'at least 0.6 times')
    standby = scratch.server('second').start('sluice waits')
    standby_rows(args, leader, standby, table)
    agent = None
    try:
        if args.running:
            agent = start_jobs(args, scratch, leader)
        takeover_rows(args, leader, standby, table)
    finally:
        if agent:
            agent.terminate()
            agent.wait()


def standby_rows(args, leader, standby, table):
    cpu = [server.cpu_s() for server in (leader, standby)]
    rate = leader.submits(args.submit, FOLLOWED, IN_FLIGHT, f'rate={FOLLOWED_RATE}')
    await_that(lambda: 'behind' not in leader.run('scontrol', 'ping').stdout, 'the standby')
    used = [server.cpu_s() - before for server, before in zip((leader, standby), cpu)]
    table.add(f'CPU of a standby while it follows {rate:.0f} submits a second, of the leader\'s', f'{used[1] / used[0]:.2f}', 'at most 0.33')
    table.add('memory of the standby and of the leader then, MB', f'{standby.rss_mb():.0f}, {leader.rss_mb():.0f}')

    before = leader.cpu_s()
    for _ in range(LISTS):
        leader.run('squeue', '-h', '-o', '%i')
    own = leader.cpu_s() - before
    before = leader.cpu_s()
    for _ in range(LISTS):
        standby.run('squeue', '-h', '-o', '%i')
    passed = leader.cpu_s() - before
    table.add('the leader\'s CPU for a `squeue` that a standby answers, of answering it itself', f'{100 * passed / own:.1f} %', 'under 5 %')


def start_jobs(args, scratch, leader):
    """Runs jobs on declared nodes; their agent."""
    join = f'{scratch.folder}/nodes.join'
    open(join, 'w').write(leader.run('token', 'node', 'n[1-100]').stdout)
    words = [scratch.program, 'agent', '--state', f'{scratch.folder}/agent', '--join', join]
    agent = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_that(lambda: 'idle' in leader.run('sinfo', '-h', '-o', '%t').stdout, 'the nodes')
        leader.submits(args.submit, args.running, IN_FLIGHT, 'equal', 'ready', 'sleep=600')
        await_that(lambda: len(leader.run('squeue', '-h', '-t', 'R', '-o', '%i').stdout.split()) >= args.running, 'the jobs', 300)
    except BaseException:
        agent.terminate()
        agent.wait()
        raise
    return agent


def takeover_rows(args, leader, standby, table):
    there = len(leader.run('squeue', '-h', '-t', 'PD', '-o', '%i').stdout.split())
    if there < args.waiting:
        leader.submits(args.submit, args.waiting - there, IN_FLIGHT)
    of = f'with {args.waiting:,} waiting and {args.running} running jobs'

    begin = time.perf_counter()
    leader.run('scontrol', 'takeover')
    standby.first_submit()
    table.add(f'hand-over {of}: first acknowledged submit, s', f'{time.perf_counter() - begin:.2f}', 'under 0.5')
    leader.process.wait()
    leader.start('sluice waits')
    # What is measured is the takeover by a server that waits, not how long one takes to start.
    await_that(lambda: 'backup1' in (said := standby.run('scontrol', 'ping').stdout) and 'behind' not in said, 'the standby')
    begin = time.perf_counter()
    standby.end(signal.SIGKILL)
    leader.first_submit()
    table.add(f'takeover after kill -9 {of}: first acknowledged submit, s', f'{time.perf_counter() - begin:.2f}', 'under 3')


if __name__ == '__main__':
    sys.exit(main())
