#!/usr/bin/env python3
"""Sluice beside a real Slurm in one run: compare.py SLUICE SUBMIT_RATE BARE_LAUNCH PLAN_SCALE CLUSTER_SCALE [--alone] [--record FILE]

Both have two nodes of 32 CPUs, a control group and a hard memory limit for each job, and accounting.
Every figure is wall time as a user sees it; CPU stands beside it where it can be told apart.
Prints a table; --record puts it into FILE between the lines `<!-- bench -->` and `<!-- /bench -->`."""
import os, pwd, re, shutil, statistics, subprocess, sys, tempfile, time

import node
from record import progress, record

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(HERE, 'slurm-lab')
CONF = """ClusterName=bench
SlurmdParameters=config_overrides
DefMemPerCPU=16
KillWait=5
MaxJobCount=200000
MaxArraySize=100001
NodeName=node[1-2] CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=128000
PartitionName=gpu Nodes=node[1-2] Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP
"""
# Two nodes with a CPU for each of `node.JOBS_AT_ONCE` jobs.
WIDE = CONF.replace('CPUs=32 Sockets=2 CoresPerSocket=16', 'CPUs=512 Sockets=2 CoresPerSocket=256')
MANY, MOST = 10_000, 50_000
ACCOUNTING = '/sys/fs/cgroup/cpuacct'
DEVNULL = subprocess.DEVNULL


def run(args, **kw):
    return subprocess.run(args, check=True, stdout=subprocess.PIPE, text=True, **kw).stdout


def figures(text):
    """The last line of key=value pairs."""
    return {k: float(v) for k, v in re.findall(r'(\w+)=([\d.]+)', text.strip().splitlines()[-1])}


class Cluster:
    """One of the two, with its commands first on PATH."""

    def __init__(self, name, path, env, cpuacct, jobs):
        self.name, self.jobs = name, jobs
        self.env = {**os.environ, **env, 'PATH': f'{path}:{os.environ["PATH"]}', 'CPUACCT': cpuacct}

    def bench(self, *words):
        progress(self.name, ' '.join(map(str, words)))
        lab = [sys.executable, os.path.join(LAB, 'bin', 'bench.py'), *map(str, words)]
        return figures(run(lab, cwd=self.jobs, env=self.env))

    def command(self, *words):
        return run(list(words), cwd=self.jobs, env=self.env)

    def seconds(self, *words):
        begin = time.perf_counter()
        subprocess.run(list(words), check=True, cwd=self.jobs, env=self.env, stdout=DEVNULL)
        return time.perf_counter() - begin

    def median_ms(self, times, *words):
        return statistics.median(self.seconds(*words) for _ in range(times)) * 1e3

    def rss_kb(self):
        return node.rss_kb(self.pid())

    def daemon_pids(self):
        """The server, as words for `kill`, after whoever would start it again."""
        return str(self.pid())

    def kill(self):
        for pid in self.daemon_pids().split():
            os.kill(int(pid), 9)

    def first_answer(self):
        """From a server that was killed to the first answer."""
        self.kill()
        begin = time.perf_counter()
        self.start()
        deadline = begin + 60
        while subprocess.run(['squeue', '-h', '-u', 'nobody'], env=self.env, stdout=DEVNULL, stderr=DEVNULL).returncode:
            assert time.perf_counter() < deadline, 'no answer for a minute'
            time.sleep(0.01)
        return time.perf_counter() - begin

    def start(self):
        subprocess.run(self.start_words(), shell=True, check=True, env=self.env, stdout=DEVNULL, stderr=DEVNULL)


class Sluice(Cluster):
    def __init__(self, program, work):
        self.program, self.state = program, f'{work}/state'
        for folder in ('bin', 'conf'):
            os.makedirs(f'{work}/{folder}')
        self.configure(f'{work}/conf', CONF)
        run([program, 'links', f'{work}/bin'])
        self.conf = f'{work}/conf'
        self.group = f'{ACCOUNTING}/sluicebench'
        super().__init__('sluice', f'{work}/bin', {'SLUICE_STATE': self.state}, f'{self.group}/cpuacct.usage', f'{work}/jobs')

    def configure(self, folder, text):
        open(f'{folder}/slurm.conf', 'w').write(text)

    def start_words(self):
        return f'{self.program} up --detach --config {self.conf} --listen 127.0.0.1:0 --agents 127.0.0.1:0'

    def up(self):
        """In an accounting group of its own, with all its daemons and jobs."""
        enter = f'mkdir -p {self.group} 2>/dev/null && echo $$ > {self.group}/cgroup.procs; '
        subprocess.run(enter + self.start_words(), shell=True, check=True, env=self.env, stdout=DEVNULL)

    def down(self):
        subprocess.run([self.program, 'down', '--jobs'], env=self.env, stdout=DEVNULL, stderr=DEVNULL)
        shutil.rmtree(self.state, ignore_errors=True)
        subprocess.run(['rmdir', self.group], stderr=DEVNULL)

    def pid(self):
        return int(open(f'{self.state}/server.pid').read())

    def daemon_pids(self):
        return open(f'{self.state}/server-keeper.pid').read().strip() + f' {self.pid()}'


