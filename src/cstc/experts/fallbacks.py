"""Experts for bad days: what a model answers with when a budget or an outage keeps it from what its path needs.

For budgets
    Experts of the nodes, averaged over what a cheap beginning of an order of buying does not know, take no room at all
    and are often as good as others.  Where they are not, experts on these beginnings, which a chain leaves out when all
    rows pass them.
For outages
    For each node, an expert without the source whose loss hurts most there, on the features that one would buy for
    about the same money if there was no such source: the order of buying is found anew without it.

All are one or some members of a cross-fitted expert, so that they take little room, and those for budgets are there
already.  What each expert loses at the rows that come to a node is observed out of fold; what it loses more when a
source is down, on rows that its members never saw, with the trees averaged over both branches (`model.averaging`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..capacity import MANY_ROWS
from ..costs import ResolvedCosts
from ..matrix import is_sparse, rows_at
from ..model.averaging import averaged_scores, without
from ..model.build import Score
from ..model.fallbacks import UNKNOWN, Estimates
from ..rows import Units, some_of
from .candidates import Family, Nodes
from .chain import ChainGrower
from .expert import Expert, grow_experts
from .purchases import BY_PRICE, MOST_STAGES, Stage, orders_of
from .sources import Sources

__all__ = ["Fallbacks", "fallbacks_for"]

ROOM = 0.55  # of the room that the trees of the model take, so much for fallbacks at most
OUTAGES = 0.3  # and so much for those without a source, if there are several
LEAST_ROOM = 1000  # positions of trees, about 45 kB: small models have room for that
MOST_SOURCES = 12  # of an expert that are looked at: those that it asks most often
MOST_ROWS = 500  # on which a source's loss is measured
MOST_HURTING = 3  # sources that experts are grown without
MOST_HEARD = 5000  # rows that say what experts lose
MOST_OUTAGES = 2  # experts without a source, where rows are many
MOST_TEACHERS = 5000  # rows that show what one would buy without a source
FEW_ROWS = 2000  # with fewer, more members are needed to know what an expert loses
HURTS = 0.02  # part of what the expert explains that is lost with a source, for an expert without it
FEW_CELLS = 200_000  # rows x positions of trees that are averaged at once
HEAD_START = 0.03  # part of what an expert explains that the mean of all members of few rows explains beyond one
SHRINK = 20  # rows of the whole sample that the loss at a node is mixed with


@dataclass(eq=False)
class Fallbacks:
    """What is grown and measured for them; shared by all cost weights."""

    sources: Sources
    losses: dict[int, np.ndarray] = field(default_factory=dict)  # of experts at the training rows, by their identity
    harm: dict[int, np.ndarray] = field(default_factory=dict)
    grown: dict[bytes, tuple[Expert, np.ndarray]] = field(default_factory=dict)  # without a source, and where it heard
    set_harm: dict[int, dict[bytes, float]] = field(default_factory=dict)
    orders: dict[int, list[Stage]] = field(default_factory=dict)  # of buying without a source
    kept: list[Expert] = field(default_factory=list)  # whose identities are used above


@dataclass(frozen=True, eq=False)
class _Option:
    """An expert that a row may be answered with."""

    expert: Expert
    score: Score
    losses: np.ndarray  # at all training rows; NaN where nothing is known
    harm: np.ndarray
    price: float  # of all its features

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
    rows = family.grower.rows
    n = rows.X.shape[1]
    store = family.measured.setdefault("fallbacks", Fallbacks(sources))
    own = [
        _option(store, family, expert, score, at, measure=grow)
        for expert, score, at in zip(nodes.experts, scores, nodes.rows, strict=True)
    ]
    sets = _sets(family, max(option.price for option in own)) if grow else []
    pairs = zip(own, nodes.rows, strict=True)
    set_harm = np.array([_set_harm(store, family, option, at, sets) for option, at in pairs]).reshape(len(own), -1)
    taken: list[_Option] = []
    if grow:
        room = max(LEAST_ROOM, ROOM * sum({id(option.score): option.size for option in own}.values()))
        for option in _for_outages(store, family, nodes, own):
            if option.size + sum(each.size for each in taken) <= (OUTAGES / ROOM * room if taken else room):
                taken.append(option)
        taken += _for_budgets(store, family, own, sets, set_harm, room - sum(each.size for each in taken))
        taken = [_measured(store, family, option) for option in _with_more_members(taken, room)]
    losses, path_losses = _at_nodes(nodes, [*own, *taken], rows.weights)
    losses[:, len(own) :] = _without_head_start(losses[:, len(own) :], taken, family)
    unknown = np.full((len(taken), len(sets)), UNKNOWN)
    set_harm = np.concatenate([set_harm, unknown])
    return [option.score for option in taken], Estimates(
        losses=np.where(losses >= 0, units.risk(losses), UNKNOWN),
        path_losses=units.risk(path_losses),
        harm=units.risk(np.array([option.harm for option in (*own, *taken)])),
        sets=np.array([np.isin(np.arange(n), each) for each in sets], dtype=bool).reshape(-1, n),
        set_harm=np.where(set_harm >= 0, units.risk(set_harm), UNKNOWN),
        source_names=store.sources.names,
        source_features=store.sources.columns,
        cost_weight=float(cost_weight),
    )


def _option(
    store: Fallbacks,
    family: Family,
    expert: Expert,
    score: Score,
    at: np.ndarray | None = None,
    heard: Any = None,
    *,
    measure: bool = True,
) -> _Option:
    boosting = family.grower.boosting
    losses = _losses(store, expert, family.grower, at, heard)
    price = _price(boosting.costs, np.unique(score.pool.feature))
    harm = _harm(store, expert, family.grower, at) if measure else np.zeros(len(store.sources.names))
    return _Option(expert, score, losses, harm, price)


def _price(costs: ResolvedCosts, columns: np.ndarray) -> float:
    return float(costs.bills(costs.items_of(columns[columns >= 0])[None, :])[0])


def _without_head_start(losses: np.ndarray, taken: list[_Option], family: Family) -> np.ndarray:
    """What is observed is what single members lose; experts of nodes answer with all of theirs, fallbacks with some."""
    rows = family.grower.rows
    if len(rows) >= MANY_ROWS:
        return losses
    constant = _mean(_losses_of_constant(family), rows.weights)
    losses = losses.copy()
    for number, option in enumerate(taken):
        n_all = max(2, len(np.unique(family.grower.folds)))
        n_own = min(n_all, max(1, round(option.size / max(1, option.expert.part(1).pool.n_positions))))
        share = (1 / n_own - 1 / n_all) / (1 - 1 / n_all)  # the spread of a mean falls as one over the members
        known = losses[:, number] >= 0
        losses[known, number] += HEAD_START * share * np.maximum(0.0, constant - losses[known, number])
    return losses


def _measured(store: Fallbacks, family: Family, option: _Option) -> _Option:
    """An option with what each source means to it."""
    return replace(option, harm=_harm(store, option.expert, family.grower, None))


def _with_more_members(taken: list[_Option], room: float) -> list[_Option]:
    """Where there is room for that, means of more members: on few rows they are clearly better than one."""
    n = int(room // max(1, sum(option.size for option in taken)))
    return [replace(option, score=option.expert.part(n)) for option in taken] if n > 1 else taken


def _losses(
    store: Fallbacks, expert: Expert, grower: ChainGrower, at: np.ndarray | None, heard: Any = None
) -> np.ndarray:
    """What an expert loses at each training row, out of fold; NaN where it is not for the row."""
    key = id(expert)
    if key not in store.losses:
        found = np.full(len(grower.rows), np.nan)
        here = np.arange(len(grower.rows)) if at is None else at
        here = here if heard is None else here[heard]
        margins = expert.margins if heard is None else expert.margins[heard]
        found[here] = grower.observed(margins, here)
        store.losses[key] = found
        store.kept.append(expert)
    return store.losses[key]


def _harm(store: Fallbacks, expert: Expert, grower: ChainGrower, at: np.ndarray | None) -> np.ndarray:
    """What an expert loses more without each source, its trees averaged; 0 for those that it hardly asks."""
    key = id(expert)
    if key not in store.harm:
        store.harm[key] = _measured_harm(store.sources, expert, grower, at)
        store.kept.append(expert)
    return store.harm[key]


def _measured_harm(
    sources: Sources, expert: Expert, grower: ChainGrower, at: np.ndarray | None
) -> np.ndarray:
    harm = np.zeros(len(sources.names))
    feature = expert.part(1).pool.feature
    asks = sources.columns @ np.bincount(feature[feature >= 0], minlength=sources.columns.shape[1])
    order = np.argsort(-asks, kind="stable")[:MOST_SOURCES]
    asked = [int(source) for source in order if asks[source]]
    lost = [np.flatnonzero(sources.columns[source]) for source in asked]
    harm[asked] = _harm_without(expert, grower, at, lost)
    return harm


def _harm_without(
    expert: Expert, grower: ChainGrower, at: np.ndarray | None, lost: Sequence[np.ndarray]
) -> np.ndarray:
    """What an expert loses more without some columns, its trees averaged; for each of several such losses.

    Each member says it of rows that it never saw.  One is enough where rows are many.
    """
    rows = grower.rows
    everywhere = np.arange(len(rows)) if at is None else at
    more, n_rows = np.zeros(len(lost)), 0.0
    members = expert.members or [expert.score]
    unseen = expert.unseen or [np.full(len(everywhere), True)]
    for score, out in zip(members, unseen, strict=True):
        here = some_of(everywhere[out], MOST_ROWS)
        if n_rows >= MOST_ROWS or not len(here) or not lost:
            break
        X, weights = rows_at(rows.X, here), rows.weights[here]

        # the first is what is said with nothing lost
        said = _said_without(score, X, [np.zeros(0, dtype=int), *lost])
        losses = [grower.observed(margins, here) for margins in said]
        risks = np.array([np.average(each, weights=weights) for each in losses])
        more += len(here) * (risks[1:] - risks[0])
        n_rows += len(here)
    return np.maximum(0.0, more / max(n_rows, 1.0))


def _said_without(score: Score, X: Any, lost: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Margins of an ensemble at some rows without each of several sets of columns."""
    pool, weights = score.pool, score.weights
    if len(lost) and X.shape[0] * pool.n_positions <= FEW_CELLS and not is_sparse(X):
        return [score.intercept + each for each in averaged_scores(pool, X, lost, weights)]
    found = []
    for columns in lost:
        other, owner = without(pool, columns, np.zeros(X.shape[1]))
        found.append(score.intercept + other.scores(X, weights[owner]))
    return found


