"""The boosting trick: LightGBM trees of limited depth, copied once into flat arrays, and ``Phi`` made of them.

Paper, section "Non-linear feature space": gradient boosted trees ``h_1 .. h_T`` are trained first, then every
input is mapped to ``phi(x)``, one column for each weak learner.  Two things that the paper leaves open matter
on data of ordinary size, and are options here:

cost-aware learners
    A tree grown without regard to cost uses many features, and no cheap model exists in the span.
    Learners can be grown with LightGBM's per-row ("lazy") prices: a split then pays for its feature at the rows
    that have not bought it yet, in the units of ``risk + cost_weight * cost``.  LightGBM knows features, not
    items, so features that share an item divide its price: together they pay it once.
whole ensembles as columns, cross-fitted
    Trees were fitted on the rows that the node weights are fitted on, so every single tree looks better than it
    is, and nodes that weigh them one by one learn noise.  A column may instead be a whole ensemble, grown at
    one strength of the prices.  There are few of them, and they have a meaning of their own, so they can be
    grown once more without each fold: training rows then see columns that never saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np

from .costs import ResolvedCosts
from .pool import TreePool

__all__ = [
    "Boosting",
    "Phi",
    "WeakLearners",
    "boost",
    "boost_folds",
    "boost_while_prices_fall",
    "cross_fit",
    "flatten_booster",
    "grow",
    "identity_weak_learners",
]

_OBJECTIVES = {"squared": "regression", "logistic": "binary", "softmax": "multiclass"}
MIN_DATA_IN_LEAF = 20
ROW_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Phi:
    """Columns of weak learners at some rows.

    Attributes
    ----------
    values : ndarray of shape (n, n_columns)
    bits : uint64 ndarray of shape (n, n_columns, n_words)
        The items on the branches that a row takes in the trees of a column, packed (`TreePool.position_bits`).
    """

    values: np.ndarray
    bits: np.ndarray


@dataclass(frozen=True, eq=False)
class WeakLearners:
    """Trees, and how they make up the columns of ``Phi``.

    Attributes
    ----------
    pool : TreePool
    column : int ndarray of shape (n_learners,)
        The column that each tree belongs to, ascending; the trees of a column are added up.
    output : int ndarray of shape (n_columns,)
        The margin (class) that each column was grown for; 0 if there is only one.
    ensemble : int ndarray of shape (n_columns,)
        Which of the ensembles a column belongs to, -1 if to none.
    constant : ndarray of shape (n_outputs,)
        Margins that boosting started from.
    """

    pool: TreePool
    column: np.ndarray
    output: np.ndarray
    ensemble: np.ndarray
    constant: np.ndarray

    @property
    def n_columns(self) -> int:
        return len(self.output)

    @property
    def n_ensembles(self) -> int:
        return int(self.ensemble.max(initial=-1)) + 1

    @property
    def trees_per_column(self) -> np.ndarray:
        return np.bincount(self.column, minlength=self.n_columns)

    def anchor(self, ensemble: int) -> np.ndarray:
        """Weights (n_columns, n_outputs) with which one ensemble itself predicts."""
        weights = np.zeros((self.n_columns, len(self.constant)))
        members = np.flatnonzero(self.ensemble == ensemble)
        weights[members, self.output[members]] = 1.0
        return weights

    def transform(self, X: np.ndarray, costs: ResolvedCosts) -> Phi:
        """The columns at the given rows, and what their branches cost there."""
        position_bits = self.pool.position_bits(costs.feature_items)
        values = np.zeros((len(X), self.n_columns))
        bits = np.zeros((len(X), self.n_columns, position_bits.shape[1]), dtype=np.uint64)
        filled, starts = np.unique(self.column, return_index=True)
        if not len(filled):
            return Phi(values, bits)
        for start in range(0, len(X), ROW_BLOCK):
            rows = slice(start, start + ROW_BLOCK)
            leaves = self.pool.leaves(X[rows])
            values[rows, filled] = np.add.reduceat(self.pool.outputs(X[rows], leaves), starts, axis=1)
            bits[rows, filled] = np.bitwise_or.reduceat(position_bits[leaves], starts, axis=1)
        return Phi(values, bits)

    def one_column_per_tree(self) -> WeakLearners:
        """The same trees, each a column of its own."""
        return WeakLearners(
            self.pool,
            np.arange(self.pool.n_learners),
            self.output[self.column],
            self.ensemble[self.column],
            self.constant,
        )

    @staticmethod
    def join(parts: Sequence[WeakLearners]) -> WeakLearners:
        """The columns of several, in order; all started from the same constant."""
        columns = np.cumsum([0] + [part.n_columns for part in parts])
        ensembles = np.cumsum([0] + [part.n_ensembles for part in parts])
        return WeakLearners(
            pool=TreePool.concatenate([part.pool for part in parts]),
            column=np.concatenate([part.column + by for part, by in zip(parts, columns, strict=False)]),
            output=np.concatenate([part.output for part in parts]),
            ensemble=np.concatenate([part.ensemble + by for part, by in zip(parts, ensembles, strict=False)]),
            constant=parts[0].constant,
        )

    def column_items(self, costs: ResolvedCosts) -> np.ndarray:
        """Bool (n_columns, n_items): all items of a column, whatever branches are taken (``F`` transposed)."""
        uses = np.zeros((self.n_columns, costs.n_items), dtype=bool)
        np.logical_or.at(uses, self.column, self.pool.learner_uses(costs.feature_items))
        return uses


def identity_weak_learners(n_features: int, n_outputs: int) -> WeakLearners:
    """``phi(x) = x``, unscaled: the synthetic experiment of the paper."""
    return WeakLearners(
        pool=TreePool.identity(n_features),
        column=np.arange(n_features),
        output=np.zeros(n_features, dtype=int),
        ensemble=np.full(n_features, -1),
        constant=np.zeros(n_outputs),
    )


@dataclass(frozen=True)
class Boosting:
    """How weak learners are grown.

    Attributes
    ----------
    loss_name : {"squared", "logistic", "softmax"}
    constant : ndarray of shape (n_outputs,)
        Margins to start from.
    costs : ResolvedCosts
    strengths : sequence of float
        One ensemble is grown for each: a split pays ``strength * price`` for every row that has not bought its
        feature yet, in units of the mean risk, like ``cost_weight``; 0 is blind to cost.
    n_rounds, depth, learning_rate, early_stopping, categorical, random_state, n_jobs
        As in the estimators.
    feature_fraction, row_fraction, l2 : float
        Each tree sees a random part of the features and of the rows; leaf values are shrunk by `l2`.
    """

    loss_name: str
    constant: np.ndarray
    costs: ResolvedCosts
    strengths: Sequence[float]
    n_rounds: int
    depth: int
    learning_rate: float
    early_stopping: int | None
    categorical: Sequence[int] = ()
    random_state: int = 0
    n_jobs: int | None = None
    feature_fraction: float = 1.0
    row_fraction: float = 1.0
    l2: float = 0.0


def grow(
    boosting: Boosting,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    *,
    validation: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    n_rounds: Sequence[int] | None = None,
    per_tree: bool = False,
) -> WeakLearners:
    """Boost one ensemble for each strength and flatten them.

    Rounds are those given, or stopped early on `validation`.  A column is a whole ensemble (one per output),
    or a single tree with `per_tree`.
    """
    pools = []
    for number, strength in enumerate(boosting.strengths):
        rounds = boosting.n_rounds if n_rounds is None else n_rounds[number]
        pools.append(flatten_booster(boost(boosting, strength, X, y, weights, rounds, validation)))
    learners = _assemble(pools, boosting.constant)
    return learners.one_column_per_tree() if per_tree else learners


def _assemble(pools: list[TreePool], constant: np.ndarray) -> WeakLearners:
    """One column for each ensemble and output; LightGBM lists the trees of a round output by output."""
    n_outputs = len(constant)
    pool = TreePool.concatenate(pools)
    column = np.concatenate([i * n_outputs + np.arange(p.n_learners) % n_outputs for i, p in enumerate(pools)])
    real = np.flatnonzero(pool.feature[pool.roots] >= 0)  # a tree of one leaf is a constant: leave it out
    order = real[np.argsort(column[real], kind="stable")]
    return WeakLearners(
        pool=pool.subset(order),
        column=column[order],
        output=np.arange(len(pools) * n_outputs) % n_outputs,
        ensemble=np.repeat(np.arange(len(pools)), n_outputs),
        constant=constant,
    )


def cross_fit(
    boosting: Boosting, X: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: np.ndarray
) -> tuple[Phi, list[int]]:
    """``Phi`` at the training rows, each row's from ensembles that never saw its fold; and the rounds it takes."""
    grown = [boost_folds(boosting, strength, X, y, weights, folds) for strength in boosting.strengths]
    boosters, rounds = [group for group, _ in grown], [n for _, n in grown]
    parts = [folds == fold for fold in np.unique(folds)]
    pieces = []
    for k, out in enumerate(parts):
        pools = [flatten_booster(group[k], n) for group, n in zip(boosters, rounds, strict=True)]
        pieces.append(_assemble(pools, boosting.constant).transform(X[out], boosting.costs))
    order = np.argsort(np.concatenate([np.flatnonzero(out) for out in parts]))
    values = np.concatenate([piece.values for piece in pieces])[order]
    return Phi(values, np.concatenate([piece.bits for piece in pieces])[order]), rounds


