#!/usr/bin/env python3
"""containers.py PROGRAM [--record FILE]: what a container adds to a step, beside the bare runtimes in the same run, as a table.

A step of `true` by `srun`, bare and in a container; `runc run` of the same bundle; Docker and Podman with and without Sluice. All in
turn, so that a slow minute meets each alike. Other OCI runtimes (`crun`, `youki`) have rows of their own where they are installed and run. An archive of 1 GiB is taken in as an image and run, beside `tar` of the same. Needs root. Docker's daemon is the tests' own (`scripts/docker`), in a network namespace.
"""
import json, os, shutil, statistics, subprocess, sys, tempfile, time
from record import progress, record

ROUNDS = 21
# Each of these unpacks a GiB twice.
UNPACK_ROUNDS = 3
LARGE_FILES, LARGE_FILE_BYTES = 16_384, 64 << 10
IMAGE = 'docker.io/lab/tools:1'
# Measured beside runc, where they are installed and run a bundle.
OTHER_RUNTIMES = ('crun', 'youki')
CONFIGURATION = """ClusterName=containers
SlurmdParameters=config_overrides
DefMemPerCPU=200
NodeName=node1 CPUs=4 RealMemory=2000
PartitionName=main Nodes=node1 Default=YES State=UP
"""
HERE = os.path.dirname(os.path.abspath(__file__))


