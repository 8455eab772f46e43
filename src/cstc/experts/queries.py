"""Whole queries: what gates learn from when they also see the place of a document in its query.

At a stage, a gate has the features at hand and two made columns, gap and place of the document by the current scores of
its query (`model.queries`).  Backward induction begins at the last stage, and who stops before an earlier one is not
known there yet.  So gates learn from the scores that all documents of a query would have at their stage, out of fold:
those of other groups (`branches`), which have other stages, at theirs of about the same price.

When all gates are known, rows are walked as new ones will be, query by query and out of fold: each gate says what the
half of it says that did not learn from the row, and who stops keeps its score.  What that costs and loses is what the
chain is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..costs import ResolvedCosts
from ..engines import regression
from ..matrix import cells_at, dense
from ..model import Schema
from ..model.fallbacks import Estimates
from ..model.queries import N_MADE, made_columns, with_made_costs, with_made_schema
from ..rows import Rows

if TYPE_CHECKING:
    from .chain import Chain
    from .gates import Gate

__all__ = [
    "Beside",
    "Queries",
    "Steps",
    "WholeQueries",
    "made_at",
    "regression_on_places",
    "said_of_places",
    "walk_groups",
    "walk_queries",
    "whole_queries_of",
    "with_made_columns",
]


@dataclass(frozen=True)
class WholeQueries:
    """How gates see places.

    Attributes
    ----------
    at : int
        Gaps are measured from the `at`-th best score of a query.
    scale : float
        What a standard unit of scores is in the units of grades, in which the fitted model measures gaps.
    """

    at: int
    scale: float

    def of(self, qid: np.ndarray) -> Queries:
        return Queries(np.unique(qid, return_inverse=True)[1], self)


@dataclass(frozen=True, eq=False)
class Beside:
    """Documents that lie in other groups.

    Attributes
    ----------
    query : int ndarray of shape (m,)
        The query of each, group by group.
    chains : list of Chain
        One of each group.
    """

    query: np.ndarray
    chains: list[Chain]

    def margins(self, price: float) -> np.ndarray:
        """What each would have if its group had spent so much, (m, 1)."""
        found = []
        for chain in self.chains:
            paid = np.where(chain.prices <= price, chain.prices, -1.0)  # with a price of trees they rise and fall
            found.append(chain.experts[int(np.argmax(paid))].margins[chain.at])
        return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of the rows that teach gates, all of them whole but for documents that lie in other groups."""

    query: np.ndarray  # (n,)
    seen: WholeQueries
    beside: Beside | None = None

    def made(self, margins: np.ndarray, price: float) -> np.ndarray:
        """Gap and place by the current margins of all these rows, (n, 1), at a stage of this price."""
        query, n = self.query, len(margins)
        if self.beside is not None:
            margins = np.concatenate([margins, self.beside.margins(price)])
            query = np.concatenate([query, self.beside.query])
        return made_columns(self.seen.scale * margins[:, 0], query, self.seen.at)[:n]


@dataclass(frozen=True, eq=False)
class Steps:
    """What became of each row that teaches gates.

    Attributes
    ----------
    stops : int ndarray of shape (n,)
        The stage at which it stops.
    paid : ndarray of shape (n,)
        For trees on its way there: those of gates, and of experts that it passed.
    """

    stops: np.ndarray
    paid: np.ndarray


def whole_queries_of(qid: np.ndarray, most: int) -> np.ndarray:
    """The rows of some queries, drawn at random (always the same ones): at most so many, but one query at least."""
    _, query, sizes = np.unique(qid, return_inverse=True, return_counts=True)
    if len(query) <= most:
        return np.arange(len(query))
    order = np.random.default_rng(most).permutation(len(sizes))
    n = max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))
    return np.flatnonzero(np.isin(query, order[:n]))


def regression_on_places(chain: Chain, stage: int) -> list[Any]:
    """What learns both halves of a gate from the columns of a stage and, after these, the made ones."""
    columns = chain.stages[stage].columns
    X = _seen(chain, chain.at, columns, made_at(chain, stage))
    rows, every = Rows(X, chain.rows.y[chain.at], chain.weights), np.arange(X.shape[1])
    categorical = tuple(np.flatnonzero(np.isin(columns, chain.boosting.categorical)).tolist())
    boosting = replace(chain.boosting, categorical=categorical)
    return [regression(boosting, rows, half, every, None) for half in chain.halves]