def _rounds_of(booster: lightgbm.Booster) -> int:
    """Rounds up to the best one, or all."""
    return booster.best_iteration if booster.best_iteration > 0 else booster.current_iteration()


def boost_folds(
    boosting: Boosting, strength: float, X: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: np.ndarray
) -> tuple[list[lightgbm.Booster], int]:
    """An ensemble without each fold, stopped early on it; and the number of rounds, one for all.

    That is the mean of what each would stop at: a fold's own would have been chosen on the rows that it then predicts.
    """
    boosters = []
    for fold in np.unique(folds):
        kept, out = folds != fold, folds == fold
        judges = (X[out], y[out], weights[out])
        boosters.append(boost(boosting, strength, X[kept], y[kept], weights[kept], boosting.n_rounds, judges))
    rounds = max(1, round(float(np.mean([_rounds_of(booster) for booster in boosters]))))
    for booster in boosters:
        while booster.current_iteration() < rounds and not booster.update():
            pass  # a fold that was stopped before the mean goes on
    return boosters, rounds


def boost(
    boosting: Boosting,
    strength: float,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    n_rounds: int,
    validation: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
) -> lightgbm.Booster:
    """One ensemble at one strength of the prices."""
    parameters = _parameters(boosting, len(y))
    penalties = _gain_unit(boosting) * strength * boosting.costs.divided_prices
    if penalties.any():
        parameters["cegb_tradeoff"] = 1.0
        parameters["cegb_penalty_feature_lazy"] = list(penalties)
    train = _dataset(boosting, X, y, weights)
    callbacks: list[Any] = []
    valid_sets = []
    if validation is not None and boosting.early_stopping:
        valid_sets = [_dataset(boosting, *validation, reference=train)]
        callbacks = [lightgbm.early_stopping(boosting.early_stopping, verbose=False)]
    # kept in training: LightGBM would cut off all rounds after the best, and `cross_fit` may need them
    return lightgbm.train(
        parameters, train, n_rounds, valid_sets=valid_sets, callbacks=callbacks, keep_training_booster=True
    )


