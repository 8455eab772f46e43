"""The data sets and the systems of `paper.py`: what is fitted to what, at which sizes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from cstc import CostModel, CSTCRanker, CSTCRegressor, Frontier, Paper
from cstc.baselines import (
    CEGB,
    L1,
    CostAwareTree,
    Cronus,
    EarlyExit,
    GreedyMiser,
    HierarchicalMixture,
    SingleClassifier,
    SoftCascade,
    SpeedBoost,
    StageWiseRegression,
)
from cstc.datasets import QUADRANT_COSTS, make_quadrants, make_yahoo_like
from cstc.metrics import ndcg

#: The paper's values of lambda, and a finer grid around them, in the units of `Data.cost_weights`.
PAPER_LAMBDAS = (1 / 3, 1 / 2, 1, 2, 3, 4, 5, 6)
FINER_LAMBDAS = (1 / 48, 1 / 24, 1 / 12, 1 / 6, 3 / 4, 3 / 2, 9, 16, 32)
#: For the systems that are not the paper's: the same units, a wider range, and ratios of two, so that ensembles serve
#: several of them.
WIDE_LAMBDAS = tuple(2.0**power / 24 for power in (0, 1, 2, 3, 4, 5, 6, 7, 9, 11))
QUICK_LAMBDAS = (1 / 12, 1, 4, 16)
STATES = {"quadrants": 5, "mslr": 1, "mq2007": 5, "yahoo": 5}
SETS = tuple(STATES)


class Part(NamedTuple):
    """Rows of one part of a set."""

    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray | None = None

    def queries(self, n: int, rng: np.random.Generator) -> Part:
        """At most `n` whole queries."""
        ids = np.unique(self.qid)
        if len(ids) <= n:
            return self
        at = np.isin(self.qid, rng.choice(ids, n, replace=False))
        return Part(self.X[at], self.y[at], self.qid[at])


@dataclass(frozen=True, eq=False)
class Data:
    """Training, validation and test rows of one state of a set."""

    name: str
    state: int
    train: Part
    validation: Part
    test: Part
    costs: CostModel
    quick: bool
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def ranking(self) -> bool:
        return self.train.qid is not None

    @property
    def full_cost(self) -> float:
        return float(sum(self.costs.prices))

    def cost_weights(self, lambdas) -> list[float]:
        """Lambda as risk for one full bill, in variances of the label: what it means is the same on every set."""
        return [value * float(np.var(self.train.y)) / self.full_cost for value in lambdas]

    @property
    def lambdas(self) -> tuple[float, ...]:
        return QUICK_LAMBDAS if self.quick else (*PAPER_LAMBDAS, *FINER_LAMBDAS)

    @property
    def wide_lambdas(self) -> tuple[float, ...]:
        return WIDE_LAMBDAS[1::3] if self.quick else WIDE_LAMBDAS

    @property
    def n_points(self) -> int:
        return 6 if self.quick else 12

    def rows(self) -> dict[str, Any]:
        """Keyword arguments for a fit that is given validation data."""
        given = {"X_val": self.validation.X, "y_val": self.validation.y}
        if self.ranking:
            given |= {"qid": self.train.qid, "qid_val": self.validation.qid}
        return given


def load(name: str, state: int, folder: Path, quick: bool) -> Data:
    """One state of a set: a random state, or a rotation of its folds."""
    return {"quadrants": _quadrants, "mslr": _mslr, "mq2007": _mq2007, "yahoo": _yahoo}[name](state, folder, quick)


def _quadrants(state: int, folder: Path, quick: bool) -> Data:
    n = 400 if quick else 1000
    seeds = np.random.SeedSequence(state).spawn(3)
    parts = [Part(*make_quadrants(n, random_state=np.random.default_rng(seed))) for seed in seeds]
    options = {"n_weak_learners": 20 if quick else 100, "learning_rate": 0.15}
    return Data("quadrants", state, *parts, QUADRANT_COSTS, quick, options)


def _yahoo(state: int, folder: Path, quick: bool) -> Data:
    n = 60 if quick else 300
    X, y, qid, costs = make_yahoo_like(2 * n, random_state=state)
    cuts = [(0, n), (n, 4 * n // 3), (4 * n // 3, 2 * n)]
    parts = [Part(X[at], y[at], qid[at]) for low, high in cuts for at in [np.flatnonzero((qid > low) & (qid <= high))]]
    return _ranking("yahoo", state, parts, costs.prices, quick)


def _mslr(state: int, folder: Path, quick: bool) -> Data:
    with np.load(folder / "mslr_sample" / "mslr_sample.npz", allow_pickle=False) as data:
        parts = [
            Part(data[f"X_{part}"].astype(float), data[f"y_{part}"], data[f"qid_{part}"])
            for part in ("train", "vali", "test")
        ]
        return _ranking("mslr", state, parts, data["costs"], quick)


def _mq2007(state: int, folder: Path, quick: bool) -> Data:
    """Rotation `state` of the five parts: three to train on, one to choose, one to test."""
    with np.load(folder / "mq2007_partial" / "mq2007_partial.npz", allow_pickle=False) as data:
        number = np.char.lstrip(data["part"].astype(str), "S").astype(int) - 1
        place = (number - state) % 5
        rows = [np.flatnonzero(np.isin(place, which)) for which in ((0, 1, 2), (3,), (4,))]
        parts = [Part(data["X"][at].astype(float), data["y"][at], data["qid"][at]) for at in rows]
        return _ranking("mq2007", state, parts, data["costs_derived"], quick)


def _ranking(name: str, state: int, parts: list[Part], prices, quick: bool) -> Data:
    if quick:
        rng = np.random.default_rng(state)
        parts = [part.queries(n, rng) for part, n in zip(parts, (40, 20, 40), strict=True)]
    options = {"n_weak_learners": 20 if quick else 100, "learning_rate": 0.15}
    costs = CostModel([float(price) for price in prices], evaluation=1.0)
    return Data(name, state, *parts, costs, quick, options)


# -- systems -------------------------------------------------------------------------------------------------------


def systems(data: Data) -> dict[str, Any]:
    """For each system that can be fitted to the data, a function that gives its models with their parameter."""
    wide = [*data.cost_weights(data.wide_lambdas), 0.0, 1.0]  # from the full model to the free one
    found: dict[str, Any] = {
        "CSTC": lambda: cstc(data),
        "CSTC without fine-tuning": lambda: cstc(data, fine_tuning=False),
        "CSTC unpruned": lambda: cstc(data, PAPER_LAMBDAS, pruning=False, fine_tuning=False),
        "default method": lambda: default(data),
        "stage-wise regression": lambda: baseline(data, StageWiseRegression),
        "single classifier": lambda: baseline(data, SingleClassifier, data.cost_weights(data.lambdas)),
        "l1": lambda: baseline(data, L1),
        "early exit": lambda: baseline(data, EarlyExit, n_points=25),
        "Cronus": lambda: baseline(data, Cronus, data.cost_weights(data.lambdas)),
        # most of its learners only make more of what is bought: it is given twice as many
        "SpeedBoost": lambda: baseline(data, SpeedBoost, n_weak_learners=2 * data.options["n_weak_learners"]),
        "soft cascade": lambda: baseline(data, SoftCascade),
        "mixture of experts": lambda: baseline(data, HierarchicalMixture),
        "cost-aware tree": lambda: baseline(data, CostAwareTree),
        "Greedy Miser": lambda: baseline(data, GreedyMiser, wide),
        "CEGB lazy": lambda: baseline(data, CEGB, wide, penalty="lazy"),
        "CEGB coupled": lambda: baseline(data, CEGB, wide, penalty="coupled"),
    }
    if not data.ranking:
        del found["early exit"]  # it compares the documents of a query
    return found


def _common(data: Data) -> dict[str, Any]:
    boosting = data.options if data.ranking else {}  # changed without trees, they would be an error
    return {"costs": data.costs, "random_state": data.state, "n_jobs": 1} | boosting


def _inputs(data: Data) -> dict[str, Any]:
    """Plain inputs for quadrants, boosted trees for documents."""
    return {} if data.ranking else {"weak_learners": "identity"}


def cstc(data: Data, lambdas=None, *, pruning: bool = True, fine_tuning: bool = True) -> list[tuple[float, Any]]:
    """The paper's method: its loss, pruning and fine-tuning; all nodes solved together.

    The tree is full before it is pruned.  Cut to 10 nodes beforehand it has paths of different length, and since every
    node on a path adds its risk to the loss, all rows would be sent the shorter way.
    """
    kind = CSTCRanker if data.ranking else CSTCRegressor
    depth = 4 if data.ranking else 3
    method = Paper(depth=depth, solver="joint", max_nodes=None, max_iter=500, pruning=pruning, fine_tuning=fine_tuning)
    estimator = kind(method=method, **_common(data), **_inputs(data))
    # the smallest of the paper's values as it stands, too: risk for one unit of cost
    weights = [*data.cost_weights(lambdas or data.lambdas), PAPER_LAMBDAS[0]]
    return _frontier(data, Frontier(estimator, cost_weights=weights))


def default(data: Data) -> list[tuple[float, Any]]:
    kind = CSTCRanker if data.ranking else CSTCRegressor
    if data.ranking:  # a frontier finds its own cost weights; its experts are grown once for all of them
        return _frontier(data, Frontier(kind(**_common(data)), n_weights=6 if data.quick else 24))
    weights = [*data.cost_weights(data.wide_lambdas), 0.0]
    return _frontier(data, Frontier(kind(**_common(data), **_inputs(data)), cost_weights=weights))


def _frontier(data: Data, frontier: Frontier) -> list[tuple[float, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        frontier.fit(data.train.X, data.train.y, **data.rows())
    weights = frontier.tried_.column("cost_weight").tolist()
    return list(zip(weights, frontier.tried_models_, strict=True))


def baseline(data: Data, kind, values=None, n_points: int | None = None, **options: Any) -> list[tuple[Any, Any]]:
    common = _common(data) | data.options
    if not data.ranking and kind in (SingleClassifier, L1, Cronus, HierarchicalMixture):
        common = _common(data) | _inputs(data)
    known = kind().get_params()  # one tree boosts nothing, and SpeedBoost has one thread
    settings = {name: value for name, value in common.items() if name in known} | options
    settings["task"] = "ranking" if data.ranking else "regression"
    n_points = data.n_points if n_points is None or data.quick else n_points
    frontier = kind(**settings).frontier(data.train.X, data.train.y, values=values, n_points=n_points, **data.rows())
    parameter = next(iter(frontier.tried_[0]))
    return list(zip([row[parameter] for row in frontier.tried_], frontier.tried_models_, strict=True))


# -- measuring -----------------------------------------------------------------------------------------------------


def measure(model: Any, data: Data) -> dict[str, Any]:
    """Quality, squared error, mean cost in both countings and trees evaluated, at validation and test rows."""
    found: dict[str, Any] = {"nodes": model.model_.shape.n_nodes}
    for name, part in (("validation", data.validation), ("test", data.test)):
        scores, costs = _exits(model, part, data) if isinstance(model, EarlyExit) else _path(model.model_, part.X)
        error = float(np.mean((scores - part.y) ** 2))
        quality = ndcg(part.y, scores, part.qid) if data.ranking else 1.0 - error / float(np.var(part.y))
        found[name] = {"quality": float(quality), "mse": error} | {key: float(np.mean(costs[key])) for key in costs}
    return found


def _path(fitted: Any, X: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    margins, branch = fitted.decision_and_cost(X, "branch")
    terminals = fitted.apply(X)  # the paper's counting and the trees evaluated depend on the path only
    trees = fitted.terminal_learners.sum(axis=1)
    return margins[:, 0], {"branch": branch, "learner": fitted.terminal_costs()[terminals], "trees": trees[terminals]}


def _exits(model: EarlyExit, part: Part, data: Data) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    evaluations = model.with_costs(CostModel([0.0] * part.X.shape[1], evaluation=1.0))
    costs = {counting: model.predict_cost(part.X, counting, qid=part.qid) for counting in ("branch", "learner")}
    return model.predict(part.X, qid=part.qid), costs | {"trees": evaluations.predict_cost(part.X, qid=part.qid)}


def structure(model: Any, data: Data) -> dict[str, Any]:
    """What the claims about the tree itself need: labels at nodes and terminals, features by node, prices."""
    from cstc.plotting._features import gate_features, predictive_features

    fitted, rows = model.model_, data.test
    shape = fitted.shape
    terminals = fitted.apply(rows.X)
    visits = shape.paths[terminals]

    def mean_label(at: np.ndarray) -> float | None:
        return float(rows.y[at].mean()) if at.any() else None

    return {
        "upper": shape.upper.tolist(),
        "lower": shape.lower.tolist(),
        "depths": shape.depths.tolist(),
        "node_labels": [mean_label(visits[:, node]) for node in range(shape.n_nodes)],
        "terminal_labels": [mean_label(terminals == terminal) for terminal in range(shape.n_terminals)],
        "terminal_parents": shape.terminal_parents.tolist(),
        "predictive_features": [np.flatnonzero(row).tolist() for row in predictive_features(fitted)],
        "gate_features": [np.flatnonzero(row).tolist() for row in gate_features(fitted)],
        "prices": list(data.costs.prices),
    }