def made_at(chain: Chain, stage: int) -> np.ndarray:
    """Gap and place of the rows that teach gates, if all of them come to a stage."""
    return _queries(chain).made(chain.experts[stage].margins[chain.at], chain.prices[stage])


def said_of_places(chain: Chain, gate: Gate, here: np.ndarray, made: np.ndarray) -> np.ndarray:
    """What a gate says of some rows that teach gates, from the half that did not learn from each."""
    said = np.empty(len(here))
    cells = _seen(chain, chain.at[here], gate.columns[:-N_MADE], made)
    for half, pool in enumerate(gate.pools):
        hears = np.isin(here, chain.halves[1 - half])
        said[hears] = pool.scores(cells[hears], np.ones((pool.n_learners, 1)))[:, 0]
    return said


def walk_queries(chain: Chain, stages: Sequence[int], gates: Sequence[Gate]) -> Steps:
    """Send the rows along the stages that are nodes, all documents of a query in step."""
    queries, n = _queries(chain), len(chain.at)
    scores, stops, paid = np.empty((n, 1)), np.full(n, stages[-1]), np.zeros(n)
    here = np.arange(n)
    for stage, gate in zip(stages, gates, strict=False):
        scores[here] = chain.experts[stage].margins[chain.at[here]]
        goes = said_of_places(chain, gate, here, queries.made(scores, chain.prices[stage])[here]) > 0
        stops[here[~goes]] = stage
        paid[here] += chain.gate_price
        here = here[goes]
        paid[here] += chain.experts[stage].price(chain.boosting.costs)
    return Steps(stops, paid)


def walk_groups(groups: Sequence[tuple[Chain, Sequence[int], Sequence[Gate]]]) -> list[Steps]:
    """The same for chains of several groups with the stages that are their nodes, all of them level by level."""
    ends = np.cumsum([0, *(len(chain.at) for chain, *_ in groups)])
    query = np.concatenate([_queries(chain).query for chain, *_ in groups])
    seen, scores = _queries(groups[0][0]).seen, np.zeros(ends[-1])
    found = [Steps(np.full(len(chain.at), stages[-1]), np.zeros(len(chain.at))) for chain, stages, _ in groups]
    here = [np.arange(len(chain.at)) for chain, *_ in groups]
    for level in range(max(len(stages) for _, stages, _ in groups)):
        for (chain, stages, _), rows, start in zip(groups, here, ends, strict=False):
            if level < len(stages):
                scores[start + rows] = seen.scale * chain.experts[stages[level]].margins[chain.at[rows], 0]
        made = made_columns(scores, query, seen.at)
        for number, (chain, stages, gates) in enumerate(groups):
            if level >= len(gates):
                continue
            rows, steps, stage = here[number], found[number], stages[level]
            goes = said_of_places(chain, gates[level], rows, made[ends[number] + rows]) > 0
            steps.stops[rows[~goes]] = stage
            steps.paid[rows] += chain.gate_price
            here[number] = rows[goes]
            steps.paid[rows[goes]] += chain.experts[stage].price(chain.boosting.costs)
    return found


def with_made_columns(
    schema: Schema, costs: ResolvedCosts, estimates: Estimates, gated: np.ndarray
) -> tuple[Schema, ResolvedCosts, Estimates]:
    """What a model says of its columns, with the made ones of some nodes, which no source brings."""

    def wider(columns: np.ndarray) -> np.ndarray:
        return np.pad(columns, ((0, 0), (0, N_MADE * len(gated))))

    wide = replace(estimates, sets=wider(estimates.sets), source_features=wider(estimates.source_features))
    return with_made_schema(schema, gated.tolist()), with_made_costs(costs, len(gated)), wide


def _queries(chain: Chain) -> Queries:
    assert chain.queries is not None
    return chain.queries


def _seen(chain: Chain, at: np.ndarray, columns: np.ndarray, made: np.ndarray) -> np.ndarray:
    """Some columns of some training rows, and the made ones after them."""
    return np.column_stack([dense(cells_at(chain.rows.X, at, columns)), made])
