#!/usr/bin/env python3
"""books.py PROGRAM SUBMIT BOOKS_FILL [--jobs N] [--shared-jobs N] [--record FILE]: `sacct` and `sreport` over generated jobs that ended
in the year before now, of a server with its state in files and of one on PostgreSQL, as a table. SUBMIT is the example `submit_rate`,
BOOKS_FILL the example `books_fill` of the store. A job takes about 3 KB in the books, and 2 KB in the database: ten million of them
(`--jobs 10000000 --shared-jobs 10000000`) need 60 GB and an hour.
"""
import argparse, datetime, os, shutil, subprocess, sys, time
from record import Table
from several_servers import Scratch

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


def measure(server, jobs, where, table):
    add = table.add
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


def fill(args, *words):
    """How long it took."""
    begin = time.perf_counter()
    subprocess.run([args.books_fill, *words], check=True)
    return time.perf_counter() - begin


def with_files(args, scratch, jobs, table):
    alone = scratch.server('alone', is_shared=False).start()
    alone.end()
    took = fill(args, 'files', f'{alone.state}/server/books.sqlite', str(jobs))
    table.add('ended jobs booked a second', f'{jobs / took:,.0f}')
    alone.start()
    measure(alone, jobs, 'with files', table)
    alone.end()
    shutil.rmtree(f'{scratch.folder}/alone')


def on_postgres(args, scratch, jobs, table):
    database, leader = scratch.database, scratch.server('first').start()
    leader.submits(args.submit, jobs // BATCH + 10, 32)
    leader.end()
    took = fill(args, 'database', database.url('sluice'), str(jobs))
    months = int(database.value('sluice', "SELECT count(*) FROM sluice.ended_month WHERE ends <= extract(epoch FROM now()) * 1000"))
    table.add(f'ended jobs written to PostgreSQL a second, into {months} months', f'{jobs / took:,.0f}')
    for end in ('', '-wal', '-shm'):
        path = f'{leader.state}/server/books-of-database.sqlite{end}'
        if os.path.exists(path):
            os.remove(path)
    begin = time.perf_counter()
    # It says so only once it has read them all.
    leader.start()
    table.add(f'a server makes its books of {jobs:,} jobs anew from PostgreSQL, s', f'{time.perf_counter() - begin:.0f}')
    measure(leader, jobs, 'on PostgreSQL', table)
    leader.end()
    middle = "extract(epoch FROM now() - interval '6 months')::bigint * 1000"
    begin = time.perf_counter()
    gone = int(database.value('sluice', f'SELECT sluice.drop_ended_months({middle})'))
    table.add(f'a purge drops the oldest months of {gone:,} jobs from PostgreSQL, s', f'{time.perf_counter() - begin:.2f}')


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('program'), parser.add_argument('submit'), parser.add_argument('books_fill')
    parser.add_argument('--jobs', type=int, default=1_000_000), parser.add_argument('--shared-jobs', type=int, default=1_000_000)
    parser.add_argument('--record')
    args = parser.parse_args()
    table = Table('books')
    with Scratch(args.program, 'books-') as scratch:
        room = shutil.disk_usage(scratch.folder).free // BYTES_A_JOB
        with_files(args, scratch, min(args.jobs, room), table)
        on_postgres(args, scratch, min(args.shared_jobs, room // 2), table)
    table.finish(args.record)


if __name__ == '__main__':
    sys.exit(main())
