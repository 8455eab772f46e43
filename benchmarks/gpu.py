"""The paper's size on a GPU: an 8-point frontier of the default method, and the paper's procedure; cores beside it.

    python benchmarks/gpu.py --work FOLDER --out RESULTS                          all parts, one after the other
    python benchmarks/gpu.py --work FOLDER --out RESULTS --part frontier          one of them; quality comes last
    python benchmarks/gpu.py --work FOLDER --out RESULTS --device cpu --queries 60    a trial without a GPU

The rows are those of `scale.py`, drawn when they are first needed: `make_yahoo_like` with 19,944 training queries,
about 478,000 documents with 519 features.  Each part writes a JSON file into --out, and the table of all that is there.

frontier    `Frontier` with eight cost weights on the device, by XGBoost: 200 rounds of depth 4, without fallbacks.
cores       the same on --threads cores, by LightGBM.
paper       the paper's procedure on the device: 1,000 weak learners, 10 nodes, its eight cost weights.
quality     NDCG@5 of both frontiers at the same budgets, parts of what all features cost.
memory      a device that others fill: what is said, and what a fit for one cost weight is worth then.
            Only by name, and only on a GPU.
folds       the ensembles of one expert that each lack a fold: rows that are binned anew for each of them, against
            rows that are binned once, those of the fold with zero weight.  Only by name.

Time is that of `fit`.  The steps of a fit follow each other, and what is left over is "rest"; what ensembles take
inside of them is summed over threads, and waiting for the device counts there.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import subprocess
import threading
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import cstc.experts.candidates as candidates
import cstc.experts.chain as chain
import cstc.experts.lazy as lazy
import cstc.experts.members as members
import cstc.experts.method as experts_method
import cstc.paper.features as paper_features
import cstc.paper.method as paper_method
import cstc.paper.objective as objective
import cstc.xgboost_engine as engine
from cstc import CostModel, CSTCRanker, Experts, Frontier, Paper
from cstc.boosting import Boosting
from cstc.capacity import folds_for
from cstc.lightgbm_trees import trees_of
from cstc.losses import SquaredLoss
from cstc.metrics import ndcg
from cstc.on_device import check_cuda
from cstc.paper.products import DesignOnDevice
from cstc.rows import Rows, folds_of
from cstc.whole_file import write_whole
from scale_parts import cost_weights, prices, rows, run_data
from scale_watch import keep, kept, say

PARTS = ("frontier", "cores", "paper", "quality")
BY_NAME = ("memory", "folds")
WIDTHS = (519, 50)  # columns of an expert
DEPTH = 4
SHARES = (0.05, 0.1, 0.25, 0.5)  # of what all features cost
PACKAGES = ("cstc", "numpy", "scipy", "scikit-learn", "lightgbm", "xgboost", "xgboost-cpu", "cupy-cuda12x")
PACKAGES += ("cupy-cuda13x", "torch")
#: What follows each other in a fit of the default method, and what happens inside of it in many threads.
STEPS = {
    "orders of buying": [(chain, "orders_of")],
    "experts": [(chain._ExpertStore, "grow")],
    "the matrix": [(chain, "bin_for_all")],
    "expected losses": [(chain, "stacked"), (chain, "Expectation")],
    "gates": [(candidates, "induce")],
    "what rows need": [(candidates, "needs_of"), (candidates, "part"), (candidates, "tried")],
    "lazy experts": [(lazy.LazyExperts, "_screen"), (lazy.LazyExperts, "_grow")],
    "ensembles on all rows": [(experts_method, "scores_of")],
}
INSIDE = {
    "binning": [(engine, "_data")],
    "cutting cells": [(engine.Matrix, "cells")],
    "growing": [(engine.Ensemble, "grow"), (engine.Ensemble, "update")],
    "flattening": [(engine.Ensemble, "flatten")],
    "hearing": [(members, "hear_at")],
}
PAPER_STEPS = {
    "weak learners": [(paper_features, "grow")],
    "their leaves": [(paper_features, "phi_and_codes")],
    "start": [(paper_method, "initialise")],
    "solving": [(paper_method, "solve")],
    "pruning": [(paper_method, "prune")],
    "fine-tuning": [(paper_method, "fine_tune")],
}
PAPER_INSIDE = {
    "Phi @ B": [(DesignOnDevice, "matmul"), (objective.Design, "matmul")],
    "Phi.T @ M": [(DesignOnDevice, "rmatmul"), (objective.Design, "rmatmul")],
    "all else of the loss": [(objective.TreeObjective, "margin_terms")],
}


class Clock:
    """Seconds of some functions while it runs: those of a step without the steps inside of it."""

    def __init__(self, steps: dict[str, list[tuple[Any, str]]], inside: dict[str, list[tuple[Any, str]]]):
        self.steps, self.inside = dict.fromkeys(steps, 0.0), dict.fromkeys(inside, 0.0)
        self._watched, self._lock, self._own = (steps, inside), threading.Lock(), threading.local()
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Clock:
        for found, watched in zip((self.steps, self.inside), self._watched, strict=True):
            for step, functions in watched.items():
                for owner, name in functions:
                    self._patch(owner, name, step, found)
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        self.seconds = time.perf_counter() - self._started
        for owner, name, function in reversed(self._before):
            setattr(owner, name, function)

    def _patch(self, owner: Any, name: str, step: str, found: dict[str, float]) -> None:
        function = vars(owner)[name]
        self._before.append((owner, name, function))

        def timed(*given: Any, **options: Any) -> Any:
            kind = id(found)
            below = self._own.__dict__.setdefault(kind, [])  # what was taken by the calls inside of each
            below.append(0.0)
            started = time.perf_counter()
            try:
                return function(*given, **options)
            finally:
                whole = time.perf_counter() - started
                own = whole - below.pop()
                if below:
                    below[-1] += whole
                with self._lock:
                    found[step] += own

        setattr(owner, name, timed)

    def told(self) -> dict[str, Any]:
        rest = {"rest": self.seconds - sum(self.steps.values())}
        return {"seconds": self.seconds, "steps": self.steps | rest, "inside": self.inside}


# -- parts ---------------------------------------------------------------------------------------------------------


def run_frontier(options: argparse.Namespace) -> dict[str, Any]:
    """On the device; a trial on CPUs grows with XGBoost, too."""
    found = {"start of the device": started_device(options)}
    return found | frontier_of(options, device=options.device, method=Experts(fallbacks=False, engine="xgboost"))


def run_cores(options: argparse.Namespace) -> dict[str, Any]:
    return frontier_of(options, device="cpu", method=Experts(fallbacks=False))


def started_device(options: argparse.Namespace) -> float:
    """Seconds until XGBoost has grown its first tree there."""
    started = time.perf_counter()
    if options.device == "cuda":
        check_cuda()
    return time.perf_counter() - started


def frontier_of(options: argparse.Namespace, **how: Any) -> dict[str, Any]:
    work = options.work
    train, validation = rows(work, "train"), rows(work, "validation")
    estimator = CSTCRanker(
        costs=prices(work, 0.0),
        n_weak_learners=options.rounds,
        weak_learner_depth=DEPTH,
        n_jobs=options.threads,
        random_state=0,
        **how,
    )
    frontier = Frontier(estimator, n_weights=options.weights)
    given = {"X_val": validation.X, "y_val": validation.y, "qid_val": validation.qid}
    with Clock(STEPS, INSIDE) as clock:
        frontier.fit(train.X, train.y, qid=train.qid, **given)
    say(f"fitted in {clock.seconds:.1f} s")
    full = float(sum(kept(work / "data.json")["prices"]))
    points = [judged(work, model.model_) for model in frontier.models_]
    budgets = {str(share): judged(work, frontier.best(mean_cost=share * full).model_) for share in SHARES}
    found = {"rows": len(train.y), "n_ensembles": frontier.n_ensembles_, "full_cost": full, "threads": options.threads}
    return found | clock.told() | {"points": points, "budgets": budgets}


def judged(work: Path, model: Any) -> dict[str, float]:
    """At the test rows."""
    test = rows(work, "test")
    margins, costs = model.decision_and_cost(test.X)
    return {"ndcg": float(ndcg(test.y, margins[:, 0], test.qid, k=5)), "cost": float(np.mean(costs))}


def run_paper(options: argparse.Namespace) -> dict[str, Any]:
    work = options.work
    found = {"start of the device": started_device(options)}
    train, validation = rows(work, "train"), rows(work, "validation")
    estimator = CSTCRanker(
        costs=prices(work, 1.0),
        method=Paper(solver="joint", depth=4, max_nodes=10),
        n_weak_learners=options.learners,
        weak_learner_depth=DEPTH,
        early_stopping=None,
        n_jobs=options.threads,
        random_state=0,
        device=options.device,
    )
    frontier = Frontier(estimator, cost_weights=cost_weights(work))
    given = {"X_val": validation.X, "y_val": validation.y, "qid_val": validation.qid}
    with Clock(PAPER_STEPS, PAPER_INSIDE) as clock, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        frontier.fit(train.X, train.y, qid=train.qid, **given)
    say(f"fitted in {clock.seconds:.1f} s")
    points = [judged(work, model.model_) for model in frontier.tried_models_]
    return found | {"rows": len(train.y), "threads": options.threads} | clock.told() | {"points": points}


def run_quality(options: argparse.Namespace) -> dict[str, Any]:
    """Nothing is fitted: both frontiers are there."""
    both = [kept(options.out / f"{part}.json") for part in ("frontier", "cores")]
    if not all(both):
        raise SystemExit("quality compares two frontiers; run --part frontier cores first, with the same --out")
    found = {}
    for share in map(str, SHARES):
        there, here = (each["budgets"][share] for each in both)
        found[share] = {"device": there, "cores": here, "difference": there["ndcg"] - here["ndcg"]}
    return {"budgets": found}


def run_memory(options: argparse.Namespace) -> dict[str, Any]:
    """Somebody else holds most of the device, from the start, or from when the matrix lies there."""
    import cupy

    train = rows(options.work, "train")
    matrix = 4 * train.X.size
    cases: dict[str, tuple[int, bool]] = {  # bytes that are left, and whether the rest is taken after the matrix
        "nobody else": (0, False),
        "less than the matrix wants": (3 * matrix, False),
        "less than an ensemble wants, once the matrix is there": (3 * matrix // 2, True),
        "less than any ensemble wants, once the matrix is there": (matrix // 4, True),
        "next to nothing": (8 << 20, False),
    }
    found = {}
    for case, (left, later) in cases.items():
        for what in ("experts", "paper"):
            if what == "paper" and later:
                continue
            found[f"{what}, {case}"] = held_to(cupy, options, train, what, left, later)
            say(f"{what}, {case}: {found[f'{what}, {case}']}")
    return {"rows": len(train.y), "matrix": matrix, "cases": found}


def held_to(cupy: Any, options: argparse.Namespace, train: Any, what: str, left: int, later: bool) -> dict[str, Any]:
    """What a fit says and is worth where so many bytes of the device are left."""
    taken: list[int] = []

    def take() -> None:
        cupy.get_default_memory_pool().free_all_blocks()
        free = cupy.cuda.runtime.memGetInfo()[0]
        if left and free > left:
            taken.append(cupy.cuda.runtime.malloc(free - left))

    put = engine.Matrix._put

    def put_and_take(self: Any, arrays: Any) -> None:
        put(self, arrays)
        take()

    common = {"n_jobs": options.threads, "random_state": 0, "device": options.device}
    common |= {"cost_weight": cost_weights(options.work)[-1]}
    own: dict[str, Any] = {"n_weak_learners": 50, "method": Experts(fallbacks=False)}
    if what == "paper":
        own = {"n_weak_learners": 500, "method": Paper(solver="joint", max_nodes=4), "early_stopping": None}
    own["costs"] = prices(options.work, 1.0 if what == "paper" else 0.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            if later:
                engine.Matrix._put = put_and_take
            else:
                take()
            model = CSTCRanker(**common, **own).fit(train.X, train.y, qid=train.qid)
            result = judged(options.work, model.model_)
        except Exception as error:  # its kind and its words are what is measured
            result = {"error": f"{type(error).__name__}: {error}"}
        finally:
            engine.Matrix._put = put
            for held in taken:
                cupy.cuda.runtime.free(held)
    return result | {"warnings": sorted({str(each.message) for each in said})}


def run_folds(options: argparse.Namespace) -> dict[str, Any]:
    """No ensemble stops early, so that both ways grow as many trees; the second time counts."""
    train = rows(options.work, "train")
    n, names = len(train.y), [f"x{j}" for j in range(train.X.shape[1])]
    known = Rows(train.X, (train.y - train.y.mean()) / train.y.std(), np.ones(n), train.qid)
    boosting = Boosting(
        SquaredLoss(),
        CostModel(np.ones(len(names))).resolve(names),
        n_rounds=options.rounds,
        depth=DEPTH,
        learning_rate=0.1,
        early_stopping=None,
        n_jobs=options.threads,
        engine="xgboost",
        device=options.device,
        **experts_method.REGULARISED,
    ).starting_at(known)
    n_folds = folds_for(n)
    folds = folds_of(known, n_folds, 0, by_class=False)
    matrix = engine.Matrix.of(boosting, known)
    found = {}
    for width in WIDTHS:
        columns = np.sort(np.random.default_rng(0).choice(len(names), min(width, len(names)), replace=False))
        ways = {"anew": folds_anew, "zero weights": folds_by_weights}
        for way, grow in ways.items():
            for _ in range(2):
                started = time.perf_counter()
                grown = grow(engine.XGBinned(boosting, known, columns, matrix), folds, n_folds)
                seconds = time.perf_counter() - started
            heard = np.zeros(n)
            for fold, ensemble in enumerate(grown):
                pool, weights = trees_of(ensemble, 1)
                out = folds == fold
                heard[out] = (pool.transform(known.X[out][:, columns]) @ weights)[:, 0] + boosting.constant[0]
            risk = float(np.mean((heard - known.y) ** 2))
            found[f"{len(columns)} columns, {way}"] = {"seconds": seconds, "risk": risk}
            say(f"{len(columns)} columns, {way}: {seconds:.2f} s, risk out of fold {risk:.4f}")
    return {"rows": n, "n_folds": n_folds, "threads": options.threads, "ways": found}


def folds_anew(binned: Any, folds: np.ndarray, n_folds: int) -> list[Any]:
    """As `XGBinned` does it."""
    return [binned.boost_without(folds == fold) for fold in range(n_folds)]


def folds_by_weights(binned: Any, folds: np.ndarray, n_folds: int) -> list[Any]:
    """All rows are binned once; those of the fold weigh nothing."""
    boosting, rows = binned.boosting, binned.rows
    data, grown = binned._bin(None), []
    for fold in range(n_folds):
        out = folds == fold
        data.set_info(weight=np.where(out, 0.0, rows.weights))
        parameters = engine._parameters(boosting, int((~out).sum()))
        ensemble = engine.Ensemble(parameters, data, None, binned._matrix, binned.columns, 1)
        grown.append(ensemble.grow(boosting.n_rounds, None, boosting.progress))
    return grown


RUN = {
    "frontier": run_frontier,
    "cores": run_cores,
    "paper": run_paper,
    "quality": run_quality,
    "memory": run_memory,
    "folds": run_folds,
}


# -- the report ----------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    found = {"date": str(datetime.date.today()), "cores": os.cpu_count(), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    try:
        asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
        found["gpu"] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        found["gpu"] = "none"
    return found


def report(options: argparse.Namespace) -> str:
    found = {part: kept(options.out / f"{part}.json") for part in (*PARTS, *BY_NAME)}
    found = {part: each for part, each in found.items() if each}
    lines = ["# On a GPU: `benchmarks/gpu.py`", ""]
    for part, each in found.items():
        about = ", ".join(f"{name} {value}" for name, value in each["machine"].items())
        lines += [f"## {part}", "", f"{about}; `{each['command']}`", ""]
        if "seconds" in each:
            lines += times_table(each)
        if "points" in each:
            lines += ["| mean cost at test rows | NDCG@5 |", "|---|---|"]
            lines += [f"| {point['cost']:.1f} | {point['ndcg']:.4f} |" for point in each["points"]] + [""]
        if part == "memory":
            lines += memory_table(each)
        if part == "folds":
            lines += [f"{each['rows']:,} rows, {each['n_folds']} ensembles that each lack a fold.", ""]
            lines += ["| rows | seconds | squared error out of fold |", "|---|---|---|"]
            lines += [f"| {way} | {own['seconds']:.2f} | {own['risk']:.4f} |" for way, own in each["ways"].items()]
            lines.append("")
        if part == "quality":
            lines += ["| part of the full cost | device: NDCG@5 (cost) | cores: NDCG@5 (cost) | difference |"]
            lines += ["|---|---|---|---|"]
            for share, own in each["budgets"].items():
                cells = [f"{own[who]['ndcg']:.4f} ({own[who]['cost']:.1f})" for who in ("device", "cores")]
                lines.append(f"| {share} | " + " | ".join(cells) + f" | {own['difference']:+.4f} |")
            lines.append("")
    text = "\n".join(lines)
    write_whole(os.path.realpath(options.out / "gpu.md"), text.encode())
    return text


def memory_table(part: dict[str, Any]) -> list[str]:
    lines = [f"{part['rows']:,} rows, a matrix of {part['matrix'] / engine.GIB:.2f} GiB.", ""]
    for case, each in part["cases"].items():
        ended = each.get("error") or f"NDCG@5 {each['ndcg']:.4f} at {each['cost']:.1f}"
        lines.append(f"- {case}: {ended}" + "".join(f"\n  - warned: {said}" for said in each["warnings"]))
    return [*lines, ""]


def times_table(part: dict[str, Any]) -> list[str]:
    whole = part["seconds"]
    start = part.get("start of the device")
    before = "" if start is None else f" after {start:.1f} s for the first tree of the device"
    lines = [f"{part['rows']:,} rows, {part['threads']} threads: **{whole:.1f} s**{before}.", ""]
    lines += ["| step | seconds | share |", "|---|---|---|"]
    lines += [f"| {step} | {taken:.1f} | {taken / whole:.0%} |" for step, taken in part["steps"].items()]
    inside = ", ".join(f"{step} {taken:.1f} s" for step, taken in part["inside"].items() if taken)
    return [*lines, "", f"Inside, summed over threads: {inside or 'not measured'}.", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the rows")
    parser.add_argument("--out", type=Path, required=True, help="folder for gpu.md and a JSON file of each part")
    parser.add_argument("--part", nargs="+", choices=("data", *PARTS, *BY_NAME), default=PARTS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--queries", type=int, default=19_944, help="training queries, of 24 documents on average")
    parser.add_argument("--rounds", type=int, default=200, help="of the experts")
    parser.add_argument("--weights", type=int, default=8, help="cost weights of the frontier at most")
    parser.add_argument("--learners", type=int, default=1000, help="weak learners of the paper's procedure")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if kept(options.work / "data.json").get("queries") != options.queries:
        run_data(options.work, options)
        keep(options.work / "data.json", kept(options.work / "data.json") | {"queries": options.queries})
    shown = ("device", "queries", "rounds", "weights", "learners", "threads")
    command = "python benchmarks/gpu.py " + " ".join(f"--{name} {getattr(options, name)}" for name in shown)
    for part in options.part:
        if part == "data":
            continue
        say(part)
        found = RUN[part](options)
        keep(options.out / f"{part}.json", {"machine": machine(), "command": f"{command} --part {part}"} | found)
        report(options)
    print(report(options))


if __name__ == "__main__":
    main()
