"""The models that compete: chains by each order of buying, both in one tree, branches, and a chain with a lazy end.

Growing comes first and selection last.  What an order of buying is worth is known when its gates are learned; branches
and lazy ends take longest, and are grown only where one fold says that they have a chance.  What has none is a
candidate too, with that verdict, so that everybody can see why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..capacity import MANY_ROWS
from ..costs import ResolvedCosts
from ..model import TreeShape
from ..model.build import Score
from ..needs import needs_of
from ..parting import part
from .branches import Branching, Groups, tried, tried_together
from .chain import Chain, ChainGrower, Chains, gate_members
from .crossings import Crossing, could_choose, cross
from .expert import Expert
from .gates import Policy, expect_gates, induce
from .lazy import LazyExperts

__all__ = ["Candidate", "Family", "Nodes", "candidates_for", "everything_of", "least_of"]

#: Gates of two orders on many rows saved between 0 and 0.35 of what perfect ones would, and where one of them saved
#: little, the other one saved 0.14 at most (three sets of 12,000 to 48,000 rows).
LEAST_REACH = 0.4
MOST_TRIED = 4  # partitions
TRIED_AT = (1.0, 8.0)  # times the cost weight that shows the most promising partition best
BETTER = 1.5  # times as much as the gates of the order that is known


@dataclass(frozen=True, eq=False)
class Family:
    """All that fits with other cost weights share.

    Attributes
    ----------
    grower : ChainGrower
    grown : Chains
        For all rows; the expert on all features is the model of cost weight 0.
    lazy : LazyExperts
    core : int ndarray or None
        The training rows that all of this is known at, where that is not all of them.
    measured : dict
        What `fallbacks` has grown and measured.
    """

    grower: ChainGrower
    grown: Chains
    lazy: LazyExperts
    core: np.ndarray | None = None
    measured: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def groups(self) -> Groups | str:
        """Groups of rows that need different features; or why there are none."""
        return _groups_of(self)

    def numbers(self, at: np.ndarray) -> np.ndarray:
        """Rows that it knows, as training rows."""
        return at if self.core is None else self.core[at]


@dataclass(frozen=True, eq=False)
class Nodes:
    """A tree of classifiers in the making.

    Attributes
    ----------
    shape : TreeShape
    experts : sequence of Expert
        What each node predicts with.
    routes : sequence of Score or None
        What each node routes with; None at leaf classifiers.
    reached : ndarray
        Share of the training rows at each terminal, out of fold.
    at, stops : int ndarray
        Training rows, and the node whose answer each of them gets, out of fold.
    rows : sequence of int ndarray or None
        For each node, the training rows that its expert was grown for; None: all.
    """

    shape: TreeShape
    experts: Sequence[Expert]
    routes: Sequence[Score | None]
    reached: np.ndarray
    at: np.ndarray
    stops: np.ndarray
    rows: Sequence[np.ndarray | None]

    @classmethod
    def chain(cls, experts: Sequence[Expert], policy: Policy, costs: ResolvedCosts) -> Nodes:
        routes = [gate.score(gate_members(costs)) for gate in policy.gates]
        n_nodes = len(policy.stages)
        return cls(
            TreeShape.chain(n_nodes),
            [experts[stage] for stage in policy.stages],
            [*routes, None],
            policy.reached,
            policy.at,
            np.searchsorted(policy.stages, policy.stops),
            [None] * n_nodes,
        )

    @classmethod
    def crossing(cls, crossing: Crossing, costs: ResolvedCosts) -> Nodes:
        # nodes of one state share what they route with
        scores = {id(gate): gate.score(gate_members(costs)) for gate in crossing.gates if gate is not None}
        return cls(
            TreeShape.from_parents(crossing.parents, crossing.is_upper),
            crossing.experts,
            [None if gate is None else scores[id(gate)] for gate in crossing.gates],
            crossing.reached,
            crossing.at,
            crossing.stops,
            [None] * len(crossing.experts),
        )

    @classmethod
    def branching(cls, branching: Branching, costs: ResolvedCosts) -> Nodes:
        """Splits first, then one chain after the other."""
        partition = branching.partition
        n_splits = partition.splits.n_learners
        hung_on, is_above = partition.parents()
        parents, is_upper = hung_on[:n_splits], is_above[:n_splits]
        experts = list(branching.answers)
        routes: list[Score | None] = [
            Score(partition.splits.subset(np.array([k])), np.ones((1, 1)), np.zeros(1)) for k in range(n_splits)
        ]
        at, stops, n_gates = [], [], 0
        rows: list[np.ndarray | None] = [None] * n_splits
        for group, (chain, policy) in enumerate(branching.chosen):
            parent, upper = hung_on[n_splits + group], is_above[n_splits + group]
            at.append(branching.rows[group][policy.at])
            stops.append(len(parents) + np.searchsorted(policy.stages, policy.stops))
            rows += [branching.rows[group]] * len(policy.stages)
            for _ in policy.stages:
                parents.append(parent)
                is_upper.append(upper)
                parent, upper = len(parents) - 1, True
            experts += [chain.experts[stage] for stage in policy.stages]
            gates = policy.gates
            if chain.queries is not None:
                gates = [gate.placed(chain.rows.X.shape[1], n_gates + number) for number, gate in enumerate(gates)]
            n_gates += len(gates)
            routes += [*[gate.score(gate_members(costs)) for gate in gates], None]
        shape = TreeShape.from_parents(parents, is_upper)
        return cls(shape, experts, routes, branching.reached, np.concatenate(at), np.concatenate(stops), rows)

    def out_of_fold(self) -> tuple[np.ndarray, np.ndarray]:
        """Training rows in rising order, and the margins that each of them gets where it stops, out of fold."""
        order = np.argsort(self.at, kind="stable")
        at, stops = self.at[order], self.stops[order]
        margins = np.empty((len(at), self.experts[0].margins.shape[1]))
        for node in np.unique(stops):
            here, rows = stops == node, self.rows[node]
            # an expert of a group knows the rows of the group alone
            numbers = at[here] if rows is None else np.searchsorted(rows, at[here])
            margins[here] = self.experts[node].margins[numbers]
        return at, margins


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model that could be taken.

    Attributes
    ----------
    name : str
    loss : float
        Expected risk + cost_weight * cost, out of fold, shifted to what was observed; NaN if it was not grown.
    cost : float
        What a row pays on average.
    why_not : str
        Why it is out of the running.
    grown : (experts, Policy), Crossing or Branching
        What its nodes are made of.
    history : ndarray
        The loss after each step.
    """

    name: str
    loss: float = math.nan
    cost: float = math.nan
    why_not: str = ""
    grown: tuple[Sequence[Expert], Policy] | Crossing | Branching | None = None
    history: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def value(self) -> np.ndarray:
        """Its loss at each training row."""
        assert self.grown is not None
        return self.grown[1].value if isinstance(self.grown, tuple) else self.grown.value

    def paid(self) -> tuple[np.ndarray, np.ndarray]:
        """Training rows, and what each of them pays, out of fold."""
        assert self.grown is not None
        if isinstance(self.grown, Branching):
            parts = zip(self.grown.rows, self.grown.prices, self.grown.chosen, strict=True)
            found = [(rows[policy.at], price + policy.paid) for rows, price, (_, policy) in parts]
            return np.concatenate([at for at, _ in found]), np.concatenate([paid for _, paid in found])
        policy = self.grown[1] if isinstance(self.grown, tuple) else self.grown
        return policy.at, policy.paid

    def nodes(self, costs: ResolvedCosts) -> Nodes:
        assert self.grown is not None
        if isinstance(self.grown, Branching):
            return Nodes.branching(self.grown, costs)
        if isinstance(self.grown, Crossing):
            return Nodes.crossing(self.grown, costs)
        return Nodes.chain(*self.grown, costs)


