"""The model that answers when some columns are not to be had.

None of its learners looks at them: gates and experts are averaged over both branches (`averaging`).  A node whose
expert needs them answers with the expert that is expected to lose least (`fallbacks`), and may buy what that one needs.
It is a fitted tree like any other, so whatever walks, counts or serves one does the same with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..costs import shorten
from .averaging import without
from .fallbacks import UNKNOWN

if TYPE_CHECKING:
    from .fitted import FittedTree
    from .queries import QueryTree

__all__ = ["columns_named", "experts_without", "knows_name", "model_without"]


def knows_name(model: FittedTree | QueryTree, name: str) -> bool:
    """Whether a source, an item or a feature of the model has this name."""
    return name in _names_of(model)


def _names_of(model: FittedTree | QueryTree) -> dict[str, None]:
    sources = [] if model.estimates is None else model.estimates.source_names
    return dict.fromkeys([*sources, *model.costs.item_names, *model.schema.feature_names])


def columns_named(model: FittedTree | QueryTree, unavailable: Any) -> np.ndarray:
    """The columns that are lost with some sources, items or features, each given by its name."""
    if unavailable is None:
        return np.zeros(0, dtype=int)
    if isinstance(unavailable, str | bytes):
        raise ValueError(f"unavailable is the text {unavailable!r}; give a list of names: [{unavailable!r}]")
    if not hasattr(unavailable, "__iter__"):
        raise ValueError(f"unavailable is {unavailable!r}; give a list of names of sources, items or features")
    names, costs, estimates = model.schema.feature_names, model.costs, model.estimates
    gone = np.zeros(len(names), dtype=bool)
    for name in unavailable:
        found = [np.arange(len(names)) == column for column, each in enumerate(names) if each == name]
        found += [costs.feature_items[:, r] for r, item in enumerate(costs.item_names) if item == name]
        if estimates is not None:
            found += [estimates.source_features[s] for s, each in enumerate(estimates.source_names) if each == name]
        if not found:
            known = shorten(_names_of(model))
            raise ValueError(f"unavailable names {name!r}, which is no source, item or feature of the model: {known}")
        gone |= np.any(found, axis=0)
    return np.flatnonzero(gone)


def model_without(model: FittedTree, columns: np.ndarray) -> FittedTree:
    """The model that does without some columns."""
    gone = np.zeros(len(model.schema.feature_names), dtype=bool)
    gone[columns] = True
    experts, idle = experts_without(model, gone)
    pool, owner = without(model.pool, columns, model.schema.means)
    route_weights, thresholds = model.route_weights[owner], model.thresholds.copy()
    route_weights[:, idle], thresholds[idle] = 0.0, 1.0  # nothing is bought to choose between equal answers
    weights, intercepts = model.expert_weights[owner][:, experts], model.expert_intercepts[experts]
    features = model.expert_features[experts]
    blind = np.asarray(features.any(axis=1) & ~(features & ~gone).any(axis=1))
    weights[:, blind], intercepts[blind] = 0.0, model.constant  # what knows nothing says the constant
    estimates = model.estimates
    if estimates is not None:
        estimates = estimates.without(experts, model.expert_features, gone)
        losses = estimates.losses.copy()
        losses[:, np.flatnonzero(blind)] = UNKNOWN
        estimates = replace(estimates, losses=losses)
    return replace(
        model,
        pool=pool,
        predict_weights=weights,
        predict_intercepts=intercepts,
        route_weights=route_weights,
        thresholds=thresholds,
        fallback_weights=model.fallback_weights[owner],
        estimates=estimates,
    ).compressed()


def experts_without(model: FittedTree, gone: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The expert that each node answers with, without the columns `gone` (bool), and the gates that decide nothing.

    Where all that lies beyond a gate is answered by one expert, which is not that of the node, that expert is chosen
    anew as if nothing had been bought for the gate.
    """
    n_nodes, estimates = model.shape.n_nodes, model.estimates
    experts, idle = np.arange(n_nodes), np.zeros(n_nodes, dtype=bool)
    if estimates is None:
        return experts, idle
    predictive, below = model.shape.is_predictive, model.shape.node_paths
    for node in np.flatnonzero(predictive & (model.expert_features[:n_nodes] & gone).any(axis=1)).tolist():
        experts[node] = _best(model, node, gone, model.route_features[node])
    for node in range(n_nodes):
        parent = model.shape.parents[node]
        if parent >= 0 and idle[parent]:
            idle[node] = not model.shape.is_leaf[node]
            continue
        answers = experts[below[:, node] & predictive]
        if not model.shape.is_leaf[node] and (answers == answers[0]).all() and answers[0] != node:
            before = model.route_features[parent] if parent >= 0 else np.zeros(len(gone), dtype=bool)
            experts[below[:, node]] = _best(model, node, gone, before)
            idle[node] = True
    return experts, idle


def _best(model: FittedTree, node: int, gone: np.ndarray, bought: np.ndarray) -> int:
    """The expert for a node, if the live ones of some features are bought; its own where none is known to be better."""
    estimates, features = model.estimates, model.expert_features
    assert estimates is not None
    paid = model.costs.items_of(np.flatnonzero(bought & ~gone))
    planned = float(_prices(model, features[[node]] | model.route_features[[node]], paid)[0])
    expected = estimates.expected_instead(node, features, gone)
    best = estimates.best(expected, _prices(model, features & ~gone, paid), planned)
    return node if best is None or expected[best] >= expected[node] else best


def _prices(model: FittedTree, features: np.ndarray, paid: np.ndarray) -> np.ndarray:
    """What each row of a table of features, bool (n, n_features), still costs when some items are paid."""
    items = (features.astype(int) @ model.costs.feature_items.astype(int)) > 0
    return model.costs.bills(items & ~paid)
