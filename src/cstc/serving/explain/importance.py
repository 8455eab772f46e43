"""What each item was good for, over many rows: the money that was spent on it, and the loss that it saved.

With labels, the loss that an item saves is what rows lose more when nothing of it is to be had (`FittedTree.without`):
the model then buys other things, so that two items that stand for each other save little each.  Without labels it is
what the steps that bought it were expected to save: what rows that come to a node lose with the expert before, less
what they lose with its own, both known from training.  Of a step that bought several items, each has the part that
its absence would harm.  The first step is held against the constant: what its prediction moves, if it is right, is
saved.

With labels, the mean has a standard error.  It is paired: of the differences ``d_i`` that the item makes to the loss of
the same rows, ``sd(d) / sqrt(n)``, which is much less than that of two losses of different rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...matrix import rows_at
from ...model import FittedTree, probabilities
from ...model.mixture import Mixture
from ...model.pool import unpack_items
from ...records import Records

__all__ = ["ItemTable", "item_importance"]

SUMMED = ("bought", "spent", "loss_saved", "worth")  # over rows
ERROR = "loss_saved_error"
TINY = 1e-15  # the least probability that a loss is taken at


class ItemTable(Records):
    """One row for each item, the one that most is spent on first; `to_pandas` for a data frame.

    Columns: ``item``, ``price``, ``bought`` (share of the rows), ``spent`` (money for each row, on average),
    ``loss_saved`` (for each row, on average; None if it is not known), ``loss_saved_error`` (its standard error over
    the rows; None without labels) and ``worth`` (the loss in money).  Loss and error are shown as one column.
    """

    def _columns(self) -> list[str]:
        return [name for name in super()._columns() if name != ERROR]

    def _cell(self, name: str, row: dict[str, Any]) -> str:
        error = row[ERROR] if name == "loss_saved" else None
        return super()._cell(name, row) + ("" if error is None else f" ± {error:.2g}")

    def _shown(self, name: str, value: Any) -> str:
        if value is None:
            return "unknown"
        if name == "bought":
            return f"{value:.0%}"
        if name in ("price", "spent", "worth"):
            return f"{value:,.2f}"
        return super()._shown(name, value)


def item_importance(model: FittedTree, X: Any, y: Any = None, ids: Any = None) -> ItemTable:
    """What each item costs and saves on some rows; see `FittedTree.item_importance`."""
    return _sorted(_rows(model, model._matrix(X, ids=ids), y))


def _sorted(rows: list[dict[str, Any]]) -> ItemTable:
    return ItemTable(sorted(rows, key=lambda row: (-row["spent"], -(row["loss_saved"] or 0.0), -row["bought"])))


def _rows(model: FittedTree, X: Any, y: Any) -> list[dict[str, Any]]:
    bought = model.items_bought(X)
    if not len(bought):
        raise ValueError("X has no rows; importance is a mean over rows")
    errors: np.ndarray | None = None
    if y is None:  # what steps were expected to save is not known of rows that a limit stopped
        saved = _expected(model, X) if model.limit is None else None
    else:
        saved, errors = _observed(model, X, y, bought)
    weight = 0.0 if model.estimates is None else model.estimates.cost_weight
    rows = []
    for item in np.flatnonzero(_of_use(model)).tolist():
        loss = None if saved is None else float(saved[item])
        price, share = float(model.costs.prices[item]), float(bought[:, item].mean())
        rows.append(
            {
                "item": model.costs.item_names[item],
                "price": price,
                "bought": share,
                "spent": share * price,
                "loss_saved": loss,
                ERROR: None if errors is None else float(errors[item]),
                "worth": loss / weight if loss is not None and weight > 0 else None,
            }
        )
    return rows


def importance_in_mixture(mixture: Mixture, X: Any, y: Any = None, ids: Any = None) -> ItemTable:
    """The same for two models, each at the rows that take it; see `Mixture.item_importance`."""
    X = mixture._matrix(X)
    if not X.shape[0]:
        raise ValueError("X has no rows; importance is a mean over rows")
    y = None if y is None else np.asarray(y)
    if y is not None and y.shape != (X.shape[0],):
        raise ValueError(f"y has shape {y.shape}; X has {X.shape[0]} rows: give one label for each")
    up = mixture.takes_costlier(X.shape[0], ids)
    found: dict[str, dict[str, Any]] = {}
    for tree, at in zip(mixture.trees, (np.flatnonzero(~up), np.flatnonzero(up)), strict=True):
        if not len(at):
            continue
        part = len(at) / len(up)
        for row in _rows(tree, rows_at(X, at), None if y is None else y[at]):
            mean = found.setdefault(row["item"], row | dict.fromkeys((*SUMMED, ERROR), 0.0))
            known = mean[ERROR] is not None and row[ERROR] is not None  # other rows: errors add up by their squares
            mean[ERROR] = float(np.hypot(mean[ERROR], part * row[ERROR])) if known else None
            for name in SUMMED:
                known = mean[name] is not None and row[name] is not None
                mean[name] = mean[name] + part * row[name] if known else None
    return _sorted(list(found.values()))


def _of_use(model: FittedTree) -> np.ndarray:
    """Items that some row may buy."""
    return np.asarray(model.terminal_items().any(axis=0))


# -- with labels -----------------------------------------------------------------------------------------------


def _observed(model: FittedTree, X: Any, y: Any, bought: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """What each item saves for each row on average, and the standard errors; None of one row alone."""
    targets = _targets(model, y, len(bought))
    full = _losses(model, _margins(model, X), targets)
    saved, errors = np.zeros(model.costs.n_items), np.zeros(model.costs.n_items)
    for item in np.flatnonzero(bought.any(axis=0)).tolist():
        other = model.without(np.flatnonzero(model.costs.feature_items[:, item]))
        more = _losses(model, _margins(other, X), targets) - full
        saved[item] = float(more.mean())
        errors[item] = float(more.std(ddof=min(1, len(more) - 1)) / np.sqrt(len(more)))
    return saved, errors if len(bought) > 1 else None


def _margins(model: FittedTree, X: Any) -> np.ndarray:
    return model.walk(X).margins if model.limit is None else model.decide(X)[0]


def _targets(model: FittedTree, y: Any, n: int) -> np.ndarray:
    if model.schema.classes is not None:
        return model.schema.class_numbers(y, n)
    y = np.asarray(y)
    if y.shape != (n,):
        raise ValueError(f"y has shape {y.shape}; X has {n} rows: give one label for each")
    return y.astype(float)


def _losses(model: FittedTree, margins: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Squared error, log loss, or what the decision costs, of each row."""
    if model.schema.classes is None:
        return (margins[:, 0] - targets) ** 2
    shares = probabilities(margins, model.link)
    if model.decisions is not None:
        return model.decisions.observed(targets, shares)
    return -np.log(np.maximum(shares[np.arange(len(targets)), targets], TINY))


