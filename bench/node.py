"""The figures of one node: jobs that follow one another, and many at once. Used by compare.py."""
import os, statistics, time

# Both stamps are the shell's own: no process is started for them.
STAMPED = '#!/bin/bash\necho "begin $EPOCHREALTIME"\necho "end $EPOCHREALTIME"\n'
JOBS_AT_ONCE = 500
MEMORY = 40 << 20
# A number that no other `sleep` of the machine sleeps for.
NAP = 3579


def gaps(cluster, jobs):
    """From the last act of one job to the first of the next that waits for the same cores; median and most, in ms."""
    script = f'{cluster.jobs}/stamped.sh'
    open(script, 'w').write(STAMPED)
    words = ['-w', 'node1', '--exclusive', '--mem=10M', '-t', '5', script]
    first = cluster.command('sbatch', '-H', '--parsable', '-o', f'{cluster.jobs}/stamp.0', *words).split(';')[0].strip()
    for i in range(1, jobs):
        cluster.command('sbatch', '-o', f'{cluster.jobs}/stamp.{i}', '-d', f'afterany:{first}', *words)
    cluster.command('scontrol', 'release', first)
    until(lambda: not cluster.command('squeue', '-h').strip(), 120, 'jobs that follow one another')
    stamps = sorted(stamps_of(f'{cluster.jobs}/stamp.{i}') for i in range(jobs))
    found = [(later[0] - earlier[1]) * 1e3 for earlier, later in zip(stamps, stamps[1:])]
    assert min(found) > 0, 'two jobs had the same cores at once'
    return {'gap': statistics.median(found), 'gap most': max(found)}


def stamps_of(path):
    words = open(path).read().split()
    return float(words[1]), float(words[3])


def many_at_once(sluice):
    """`JOBS_AT_ONCE` jobs on one node: whether each has a group of its own, the memory of the agent, and that no group is left."""
    begin = time.perf_counter()
    sluice.command('sbatch', '-Q', '-w', 'node1', f'--mem={MEMORY >> 20}M', '-t', '60', '-o', '/dev/null', f'--array=1-{JOBS_AT_ONCE}', '--wrap', f'exec sleep {NAP}')
    until(lambda: len(groups()) >= JOBS_AT_ONCE, 60, f'{JOBS_AT_ONCE} running jobs')
    started = time.perf_counter() - begin
    places = groups()
    limits = [open(f'/sys/fs/cgroup/memory{place}/memory.limit_in_bytes').read().strip() for place in places.values()]
    seen = {'all started': started, 'contained': len(set(places.values())), 'limited': sum(limit == str(MEMORY) for limit in limits)}
    seen['agent MB'] = rss_kb(open(f'{sluice.state}/agent.pid').read().strip()) / 1024
    begin = time.perf_counter()
    sluice.command('scancel', '-u', 'root')
    until(lambda: not groups() and not sluice.command('squeue', '-h').strip(), 60, 'the end of all jobs')
    seen['all ended'] = time.perf_counter() - begin
    seen['left'] = sum(os.path.exists(f'/sys/fs/cgroup/memory{place}') for place in places.values())
    return seen


def groups():
    """The memory group of each of our sleepers, by process."""
    found = {}
    for entry in filter(str.isdigit, os.listdir('/proc')):
        try:
            if open(f'/proc/{entry}/cmdline').read().split('\0')[:2] == ['sleep', str(NAP)]:
                lines = open(f'/proc/{entry}/cgroup').read().splitlines()
                found[entry] = next(line.split(':')[2] for line in lines if line.split(':')[1] == 'memory')
        except (OSError, StopIteration):
            continue
    return found


def rss_kb(pid):
    lines = open(f'/proc/{pid}/status').read().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith('VmRSS:')))


def until(done, seconds, what):
    deadline = time.perf_counter() + seconds
    while not done():
        assert time.perf_counter() < deadline, f'waited {seconds} s for {what}'
        time.sleep(0.02)
