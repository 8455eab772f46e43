"""Experts for bad days: what a model answers with when a budget or an outage keeps it from what its path needs.

For budgets
    Experts on the cheap beginning of the order of buying, which a chain leaves out when all rows pass them.
For outages
    For each node, an expert without the source whose loss hurts most there, on the features that one would buy for
    about the same money if there was no such source: the order of buying is found anew without it.

All are one member of a cross-fitted expert each, so that they take little room, and those for budgets are there
already.  What each expert loses at the rows that come to a node is observed out of fold; what it loses more when a
source is down, on rows that its first member never saw, with the trees averaged over both branches (`model.averaging`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..boosting import Boosting
from ..costs import ResolvedCosts
from ..matrix import rows_at
from ..model.averaging import without
from ..model.build import Score
from ..model.fallbacks import UNKNOWN, Estimates
from ..rows import Rows, Units, some_of
from .candidates import Family, Nodes
from .expert import Expert, grow_experts
from .purchases import Stage, orders_of

__all__ = ["Fallbacks", "Sources", "fallbacks_for", "sources_of"]

ROOM = 0.4  # of the room that the trees of the model take, so much for fallbacks at most
MOST_SOURCES = 12  # of an expert that are looked at: those that it asks most often
MOST_ROWS = 500  # on which a source's loss is measured
MOST_HURTING = 3  # sources that experts are grown without
HURTS = 0.02  # part of what the expert explains that is lost with a source, for an expert without it
SHRINK = 20  # rows of the whole sample that the loss at a node is mixed with


@dataclass(frozen=True, eq=False)
class Sources:
    """Columns that come, and fail, together."""

    names: list[str]
    columns: np.ndarray  # bool (n_sources, n_features)


def sources_of(given: Mapping[str, Sequence[Any]] | None, names: Sequence[str], costs: ResolvedCosts) -> Sources:
    """The sources that the user names, and every other column by its items: those that share one are one source."""
    columns: dict[str, np.ndarray] = {}
    free = np.full(len(names), True)
    for source, features in (given or {}).items():
        at = [_column(source, each, names) for each in features]
        twice = [names[column] for column in at if not free[column]]
        if twice:
            raise ValueError(f"sources has {twice[0]!r} twice; a feature comes from one source")
        free[at] = False
        columns[str(source)] = np.isin(np.arange(len(names)), at)
    priced = costs.feature_items
    left = np.flatnonzero(free)
    while len(left):
        # all that is linked by shared items
        group = left[:1]
        while True:
            items = np.asarray(priced[group].any(axis=0))
            larger = left[np.isin(left, group) | (priced[left] & items).any(axis=1)]
            if len(larger) == len(group):
                break
            group = larger
        shared = [costs.item_names[item] for item in np.flatnonzero(priced[group].all(axis=0))]
        name = str(names[group[0]]) if len(group) == 1 or not shared else shared[0]
        while name in columns:
            name += "'"
        columns[name] = np.isin(np.arange(len(names)), group)
        left = np.setdiff1d(left, group)
    return Sources(list(columns), np.array(list(columns.values())).reshape(len(columns), len(names)))


def _column(source: str, feature: Any, names: Sequence[str]) -> int:
    if isinstance(feature, str) and feature in names:
        return list(names).index(feature)
    if isinstance(feature, int | np.integer) and not isinstance(feature, bool) and 0 <= feature < len(names):
        return int(feature)
    raise ValueError(f"sources[{source!r}] names {feature!r}, which is no feature: the features are {list(names)[:8]}")


@dataclass(eq=False)
class Fallbacks:
    """What is grown and measured for them; shared by all cost weights."""

    sources: Sources
    losses: dict[int, np.ndarray] = field(default_factory=dict)  # of experts at the training rows, by their identity
    harm: dict[int, np.ndarray] = field(default_factory=dict)
    grown: dict[bytes, tuple[Expert, np.ndarray]] = field(default_factory=dict)  # without a source, and where it heard
    orders: dict[int, list[Stage]] = field(default_factory=dict)  # of buying without a source
    kept: list[Expert] = field(default_factory=list)  # whose identities are used above


@dataclass(frozen=True, eq=False)
class _Option:
    """An expert that may become a fallback."""

    score: Score
    losses: np.ndarray  # at all training rows; NaN where nothing is known
    harm: np.ndarray

    @property
    def size(self) -> int:
        return self.score.pool.n_positions


def fallbacks_for(
    family: Family,
    nodes: Nodes,
    scores: Sequence[Score],
    sources: Sources,
    cost_weight: float,
    units: Units,
    *,
    grow: bool = True,
) -> tuple[list[Score], Estimates]:
    """The fallbacks of a model, if some shall be grown, and what is known of them and of the experts of its nodes."""
    rows, boosting = family.grower.rows, family.grower.boosting
    store = family.measured.setdefault("fallbacks", Fallbacks(sources))
    own = [
        _Option(score, _losses(store, expert, rows, boosting, at), _harm(store, expert, rows, boosting, at))
        for score, expert, at in zip(scores, nodes.experts, nodes.rows, strict=True)
    ]
    room = ROOM * sum({id(option.score): option.size for option in own}.values())
    others: list[_Option] = []
    if grow:
        others += _for_outages(store, family, nodes, own)
        others += _for_budgets(store, family, nodes)
    taken: list[_Option] = []
    for option in others:
        if option.size <= room:
            taken.append(option)
            room -= option.size
    losses, path_losses = _at_nodes(nodes, [*own, *taken], rows.weights)
    return [option.score for option in taken], Estimates(
        losses=np.where(losses >= 0, units.risk(losses), UNKNOWN),
        path_losses=units.risk(path_losses),
        harm=units.risk(np.array([option.harm for option in (*own, *taken)])),
        source_names=store.sources.names,
        source_features=store.sources.columns,
        cost_weight=float(cost_weight),
    )


def _losses(
    store: Fallbacks, expert: Expert, rows: Rows, boosting: Boosting, at: np.ndarray | None, heard: Any = None
) -> np.ndarray:
    """What an expert loses at each training row, out of fold; NaN where it is not for the row."""
    key = id(expert)
    if key not in store.losses:
        found = np.full(len(rows), np.nan)
        here = np.arange(len(rows)) if at is None else at
        here = here if heard is None else here[heard]
        margins = expert.margins if heard is None else expert.margins[heard]
        found[here] = boosting.loss.value_and_derivative(margins, rows.y[here])[0]
        store.losses[key] = found
        store.kept.append(expert)
    return store.losses[key]


def _harm(store: Fallbacks, expert: Expert, rows: Rows, boosting: Boosting, at: np.ndarray | None) -> np.ndarray:
    """What an expert loses more without each source, its trees averaged; 0 for those that it hardly asks."""
    key = id(expert)
    if key not in store.harm:
        store.harm[key] = _measured_harm(store.sources, expert, rows, boosting, at)
        store.kept.append(expert)
    return store.harm[key]


def _measured_harm(
    sources: Sources, expert: Expert, rows: Rows, boosting: Boosting, at: np.ndarray | None
) -> np.ndarray:
    harm = np.zeros(len(sources.names))
    score = expert.member or expert.score
    pool = score.pool
    asked = np.bincount(pool.feature[pool.feature >= 0], minlength=sources.columns.shape[1])
    asks = sources.columns @ asked
    here = np.arange(len(rows)) if at is None else at
    here = some_of(here if expert.unseen is None else here[expert.unseen], MOST_ROWS)
    if not len(here) or not asks.any():
        return harm
    X, y, weights = rows_at(rows.X, here), rows.y[here], rows.weights[here]
    nothing = np.zeros(sources.columns.shape[1])

    def risk(pool: Any, tree_weights: np.ndarray) -> float:
        margins = score.intercept + pool.scores(X, tree_weights)
        return float(np.average(boosting.loss.value_and_derivative(margins, y)[0], weights=weights))

    full = risk(pool, score.weights)
    for source in np.argsort(-asks, kind="stable")[:MOST_SOURCES]:
        if asks[source]:
            other, owner = without(pool, np.flatnonzero(sources.columns[source]), nothing)
            harm[source] = max(0.0, risk(other, score.weights[owner]) - full)
    return harm


def _for_outages(store: Fallbacks, family: Family, nodes: Nodes, own: list[_Option]) -> list[_Option]:
    """An expert without the source that hurts most, for each node whose expert is for all rows, the worst first."""
    rows, boosting, folds = family.grower.rows, family.grower.boosting, family.grower.folds
    constant = boosting.loss.value_and_derivative(np.tile(boosting.constant, (len(rows), 1)), rows.y)[0]
    wanted: dict[bytes, tuple[float, np.ndarray]] = {}
    worst = np.argsort([-option.harm.max(initial=0.0) for option in own], kind="stable")
    hurting: list[int] = []
    for node in worst.tolist():
        option, harm = own[node], own[node].harm
        source = int(np.argmax(harm)) if len(harm) else 0
        lift = np.average(constant - option.losses, weights=rows.weights) if nodes.rows[node] is None else np.inf
        if not harm.any() or not harm[source] > HURTS * lift:
            continue
        if source not in hurting:
            if len(hurting) >= MOST_HURTING:
                continue
            hurting.append(source)
        columns = _instead(store, family, source, option)
        if len(columns):
            wanted.setdefault(columns.tobytes(), (float(harm[source]), columns))
    missing = [(columns, boosting) for key, (_, columns) in wanted.items() if key not in store.grown]
    if missing:
        first = [folds == fold for fold in np.unique(folds)[:2]]  # two members are enough to know what they lose
        for (columns, _), expert in zip(missing, grow_experts(missing, rows, parts=first), strict=True):
            store.grown[columns.tobytes()] = expert, first[0] | first[1]
    found = []
    for key in wanted:
        expert, heard = store.grown[key]
        assert expert.member is not None
        losses = _losses(store, expert, rows, boosting, None, np.flatnonzero(heard))
        found.append(_Option(expert.member, losses, _harm(store, expert, rows, boosting, None)))
    return found


def _instead(store: Fallbacks, family: Family, source: int, option: _Option) -> np.ndarray:
    """What one would buy without a source for about the price of an expert's features."""
    rows, boosting = family.grower.rows, family.grower.boosting
    costs = boosting.costs
    if source not in store.orders:
        left = np.flatnonzero(~store.sources.columns[source])
        risk = family.grower.risk(np.tile(boosting.constant, (len(rows), 1)))
        orders = orders_of(boosting, rows, left, costs.prices == 0, risk) if len(left) else []
        store.orders[source] = [stage for order in orders[:1] for stage in order.stages if len(stage.columns)]
    used = np.unique(option.score.pool.feature)
    price = float(costs.bills(costs.items_of(used[used >= 0])[None, :])[0])
    stages = store.orders[source]
    affordable = [stage for stage in stages if stage.price <= price]
    if affordable:
        return affordable[-1].columns
    return stages[0].columns if stages else np.zeros(0, dtype=int)