def everything_of(family: Family) -> Candidate:
    """The expert on all features: what is taken if nothing is weighed."""
    everything, costs = family.grown.everything, family.grower.boosting.costs
    losses = np.array([family.grower.lost(everything.margins)])
    cost = costs.full_cost + everything.price(costs)
    at = family.grower.teachers  # the rows at which all other candidates are known
    n = len(at)
    stops = np.zeros(n, dtype=int)
    alone = Policy([0], [], np.zeros(0), losses[0], cost, losses, np.ones(1), at, stops, np.full(n, cost))
    return Candidate("expert on all features", losses[0], cost, "", ([everything], alone), losses)


def candidates_for(family: Family, cost_weight: float) -> list[Candidate]:
    """All that competes for a cost weight, from what is grown first to what is grown last."""
    chains, best = _chain_candidates(family, cost_weight)
    crossing = _crossing_candidate(family, cost_weight, chains[best])
    if crossing.grown is not None and not crossing.why_not:
        chains[best] = replace(chains[best], why_not="no better than two orders, before shifts")
    orders = [*chains, crossing]
    branches = _branches_candidate(family, cost_weight, least_of(orders))
    lazy = _lazy_candidate(family, cost_weight, family.grown.chains[best], least_of([*orders, branches]))
    return [*orders, branches, lazy]


def least_of(candidates: Sequence[Candidate]) -> Candidate:
    """The one to take: the least expected loss of those in the running."""
    return min((candidate for candidate in candidates if not candidate.why_not), key=lambda candidate: candidate.loss)


def _chain_candidates(family: Family, cost_weight: float) -> tuple[list[Candidate], int]:
    """A chain for each order of buying, and which of them is in the running.

    Chains over the same rows are compared without shifts: all are charged for the same errors of the best expert, and a
    shift adds the noise of the labels.
    """
    policies = _policies(family.grown.chains, cost_weight)
    best = min(policies, key=lambda number: policies[number].loss)
    found = []
    for number, chain in enumerate(family.grown.chains):
        name = f"chain, {chain.name}"
        if number not in policies:
            found.append(Candidate(name, why_not="no better than the other order, even with better gates"))
            continue
        policy = policies[number]
        why_not = "" if number == best else "no better than the other order, before shifts"
        grown = chain.experts, policy
        found.append(Candidate(name, policy.mean_value, policy.mean_cost, why_not, grown, policy.loss_history))
    return found, best


