#!/usr/bin/env python3
"""machines.py PROGRAM [PLAN_SCALE] [--record FILE]: how soon a job has the machine that it needs, as a table.

The machines are agents on this machine, which examples/local_machines.py makes; each job asks for a machine to itself, one job after
the other. Measured are the times from the submit to the call that makes the machine, and from the moment that its agent had joined
to the first line of the job. Each figure is the median of the rounds, and the slowest. And a thousand machines that the program tells
of in one call: how long the call and the comparison with the books take, by the server's own processor time. With PLAN_SCALE, the
example of that name, also how long it takes to decide which machines to make for a long queue. A server of root's gives root up: as
root all but that is done as nobody. It takes two minutes.
"""
import json, os, pwd, re, shutil, statistics, subprocess, sys, tempfile, time
from pathlib import Path
from processes import run, until
from record import progress, record

ROUNDS, TOLD = 11, 1000
# Of a call that comes later than this it is said where the time went.
LATE_MS = 500
HERE = Path(__file__).resolve().parent
CONFIGURATION = """ClusterName=machines
SlurmdParameters=config_overrides
DefMemPerCPU=16
MaxNodeCount=20
NodeSet=cloud Feature=cloud
PartitionName=cloud Nodes=cloud Default=YES State=UP DefaultTime=01:00:00
"""
SOURCE = """[[source]]
name = 'cloud'
program = '{program}'
machines = 2
idle = '1s'
boot = '60s'
"""
# The provider program, with a line of time for each call; what it tells of beside is read from a file.
WRAPPER = """#!/usr/bin/env python3
import json, subprocess, sys, time
from pathlib import Path
began, text = time.time(), sys.stdin.read()
request = json.loads(text)
folder = Path(__file__).parent
with open(folder / 'calls', 'a') as log:
    log.write(json.dumps({'call': request['call'], 'token': request.get('token'), 'at': began}) + '\\n')
done = subprocess.run([sys.executable, str(folder / 'local_machines.py')], input=text, capture_output=True, text=True)
answer = json.loads(done.stdout)
more = folder / 'more.json'
if request['call'] == 'describe' and more.exists():
    answer['machines'] += json.loads(more.read_text())
json.dump(answer, sys.stdout)
"""


