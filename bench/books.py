#!/usr/bin/env python3
"""books.py PROGRAM SUBMIT BOOKS_FILL [--jobs N] [--shared-jobs N] [--record FILE]: `sacct` and `sreport` over generated jobs that ended
in the year before now, of a server with its state in files and of one on PostgreSQL, as a table. SUBMIT is the example `submit_rate`,
BOOKS_FILL the example `books_fill` of the store. A job takes about 3 KB in the books, and 2 KB in the database.
"""
import argparse, datetime, os, shutil, subprocess, sys, tempfile, time
from record import progress, record
from several_servers import Postgres, Server

ROWS = 20_000
TRIES = 5
# What `books_fill` writes as one row of the database: its history needs an event for each.
BATCH = 512
BYTES_A_JOB = 6_000


def shown(moment):
    return moment.strftime('%Y-%m-%dT%H:%M:%S')


def best_s(server, *words):
    """The best of several tries, and how many lines it printed: the first reads from the disk."""
    best, lines = None, 0
    for _ in range(TRIES):
        begin = time.perf_counter()
        lines = server.run(*words).stdout.count('\n')
        took = time.perf_counter() - begin
        best = took if best is None else min(best, took)
    return best, lines


def measure(server, jobs, where, add):
    year = datetime.timedelta(days=365)
    middle = datetime.datetime.now() - year / 2
    window = year * ROWS / jobs
    took, rows = best_s(server, 'sacct', '-a', '-X', '-n', '-P', '-S', shown(middle), '-E', shown(middle + window), '-o', 'JobID,User,Account,State,Elapsed,AllocTRES')
    add(f'`sacct` of {rows:,} rows among {jobs:,} ended jobs, {where}, s', f'{took:.2f}', 'under 1')
    month = middle.replace(day=1)
    after = (month + datetime.timedelta(days=32)).replace(day=1)
    span = [f'start={month:%Y-%m-%d}', f'end={after:%Y-%m-%d}']
    took, rows = best_s(server, 'sreport', '-n', '-P', 'cluster', 'AccountUtilizationByUser', *span)
    add(f'`sreport` of a month of {jobs // 12:,} jobs, {where}, s', f'{took:.2f}', 'under 1')
    took, _ = best_s(server, 'sreport', '-n', '-P', 'cluster', 'Utilization', *span)
    add(f'`sreport cluster utilization` of that month, {where}, s', f'{took:.2f}', 'under 1')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program'), parser.add_argument('submit'), parser.add_argument('books_fill')
    parser.add_argument('--jobs', type=int, default=10_000_000), parser.add_argument('--shared-jobs', type=int, default=1_000_000)
    parser.add_argument('--record')
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    folder = tempfile.mkdtemp(prefix='books-')
    os.chmod(folder, 0o755)
    room = shutil.disk_usage(folder).free // BYTES_A_JOB
    jobs, shared_jobs = min(args.jobs, room // 2), min(args.shared_jobs, room // 4)
    rows, servers = [], []

    def add(what, here, wanted):
        rows.append((what, here, wanted))
        progress('books', f'{what}: {here} (wanted: {wanted})')

    def fill(*words):
        begin = time.perf_counter()
        subprocess.run([args.books_fill, *words], check=True)
        return time.perf_counter() - begin

    database = Postgres(f'{folder}/postgres')
    try:
        alone = Server(program, f'{folder}/alone').start()
        servers.append(alone)
        alone.end()
        took = fill('files', f'{alone.state}/server/books.sqlite', str(jobs))
        add('ended jobs booked a second', f'{jobs / took:,.0f}', '')
        alone.start()
        measure(alone, jobs, 'with files', add)
        alone.end()
        shutil.rmtree(f'{folder}/alone')

        key = f'{folder}/store.key'
        open(key, 'w').write('5e' * 32)
        leader = Server(program, f'{folder}/first', database.url('sluice'), key).start()
        servers.append(leader)
        leader.submits(args.submit, shared_jobs // BATCH + 10, 32)
        leader.end()
        fill('database', database.url('sluice'), str(shared_jobs))
        for end in ('', '-wal', '-shm'):
            path = f'{leader.state}/server/books-of-database.sqlite{end}'
            if os.path.exists(path):
                os.remove(path)
        begin = time.perf_counter()
        leader.start()
        add(f'a server makes its books of {shared_jobs:,} jobs anew from PostgreSQL, s', f'{time.perf_counter() - begin:.0f}', '')
        measure(leader, shared_jobs, 'on PostgreSQL', add)
    finally:
        for server in servers:
            server.end()
        database.stop()
        shutil.rmtree(folder, ignore_errors=True)
    text = '\n'.join(['| what | here | wanted |', '|---|---:|---|', *(f'| {what} | {here} | {wanted} |' for what, here, wanted in rows)])
    print(text)
    if args.record:
        record(args.record, 'bench books', text)


if __name__ == '__main__':
    sys.exit(main())
