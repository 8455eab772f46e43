"""Judged on sets that did not choose: what the constants of the default method are worth on a set that never saw them.

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/judged.py --data PATH           # all sets; hours, resumed if stopped
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/judged.py --data PATH --sets pima_diabetes heart_cleveland
    .venv/bin/python benchmarks/judged.py --report                                # the table of what is finished

The method's constants are varied, one setting after the other.  For each set, the setting is taken that is best on all
other sets, and judged on this one.  The mean of those ratios is printed beside that of the setting which is best on all
sets together, which is what tuning would report: what lies between them was fitted to the sets.

Ratios are those of `ahead.py`, cost at equal quality against LightGBM's CEGB; three random states, and at most 5,000
rows of a set (whole queries of ranking), drawn once.  Fallbacks are not grown: they change no figure here.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np

import cstc
from ahead import SETS, Data, Measure, baseline_quality, geometric, run_cegb, run_ours
from cstc import Experts
from scale_watch import keep, kept

MOST_ROWS = 5000
STATES = 3
#: Constants by their names, wherever the package has them; "as it is" comes first.
SETTINGS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "stages by price": {"FIRST_STAGES": 12, "FINER": ()},
    "18 stages": {"FIRST_STAGES": 10, "FINER": (5, 3)},
    "no regularisation": {"REGULARISED": {"feature_fraction": 1.0, "row_fraction": 1.0, "l2": 0.0}},
    "more regularisation": {"REGULARISED": {"feature_fraction": 0.5, "row_fraction": 0.7, "l2": 5.0}},
}
USUAL = [name for name, each in SETS.items() if not each.further and name != "pima_blood_draw"]


@contextlib.contextmanager
def varied(constants: dict[str, Any]) -> Iterator[None]:
    """Other values for constants, in all modules that took them by name."""
    before = []
    for name, value in constants.items():
        modules = [module for key, module in sys.modules.items() if key.startswith("cstc") and hasattr(module, name)]
        if not modules:
            raise ValueError(f"no module of cstc has a constant {name}")
        before += [(module, name, getattr(module, name)) for module in modules]
        for module in modules:
            setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def fewer(data: Data) -> Data:
    """At most `MOST_ROWS` rows, whole queries of ranking; parts stay parts."""
    if len(data.y) <= MOST_ROWS:
        return data
    rng = np.random.default_rng(0)
    if data.qid is None:
        at = np.sort(rng.choice(len(data.y), MOST_ROWS, replace=False))
    else:
        queries, sizes = np.unique(data.qid, return_counts=True)
        order = rng.permutation(len(queries))
        at = np.flatnonzero(np.isin(data.qid, queries[order[np.cumsum(sizes[order]) <= MOST_ROWS]]))
    parts = None if data.part is None else data.part[at]
    found = data.take(at)
    return Data(found.X, found.y, found.prices, found.task, found.qid, parts, found.categorical, found.bill)


def run(data: Path, cache: Path, names: list[str], n_states: int) -> None:
    """State by state over all sets and settings, so that an early table already has them all."""
    for state in range(n_states):
        for name in names:
            parts = None
            for setting, constants in SETTINGS.items():
                path = cache / f"{name}-{state:02d}-{setting.replace(' ', '-')}.json"
                if path.exists():
                    continue
                parts = parts or fewer(SETS[name].load(data / name)).split(state)
                known = cache / f"{name}-{state:02d}.json"
                if not known.exists():
                    keep(known, cegb(parts))
                started = time.perf_counter()
                with varied(constants):
                    ours = run_ours(*parts, state, method=Experts(fallbacks=False))
                keep(path, kept(known) | {"cstc": ours, "seconds": time.perf_counter() - started})
                print(f"{name}, state {state}, {setting}: {time.perf_counter() - started:.0f} s", flush=True)


def cegb(parts: list[Data]) -> dict[str, Any]:
    full, points = run_cegb(*parts, regularised=False)
    return {"full": full, "cegb": points, "constant": baseline_quality(parts[2])}


def ratios_of(cache: Path, names: list[str], n_states: int) -> tuple[list[str], np.ndarray]:
    """The sets that have all states of all settings, and their ratios, (n_sets, n_settings)."""
    found, table = [], []
    for name in names:
        paths = [
            [cache / f"{name}-{state:02d}-{setting.replace(' ', '-')}.json" for state in range(n_states)]
            for setting in SETTINGS
        ]
        if all(path.exists() for own in paths for path in own):
            found.append(name)
            measures = [Measure([kept(path) for path in own]) for own in paths]
            table.append([geometric(measure.ratios(np.arange(n_states))) for measure in measures])
    return found, np.array(table)


def judge(ratios: np.ndarray) -> tuple[np.ndarray, int]:
    """For each set, the setting that is best on all others; and the one that is best on all together."""
    logs = np.log(ratios)
    without = logs.sum(axis=0) - logs
    return np.argmin(without, axis=1), int(np.argmin(logs.sum(axis=0)))


def report(cache: Path, names: list[str], n_states: int) -> None:
    names, ratios = ratios_of(cache, names, n_states)
    if len(names) < 2:
        raise SystemExit(f"{len(names)} sets are finished in {cache}; two are needed, run with --data PATH first")
    settings = list(SETTINGS)
    chosen, tuned = judge(ratios)
    print("| set | " + " | ".join(settings) + " | chosen without it | judged |")
    print("|---" * (len(settings) + 3) + "|")
    for number, name in enumerate(names):
        own = ratios[number]
        cells = " | ".join(f"{ratio:.2f}" for ratio in own)
        print(f"| {name} | {cells} | {settings[chosen[number]]} | {own[chosen[number]]:.2f} |")
    means = [geometric(column) for column in ratios.T]
    judged = geometric(ratios[np.arange(len(names)), chosen])
    print("| geometric mean | " + " | ".join(f"{mean:.3f}" for mean in means) + f" | - | {judged:.3f} |")
    print(
        f"\nTuned on all {len(names)} sets ({settings[tuned]}): {means[tuned]:.3f}; as it is: {means[0]:.3f}; judged "
        f"on sets that did not choose: {judged:.3f}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder with the data sets")
    parser.add_argument("--sets", nargs="+", choices=USUAL, default=USUAL)
    parser.add_argument("--states", type=int, default=STATES)
    parser.add_argument("--cache", type=Path, default=Path("out/judged"), help="where finished states are kept")
    parser.add_argument("--report", action="store_true", help="only print the table of what is finished")
    options = parser.parse_args()
    print(
        f"{datetime.date.today()}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, cstc {cstc.__version__}, LightGBM {lightgbm.__version__}\n"
    )
    if not options.report:
        if options.data is None or not options.data.is_dir():
            parser.error("--data must name the folder with the data sets")
        options.cache.mkdir(parents=True, exist_ok=True)
        run(options.data, options.cache, options.sets, options.states)
    report(options.cache, options.sets, options.states)


if __name__ == "__main__":
    main()
