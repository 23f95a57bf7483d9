"""bench/simulator.py PROGRAM [RATE] [--record SPECIFICATION.md]: public traces through `sluice sim`, as tables.

The traces are read from ../shared/traces beside the project, or from SLUICE_TRACES; they are not part of it. What needs a file that is not
there is left out, with a notice; a table that is not whole is not recorded. RATE is the example
`replay_rate` of the crate `sim`: how many jobs a minute are replayed. With --record the tables go into SPECIFICATION.md and docs/policy.md,
and the charts of docs/policy.md into docs/policy/. Ends with 1 if a figure is not as wanted.
"""
import json, os, re, shutil, subprocess, sys, tempfile, time
from concurrent.futures import ThreadPoolExecutor
from record import progress, record

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = os.environ.get('SLUICE_TRACES') or os.path.join(HERE, '..', '..', 'shared', 'traces')
POLICY_PAGE, CHARTS = (os.path.join(HERE, '..', 'docs', name) for name in ('policy.md', 'policy'))
SP2, LUBLIN = 'SDSC-SP2-1998-4.2-cln.swf.gz', 'lublin_256.swf'

# Trace, policy, and what is wanted: mean wait in minutes, mean bounded slowdown, maximum wait in hours.
# The figures of EASY are of an independent replay that counts processors, as the second line of bench/easy.py does.
REPLAYS = [
    (SP2, 'easy', 'equal', (335.7, 86.2, 137.7)),
    (LUBLIN, 'easy', 'equal', (1634.8, 595.7, 286.0)),
    (SP2, 'sluice', 'at most', (320, 70, 145)),
    (LUBLIN, 'sluice', 'at most', (None, 245, 350)),
]
NEAR = 0.01

# The traces by a short name, as charts and tables of docs/policy.md have them.
SHORT = {SP2: 'SDSC-SP2', LUBLIN: 'lublin_256'}

# Jobs a minute with some hundred waiting, on 1,000 nodes at 70 % load.
RATE_WANTED = 1_000_000

# Lists of pods, and the least per cent of GPUs that must be allocated when all have arrived: the mean of ten seeds.
PODS = [('default', 95.1), ('multigpu50', 97.0), ('gpushare100', 86.5), ('cpu250', 93.0), ('gpuspec33', 87.7)]
PODS_FOLDER, SEEDS = 'alibaba-gpu-v2023', 10
POD_NODES = os.path.join(PODS_FOLDER, 'openb_node_list_gpu_node.csv')


def pod_list(name):
    return os.path.join(PODS_FOLDER, f'openb_pod_list_{name}.csv')


def missing(*names):
    """Those of the files of the traces' folder that are not there, each told in a notice."""
    gone = [name for name in names if not os.path.isfile(os.path.join(FOLDER, name))]
    for name in gone:
        print(f'no {name} in {os.path.normpath(FOLDER)}: what needs it is left out', file=sys.stderr)
    return gone


def sim(program, *args):
    return json.loads(subprocess.run([program, 'sim', *args, '--json'], check=True, capture_output=True, text=True).stdout)


def is_as_wanted(kind, found, wanted):
    if wanted is None:
        return True
    # The wanted figures have one place after the point.
    return abs(found - wanted) <= NEAR * wanted + 0.05 if kind == 'equal' else found <= wanted


def cell(kind, found, wanted):
    text = f'{found:.1f}' if wanted is None else f'{found:.1f} ({"at most " if kind == "at most" else ""}{wanted:,})'
    return text if is_as_wanted(kind, found, wanted) else f'**{text}**'


def row(trace, policy, kind, wanted, figures, took):
    found = (figures['mean_wait_s'] / 60, figures['mean_bounded_slowdown'], figures['max_wait_s'] / 3600)
    cells = ' | '.join(cell(kind, *pair) for pair in zip(found, wanted))
    text = f'| {trace}, `{policy}` | {cells} | {figures["utilisation"]:.3f} | {60 * figures["jobs"] / took:,.0f} |'
    return text, all(is_as_wanted(kind, *pair) for pair in zip(found, wanted))