# -- without labels --------------------------------------------------------------------------------------------


def _expected(model: FittedTree, X: Any) -> np.ndarray | None:
    estimates = model.estimates
    if estimates is None:
        return None
    shape, n_items = model.shape, model.costs.n_items
    parts = [_parts(model, node) for node in range(shape.n_nodes)]
    saved, n = np.zeros(n_items), 0
    for run in model.runs(X):
        n += len(run.terminals)
        visits, ends = shape.paths[run.terminals], shape.terminal_parents[run.terminals]
        owned = np.zeros((len(run.terminals), n_items), dtype=bool)
        for node in range(shape.n_nodes):  # a parent comes before its children
            at = np.flatnonzero(visits[:, node])
            if not len(at):
                continue
            has = owned[at] | _items(model, run.leaves[at], model.route_learners[node])
            leaves_here = ends[at] == node
            has[leaves_here] |= _items(model, run.leaves[at[leaves_here]], model.predict_learners[node])
            new = has & ~owned[at]
            owned[at] = has
            share = new * parts[node]
            total = share.sum(axis=1, keepdims=True)
            share = np.where(total > 0, share / np.maximum(total, TINY), new / np.maximum(new.sum(axis=1), 1)[:, None])
            saved += (share * _saving(model, X, run, node, at)[:, None]).sum(axis=0)
    return saved / max(n, 1)


def _items(model: FittedTree, leaves: np.ndarray, learners: np.ndarray) -> np.ndarray:
    """Bool (n, n_items): what some learners bought on the way to their leaves."""
    positions = model._position_bits[leaves[:, learners]]
    return unpack_items(np.bitwise_or.reduce(positions, axis=1), model.costs.n_items)


def _parts(model: FittedTree, node: int) -> np.ndarray:
    """For each item, what the expert of a node loses without the sources that need it."""
    estimates = model.estimates
    assert estimates is not None
    needs = (estimates.source_features.astype(int) @ model.costs.feature_items.astype(int)) > 0  # (n_sources, n_items)
    return (estimates.harm[node][:, None] * needs).max(axis=0, initial=0.0)


def _saving(model: FittedTree, X: Any, run: Any, node: int, at: np.ndarray) -> np.ndarray:
    """What the step at a node is expected to save at each row."""
    estimates, shape = model.estimates, model.shape
    assert estimates is not None
    if node:
        losses = estimates.losses[node]
        before, after = losses[int(shape.parents[node])], losses[node]
        return np.full(len(at), max(0.0, float(before - after)) if min(before, after) >= 0 else 0.0)
    rows = X[run.rows][at]
    learners = np.flatnonzero(model.predict_learners[0])
    margins = model.pool.subset(learners).scores(rows, model.predict_weights[learners, 0]) if len(learners) else 0.0
    margins = np.broadcast_to(margins + model.predict_intercepts[0], (len(at), model.n_outputs))
    if model.schema.classes is None:
        return (margins[:, 0] - model.constant[0]) ** 2
    shares = np.maximum(probabilities(np.array(margins), model.link), TINY)
    if model.decisions is not None:
        expected = model.decisions.expected(shares)
        before = model.decisions.taken(probabilities(model.constant[None, :], model.link))[0]
        return expected[:, before] - expected.min(axis=1)
    constant = np.maximum(probabilities(model.constant[None, :], model.link), TINY)
    return (shares * np.log(shares / constant)).sum(axis=1)
