"""The boosting trick: LightGBM trees of limited depth, copied once into flat arrays.

Paper, section "Non-linear feature space": gradient boosted trees ``h_1 .. h_T`` are trained first, then
every input is mapped to ``phi(x) = [h_1(x), .., h_T(x)]``.  Two things that the paper leaves open are
options here, because on data of ordinary size they matter:

cost-aware learners
    A tree grown without regard to cost uses many features, and no cheap model exists in the span.
    Learners can be grown with LightGBM's per-row ("lazy") prices: a split then pays for the items that
    its rows have not bought yet, in exactly the units of ``risk + cost_weight * cost``.
cross-fitted outputs
    Trees are fitted on the rows that the node weights are fitted on, so their in-sample outputs look
    better than they are.  With folds, the leaf values that a training row sees are estimated without
    the row's own fold, while the model keeps the values of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
from scipy.special import expit, softmax

from .costs import ResolvedCosts
from .pool import TreePool

__all__ = ["WeakLearners", "flatten_booster", "grow_weak_learners", "identity_weak_learners"]

_OBJECTIVES = {"squared": "regression", "logistic": "binary", "softmax": "multiclass"}
MIN_DATA_IN_LEAF = 20


@dataclass(frozen=True, eq=False)
class WeakLearners:
    """Weak learners, and the boosted ensembles that they came from.

    Attributes
    ----------
    pool : TreePool
    output : int ndarray of shape (n_learners,)
        The margin (class) that each learner was grown for; 0 if there is only one.
    ensemble : int ndarray of shape (n_learners,)
        Which of the ensembles each learner belongs to.
    round : int ndarray of shape (n_learners,)
        The boosting round that each learner was grown in.
    shrinkage : float
        The learning rate that is contained in the leaf values.
    constant : ndarray of shape (n_outputs,)
        Margins that boosting started from.
    """

    pool: TreePool
    output: np.ndarray
    ensemble: np.ndarray
    round: np.ndarray
    shrinkage: float
    constant: np.ndarray

    @property
    def n_ensembles(self) -> int:
        return int(self.ensemble.max(initial=-1)) + 1

    def anchor(self, ensemble: int) -> np.ndarray:
        """Weights (n_learners, n_outputs) with which one ensemble itself predicts."""
        weights = np.zeros((self.pool.n_learners, len(self.constant)))
        members = np.flatnonzero(self.ensemble == ensemble)
        weights[members, self.output[members]] = 1.0
        return weights

    def cross_fitted(
        self,
        leaves: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray,
        folds: np.ndarray,
        loss_name: str,
    ) -> np.ndarray:
        """``Phi`` on the training rows with leaf values estimated without each row's own fold.

        Boosting is replayed on the fixed tree structures: every fold keeps its own scores and its own
        leaf values (one Newton step each, as LightGBM takes them).
        """
        phi = np.empty(leaves.shape)
        for fold in np.unique(folds):
            inside = folds == fold
            outside_weights = np.where(inside, 0.0, weights)
            for ensemble in range(self.n_ensembles):
                members = np.flatnonzero(self.ensemble == ensemble)
                scores = np.tile(self.constant, (len(y), 1))
                steps = np.zeros_like(scores)
                round_of_steps = 0
                for t in map(int, members):
                    if self.round[t] != round_of_steps:  # the trees of one round all start from the same scores
                        scores += steps
                        steps[:] = 0.0
                        round_of_steps = self.round[t]
                    values = self._refitted_leaves(t, leaves[:, t], scores, y, outside_weights, loss_name)
                    phi[inside, t] = values[inside]
                    steps[:, self.output[t]] += values
        return phi

    def _refitted_leaves(
        self, t: int, leaves: np.ndarray, scores: np.ndarray, y: np.ndarray, weights: np.ndarray, loss_name: str
    ) -> np.ndarray:
        """Output of learner `t` at every row, its leaf values estimated from the weighted rows."""
        gradient, curvature = _newton_terms(scores, y, self.output[t], loss_name)
        first = leaves.min()
        local = leaves - first
        g = np.bincount(local, weights * gradient)
        h = np.bincount(local, weights * curvature)
        # a leaf that no weighted row reaches keeps its value: there is nothing better
        own = self.pool.value[first : first + len(g)]
        return np.where(h > 1e-12, -self.shrinkage * g / np.maximum(h, 1e-12), own)[local]


def identity_weak_learners(n_features: int, n_outputs: int) -> WeakLearners:
    """``phi(x) = x``, unscaled: the synthetic experiment of the paper."""
    return WeakLearners(
        pool=TreePool.identity(n_features),
        output=np.zeros(n_features, dtype=int),
        ensemble=np.full(n_features, -1),
        round=np.arange(n_features),
        shrinkage=1.0,
        constant=np.zeros(n_outputs),
    )


def grow_weak_learners(
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    *,
    loss_name: str,
    constant: np.ndarray,
    costs: ResolvedCosts,
    cost_strengths: Sequence[float],
    n_learners: int,
    depth: int,
    learning_rate: float,
    categorical: Sequence[int] = (),
    validation: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    early_stopping: int | None = None,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> WeakLearners:
    """Boost one ensemble for each strength in `cost_strengths` (0: without regard to cost) and flatten them.

    A strength of ``s`` makes a split pay ``s * price`` per row for the items that the row has not bought
    yet; it is in the units of the mean risk, like ``cost_weight``.
    """
    pools, outputs, ensembles, rounds = [], [], [], []
    for number, strength in enumerate(cost_strengths):
        booster = _boost(
            X,
            y,
            weights,
            loss_name=loss_name,
            constant=constant,
            penalties=strength * costs.feature_prices,
            n_learners=n_learners,
            depth=depth,
            learning_rate=learning_rate,
            categorical=categorical,
            validation=validation,
            early_stopping=early_stopping,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        pool = flatten_booster(booster)
        real = np.flatnonzero(pool.feature[pool.roots] >= 0)  # a tree of one leaf is a constant: leave it out
        pools.append(pool.subset(real))
        outputs.append(real % len(constant))
        rounds.append(real // len(constant))
        ensembles.append(np.full(len(real), number))
    return WeakLearners(
        pool=TreePool.concatenate(pools),
        output=np.concatenate(outputs),
        ensemble=np.concatenate(ensembles),
        round=np.concatenate(rounds),
        shrinkage=learning_rate,
        constant=constant,
    )


def _boost(
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    *,
    loss_name: str,
    constant: np.ndarray,
    penalties: np.ndarray,
    n_learners: int,
    depth: int,
    learning_rate: float,
    categorical: Sequence[int],
    validation: tuple[np.ndarray, np.ndarray, np.ndarray] | None,
    early_stopping: int | None,
    random_state: int,
    n_jobs: int | None,
) -> lightgbm.Booster:
    n_outputs = len(constant)
    parameters: dict[str, Any] = {
        "objective": _OBJECTIVES[loss_name],
        "max_depth": depth,
        "num_leaves": 2**depth,
        "learning_rate": learning_rate,
        # a leaf must hold enough rows to be worth a value, but a small sample must still be splittable
        "min_data_in_leaf": max(1, min(MIN_DATA_IN_LEAF, len(y) // 10)),
        "boost_from_average": False,
        "deterministic": True,
        "force_row_wise": True,
        "seed": random_state,
        "num_threads": n_jobs or 0,
        "verbosity": -1,
    }
    if n_outputs > 1:
        parameters["num_class"] = n_outputs
    # mean risk in our units is twice LightGBM's gain per row for squares (gain = drop of the sum of squares),
    # and LightGBM's gain is twice the drop of the log loss; weights are normalised to sum to n
    unit = 1.0 if loss_name == "squared" else 2.0
    if penalties.any():
        parameters["cegb_tradeoff"] = 1.0
        parameters["cegb_penalty_feature_lazy"] = list(unit * penalties)
    scale = len(weights) / weights.sum()
    options: dict[str, Any] = {"categorical_feature": list(categorical), "free_raw_data": True}
    # starting scores instead of boost_from_average keep the constant out of the first tree's leaves
    train = lightgbm.Dataset(X, y, weight=weights * scale, init_score=_start(constant, len(y)), **options)
    callbacks: list[Any] = []
    valid_sets = []
    if validation is not None and early_stopping:
        X_val, y_val, weights_val = validation
        valid_sets = [
            lightgbm.Dataset(
                X_val, y_val, weight=weights_val, init_score=_start(constant, len(y_val)), reference=train, **options
            )
        ]
        callbacks = [lightgbm.early_stopping(early_stopping, verbose=False)]
    booster = lightgbm.train(parameters, train, n_learners, valid_sets=valid_sets, callbacks=callbacks)
    return booster


def _start(constant: np.ndarray, n: int) -> np.ndarray:
    return np.repeat(constant, n)  # LightGBM wants the scores of one class after the other


def _newton_terms(scores: np.ndarray, y: np.ndarray, output: int, loss_name: str) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and curvature that LightGBM's leaf values are made of."""
    if loss_name == "squared":
        return scores[:, 0] - y, np.ones(len(y))
    if loss_name == "logistic":
        p = expit(scores[:, 0])
        return p - y, p * (1 - p)
    p = softmax(scores, axis=1)[:, output]
    factor = scores.shape[1] / (scores.shape[1] - 1.0)
    return p - (y == output), factor * p * (1 - p)


def flatten_booster(booster: lightgbm.Booster) -> TreePool:
    """Copy all trees of a booster (up to its best iteration) into a pool."""
    best = booster.best_iteration if booster.best_iteration and booster.best_iteration > 0 else None
    trees = booster.dump_model(num_iteration=best)["tree_info"]
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
