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
The table and the JSON beside it are written again after every step.

lightgbm    200 rounds of depth 4 from the same arrays: the unit of time.
frontier    `Frontier` of the default method, 200 rounds of depth 4, without fallbacks.
paper       the paper's procedure: 1,000 weak learners, at most 10 nodes, its eight cost weights, each from the
            solution of the next larger one.  Stage-wise regression is its weak learners, cut short.
rivals      the paper's other systems on as many weak learners, for its claims.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
import sklearn
from sklearn.exceptions import ConvergenceWarning

import cstc
import paper_claims
from cstc import CostModel, CSTCRanker, Experts, Frontier, Paper
from cstc.baselines import Cronus, EarlyExit, SingleClassifier
from cstc.datasets import make_yahoo_like
from cstc.model.file import save, write_whole
from paper_systems import PAPER_LAMBDAS, Data, Part, baseline, measure, structure

QUERIES = 19_944  # training queries of Yahoo's set 1
PARTS_OF_DATA = {"train": 1.0, "validation": 2_994 / QUERIES, "test": 6_983 / QUERIES}  # as in Yahoo's
ROUNDS, DEPTH = 200, 4
LEARNERS = 1000
CUTS = 24  # lengths of stage-wise regression
EVERY = 30.0  # seconds between two lines
SAMPLED = 0.2  # and between two looks at the memory
GIB = 2.0**30


# -- what is kept --------------------------------------------------------------------------------------------------


def keep(path: Path, document: Any) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(os.path.realpath(path), (json.dumps(document, indent=1) + "\n").encode())