class Slurm(Cluster):
    def __init__(self, work):
        self.lab = f'{work}/lab'
        env = {'LAB': self.lab, 'SLURM_CONF': f'{self.lab}/etc/slurm.conf'}
        super().__init__('slurm', '/usr/bin', env, f'{ACCOUNTING}/slurmlab/cpuacct.usage', f'{work}/jobs')

    def start_words(self):
        return 'setsid /usr/sbin/slurmctld </dev/null'

    def up(self, profile):
        progress(self.name, f'start, profile {profile}')
        log = open(f'{self.jobs}/../lab.log', 'a')
        subprocess.run([f'{LAB}/up.sh', profile, 'clean'], check=True, env=self.env, stdout=log, stderr=log)

    def down(self):
        subprocess.run([f'{LAB}/down.sh'], env=self.env, stdout=DEVNULL, stderr=DEVNULL)

    def pid(self):
        return int(open(f'{self.lab}/run/slurmctld.pid').read())


def short(cluster):
    """What is measured on an idle cluster."""
    runs = [cluster.bench('tput', 1000) for _ in range(3)]
    median = lambda key: statistics.median(one.get(key, float('nan')) for one in runs)
    seen = {'jobs/s': median('jobs_per_s'), 'cpu': median('cpu_ms_per_job'), 'srun': cluster.bench('srun', 20)['median_ms'],
            'sbatch/s': cluster.bench('submit', 500, 1)['per_s']}
    cluster.command('scancel', '-u', pwd.getpwuid(os.getuid()).pw_name)
    node.until(lambda: not cluster.command('squeue', '-h').strip(), 60, 'an idle cluster')
    progress(cluster.name, 'jobs that follow one another')
    seen |= node.gaps(cluster, 20 if cluster.name == 'slurm' else 60)
    # Last: a server that is started again is no longer in the group whose CPU is counted.
    lost = twice = 0
    for pause in (0, 1, 3):
        out = run([sys.executable, f'{LAB}/bin/bench.py', 'acks', '200', f'sleep {pause}; kill -9 {cluster.daemon_pids()}',
                   cluster.start_words() + ' >/dev/null'], cwd=cluster.jobs, env=cluster.env)
        progress(cluster.name, out.strip())
        lost, twice = lost + int(figures(out)['lost']), twice + out.count('reused=True')
    cluster.command('scancel', '-u', pwd.getpwuid(os.getuid()).pw_name)
    return seen | {'lost': lost, 'twice': twice}


def long(cluster, submit):
    """What is measured with a long queue; `submit(n)` puts n held jobs in."""
    user = pwd.getpwuid(os.getuid()).pw_name
    submit(100)
    before = cluster.rss_kb()
    submit(MANY - 100)
    seen = {'B/job': (cluster.rss_kb() - before) * 1024 / (MANY - 100)}
    progress(cluster.name, f'{MANY} waiting')
    seen['squeue'] = cluster.median_ms(11, 'squeue')
    seen['answer'] = len(cluster.command('squeue'))
    seen['scancel'] = cluster.seconds('scancel', '-u', user)
    assert not cluster.command('squeue', '-h').strip(), 'something was left after scancel'
    return seen


def sluice_alone(sluice, rate, bare):
    """What has no counterpart that could be measured here."""
    socket = f'{sluice.state}/sluice.sock'
    submit = lambda n, at_once, *more: figures(run([rate, socket, str(n), str(at_once), *more]))
    seen = {'one': submit(2000, 1)['per_s'], 'many': submit(3000, 32)['per_s']}
    small = sluice.rss_kb()
    submit(MOST - 5000, 32)
    seen['slope'] = (sluice.rss_kb() - small) * 1024 / (MOST - 5000)
    progress('sluice', f'{MOST} waiting')
    seen['restart'] = sluice.first_answer()
    lines = run([bare, '500']).splitlines()
    seen.update(figures(lines[0]), **figures(lines[1]))
    path = os.path.join(os.path.dirname(bare), 'launch_path')
    seen.update(figures(run([path, '500', f'{sluice.jobs}/launch-path'])))
    subprocess.run(['rmdir', f'{ACCOUNTING}/sluicelaunch'], stderr=DEVNULL)
    seen['sync_us'] = sync_us(sluice.jobs)
    return seen