def _for_budgets(store: Fallbacks, family: Family, nodes: Nodes) -> list[_Option]:
    """Experts of stages that are no nodes and cheaper than one, those first that more budgets gain most by."""
    rows, boosting = family.grower.rows, family.grower.boosting
    priced: dict[int, tuple[float, Expert]] = {}
    for chain in family.grown.chains:
        for expert, price in zip(chain.experts, chain.prices.tolist(), strict=True):
            priced.setdefault(id(expert), (price, expert))
    are_nodes = {id(expert) for expert in nodes.experts}
    most = max((priced[node][0] for node in are_nodes if node in priced), default=np.inf)
    least, ladder = np.inf, []
    for price, expert in sorted(priced.values(), key=lambda each: each[0]):
        loss = float(np.average(_losses(store, expert, rows, boosting, None), weights=rows.weights))
        if price <= most and loss < least:  # better than all that is cheaper
            ladder.append((price, expert, min(least, loss + 1.0) - loss))
            least = loss
    gains = []
    for (price, expert, gain), after in zip(ladder, [*ladder[1:], None], strict=True):
        wider = np.log((after[0] + 1e-9) / (price + 1e-9)) if after is not None else 0.0
        if id(expert) not in are_nodes:
            gains.append((gain * wider, expert))
    found = []
    for _, expert in sorted(gains, key=lambda each: -each[0]):
        losses = _losses(store, expert, rows, boosting, None)
        found.append(_Option(expert.member or expert.score, losses, _harm(store, expert, rows, boosting, None)))
    return found


