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
same gates, and a state with a gate and a choice is two as well, the choice below the gate.  A gate or a choice that
tells next to none of the rows apart that come by one way is left out there.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    """What rows do that come to a state: who goes on, who by the first way, and what every row then loses."""

    goes: np.ndarray
    by_first: np.ndarray
    value: np.ndarray
    ways: Sequence[int] = ()
    gate: Gate | None = None
    choice: Gate | None = None


def cross(chains: Sequence[Chain], cost_weight: float) -> Crossing | None:
    """Gates and choices on the stages of two orders over the same rows, which begin with the same stage.

    None where no row has a choice to make.
    """
    states = _states(chains, [last_worthwhile(chain, cost_weight) for chain in chains])
    if all(len(state.ways) < 2 for state in states):
        return None
    # 1. From the largest sets to the smallest.
    decided: dict[int, _Decision] = {}
    for number in _reachable(states)[::-1]:
        decided[number] = _decide(states[number], decided, cost_weight)
    # 2. The tree; of choices that it has no room for, the least useful ones are not made.
    without: set[tuple[int, tuple[int, ...]]] = set()
    while len((tree := _Tree(states, decided, without)).nodes) > MOST_NODES:
        choices = sorted((node for node in tree.nodes if not node.ends), key=lambda node: node.gain)
        if not choices:  # a chain, which may be as long as it is
            break
        n_dropped = max(1, (len(tree.nodes) - MOST_NODES) // 8)  # each takes two nodes with it, or many
        without |= {(node.state, node.turns) for node in choices[:n_dropped]}
    return tree.crossing(cost_weight)


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


def _has_both(chain: Chain, some: np.ndarray, others: np.ndarray) -> bool:
    """Whether neither of two sorts of rows is next to none."""
    return min(chain.mean(some), chain.mean(others)) >= RARE


def _decide(state: _State, decided: dict[int, _Decision], cost_weight: float, *, may_choose: bool = True) -> _Decision:
    """What is best out of fold: all rows stop, all go by one way, or gate and choice tell."""
    chain, stage = state.chain, state.stage
    everyone = np.full(len(chain.at), True)
    # 1. What a row loses that stops here, and what it loses by each way.
    stopping = chain.losses[:, stage] + cost_weight * chain.prices[stage]
    found = [_Decision(~everyone, everyone, stopping)]
    onward = [_Decision(everyone, everyone, decided[way].value, [way]) for way in state.ways]
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
                found.append(_Decision(everyone, first, value, list(state.ways), choice=choice))
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
            found.append(replace(best, goes=goes, value=value, gate=gate))
    # 4. What is best is V_S.
    return min(found, key=lambda each: chain.mean(each.value))


@dataclass(frozen=True, eq=False)
class _Node:
    """A node of the unfolded tree.

    Attributes
    ----------
    state : int
    gate : Gate or None
    parent : int
    is_upper : bool
    ends : bool
        Whether rows stop there: not at a choice.
    turns : tuple of int
        By which way rows came from each choice above it; with the state, this tells nodes apart.
    gain : float
        At a choice, what its rows would lose more if all went by the better one of its ways.
    """

    state: int
    gate: Gate | None
    parent: int
    is_upper: bool
    ends: bool
    turns: tuple[int, ...]
    gain: float = np.inf


class _Tree:
    """The graph, unfolded from the first state, with the training rows sent down."""

    def __init__(self, states: Sequence[_State], decided: dict[int, _Decision], without: Container[Any]):
        self._states, self._decided, self._without = states, decided, without
        self.chain = states[0].chain
        self.nodes: list[_Node] = []
        n = len(self.chain.at)
        self.stops, self.n_asked = np.full(n, -1), np.zeros(n, dtype=int)
        self._grow(0, np.full(n, True), -1, True, ())

    def _grow(self, number: int, comes: np.ndarray, parent: int, is_upper: bool, turns: tuple[int, ...]) -> None:
        """The nodes of a state and of all that follows, for the rows that come there."""
        decision = self._decided[number]
        goes, ways = comes & decision.goes, decision.ways
        # of gate and choice there remains what those rows need that come by this way
        is_gated = decision.gate is not None and self._parts(goes, comes & ~goes)
        if not is_gated and (not ways or self._mean(goes) <= self._mean(comes & ~goes)):
            self.stops[comes] = self._add(_Node(number, None, parent, is_upper, True, turns))
            return
        if is_gated:
            parent, is_upper = self._add(_Node(number, decision.gate, parent, is_upper, True, turns)), True
            self.stops[comes & ~goes] = parent
            self.n_asked += comes
        else:
            goes = comes
        by = [goes & decision.by_first, goes & ~decision.by_first]
        lost = [[self._mean(rows * self._decided[way].value) for way in ways] for rows in by]
        better = 0 if len(ways) < 2 else int(np.argmin(np.sum(lost, axis=0)))
        if decision.choice is None or not self._parts(*by) or (number, turns) in self._without:
            self._grow(ways[better], goes, parent, is_upper, turns)
            return
        gain = float(np.sum(lost, axis=0)[better]) - lost[0][0] - lost[1][1]
        parent = self._add(_Node(number, decision.choice, parent, is_upper, False, turns, gain))
        self.n_asked += goes
        for turn, way in enumerate(ways):
            self._grow(way, by[turn], parent, turn == 0, (*turns, turn))

    def _add(self, node: _Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def _mean(self, values: np.ndarray) -> float:
        return self.chain.mean(values)

    def _parts(self, some: np.ndarray, others: np.ndarray) -> bool:
        """Whether neither sort of the rows that come is next to none of them."""
        sizes = self._mean(some), self._mean(others)
        return min(sizes) > 0 and min(sizes) >= RARE * sum(sizes)

    def crossing(self, cost_weight: float) -> Crossing:
        """What rows lose and pay in the tree as it is."""
        own = [self._states[node.state] for node in self.nodes]
        n = np.arange(len(self.stops))
        losses = np.column_stack([state.chain.losses[:, state.stage] for state in own])[n, self.stops]
        prices, shifts = (
            np.array([getattr(state.chain, what)[state.stage] for state in own]) for what in ("prices", "shifts")
        )
        paid = prices[self.stops] + self.chain.gate_price * self.n_asked
        value = losses + cost_weight * paid
        return Crossing(
            parents=[node.parent for node in self.nodes],
            is_upper=[node.is_upper for node in self.nodes],
            experts=[state.chain.experts[state.stage] for state in own],
            gates=[node.gate for node in self.nodes],
            value=value + shifts[self.stops],
            mean_value=self._mean(value + shifts[self.stops]),
            mean_cost=self._mean(paid),
            loss=self._mean(value),
            reached=np.array([self._mean(self.stops == number) for number, node in enumerate(self.nodes) if node.ends]),
            at=self.chain.at,
            stops=self.stops,
            paid=paid,
        )