def sync_us(folder, times=300):
    """One write of 600 bytes and one fdatasync, in a file that is allocated already."""
    path = f'{folder}/sync'
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, bytes(times * 4096), 0)
    os.fsync(fd)
    begin = time.perf_counter()
    for i in range(times):
        os.pwrite(fd, b'x' * 600, i * 4096)
        os.fdatasync(fd)
    took = (time.perf_counter() - begin) / times * 1e6
    os.close(fd)
    os.unlink(path)
    return took


def scheduler(plan_scale, cluster_scale):
    """The scheduler by itself, with a long queue on a large cluster; wall and processor, in ms."""
    progress('scheduler', 'plans, views and submits of a large cluster')
    said = run([plan_scale, '1', '40'])
    timed = lambda what: [(float(w), float(c)) for w, c in re.findall(what + r': ([\d.]+) ms, ([\d.]+) ms on', said)]
    after = sorted(c for _, c in timed('after one job ended'))
    state = run([cluster_scale])
    return {
        'nothing': timed('a plan from nothing')[0], 'after': after[len(after) // 2], 'after90': after[len(after) * 9 // 10],
        'machines': timed('machines for 1000 jobs over 4200 offers')[0], 'all': timed('estimates for all')[0], 'mib': int(re.search(r'memory at most: (\d+)', said)[1]),
        'submit': float(re.search(r'a submit: ([\d.]+)', state)[1]), 'view': float(re.search(r'view ([\d.]+) ms', state)[1]),
    }


def scheduler_rows(s):
    return ['', 'The scheduler: 100,000 waiting jobs of 1,000 users in 200 shapes, 10,000 nodes of 8 GPUs in 8 classes, 90 % busy; seed 1:', '',
            '| what | measured | wanted |', '|---|---:|---:|',
            f'| a plan from nothing, 1,000 places kept | {s["nothing"][1] / 1e3:.2f} s on the processor, {s["nothing"][0] / 1e3:.2f} s in all | under 1 s |',
            f'| after one job ended, median of 40; nine of ten within | {s["after"]:.0f} ms; {s["after90"]:.0f} ms on the processor | under 20 ms |',
            f'| estimates for all | {s["all"][1] / 1e3:.1f} s on the processor, {s["all"][0] / 1e3:.1f} s in all | under 10 s |',
            f'| machines for 1,000 waiting jobs, each another shape, over 1,400 types in 3 regions | {s["machines"][1]:.0f} ms on the processor | under 50 ms |',
            f'| memory of it all | {s["mib"]} MiB | under 500 MB |',
            f'| the view that such a plan is made from, after one job ended, under the writer\'s lock | {s["view"]:.1f} ms | – |',
            f'| deciding a submit with 10,000 nodes | {s["submit"] * 1e3:.0f} µs | – |']


def table(ours, theirs, alone):
    rows = ['| what | Sluice | Slurm | ratio | wanted |', '|---|---:|---:|---:|---:|']
    def row(what, key, form, wanted, one=ours, other=theirs):
        mine, peer = one.get(key), other.get(key) if other else None
        ratio = f'{mine / peer:.3g}' if peer else '–'
        rows.append(f'| {what} | {mine:{form}} | {"–" if peer is None else format(peer, form)} | {ratio} | {wanted} |')
    row('acknowledged jobs lost by `kill -9` of the server 0, 1 and 3 s after 200 acknowledgements each', 'lost', '.0f', '0')
    row('ids given twice thereafter', 'twice', '.0f', '0')
    row('array of 1000 `true`, jobs/s (median of 3)', 'jobs/s', '.0f', 'at least 8 times')
    row('CPU for each such job, daemons and steps, ms', 'cpu', '.2f', 'at most 0.2')
    row('`srun true`, idle cluster, median of 20, ms', 'srun', '.1f', 'at most 0.2')
    row('`sbatch`, one after another, each a process, a second', 'sbatch/s', '.0f', 'at least 3 times')
    row(f'`squeue` with {MANY:,} waiting, median of 11, ms', 'squeue', '.1f', 'at most 0.1')
    row(f'`scancel -u` of {MANY:,} waiting, s', 'scancel', '.3f', 'under 0.2 s')
    row(f'server memory for each waiting job, bytes, up to {MANY:,}', 'B/job', '.0f', '–')
    row('from the last act of a job to the first of the next that waits for its cores, median, ms', 'gap', '.1f', 'under 10')
    blank = {}
    row(f'server memory for each waiting job, bytes, from 5,000 to {MOST:,}, each with a script and environment of its own', 'slope', '.0f', 'at most 1,000', alone, blank)
    row(f'from `kill -9` with {MOST:,} waiting to the first answer, s', 'restart', '.2f', 'under 1', alone, blank)
    row('durable submits over one HTTP/2 connection, one at a time, a second', 'one', '.0f', 'at least 2,500', alone, {'one': theirs.get('library/s')} if theirs else blank)
    row('the same, 32 in flight', 'many', '.0f', 'at least 10,000', alone, blank)
    cpu = ours['cpu'] / alone['grouped_cpu_ms']
    sync = 1e6 / alone['one'] / alone['sync_us']
    rows += ['', 'Against the bare cost, in the same run:', '',
             f'- CPU of a job: {cpu:.1f} times a fork, exec and wait in the same groups ({alone["grouped_cpu_ms"]:.2f} ms; {alone["plain_cpu_ms"]:.2f} ms without groups).',
             f'- The launch path on a node, one job after another, from spool and supervisor to cleaning: {alone["launch_ratio"]:.1f} times the same (wanted at most 2.5), {alone["launch_wall_ms"]:.1f} ms from order to end (median, wanted under 10); a supervisor has {alone["supervisor_kb"]:,.0f} kB of its own (wanted at most 1,500).',
             f'- {node.JOBS_AT_ONCE} jobs at once on one node, all running after {alone["all started"]:.1f} s: {alone["contained"]} in groups of their own, {alone["limited"]} with their limit of memory; the agent has {alone["agent MB"]:.0f} MB (wanted under 60). Cancelled, all were gone after {alone["all ended"]:.1f} s, and {alone["left"]} groups were left.',
             f'- A durable submit, one at a time: {sync:.1f} times one write and `fdatasync` ({alone["sync_us"]:.0f} µs), of which it makes one: the texts go with the event.',
             f'- `squeue` of {MANY:,}: {ours["squeue"] / alone["copy_ms"]:.1f} times one `cat` of the same {ours["answer"] / 1e6:.1f} MB ({alone["copy_ms"]:.1f} ms).']
    return '\n'.join(rows)


def processor_ticks():
    """All ticks of the processors so far, and those that the host took for others."""
    ticks = [int(word) for word in open('/proc/stat').readline().split()[1:9]]
    return sum(ticks), ticks[7]


class TakenAway:
    """How much of the processors the host took while something ran: on a shared machine it decides what a figure is worth."""

    def __enter__(self):
        self.begin = processor_ticks()
        return self

    def __exit__(self, *_):
        total, taken = (now - then for now, then in zip(processor_ticks(), self.begin))
        self.percent = 100 * taken / max(total, 1)


def main(program, rate, bare, plan_scale, cluster_scale, *options):
    work = tempfile.mkdtemp()
    os.chmod(work, 0o755)
    os.makedirs(f'{work}/jobs')
    os.chmod(f'{work}/jobs', 0o1777)
    sluice, slurm = Sluice(os.path.abspath(program), work), Slurm(work)
    try:
        sluice.up()
        with TakenAway() as from_sluice:
            ours = short(sluice)
        socket = f'{sluice.state}/sluice.sock'
        ours |= long(sluice, lambda n: run([rate, socket, str(n), '32', 'equal']))
        sluice.down()
        sluice.up()
        alone = sluice_alone(sluice, rate, bare)
        shown = f'{work}/shown'
        open(shown, 'wb').write(b'x' * ours['answer'])
        alone['copy_ms'] = sluice.median_ms(11, 'cat', shown)
        sluice.down()
        sluice.configure(sluice.conf, WIDE)
        sluice.up()
        progress('sluice', f'{node.JOBS_AT_ONCE} jobs at once on one node')
        alone |= node.many_at_once(sluice)
        sluice.down()
        theirs, from_slurm = None, None
        if '--alone' not in options:
            slurm.up('default')
            with TakenAway() as from_slurm:
                theirs = short(slurm)
            slurm.down()
            library = f'{work}/csubmit'
            run(['cc', '-O2', '-o', library, f'{LAB}/bin/csubmit.c', '-lslurm'])
            slurm.up('big')
            submit = lambda n: subprocess.run([library, str(n), 'hold'], check=True, env=slurm.env, cwd=slurm.jobs, stdout=DEVNULL, stderr=DEVNULL)
            theirs |= long(slurm, submit)
            begin = time.perf_counter()
            submit(500)
            theirs['library/s'] = 500 / (time.perf_counter() - begin)
    finally:
        sluice.down()
        slurm.down()
        shutil.rmtree(work, ignore_errors=True)
    taken = f'The host took {from_sluice.percent:.0f} % of the processors for others while Sluice was measured'
    taken += f', {from_slurm.percent:.0f} % while Slurm was.' if from_slurm else '.'
    text = '\n'.join([table(ours, theirs, alone), '', taken, *scheduler_rows(scheduler(plan_scale, cluster_scale))])
    print(text)
    if '--record' in options:
        record(options[options.index('--record') + 1], 'bench', text)


if __name__ == '__main__':
    main(*sys.argv[1:])
