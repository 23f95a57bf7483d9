#!/usr/bin/env python3
"""Sluice beside a real dstack server in one run: dstack.py SLUICE DSTACK [--record FILE]

Both have a project and no fleet that could serve the waiting runs. DSTACK is the published program with its server;
jobs of its own it cannot run here, for want of its node agent: those two figures of it are recorded ones.
One server runs at a time. Each is asked over one connection that is kept open, by the same bytes, which are made before the clock
runs; the clock stops when the whole answer has come, before it is read. `server/get_info` says what is left of the client in that.
Prints a table; --record puts it into FILE between the lines `<!-- bench dstack -->` and `<!-- /bench dstack -->`."""
import json, os, shutil, signal, socket, statistics, struct, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor

import node
from processes import free_port
from record import progress, record

TOKEN = 'a-token-of-the-bench'
TIMED, MANY, IDLE_S = 100, 1000, 20
# What is not free on either, and a retry that waits for it: dstack has no host at all, on ours all CPUs are taken.
WHOLE = {'resources': {'cpu': '8..', 'memory': '64MB..', 'disk': None}}
WAITING = {**WHOLE, 'retry': {'on_events': ['no-capacity'], 'duration': '1d'}}
SMALL = {'resources': {'cpu': '1..', 'memory': '64MB..', 'disk': None}}
CONF = """ClusterName=bench
SlurmdParameters=config_overrides
NodeName=node1 CPUs=8 RealMemory=16000
PartitionName=all Nodes=ALL Default=YES State=UP
"""
TICKS = os.sysconf('SC_CLK_TCK')
DEVNULL = subprocess.DEVNULL


