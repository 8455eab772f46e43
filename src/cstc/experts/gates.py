"""Gates by backward induction: a row goes on when what it will buy is expected to pay.

With the experts of a chain of stages 0 .. m fixed, what counts at test time is a sum over rows: the risk where the row
stops, plus ``cost_weight`` times what it has paid until then.  With the expected loss ``l_k`` of stopping at stage k,
its price ``c_k`` and ``lam`` for the cost weight,

    V_m    = l_m + lam * c_m                              nothing is left to decide
    G_k(x) = E[ l_k + lam * c_k - V_{k+1} | x_k ]         what going on gains, from the features x_k at hand
    V_k    = V_{k+1} if G_k(x) > 0, else l_k + lam * c_k

Each ``G_k`` is a small regression.  It is coordinate descent on the loss of the test time itself, where the paper takes
gradient steps on sigmoids.

Expected, not observed
    What stopping loses at a training row is taken in expectation over its label, not at the label itself
    (`expectation`).
Out of fold
    Experts never saw the rows that gates learn from, and each gate is two regressions, each on half of the rows: at
    the other half it says what the gate will do to new rows, and the earlier gates learn from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..capacity import MANY_ROWS
from ..lightgbm_trees import flatten_booster
from ..matrix import cells_at
from ..model import TreePool
from ..model.build import Score
from ..model.queries import N_MADE
from ..parallel import side_by_side
from .chain import Chain
from .lazy import LazyExpert
from .queries import made_at, said_of_places, walk_queries

__all__ = ["Gate", "Policy", "could_pay", "expect_gates", "gate_for", "induce", "last_worthwhile", "learn_gate"]

NO_COLUMNS = np.zeros(0, dtype=int)
MADE = np.arange(N_MADE)
RARE = 0.005  # a gate that nearly all rows, or nearly none, pass is no gate
NEGLIGIBLE = 0.003  # part of the loss


@dataclass(frozen=True, eq=False)
class Gate:
    """Two regressions of the gain of going on; their mean decides."""

    pools: list[TreePool]  # on their own columns
    columns: np.ndarray

    def placed(self, n_features: int, number: int) -> Gate:
        """A gate that sees places, with the made columns of the gate of this number in its tree."""
        return replace(self, columns=np.append(self.columns[:-N_MADE], n_features + N_MADE * number + MADE))

    def score(self, n_members: int) -> Score:
        """The mean of both, or the first, on the columns of the whole matrix."""
        pools = [pool.on_columns(self.columns) for pool in self.pools[:n_members]]
        pool = TreePool.concatenate(pools)
        real = np.flatnonzero(pool.feature[pool.roots] >= 0)
        if len(real) < pool.n_learners:  # trees of one leaf are a constant: one of them is enough for all
            alike = np.setdiff1d(np.arange(pool.n_learners), real)
            constant = float(pool.value[pool.roots[alike]].sum())
            one = pool.subset(alike[:1])
            pool = TreePool.concatenate([pool.subset(real), replace(one, value=np.full_like(one.value, constant))])
        return Score(pool, np.full((pool.n_learners, 1), 1.0 / len(pools)), np.zeros(1))


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
        Expected risk + cost_weight * price at each row that teaches gates, out of fold, with the shifts of the chain.
    mean_value : float
        What policies are compared by.
    mean_cost : float
        What a row pays on average.
    loss_history : ndarray
        The mean of what was minimised (without shifts) after each gate was learned, the last one first.
    reached : ndarray of shape (n_stages,)
        Share of the training rows that stops at each of `stages`, out of fold.
    at, stops : int ndarray of shape (n,)
        The rows that teach gates, among those of the chain, and the stage at which each of them stops.
    paid : ndarray of shape (n,)
        What each of them pays until then.
    """

    stages: list[int]
    gates: list[Gate]
    value: np.ndarray
    mean_value: float
    mean_cost: float
    loss_history: np.ndarray
    reached: np.ndarray
    at: np.ndarray
    stops: np.ndarray
    paid: np.ndarray

    @property
    def loss(self) -> float:
        """What was minimised: without shifts, so that only chains over the same rows compare."""
        return float(self.loss_history[-1])