def replays(program, wanted):
    """The table of traces and policies, the figures of each, its charts in a folder, and whether all is as wanted."""
    lines = ['| trace and policy | mean wait, min (wanted) | bounded slowdown | maximum wait, h | utilisation | jobs a minute |',
             '|---|---:|---:|---:|---:|---:|']
    figures, charts, good = {}, tempfile.mkdtemp(), True
    for trace, policy, kind, figure in wanted:
        progress('sluice sim', f'{trace}, {policy}')
        folder = os.path.join(charts, f'{SHORT[trace]}-{policy}')
        began = time.perf_counter()
        figures[trace, policy] = sim(program, os.path.join(FOLDER, trace), '--policy', policy, '--kinds', '--charts', folder)
        text, is_good = row(trace, policy, kind, figure, figures[trace, policy], time.perf_counter() - began)
        lines.append(text)
        good &= is_good
    return lines, figures, charts, good


def hours(seconds):
    return f'{seconds // 60} min' if seconds < 3600 else f'{seconds // 3600} h'


def kind_name(kind):
    least, below = kind['run_s_min'], kind['run_s_below']
    if below is None:
        run = f'{hours(least)} or more'
    else:
        run = f'{hours(least)} to {hours(below)}' if least else f'below {hours(below)}'
    width = f'{kind["processors_min"]}-{kind["processors_max"]}' if kind['processors_max'] else f'{kind["processors_min"]} or more'
    return f'{run}, {width} processors'


def kind_tables(figures):
    """For each trace how jobs of each kind fare under both policies."""
    parts = []
    for trace in dict.fromkeys(trace for trace, _ in figures):
        lines = [f'{SHORT[trace]}:', '',
                 '| jobs | how many | mean wait, min: `easy` | `sluice` | slowdown: `easy` | `sluice` | maximum wait, h: `easy` | `sluice` |',
                 '|---|---:|---:|---:|---:|---:|---:|---:|']
        # Which jobs are of which kind does not depend on the policy.
        for easy, ours in zip(figures[trace, 'easy']['kinds'], figures[trace, 'sluice']['kinds']):
            cells = [f'{kind[key] / unit:,.1f}' for key, unit in (('mean_wait_s', 60), ('mean_bounded_slowdown', 1), ('max_wait_s', 3600))
                     for kind in (easy, ours)]
            lines.append(f'| {kind_name(easy)} | {easy["jobs"]:,} | {" | ".join(cells)} |')
        parts.append('\n'.join(lines))
    return '\n\n'.join(parts)


def chart_links(charts):
    """Puts the charts of docs/policy.md into its folder, and says where they are."""
    os.makedirs(CHARTS, exist_ok=True)
    lines = []
    for trace, policy, _, _ in REPLAYS:
        for chart, what in (('waits', 'waits'), ('queue', 'jobs that wait')):
            name = f'{SHORT[trace]}-{policy}-{chart}.svg'.lower()
            shutil.copyfile(os.path.join(charts, f'{SHORT[trace]}-{policy}', f'{chart}.svg'), os.path.join(CHARTS, name))
            lines.append(f'![{SHORT[trace]} under `{policy}`: {what} over time](policy/{name})')
    return '\n'.join(lines)


def estimates(program, wanted):
    """How far the starts that were expected at submission were from the starts."""
    lines = ['| trace and policy | processors | jobs that waited | median error, min | nine of ten within, min |', '|---|---|---:|---:|---:|']
    for trace, policy, _, _ in wanted:
        progress('sluice sim --estimates', f'{trace}, {policy}')
        for error in sim(program, os.path.join(FOLDER, trace), '--policy', policy, '--estimates')['estimate_errors']:
            least, most = error['processors_min'], error['processors_max']
            size = f'{least} or more' if most is None else str(least) if least == most else f'{least}-{most}'
            lines.append(f'| {trace}, `{policy}` | {size} | {error["jobs"]:,} | {error["median_s"] / 60:.1f} '
                         f'| {error["ninetieth_percentile_s"] / 60:.1f} |')
    return lines


