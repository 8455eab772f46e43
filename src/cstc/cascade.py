"""The default method: a chain of experts on growing sets of features, and gates that stop each row in time.

1. Two orders of buying are cut into stages, nested sets of features (`purchases`).
2. Each stage gets an expert, the best predictor on its features, cross-fitted (`experts`).
3. For the given cost weight, gates are learned from the last stage to the first (`induction`), and the order with the
   smaller expected loss is taken.  Stages that all rows pass are left out.
4. The end of the chain, or all of it, may be an expert that buys on its branches, if that is expected to be better
   (`lazy`).

The first two steps do not know the cost weight, so a whole frontier shares them.  Rows never teach twice: experts
answer gates out of fold, gates answer each other from the other half, and validation rows teach nothing at all, so
that they can choose between cost weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .costs import ResolvedCosts
from .experts import Expert, grow_expert
from .induction import ROUNDS, Chain, Gate, calibrated_mean, induce
from .lazy import LazyExperts
from .model import FittedTree, Schema
from .pool import TreePool
from .purchases import Stage, nested_sets, unit_of_prices
from .settings import Sample, Settings, Trained
from .tree import TreeShape
from .weak_learners import Boosting

__all__ = ["folds_of", "train_experts"]

HASTE = 8  # so many times fewer and larger steps
#: What keeps experts from learning noise; chosen on small and middle-sized data alike.
REGULARISED = {"feature_fraction": 0.7, "row_fraction": 0.8, "l2": 2.0}


@dataclass(frozen=True, eq=False)
class Family:
    """All that does not depend on the cost weight."""

    boosting: Boosting
    chains: list[Chain]
    lazy: LazyExperts
    everything: Expert  # on all features: the model of cost weight 0
    risk: float  # of that expert, out of fold
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
    """Fit a chain of experts; `shared` keeps the family for fits with other cost weights."""
    if "experts" not in shared:
        shared["experts"] = _grow_family(sample, loss, costs, settings, report)
    family: Family = shared["experts"]
    if settings.cost_weight == 0:
        experts, gates = [family.everything], []
        history, reached = np.array([family.risk]), np.ones(1)
    else:
        report("gates")
        cost_weight = settings.cost_weight / family.y_scale**2
        policies = [(chain, induce(chain, cost_weight)) for chain in family.chains]
        chain, policy = min(policies, key=lambda pair: pair[1].loss)
        members = list(chain.experts)
        lazy = family.lazy.find(cost_weight, policy.value)
        if lazy is not None:
            with_lazy = induce(chain, cost_weight, lazy)
            if with_lazy.loss < policy.loss:
                policy, members = with_lazy, [*members, lazy.expert]
        experts, gates = [members[stage] for stage in policy.stages], policy.gates
        history, reached = policy.loss_history, policy.reached
    model = _assemble(experts, gates, family, costs, loss, schema)
    return Trained(model, [history * family.y_scale**2], True, reached)


def _grow_family(
    sample: Sample, loss: Any, costs: ResolvedCosts, settings: Settings, report: Callable[[str], None]
) -> Family:
    y_offset, y_scale = 0.0, 1.0
    if loss.name == "squared":  # LightGBM keeps targets in single precision: a large offset would swallow them
        y_offset, y_scale = sample.units()
        sample = sample.in_units(y_offset, y_scale)
    X, y, weights = sample.X, sample.y, sample.weights
    constant = loss.constant(y, weights)
    boosting = Boosting(
        loss_name=loss.name,
        constant=constant,
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
    folds = folds_of(sample, settings.cross_fit, settings.random_state, None if loss.name == "squared" else y)
    half = folds_of(sample, 2, settings.random_state + 1, None) == 0
    if len(np.unique(folds)) < 2 or half.all() or not half.any():
        what = "rows" if sample.qid is None else "whole queries"
        raise ValueError(f"experts are fitted in folds of {what}, and the data has too few of them; give more")
    grown: dict[tuple[bytes, int], Expert] = {}

    def expert(columns: np.ndarray, boosting: Boosting = boosting) -> Expert:
        key = columns.tobytes(), boosting.n_rounds
        if key not in grown:
            report(f"expert {len(grown) + 1}, on {len(columns)} features")
            grown[key] = grow_expert(boosting, X, y, weights, folds, columns)
        return grown[key]

    everything = expert(np.arange(X.shape[1]))
    report("orders of buying")
    risk = _risk(loss, np.tile(constant, (len(y), 1)), sample)  # of the constant prediction
    chains = nested_sets(boosting, X, y, weights, risk)
    experts = [[expert(stage.columns) for stage in chain] for chain in chains]
    if costs.evaluation:  # where a tree has a price, a stage may also stop with few large steps
        hasty = replace(
            boosting,
            n_rounds=max(1, settings.n_weak_learners // HASTE),
            learning_rate=min(0.5, settings.learning_rate * HASTE),
        )
        for chain, members in zip(chains, experts, strict=True):
            for at in [at for at, stage in reversed(list(enumerate(chain))) if len(stage.columns)]:
                members.insert(at, expert(chain[at].columns, hasty))
                chain.insert(at, chain[at])
    mean = calibrated_mean(loss, constant, list(grown.values()), y, weights)
    return Family(
        boosting,
        [
            Chain(
                stages,
                members,
                np.column_stack([loss.expected(member.margins, mean) for member in members]),
                _prices(stages, members, costs),
                costs.evaluation * ROUNDS * _gate_members(costs),
                X,
                weights,
                half,
                settings.categorical,
                settings.random_state,
                settings.n_jobs,
            )
            for stages, members in zip(chains, experts, strict=True)
        ],
        LazyExperts(
            boosting,
            X,
            y,
            weights,
            folds,
            unit_of_prices(costs, risk),
            lambda margins, at: loss.expected(margins, mean[at]),
        ),
        everything,
        _risk(loss, everything.margins, sample),
        y_offset,
        y_scale,
    )


def _prices(stages: Sequence[Stage], experts: Sequence[Expert], costs: ResolvedCosts) -> np.ndarray:
    """What a row pays that stops at each stage, without the gates on its way."""
    learners = np.array([expert.pool.n_learners for expert in experts])
    return np.array([stage.price for stage in stages]) + costs.evaluation * learners


def _gate_members(costs: ResolvedCosts) -> int:
    """Both regressions of a gate, or one where evaluating a tree has a price."""
    return 1 if costs.evaluation else 2


def _risk(loss: Any, margins: np.ndarray, sample: Sample) -> float:
    return float(np.average(loss.value_and_derivative(margins, sample.y)[0], weights=sample.weights))


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


def _assemble(
    experts: Sequence[Expert],
    gates: Sequence[Gate],
    family: Family,
    costs: ResolvedCosts,
    loss: Any,
    schema: Schema,
) -> FittedTree:
    """The chain as a tree of classifiers: a node predicts with its expert and routes with its gate."""
    routes = [gate.trees(_gate_members(costs)) for gate in gates]
    pools = [expert.pool for expert in experts] + [pool for pool, _ in routes]
    ends = np.cumsum([0] + [pool.n_learners for pool in pools])
    n_nodes, n_outputs = len(experts), loss.n_outputs
    predict_weights = np.zeros((ends[-1], n_nodes, n_outputs))
    route_weights = np.zeros((ends[-1], n_nodes))
    for node, expert in enumerate(experts):
        predict_weights[ends[node] : ends[node + 1], node] = expert.weights * family.y_scale
    for node, (_, weights) in enumerate(routes):
        at = n_nodes + node
        route_weights[ends[at] : ends[at + 1], node] = weights
    constant = family.boosting.constant * family.y_scale + family.y_offset
    return FittedTree(
        pool=TreePool.concatenate(pools),
        shape=TreeShape.chain(n_nodes),
        predict_weights=predict_weights,
        predict_intercepts=np.tile(constant, (n_nodes, 1)),
        route_weights=route_weights,
        thresholds=np.zeros(n_nodes),
        constant=constant,
        costs=costs,
        link={"squared": "identity"}.get(loss.name, loss.name),
        schema=schema,
    )
