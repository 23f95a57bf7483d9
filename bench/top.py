#!/usr/bin/env python3
"""top.py PROGRAM: how much of a core `sluice top` takes of a large cluster, on its own side and on the server's, as a table.
The cluster is a real server of its own with declared nodes; the terminal is played by this program. A job is changed each second, so
that there is something to look at: where nothing changes, nothing is asked.
"""
import fcntl, os, pty, select, struct, subprocess, sys, tempfile, termios, threading, time
from concurrent.futures import ThreadPoolExecutor

NODES, JOBS = 1000, 10_000
SECONDS = 60
CONFIGURATION = f"""ClusterName=top
SlurmdParameters=config_overrides
MaxJobCount={2 * JOBS}
GresTypes=gpu
DefMemPerCPU=10
NodeName=node[0001-{NODES:04}] CPUs=4 RealMemory=16000 Gres=gpu:8
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=60
"""


def cpu_s(pid):
    """Seconds of CPU time that a process has used."""
    fields = open(f'/proc/{pid}/stat').read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def drain(terminal, seconds):
    """Reads what is drawn for so long; returns how many bytes."""
    end, count = time.monotonic() + seconds, 0
    while (left := end - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            count += len(os.read(terminal, 65536))
    return count


def used(pids, seconds, terminal=None):
    """Per cent of a core that each process takes over so long, and the bytes drawn."""
    before = [cpu_s(pid) for pid in pids]
    drawn = drain(terminal, seconds) if terminal is not None else time.sleep(seconds)
    return [(cpu_s(pid) - first) / seconds * 100 for pid, first in zip(pids, before)], drawn


def changes(sluice, stop):
    """Changes a job each second until it is told to stop."""
    while not stop.wait(1):
        sluice('scontrol', 'update', 'JobId=1', f'Comment={time.monotonic():.0f}')


def measure(program):
    """Per cent of a core that `sluice top` takes, that the server takes meanwhile and by itself, and the bytes drawn in a second."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        state, conf = f'{folder}/state', f'{folder}/conf'
        os.mkdir(conf)
        open(f'{conf}/slurm.conf', 'w').write(CONFIGURATION)
        environment = {**os.environ, 'SLUICE_STATE': state, 'TERM': 'xterm'}

        def sluice(*words):
            return subprocess.run([program, *words], env=environment, cwd=folder, check=True, capture_output=True, text=True).stdout

        sluice('up', '--detach', '--config', conf, '--listen', '127.0.0.1:0', '--agents', '127.0.0.1:0')
        stop = threading.Event()
        changing = threading.Thread(target=changes, args=(sluice, stop))
        try:
            with ThreadPoolExecutor(8) as submitters:
                list(submitters.map(lambda n: sluice('sbatch', '-H', '-J', f'job{n}', '-o', '/dev/null', '--wrap', 'true'), range(JOBS)))
            server = int(open(f'{state}/server.pid').read())
            changing.start()
            (alone,), _ = used([server], SECONDS)
            terminal, end = pty.openpty()
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 50, 160, 0, 0))
            top = subprocess.Popen([program, 'top'], env=environment, stdin=end, stdout=end, stderr=end)
            drain(terminal, 5)
            (own, both), drawn = used([top.pid, server], SECONDS, terminal)
            os.write(terminal, b'q')
            assert top.wait(10) == 0
        finally:
            stop.set()
            if changing.is_alive():
                changing.join()
            sluice('down')
    return own, both, alone, drawn / SECONDS


def main():
    own, both, alone, drawn = measure(os.path.abspath(sys.argv[1]))
    print('| what | per cent of a core | wanted |')
    print('|---|---:|---:|')
    print(f'| `sluice top` with {NODES:,} nodes and {JOBS:,} waiting jobs, one changed each second, 160×50 | {own:.1f} | under 5 |')
    print(f'| the server for it (it takes {alone:.1f} by itself) | {both - alone:.1f} | under 5 |')
    print(f'| bytes drawn in a second | {drawn:.0f} | – |')


if __name__ == '__main__':
    main()
