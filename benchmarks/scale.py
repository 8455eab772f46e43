"""The paper's size on two cores: the default method's frontier and the paper's procedure, against LightGBM's own fit.

    python benchmarks/scale.py --work FOLDER                              all parts; hours, nothing else may run
    python benchmarks/scale.py --work FOLDER --part lightgbm frontier     some of them
    python benchmarks/scale.py --work FOLDER --queries 2493               an eighth of the rows
    python benchmarks/scale.py --work FOLDER --report                     fit nothing; print what is there
    nohup python benchmarks/scale.py --work FOLDER > scale.log 2>&1 &     in the background

The rows are drawn by `make_yahoo_like`: 19,944 training queries (about 478,000 documents with 519 features), and as
many validation and test queries beside them as Yahoo has.  They are kept in single precision: all values lie between
0 and 1, and rounding moves them by less than 1e-7.

Each part is a process of its own, so that its peak memory is its own, with as many threads as `--threads` says.  It
writes a line at least every half minute, keeps what is finished in --work and goes on from there when it was killed.
The table and the JSON beside it are written again every minute.

lightgbm    200 rounds of depth 4 from the same arrays: the unit of time.
frontier    `Frontier` of the default method, 200 rounds of depth 4, without fallbacks.
paper       the paper's procedure: 1,000 weak learners, at most 10 nodes, its eight cost weights, each from the
            solution of the next larger one.  Stage-wise regression is its weak learners, cut short.
rivals      the paper's other systems on as many weak learners, for its claims.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import paper_claims
from cstc.model import native
from cstc.whole_file import write_whole
from scale_watch import keep, kept

PARTS = ("lightgbm", "frontier", "paper", "rivals")
SETTINGS = ("queries", "rounds", "weights", "learners", "solver", "threads")
EVERY = 60.0  # seconds between two reports


# -- the report ----------------------------------------------------------------------------------------------------


def counted_runs(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Up to the one that finished; after that only models were measured that had not been yet."""
    runs = [run for run in part.get("runs", []) if "seconds" in run]
    finished = [number for number, run in enumerate(runs) if run.get("finished")]
    return runs[: finished[0] + 1] if finished else runs


def seconds_of(part: dict[str, Any]) -> float:
    """Of all runs: more than one would have taken, where a part was killed."""
    return sum(run["seconds"] for run in counted_runs(part))


def time_line(name: str, part: dict[str, Any], unit: float | None) -> str:
    runs = counted_runs(part)
    state = "finished" if runs[-1].get("finished") else "not finished"
    state += f", {len(runs)} runs" if len(runs) > 1 else ""
    ratio = "" if unit is None else f"{seconds_of(part) / unit:.2f}"
    memory = [f"{max(run[key] for run in runs):.2f}" for key in ("input_gib", "beyond_gib", "maxrss_gib")]
    cpu = sum(run["cpu"] for run in runs)
    cells = [name, f"{seconds_of(part):.0f}", f"{cpu:.0f}", ratio, *memory, state]
    return "| " + " | ".join(cells) + " |"