def cpu_s(pid):
    fields = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Link:
    """A connection that is kept open. A request goes out in one piece and its answer is read by its length into memory that is there:
    what a library for HTTP takes besides, a third of a millisecond, is not the server's."""

    def __init__(self, port):
        self.socket = socket.create_connection(('127.0.0.1', port), timeout=60)
        # With a timeout of its own Python asks the kernel before each call whether it would wait.
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('ll', 60, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(1 << 20)

    def exchange(self, request):
        """The status, and the body of the answer."""
        self.socket.sendall(request)
        have, whole = 0, None
        while whole is None or have < whole:
            have += self.receive(have)
            if whole is None and (end := self.buffer.find(b'\r\n\r\n', 0, have)) >= 0:
                head = bytes(self.buffer[:end]).lower()
                length = head[head.index(b'content-length:') + len(b'content-length:'):]
                start, whole = end + 4, end + 4 + int(length.split(b'\r\n', 1)[0])
        return int(self.buffer[9:12]), bytes(self.buffer[start:whole])

    def receive(self, have):
        """Takes what has come behind the bytes that are there; how many bytes it is."""
        if have == len(self.buffer):
            self.buffer.extend(bytes(have))
        with memoryview(self.buffer) as view, view[have:] as free:
            count = self.socket.recv_into(free)
        if not count:
            raise ConnectionError('the server closed the connection')
        return count


def request(path, body, token):
    """A request as it goes over the connection."""
    fields = {'Host': '127.0.0.1', 'Authorization': f'Bearer {token}', 'Content-Type': 'application/json',
              'X-API-VERSION': '0.22.5', 'Content-Length': str(len(body))}
    head = f'POST /api/{path} HTTP/1.1\r\n' + ''.join(f'{name}: {value}\r\n' for name, value in fields.items())
    return head.encode() + b'\r\n' + body


class Server:
    """One of the two: its API, as its client calls it."""

    def __init__(self, work, name):
        self.name, self.folder, self.port = name, f'{work}/{name}', free_port()
        os.makedirs(f'{self.folder}/home')
        self.env = {**os.environ, 'HOME': f'{self.folder}/home'}

    def call(self, path, body, link=None):
        return json.loads(self.answer(self.request(path, body), link or self.link()) or 'null')

    def request(self, path, body):
        return request(path, json.dumps(body).encode(), self.token())

    def answer(self, request, link):
        status, text = link.exchange(request)
        assert status == 200, f'{self.name}: {request.split(None, 2)[1]}: {status} {text[:300]}'
        return text

    def answers(self, requests, link):
        """The answers, and the seconds that each took."""
        texts, times = [], []
        for request in requests:
            begin = time.perf_counter()
            text = self.answer(request, link)
            times.append(time.perf_counter() - begin)
            texts.append(text)
        return texts, times

    def link(self):
        return Link(self.port)

    def started(self):
        """Seconds from the start of the program to its first answer."""
        begin = time.perf_counter()
        self.start()
        while True:
            try:
                self.call('server/get_info', {})
                return time.perf_counter() - begin
            except OSError:
                assert time.perf_counter() < begin + 120, f'{self.name}: no answer for two minutes'
                time.sleep(0.002)

    def plan(self, name, configuration):
        configuration = {'type': 'task', 'name': name, **configuration}
        spec = {'run_name': name, 'repo_id': 'none', 'repo_data': {'repo_type': 'virtual'}, 'configuration': configuration,
                'configuration_path': f'{name}.dstack.yml', 'profile': {'name': 'default'}, 'ssh_key_pub': 'ssh-rsa AAAA bench'}
        return {'plan': {'run_spec': spec, 'current_resource': None}, 'force': False}

    def apply(self, name, configuration, link=None):
        return self.call('project/main/runs/apply', self.plan(name, configuration), link)

    def status(self, name, link):
        return self.call('project/main/runs/get', {'run_name': name}, link)['status']

    def measure(self):
        seen = {'first start': self.started()}
        self.prepare()
        self.stop()
        seen['start'] = self.started()
        time.sleep(2)
        seen['MB'] = node.rss_kb(self.pid()) / 1024
        self.occupy()
        link, waiting = self.link(), {'commands': ['true'], **WAITING}
        _, times = self.answers([self.request('server/get_info', {})] * 101, link)
        seen['empty ms'] = statistics.median(times) * 1e3
        apply = 'project/main/runs/apply'
        _, times = self.answers([self.request(apply, self.plan(f'timed-{i}', waiting)) for i in range(TIMED)], link)
        seen['apply/s'], seen['apply ms'] = TIMED / sum(times), statistics.median(times) * 1e3
        progress(self.name, f'{TIMED} runs applied')
        with ThreadPoolExecutor(4) as several:
            list(several.map(lambda i: self.apply(f'more-{i}', waiting), range(MANY - TIMED)))
        progress(self.name, f'{MANY} runs wait')
        # The first connection may have been idle for longer than the server keeps one.
        link = self.link()
        wanted = {'project_name': 'main', 'only_active': True, 'include_jobs': True, 'job_submissions_limit': 1, 'limit': 100, 'ascending': False}
        texts, times = self.answers([self.request('runs/list', wanted)] * 11, link)
        for text in texts:
            assert len(json.loads(text)) == 100, text[:300]
        seen['list ms'] = statistics.median(times) * 1e3
        began, begin = cpu_s(self.pid()), time.perf_counter()
        time.sleep(IDLE_S)
        seen['cpu %'] = (cpu_s(self.pid()) - began) / (time.perf_counter() - begin) * 100
        seen['MB later'] = node.rss_kb(self.pid()) / 1024
        seen['ps ms'] = self.ps_ms()
        return seen

    def ps_ms(self):
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            shown = subprocess.run(self.ps_words(), env=self.env, check=True, stdout=subprocess.PIPE, text=True).stdout
            times.append(time.perf_counter() - begin)
            assert len(shown.splitlines()) > 100, shown
        return statistics.median(times) * 1e3


class Sluice(Server):
    def __init__(self, work, program):
        super().__init__(work, 'sluice')
        self.program, self.state = program, f'{self.folder}/state'
        self.env['SLUICE_STATE'] = self.state
        os.makedirs(f'{self.folder}/conf')
        open(f'{self.folder}/conf/slurm.conf', 'w').write(CONF)

    def token(self):
        return open(f'{self.state}/admin.token').read().strip()

    def start(self):
        words = ['up', '--detach', '--config', f'{self.folder}/conf', '--listen', f'127.0.0.1:{self.port}', '--agents', '127.0.0.1:0']
        subprocess.run([self.program, *words], env=self.env, check=True, stdout=DEVNULL)

    def prepare(self):
        pass

    def occupy(self):
        self.apply('holder', {'commands': ['sleep 3600'], **WHOLE})
        self.await_status('holder', 'running', self.link())

    def free(self):
        """Ends every run."""
        scancel = f'{self.folder}/bin/scancel'
        os.makedirs(os.path.dirname(scancel))
        for words in ([self.program, 'links', os.path.dirname(scancel)], [scancel, '-u', 'root']):
            subprocess.run(words, env=self.env, check=True, stdout=DEVNULL)
        self.await_status('holder', 'terminated', self.link())

    def stop(self):
        subprocess.run([self.program, 'down', '--jobs'], env=self.env, stdout=DEVNULL, stderr=DEVNULL)

    def pid(self):
        return int(open(f'{self.state}/server.pid').read())

    def ps_words(self):
        return [self.program, 'ps', '-n', str(MANY)]

    def runs(self, what, more, times=11):
        """From the submit to `running` and from the last act of the job to `done`, medians in ms."""
        link, to_running, to_done = self.link(), [], []
        folder = f'{self.folder}/shared'
        os.makedirs(folder, exist_ok=True)
        for i in range(times):
            name, ended = f'{what}-{i}', f'{folder}/{what}-{i}'
            task = {'commands': ['sleep 0.5', f'touch /shared/{what}-{i}' if 'image' in more else f'touch {ended}'], **SMALL, **more}
            if 'image' in more:
                task['volumes'] = [f'{folder}:/shared']
            begin = time.perf_counter()
            self.apply(name, task, link)
            self.await_status(name, 'running', link)
            to_running.append(time.perf_counter() - begin)
            self.await_status(name, 'done', link)
            to_done.append(time.time() - os.stat(ended).st_mtime)
        return statistics.median(to_running) * 1e3, statistics.median(to_done) * 1e3

    def await_status(self, name, wanted, link):
        deadline = time.perf_counter() + 30
        while (seen := self.status(name, link)) != wanted:
            assert seen != 'failed' and time.perf_counter() < deadline, f'{name}: {seen}, not {wanted}'
            time.sleep(0.002)

    def alone(self):
        self.free()
        root = f'{self.folder}/image'
        os.makedirs(f'{root}/bin')
        shutil.copy(shutil.which('busybox') or '/bin/busybox', f'{root}/bin/busybox')
        for link in ('sh', 'sleep', 'touch', 'bash', 'env'):
            os.symlink('busybox', f'{root}/bin/{link}')
        self.apply('first', {'commands': ['true'], 'image': root, **SMALL})
        self.await_status('first', 'done', self.link())
        return {'process': self.runs('process', {}), 'image': self.runs('image', {'image': root})}


class Dstack(Server):
    def __init__(self, work, program):
        super().__init__(work, 'dstack')
        self.program, self.child = program, None
        self.env |= {'DSTACK_SERVER_DIR': f'{self.folder}/server', 'DSTACK_SERVER_ADMIN_TOKEN': TOKEN, 'DSTACK_DISABLE_VERSION_CHECK': '1',
                     'DSTACK_SERVER_LOG_LEVEL': 'ERROR', 'PYTHONUNBUFFERED': '1', 'DSTACK_UPDATE_DEFAULT_PROJECT': '0'}

    def token(self):
        return TOKEN

    def start(self):
        log = open(f'{self.folder}/log', 'a')
        words = [self.program, 'server', '--host', '127.0.0.1', '--port', str(self.port), '--token', TOKEN, '--yes']
        self.child = subprocess.Popen(words, env=self.env, stdout=log, stderr=log, stdin=DEVNULL)

    def prepare(self):
        words = ['project', 'add', '--name', 'main', '--url', f'http://127.0.0.1:{self.port}', '--token', TOKEN, '--yes']
        subprocess.run([self.program, *words], env=self.env, check=True, stdout=DEVNULL)

    def occupy(self):
        pass

    def stop(self):
        if self.child:
            self.child.send_signal(signal.SIGINT)
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
            self.child = None

    def pid(self):
        return self.child.pid

    def ps_words(self):
        # Its client lists no more than 100.
        return [self.program, 'ps', '-n', '100']


def table(ours, theirs, alone):
    rows = ['| what | Sluice | dstack | ratio | wanted |', '|---|---:|---:|---:|---:|']
    def row(what, key, form, wanted):
        mine, peer = ours[key], theirs[key]
        rows.append(f'| {what} | {mine:{form}} | {peer:{form}} | {mine / peer:.3g} | {wanted} |')
    row('start of an empty server to its first answer, s', 'first start', '.2f', 'under 0.5')
    row('start again, s', 'start', '.2f', 'under 0.5')
    row('memory of the server, idle, MB', 'MB', '.0f', 'under 40')
    row(f'`runs/apply`, one after another, {TIMED}, a second', 'apply/s', '.1f', 'at least 200 times')
    row('one of these, median, ms', 'apply ms', '.2f', '–')
    row('a request that asks for nothing (`server/get_info`), median of 101, ms', 'empty ms', '.2f', '–')
    row(f'`runs/list` of 100 among {MANY:,}, median of 11, ms', 'list ms', '.1f', 'at most a fiftieth')
    row(f'CPU with {MANY:,} waiting runs, over {IDLE_S} s, % of a core', 'cpu %', '.2f', 'under 1')
    row(f'memory of the server with {MANY:,} waiting runs, MB', 'MB later', '.0f', '–')
    row(f'`ps` of {MANY:,} runs (its own client lists 100 of them), from start to end, median of 5, ms', 'ps ms', '.0f', 'under 30')
    recorded = {'running': '13–20 s (recorded)', 'done': '22–32 s (recorded)'}
    for key, what in (('process', 'a process'), ('image', 'a container on an image that is there')):
        running, done = alone[key]
        rows.append(f'| submit to `running` on an idle node, {what}, median of 11, ms | {running:.0f} | {recorded["running"]} | – | under 300 |')
        rows.append(f'| exit to `done`, {what}, median of 11, ms | {done:.0f} | {recorded["done"]} | – | under 300 |')
    return '\n'.join(rows)


def main(program, dstack, *options):
    work = tempfile.mkdtemp()
    os.chmod(work, 0o755)
    servers = Sluice(work, os.path.abspath(program)), Dstack(work, os.path.abspath(dstack))
    try:
        ours = servers[0].measure()
        progress('sluice', 'runs on an idle node')
        alone = servers[0].alone()
        servers[0].stop()
        theirs = servers[1].measure()
        text = table(ours, theirs, alone)
        print(text)
        if options:
            record(options[1], 'bench dstack', text)
    finally:
        for server in servers:
            server.stop()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
