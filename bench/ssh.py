#!/usr/bin/env python3
"""ssh.py PROGRAM [--record FILE]: the SSH endpoint beside OpenSSH's own sshd on the same machine, in the same run, as a table.

`ssh JOB true` and a forwarded port, by one client with one key, in turn, so that a slow minute meets each alike; and how long the
published dstack client takes from its start to the first line of a run's log, beside what it takes to say its own help. Needs root,
and the clients that scripts/dstack-client installs; the sshd is the tests' own (scripts/sshd), on loopback.
"""
import contextlib, json, os, shutil, socket, statistics, subprocess, sys, tempfile, threading, time
from processes import answers, free_port, run, until
from record import progress, record

ROUNDS, TRANSFERS, ATTACHES = 31, 5, 5
BYTES = 256 << 20
HERE = os.path.dirname(os.path.abspath(__file__))
CONFIGURATION = """ClusterName=ssh
SlurmdParameters=config_overrides
DefMemPerCPU=200
NodeName=node1 CPUs=4 RealMemory=4000
PartitionName=main Nodes=node1 Default=YES State=UP
"""
RUN = """type: task
name: held
commands: [echo first line, sleep 3600]
resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}
"""
OPTIONS = [word for option in ('IdentitiesOnly=yes', 'StrictHostKeyChecking=no', 'UserKnownHostsFile=/dev/null', 'LogLevel=ERROR', 'BatchMode=yes')
           for word in ('-o', option)]


class Cluster:
    def __init__(self, program, folder):
        os.makedirs(f'{folder}/conf')
        open(f'{folder}/conf/slurm.conf', 'w').write(CONFIGURATION)
        self.program, self.folder = program, folder
        self.environment = {**os.environ, 'SLUICE_STATE': f'{folder}/state'}
        self.sluice('up', '--detach', '--config', f'{folder}/conf', '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0', '--ssh', '127.0.0.1:0')
        self.ports = json.load(open(f'{folder}/state/ports.json'))

    def sluice(self, *words):
        return run([self.program, *words], env=self.environment, cwd=self.folder)

    def down(self):
        self.sluice('down', '--jobs')


class Sshd:
    def __init__(self, folder, key):
        os.makedirs('/run/sshd', exist_ok=True)
        run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', f'{folder}/hostkey'])
        self.port = free_port()
        open(f'{folder}/sshd.conf', 'w').write(
            f'Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/hostkey\nAuthorizedKeysFile {key}.pub\nStrictModes no\nUsePAM no\n'
            f'PermitRootLogin yes\nPasswordAuthentication no\nUseDNS no\nMaxStartups 100\nPidFile none\n')
        sshd = run([f'{HERE}/../scripts/sshd']).strip()
        # It sees an account of its own, which a machine without the package lacks, and a home without files that a shell reads first.
        os.makedirs(f'{folder}/plain-home')
        known = [line.split(':') for line in open('/etc/passwd').read().splitlines() if not line.startswith('sshd:')]
        known = [[*fields[:5], f'{folder}/plain-home', fields[6]] if fields[0] == 'root' else fields for fields in known]
        lines = [':'.join(fields) for fields in known] + ['sshd:x:65533:65534::/run/sshd:/bin/false', '']
        open(f'{folder}/passwd', 'w').write('\n'.join(lines))
        line = f'mount --bind {folder}/passwd /etc/passwd && exec {sshd} -D -f {folder}/sshd.conf -E {folder}/sshd.log'
        self.process = subprocess.Popen(['unshare', '--mount', '--propagation', 'private', 'sh', '-c', line])
        until('sshd answers', lambda: answers(self.port))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def medians(calls):
    """The median of each call in ms, made in turn; the first round, which warms caches, does not count."""
    times = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(seen[1:]) for name, seen in times.items()}