def run(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    assert done.returncode == 0, f'{words}: {done.stderr}'
    return done.stdout


def made_bundle(folder):
    """A bundle of busybox alone, whose program is `true`."""
    root = f'{folder}/bundle/rootfs'
    os.makedirs(f'{root}/bin')
    shutil.copy(shutil.which('busybox') or '/bin/busybox', f'{root}/bin/busybox')
    for name in ('sh', 'true'):
        os.symlink('busybox', f'{root}/bin/{name}')
    run(['runc', 'spec', '--bundle', f'{folder}/bundle'])
    path = f'{folder}/bundle/config.json'
    spec = json.load(open(path))
    spec['process'] |= {'args': ['true'], 'terminal': False}
    json.dump(spec, open(path, 'w'))
    return f'{folder}/bundle'


class Cluster:
    """A server and a node of its own, whose containers this runtime runs."""
    def __init__(self, program, folder, runtime, variables):
        os.makedirs(f'{folder}/conf')
        open(f'{folder}/conf/slurm.conf', 'w').write(CONFIGURATION)
        open(f'{folder}/conf/sluice.toml', 'w').write(f"[containers]\nruntime = '{runtime}'\n")
        self.program, self.folder = program, folder
        self.environment = {**os.environ, **variables, 'SLUICE_STATE': f'{folder}/state'}
        self.sluice('up', '--detach', '--config', f'{folder}/conf', '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0', '--ssh', 'off')

    def sluice(self, *words):
        return run([self.program, *words], env=self.environment, cwd=self.folder)

    def down(self):
        self.sluice('down', '--jobs')


def medians(calls):
    """The median of each call in ms, made in turn; the first round, which warms caches, does not count."""
    times = {name: [] for name in calls}
    for _ in range(ROUNDS + 1):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {name: statistics.median(seen[1:]) for name, seen in times.items()}


def runs(runtime, bundle):
    """Whether the runtime is here and runs the bundle: crun refuses control groups of both versions at once."""
    words = [runtime, 'run', '--bundle', bundle, f'bench-{os.getpid()}-try']
    return shutil.which(runtime) and subprocess.run(words, capture_output=True).returncode == 0


def of_runtime(program, folder, runtime, bundle):
    # It is taken into the node's store by the first round, which does not count.
    image = f'{folder}/{runtime}.tar'
    run(['tar', '-C', f'{bundle}/rootfs', '--owner=0', '--group=0', '-cf', image, '.'])
    cluster = Cluster(program, f'{folder}/{runtime}', runtime, {})
    try:
        number = iter(range(10 ** 6))
        return medians({
            'step': lambda: cluster.sluice('srun', 'true'),
            'bundle': lambda: cluster.sluice('srun', f'--container={bundle}', 'true'),
            'image': lambda: cluster.sluice('srun', f'--container-image={image}', 'true'),
            'bare': lambda: run([runtime, 'run', '--bundle', bundle, f'bench-{os.getpid()}-{next(number)}'])})
    finally:
        cluster.down()


def took_ms(call):
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


def of_unpacking(program, folder):
    """The least time in ms that an archive of 1 GiB takes until it has run as an image, and that `tar` takes."""
    root, archive = f'{folder}/large', f'{folder}/large.tar.gz'
    shutil.copytree(f'{folder}/bundle/rootfs', root, symlinks=True)
    os.mkdir(f'{root}/data')
    for number in range(LARGE_FILES):
        # Half of each is noise, as half of a layer hardly shrinks.
        open(f'{root}/data/{number}', 'wb').write(os.urandom(LARGE_FILE_BYTES // 2) + bytes(LARGE_FILE_BYTES // 2))
    run(['tar', '-C', root, '--owner=0', '--group=0', '-czf', archive, '.'])
    shutil.rmtree(root)
    ours, tars = [], []
    for number in range(UNPACK_ROUNDS):
        # A cluster of its own has a store of its own, in which the image is not yet.
        at, beside = f'{folder}/unpacking-{number}', f'{folder}/beside'
        cluster = Cluster(program, at, 'runc', {})
        try:
            ours.append(took_ms(lambda: cluster.sluice('srun', '--mem=1500', f'--container={archive}', 'true')))
        finally:
            cluster.down()
        os.mkdir(beside)
        tars.append(took_ms(lambda: run(['tar', '-C', beside, '-xzf', archive])))
        shutil.rmtree(beside)
        shutil.rmtree(at)
    os.remove(archive)
    return min(ours), min(tars)


def of_engine(program, folder, engine, variables):
    environment = {**os.environ, **variables}
    archive = f'{folder}/{os.path.basename(engine)}.tar'
    run(['tar', '-C', f'{folder}/bundle/rootfs', '--owner=0', '--group=0', '-cf', archive, '.'])
    run([engine, 'import', archive, IMAGE], env=environment)
    cluster = Cluster(program, f'{folder}/with-{os.path.basename(engine)}', engine, variables)
    # Podman gives more open files and processes than some machines allow.
    own = [engine, 'run', '--rm', '--network=host', '--ulimit=nofile=1024:1024', '--ulimit=nproc=1024:1024', IMAGE, 'true']
    try:
        return medians({
            'step': lambda: cluster.sluice('srun', 'true'),
            'image': lambda: cluster.sluice('srun', f'--container-image={IMAGE}', 'true'),
            'bare': lambda: run(own, env=environment)})
    finally:
        cluster.down()


def of_docker(program, folder):
    usr = run([f'{HERE}/../scripts/docker']).strip()
    at = f'{folder}/docker'
    os.makedirs(at)
    host = f'unix://{at}/socket'
    words = ['unshare', '--net', 'dockerd', '--iptables=false', '--bridge=none', '--exec-opt', 'native.cgroupdriver=cgroupfs', '--data-root',
             f'{at}/data', '--exec-root', f'{at}/exec', '--pidfile', f'{at}/pid', '--host', host]
    path = f'{usr}/bin:{usr}/sbin:/usr/sbin:/usr/bin:/sbin:/bin'
    daemon = subprocess.Popen(words, env={**os.environ, 'PATH': path}, stdout=open(f'{at}/log', 'w'), stderr=subprocess.STDOUT)
    try:
        variables = {'DOCKER_HOST': host}
        deadline = time.perf_counter() + 60
        while subprocess.run([f'{usr}/bin/docker', 'version'], env={**os.environ, **variables}, capture_output=True).returncode:
            assert time.perf_counter() < deadline, 'the Docker daemon does not answer'
            time.sleep(0.1)
        return of_engine(program, folder, f'{usr}/bin/docker', variables)
    finally:
        daemon.terminate()
        daemon.wait()


def of_podman(program, folder):
    at = f'{folder}/podman'
    os.makedirs(at)
    open(f'{at}/containers.conf', 'w').write('[engine]\nruntime = "runc"\nevents_logger = "none"\n')
    open(f'{at}/storage.conf', 'w').write(f'[storage]\ndriver = "overlay"\ngraphroot = "{at}/data"\nrunroot = "{at}/run"\n')
    variables = {'CONTAINERS_CONF': f'{at}/containers.conf', 'CONTAINERS_STORAGE_CONF': f'{at}/storage.conf'}
    return of_engine(program, folder, 'podman', variables)


def unmount_below(folder):
    points = [line.split(' ')[1] for line in open('/proc/mounts')]
    for point in reversed([point for point in points if point.startswith(f'{folder}/')]):
        subprocess.run(['umount', '-l', point])


def table(runtimes, unpacking, engines):
    rows = ['| what, median in ms | in a container | `srun true` | the runtime alone | wanted |', '|---|---:|---:|---:|---:|']
    for runtime, seen in runtimes.items():
        most = seen['step'] + 1.1 * seen['bare']
        for name in ('bundle', 'image'):
            what = 'an OCI bundle' if name == 'bundle' else 'an image that is there'
            rows.append(f'| `srun` in {what}, by {runtime} | {seen[name]:.1f} | {seen["step"]:.1f} | {seen["bare"]:.1f} | at most {most:.1f} (`srun true` and 1.1 times `{runtime} run`) |')
    runc, (ours, tar) = runtimes['runc'], unpacking
    rows.append(f'| an archive of 1 GiB as an image, unpacked and run | {ours:.0f} | {runc["step"]:.1f} | {tar:.0f} (`tar`) | at most {1.3 * tar:.0f} (1.3 times `tar`) |')
    for name, seen in engines.items():
        rows.append(f'| `srun` in an image of {name}\'s | {seen["image"]:.0f} | {seen["step"]:.1f} | {seen["bare"]:.0f} | at most {seen["bare"] + 100:.0f} (its own time and 0.1 s) |')
    return '\n'.join(rows)


def main(program, *options):
    program = os.path.abspath(program)
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    try:
        bundle = made_bundle(folder)
        runtimes = {}
        for runtime in ('runc', *(name for name in OTHER_RUNTIMES if runs(name, bundle))):
            progress('containers', runtime)
            runtimes[runtime] = of_runtime(program, folder, runtime, bundle)
        progress('containers', 'an image of 1 GiB')
        unpacking = of_unpacking(program, folder)
        engines = {}
        for name, measure in (('Docker', of_docker), ('Podman', of_podman)):
            progress('containers', name)
            engines[name] = measure(program, folder)
        text = table(runtimes, unpacking, engines)
        print(text)
        if options:
            record(options[1], 'bench containers', text)
    finally:
        unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    main(*sys.argv[1:])