def _sets(family: Family, most: float) -> list[np.ndarray]:
    """Columns that a budget may be spent on: those of stages that are cheaper than the most expensive node."""
    found: dict[bytes, np.ndarray] = {}
    for chain in family.grown.chains:
        for stage in chain.stages:
            if len(stage.columns) and stage.price < most:
                found.setdefault(stage.columns.tobytes(), stage.columns)
    return list(found.values())


def _set_harm(
    store: Fallbacks, family: Family, option: _Option, at: np.ndarray | None, sets: list[np.ndarray]
) -> np.ndarray:
    """What an expert loses more if only a set is known; unknown for experts of groups, and where a set is no part."""
    harm = np.full(len(sets), UNKNOWN)
    used = np.unique(option.score.pool.feature)
    used = used[used >= 0]
    if at is not None:
        return harm
    parts = [np.intersect1d(used, columns) for columns in sets]
    known = store.set_harm.setdefault(id(option.expert), {})
    new = {part.tobytes(): part for part in parts if 0 < len(part) < len(used)}
    new = {key: part for key, part in new.items() if key not in known}
    lost = [np.setdiff1d(used, part) for part in new.values()]
    known.update(zip(new, _harm_without(option.expert, family.grower, None, lost).tolist(), strict=True))
    for number, part in enumerate(parts):
        harm[number] = known.get(part.tobytes(), UNKNOWN)
    return harm