def kept(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def say(what: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S} {what}", flush=True)


def resident() -> int:
    """Bytes of this process that lie in memory."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:  # not on Linux: the most so far
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return pages * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Time and memory of a part, told and kept while it runs.

    A part that was killed has several runs, and what one of them had not finished is done again: the sum of their times
    is more than one run would have taken.
    """

    def __init__(self, name: str, work: Path):
        self.name, self.path = name, work / f"{name}.json"
        self.found = kept(self.path)
        self.found.setdefault("runs", []).append({})
        self._doing, self._over = "", threading.Event()

    def doing(self, what: str) -> None:
        self._doing = what
        say(f"{self.name}: {what}")

    def keep(self, **more: Any) -> None:
        self.found |= more
        keep(self.path, self.found)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Time, and memory beyond what lies there before."""
        run, before, most = self.found["runs"][-1], resident(), resident()
        started, cpu = time.perf_counter(), time.process_time()

        def look() -> None:
            run["seconds"], run["cpu"] = time.perf_counter() - started, time.process_time() - cpu
            run["input_gib"], run["beyond_gib"] = before / GIB, (most - before) / GIB
            run["maxrss_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB

        def sample() -> None:
            nonlocal most
            told = time.perf_counter()
            while not self._over.wait(SAMPLED):
                most = max(most, resident())
                if time.perf_counter() - told >= EVERY:
                    told = time.perf_counter()
                    look()
                    self.keep()
                    here = (resident() - before) / GIB
                    say(
                        f"{self.name}: {self._doing}, {run['seconds']:.0f} s, {here:.2f} GiB beyond the input, "
                        f"{run['beyond_gib']:.2f} at most"
                    )

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            look()
            self.keep()
        run["finished"] = True
        self.keep()


# -- data ----------------------------------------------------------------------------------------------------------


def is_drawn(work: Path, n_queries: int) -> bool:
    """Whether the rows are there; a folder of other rows is refused."""
    about = kept(work / "data.json")
    if about and about["queries"] != n_queries:
        raise SystemExit(f"{work} holds {about['queries']:,} queries; give another folder, or delete this one")
    return bool(about)


def run_data(work: Path, options: argparse.Namespace) -> None:
    """The rows, as files; the description is written last."""
    n_queries = options.queries
    sizes = {name: max(8, round(share * n_queries)) for name, share in PARTS_OF_DATA.items()}
    say(f"drawing {sum(sizes.values()):,} queries")
    data = make_yahoo_like(sum(sizes.values()), random_state=0)
    work.mkdir(parents=True, exist_ok=True)
    last = 0
    for name, n in sizes.items():
        at = slice(*np.searchsorted(data.qid, [last, last + n], side="right"))
        for part, values in (("X", data.X[at].astype(np.float32)), ("y", data.y[at]), ("qid", data.qid[at])):
            np.save(work / f"{part}-{name}.npy", values)
        last += n
    prices = [float(price) for price in data.costs.prices]
    keep(work / "data.json", {"queries": n_queries, "prices": prices, "date": str(datetime.date.today())})


def rows(work: Path, name: str) -> Part:
    return Part(*(np.load(work / f"{part}-{name}.npy") for part in ("X", "y", "qid")))


def prices(work: Path, evaluation: float) -> CostModel:
    return CostModel(kept(work / "data.json")["prices"], evaluation=evaluation)


def judged(work: Path) -> Data:
    """What models are measured on; the bill is the paper's, in which evaluating a tree costs 1."""
    nothing = Part(np.zeros((0, 0)), np.zeros(0), np.zeros(0))
    return Data("yahoo", 0, nothing, rows(work, "validation"), rows(work, "test"), prices(work, 1.0), quick=False)


def cost_weights(work: Path) -> list[float]:
    """The paper's, from the largest to the smallest: risk for one full bill, in variances of the label."""
    y = np.load(work / "y-train.npy")
    train = Part(np.zeros((0, 0)), y, y)
    data = Data("yahoo", 0, train, train, train, prices(work, 1.0), quick=False)
    return sorted(data.cost_weights(PAPER_LAMBDAS), reverse=True)


def measured_points(watch: Watch, name: str, models: list[tuple[Any, Any]], data: Data, *, trees: bool = False) -> None:
    """Quality and cost of fitted trees at validation and test rows; those that are known are not measured again."""
    points = watch.found.setdefault("points", {}).setdefault(name, [])
    for parameter, fitted in models[len(points) :]:
        watch.doing(f"measuring {name}, model {len(points) + 1} of {len(models)}")
        model = SimpleNamespace(model_=fitted.with_costs(data.costs))
        points.append({"parameter": parameter} | measure(model, data))
        if trees:
            points[-1]["structure"] = structure(model, data)
        watch.keep()


# -- parts ---------------------------------------------------------------------------------------------------------


def run_lightgbm(work: Path, options: argparse.Namespace) -> None:
    watch, train = Watch("lightgbm", work), rows(work, "train")
    del watch.found["runs"][:-1]  # it cannot go on where it was: what was killed does not count
    watch.doing(f"{options.rounds} rounds on {len(train.y):,} rows")
    parameters = {"objective": "regression", "max_depth": DEPTH, "num_leaves": 2**DEPTH, "verbosity": -1}
    with watch.measured():
        data = lightgbm.Dataset(train.X, train.y)
        booster = lightgbm.train(parameters | {"num_threads": options.threads}, data, options.rounds)
    fitted = cstc.from_lightgbm(booster, prices(work, 1.0))
    measured_points(watch, "LightGBM", [(options.rounds, fitted)], judged(work))
    watch.keep(done=True)


def run_frontier(work: Path, options: argparse.Namespace) -> None:
    watch, train, validation = Watch("frontier", work), rows(work, "train"), rows(work, "validation")
    estimator = CSTCRanker(
        costs=prices(work, 0.0),
        method=Experts(fallbacks=False),
        n_weak_learners=options.rounds,
        weak_learner_depth=DEPTH,
        n_jobs=options.threads,
        random_state=0,
    )
    frontier = Frontier(estimator, n_weights=options.weights, checkpoint=work / "frontier", verbose=2)
    watch.doing(f"frontier of {len(train.y):,} rows")
    given = {"X_val": validation.X, "y_val": validation.y, "qid_val": validation.qid}
    with watch.measured():
        frontier.fit(train.X, train.y, qid=train.qid, **given)
    watch.keep(n_ensembles=frontier.n_ensembles_)
    found = zip(frontier.tried_.column("cost_weight").tolist(), frontier.tried_models_, strict=True)
    measured_points(watch, "default method", [(weight, model.model_) for weight, model in found], judged(work))
    watch.keep(done=True)


class Steps:
    """What the paper's procedure does, step by step: its times, and the trees before pruning and before fine-tuning."""

    def __init__(self, watch: Watch, folder: Path):
        from cstc.paper import features, method

        self._watch, self._folder = watch, folder
        self._times = watch.found.setdefault("steps", {})
        self._weight, self._columns = "", None
        self._time(features, "boost", "boosting", always=True)
        self._time(features, "phi_and_codes", "leaves", always=True)
        self._time(method, "initialise", "start")
        self._time(method, "solve", "solving", told=lambda found: {"steps": len(found.loss_history) - 1})
        self._time(method, "prune", "pruning", trees="unpruned", after="without fine-tuning")
        self._time(method, "fine_tune", "fine-tuning")
        self._time(method.Paper, "train", "all")
        self._remember_columns(method)

    def _time(
        self,
        module: Any,
        name: str,
        step: str,
        *,
        always: bool = False,
        told: Callable[[Any], dict[str, Any]] = lambda found: {},
        trees: str = "",
        after: str = "",
    ) -> None:
        """Take the time of a function, for all weights together or for each of them."""
        function = getattr(module, name)

        def timed(*given: Any, **options: Any) -> Any:
            if step == "all":
                self._weight = repr(float(given[1].cost_weight))
            else:
                self._watch.doing(step if always else f"{step}, cost weight {float(self._weight):.3g}")
            if trees:
                self._save(given[0], trees)
            started, cpu = time.perf_counter(), time.process_time()
            found = function(*given, **options)
            taken = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu} | told(found)
            if after:
                self._save(found, after)
            times = self._times.setdefault("" if always else self._weight, {})
            if always and step in times and self._columns is None:  # rows that teach, and rows that judge
                taken = {key: times[step][key] + value for key, value in taken.items()}
            times[step] = taken
            self._watch.keep()
            return found

        setattr(module, name, timed)

    def _remember_columns(self, method: Any) -> None:
        learn = method.learn_columns

        def learned(*given: Any) -> Any:
            if self._columns is None:
                self._times.pop("", None)  # of a run that was killed
            self._columns = learn(*given)
            return self._columns

        method.learn_columns = learned

    def _save(self, tree: Any, what: str) -> None:
        assert self._columns is not None
        self._folder.mkdir(parents=True, exist_ok=True)
        save(self._columns.to_model(tree), self._folder / f"{self._weight}-{what}.cstc")

    def save_cuts(self) -> None:
        """Stage-wise regression: the weak learners, cut short."""
        from cstc.paper.hard_tree import HardTree

        columns = self._columns
        if columns is None:  # all models came from the checkpoint, and so did these
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        for n in np.unique(np.geomspace(1, columns.n_columns, CUTS).round().astype(int)).tolist():
            weights = (np.arange(columns.n_columns) < n)[:, None].astype(float)
            tree = HardTree.single(weights, columns.constant + columns.offset @ weights)
            save(columns.to_model(tree), self._folder / f"{n:04d}-cut.cstc")