def steps_table(steps: dict[str, Any]) -> list[str]:
    """The paper's procedure: each cost weight in units of the boosting of its weak learners."""
    shared = steps.get("", {})
    if "boosting" not in shared:
        return []
    boosting = shared["boosting"]["seconds"]
    leaves = shared.get("leaves", {}).get("seconds", 0.0)
    lines = [
        f"Boosting of the weak learners: {boosting:.0f} s; their leaves at all rows: {leaves:.0f} s.",
        "",
        "| cost weight | start | solving (steps) | pruning | fine-tuning | all | all / boosting |",
        "|---|---|---|---|---|---|---|",
    ]
    for weight in sorted((weight for weight in steps if weight), key=float, reverse=True):
        own = steps[weight]
        cells = [f"{own[step]['seconds']:.0f} s" if step in own else "" for step in ("start", "solving", "pruning")]
        if "solving" in own:
            cells[1] += f" ({own['solving']['steps']})"
        cells.append(f"{own['fine-tuning']['seconds']:.0f} s" if "fine-tuning" in own else "")
        if "all" in own:  # the first weight also waits for the weak learners
            first = boosting + leaves if "start" in own and own["all"]["seconds"] > boosting else 0.0
            whole = own["all"]["seconds"] - first
            cells += [f"{whole:.0f} s", f"{whole / boosting:.2f}"]
        else:
            cells += ["", "not finished"]
        lines.append(f"| {float(weight):.4g} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def points_table(name: str, points: list[dict[str, Any]]) -> list[str]:
    lines = [f"### {name}", "", "| parameter | nodes | test NDCG@5 | cost by branches | by learners | trees |"]
    lines.append("|---|---|---|---|---|---|")
    for point in sorted(points, key=lambda point: point["test"]["branch"]):
        test = point["test"]
        figures = f"{test['quality']:.4f} | {test['branch']:.1f} | {test['learner']:.1f} | {test['trees']:.1f}"
        parameter = point["parameter"]
        shown = f"{parameter:.4g}" if isinstance(parameter, int | float) else str(parameter)  # some have several
        lines.append(f"| {shown} | {point['nodes']} | {figures} |")
    return [*lines, ""]


def report(options: argparse.Namespace) -> str:
    """All that is there, as a table and as JSON."""
    work = options.work
    if not (work / "data.json").exists():
        raise SystemExit(f"{work} has nothing to report; run a part first")
    found = {name: kept(work / f"{name}.json") for name in PARTS}
    found = {name: part for name, part in found.items() if any("seconds" in run for run in part.get("runs", []))}
    about, settings = kept(work / "data.json"), kept(work / "settings.json")
    shape = np.load(work / "X-train.npy", mmap_mode="r").shape
    lines = [
        f"# {shape[0]:,} x {shape[1]}: `make_yahoo_like`, {settings['queries']:,} training queries",
        "",
        f"{about['date']}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, {settings['threads']} "
        f"threads, Python {platform.python_version()}, cstc {version('cstc')}, numpy {np.__version__}, "
        f"LightGBM {version('lightgbm')}, scikit-learn {version('scikit-learn')}, compiled walk: {native.available()}.",
        "",
        f"`python benchmarks/scale.py --work FOLDER {' '.join(f'--{name} {settings[name]}' for name in SETTINGS)}`. "
        "Rows in single precision. Time is that of all runs of a part; 1 is LightGBM's. Memory in GiB: "
        "before the fit, with its rows; the most beyond that while it ran, by samples; the most of the whole process.",
        "",
        "| part | seconds | of all cores | / LightGBM | input | beyond it | largest | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    unit = seconds_of(found["lightgbm"]) if found.get("lightgbm", {}).get("runs") else None
    lines += [time_line(name, part, unit) for name, part in found.items()] + [""]
    lines += steps_table(found.get("paper", {}).get("steps", {}))
    points = {name: each for part in found.values() for name, each in part.get("points", {}).items()}
    results: paper_claims.Results = {("yahoo", 0, name): {"points": each} for name, each in points.items()}
    if ("yahoo", 0, paper_claims.FULL) in results and len(points[paper_claims.FULL]) > 1:
        lines += [paper_claims.tables(results, {"yahoo": "NDCG@5"}), "## Claims", ""]
        lines += [f"- {claim.name}: **{claim.verdict}**. {claim.why}" for claim in paper_claims.claims(results)]
        lines.append("")
    lines += ["## Models", "", "The bill is the paper's: evaluating a tree costs 1.", ""]
    for name, each in points.items():
        lines += points_table(name, each)
    text = "\n".join(lines)
    out = options.out or Path(__file__).parent / "results" / f"scale-{about['date']}.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(os.path.realpath(out), text.encode())
    keep(out.with_suffix(".json"), {"rows": shape[0], "settings": settings} | found)
    return text


# -- processes -----------------------------------------------------------------------------------------------------


def bind(options: argparse.Namespace) -> None:
    """A folder belongs to the settings that it was begun with; others are refused."""
    given = {name: getattr(options, name) for name in SETTINGS}
    before = kept(options.work / "settings.json")
    other = [f"--{name} {before[name]}" for name in SETTINGS if before and before[name] != given[name]]
    if other:
        raise SystemExit(f"{options.work} was begun with {' '.join(other)}; give the same, or another folder")
    keep(options.work / "settings.json", given)


def in_its_own_process(part: str, options: argparse.Namespace) -> None:
    """So that its peak memory is its own; threads are pinned before anything is imported."""
    threads = str(options.threads)
    pinned = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    command = [sys.executable, __file__, "--here", "--part", part, "--work", str(options.work)]
    for name in SETTINGS:
        command += [f"--{name}", str(getattr(options, name))]
    with subprocess.Popen(command, env=os.environ | pinned) as process:
        while True:
            try:
                if process.wait(EVERY):
                    raise SystemExit(f"{part} failed; the same command goes on where it was")
                return
            except subprocess.TimeoutExpired:
                if part != "data":
                    report(options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for rows, checkpoints and finished parts")
    parser.add_argument("--part", nargs="+", choices=("data", *PARTS), default=PARTS)
    parser.add_argument("--queries", type=int, default=19_944, help="training queries, of 24 documents on average")
    parser.add_argument("--rounds", type=int, default=200, help="of LightGBM and of the experts")
    parser.add_argument("--weights", type=int, default=24, help="cost weights of the frontier at most")
    parser.add_argument("--learners", type=int, default=1000, help="weak learners of the paper's procedure")
    parser.add_argument("--solver", choices=("joint", "cyclic"), default="joint", help="of the paper's procedure")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="the table; JSON goes beside it (benchmarks/results/scale-DATE.md)")
    parser.add_argument("--report", action="store_true", help="fit nothing; print what is there")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        from scale_parts import RUN  # what is fitted needs most of the library; who only waits does not

        return RUN[options.part[0]](options.work, options)
    if not options.report:
        bind(options)
        if not kept(options.work / "data.json"):
            in_its_own_process("data", options)
        for part in options.part:
            if part != "data" and not kept(options.work / f"{part}.json").get("done"):
                in_its_own_process(part, options)
                report(options)
    print(report(options))


if __name__ == "__main__":
    main()
