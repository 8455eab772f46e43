"""Bits: one row as the set of leaves where it can still end.

For many small trees (after Lucchese et al., QuickScorer, SIGIR 2015): one bit for each leaf of each learner says
whether the row can still end there.  A feature's value excludes leaves in all learners at once, with one table
look-up and one "and".  The split that a learner waits at is the lowest common ancestor of its first and its last
leaf that are left, and when they are the same, that leaf is its output.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from .trees import ZERO, Split, Tree

__all__ = ["BitPlan", "BitWalk"]

MOST_LEAVES = 32
FEWEST_LEARNERS = 96  # below, pointers are as quick
MOST_BYTES = 1 << 28  # for the masks of a model


class BitPlan:
    """Learners as masks over all their leaves."""

    def __init__(self, trees: list[Tree], n_features: int) -> None:
        widest = max(self.n_bits(tree) for tree in trees)
        self.width = next(width for width in (8, 16, 32) if widest <= width)
        self.dtype = np.dtype(f"<u{self.width // 8}")
        self.one = self.dtype.type(1)
        self.n_bytes = len(trees) * self.width // 8
        self.n_learners, self.n_features = len(trees), n_features
        self.everything = 0
        self.value = np.zeros(len(trees) * self.width)
        self.linear = np.full(len(trees) * self.width, -1)
        narrow = (
            np.int16 if n_features < 2**15 else np.int32
        )  # the tables are looked up at random: small ones stay near
        self._waits_for = np.full((len(trees), self.width, self.width), -1, dtype=narrow)
        exclusions: list[_Exclusions] = [_Exclusions() for _ in range(n_features)]
        for learner, tree in enumerate(trees):
            self._place(learner, tree, exclusions)
        self.waits_for: np.ndarray = self._waits_for.ravel()
        self.any_linear = bool((self.linear >= 0).any())
        self.excluders = [exclusion.finish(self.everything) for exclusion in exclusions]
        self.codes = _codes_of(self.width)
        self.shift = self.width.bit_length() - 1

    @staticmethod
    def n_bits(tree: Tree) -> int:
        return sum(2 if leaf.linear_feature >= 0 else 1 for leaf in tree.leaves)

    @classmethod
    def suits(cls, trees: list[Tree]) -> bool:
        """Whether there are enough learners to be worth it, small enough to fit."""
        if len(trees) < FEWEST_LEARNERS or max(map(cls.n_bits, trees)) > MOST_LEAVES:
            return False
        return cls.n_table_bytes(trees) <= MOST_BYTES

    @classmethod
    def n_table_bytes(cls, trees: list[Tree]) -> int:
        """About as much memory as the masks take: one for each split, over all leaves."""
        return sum(len(tree.splits) for tree in trees) * len(trees) * max(map(cls.n_bits, trees)) // 8

    def _place(self, learner: int, tree: Tree, exclusions: list[_Exclusions]) -> None:
        offset = learner * self.width
        # a leaf that multiplies a column has two bits, as if a split on this column were above it
        place, bit = [], 0
        for leaf in tree.leaves:
            place.append(bit)
            twins = 2 if leaf.linear_feature >= 0 else 1
            self.value[offset + bit] = leaf.value
            self.linear[offset + bit] = leaf.linear_feature
            if twins == 2:
                self._waits_for[learner, bit, bit + 1] = leaf.linear_feature
                exclusions[leaf.linear_feature].always.append(_range(offset + bit + 1, offset + bit + 2))
            bit += twins
        place.append(bit)
        self.everything |= _range(offset, offset + bit)
        for split in tree.splits:
            first, middle, last = place[split.first], place[split.middle], place[split.last]
            self._waits_for[learner, first:middle, middle:last] = split.feature
            left, right = _range(offset + first, offset + middle), _range(offset + middle, offset + last)
            exclusions[split.feature].add(split, left, right)

    def start(self) -> BitWalk:
        return BitWalk(self)

    def step(self, learners: list[int]) -> BitStep:
        numbers = np.array(learners, dtype=np.intp)
        in_a_row = len(numbers) > 0 and numbers[-1] - numbers[0] == len(numbers) - 1
        where = slice(int(numbers[0]), int(numbers[-1]) + 1) if in_a_row else numbers
        return where, numbers, numbers * self.width, numbers * self.width**2

    def weights(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        used = np.flatnonzero(weights.any(axis=1))
        return used, np.ascontiguousarray(weights[used].T)


def _range(first: int, last: int) -> int:
    return (1 << last) - (1 << first)


@cache
def _codes_of(width: int) -> np.ndarray | None:
    """For every word, ``width * lowest bit + highest bit``; there are too many words of 32 bits."""
    if width > 16:
        return None
    words = np.arange(1 << width)
    lowest = np.zeros(len(words), dtype=np.uint8)
    highest = np.zeros(len(words), dtype=np.uint8)
    for bit in range(width):
        highest[words >> bit > 0] = bit
        lowest[words % (1 << bit) == 0] = bit
    return np.uint8(width) * lowest + highest


class _Exclusions:
    """The leaves that the splits on one feature exclude, while a plan is made."""

    def __init__(self) -> None:
        self.numbers: list[tuple[Split, int, int]] = []
        self.zero_missing: list[tuple[Split, int, int]] = []
        self.categories: list[tuple[Split, int, int]] = []
        self.always: list[int] = []

    def add(self, split: Split, left: int, right: int) -> None:
        kind = (
            self.categories if split.codes is not None else self.zero_missing if split.zero_is_missing else self.numbers
        )
        kind.append((split, left, right))

    def finish(self, everything: int) -> Callable[[float], int]:
        """A function from the feature's value to the mask of leaves that are left."""
        parts: list[Callable[[float], int]] = []
        if self.numbers:
            parts.append(_numeric(self.numbers, everything))
        if self.zero_missing:
            regular, missing = _numeric(self.zero_missing, everything), _missing(self.zero_missing, everything)
            parts.append(lambda x: missing if abs(x) <= ZERO else regular(x))
        if self.categories:
            parts.append(_categorical(self.categories, everything))
        if self.always:
            kept = _without(everything, self.always)
            parts.append(lambda x: kept)
        if len(parts) == 1:
            return parts[0]

        def all_parts(x: float) -> int:
            mask = everything
            for part in parts:
                mask &= part(x)
            return mask

        return all_parts