def run_paper(work: Path, options: argparse.Namespace) -> None:
    watch, folder = Watch("paper", work), work / "paper-trees"
    steps = Steps(watch, folder)
    train, validation = rows(work, "train"), rows(work, "validation")
    estimator = CSTCRanker(
        costs=prices(work, 1.0),
        method=Paper(solver=options.solver),
        n_weak_learners=options.learners,
        weak_learner_depth=DEPTH,
        early_stopping=None,
        n_jobs=options.threads,
        random_state=0,
    )
    weights = cost_weights(work)
    frontier = Frontier(estimator, cost_weights=weights, checkpoint=work / "paper", verbose=2)
    given = {"X_val": validation.X, "y_val": validation.y, "qid_val": validation.qid}
    watch.doing(f"the paper's procedure on {len(train.y):,} rows")
    with watch.measured(), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        frontier.fit(train.X, train.y, qid=train.qid, **given)
        steps.save_cuts()
    data = judged(work)
    found = dict(zip(frontier.tried_.column("cost_weight"), frontier.tried_models_, strict=True))
    measured_points(watch, "CSTC", [(weight, found[weight].model_) for weight in weights], data)
    for what, system in (("without fine-tuning", "CSTC without fine-tuning"), ("unpruned", "CSTC unpruned")):
        models = [(weight, cstc.load(folder / f"{weight!r}-{what}.cstc")) for weight in weights]
        measured_points(watch, system, models, data, trees=what == "unpruned")
    cuts = [(int(path.name[:4]), cstc.load(path)) for path in sorted(folder.glob("*-cut.cstc"))]
    measured_points(watch, paper_claims.FULL, cuts, data)
    watch.keep(done=True)