class Source:
    """Sends BYTES to everybody who connects."""
    def __init__(self):
        self.socket = socket.create_server(('127.0.0.1', 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        piece = os.urandom(1 << 20)
        while True:
            peer, _ = self.socket.accept()
            # One who only looks whether the port answers goes early.
            with peer, contextlib.suppress(OSError):
                for _ in range(BYTES // len(piece)):
                    peer.sendall(piece)


def received_rate(port):
    """MB/s of what comes from a port until its end."""
    begin, total, buffer = time.perf_counter(), 0, bytearray(1 << 20)
    with socket.create_connection(('127.0.0.1', port)) as s:
        while count := s.recv_into(buffer):
            total += count
    assert total == BYTES, f'{total} bytes came of {BYTES}'
    return total / 1e6 / (time.perf_counter() - begin)


def rates(logins):
    """The median throughput of a forwarded port, by each login, in turn."""
    source, tunnels, ports = Source(), [], {}
    try:
        for name, words in logins.items():
            ports[name] = free_port()
            forward = f'127.0.0.1:{ports[name]}:127.0.0.1:{source.port}'
            tunnels.append(subprocess.Popen([*words[:1], '-N', '-L', forward, *words[1:]]))
            until('the port is forwarded', lambda: answers(ports[name]))
        seen = {name: [] for name in logins}
        for _ in range(TRANSFERS + 1):
            for name, port in ports.items():
                seen[name].append(received_rate(port))
        return {name: statistics.median(rates[1:]) for name, rates in seen.items()}
    finally:
        for tunnel in tunnels:
            tunnel.terminate()
            tunnel.wait()


def attach(cluster, folder):
    """Seconds of the client until it says its help, and until the first line of a run that it attaches to."""
    client = os.path.abspath(f'{HERE}/../target/clients/dstack-0.22.5/bin/dstack')
    if not os.path.exists(client):
        run([f'{HERE}/../scripts/dstack-client'])
    home = f'{folder}/home'
    os.makedirs(home)
    environment = {**cluster.environment, 'HOME': home, 'COLUMNS': '200', 'PYTHONUNBUFFERED': '1'}
    token = open(f'{cluster.folder}/state/admin.token').read().strip()
    address = f"http://{cluster.ports['listen']}"
    run([client, 'project', 'add', '--name', 'main', '--url', address, '--token', token, '-y'], env=environment)
    open(f'{folder}/held.dstack.yml', 'w').write(RUN)
    run([client, 'apply', '-f', 'held.dstack.yml', '-y', '-d'], env=environment, cwd=folder)
    until('the run is running', lambda: 'running' in run([client, 'ps'], env=environment))
    own, first = [], []
    for _ in range(ATTACHES + 1):
        begin = time.perf_counter()
        run([client, 'attach', '--help'], env=environment)
        own.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        attached = subprocess.Popen([client, 'attach', 'held', '--logs'], env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        for line in attached.stdout:
            if 'first line' in line:
                break
        first.append(time.perf_counter() - begin)
        attached.terminate()
        attached.wait()
    cluster.sluice('stop', '-x', 'held', '-y')
    return statistics.median(own[1:]), statistics.median(first[1:])


def table(times, speeds, own, first):
    return '\n'.join([
        '| what | Sluice | beside it | ratio | wanted |', '|---|---:|---:|---:|---:|',
        f'| `ssh JOB true`, ms; OpenSSH\'s sshd | {times["sluice"]:.1f} | {times["sshd"]:.1f} | {times["sluice"] / times["sshd"]:.2f} | at most 1.5 |',
        f'| a forwarded port, MB/s; OpenSSH\'s sshd | {speeds["sluice"]:.0f} | {speeds["sshd"]:.0f} | {speeds["sluice"] / speeds["sshd"]:.2f} | at least 0.33 |',
        f'| `dstack attach` to its first line, s; the client\'s help | {first:.2f} | {own:.2f} | {first - own:+.2f} s | at most +2 s |'])


def main(program, *options):
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    key = f'{folder}/key'
    run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', key])
    cluster = Cluster(os.path.abspath(program), f'{folder}/sluice')
    try:
        sshd = Sshd(folder, key)
        try:
            cluster.sluice('key', 'add', f'{key}.pub')
            job = cluster.sluice('sbatch', '--parsable', '-n1', '-o', '/dev/null', '--wrap', 'sleep 3600').strip()
            until('the job runs', lambda: cluster.sluice('squeue', '-h', '-j', job, '-o', '%T').strip() == 'RUNNING')
            own_port = cluster.ports['ssh'].rsplit(':', 1)[1]
            plain = ['ssh', '-F', 'none', '-i', key, *OPTIONS]
            logins = {'sluice': [*plain, '-p', own_port, f'{job}@127.0.0.1'], 'sshd': [*plain, '-p', str(sshd.port), 'root@127.0.0.1']}
            progress('ssh', 'commands')
            times = medians({name: lambda words=words: run([*words, 'true']) for name, words in logins.items()})
            progress('ssh', 'a forwarded port')
            speeds = rates(logins)
            progress('ssh', 'dstack attach')
            own, first = attach(cluster, folder)
        finally:
            sshd.stop()
        text = table(times, speeds, own, first)
        print(text)
        if options:
            record(options[1], 'bench ssh', text)
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