@dataclass(frozen=True, eq=False)
class _Way:
    """One of the ways to go on from a stage: who goes, what every row then loses and pays, and the gate, if any."""

    goes: np.ndarray
    value: np.ndarray
    paid: np.ndarray
    gate: Gate | None = None


def induce(chain: Chain, cost_weight: float, lazy: LazyExpert | None = None) -> Policy:
    """The gates of a chain, from the last stage to the first; `lazy`, with shifted losses, comes after the last one."""
    # 1. At the last stage nothing is left to decide: V_m = l_m + lam * c_m.
    n, last = len(chain.at), len(chain.stages) - 1
    if lazy is None:
        last = last_worthwhile(chain, cost_weight)
        paid = np.full(n, chain.prices[last])
        value = chain.losses[:, last] + cost_weight * paid
    else:
        last += 1
        paid = lazy.prices(NO_COLUMNS)
        value = lazy.losses + cost_weight * paid
    history = [chain.mean(value)]
    nodes: list[tuple[int, Gate | None]] = [(last, None)]
    stops = np.full(n, last)
    for stage in range(last - 1, -1, -1):
        # 2. What a row loses that stops here, and what it loses that goes on.
        here = np.full(n, chain.prices[stage])
        stopping = chain.losses[:, stage] + cost_weight * here
        all_go = _Way(np.full(n, True), value, paid)
        if lazy is not None and nodes == [(last, None)]:
            # behind a gate, what this stage has bought is paid when a row comes to the lazy expert
            paid = lazy.prices(chain.stages[stage].columns)
            value = lazy.losses + cost_weight * paid
        ways = [all_go, _Way(np.full(n, False), stopping, here)]
        # 3. The gate: a regression of G_k on the features at hand.
        gain = stopping - value
        if chain.can_gate(stage) and could_pay(chain, gain, value):
            gate, said = gate_for(chain, stage, gain)
            goes = said > 0
            if RARE <= chain.mean(goes) <= 1 - RARE:
                extra = np.where(goes, chain.passing_price(stage), chain.gate_price)
                decided = np.where(goes, value, stopping) + cost_weight * extra
                ways.append(_Way(goes, decided, np.where(goes, paid, here) + extra, gate))
        # 4. All rows go, none does, or the gate decides: what is best out of fold is V_k.
        best = min(ways, key=lambda way: chain.mean(way.value))
        value, paid = best.value, best.paid
        stops = np.where(best.goes, stops, stage)
        if best.gate is not None:
            nodes.append((stage, best.gate))
        elif not best.goes.any():
            nodes = [(stage, None)]
        history.append(chain.mean(value))
    nodes.reverse()
    if chain.queries is not None:
        # 5. Gates that see places: what they do to each other's places is known when rows are walked.
        nodes, stops, paid, value = _walked(chain, nodes, cost_weight, lazy)
        history.append(chain.mean(value))
    value = value + np.append(chain.shifts, 0.0)[stops]
    return Policy(
        stages=[stage for stage, _ in nodes],
        gates=[gate for _, gate in nodes if gate is not None],
        value=value,
        mean_value=chain.mean(value),
        mean_cost=chain.mean(paid),
        loss_history=np.array(history),
        reached=np.array([chain.mean(stops == stage) for stage, _ in nodes]),
        at=chain.at,
        stops=stops,
        paid=paid,
    )


