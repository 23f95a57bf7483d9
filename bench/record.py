"""What the benches do alike: say how far they are, and keep their table in a file."""
import sys, time


def progress(who, what, began=time.perf_counter()):
    print(f'[{time.perf_counter() - began:6.1f} s] {who}: {what}', file=sys.stderr, flush=True)


def record(path, name, text):
    """Puts the table into the file between the lines `<!-- NAME -->` and `<!-- /NAME -->`."""
    whole = open(path).read()
    begin, end = f'<!-- {name} -->', f'<!-- /{name} -->'
    head, rest = whole.split(begin)
    open(path, 'w').write(f'{head}{begin}\n{text}\n{end}{rest.split(end)[1]}')


class Table:
    """What was measured here and what is wanted, each row said when it is known. WHO is the name of the bench."""

    def __init__(self, who):
        self.who, self.rows = who, []

    def add(self, what, here, wanted=''):
        self.rows.append((what, here, wanted))
        progress(self.who, f'{what}: {here}' + (f' (wanted: {wanted})' if wanted else ''))

    def finish(self, path=None):
        """Prints the table, and keeps it in the file at PATH."""
        text = '\n'.join(['| what | here | wanted |', '|---|---:|---|', *(f'| {what} | {here} | {wanted} |' for what, here, wanted in self.rows)])
        print(text)
        if path:
            record(path, f'bench {self.who}', text)
