"""Gates by backward induction: a row goes on when what it will buy is expected to pay.

With the experts of a chain of stages fixed, what counts at test time is a sum over rows: the risk where the row stops,
plus ``cost_weight`` times what it has paid until then.  So the best gate of a stage sends a row on if stopping here is
expected to lose more than the price of the next stage and all that follows it.  At the last stage there is nothing to
decide; from there backwards, each gate is a regression of that difference on the features at hand.  It is coordinate
descent on the loss of the test time itself, where the paper takes gradient steps on sigmoids.

Expected, not observed
    What stopping loses at a training row is taken in expectation over its label, not at the label itself
    (`expectation`).
Out of fold
    Experts never saw the rows that gates learn from, and each gate is two regressions, each on half of the rows: at
    the other half it says what the gate will do to new rows, and the earlier gates learn from that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import lightgbm
import numpy as np

from .experts import Expert
from .lazy import LazyExpert
from .pool import TreePool
from .purchases import Stage
from .weak_learners import flatten_booster

__all__ = ["Chain", "Policy", "induce"]

ROUNDS = 40
NO_COLUMNS = np.zeros(0, dtype=int)
RARE = 0.005  # a gate that nearly all rows, or nearly none, pass is no gate
PARAMETERS = {
    "objective": "regression",
    "learning_rate": 0.15,
    "num_leaves": 8,
    "lambda_l2": 10.0,
    "feature_fraction": 0.8,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


@dataclass(frozen=True, eq=False)
class Gate:
    """Two regressions of the gain of going on; their mean decides."""

    boosters: list[lightgbm.Booster]
    columns: np.ndarray

    def trees(self, n_members: int) -> tuple[TreePool, np.ndarray]:
        """The trees of both, or of the first, on the columns of the whole matrix, and the weight of each."""
        pools = [flatten_booster(booster).on_columns(self.columns) for booster in self.boosters[:n_members]]
        pool = TreePool.concatenate(pools)
        real = np.flatnonzero(pool.feature[pool.roots] >= 0)
        if len(real) == pool.n_learners:
            return pool, np.full(pool.n_learners, 1.0 / len(pools))
        # trees of one leaf are a constant: one of them is enough for all
        alike = np.setdiff1d(np.arange(pool.n_learners), real)
        constant = float(pool.value[pool.roots[alike]].sum())
        one = pool.subset(alike[:1])
        pool = TreePool.concatenate([pool.subset(real), replace(one, value=np.full_like(one.value, constant))])
        return pool, np.full(pool.n_learners, 1.0 / len(pools))


@dataclass(frozen=True, eq=False)
class Policy:
    """Which stages of a chain are nodes, and what leads from each to the next.

    Attributes
    ----------
    stages : list of int
        In the order of the chain; the number after its last one is a lazy expert.
    gates : list of Gate
        One for each stage but the last.
    value : ndarray of shape (n,)
        Expected risk + cost_weight * price at each training row, out of fold, with the shifts of the chain.
    mean_value : float
        What policies of different chains are compared by.
    loss_history : ndarray
        The mean of what was minimised (without shifts) after each gate was learned, the last one first.
    reached : ndarray of shape (n_stages,)
        Share of the training rows that stops at each of `stages`, out of fold.
    """

    stages: list[int]
    gates: list[Gate]
    value: np.ndarray
    mean_value: float
    loss_history: np.ndarray
    reached: np.ndarray

    @property
    def loss(self) -> float:
        return float(self.loss_history[-1])


class Chain:
    """Stages with their experts, and what gates on them need; made once for all cost weights.

    Parameters
    ----------
    stages : sequence of Stage
    experts : sequence of Expert
        One for each stage.
    losses : ndarray of shape (n, n_stages)
        What stopping at a stage is expected to lose at each training row.
    prices : ndarray of shape (n_stages,)
        What a row pays that stops there: all items of the stage, and the trees of its expert.
    gate_price : float
        What a row pays for the trees of a gate, at each one that it meets.
    shifts : ndarray of shape (n_stages,), optional
        What `losses` lack of what was observed, on average (`expectation`).
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        experts: Sequence[Expert],
        losses: np.ndarray,
        prices: np.ndarray,
        gate_price: float,
        X: np.ndarray,
        weights: np.ndarray,
        half: np.ndarray,
        categorical: Sequence[int],
        random_state: int,
        n_jobs: int | None,
        shifts: np.ndarray | None = None,
    ):
        self.stages, self.experts, self.losses = stages, experts, losses
        self.shifts = np.zeros(len(stages)) if shifts is None else shifts
        self.prices, self.gate_price = prices, gate_price
        self.weights = weights * (len(weights) / weights.sum())
        self.halves = (np.flatnonzero(half), np.flatnonzero(~half))
        self._X = X
        self._categorical = categorical
        self._parameters = PARAMETERS | {
            "min_data_in_leaf": max(5, min(100, len(weights) // 60)),
            "seed": random_state,
            "num_threads": n_jobs or 0,
        }
        self._binned: dict[tuple[int, int], lightgbm.Dataset] = {}

    def shifted(self) -> Chain:
        """The same chain with the shifts in its losses."""
        chain = copy.copy(self)
        chain.losses, chain.shifts = self.losses + self.shifts, np.zeros(len(self.shifts))
        return chain

    def can_gate(self, stage: int) -> bool:
        """Whether a gate can save anything: it needs features, and an expert that knows more after it."""
        own = self.stages[stage].columns
        following = self.stages[stage + 1].columns if stage + 1 < len(self.stages) else None
        return len(own) > 0 and (following is None or len(following) > len(own))

    def regress(self, stage: int, gain: np.ndarray) -> tuple[Gate, np.ndarray]:
        """The gate of a stage, and what it says at each row, from the half that did not learn from the row."""
        columns = self.stages[stage].columns
        said = np.empty(len(gain))
        boosters = []
        for number, (learns, hears) in enumerate((self.halves, self.halves[::-1])):
            rows = self._dataset(stage, number, learns, gain)
            # kept in training: LightGBM would write the model out and read it back, which takes longer than growing it
            booster = lightgbm.train(self._parameters, rows, ROUNDS, keep_training_booster=True)
            said[hears] = booster.predict(self._X[np.ix_(hears, columns)])
            boosters.append(booster)
        return Gate(boosters, columns), said

    def _dataset(self, stage: int, number: int, rows: np.ndarray, gain: np.ndarray) -> lightgbm.Dataset:
        """Features are binned once; another cost weight only changes the labels."""
        key = (stage, number)
        if key not in self._binned:
            columns = self.stages[stage].columns
            known = set(self._categorical)
            self._binned[key] = lightgbm.Dataset(
                self._X[np.ix_(rows, columns)],
                gain[rows],
                weight=self.weights[rows],
                categorical_feature=[at for at, column in enumerate(columns) if column in known],
                params=self._parameters,
                free_raw_data=False,
            ).construct()
        return self._binned[key].set_label(gain[rows])


def induce(chain: Chain, cost_weight: float, lazy: LazyExpert | None = None) -> Policy:
    """The gates of a chain, from the last stage to the first; `lazy`, with shifted losses, comes after the last one."""
    last = len(chain.stages) - 1
    if lazy is None:
        value = chain.losses[:, last] + cost_weight * chain.prices[last]
    else:
        last += 1
        value = lazy.losses + cost_weight * lazy.prices(NO_COLUMNS)
    history = [float(np.mean(chain.weights * value))]
    nodes: list[tuple[int, Gate | None]] = [(last, None)]
    stops = np.full(len(value), last)
    for stage in range(last - 1, -1, -1):
        stopping = chain.losses[:, stage] + cost_weight * chain.prices[stage]
        straight = value  # if all rows go, those that come to the lazy expert have bought nothing here
        if lazy is not None and nodes == [(last, None)]:
            value = lazy.losses + cost_weight * lazy.prices(chain.stages[stage].columns)
        gain = stopping - value
        # all rows go, none does, or the gate decides: what is best out of fold
        ways: list[tuple[np.ndarray, np.ndarray, Gate | None]] = [
            (np.full(len(gain), True), straight, None),
            (np.full(len(gain), False), stopping, None),
        ]
        if chain.can_gate(stage) and gain.min() < 0 < gain.max():
            learned, said = chain.regress(stage, gain)
            if RARE <= np.mean(chain.weights * (said > 0)) <= 1 - RARE:
                decided = np.where(said > 0, value, stopping) + cost_weight * chain.gate_price
                ways.append((said > 0, decided, learned))
        goes, value, gate = min(ways, key=lambda way: float(np.mean(chain.weights * way[1])))
        stops = np.where(goes, stops, stage)
        if gate is not None:
            nodes.append((stage, gate))
        elif not goes.any():
            nodes = [(stage, None)]
        history.append(float(np.mean(chain.weights * value)))
    nodes.reverse()
    value = value + np.append(chain.shifts, 0.0)[stops]
    return Policy(
        stages=[stage for stage, _ in nodes],
        gates=[gate for _, gate in nodes if gate is not None],
        value=value,
        mean_value=float(np.mean(chain.weights * value)),
        loss_history=np.array(history),
        reached=np.array([np.mean(chain.weights * (stops == stage)) for stage, _ in nodes]),
    )
