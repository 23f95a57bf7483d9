"""What services.py, ssh.py and dstack.py do alike with programs and ports."""
import socket, subprocess, time


def run(words, **more):
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, **more)
    assert done.returncode == 0, f'{words}: {done.stdout}{done.stderr}'
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def until(what, look):
    deadline = time.perf_counter() + 60
    while not (found := look()):
        assert time.perf_counter() < deadline, f'not so within a minute: {what}'
        time.sleep(0.02)
    return found


def answers(port):
    with socket.socket() as s:
        return s.connect_ex(('127.0.0.1', port)) == 0