def _walked(
    chain: Chain, nodes: list[tuple[int, Gate | None]], cost_weight: float, lazy: LazyExpert | None
) -> tuple[list[tuple[int, Gate | None]], np.ndarray, np.ndarray, np.ndarray]:
    """The nodes with gates that know their made columns, and where rows stop, what they pay and what they lose.

    Where that is no better than all rows at one of the stages, it is one node.
    """
    stages, gates = [stage for stage, _ in nodes], [gate for _, gate in nodes if gate is not None]
    n, n_features = len(chain.at), chain.rows.X.shape[1]
    steps = walk_queries(chain, stages, gates)
    is_lazy = steps.stops == len(chain.stages)
    if lazy is None:
        losses, prices = chain.losses, np.tile(chain.prices, (n, 1))
    else:
        # what the stage before the lazy expert has bought is paid for there
        before = NO_COLUMNS if len(stages) == 1 else chain.stages[stages[-2]].columns
        losses = np.column_stack([chain.losses, lazy.losses])
        prices = np.column_stack([np.tile(chain.prices, (n, 1)), lazy.prices(before)])
    every = np.arange(n)
    paid = prices[every, steps.stops] + steps.paid
    value = losses[every, steps.stops] + cost_weight * paid
    alone = losses + cost_weight * prices
    best = int(np.argmin(chain.weights @ alone))
    if gates and not is_lazy.any() and chain.mean(alone[:, best]) <= chain.mean(value):
        return [(best, None)], np.full(n, best), prices[:, best], alone[:, best]
    placed = [(stage, gate and gate.placed(n_features, number)) for number, (stage, gate) in enumerate(nodes)]
    return placed, steps.stops, paid, value


def could_pay(chain: Chain, gain: np.ndarray, value: np.ndarray) -> bool:
    """Whether a perfect gate would be better than all rows going on and better than none; of many rows, noticeably."""
    least = NEGLIGIBLE * chain.mean(value) if len(chain.rows) >= MANY_ROWS else 0.0
    return min(chain.mean(np.maximum(gain, 0.0)), chain.mean(np.maximum(-gain, 0.0))) > least


def last_worthwhile(chain: Chain, cost_weight: float) -> int:
    """The stage after which, of many rows, even perfect gates would save next to nothing: no gate leads there.

    At large cost weights that is about half of the stages.  Where rows are few, gates take no time.
    """
    last = len(chain.stages) - 1
    if len(chain.rows) < MANY_ROWS:
        return last
    losses = np.minimum.accumulate(chain.losses + cost_weight * chain.prices, axis=1)
    means = chain.weights @ losses
    return int(np.argmax(means <= (1 + NEGLIGIBLE) * means[last]))


def expect_gates(chains: Sequence[Chain], *, begin: bool = True) -> None:
    """Tell those who watch that the gates of some chains are learned now, or later."""
    progress = chains[0].boosting.progress
    found = [chain.work_of_gates() for chain in chains]
    work, n_pieces = sum(each for each, _ in found), sum(each for _, each in found)
    if begin:
        progress.begin("gates", work, n_pieces)
    else:
        progress.plan("gates", work)


def gate_for(chain: Chain, stage: int, gain: np.ndarray) -> tuple[Gate, np.ndarray]:
    """`learn_gate`, which is not asked twice for the same: two orders in one tree (`crossings`) share most gates."""
    known = chain.learned.get(stage)
    if known is None or not np.array_equal(gain, known[0]):
        known = chain.learned[stage] = gain, *learn_gate(chain, stage, gain)
    return known[1], known[2]


def learn_gate(chain: Chain, stage: int, gain: np.ndarray) -> tuple[Gate, np.ndarray]:
    """The gate of a stage, and what it says at each row, from the half that did not learn from the row."""
    said = np.empty(len(gain))
    regressions = [chain.regression(stage, half) for half in range(2)]
    columns = regressions[0].columns

    def learn(half: int) -> TreePool:
        pool = flatten_booster(regressions[half].fit(gain[chain.halves[half]]))
        if chain.queries is None:
            hears = chain.halves[1 - half]
            cells = cells_at(chain.rows.X, chain.at[hears], columns)
            said[hears] = pool.scores(cells, np.ones((pool.n_learners, 1)))[:, 0]
        return pool

    pools = side_by_side([partial(learn, half) for half in range(2)], chain.boosting.n_jobs)
    if chain.queries is None:
        return Gate(pools, columns), said
    gate = Gate(pools, np.append(chain.stages[stage].columns, MADE))  # which made ones is known with all nodes
    return gate, said_of_places(chain, gate, np.arange(len(gain)), made_at(chain, stage))