def _without(everything: int, leaves: Sequence[int] | Iterator[int]) -> int:
    for some in leaves:
        everything &= ~some
    return everything


def _missing(splits: list[tuple[Split, int, int]], everything: int) -> int:
    return _without(everything, [right if split.missing_left else left for split, left, right in splits])


def _numeric(splits: list[tuple[Split, int, int]], everything: int) -> Callable[[float], int]:
    """With k thresholds below a value, the first k splits go right and the others left: one mask for each k."""
    splits = sorted(splits, key=lambda entry: entry[0].threshold)
    bounds = array("d", [split.threshold for split, _, _ in splits])  # not a list: after a wait, memory is far away
    masks = [everything] * (len(splits) + 1)
    for k, (_, left, _) in enumerate(splits):
        masks[k + 1] = masks[k] & ~left
    kept = everything
    for k in range(len(splits) - 1, -1, -1):
        kept &= ~splits[k][2]
        masks[k] &= kept
    missing = _missing(splits, everything)
    return lambda x: masks[bisect_left(bounds, x)] if x == x else missing


def _categorical(splits: list[tuple[Split, int, int]], everything: int) -> Callable[[float], int]:
    unknown = _without(everything, [left for _, left, _ in splits])
    codes = set().union(*(split.codes or () for split, _, _ in splits), set())
    masks = {
        code: _without(everything, [right if code in (split.codes or ()) else left for split, left, right in splits])
        for code in codes
    }
    return lambda x: masks.get(int(x), unknown) if 0 <= x < math.inf else unknown


#: Learners as an index, a slice where that is possible, and as numbers; where their rows begin in arrays over leaves
#: and over pairs of leaves.
BitStep = tuple[Any, np.ndarray, np.ndarray, np.ndarray]


class BitWalk:
    """A row as the set of leaves where it can still end."""

    __slots__ = ("_alive", "_done", "_outputs", "_plan", "_several", "_step", "_x", "pending")

    def __init__(self, plan: BitPlan) -> None:
        self._plan = plan
        self._alive = plan.everything
        self._outputs = np.zeros(plan.n_learners)
        self._done = np.zeros(plan.n_learners, dtype=bool)
        self._x: dict[int, float] = {}
        self._step: BitStep
        self._several: np.ndarray | None = None  # as `advance` found it; zero: evaluated
        self.pending = 0

    def fill(self, feature: int, value: float) -> None:
        self._alive &= self._plan.excluders[feature](value)
        if self._plan.any_linear:
            self._x[feature] = value

    def begin(self, step: BitStep) -> None:
        if self._several is not None:  # of the step before, some are evaluated
            self._done[self._step[1][self._several == 0]] = True
        self._step = step
        self._several = None
        self.pending = len(step[1])

    def advance(self) -> Sequence[int]:
        step = self._step
        words = self._words(step)
        several = words & (words - self._plan.one)  # not zero where more than one leaf is left
        waiting = several.nonzero()[0]
        self.pending = len(waiting)
        if self.pending:
            self._several = several
            features = self._plan.waits_for[step[3][waiting] + self._codes(words[waiting])]
            return np.bincount(features).nonzero()[0].tolist()
        self._outputs[step[0]] = self._outputs_at(step, words)
        self._done[step[0]] = True
        self._several = None
        return ()

    def _words(self, step: BitStep) -> np.ndarray:
        """For each learner, the leaves that are left as bits."""
        plan = self._plan
        return np.frombuffer(self._alive.to_bytes(plan.n_bytes, "little"), dtype=plan.dtype)[step[0]]

    def _codes(self, words: np.ndarray) -> np.ndarray:
        """``width * lowest bit + highest bit`` of each word."""
        plan = self._plan
        if plan.codes is not None:
            return plan.codes[words]
        lowest, highest = np.frexp((words & -words).astype(float))[1], np.frexp(words.astype(float))[1]
        return plan.width * (lowest - 1) + (highest - 1)

    def _outputs_at(self, step: BitStep, words: np.ndarray) -> np.ndarray:
        """Outputs of learners that have one leaf left."""
        plan = self._plan
        places = step[2] + (self._codes(words) >> plan.shift)
        values = plan.value[places]
        if plan.any_linear:
            columns = plan.linear[places]
            for at in np.flatnonzero(columns >= 0).tolist():
                values[at] *= self._x[int(columns[at])]
        return values

    def sums(self, weights: tuple[np.ndarray, np.ndarray]) -> list[float]:
        used, factors = weights
        return (factors @ self._outputs[used]).tolist()

    def try_sums(self, step: BitStep, weights: tuple[np.ndarray, np.ndarray]) -> tuple[int, list[float]] | None:
        words = self._words(step)
        if (words & (words - self._plan.one)).any():
            return None
        done = self._done.copy()
        if self._several is not None:
            done[self._step[1][self._several == 0]] = True
        outputs = self._outputs.copy()
        outputs[step[0]] = self._outputs_at(step, words)
        used, factors = weights
        return len(step[1]) - int(np.count_nonzero(done[step[0]])), (factors @ outputs[used]).tolist()
