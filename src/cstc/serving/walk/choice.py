"""How one row goes through the weak learners while its features are still coming in.

Three ways give the same, each with a plan that is made once for a model and a walk for each row: `native`, where
compiled code was built, and otherwise `pointers` and `bits`, in Python alone.  For the latter two, learners that are
never needed together, such as the experts of different nodes, have plans of their own: a row that does not come to a
node does nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ...model import FittedTree, TreePool, native
from . import bits
from .bits import BitPlan
from .native import NativePlan
from .pointers import PointerPlan
from .trees import trees_of

__all__ = ["BlockPlan", "Plan", "Walk", "plan_for", "plan_in_python"]


class Walk(Protocol):
    """One row on its way through the learners."""

    pending: int  #: learners of the current step that are not evaluated yet

    def fill(self, feature: int, value: float) -> None:
        """A feature's value is known now."""

    def begin(self, step: Any) -> None:
        """Take up the learners of a step."""

    def advance(self) -> Sequence[int]:
        """Evaluate the learners of the step as far as the known features allow; the features that are missing."""

    def sums(self, weights: Any) -> list[float]:
        """Weighted sums over learners that are evaluated."""

    def try_sums(self, step: Any, weights: Any) -> tuple[int, list[float]] | None:
        """Evaluate learners without asking for anything: how many were new and the sums; None if one must wait."""


class Plan(Protocol):
    """A pool of learners, prepared for walks."""

    def start(self) -> Walk:
        """A walk of a row of which nothing is known."""

    def step(self, learners: list[int]) -> Any:
        """Learners that are evaluated together, in growing order, in the form that `Walk.begin` takes."""

    def weights(self, weights: np.ndarray) -> Any:
        """Weights (n_learners, n_outputs), in the form that `Walk.sums` takes."""


def plan_for(model: FittedTree) -> Plan:
    """The quickest way through the learners of a model."""
    if native.available():
        return NativePlan(model.pool, model.walker)
    # what a node routes with, and what it predicts with, is evaluated together
    together = np.stack([model.route_learners, model.predict_learners], axis=1)
    together = together.reshape(2 * model.shape.n_nodes, model.pool.n_learners)
    together = np.concatenate([together, (model.fallback_weights != 0).any(axis=2).T])
    return plan_in_python(model.pool, len(model.schema.feature_names), together)


def plan_in_python(pool: TreePool, n_features: int, together: np.ndarray) -> Plan:
    """The quickest way where there is no compiled code.

    `together` is a bool table (n_sets, n_learners): steps and weights never mix learners that no chain of sets joins.
    """
    blocks = _blocks(together)
    trees = trees_of(pool)
    left = bits.MOST_BYTES
    plans: list[Plan] = []
    for block in blocks:
        members = [trees[t] for t in block.tolist()]
        if BitPlan.suits(members) and BitPlan.n_table_bytes(members) <= left:
            left -= BitPlan.n_table_bytes(members)
            plans.append(BitPlan(members, n_features))
        else:
            plans.append(PointerPlan(members, n_features))
    return plans[0] if len(plans) == 1 and len(blocks[0]) == len(trees) else BlockPlan(plans, blocks, len(trees))


def _blocks(together: np.ndarray) -> list[np.ndarray]:
    """Learners that sets join, those of the first sets first; learners of no set are left out."""
    n = together.shape[1]
    label = np.full(n, -1)
    for number, members in enumerate(together):
        joined = np.unique(label[members])
        label[members | np.isin(label, joined[joined >= 0])] = joined[joined >= 0].min(initial=number)
    blocks = [np.flatnonzero(label == number) for number in np.unique(label[label >= 0])]
    return blocks or [np.zeros(0, dtype=int)]


#: The number of a block, and what its plan made of a step or of weights.
InBlock = tuple[int, Any]


class BlockPlan:
    """Learners in blocks, each with a plan of its own."""

    def __init__(self, plans: list[Plan], blocks: list[np.ndarray], n_learners: int) -> None:
        self.plans = plans
        self._blocks = blocks
        self._block = np.full(n_learners, -1)
        self._place = np.full(n_learners, -1)
        for number, block in enumerate(blocks):
            self._block[block], self._place[block] = number, np.arange(len(block))

    def start(self) -> BlockWalk:
        return BlockWalk(self)

    def step(self, learners: list[int]) -> InBlock:
        block = self._only(np.array(learners, dtype=int))
        return block, self.plans[block].step(self._place[learners].tolist() if learners else [])

    def weights(self, weights: np.ndarray) -> InBlock:
        block = self._only(np.flatnonzero(weights.any(axis=1)))
        return block, self.plans[block].weights(weights[self._blocks[block]])

    def _only(self, learners: np.ndarray) -> int:
        """The block of these learners; no learners are in the first one."""
        found = np.unique(self._block[learners])
        if len(found) > 1:
            raise ValueError("learners of different blocks in one step")  # `plan_for` was told otherwise
        return int(found[0]) if len(found) else 0


class BlockWalk:
    """A row in the blocks that it has come to; the others know nothing of it yet."""

    __slots__ = ("_at", "_known", "_plan", "_seen", "_walks", "pending")

    def __init__(self, plan: BlockPlan) -> None:
        self._plan = plan
        self._known: list[tuple[int, float]] = []
        self._walks: list[Walk | None] = [None] * len(plan.plans)
        self._seen = [0] * len(plan.plans)  # of `_known`, by block
        self._at = 0  # the block of the current step
        self.pending = 0

    def _in_block(self, block: int) -> Walk:
        """The walk there, with all that is known."""
        walk = self._walks[block]
        if walk is None:
            walk = self._walks[block] = self._plan.plans[block].start()
        known = self._known
        if self._seen[block] < len(known):
            for feature, value in known[self._seen[block] :]:
                walk.fill(feature, value)
            self._seen[block] = len(known)
        return walk

    def fill(self, feature: int, value: float) -> None:
        self._known.append((feature, value))

    def begin(self, step: InBlock) -> None:
        self._at, inner = step
        walk = self._in_block(self._at)
        walk.begin(inner)
        self.pending = walk.pending

    def advance(self) -> Sequence[int]:
        walk = self._in_block(self._at)
        features = walk.advance()
        self.pending = walk.pending
        return features

    def sums(self, weights: InBlock) -> list[float]:
        return self._in_block(weights[0]).sums(weights[1])

    def try_sums(self, step: InBlock, weights: InBlock) -> tuple[int, list[float]] | None:
        return self._in_block(step[0]).try_sums(step[1], weights[1])