def _for_outages(store: Fallbacks, family: Family, nodes: Nodes, own: list[_Option]) -> list[_Option]:
    """An expert without the source that hurts most, for each node whose expert is for all rows, the worst first."""
    rows, boosting, folds = family.grower.rows, family.grower.of_experts, family.grower.folds
    constant = _losses_of_constant(family)
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
    if len(rows) >= MANY_ROWS:  # where each takes long, and as much room as a node
        wanted = dict(list(wanted.items())[:MOST_OUTAGES])
    missing = [(columns, boosting) for key, (_, columns) in wanted.items() if key not in store.grown]
    if missing:
        blocks = family.grown.chains[0].blocks
        # of many rows one member is enough to know what it loses
        n_members = 3 if len(rows) < FEW_ROWS else 2 if len(rows) < MANY_ROWS else 1
        first = [folds == fold for fold in np.unique(folds)[:n_members]]
        for (columns, _), expert in zip(missing, grow_experts(missing, rows, blocks=blocks, parts=first), strict=True):
            heard = np.any(first, axis=0)
            store.grown[columns.tobytes()] = family.grower.in_units(expert, boosting, heard), heard
    found = []
    for key in wanted:
        expert, heard = store.grown[key]
        found.append(_option(store, family, expert, expert.part(1), None, np.flatnonzero(heard), measure=False))
    return found


def _instead(store: Fallbacks, family: Family, source: int, option: _Option) -> np.ndarray:
    """What one would buy without a source for about the price of an expert's features."""
    rows, boosting = family.grower.rows, family.grower.boosting
    costs = boosting.costs
    if source not in store.orders:
        left = np.flatnonzero(~store.sources.columns[source])
        risk = family.grower.risk(np.tile(boosting.constant, (len(rows), 1)))
        some = rows.take(some_of(np.arange(len(rows)), MOST_TEACHERS))
        orders = orders_of(boosting, some, left, costs.prices == 0, risk, BY_PRICE) if len(left) else []
        cut = [order.steps[step] for order in orders for step in order.cut(MOST_STAGES)]
        store.orders[source] = [stage for stage in cut if len(stage.columns)]
    stages = store.orders[source]
    affordable = [stage for stage in stages if stage.price <= option.price]
    if affordable:
        return affordable[-1].columns
    return stages[0].columns if stages else np.zeros(0, dtype=int)


