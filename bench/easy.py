"""bench/easy.py TRACE PROCESSORS: EASY backfill where only processors are counted, beside which `sluice sim --policy easy` is held.

Prints mean wait in minutes, mean bounded slowdown and maximum wait in hours twice: where all that is free when the first waiting job
is to start counts as left over; and where what comes free at that very second counts only until the job has enough, narrow jobs first.
"""
import bisect, gzip, heapq, sys
from collections import namedtuple

Job = namedtuple('Job', 'submit run processors estimate')


def read(path):
    opened = gzip.open if path.endswith('.gz') else open
    jobs = []
    with opened(path, 'rt', errors='replace') as lines:
        for line in lines:
            if line.startswith(';') or not line.strip():
                continue
            field = [int(float(word)) for word in line.split()]
            run, processors = field[3], field[7] if field[7] > 0 else field[4]
            if run > 0 and processors > 0:
                estimate = field[8] if field[8] > 0 else run
                jobs.append(Job(field[1], min(run, estimate), processors, estimate))
    return jobs


class Replay:
    def __init__(self, jobs, processors, all_count):
        self.jobs, self.free, self.all_count = jobs, processors, all_count
        self.starts = [0] * len(jobs)
        self.queue = []
        # The real ends, and the expected ones in order: time, processors, job.
        self.ends, self.expected = [], []

    def expected_end(self, at):
        return self.starts[at] + self.jobs[at].estimate, self.jobs[at].processors, at

    def start(self, at, now):
        self.starts[at] = now
        self.free -= self.jobs[at].processors
        heapq.heappush(self.ends, (now + self.jobs[at].run, at))
        bisect.insort(self.expected, self.expected_end(at))

    def end_jobs(self, now):
        while self.ends and self.ends[0][0] <= now:
            at = heapq.heappop(self.ends)[1]
            self.free += self.jobs[at].processors
            del self.expected[bisect.bisect_left(self.expected, self.expected_end(at))]

    def first_start(self, now):
        """When the first that waits can start, and what it leaves over then."""
        needed, free, start = self.jobs[self.queue[0]].processors, self.free, now
        for end, processors, _ in self.expected:
            if free >= needed and not (self.all_count and end == start):
                break
            free, start = free + processors, end
        return start, free - needed

    def plan(self, now):
        while self.queue and self.jobs[self.queue[0]].processors <= self.free:
            self.start(self.queue.pop(0), now)
        if not self.queue:
            return
        start, left = self.first_start(now)
        waiting = self.queue[:1]
        for at in self.queue[1:]:
            job = self.jobs[at]
            is_done_before = now + job.estimate <= start
            if job.processors > self.free or not (is_done_before or job.processors <= left):
                waiting.append(at)
                continue
            left -= 0 if is_done_before else job.processors
            self.start(at, now)
        self.queue = waiting

    def waits(self):
        following = 0
        while following < len(self.jobs) or self.ends:
            submits = [self.jobs[following].submit] if following < len(self.jobs) else []
            now = min([end for end, _ in self.ends[:1]] + submits)
            self.end_jobs(now)
            while following < len(self.jobs) and self.jobs[following].submit <= now:
                self.queue.append(following)
                following += 1
            self.plan(now)
        return [start - job.submit for start, job in zip(self.starts, self.jobs)]


def figures(jobs, processors, all_count):
    waits = Replay(jobs, processors, all_count).waits()
    slowdowns = [max(1, (wait + job.run) / max(10, job.run)) for wait, job in zip(waits, jobs)]
    waits, slowdowns = waits[len(jobs) // 100:], slowdowns[len(jobs) // 100:]
    return sum(waits) / len(waits) / 60, sum(slowdowns) / len(slowdowns), max(waits) / 3600


if __name__ == '__main__':
    jobs = read(sys.argv[1])
    for all_count in (True, False):
        print(*(f'{figure:.1f}' for figure in figures(jobs, int(sys.argv[2]), all_count)))