def boost_while_prices_fall(
    boosting: Boosting, X: np.ndarray, y: np.ndarray, weights: np.ndarray, prices: np.ndarray, levels: np.ndarray
) -> lightgbm.Booster:
    """One ensemble whose first split on a feature pays its price for all rows, ``levels[t] * price`` in round t."""
    parameters = _parameters(boosting, len(y))
    parameters["cegb_tradeoff"] = 1.0
    parameters["cegb_penalty_feature_coupled"] = list(_gain_unit(boosting) * len(y) * prices)  # gains are sums
    # LightGBM cannot change parameters of a booster without a single usable feature: let it leave out none that varies
    parameters |= {"feature_pre_filter": False, "min_data_in_bin": 1}
    falling = lightgbm.reset_parameter(cegb_tradeoff=list(map(float, levels)))
    return lightgbm.train(
        parameters, _dataset(boosting, X, y, weights), len(levels), callbacks=[falling], keep_training_booster=True
    )


def _parameters(boosting: Boosting, n_rows: int) -> dict[str, Any]:
    parameters: dict[str, Any] = {
        "objective": _OBJECTIVES[boosting.loss_name],
        "max_depth": boosting.depth,
        "num_leaves": min(2**boosting.depth, max(2, n_rows), 1 << 17),  # LightGBM takes no more than the last
        "learning_rate": boosting.learning_rate,
        # a leaf must hold enough rows to be worth a value, but a small sample must still be splittable
        "min_data_in_leaf": max(1, min(MIN_DATA_IN_LEAF, n_rows // 10)),
        "feature_fraction": boosting.feature_fraction,
        "bagging_fraction": boosting.row_fraction,
        "bagging_freq": int(boosting.row_fraction < 1 and n_rows >= 2 * MIN_DATA_IN_LEAF),
        "lambda_l2": boosting.l2,
        "boost_from_average": False,
        "deterministic": True,
        "force_row_wise": True,
        "seed": boosting.random_state,
        "num_threads": boosting.n_jobs or 0,
        "verbosity": -1,
    }
    if len(boosting.constant) > 1:
        parameters["num_class"] = len(boosting.constant)
    return parameters


def _gain_unit(boosting: Boosting) -> float:
    """LightGBM's gain is the drop of the sum of squares, which is our risk, but twice the drop of the log loss."""
    return 1.0 if boosting.loss_name == "squared" else 2.0


def _dataset(
    boosting: Boosting, X: np.ndarray, y: np.ndarray, weights: np.ndarray, reference: lightgbm.Dataset | None = None
) -> lightgbm.Dataset:
    return lightgbm.Dataset(
        X,
        y,
        weight=weights * (len(weights) / weights.sum()),
        # starting scores instead of boost_from_average keep the constant out of the first tree's leaves
        init_score=_start(boosting.constant, len(y)),
        reference=reference,
        categorical_feature=list(boosting.categorical),
        free_raw_data=True,
    )


def _start(constant: np.ndarray, n: int) -> np.ndarray:
    return np.repeat(constant, n)  # LightGBM wants the scores of one class after the other


def flatten_booster(booster: lightgbm.Booster, n_rounds: int | None = None) -> TreePool:
    """Copy the trees of a booster into a pool: the first rounds, or those up to its best iteration."""
    trees = booster.dump_model(num_iteration=n_rounds or _rounds_of(booster))["tree_info"]
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