def _for_budgets(
    store: Fallbacks,
    family: Family,
    own: list[_Option],
    sets: list[np.ndarray],
    set_harm: np.ndarray,
    room: float,
) -> list[_Option]:
    """Experts of stages that are no nodes and cheaper than one, as many as there is room for, by what they gain.

    For a budget there is what nodes say, averaged over what it does not reach for.  An expert gains by being better,
    for all budgets up to that of the next one.
    """
    rows, costs = family.grower.rows, family.grower.boosting.costs
    ladder = [(0.0, _mean(_losses_of_constant(family), rows.weights))]
    for option, harm in zip(own, set_harm, strict=True):
        loss = _mean(option.losses, rows.weights)
        used = np.unique(option.score.pool.feature)
        ladder.append((option.price, loss))
        ladder += [
            (_price(costs, np.intersect1d(used, columns)), loss + more)
            for columns, more in zip(sets, harm, strict=True)
            if more >= 0
        ]
    most = max(option.price for option in own)
    if not most > 0:  # nothing has a price
        return []
    are_nodes = {id(option.expert) for option in own}
    options = {
        id(expert): _option(store, family, expert, expert.part(1), measure=False)
        for chain in family.grown.chains
        for expert, price in zip(chain.experts, chain.prices, strict=True)
        if id(expert) not in are_nodes and price <= most
    }
    taken: list[_Option] = []
    while options:
        gains = {}
        for key, option in options.items():
            loss = _mean(option.losses, rows.weights)
            before = min(known for price, known in ladder if price <= option.price)
            after = min((price for price, known in ladder if price > option.price and known <= loss), default=most)
            wider = np.log((after + 1e-3 * most) / (option.price + 1e-3 * most))
            gains[key] = (before - loss) * max(wider, 0.0) if option.size <= room else 0.0
        best = max(gains, key=lambda key: gains[key])
        if not gains[best] > 0:
            break
        option = options.pop(best)
        taken.append(option)
        room -= option.size
        ladder.append((option.price, _mean(option.losses, rows.weights)))
    return taken


def _losses_of_constant(family: Family) -> np.ndarray:
    rows, boosting = family.grower.rows, family.grower.boosting
    return family.grower.observed(np.tile(boosting.constant, (len(rows), 1)))


def _at_nodes(nodes: Nodes, options: list[_Option], weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What each expert loses at the rows that come to each node, and what those rows lose where they stop.

    An expert is compared with that of the node on the rows that both know.  Of many rows, some are enough.
    """
    n_nodes = nodes.shape.n_nodes
    some = some_of(np.arange(len(nodes.at)), MOST_HEARD)
    stops, at = nodes.stops[some], nodes.at[some]
    weights, heard = weights[at], np.array([option.losses[at] for option in options])
    losses = np.full((n_nodes, len(options)), UNKNOWN)
    path_losses = np.zeros(n_nodes)
    for node in range(n_nodes):
        comes = np.flatnonzero(nodes.shape.node_paths[stops, node])
        own = heard[node]
        base = _mean(own[comes], weights[comes], _mean(own, weights), SHRINK)
        path_losses[node] = _mean(heard[stops[comes], comes], weights[comes], base, SHRINK)
        for number in range(len(options)):
            more = heard[number] - own
            # experts of a group are for its rows alone
            is_of_group = number < n_nodes and nodes.rows[number] is not None
            if is_of_group and np.isnan(heard[number, comes]).any():
                continue
            overall = _mean(more, weights)
            if np.isnan(overall):
                overall = 0.0 if number == node else np.nan
            difference = _mean(more[comes], weights[comes], overall, SHRINK)
            if not np.isnan(difference):
                losses[node, number] = max(0.0, base + difference)
    return losses, path_losses


def _mean(values: np.ndarray, weights: np.ndarray, prior: float = np.nan, n_prior: int = 0) -> float:
    """Of what is known, mixed with so many rows of another mean; NaN if nothing is."""
    known = np.flatnonzero(values == values)
    if len(known) < len(values):
        values, weights = values[known], weights[known]
    total = float(weights.sum())
    mean = float(values @ weights) / total if total > 0 else np.nan
    if np.isnan(prior):
        return mean
    if np.isnan(mean):
        return prior
    n = len(values)
    return (n * mean + n_prior * prior) / (n + n_prior)
