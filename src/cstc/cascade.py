"""The default method: experts on growing sets of features, gates that stop each row in time, branches where they pay.

1. Two orders of buying are cut into stages, nested sets of features (`purchases`).
2. Each stage gets an expert, the best predictor on its features, cross-fitted (`experts`).
3. For the given cost weight, gates are learned from the last stage to the first (`induction`), and the order with the
   smaller expected loss is taken.  Stages that all rows pass are left out.
4. The end of the chain, or all of it, may be an expert that buys on its branches (`lazy`).
5. Groups of rows that need different features may get chains of their own (`groups`).

What is expected to lose least is taken, and what has no chance on one fold is not even grown.  Steps 1 and 2 do not
know the cost weight, so a whole frontier shares them; lazy experts and groups are shared by cost weights around a power
of two or four.  Rows never teach twice: experts answer gates out of fold, gates answer each other from the other half,
and validation rows teach nothing at all, so that they can choose between cost weights.  Only how rows are parted into
groups is learned from rows that groups then learn from.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .chains import ChainGrower, Chains, gate_members
from .costs import ResolvedCosts
from .experts import Expert
from .groups import Branching, Groups
from .induction import induce
from .lazy import LazyExperts
from .model import FittedTree, Schema
from .pool import TreePool
from .purchases import unit_of_prices
from .settings import Sample, Settings, Trained
from .tree import TreeShape
from .weak_learners import Boosting

__all__ = ["folds_of", "train_experts"]

#: What keeps experts from learning noise; chosen on small and middle-sized data alike.
REGULARISED = {"feature_fraction": 0.7, "row_fraction": 0.8, "l2": 2.0}


@dataclass(frozen=True, eq=False)
class Family:
    """All that fits with other cost weights share."""

    grower: ChainGrower
    grown: Chains  # for all rows; the expert on all features is the model of cost weight 0
    lazy: LazyExperts
    competes: dict[int, bool]  # whether lazy experts of a strength are better than chains
    groups: dict[int, Groups | None]  # by the strength of the lazy experts whose purchases tell them apart
    y_offset: float
    y_scale: float


def train_experts(
    sample: Sample,
    loss: Any,
    costs: ResolvedCosts,
    schema: Schema,
    settings: Settings,
    report: Callable[[str], None],
    shared: dict[Any, Any],
) -> Trained:
    """Fit a tree of experts; `shared` keeps the family for fits with other cost weights."""
    if "experts" not in shared:
        shared["experts"] = _grow_family(sample, loss, costs, settings, report)
    family: Family = shared["experts"]
    if settings.cost_weight == 0:
        everything = family.grown.everything
        risk = family.grower.risk(everything.margins)
        tree = Nodes.chain([everything], [])
        return _trained(tree, family, schema, np.array([risk]), np.ones(1))
    report("gates")
    cost_weight = settings.cost_weight / family.y_scale**2
    policies = [(chain, induce(chain, cost_weight)) for chain in family.grown.chains]
    chain, policy = min(policies, key=lambda pair: pair[1].loss)
    members, value, least = list(chain.experts), policy.value, policy.mean_value
    groups = _groups(family, cost_weight, value)
    branching = None if groups is None else groups.induce(cost_weight)
    if branching is not None and branching.loss < least:
        value, least = branching.value, branching.loss
    else:
        branching = None
    # an ensemble is grown last: it takes longest, and where there are groups it hardly ever has a chance
    lazy = family.lazy.find(cost_weight, value)
    if lazy is not None:
        with_lazy = induce(chain.shifted(), cost_weight, lazy)
        if with_lazy.mean_value < least:
            policy, members, branching = with_lazy, [*members, lazy.expert], None
    if branching is not None:
        tree = Nodes.branching(branching, costs)
        return _trained(tree, family, schema, np.array([policy.mean_value, branching.loss]), branching.reached)
    gates = [gate.trees(gate_members(costs)) for gate in policy.gates]
    tree = Nodes.chain([members[stage] for stage in policy.stages], gates)
    return _trained(tree, family, schema, policy.loss_history, policy.reached)


def _groups(family: Family, cost_weight: float, value: np.ndarray) -> Groups | None:
    """Groups that buy alike at this cost weight, if rows seem to need different features at all.

    That is so if an ensemble that buys on its branches is better than the best chain, whose value at each row is given,
    here or at a cost weight that is two powers larger.
    """
    power = family.lazy.power(cost_weight)
    if power is None:
        return None
    k = 2 * math.floor(power / 2)
    if not (family.lazy.competes(k, cost_weight, value) or _competes(family, k + 2)):
        return None
    if k not in family.groups:
        bought = [family.lazy.purchases(strength) for strength in (k, k + 2, k + 4)]
        free = family.grown.chains[0].experts[0]
        family.groups[k] = Groups.find(family.grower, bought, free)
    return family.groups[k]


def _competes(family: Family, k: int) -> bool:
    """Whether a lazy expert is better than chains at the cost weight that it was grown for."""
    if k not in family.competes:
        cost_weight = family.lazy.unit * 2.0**k
        best = min((induce(chain, cost_weight) for chain in family.grown.chains), key=lambda policy: policy.loss)
        family.competes[k] = family.lazy.competes(k, cost_weight, best.value)
    return family.competes[k]


def _grow_family(
    sample: Sample, loss: Any, costs: ResolvedCosts, settings: Settings, report: Callable[[str], None]
) -> Family:
    y_offset, y_scale = 0.0, 1.0
    if loss.name == "squared":  # LightGBM keeps targets in single precision: a large offset would swallow them
        y_offset, y_scale = sample.units()
        sample = sample.in_units(y_offset, y_scale)
    boosting = Boosting(
        loss_name=loss.name,
        constant=loss.constant(sample.y, sample.weights),
        costs=costs,
        strengths=(0.0,),
        n_rounds=settings.n_weak_learners,
        depth=settings.weak_learner_depth,
        learning_rate=settings.learning_rate,
        early_stopping=settings.early_stopping,
        categorical=settings.categorical,
        random_state=settings.random_state,
        n_jobs=settings.n_jobs,
        **REGULARISED,
    )
    folds = folds_of(sample, settings.cross_fit, settings.random_state, None if loss.name == "squared" else sample.y)
    half = folds_of(sample, 2, settings.random_state + 1, None) == 0
    if len(np.unique(folds)) < 2 or half.all() or not half.any():
        what = "rows" if sample.qid is None else "whole queries"
        raise ValueError(f"experts are fitted in folds of {what}, and the data has too few of them; give more")
    grower = ChainGrower(sample, loss, boosting, folds, half, settings, report)
    columns = np.arange(sample.X.shape[1])
    grown = grower.grow(np.arange(len(sample.y)), columns, costs.prices == 0)
    unit = unit_of_prices(costs, grower.risk(np.tile(boosting.constant, (len(sample.y), 1))))
    lazy = LazyExperts(boosting, sample.X, sample.y, sample.weights, folds, unit, grown.expected)
    return Family(grower, grown, lazy, {}, {}, y_offset, y_scale)


def folds_of(sample: Sample, n_folds: int, random_state: int, classes: np.ndarray | None = None) -> np.ndarray:
    """A fold for each row; whole queries, or an even share of each class."""
    if n_folds < 2:
        return np.zeros(len(sample.y), dtype=int)
    rng = np.random.default_rng(random_state)
    if sample.qid is not None:
        _, groups = np.unique(sample.qid, return_inverse=True)
        return rng.permutation(np.arange(groups.max() + 1) % n_folds)[groups]
    if classes is None:
        return rng.permutation(np.arange(len(sample.y)) % n_folds)
    folds = np.empty(len(classes), dtype=int)
    folds[np.lexsort((rng.random(len(classes)), classes))] = np.arange(len(classes)) % n_folds
    return folds


Trees = tuple[TreePool, np.ndarray]  # learners, and a weight for each


@dataclass(frozen=True, eq=False)
class Nodes:
    """A tree of classifiers in the making.

    Attributes
    ----------
    shape : TreeShape
    experts : list of Expert
        What each node predicts with.
    routes : list of (TreePool, ndarray) or None
        What each node routes with, and the weights of its learners; None at leaf classifiers.
    """

    shape: TreeShape
    experts: Sequence[Expert]
    routes: Sequence[Trees | None]

    @classmethod
    def chain(cls, experts: Sequence[Expert], gates: Sequence[Trees]) -> Nodes:
        return cls(TreeShape.chain(len(experts)), experts, [*gates, None])

    @classmethod
    def branching(cls, branching: Branching, costs: ResolvedCosts) -> Nodes:
        """Splits first, then one chain after the other."""
        partition = branching.partition
        n_splits = partition.splits.n_learners
        parents, is_upper = [-1] * n_splits, [True] * n_splits
        experts = list(branching.answers)
        routes: list[Trees | None] = [(partition.splits.subset(np.array([k])), np.ones(1)) for k in range(n_splits)]
        above = {}  # of each group, the split and the side that it hangs on
        for split in range(n_splits):
            for side, upper in ((partition.upper, True), (partition.lower, False)):
                if side[split] >= 0:
                    parents[side[split]], is_upper[side[split]] = split, upper
                else:
                    above[-1 - side[split]] = split, upper
        for group, (chain, policy) in enumerate(branching.chosen):
            parent, upper = above[group]
            for _ in policy.stages:
                parents.append(parent)
                is_upper.append(upper)
                parent, upper = len(parents) - 1, True
            experts += [chain.experts[stage] for stage in policy.stages]
            routes += [*[gate.trees(gate_members(costs)) for gate in policy.gates], None]
        return cls(TreeShape.from_parents(parents, is_upper), experts, routes)


def _trained(tree: Nodes, family: Family, schema: Schema, history: np.ndarray, reached: np.ndarray) -> Trained:
    return Trained(_assemble(tree, family, schema), [history * family.y_scale**2], True, reached)


def _assemble(tree: Nodes, family: Family, schema: Schema) -> FittedTree:
    """One pool for all nodes: each predicts with its expert and routes with its gate."""
    boosting, loss = family.grower.boosting, family.grower.loss
    experts = list({id(expert): expert for expert in tree.experts}.values())  # splits share one
    routes = [(node, route) for node, route in enumerate(tree.routes) if route is not None]
    pools = [expert.pool for expert in experts] + [pool for _, (pool, _) in routes]
    ends = np.cumsum([0] + [pool.n_learners for pool in pools])
    start = {id(expert): ends[at] for at, expert in enumerate(experts)}
    n_nodes = tree.shape.n_nodes
    predict_weights = np.zeros((ends[-1], n_nodes, loss.n_outputs))
    route_weights = np.zeros((ends[-1], n_nodes))
    for node, expert in enumerate(tree.experts):
        at = start[id(expert)]
        predict_weights[at : at + expert.pool.n_learners, node] = expert.weights * family.y_scale
    for number, (node, (_, weights)) in enumerate(routes, start=len(experts)):
        route_weights[ends[number] : ends[number + 1], node] = weights
    constants = np.array([expert.constant for expert in tree.experts]) * family.y_scale + family.y_offset
    return FittedTree(
        pool=TreePool.concatenate(pools),
        shape=tree.shape,
        predict_weights=predict_weights,
        predict_intercepts=constants,
        route_weights=route_weights,
        thresholds=np.zeros(n_nodes),
        constant=boosting.constant * family.y_scale + family.y_offset,
        costs=boosting.costs,
        link={"squared": "identity"}.get(loss.name, loss.name),
        schema=schema,
    )
