"""What compare.py and dstack.py do alike: say how far they are, and keep their table in a file."""
import sys, time


def progress(who, what, began=time.perf_counter()):
    print(f'[{time.perf_counter() - began:6.1f} s] {who}: {what}', file=sys.stderr, flush=True)


def record(path, name, text):
    """Puts the table into the file between the lines `<!-- NAME -->` and `<!-- /NAME -->`."""
    whole = open(path).read()
    begin, end = f'<!-- {name} -->', f'<!-- /{name} -->'
    head, rest = whole.split(begin)
    open(path, 'w').write(f'{head}{begin}\n{text}\n{end}{rest.split(end)[1]}')
