#!/usr/bin/env python3
"""several_servers.py PROGRAM SUBMIT POSTGRES_BENCH [--waiting N] [--running N] [--record FILE]: servers on one PostgreSQL beside a
server with its state in files, in one run on this machine, as a table. SUBMIT is the example `submit_rate`, POSTGRES_BENCH the example
`postgres_bench` of the store. PostgreSQL is started in a scratch folder, by an ordinary user where this is root.
"""
import argparse, glob, os, re, shutil, signal, subprocess, sys, tempfile, time
from record import progress, record

SUBMITS, IN_FLIGHT, ALONE = 20_000, 32, 1_000
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


def plain_commit_ms(program, url):
    said = subprocess.run([program, url], capture_output=True, text=True, check=True).stdout
    return 1000 / float(re.search(r'plain commits of 600 bytes: (\d+)/s', said).group(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program'), parser.add_argument('submit'), parser.add_argument('postgres_bench')
    parser.add_argument('--waiting', type=int, default=50_000), parser.add_argument('--running', type=int, default=500)
    parser.add_argument('--record')
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    folder = tempfile.mkdtemp(prefix='several-')
    os.chmod(folder, 0o755)
    rows, servers, agent = [], [], None

    def add(what, here, wanted):
        rows.append((what, here, wanted))
        progress('servers', f'{what}: {here} (wanted: {wanted})')

    database = Postgres(f'{folder}/postgres')
    try:
        key = f'{folder}/store.key'
        open(key, 'w').write('5e' * 32)
        plain = plain_commit_ms(args.postgres_bench, database.url('plain'))
        alone = Server(program, f'{folder}/alone').start()
        servers.append(alone)
        files = alone.submits(args.submit, SUBMITS, IN_FLIGHT)
        alone.end()
        leader = Server(program, f'{folder}/first', database.url('sluice'), key).start()
        servers.append(leader)
        shared = leader.submits(args.submit, SUBMITS, IN_FLIGHT)
        add(f'durable submits a second, {IN_FLIGHT} in flight, on PostgreSQL; with files {files:.0f}', f'{shared:.0f}, {shared / files:.2f} times', 'at least 0.6 times')
        one_ms = 1000 / leader.submits(args.submit, ALONE, 1)
        add(f'one at a time, ms; one plain commit takes {plain:.2f}', f'{one_ms:.2f}, {one_ms / plain:.1f} times', 'at most 2.5 times')

        standby = Server(program, f'{folder}/second', database.url('sluice'), key).start('sluice waits')
        servers.append(standby)
        cpu = [server.cpu_s() for server in (leader, standby)]
        rate = leader.submits(args.submit, SUBMITS, IN_FLIGHT)
        await_that(lambda: 'behind' not in leader.run('scontrol', 'ping').stdout, 'the standby')
        used = [server.cpu_s() - before for server, before in zip((leader, standby), cpu)]
        add(f'CPU of a standby while it follows {rate:.0f} submits a second, of the leader\'s', f'{used[1] / used[0]:.2f}', 'at most 0.33')
        add('memory of the standby and of the leader then, MB', f'{standby.rss_mb():.0f}, {leader.rss_mb():.0f}', '')

        before = leader.cpu_s()
        for _ in range(LISTS):
            leader.run('squeue', '-h', '-o', '%i')
        own = leader.cpu_s() - before
        before = leader.cpu_s()
        for _ in range(LISTS):
            standby.run('squeue', '-h', '-o', '%i')
        passed = leader.cpu_s() - before
        add('the leader\'s CPU for a `squeue` that a standby answers, of answering it itself', f'{100 * passed / own:.1f} %', 'under 5 %')

        if args.running:
            join = f'{folder}/nodes.join'
            open(join, 'w').write(leader.run('token', 'node', 'n[1-100]').stdout)
            words = [program, 'agent', '--state', f'{folder}/agent', '--join', join]
            agent = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            await_that(lambda: 'idle' in leader.run('sinfo', '-h', '-o', '%t').stdout, 'the nodes')
            leader.submits(args.submit, args.running, IN_FLIGHT, 'equal', 'ready', 'sleep=600')
            await_that(lambda: len(leader.run('squeue', '-h', '-t', 'R', '-o', '%i').stdout.split()) >= args.running, 'the jobs', 300)
        there = len(leader.run('squeue', '-h', '-t', 'PD', '-o', '%i').stdout.split())
        if there < args.waiting:
            leader.submits(args.submit, args.waiting - there, IN_FLIGHT)
        of = f'with {args.waiting:,} waiting and {args.running} running jobs'

        begin = time.perf_counter()
        leader.run('scontrol', 'takeover')
        standby.first_submit()
        add(f'hand-over {of}: first acknowledged submit, s', f'{time.perf_counter() - begin:.2f}', 'under 0.5')
        leader.process.wait()
        leader.start('sluice waits')
        await_that(lambda: 'backup1' in standby.run('scontrol', 'ping').stdout, 'the standby')
        begin = time.perf_counter()
        standby.end(signal.SIGKILL)
        leader.first_submit()
        add(f'takeover after kill -9 {of}: first acknowledged submit, s', f'{time.perf_counter() - begin:.2f}', 'under 3')
    finally:
        if agent:
            agent.terminate()
            agent.wait()
        for server in servers:
            server.end()
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)
    text = '\n'.join(['| what | here | wanted |', '|---|---:|---|', *(f'| {what} | {here} | {wanted} |' for what, here, wanted in rows)])
    print(text)
    if args.record:
        record(args.record, 'bench servers', text)


if __name__ == '__main__':
    sys.exit(main())