def run_rivals(work: Path, options: argparse.Namespace) -> None:
    watch = Watch("rivals", work)
    settings = {"n_weak_learners": options.learners, "weak_learner_depth": DEPTH, "early_stopping": None}
    parts = [rows(work, name) for name in PARTS_OF_DATA]
    data = Data("yahoo", 0, *parts, prices(work, 1.0), quick=False, options=settings | {"n_jobs": options.threads})
    weights = data.cost_weights(PAPER_LAMBDAS)
    rivals: dict[str, Callable[[], list[tuple[Any, Any]]]] = {
        "single classifier": lambda: baseline(data, SingleClassifier, weights),
        "Cronus": lambda: baseline(data, Cronus, weights),
        "early exit": lambda: baseline(data, EarlyExit, n_points=CUTS),
    }
    with watch.measured():
        for system, fit in rivals.items():
            if system in watch.found.get("points", {}):
                continue
            watch.doing(system)
            started = time.perf_counter()
            models = fit()
            seconds = time.perf_counter() - started
            points = [{"parameter": parameter} | measure(model, data) for parameter, model in models]
            watch.found.setdefault("points", {})[system] = points
            watch.found.setdefault("seconds", {})[system] = seconds
            watch.keep()
    watch.keep(done=True)


PARTS: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "data": run_data,
    "lightgbm": run_lightgbm,
    "frontier": run_frontier,
    "paper": run_paper,
    "rivals": run_rivals,
}


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


def report(work: Path, options: argparse.Namespace) -> str:
    """All that is there, as a table and as JSON."""
    if not (work / "data.json").exists():
        raise SystemExit(f"{work} has nothing to report; run a part first")
    found = {name: kept(work / f"{name}.json") for name in PARTS}
    found = {name: part for name, part in found.items() if any("seconds" in run for run in part.get("runs", []))}
    about = kept(work / "data.json")
    shape = np.load(work / "X-train.npy", mmap_mode="r").shape
    lines = [
        f"# {shape[0]:,} x {shape[1]}: `make_yahoo_like`, {about['queries']:,} training queries",
        "",
        f"{about['date']}, {platform.processor() or platform.machine()}, {os.cpu_count()} cores, {options.threads} "
        f"threads, Python {platform.python_version()}, cstc {cstc.__version__}, numpy {np.__version__}, "
        f"LightGBM {lightgbm.__version__}, scikit-learn {sklearn.__version__}, compiled walk: "
        f"{cstc.model.native.available()}.",
        "",
        f"`python benchmarks/scale.py --work FOLDER --queries {about['queries']}`. Rows in single precision. Time is "
        f"that of all runs of a part; 1 is LightGBM with {options.rounds} rounds of depth {DEPTH}. Memory in GiB: "
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
    keep(out.with_suffix(".json"), {"rows": shape[0], "queries": about["queries"]} | found)
    return text


# -- processes -----------------------------------------------------------------------------------------------------


def in_its_own_process(part: str, options: argparse.Namespace) -> None:
    """So that its peak memory is its own; threads are pinned before anything is imported."""
    threads = str(options.threads)
    pinned = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    command = [sys.executable, __file__, "--here", "--part", part, "--work", str(options.work)]
    for name in ("queries", "threads", "rounds", "weights", "learners", "solver"):
        command += [f"--{name}", str(getattr(options, name))]
    if subprocess.run(command, env=os.environ | pinned).returncode:
        raise SystemExit(f"{part} failed; the same command goes on where it was")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for rows, checkpoints and finished parts")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS)[1:])
    parser.add_argument("--queries", type=int, default=QUERIES, help="training queries, of 24 documents on average")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of LightGBM and of the experts")
    parser.add_argument("--weights", type=int, default=24, help="cost weights of the frontier at most")
    parser.add_argument("--learners", type=int, default=LEARNERS, help="weak learners of the paper's procedure")
    parser.add_argument("--solver", choices=("joint", "cyclic"), default="joint", help="of the paper's procedure")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="the table; JSON goes beside it (benchmarks/results/scale-DATE.md)")
    parser.add_argument("--report", action="store_true", help="fit nothing; print what is there")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        return PARTS[options.part[0]](options.work, options)
    if not options.report:
        if not is_drawn(options.work, options.queries):
            in_its_own_process("data", options)
        for part in options.part:
            if part != "data" and not kept(options.work / f"{part}.json").get("done"):
                in_its_own_process(part, options)
                report(options.work, options)
    print(report(options.work, options))


if __name__ == "__main__":
    main()
