"""Both orders of buying in one tree: at each stage a row stops, goes on, or crosses over to the other order.

A chain has one order of buying for all rows.  Which order is better may depend on the row, and what is bought already
may tell.  So the stages of both orders are the states of one graph; a set of features that both have is one state.
Gates are learned on it as on a chain (`gates`), from the largest sets to the smallest.  Two ways A and B may lead on
from a state S: to the next stage of its order, and to the cheapest stage of the other order that holds all that is
bought.  With the expected loss ``l_S`` of stopping at S, its price ``c_S`` and ``lam`` for the cost weight,

    D_S(x) = E[ V_B - V_A | x_S ]                what going by A saves against going by B
    W_S    = V_A if D_S(x) > 0, else V_B         what is lost by going on
    G_S(x) = E[ l_S + lam * c_S - W_S | x_S ]    what going on gains
    V_S    = W_S if G_S(x) > 0, else l_S + lam * c_S

``D_S`` is the choice between the ways and ``G_S`` the gate, each a small regression on the features at hand.  Where one
of the two stages holds the other there is nothing to choose: the smaller one is on the way to the larger one, and what
it shows costs nothing more.

The fitted model is a tree.  A state that rows come to by two ways is two nodes of it, with the same expert and the
same gates, and a state with a gate and a choice is two as well, the choice below the gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from .chain import Chain
from .expert import Expert
from .gates import NEGLIGIBLE, RARE, Gate, could_pay, gate_for, last_worthwhile, learn_gate

__all__ = ["MOST_NODES", "Crossing", "could_choose", "cross"]

MOST_NODES = 64  # of the tree


@dataclass(frozen=True, eq=False)
class Crossing:
    """A tree of stages of two orders, and what leads from each to the next.

    Attributes
    ----------
    parents, is_upper : list
        Of each node, the node above it (-1 at the root), and whether rows come by its upper side.
    experts : list of Expert
        One for each node.
    gates : list of Gate or None
        What each node routes with: to the upper side above zero.  None where all rows stop.
    value : ndarray of shape (n,)
        Expected risk + cost_weight * price at each row that teaches gates, out of fold, with the shifts of the chains.
    mean_value : float
        What is compared with other candidates than chains.
    mean_cost : float
        What a row pays on average.
    loss : float
        What was minimised: without shifts, so that it compares with chains over the same rows.
    reached : ndarray
        Share of the training rows that stops at each node at which rows stop, out of fold.
    at, stops : int ndarray of shape (n,)
        The rows that teach gates, among those of the chains, and the node at which each of them stops.
    paid : ndarray of shape (n,)
        What each of them pays until then.
    """

    parents: list[int]
    is_upper: list[bool]
    experts: list[Expert]
    gates: list[Gate | None]
    value: np.ndarray
    mean_value: float
    mean_cost: float
    loss: float
    reached: np.ndarray
    at: np.ndarray
    stops: np.ndarray
    paid: np.ndarray

    @property
    def chooses(self) -> bool:
        """Whether rows go different ways; otherwise it is a chain."""
        return len(set(self.parents)) < len(self.parents)


@dataclass(frozen=True, eq=False)
class _State:
    """A stage of one order or of both, and the states that a row may go on to."""

    chain: Chain
    stage: int
    ways: Sequence[int]
    can_gate: bool  # it needs features, and experts that know more after it


@dataclass(frozen=True, eq=False)
class _Decision:
    """What rows do that come to a state: who goes on, who by the first way, what every row then loses and pays."""

    goes: np.ndarray
    by_first: np.ndarray
    value: np.ndarray
    paid: np.ndarray
    ways: Sequence[int] = ()
    gate: Gate | None = None
    choice: Gate | None = None


def cross(chains: Sequence[Chain], cost_weight: float) -> Crossing | None:
    """Gates and choices on the stages of two orders over the same rows; None where no row has a choice to make."""
    states = _states(chains, [last_worthwhile(chain, cost_weight) for chain in chains])
    if all(len(state.ways) < 2 for state in states):
        return None
    # From the largest sets to the smallest; choices that the tree has no room for are taken back.
    decided: dict[int, _Decision] = {}
    without: set[int] = set()
    order = _reachable(states)[::-1]
    start = order[0]
    while True:
        for number in order[order.index(start) :]:
            decided[number] = _decide(states[number], decided, cost_weight, may_choose=number not in without)
        if _n_nodes(decided, 0) <= MOST_NODES:
            return _tree(states, decided)
        start = _least_useful(states, decided)
        without.add(start)


def could_choose(chains: Sequence[Chain], cost_weight: float) -> bool:
    """Whether rows that stop where it is best for them, in either order, would lose noticeably less than in one."""
    losses = [(chain.losses + cost_weight * chain.prices).min(axis=1) for chain in chains]
    one, both = min(map(chains[0].mean, losses)), chains[0].mean(np.minimum.reduce(losses))
    return one - both > NEGLIGIBLE * one


def _states(chains: Sequence[Chain], lasts: Sequence[int]) -> list[_State]:
    """The stages of two orders up to their last ones, equal ones once, each before those that hold more."""
    places: dict[tuple[bytes, int], dict[int, int]] = {}  # where each state is found: by the order, the stage
    keys = []
    for order, (chain, last) in enumerate(zip(chains, lasts, strict=True)):
        keys.append([(chain.stages[k].columns.tobytes(), id(chain.experts[k])) for k in range(last + 1)])
        for stage, key in enumerate(keys[-1]):
            places.setdefault(key, {})[order] = stage
    first = {key: next(iter(found.items())) for key, found in places.items()}
    columns = {key: chains[order].stages[stage].columns for key, (order, stage) in first.items()}
    ranked = sorted(places, key=lambda key: len(columns[key]))  # stable: of equal sets, the hasty expert comes first
    numbers = {key: number for number, key in enumerate(ranked)}

    def holds(key: tuple[bytes, int], other: tuple[bytes, int]) -> bool:
        return len(columns[key]) > len(columns[other]) and bool(np.isin(columns[other], columns[key]).all())

    states = []
    for key in ranked:
        ways = []
        for order, own in enumerate(keys):
            if order in places[key]:
                ways += own[places[key][order] + 1 :][:1]
            else:
                ways += [each for each in own if holds(each, key)][:1]
        # one that holds the other is not a way of its own; nor is any, beside a better expert on the same columns
        ways = [way for way in dict.fromkeys(ways) if not any(holds(way, other) for other in ways)]
        can_gate = len(columns[key]) > 0 and all(holds(way, key) for way in ways)
        order, stage = first[key]
        states.append(_State(chains[order], stage, [numbers[way] for way in ways], can_gate))
    return states


def _reachable(states: Sequence[_State]) -> list[int]:
    """The states that rows may come to from the first one, in their order."""
    found = {0}
    for number, state in enumerate(states):
        if number in found:
            found |= set(state.ways)
    return sorted(found)


def _decide(state: _State, decided: dict[int, _Decision], cost_weight: float, *, may_choose: bool) -> _Decision:
    """What is best out of fold: all rows stop, all go by one way, or gate and choice tell."""
    chain, stage, n = state.chain, state.stage, len(state.chain.at)
    everyone = np.full(n, True)
    # 1. What a row loses that stops here, and what it loses by each way.
    here = np.full(n, chain.prices[stage])
    stopping = chain.losses[:, stage] + cost_weight * here
    found = [_Decision(~everyone, everyone, stopping, here)]
    onward = [_Decision(everyone, everyone, decided[way].value, decided[way].paid, [way]) for way in state.ways]
    found += onward
    if not onward or not state.can_gate:
        return min(found, key=lambda each: chain.mean(each.value))

    def promises(way: _Decision) -> float:
        """What a perfect gate before it would leave: rows that stop here do not mind where it leads."""
        return chain.mean(np.minimum(stopping, way.value))

    # 2. The choice: a regression of D_S on the features at hand, where perfect choices would be noticed.
    best = min(onward, key=promises)
    if len(onward) == 2 and may_choose:
        a, b = onward
        perfect = replace(best, value=np.minimum(a.value, b.value))
        if promises(best) - promises(perfect) > NEGLIGIBLE * promises(best):
            choice, said = learn_gate(chain, stage, b.value - a.value)
            first = said > 0
            if _has_both(chain, first, ~first):
                value = np.where(first, a.value, b.value) + cost_weight * chain.gate_price
                paid = np.where(first, a.paid, b.paid) + chain.gate_price
                found.append(_Decision(everyone, first, value, paid, list(state.ways), choice=choice))
                best = min(best, found[-1], key=promises)
    # 3. The gate: a regression of G_S.
    gain = stopping - best.value
    if could_pay(chain, gain, best.value):
        gate, said = gate_for(chain, stage, gain)
        goes = said > 0
        if best.choice is not None and not _has_both(chain, goes & best.by_first, goes & ~best.by_first):
            return _decide(state, decided, cost_weight, may_choose=False)
        if _has_both(chain, goes, ~goes):
            value = np.where(goes, best.value, stopping) + cost_weight * chain.gate_price
            paid = np.where(goes, best.paid, here) + chain.gate_price
            found.append(replace(best, goes=goes, value=value, paid=paid, gate=gate))
    # 4. What is best is V_S.
    return min(found, key=lambda each: chain.mean(each.value))


def _has_both(chain: Chain, some: np.ndarray, others: np.ndarray) -> bool:
    """Whether neither of two sorts of rows is next to none."""
    return min(chain.mean(some), chain.mean(others)) >= RARE


def _n_nodes(decided: dict[int, _Decision], number: int) -> int:
    """Of the tree below a state; one that all rows pass is no node."""
    known: dict[int, int] = {}

    def count(number: int) -> int:
        if number not in known:
            decision = decided[number]
            own = (decision.gate is not None) + (decision.choice is not None)
            known[number] = max(1, own + sum(count(way) for way in decision.ways))
        return known[number]

    return count(number)


def _least_useful(states: Sequence[_State], decided: dict[int, _Decision]) -> int:
    """The choice whose rows would lose least more if all of them went by the better one of its ways."""
    chain = states[0].chain
    comes = {number: np.zeros(len(chain.at), dtype=bool) for number in decided}
    comes[0][:] = True
    gains = {}
    for number in sorted(decided):  # those that lead to a state come before it
        decision = decided[number]
        on = comes[number] & decision.goes
        for way, taken in zip(decision.ways, (decision.by_first, ~decision.by_first), strict=False):
            comes[way] |= on & taken
        if decision.choice is not None and comes[number].any():
            a, b = (decided[way].value for way in decision.ways)
            chosen = chain.mean(on * np.where(decision.by_first, a, b))
            gains[number] = min(chain.mean(on * a), chain.mean(on * b)) - chosen
    return min(gains, key=lambda number: gains[number])


@dataclass(eq=False)
class _Growing:
    """The tree as it is unfolded, node by node."""

    stops: np.ndarray
    parents: list[int] = field(default_factory=list)
    is_upper: list[bool] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    gates: list[Gate | None] = field(default_factory=list)

    def add(self, state: int, gate: Gate | None, parent: int, upper: bool) -> int:
        self.parents.append(parent)
        self.is_upper.append(upper)
        self.states.append(state)
        self.gates.append(gate)
        return len(self.parents) - 1


def _tree(states: Sequence[_State], decided: dict[int, _Decision]) -> Crossing:
    """The graph, unfolded from the first state, with the training rows sent down."""
    chain, n = states[0].chain, len(states[0].chain.at)
    tree = _Growing(np.full(n, -1))

    def grow(number: int, comes: np.ndarray, parent: int, upper: bool) -> None:
        decision = decided[number]
        if decision.gate is not None or not decision.ways:
            parent, upper = tree.add(number, decision.gate, parent, upper), True
            tree.stops[comes & ~decision.goes] = parent
            comes = comes & decision.goes
        if decision.choice is not None:
            parent = tree.add(number, decision.choice, parent, upper)
            grow(decision.ways[0], comes & decision.by_first, parent, True)
            grow(decision.ways[1], comes & ~decision.by_first, parent, False)
        elif decision.ways:
            grow(decision.ways[0], comes, parent, upper)

    grow(0, np.full(n, True), -1, True)
    own = [states[number] for number in tree.states]
    shifts = np.array([state.chain.shifts[state.stage] for state in own])
    value = decided[0].value + shifts[tree.stops]
    is_end = np.full(len(own), True)  # whether rows stop there: not where both sides lead on
    for node, (number, gate) in enumerate(zip(tree.states, tree.gates, strict=True)):
        is_end[node] = gate is None or gate is not decided[number].choice
    return Crossing(
        parents=tree.parents,
        is_upper=tree.is_upper,
        experts=[state.chain.experts[state.stage] for state in own],
        gates=tree.gates,
        value=value,
        mean_value=chain.mean(value),
        mean_cost=chain.mean(decided[0].paid),
        loss=chain.mean(decided[0].value),
        reached=np.array([chain.mean(tree.stops == node) for node in np.flatnonzero(is_end)]),
        at=chain.at,
        stops=tree.stops,
        paid=decided[0].paid,
    )
