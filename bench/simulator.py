"""bench/simulator.py PROGRAM [--record SPECIFICATION.md]: public traces through `sluice sim`, as a table.

The traces are read from ../shared/traces beside the project, or from SLUICE_TRACES; they are not part of it. Ends with 1 if a
figure is not as wanted.
"""
import json, os, subprocess, sys, time
from record import progress, record

FOLDER = os.environ.get('SLUICE_TRACES') or os.path.join(os.path.dirname(__file__), '..', '..', 'shared', 'traces')
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

# Lists of pods, and the least per cent of GPUs that must be allocated when all have arrived: the mean of ten seeds.
PODS = [('default', 95.1), ('multigpu50', 97.0), ('gpushare100', 86.5), ('cpu250', 93.0), ('gpuspec33', 87.7)]
PODS_FOLDER, SEEDS = 'alibaba-gpu-v2023', 10


def is_as_wanted(kind, found, wanted):
    if wanted is None:
        return True
    # The wanted figures have one place after the point.
    return abs(found - wanted) <= NEAR * wanted + 0.05 if kind == 'equal' else found <= wanted


def cell(kind, found, wanted):
    text = f'{found:.1f}' if wanted is None else f'{found:.1f} ({"at most " if kind == "at most" else ""}{wanted:,})'
    return text if is_as_wanted(kind, found, wanted) else f'**{text}**'


def row(program, trace, policy, kind, wanted):
    began = time.perf_counter()
    said = subprocess.run([program, 'sim', os.path.join(FOLDER, trace), '--policy', policy, '--json'],
                          check=True, capture_output=True, text=True).stdout
    took = time.perf_counter() - began
    figures = json.loads(said)
    found = (figures['mean_wait_s'] / 60, figures['mean_bounded_slowdown'], figures['max_wait_s'] / 3600)
    cells = ' | '.join(cell(kind, *pair) for pair in zip(found, wanted))
    text = f'| {trace}, `{policy}` | {cells} | {figures["utilisation"]:.3f} | {60 * figures["jobs"] / took:,.0f} |'
    return text, all(is_as_wanted(kind, *pair) for pair in zip(found, wanted))


def pod_row(program, pods, least):
    folder = os.path.join(FOLDER, PODS_FOLDER)
    found = []
    for seed in range(SEEDS):
        said = subprocess.run([program, 'sim', os.path.join(folder, f'openb_pod_list_{pods}.csv'), '--json', '--seed', str(seed),
                               '--nodes', os.path.join(folder, 'openb_node_list_gpu_node.csv')],
                              check=True, capture_output=True, text=True).stdout
        found.append(json.loads(said)['gpu_allocated_percent'])
    mean = sum(found) / len(found)
    text = f'{mean:.2f} (at least {least})'
    return f'| {pods} | {text if mean >= least else f"**{text}**"} | {min(found):.2f} to {max(found):.2f} |', mean >= least


def main():
    program = sys.argv[1]
    if not os.path.isdir(FOLDER):
        print(f'no traces in {os.path.normpath(FOLDER)}: the replays are left out', file=sys.stderr)
        return 0
    lines = ['| trace and policy | mean wait, min (wanted) | bounded slowdown | maximum wait, h | utilisation | jobs a minute |',
             '|---|---:|---:|---:|---:|---:|']
    good = True
    for trace, policy, kind, wanted in REPLAYS:
        progress('sluice sim', f'{trace}, {policy}')
        text, is_good = row(program, trace, policy, kind, wanted)
        lines.append(text)
        good &= is_good
    print('\n'.join(lines))
    pod_lines = ['| list of pods | GPUs allocated, per cent, mean of ten seeds (wanted) | of one seed |', '|---|---:|---:|']
    for pods, least in PODS:
        progress('sluice sim', f'pods, {pods}')
        text, is_good = pod_row(program, pods, least)
        pod_lines.append(text)
        good &= is_good
    print('\n'.join(pod_lines))
    if '--record' in sys.argv:
        path = sys.argv[sys.argv.index('--record') + 1]
        record(path, 'bench simulator', '\n'.join(lines))
        record(path, 'bench pods', '\n'.join(pod_lines))
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
