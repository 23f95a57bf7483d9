#!/usr/bin/env python3
"""services.py PROGRAM [--record FILE]: requests to a service through the server and through `sluice gateway`, beside nginx on the same
machine, in the same run, as a table.

The service is an nginx in a job, which answers with two bytes. Before it stand nginx with connections that it keeps and an access log,
`sluice gateway` with its access log, and the server's own proxy, in turn, so that a slow minute meets each alike; `wrk` asks. All of it has the
same two cores, however many the machine has. Each figure is the median of five. Times are at a fixed rate, half of what nginx reached: each of many
connections pauses at random between its requests, and the rate that came of it is a row of the table. Needs root, nginx and wrk.
"""
import json, os, re, shutil, statistics, subprocess, sys, tempfile, time, urllib.request
from processes import answers, free_port, run, until
from record import progress, record

ROUNDS, SECONDS, CORES = 5, 5, 2
# Connections for as many requests as can be, and for a fixed rate, where most of them pause at any time.
CONNECTIONS, PACED_CONNECTIONS = 64, 256
CONFIGURATION = """ClusterName=services
SlurmdParameters=config_overrides
DefMemPerCPU=100
NodeName=node1 CPUs=16 RealMemory=8000
PartitionName=main Nodes=node1 Default=YES State=UP
"""
NGINX = """worker_processes {workers};
pid {folder}/{name}.pid;
error_log {folder}/{name}.err;
events {{ worker_connections 4096; }}
http {{
  access_log {log};
  client_body_temp_path {folder}/{name}-body;
  proxy_temp_path {folder}/{name}-proxy;
  fastcgi_temp_path {folder}/{name}-fastcgi;
  uwsgi_temp_path {folder}/{name}-uwsgi;
  scgi_temp_path {folder}/{name}-scgi;
  keepalive_requests 100000000;
  {upstream}
  server {{ listen 127.0.0.1:{port}; location / {{ {answer} }} }}
}}
"""
SERVICE = """type: service
name: {name}
port: {port}
commands: ['exec nginx -c {folder}/{name}.conf -g "daemon off;"']
resources: {{cpu: 1, memory: 64MB.., disk: 0GB..}}
{lines}
"""
SCALED = 'replicas: 0..1\nscaling: {metric: rps, target: 1000, window: 30s, scale_up_delay: 1s, scale_down_delay: 300s}'


def nginx_file(folder, name, port, answer, workers=1, upstream='', log='off'):
    text = NGINX.format(folder=folder, name=name, port=port, answer=answer, workers=workers, upstream=upstream, log=log)
    path = f'{folder}/{name}.conf'
    open(path, 'w').write(text)
    return path


def get(url, token):
    request = urllib.request.Request(url, headers={'Authorization': f'Bearer {token}'})
    try:
        return urllib.request.urlopen(request, timeout=90).status
    except OSError:
        return None


class Cluster:
    def __init__(self, program, folder):
        os.makedirs(f'{folder}/conf')
        open(f'{folder}/conf/slurm.conf', 'w').write(CONFIGURATION)
        open(f'{folder}/conf/sluice.toml', 'w').write('[proxy]\naccess_log = true\n')
        self.program, self.folder = program, folder
        self.environment = {**os.environ, 'SLUICE_STATE': f'{folder}/state'}
        self.sluice('up', '--detach', '--config', f'{folder}/conf', '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0')
        self.ports = json.load(open(f'{folder}/state/ports.json'))

    def sluice(self, *words):
        return run([self.program, *words], env=self.environment, cwd=self.folder)

    def token(self, *options):
        said = self.sluice('token', 'user', 'root', *options)
        return next(line.strip() for line in said.splitlines() if line.strip())

    def serve(self, name, lines=''):
        """Applies a service whose replicas are an nginx."""
        port = free_port()
        nginx_file(self.folder, name, port, "return 200 'ok';")
        text = SERVICE.format(name=name, port=port, folder=self.folder, lines=lines)
        open(f'{self.folder}/{name}.dstack.yml', 'w').write(text)
        self.sluice('apply', '-f', f'{name}.dstack.yml', '-y', '-d')
        return port

    def url(self, name):
        return f"http://{self.ports['proxy']}/proxy/services/main/{name}/"

    def down(self):
        self.sluice('down', '--jobs')


