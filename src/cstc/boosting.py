"""Boosted trees: the only place that trains boosters and holds their parameters.

Experts, the paper's weak learners and the systems of `cstc.baselines` are LightGBM ensembles that see the prices in one
of four ways:

blind
    Prices play no part.
lazy prices
    A split pays for its feature at every row that reaches it and has not bought the feature yet, in the units of
    ``risk + cost_weight * cost``.
coupled prices
    The first split of the whole ensemble on a feature pays for it, for all rows.
falling prices
    Coupled, and the level of all prices falls from round to round: the order in which features enter is an order
    of buying.

LightGBM knows features, not items, so features that share an item divide its price: together they pay it once.  Gates
are small regressions of their own.  Every ensemble is copied once into flat arrays (`flatten_booster`); nothing after
`fit` calls a booster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import lightgbm
import numpy as np

from .costs import ResolvedCosts
from .losses import Loss
from .model import TreePool
from .rows import Rows

__all__ = [
    "GATE_ROUNDS",
    "Boosting",
    "GainRegression",
    "boost",
    "boost_folds",
    "boost_while_prices_fall",
    "flatten_booster",
    "rounds_of",
    "trees_of",
]

MIN_DATA_IN_LEAF = 20
MOST_LEAVES = 1 << 17  # LightGBM takes no more
GATE_ROUNDS = 40
#: The same trees, whatever the number of threads.
REPEATABLE = {"deterministic": True, "force_row_wise": True, "verbosity": -1}
#: Gates learn from differences of expected losses, which are smooth: few leaves, strong shrinkage.
GATE = {"objective": "regression", "learning_rate": 0.15, "num_leaves": 8, "lambda_l2": 10.0, "feature_fraction": 0.8}


@dataclass(frozen=True, eq=False)
class Boosting:
    """How trees are boosted.

    Attributes
    ----------
    loss : Loss
    costs : ResolvedCosts
    n_rounds, depth, learning_rate, early_stopping, categorical, random_state, n_jobs
        As in the estimators.
    constant : ndarray of shape (n_outputs,)
        Margins to start from.
    feature_fraction, row_fraction, l2 : float
        Each tree sees a random part of the features and of the rows; leaf values are shrunk by `l2`.
    """

    loss: Loss
    costs: ResolvedCosts
    n_rounds: int
    depth: int
    learning_rate: float
    early_stopping: int | None
    categorical: Sequence[int] = ()
    random_state: int = 0
    n_jobs: int | None = None
    constant: np.ndarray = field(default_factory=lambda: np.zeros(1))
    feature_fraction: float = 1.0
    row_fraction: float = 1.0
    l2: float = 0.0

    def starting_at(self, rows: Rows, **changes: Any) -> Boosting:
        """The same from the best constant of some rows on."""
        return replace(self, constant=self.loss.constant(rows.y, rows.weights), **changes)

    def on(self, columns: np.ndarray) -> Boosting:
        """The same for a matrix of these columns."""
        return replace(self, categorical=_among(self.categorical, columns))

    def parameters(self, n_rows: int) -> dict[str, Any]:
        """For LightGBM."""
        found = REPEATABLE | {
            "objective": self.loss.objective,
            "max_depth": self.depth,
            "num_leaves": min(2**self.depth, max(2, n_rows), MOST_LEAVES),
            "learning_rate": self.learning_rate,
            # a leaf must hold enough rows to be worth a value, but a small sample must still be splittable
            "min_data_in_leaf": max(1, min(MIN_DATA_IN_LEAF, n_rows // 10)),
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.row_fraction,
            "bagging_freq": int(self.row_fraction < 1 and n_rows >= 2 * MIN_DATA_IN_LEAF),
            "lambda_l2": self.l2,
            "boost_from_average": False,
            "seed": self.random_state,
            "num_threads": self.n_jobs or 0,
        }
        return found | ({"num_class": len(self.constant)} if len(self.constant) > 1 else {})

    def dataset(self, rows: Rows, reference: lightgbm.Dataset | None = None) -> lightgbm.Dataset:
        """Rows as LightGBM takes them."""
        return lightgbm.Dataset(
            rows.X,
            rows.y,
            weight=rows.weights * (len(rows) / rows.weights.sum()),
            # starting scores instead of boost_from_average keep the constant out of the first tree's leaves;
            # LightGBM wants the scores of one class after the other
            init_score=np.repeat(self.constant, len(rows)),
            reference=reference,
            categorical_feature=list(self.categorical),
            free_raw_data=True,
        )


def _among(categorical: Sequence[int], columns: np.ndarray) -> list[int]:
    """Where the categorical ones stand among some columns."""
    known = set(categorical)
    return [at for at, column in enumerate(columns) if column in known]


def boost(
    boosting: Boosting,
    rows: Rows,
    *,
    cost_weight: float = 0.0,
    penalty: str = "lazy",
    n_rounds: int | None = None,
    validation: Rows | None = None,
) -> lightgbm.Booster:
    """One ensemble.

    Parameters
    ----------
    cost_weight : float
        A split pays ``cost_weight * price``, in units of the mean risk; 0 is blind to cost.
    penalty : {"lazy", "coupled"}
        When it pays.
    n_rounds : int, optional
        Other than those of `boosting`.
    validation : Rows, optional
        Stop early on these.
    """
    parameters = boosting.parameters(len(rows))
    prices = boosting.loss.gain_unit * cost_weight * boosting.costs.divided_prices
    if prices.any():
        # LightGBM sums the lazy penalty over rows and takes the coupled one as it is
        factor = len(rows) if penalty == "coupled" else 1
        parameters |= {"cegb_tradeoff": 1.0, f"cegb_penalty_feature_{penalty}": list(factor * prices)}
    train = boosting.dataset(rows)
    callbacks: list[Any] = []
    valid_sets = []
    if validation is not None and boosting.early_stopping:
        valid_sets = [boosting.dataset(validation, reference=train)]
        callbacks = [lightgbm.early_stopping(boosting.early_stopping, verbose=False)]
    # kept in training: LightGBM would cut off all rounds after the best, and `boost_folds` may need them
    return lightgbm.train(
        parameters,
        train,
        n_rounds or boosting.n_rounds,
        valid_sets=valid_sets,
        callbacks=callbacks,
        keep_training_booster=True,
    )


def rounds_of(booster: lightgbm.Booster) -> int:
    """Rounds up to the best one, or all."""
    return booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()


def boost_folds(
    boosting: Boosting, rows: Rows, folds: np.ndarray, *, cost_weight: float = 0.0
) -> tuple[list[lightgbm.Booster], int]:
    """An ensemble without each fold, stopped early on it; and the number of rounds, one for all.

    That is the mean of what each would stop at: a fold's own would have been chosen on the rows that it then predicts.
    """
    boosters = []
    for fold in np.unique(folds):
        kept, out = rows.take(folds != fold), rows.take(folds == fold)
        boosters.append(boost(boosting, kept, cost_weight=cost_weight, validation=out))
    rounds = max(1, round(float(np.mean([rounds_of(booster) for booster in boosters]))))
    for booster in boosters:
        while booster.current_iteration() < rounds and not booster.update():
            pass  # a fold that was stopped before the mean goes on
    return boosters, rounds


def boost_while_prices_fall(
    boosting: Boosting, rows: Rows, prices: np.ndarray, levels: np.ndarray
) -> lightgbm.Booster:
    """One ensemble whose first split on a feature pays its price for all rows, ``levels[t] * price`` in round t."""
    parameters = boosting.parameters(len(rows)) | {
        "cegb_tradeoff": 1.0,
        "cegb_penalty_feature_coupled": list(boosting.loss.gain_unit * len(rows) * prices),  # gains are sums
        # LightGBM cannot change parameters of a booster without a single usable feature: let it leave out none
        "feature_pre_filter": False,
        "min_data_in_bin": 1,
    }
    falling = lightgbm.reset_parameter(cegb_tradeoff=list(map(float, levels)))
    return lightgbm.train(
        parameters, boosting.dataset(rows), len(levels), callbacks=[falling], keep_training_booster=True
    )


class GainRegression:
    """Regressions of changing targets on the same columns of the same rows, which are binned once.

    Parameters
    ----------
    boosting : Boosting
        Whose columns of categories, seed and threads are taken.
    rows : Rows
        The rows to learn from, with all columns; targets are given to `fit`.
    columns : ndarray
        The columns to learn from.
    n_rows : int
        Rows of the whole sample, of which `rows` are a part.
    """

    def __init__(self, boosting: Boosting, rows: Rows, columns: np.ndarray, n_rows: int):
        self._parameters = REPEATABLE | GATE | {
            "min_data_in_leaf": max(5, min(100, n_rows // 60)),
            "seed": boosting.random_state,
            "num_threads": boosting.n_jobs or 0,
        }
        self._binned = lightgbm.Dataset(
            rows.X[:, columns],
            np.zeros(len(rows)),
            weight=rows.weights,
            categorical_feature=_among(boosting.categorical, columns),
            params=self._parameters,
            free_raw_data=False,
        ).construct()

    def fit(self, target: np.ndarray) -> lightgbm.Booster:
        # kept in training: LightGBM would write the model out and read it back, which takes longer than growing it
        return lightgbm.train(
            self._parameters, self._binned.set_label(target), GATE_ROUNDS, keep_training_booster=True
        )


def trees_of(booster: lightgbm.Booster, n_outputs: int, n_rounds: int | None = None) -> tuple[TreePool, np.ndarray]:
    """The trees of an ensemble, and weights (n_trees, n_outputs): 1 for the output that a tree adds to.

    Rounds up to the best one, if none are given.
    """
    pool = flatten_booster(booster, n_rounds)
    output = np.arange(pool.n_learners) % n_outputs  # LightGBM lists the trees of a round output by output
    real = np.flatnonzero(pool.feature[pool.roots] >= 0)  # a tree of one leaf says nothing
    weights = np.zeros((len(real), n_outputs))
    weights[np.arange(len(real)), output[real]] = 1.0
    return pool.subset(real), weights


def flatten_booster(booster: lightgbm.Booster, n_rounds: int | None = None) -> TreePool:
    """Copy the trees of a booster into a pool: the first rounds, or those up to its best iteration."""
    trees = booster.dump_model(num_iteration=n_rounds or rounds_of(booster))["tree_info"]
    nodes: dict[str, list] = {name: [] for name in _NODE_FIELDS}
    category_left: list[np.ndarray] = []
    n_category = 0
    roots = []

    def add(node: dict[str, Any]) -> int:
        nonlocal n_category
        here = len(nodes["feature"])
        row = dict(_EMPTY_NODE, left=here, right=here)
        for name, values in nodes.items():
            values.append(row[name])
        if "split_feature" not in node:
            nodes["value"][here] = node["leaf_value"]
            return here
        nodes["feature"][here] = node["split_feature"]
        if node["decision_type"] == "==":  # a set of categories that goes left
            codes = np.array([int(code) for code in str(node["threshold"]).split("||")])
            goes = np.zeros(codes.max() + 1, dtype=bool)
            goes[codes] = True
            nodes["category_start"][here] = n_category
            nodes["category_count"][here] = len(goes)
            category_left.append(goes)
            n_category += len(goes)
        else:
            nodes["threshold"][here] = node["threshold"]
            nodes["zero_is_missing"][here] = node["missing_type"] == "Zero"
            if node["missing_type"] == "None":  # training saw none here: go with the majority
                nodes["missing_left"][here] = _count(node["left_child"]) >= _count(node["right_child"])
            else:
                nodes["missing_left"][here] = node["default_left"]
        nodes["left"][here] = add(node["left_child"])
        nodes["right"][here] = add(node["right_child"])
        return here

    for tree in trees:
        roots.append(add(tree["tree_structure"]))
    return TreePool(
        roots=np.array(roots, dtype=int),
        category_left=np.concatenate([np.zeros(0, dtype=bool), *category_left]),
        **{name: np.array(values, dtype=_NODE_FIELDS[name]) for name, values in nodes.items()},
    )


def _count(node: dict[str, Any]) -> float:
    return node.get("leaf_count", node.get("internal_count", 0))


_NODE_FIELDS = {
    "feature": int,
    "threshold": float,
    "left": int,
    "right": int,
    "missing_left": bool,
    "zero_is_missing": bool,
    "category_start": int,
    "category_count": int,
    "value": float,
    "linear_feature": int,
}
_EMPTY_NODE = {
    "feature": -1,
    "threshold": 0.0,
    "missing_left": False,
    "zero_is_missing": False,
    "category_start": -1,
    "category_count": 0,
    "value": 0.0,
    "linear_feature": -1,
}
