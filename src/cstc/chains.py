"""Chains for some of the rows: orders of buying, cut into stages, each with its expert and what it is expected to lose.

All rows make one family of chains (`cascade`), and so does each group of rows that has a branch of its own (`groups`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .costs import ResolvedCosts
from .expectation import Expectation, calibrated, mean_loss
from .experts import Expert, grow_expert
from .induction import ROUNDS, Chain
from .pool import TreePool
from .purchases import Stage, nested_sets
from .settings import Sample, Settings
from .weak_learners import Boosting

__all__ = ["ChainGrower", "Chains", "gate_members"]

HASTE = 8  # so many times fewer and larger steps
OTHERS = 5  # rows of the whole sample that a group's constant is mixed with


@dataclass(frozen=True, eq=False)
class Chains:
    """Chains over the same rows, one for each order of buying.

    Attributes
    ----------
    chains : list of Chain
    everything : Expert
        On all columns that they may buy.
    expected : Expectation
        Of losses at these rows.
    """

    chains: list[Chain]
    everything: Expert
    expected: Expectation


@dataclass(frozen=True, eq=False)
class ChainGrower:
    """Grows chains for any rows, all with the same folds, halves and parameters.

    Attributes
    ----------
    sample : Sample
        The target of a regression in units of its own.
    loss : object
        Of `losses`.
    boosting : Boosting
        How experts are grown.
    folds : int ndarray of shape (n,)
    half : bool ndarray of shape (n,)
        Which half of each gate a row teaches.
    """

    sample: Sample
    loss: Any
    boosting: Boosting
    folds: np.ndarray
    half: np.ndarray
    settings: Settings
    report: Callable[[str], None]

    def risk(self, margins: np.ndarray, sample: Sample | None = None) -> float:
        """Mean loss over the rows of a sample, or over all rows."""
        sample = self.sample if sample is None else sample
        return mean_loss(self.loss, margins, sample.y, sample.weights)

    def grow(self, rows: np.ndarray, columns: np.ndarray, paid: np.ndarray) -> Chains:
        """Chains for `rows` that may buy `columns` and have the items in `paid`.

        Those of a group have shifted losses: its few rows make the best expert err more.
        """
        whole = len(rows) == len(self.sample.y)
        sample, folds, half, boosting = self.sample, self.folds, self.half, self.boosting
        if not whole:
            sample, folds, half = sample.take(rows), folds[rows], half[rows]
            boosting = replace(boosting, constant=self._constant(sample))
        costs = boosting.costs
        grown: dict[tuple[bytes, int], Expert] = {}

        def expert(columns: np.ndarray, boosting: Boosting = boosting) -> Expert:
            key = columns.tobytes(), boosting.n_rounds
            if key not in grown:
                if whole:
                    self.report(f"expert {len(grown) + 1}, on {len(columns)} features")
                grown[key] = grow_expert(boosting, sample.X, sample.y, sample.weights, folds, columns)
            return grown[key]

        everything = expert(columns)
        if whole:
            self.report("orders of buying")
        risk = self.risk(np.tile(boosting.constant, (len(folds), 1)), sample)
        orders = _stages(boosting, sample, columns, paid, risk)
        experts = [[expert(stage.columns) for stage in stages] for stages in orders]
        if costs.evaluation:  # where a tree has a price, a stage may also stop with few large steps
            hasty = replace(
                boosting,
                n_rounds=max(1, boosting.n_rounds // HASTE),
                learning_rate=min(0.5, boosting.learning_rate * HASTE),
            )
            for stages, members in zip(orders, experts, strict=True):
                for at in [at for at, stage in reversed(list(enumerate(stages))) if len(stage.columns)]:
                    members.insert(at, expert(stages[at].columns, hasty))
                    stages.insert(at, stages[at])
        y, weights, loss = sample.y, sample.weights, self.loss
        best = calibrated(loss, boosting.constant, [expert.margins for expert in grown.values()], y, weights)
        expected = Expectation(loss, best, y, weights)

        def chain(stages: list[Stage], members: list[Expert]) -> Chain:
            found = Chain(
                stages,
                members,
                np.column_stack([expected(member.margins) for member in members]),
                _prices(stages, members, costs),
                costs.evaluation * ROUNDS * gate_members(costs),
                sample.X,
                weights,
                half,
                self.settings.categorical,
                self.settings.random_state,
                self.settings.n_jobs,
                np.array([expected.shift(member.margins) for member in members]),
            )
            return found if whole else found.shifted()

        return Chains([chain(*pair) for pair in zip(orders, experts, strict=True)], everything, expected)

    def cheapest(self, rows: np.ndarray, free: Expert) -> Expert:
        """The better answer at some rows for which nothing more is bought: that of `free`, or their own constant."""
        group = self.sample.take(rows)
        constant = self._constant(group)
        margins = np.tile(constant, (len(self.sample.y), 1))
        if self.risk(free.margins[rows], group) <= self.risk(margins[rows], group):
            return free
        return Expert(TreePool.identity(0), np.zeros((0, len(constant))), margins, constant)

    def _constant(self, group: Sample) -> np.ndarray:
        """What a group starts from: its own constant, with a few rows of all others, so that no class is impossible."""
        y = np.concatenate([group.y, self.sample.y])
        own, others = (part.weights / part.weights.sum() for part in (group, self.sample))
        return self.loss.constant(y, np.concatenate([own * len(group.y), others * OTHERS]))


def _stages(
    boosting: Boosting, sample: Sample, columns: np.ndarray, paid: np.ndarray, risk: float
) -> list[list[Stage]]:
    """Nested sets of the given columns, numbered as in the whole matrix."""
    costs, categorical = boosting.costs, set(boosting.categorical)
    local = replace(
        boosting,
        costs=replace(costs, prices=np.where(paid, 0.0, costs.prices), feature_items=costs.feature_items[columns]),
        categorical=[at for at, column in enumerate(columns) if column in categorical],
    )
    X = sample.X if len(columns) == sample.X.shape[1] else sample.X[:, columns]
    orders = nested_sets(local, X, sample.y, sample.weights, risk)
    return [[Stage(columns[stage.columns], stage.price) for stage in stages] for stages in orders]


def _prices(stages: Sequence[Stage], experts: Sequence[Expert], costs: ResolvedCosts) -> np.ndarray:
    """What a row pays that stops at each stage, without the gates on its way."""
    learners = np.array([expert.pool.n_learners for expert in experts])
    return np.array([stage.price for stage in stages]) + costs.evaluation * learners


def gate_members(costs: ResolvedCosts) -> int:
    """Both regressions of a gate, or one where evaluating a tree has a price."""
    return 1 if costs.evaluation else 2