def start_gateway(cluster, service_port):
    token_file, port = f'{cluster.folder}/gateway.token', free_port()
    open(token_file, 'w').write(cluster.token('--role', 'gateway', '--name', 'edge'))
    words = ['gateway', '--server', f"http://{cluster.ports['listen']}", '--token-file', token_file, '--dir', f'{cluster.folder}/gateway',
             '--listen', f'127.0.0.1:{port}', '--access-log']
    process = subprocess.Popen([cluster.program, *words], env=cluster.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until('the gateway answers', lambda: answers(port))
    routes = f'{cluster.folder}/gateway/routes.json'
    until('the gateway has the route', lambda: os.path.exists(routes) and f'"port":{service_port}' in open(routes).read())
    return process, f'http://127.0.0.1:{port}/proxy/services/main/web/'


def wrk(url, token, script=None):
    """Requests a second, and the 50th and 99th percentile in ms."""
    connections = PACED_CONNECTIONS if script else CONNECTIONS
    words = ['wrk', '-t2', f'-c{connections}', f'-d{SECONDS}s', '--latency', '-H', f'Authorization: Bearer {token}']
    said = run([*words, *(['-s', script] if script else []), url])
    assert 'Non-2xx' not in said and 'Socket errors' not in said, said
    unit = {'us': 1e-3, 'ms': 1, 's': 1e3}
    at = {p: float(value) * unit[word] for p, value, word in re.findall(r'(50|99)%\s+([\d.]+)(us|ms|s)', said)}
    return float(re.search(r'Requests/sec:\s+([\d.]+)', said)[1]), at['50'], at['99']


def in_turn(urls, token, script=None):
    """The medians of each URL, asked in turn; the first round, which warms caches, does not count."""
    seen = {name: [] for name in urls}
    for _ in range(ROUNDS + 1):
        for name, url in urls.items():
            seen[name].append(wrk(url, token, script))
    return {name: [statistics.median(column) for column in zip(*rows[1:])] for name, rows in seen.items()}


def rate_script(folder, rate):
    """Has each connection pause so long between two requests that all together make about this many a second: an answer takes a small part of it."""
    pause_ms = max(1, round(PACED_CONNECTIONS / rate * 1000))
    path = f'{folder}/rate.lua'
    open(path, 'w').write(f'function delay()\n  return math.random(0, {2 * pause_ms})\nend\n')
    return path


def from_zero(cluster, token):
    """Seconds from a request to a service without replicas until its answer, of five services in turn."""
    times = []
    for n in range(ROUNDS):
        cluster.serve(f'zero{n}', SCALED)
        begin = time.perf_counter()
        until('it answers', lambda: get(cluster.url(f'zero{n}'), token) == 200)
        times.append(time.perf_counter() - begin)
        # Its replica would keep the next one's from a machine of two cores.
        cluster.sluice('scancel', '-n', f'zero{n}')
    return statistics.median(times)


def table(most, fixed, zero):
    rows = ['| what | Sluice | nginx | ratio | wanted |', '|---|---:|---:|---:|---:|']
    for name, words in (('gateway', '`sluice gateway`'), ('server', "the server's own proxy")):
        own, nginx = most[name][0], most['nginx'][0]
        rows.append(f'| requests a second, {words} | {own:.0f} | {nginx:.0f} | {own / nginx:.2f} | at least 0.5 |')
        own, nginx = fixed[name][0], fixed['nginx'][0]
        rows.append(f'| requests a second at half of nginx\'s maximum, {words} | {own:.0f} | {nginx:.0f} | {own / nginx:.2f} | about 1 |')
        for at, percentile in ((1, 'p50'), (2, 'p99')):
            own, nginx = fixed[name][at], fixed['nginx'][at]
            rows.append(f'| {percentile} at half of nginx\'s maximum, ms, {words} | {own:.2f} | {nginx:.2f} | {own / nginx:.2f} | at most 2 |')
    rows.append(f'| from zero replicas to the first answer, s | {zero:.2f} | – | – | under 1 |')
    return '\n'.join(rows)


def main(program, *options):
    # Whatever is started from here on has these cores too.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    cluster, started = Cluster(os.path.abspath(program), f'{folder}/sluice'), []
    try:
        token = cluster.token('--name', 'bench')
        port = cluster.serve('web')
        until('the service answers', lambda: get(cluster.url('web'), token) == 200)
        gateway, gateway_url = start_gateway(cluster, port)
        started.append(gateway)
        front = free_port()
        upstream = f'upstream web {{ server 127.0.0.1:{port}; keepalive 64; keepalive_requests 100000000; }}'
        answer = 'proxy_pass http://web; proxy_http_version 1.1; proxy_set_header Connection "";'
        path = nginx_file(folder, 'front', front, answer, workers=2, upstream=upstream, log=f'{folder}/front.log')
        started.append(subprocess.Popen(['nginx', '-c', path, '-g', 'daemon off;']))
        until('nginx answers', lambda: answers(front))
        urls = {'nginx': f'http://127.0.0.1:{front}/', 'gateway': gateway_url, 'server': cluster.url('web')}
        progress('services', 'from zero')
        zero = from_zero(cluster, token)
        progress('services', 'as many requests as can be')
        most = in_turn(urls, token)
        progress('services', "at half of nginx's maximum")
        fixed = in_turn(urls, token, rate_script(folder, most['nginx'][0] / 2))
        text = table(most, fixed, zero)
        print(text)
        if options:
            record(options[1], 'bench services', text)
    finally:
        for process in started:
            process.terminate()
            process.wait()
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