class Site:
    def __init__(self, program, folder):
        self.folder, self.program = Path(folder), f'{folder}/sluice'
        shutil.copy(program, self.program)
        shutil.copy(HERE.parent / 'examples/local_machines.py', folder)
        settings = {'sluice': self.program, 'folder': f'{folder}/made',
                    'offers': [{'id': 'small', 'cpus': 1, 'memory_mib': 200, 'price': 0.36}]}
        (self.folder / 'local_machines.json').write_text(json.dumps(settings))
        (self.folder / 'make.py').write_text(WRAPPER)
        (self.folder / 'make.py').chmod(0o755)
        (self.folder / 'conf').mkdir()
        (self.folder / 'conf/slurm.conf').write_text(CONFIGURATION)
        (self.folder / 'conf/sluice.toml').write_text(SOURCE.format(program=f'{folder}/make.py'))
        self.environment = {**os.environ, 'SLUICE_STATE': f'{folder}/state', 'HOME': folder}
        self.answered = False
        words = ['server', '--state', f'{folder}/state', '--config', f'{folder}/conf', '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0']
        log = open(self.folder / 'server.out', 'w')
        self.server = subprocess.Popen([self.program, *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until('the server answers', lambda: 'is UP' in (self.slurm('scontrol', 'ping') or ''))
        self.answered = True

    def command(self, words):
        """What it prints; nothing where it fails, which is said."""
        done = subprocess.run(words, env=self.environment, cwd=self.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode != 0 and self.answered:
            progress('machines', f'{" ".join(words[1:])}: {done.stderr.strip()}')
        return done.stdout if done.returncode == 0 else None

    def sluice(self, *words):
        return self.command([self.program, *words])

    def slurm(self, name, *words):
        return self.command([self.program, name, *words])

    def calls(self, what):
        text = (self.folder / 'calls').read_text() if (self.folder / 'calls').exists() else ''
        return [line for line in map(json.loads, text.splitlines()) if line['call'] == what]

    def listed(self):
        return json.loads(self.sluice('machine', 'list', '--json') or '{"machines": [], "sources": [{}]}')

    def machines(self):
        return self.listed()['machines']

    def round(self, number):
        """Milliseconds from the submit to the create call, and from the agent's join to the job's first line."""
        path, before = self.folder / f'line{number}', len(self.calls('create'))
        began = time.time()
        submit = ('sbatch', '--parsable', '-n', '1', '-o', '/dev/null', '--wrap', f'date +%s.%N > {path}')
        until('a job is taken', lambda: self.slurm(*submit))
        until('the job has a line', lambda: path.exists() and path.read_text().endswith('\n'))
        called = self.calls('create')[before]
        of_call = lambda: next((of['machine'] for of in self.machines() if of['machine']['token'] == called['token']), None)
        machine = until('the machine is listed', of_call)
        first = float(path.read_text())
        create = (called['at'] - began) * 1000
        if create > LATE_MS:
            # The client's own time and that of a program's start are a part of it.
            steps = [machine['asked'] - began * 1000, called['at'] * 1000 - machine['asked']]
            progress('machines', 'late: {:.0f} ms until the machine is in the journal, {:.0f} more until its program runs'.format(*steps))
        # The next job has a machine of its own.
        until('the machine is gone', lambda: all(of['machine']['phase'] == 'gone' for of in self.machines()))
        return create, first * 1000 - machine['joined']

    def processor_ms(self):
        fields = Path(f'/proc/{self.server.pid}/stat').read_text().rsplit(')', 1)[1].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf('SC_CLK_TCK')

    def told(self):
        """Milliseconds of the server's processor for one answer with a thousand machines."""
        more = [{'token': f'0-{at:032x}', 'id': f'i-{at}'} for at in range(TOLD)]
        rounds = len(self.calls('describe'))
        (self.folder / 'more.json').write_text(json.dumps(more))
        # Nothing is asked of the server until the call has begun: what it does for that would count.
        until('the source is asked for its machines', lambda: len(self.calls('describe')) > rounds)
        before = self.processor_ms()
        shown = lambda: self.listed()['sources'][0].get('strangers', [])
        until('they are told of as machines that nobody asked for', shown)
        return self.processor_ms() - before, len(self.calls('describe')) - rounds

    def stop(self):
        self.server.kill()
        self.server.wait()


def measure(program):
    folder = tempfile.mkdtemp(dir='/tmp', prefix='sm-')
    site = Site(program, folder)
    try:
        rounds = []
        for number in range(ROUNDS):
            rounds.append(site.round(number))
            progress('machines', f'round {number + 1} of {ROUNDS}')
        # The first job was taken when the source had told its offers.
        create, line = zip(*rounds[1:])
        told, calls = site.told()
    finally:
        site.stop()
        shutil.rmtree(folder, ignore_errors=True)
    row = lambda what, times: f'| {what} | {statistics.median(times):.0f} ms | {max(times):.0f} ms | under 1 s |'
    return '\n'.join([
        '| | median | slowest | promised |', '|---|---|---|---|',
        row('from submit to the call that makes the machine', create),
        row("from its agent's join to the job's first line", line),
        f'| {TOLD} machines told in one call and compared | {told:.0f} ms of the processor | {calls} call | one call |',
    ])


def decisions(plan_scale):
    """Milliseconds of the processor for one decision which machines to make, of some."""
    progress('machines', 'decisions for a long queue')
    said = run([plan_scale, '1', 'machines'])
    return [float(own) for own in re.findall(r'machines for 1000 jobs over 4200 offers: [\d.]+ ms, ([\d.]+) ms on', said)]


def main():
    program, options = os.path.abspath(sys.argv[1]), sys.argv[2:]
    plan_scale = options[0] if options and not options[0].startswith('--') else None
    if os.getuid() == 0 and '--as-is' not in options:
        nobody = pwd.getpwnam('nobody')
        folder = tempfile.mkdtemp(dir='/tmp', prefix='sb-')
        for path in [program, *HERE.glob('*.py')]:
            os.makedirs(f'{folder}/bench', exist_ok=True)
            shutil.copy(path, f'{folder}/bench' if str(path).endswith('.py') else folder)
        shutil.copytree(HERE.parent / 'examples', f'{folder}/examples')
        subprocess.run(['chmod', '-R', 'a+rX', folder], check=True)
        words = ['setpriv', f'--reuid={nobody.pw_uid}', f'--regid={nobody.pw_gid}', '--clear-groups', sys.executable,
                 f'{folder}/bench/machines.py', f'{folder}/{os.path.basename(program)}', '--as-is']
        try:
            text = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    else:
        text = measure(program)
    if plan_scale:
        times = decisions(plan_scale)
        what = 'which machines to make for 1,000 waiting jobs, over 1,400 types in 3 regions, on the processor'
        text += f'\n| {what} | {statistics.median(times):.0f} ms | {max(times):.0f} ms | under 50 ms |'
    print(text)
    if '--record' in options:
        record(options[options.index('--record') + 1], 'bench machines', text)


if __name__ == '__main__':
    main()