def _at_nodes(nodes: Nodes, options: list[_Option], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each expert loses at the rows that come to each node, and what those rows lose where they stop.

    An expert is compared with that of the node on the rows that both know.
    """
    n_nodes = nodes.shape.n_nodes
    losses = np.full((n_nodes, len(options)), UNKNOWN)
    path_losses = np.zeros(n_nodes)
    everywhere = np.array([_mean(option.losses, weights) for option in options])
    own = np.array([option.losses for option in options[:n_nodes]])
    for node in range(n_nodes):
        comes = nodes.at[nodes.shape.node_paths[nodes.stops, node]]
        stops = nodes.stops[nodes.shape.node_paths[nodes.stops, node]]
        here = own[node]
        base = _mean(here[comes], weights[comes], everywhere[node], SHRINK)
        path_losses[node] = _mean(own[stops, comes], weights[comes], base, SHRINK)
        for number, option in enumerate(options):
            known = comes[~np.isnan(option.losses[comes])]
            # experts of a group are for its rows alone
            if number < n_nodes and nodes.rows[number] is not None and len(known) < len(comes):
                continue
            overall = _mean(option.losses - here, weights)
            if np.isnan(overall):
                overall = 0.0 if number == node else np.nan
            difference = _mean((option.losses - here)[known], weights[known], overall, SHRINK)
            if not np.isnan(difference):
                losses[node, number] = max(0.0, base + difference)
    return losses, path_losses


def _mean(values: np.ndarray, weights: np.ndarray, prior: float = np.nan, n_prior: int = 0) -> float:
    """Of what is known, mixed with so many rows of another mean; NaN if nothing is."""
    known = ~np.isnan(values)
    total = float(weights[known].sum())
    mean = float(values[known] @ weights[known]) / total if total > 0 else np.nan
    if np.isnan(prior):
        return mean
    if np.isnan(mean):
        return prior
    n = int(known.sum())
    return (n * mean + n_prior * prior) / (n + n_prior)