def rate(example):
    """Jobs a minute on 1,000 nodes, as a table, and whether they are as many as wanted."""
    progress('replay_rate', '1,000 nodes, 70 % load')
    said = subprocess.run([example], check=True, capture_output=True, text=True).stdout
    found, queue = re.search(r'([\d.]+) jobs a minute', said)[1], re.search(r'a queue of (\d+)', said)[1]
    text = f'{float(found):,.0f}'
    is_good = float(found) >= RATE_WANTED
    return ['| what | jobs a minute | wanted |', '|---|---:|---:|',
            f'| 1,000 nodes, 70 % load, a queue of {queue} in the mean | {text if is_good else f"**{text}**"} | at least {RATE_WANTED:,} |'], is_good


def pod_row(program, pods, least):
    def allocated(seed):
        figures = sim(program, os.path.join(FOLDER, pod_list(pods)), '--seed', str(seed), '--nodes', os.path.join(FOLDER, POD_NODES))
        return figures['gpu_allocated_percent']
    # What is told does not depend on how long it takes: as many at a time as there are cores.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(allocated, range(SEEDS)))
    mean = sum(found) / len(found)
    text = f'{mean:.2f} (at least {least})'
    return f'| {pods} | {text if mean >= least else f"**{text}**"} | {min(found):.2f} to {max(found):.2f} |', mean >= least


def pods(program, lists):
    lines, good = ['| list of pods | GPUs allocated, per cent, mean of ten seeds (wanted) | of one seed |', '|---|---:|---:|'], True
    for name, least in lists:
        progress('sluice sim', f'pods, {name}')
        text, is_good = pod_row(program, name, least)
        lines.append(text)
        good &= is_good
    return lines, good


def main():
    args = sys.argv[1:]
    path = args.pop(args.index('--record') + 1) if '--record' in args else None
    args = [arg for arg in args if arg != '--record']
    program, good = args[0], True

    # Each table as soon as it is there: all of them take most of an hour.
    def keep(name, lines, is_whole=True):
        print('\n'.join(lines))
        if path and is_whole:
            record(path, name, '\n'.join(lines))

    if len(args) > 1:
        lines, good = rate(args[1])
        keep('bench replay rate', lines)
    if not os.path.isdir(FOLDER):
        print(f'no traces in {os.path.normpath(FOLDER)}: the replays are left out', file=sys.stderr)
        return 0 if good else 1
    gone = missing(*SHORT)
    wanted = [replay for replay in REPLAYS if replay[0] not in gone]
    if wanted:
        good &= keep_replays(program, wanted, keep, path if not gone else None)
    lists = {pod_list(name): (name, least) for name, least in PODS}
    gone = missing(POD_NODES, *lists)
    if POD_NODES not in gone and len(gone) < len(lists):
        lines, is_good = pods(program, [lists[name] for name in lists if name not in gone])
        keep('bench pods', lines, not gone)
        good &= is_good
    return 0 if good else 1


def keep_replays(program, wanted, keep, path):
    """Prints the tables of the traces, and keeps them where a path is given; whether all is as wanted."""
    lines, figures, charts, is_good = replays(program, wanted)
    keep('bench simulator', lines, path)
    kinds = kind_tables(figures)
    print(kinds)
    if path:
        record(POLICY_PAGE, 'bench policy', f'{kinds}\n\n{chart_links(charts)}')
    shutil.rmtree(charts)
    keep('bench estimates', estimates(program, wanted), path)
    return is_good


if __name__ == '__main__':
    sys.exit(main())
