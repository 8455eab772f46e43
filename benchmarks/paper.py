"""All systems that the paper compares, on four sets: one table, one JSON, the figures, and the paper's claims.

    python benchmarks/paper.py --data ../shared/data              everything
    python benchmarks/paper.py --sets yahoo quadrants --quick     what needs no files, at a size of minutes
    python benchmarks/paper.py --table docs/paper.md              the claims about curves, from the tables of a document

Every (set, state, system) is kept as a JSON file in --out, so a run that is killed goes on where it stopped, and a
system is measured again when its file is deleted.  Run it alone, with OMP_NUM_THREADS=1.  Sizes are in docs/paper.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import paper_claims
import paper_figures
from paper_systems import SETS, STATES, load, measure, structure, systems

QUALITY = {"quadrants": "R²", "mslr": "NDCG@5", "mq2007": "NDCG@5", "yahoo": "NDCG@5"}


def run(name: str, state: int, options: argparse.Namespace) -> None:
    """Measure every system on one state of a set, as far as its file is missing."""
    data = None
    for system in _names(name):
        if system in (options.skip or ()):
            continue
        path = _file(options.out, name, state, system)
        if path.exists():
            continue
        if data is None:
            data = load(name, state, options.data, options.quick)
        started = time.perf_counter()
        models = systems(data)[system]()
        seconds = time.perf_counter() - started
        points = []
        for parameter, model in models:
            point: dict[str, Any] = {"parameter": parameter} | measure(model, data)
            if system == "CSTC unpruned":
                point["structure"] = structure(model, data)
            points.append(point)
        if system == "CSTC unpruned" and state == 0:
            model = paper_figures.tree_to_draw(models, data)
            if model is not None:
                paper_figures.draw_tree(model, data, options.out)
        sizes = {part: len(getattr(data, part).y) for part in ("train", "validation", "test")}
        _write(path, {"set": name, "state": state, "system": system, "seconds": seconds, **sizes, "points": points})
        print(f"{name} {state}: {system}, {len(points)} models in {seconds:.0f} s", file=sys.stderr, flush=True)


def _names(name: str) -> list[str]:
    order = ["stage-wise regression", "CSTC", "CSTC without fine-tuning", "CSTC unpruned", "single classifier"]
    order += ["Cronus", "early exit", "l1", "SpeedBoost", "soft cascade", "mixture of experts", "cost-aware tree"]
    order += ["Greedy Miser", "CEGB coupled", "CEGB lazy", "default method"]
    return [system for system in order if not (name == "quadrants" and system == "early exit")]


def _file(folder: Path, name: str, state: int, system: str) -> Path:
    return folder / "results" / f"{name}-{state}-{system.replace(' ', '_')}.json"


def _write(path: Path, document: Any) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(document, indent=1))
    os.replace(unfinished, path)


def collect(options: argparse.Namespace) -> paper_claims.Results:
    """All results that are there, of whatever run, in the order of sets and systems."""
    results: paper_claims.Results = {}
    for name in SETS:
        for state in range(STATES[name]):
            for system in _names(name):
                path = _file(options.out, name, state, system)
                if path.exists():
                    results[name, state, system] = json.loads(path.read_text())
    # a state counts when the whole ensemble, which gives the unit of cost, was measured on it
    return {key: value for key, value in results.items() if (key[0], key[1], paper_claims.FULL) in results}


def report(options: argparse.Namespace) -> None:
    results = collect(options)
    found = paper_claims.claims(results)
    lines = [paper_claims.tables(results, QUALITY), "## Claims", ""]
    lines += [line_of(claim) for claim in found]
    seconds = sum(result["seconds"] for result in results.values())
    lines += ["", f"{len(results)} results, {seconds / 60:.0f} minutes of fitting"]
    text = "\n".join(lines)
    (options.out / "table.md").write_text(text + "\n")
    document = {
        "results": list(results.values()),
        "claims": [{"name": claim.name, "held": claim.held, "why": claim.why} for claim in found],
    }
    _write(options.out / "paper.json", document)
    figures = paper_figures.draw_curves(results, options.out, QUALITY)
    print(text)
    print(f"\n{options.out / 'table.md'}, {options.out / 'paper.json'}, {len(figures)} figures of curves")


def line_of(claim: paper_claims.Claim) -> str:
    return f"- {claim.name}: **{claim.verdict}**. {claim.why}"


def report_table(path: Path) -> None:
    """The claims about curves from tables that were measured some time, since their results are not kept."""
    found = paper_claims.curve_claims(paper_claims.parse_tables(path.read_text()))
    if not found:
        raise SystemExit(f"{path} has no table of curves with a heading such as 'yahoo, cost counted by ...'")
    print("\n".join(line_of(claim) for claim in found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, default=Path("../shared/data"), help="folder with mq2007_partial, mslr_sample"
    )
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--quick", action="store_true", help="small sizes and one state, to see that it runs")
    parser.add_argument("--out", type=Path, help="folder for results, table and figures (out/paper, out/paper-quick)")
    parser.add_argument("--skip", nargs="+", choices=_names(""), help="systems to leave out")
    parser.add_argument("--report", action="store_true", help="fit nothing; print what is there")
    parser.add_argument("--table", type=Path, help="fit nothing; print the claims about the curves in this document")
    options = parser.parse_args()
    if options.table:
        return report_table(options.table)
    options.out = options.out or Path("out/paper-quick" if options.quick else "out/paper")
    options.out.mkdir(parents=True, exist_ok=True)
    states = {name: 1 if options.quick else STATES[name] for name in options.sets}
    if not options.report:
        # state by state, so that every set has something to show early
        for state in range(max(states.values())):
            for name in options.sets:
                if state < states[name]:
                    run(name, state, options)
    report(options)


if __name__ == "__main__":
    main()
