"""Pointers: one row among learners that are nested tuples.

Every split is a tuple ``(slot, bound, yes, no)``: the row goes to ``yes`` if ``values[slot] <= bound``.  That one
comparison serves all kinds of splits, because a feature may have several slots, filled when its value arrives:
the number itself, where a missing value (NaN, for which every comparison is false) goes right; its negative,
where it goes left, since ``x > t`` is ``-x <= b`` with the next number below ``-t`` as ``b``; both once more with
NaN in the place of zero, where LightGBM counted zero as missing; and ``frozenset({code})`` for categories, whose
``<=`` is "is a subset of" the codes that go left.  Slot 0 is never filled.  A leaf is ``(0, output, None,
learner)``, so a walk stops in the same way at a leaf and at a split whose feature is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter, mul
from typing import Any

import numpy as np

from .trees import ZERO, Leaf, Split, Tree

__all__ = ["PointerPlan", "PointerWalk"]

PLAIN, NEGATED, ZERO_MISSING, ZERO_MISSING_NEGATED, CATEGORY = range(5)
UNKNOWN_CATEGORY = frozenset((-1,))

#: ``(slot, bound, yes, no)``, or a leaf ``(0, output, None, learner)`` or ``(0, 0.0, (factor, slot), learner)``.
Place = tuple[int, Any, Any, Any]
#: Learners and their roots.
PointerStep = tuple[list[int], list[Place]]


class PointerPlan:
    """Learners as nested tuples."""

    def __init__(self, trees: list[Tree], n_features: int) -> None:
        self.slot_features = [-1]
        self.fillers: list[list[tuple[int, int]]] = [[] for _ in range(n_features)]
        self._slots: dict[tuple[int, int], int] = {}
        self.roots = [self._root(learner, tree) for learner, tree in enumerate(trees)]
        self.n_slots = len(self.slot_features)

    def _slot(self, feature: int, kind: int) -> int:
        slot = self._slots.get((feature, kind))
        if slot is None:
            slot = self._slots[feature, kind] = len(self.slot_features)
            self.fillers[feature].append((slot, kind))
            self.slot_features.append(feature)
        return slot

    def _root(self, learner: int, tree: Tree) -> Place:
        built: dict[tuple[int, int], Place] = {}  # by range of leaves
        for i, leaf in enumerate(tree.leaves):
            built[i, i + 1] = self._leaf(learner, leaf)
        for split in tree.splits:
            left, right = built[split.first, split.middle], built[split.middle, split.last]
            built[split.first, split.last] = self._split(split, left, right)
        return built[0, len(tree.leaves)]

    def _leaf(self, learner: int, leaf: Leaf) -> Place:
        if leaf.linear_feature < 0:
            return 0, leaf.value, None, learner
        slot = self._slot(leaf.linear_feature, PLAIN)
        end = (0, 0.0, (leaf.value, slot), learner)
        return slot, math.inf, end, end  # a split that only waits for the feature

    def _split(self, split: Split, left: Place, right: Place) -> Place:
        if split.codes is not None:
            return self._slot(split.feature, CATEGORY), split.codes, left, right
        kind = ZERO_MISSING if split.zero_is_missing else PLAIN
        if split.missing_left:
            return self._slot(split.feature, kind + 1), math.nextafter(-split.threshold, -math.inf), right, left
        return self._slot(split.feature, kind), split.threshold, left, right

    def start(self) -> PointerWalk:
        return PointerWalk(self)

    def step(self, learners: list[int]) -> PointerStep:
        return learners, [self.roots[t] for t in learners]

    def weights(self, weights: np.ndarray) -> list[Callable[[list], float]]:
        # with all learners in each sum: nothing times a NaN that a learner passes on is NaN, as in `decision_function`
        used = np.flatnonzero(weights.any(axis=1)).tolist()
        return [_weighted_sum(used, weights[used, k].tolist()) for k in range(weights.shape[1])]


class PointerWalk:
    """A row among nested tuples."""

    __slots__ = ("_outputs", "_plan", "_stuck", "_values", "pending")

    def __init__(self, plan: PointerPlan) -> None:
        self._plan = plan
        self._values: list[Any] = [None] * plan.n_slots
        self._outputs: list[Any] = [None] * len(plan.roots)
        self._stuck: list[Place] = []
        self.pending = 0

    def fill(self, feature: int, value: float) -> None:
        values = self._values
        for slot, kind in self._plan.fillers[feature]:
            if kind == PLAIN:
                values[slot] = value
            elif kind == NEGATED:
                values[slot] = -value
            elif kind == CATEGORY:
                values[slot] = frozenset((int(value),)) if 0 <= value < math.inf else UNKNOWN_CATEGORY
            else:
                value_or_nan = math.nan if abs(value) <= ZERO else value
                values[slot] = value_or_nan if kind == ZERO_MISSING else -value_or_nan

    def begin(self, step: PointerStep) -> None:
        self._stuck = step[1]
        self.pending = len(step[1])

    def advance(self) -> Sequence[int]:
        values, outputs = self._values, self._outputs
        stuck: list[Place] = []
        for place in self._stuck:
            slot, bound, yes, no = place
            x = values[slot]
            while x is not None:
                place = yes if x <= bound else no
                slot, bound, yes, no = place
                x = values[slot]
            if slot:
                stuck.append(place)
            else:
                outputs[no] = bound if yes is None else yes[0] * values[yes[1]]
        self._stuck = stuck
        self.pending = len(stuck)
        if not stuck:
            return ()
        slot_features = self._plan.slot_features
        return sorted({slot_features[slot] for slot in set(map(_SLOT, stuck))})

    def sums(self, weights: list[Callable[[list], float]]) -> list[float]:
        return [total(self._outputs) for total in weights]

    def try_sums(self, step: PointerStep, weights: list[Callable[[list], float]]) -> tuple[int, list[float]] | None:
        values, outputs = self._values, list(self._outputs)
        new = 0
        for learner, place in zip(*step, strict=True):
            if outputs[learner] is not None:
                continue
            slot, bound, yes, no = place
            x = values[slot]
            while x is not None:
                slot, bound, yes, no = yes if x <= bound else no
                x = values[slot]
            if slot:
                return None
            outputs[learner] = bound if yes is None else yes[0] * values[yes[1]]
            new += 1
        return new, [total(outputs) for total in weights]


_SLOT = itemgetter(0)


def _weighted_sum(used: list[int], factors: list[float]) -> Callable[[list], float]:
    """A function of the learners' outputs: the weighted sum of those that are used."""
    if not used:
        return lambda outputs: 0.0
    if len(used) == 1:
        at, factor = used[0], factors[0]
        return lambda outputs: factor * outputs[at]
    pick = itemgetter(*used)
    return lambda outputs: sum(map(mul, pick(outputs), factors))