def _crossing_candidate(family: Family, cost_weight: float, chain: Candidate) -> Candidate:
    """Both orders in one tree, compared with the better one of them as that was with the other: without shifts."""
    chains = family.grown.chains
    if len(chains) < 2:
        return Candidate("two orders", why_not="there is one order alone")
    if chains[0].queries is not None:
        return Candidate("two orders", why_not="gates that see whole queries keep to one order")
    if not could_choose(chains, cost_weight):
        return Candidate("two orders", why_not="perfect choices between them would save next to nothing")
    found = cross(chains, cost_weight)
    if found is None or not found.chooses:
        return Candidate("two orders", why_not="no row would choose")
    before = chain.history[-1]
    why_not = "" if found.loss < before else "no better than one order, before shifts"
    history = np.array([before, found.loss])
    return Candidate("two orders", found.mean_value, found.mean_cost, why_not, found, history)


def _policies(chains: Sequence[Chain], cost_weight: float) -> dict[int, Policy]:
    """The gates of the chains that may be the best one.

    With perfect gates, each would have to beat what is known.  Of many rows gates take long, and real ones get near to
    perfect ones on one order about as they do on the other: they are not learned where even clearly better ones would
    not be enough.
    """
    least = [chain.least_loss(cost_weight) for chain in chains]
    found: dict[int, Policy] = {}
    reach = 1.0  # of what perfect gates would save, what those of another order may
    for number in np.argsort(least, kind="stable").tolist():
        chain = chains[number]
        without = chain.mean(chain.best_stage(cost_weight, shifted=False))
        if found and without - reach * (without - least[number]) >= min(policy.loss for policy in found.values()):
            continue
        expect_gates([chain])
        policy = found[number] = induce(chain, cost_weight)
        if len(chain.rows) >= MANY_ROWS and without > least[number]:
            saved = (without - policy.loss) / (without - least[number])
            reach = min(reach, max(LEAST_REACH, BETTER * saved))
    return found


def _branches_candidate(family: Family, cost_weight: float, chain: Candidate) -> Candidate:
    """Groups that need the same, if there are any."""
    if family.lazy.power(cost_weight) is None:
        return Candidate("branches", why_not=family.lazy.why_none())
    if not family.lazy.matters(cost_weight, chain.value):
        return Candidate("branches", why_not="prices play no part")
    groups = family.groups
    if isinstance(groups, str):
        return Candidate("branches", why_not=groups)
    found = groups.induce(cost_weight)
    history = np.array([chain.loss, found.mean_value])
    return Candidate(f"{groups.partition.n_groups} branches", found.mean_value, found.mean_cost, "", found, history)


def _groups_of(family: Family) -> Groups | str:
    """Of the partitions that promise most, the one that does best when it is tried, if it is better than chains.

    Groups without gates are compared with chains that have them: at the cost weight at which the attributions show
    groups best, or at a larger one, since attributions that features share make everything seem worth less.  Where
    gates see whole queries, with one group of all rows, less what gates save on chains.
    """
    grower, chains = family.grower, family.grown.chains
    grower.report("what rows need")
    needs = needs_of(grower.boosting, grower.rows, grower.half, grower.stakes, grower.factor)
    found = part(needs, family.lazy.unit, np.arange(grower.rows.X.shape[1]), grower.boosting.categorical)
    cost_weights = [factor * found[0].cost_weight for factor in TRIED_AT] if found else []
    known = {}  # what is lost without groups
    for cost_weight in cost_weights:
        policies = _policies(chains, cost_weight).values()
        known[cost_weight] = min(policies, key=lambda policy: policy.loss).mean_value
        if grower.whole_queries is not None:
            # what an order loses is not observed: all rows are tried together, too; gates save the same part of that
            without = min(chain.mean(chain.best_stage(cost_weight)) for chain in chains)
            known[cost_weight] *= tried_together(grower, needs, found[0], cost_weight) / without
    best, least = None, 1.0
    for parted in found[:MOST_TRIED]:
        lost = [tried(grower, needs, parted, each) / known[each] for each in cost_weights]
        cost_weights = [cost_weights[int(np.argmin(lost))]]  # the others are tried only where the first one did best
        if min(lost) < least:
            best, least = parted, min(lost)
    if best is None:
        return "rows do not seem to need different features"
    return Groups.grow(grower, needs, best, chains[0].experts[0])


def _lazy_candidate(family: Family, cost_weight: float, chain: Chain, least: Candidate) -> Candidate:
    """The best chain with an end that buys on its branches."""
    lazy = family.lazy.find(cost_weight, least.value)
    if isinstance(lazy, str):
        return Candidate("lazy end", why_not=lazy)
    expect_gates([chain])
    policy = induce(chain.shifted(), cost_weight, lazy)
    has_one = policy.stages[-1] == len(chain.stages)
    return Candidate(
        f"lazy end, {chain.name}" if has_one else f"chain, {chain.name}, without the lazy end",
        policy.mean_value,
        policy.mean_cost,
        "",
        ([*chain.experts, lazy.expert], policy),
        policy.loss_history,
    )
