"""The parts of `scale.py`: the rows, and what is fitted to them, each in a process of its own."""

from __future__ import annotations

import argparse
import datetime
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightgbm
import numpy as np
from sklearn.exceptions import ConvergenceWarning

import cstc
import paper_claims
from cstc import CostModel, CSTCRanker, Experts, Frontier, Paper
from cstc.baselines import Cronus, EarlyExit, SingleClassifier
from cstc.baselines.stagewise import first_trees
from cstc.datasets import make_yahoo_like
from cstc.model import TreePool
from cstc.model.file import save
from paper_systems import PAPER_LAMBDAS, Data, Part, baseline, measure, structure
from scale_watch import Watch, keep, kept, say

PARTS_OF_DATA = {"train": 1.0, "validation": 2_994 / 19_944, "test": 6_983 / 19_944}  # queries, as in Yahoo's set 1
DEPTH = 4
CUTS = 24  # lengths of stage-wise regression


# -- data ----------------------------------------------------------------------------------------------------------


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
    keep(work / "data.json", {"prices": prices, "date": str(datetime.date.today())})


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
        self._time(features, "grow", "boosting", always=True)
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


def early_exit_of(work: Path, n_learners: int) -> type[EarlyExit]:
    """Early exit from the weak learners of the paper's procedure, where they are there: it would boost the same."""
    path = work / "paper-trees" / f"{n_learners:04d}-cut.cstc"
    if not path.exists():
        return EarlyExit
    whole = cstc.load(path)

    class OfTheSameTrees(EarlyExit):
        def _share(self, setting: Any) -> TreePool:
            weights = whole.predict_weights[:, 0, 0] / setting.units.scale
            pool = replace(whole.pool, value=whole.pool.value * weights[whole.pool.owners])
            few = setting.validation.X[:1000]
            again = first_trees(setting, pool, n_learners).decision_function(few)
            np.testing.assert_allclose(again, whole.decision_function(few), rtol=0, atol=1e-6)
            return pool

    return OfTheSameTrees


def run_rivals(work: Path, options: argparse.Namespace) -> None:
    watch = Watch("rivals", work)
    settings = {"n_weak_learners": options.learners, "weak_learner_depth": DEPTH, "early_stopping": None}
    parts = [rows(work, name) for name in PARTS_OF_DATA]
    data = Data("yahoo", 0, *parts, prices(work, 1.0), quick=False, options=settings | {"n_jobs": options.threads})
    weights = data.cost_weights(PAPER_LAMBDAS)
    rivals: dict[str, Callable[[], list[tuple[Any, Any]]]] = {
        "single classifier": lambda: baseline(data, SingleClassifier, weights),
        "Cronus": lambda: baseline(data, Cronus, weights),
        "early exit": lambda: baseline(data, early_exit_of(work, options.learners), n_points=CUTS),
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


RUN: dict[str, Callable[[Path, argparse.Namespace], None]] = {
    "data": run_data,
    "lightgbm": run_lightgbm,
    "frontier": run_frontier,
    "paper": run_paper,
    "rivals": run_rivals,
}
