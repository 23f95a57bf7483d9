#!/usr/bin/env python3
"""web.py PROGRAM [--record FILE]: the web page of a large cluster in a real browser, as a table: how long the overview's map takes to be
drawn, what an open page of the queue costs the server, and how large the page's files are. Needs Chromium, Node and `scripts/browser`.
The cluster is a real server of its own with declared nodes. Not under load: other work of the machine counts too.
"""
import json, os, re, statistics, subprocess, sys, tempfile, threading, time, urllib.request
from concurrent.futures import ThreadPoolExecutor
from record import progress, record
from top import cpu_s

NODES, JOBS, RUNNING = 1000, 10_000, 200
CHANGES_PER_S = 10
SECONDS = 60
CHROMIUM = '/usr/bin/chromium'
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIGURATION = f"""ClusterName=web
SlurmdParameters=config_overrides
MaxJobCount={2 * JOBS}
GresTypes=gpu
DefMemPerCPU=10
NodeName=node[0001-{NODES:04}] CPUs=8 RealMemory=16000 Gres=gpu:8
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=60
"""


def fetched(address):
    """The bytes of a file as a browser gets them, and its text."""
    request = urllib.request.Request(address, headers={'Accept-Encoding': 'gzip'})
    sent = urllib.request.urlopen(request).read()
    return len(sent), urllib.request.urlopen(address).read().decode()


def compressed_bytes(base):
    """The bytes of all files of the page together: those that it names, and those that they name."""
    todo, seen, total = ['/', '/shell'], set(), 0
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        count, text = fetched(base + path)
        total += count
        todo += re.findall(r'"(/web/[\w./-]+)"', text) + [os.path.join(os.path.dirname(path), name) for name in re.findall(r'"\./([\w.-]+)"', text)]
    assert len(seen) > 10, seen
    return total


def changes(sluice, stop):
    """Changes so many jobs a second until it is told to stop."""
    with ThreadPoolExecutor(4) as changers:
        job = RUNNING
        while not stop.wait(1 / CHANGES_PER_S):
            job = RUNNING + 1 + (job + 1) % (JOBS - RUNNING - 1)
            changers.submit(sluice, 'scontrol', 'update', f'JobId={job}', f'Comment={time.monotonic():.1f}')


def used(pid):
    """Per cent of a core that a process takes."""
    before = cpu_s(pid)
    time.sleep(SECONDS)
    return (cpu_s(pid) - before) / SECONDS * 100


class Page:
    """The browser, which asks for what comes next."""

    def __init__(self, base, token, shots):
        modules = subprocess.run([f'{ROOT}/scripts/browser'], check=True, capture_output=True, text=True).stdout.strip()
        settings = {'modules': modules, 'chromium': CHROMIUM, 'base': base, 'token': token, 'shots': shots, 'nodes': NODES}
        self.node = subprocess.Popen(['node', f'{ROOT}/tests/browser/measure.mjs'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     env={**os.environ, 'SLUICE_BROWSER_TEST': json.dumps(settings)})

    def awaited(self, word):
        """What it says with this word; it waits until it is answered."""
        for line in self.node.stdout:
            if line.startswith(f'@{word}'):
                return line[len(word) + 1:].strip()
        raise SystemExit(f'the browser ended with {self.node.wait()} before it said {word}')

    def answer(self):
        self.node.stdin.write('null\n')
        self.node.stdin.flush()


def measure(program):
    """Milliseconds of each drawing of the map, per cent of a core for the page and without it, and the bytes of the files."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        state, conf = f'{folder}/state', f'{folder}/conf'
        os.mkdir(conf)
        open(f'{conf}/slurm.conf', 'w').write(CONFIGURATION)
        environment = {**os.environ, 'SLUICE_STATE': state}

        def sluice(*words):
            return subprocess.run([program, *words], env=environment, cwd=folder, check=True, capture_output=True, text=True).stdout

        sluice('up', '--detach', '--config', conf, '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0')
        stop = threading.Event()
        changing = threading.Thread(target=changes, args=(sluice, stop))
        try:
            progress('web', f'{JOBS:,} jobs, {RUNNING} of them running')
            sluice('sbatch', f'--array=1-{RUNNING}', '--gres=gpu:8', '-o', '/dev/null', '--wrap', 'exec sleep 3000')
            with ThreadPoolExecutor(8) as submitters:
                list(submitters.map(lambda n: sluice('sbatch', '-H', '-J', f'job{n}', '-o', '/dev/null', '--wrap', 'true'), range(JOBS - RUNNING)))
            while len(sluice('squeue', '-h', '-t', 'R', '-o', '%i').split()) < RUNNING:
                time.sleep(0.5)
            server = int(open(f'{state}/server.pid').read())
            base = 'http://' + json.load(open(f'{state}/ports.json'))['listen']
            progress('web', 'the map')
            page = Page(base, open(f'{state}/admin.token').read().strip(), folder)
            times = json.loads(page.awaited('map'))
            # The browser waits, and asks for nothing, until it is answered.
            progress('web', f'the server with {CHANGES_PER_S} changes a second, without a page')
            changing.start()
            alone = used(server)
            page.answer()
            page.awaited('open')
            progress('web', 'the same with an open page of the queue')
            both = used(server)
            page.answer()
            assert page.node.wait(60) == 0
            size = compressed_bytes(base)
        finally:
            stop.set()
            if changing.is_alive():
                changing.join()
            sluice('down', '--jobs')
    return times, both, alone, size


def main():
    times, both, alone, size = measure(os.path.abspath(sys.argv[1]))
    text = '\n'.join([
        '| what | here | wanted |',
        '|---|---:|---:|',
        f'| the overview of {NODES:,} nodes with {JOBS:,} jobs from the begin of a visit until its map is drawn, warm browser, median of {len(times)}, ms | {statistics.median(times):.0f} | under 300 |',
        f'| an open page of the queue at {CHANGES_PER_S} changes a second (the server takes {alone:.1f} by itself), % of a core | {both - alone:.2f} | under 0.5 |',
        f'| all files of the page, compressed, kB | {size / 1000:.0f} | under 300 |',
    ])
    print(text)
    if '--record' in sys.argv:
        record(sys.argv[sys.argv.index('--record') + 1], 'bench web', text)


if __name__ == '__main__':
    main()
