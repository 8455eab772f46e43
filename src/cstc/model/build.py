"""From nodes to a `FittedTree`: the one way to make one.

A node predicts with a weighted sum of weak learners, and an inner node routes with another.  Whoever trains such sums
(the paper's nodes, experts, gates, a booster of LightGBM) hands them over here.  Sums over the same pool share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..costs import ResolvedCosts
from .decisions import Decisions
from .fallbacks import Estimates
from .fitted import FittedTree
from .pool import TreePool
from .schema import Schema
from .shape import TreeShape

__all__ = ["Score", "build_tree"]


@dataclass(frozen=True, eq=False)
class Score:
    """``intercept + sum_t weights[t] * h_t(x)``.

    Attributes
    ----------
    pool : TreePool
    weights : ndarray of shape (n_learners, n_outputs)
    intercept : ndarray of shape (n_outputs,)
    """

    pool: TreePool
    weights: np.ndarray
    intercept: np.ndarray

    def times(self, factor: float) -> Score:
        """The same in other units."""
        return self if factor == 1.0 else Score(self.pool, self.weights * factor, self.intercept * factor)

    def moved(self, scale: float, shift: np.ndarray) -> Score:
        """``scale * score + shift``."""
        return Score(self.pool, self.weights * scale, self.intercept * scale + shift)


def build_tree(
    shape: TreeShape,
    predictors: Sequence[Score],
    routes: Sequence[Score | None],
    *,
    constant: np.ndarray,
    costs: ResolvedCosts,
    link: str,
    schema: Schema,
    offset: float = 0.0,
    scale: float = 1.0,
    fallbacks: Sequence[Score] = (),
    estimates: Estimates | None = None,
    decisions: Decisions | None = None,
) -> FittedTree:
    """The model of some nodes, without learners that none of them uses.

    Parameters
    ----------
    shape : TreeShape
    predictors : one Score for each node
        Their outputs, and `constant`, are in standard units: `scale` and `offset` bring them into those of the user.
    routes : one Score for each node, None at leaf classifiers
        A row goes to the upper child where the score is above zero.
    constant : ndarray of shape (n_outputs,)
    fallbacks : sequence of Score
        What else a node may answer with, as `predictors`.
    estimates : Estimates or None
        What is known of all of them.
    decisions : Decisions or None
        What errors cost, if that decides.
    """
    used = [*predictors, *fallbacks, *(route for route in routes if route is not None)]
    pools = list({id(score.pool): score.pool for score in used}.values())
    ends = np.cumsum([0] + [pool.n_learners for pool in pools])
    start = {id(pool): int(end) for pool, end in zip(pools, ends, strict=False)}
    experts = [*predictors, *fallbacks]
    weights = np.zeros((ends[-1], len(experts), len(constant)))
    intercepts = np.array([score.intercept for score in experts]) * scale + offset
    route_weights = np.zeros((ends[-1], shape.n_nodes))
    thresholds = np.zeros(shape.n_nodes)
    for number, score in enumerate(experts):
        at = start[id(score.pool)]
        weights[at : at + score.pool.n_learners, number] = score.weights * scale
    for node, route in enumerate(routes):
        if route is not None:
            at = start[id(route.pool)]
            route_weights[at : at + route.pool.n_learners, node] = route.weights[:, 0]
            thresholds[node] = 0.0 - route.intercept[0]  # never -0.0, which a file would keep
    return FittedTree(
        pool=TreePool.concatenate(pools),
        shape=shape,
        predict_weights=weights[:, : shape.n_nodes],
        predict_intercepts=intercepts[: shape.n_nodes],
        route_weights=route_weights,
        thresholds=thresholds,
        constant=constant * scale + offset,
        costs=costs,
        link=link,
        schema=schema,
        fallback_weights=weights[:, shape.n_nodes :],
        fallback_intercepts=intercepts[shape.n_nodes :],
        estimates=estimates,
        decisions=decisions,
    ).compressed()
