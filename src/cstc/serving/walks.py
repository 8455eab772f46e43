"""How one row goes through the weak learners while its features are still coming in.

Two ways that give the same, each with a plan that is made once for a model and a walk for each row.  Learners that
are never needed together, such as the experts of different nodes, have plans of their own (`BlockPlan`): a row that
does not come to a node does nothing for it.

Pointers
    Every split is a tuple ``(slot, bound, yes, no)``: the row goes to ``yes`` if ``values[slot] <= bound``.  That one
    comparison serves all kinds of splits, because a feature may have several slots, filled when its value arrives:
    the number itself, where a missing value (NaN, for which every comparison is false) goes right; its negative,
    where it goes left, since ``x > t`` is ``-x <= b`` with the next number below ``-t`` as ``b``; both once more with
    NaN in the place of zero, where LightGBM counted zero as missing; and ``frozenset({code})`` for categories, whose
    ``<=`` is "is a subset of" the codes that go left.  Slot 0 is never filled.  A leaf is ``(0, output, None,
    learner)``, so a walk stops in the same way at a leaf and at a split whose feature is not known.

Bits
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
from dataclasses import dataclass
from functools import cache
from operator import itemgetter, mul
from typing import Any, Protocol

import numpy as np

from ..pool import TreePool

__all__ = ["BitPlan", "Plan", "PointerPlan", "Walk", "plan_for"]

ZERO = 1e-35  # LightGBM's: what is not larger than this counts as zero


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


def plan_for(pool: TreePool, n_features: int, together: np.ndarray) -> Plan:
    """The quickest way for these learners.

    `together` is a bool table (n_sets, n_learners): steps and weights never mix learners that no chain of sets joins.
    """
    blocks = _blocks(together)
    trees = trees_of(pool)
    left = MOST_BYTES
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


# ------------------------------------------------------------------------------------------- trees


@dataclass(frozen=True)
class Split:
    """A split, with the range ``first <= leaf < last`` of leaves below it; `middle` is the first on the right."""

    feature: int
    threshold: float
    missing_left: bool
    zero_is_missing: bool
    codes: frozenset[int] | None  # the categories that go left
    first: int
    middle: int
    last: int


@dataclass(frozen=True)
class Leaf:
    """A constant, or a multiple of one column."""

    value: float
    linear_feature: int


@dataclass(frozen=True)
class Tree:
    """One learner: its splits, each behind those below it, and its leaves from left to right."""

    splits: list[Split]
    leaves: list[Leaf]


_COLUMNS = (
    *("feature", "threshold", "left", "right", "missing_left", "zero_is_missing"),
    *("category_start", "category_count", "value", "linear_feature"),
)


def trees_of(pool: TreePool) -> list[Tree]:
    """The learners of a pool, one by one."""
    columns = {name: getattr(pool, name).tolist() for name in _COLUMNS}
    return [_tree(root, columns, pool.category_left) for root in pool.roots.tolist()]


def _tree(root: int, columns: dict[str, list], category_left: np.ndarray) -> Tree:
    """No recursion, because LightGBM's trees may be very deep: a split is visited before, between and after."""
    splits: list[Split] = []
    leaves: list[Leaf] = []
    firsts: dict[int, int] = {}
    middles: dict[int, int] = {}
    waiting = [(root, "before")]
    while waiting:
        at, when = waiting.pop()
        if columns["feature"][at] < 0:
            leaves.append(Leaf(columns["value"][at], columns["linear_feature"][at]))
        elif when == "before":
            firsts[at] = len(leaves)
            waiting += [(at, "between"), (columns["left"][at], "before")]
        elif when == "between":
            middles[at] = len(leaves)
            waiting += [(at, "after"), (columns["right"][at], "before")]
        else:
            start, codes = columns["category_start"][at], None
            if start >= 0:
                codes = frozenset(np.flatnonzero(category_left[start : start + columns["category_count"][at]]).tolist())
            feature, threshold = columns["feature"][at], columns["threshold"][at]
            missing_left, zero_is_missing = columns["missing_left"][at], columns["zero_is_missing"][at]
            leaves_below = (firsts[at], middles[at], len(leaves))
            splits.append(Split(feature, threshold, missing_left, zero_is_missing, codes, *leaves_below))
    return Tree(splits, leaves)


# ---------------------------------------------------------------------------------------- pointers

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
        return [_weighted_sum(column) for column in weights.T]


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


def _weighted_sum(weights: np.ndarray) -> Callable[[list], float]:
    """A function of the learners' outputs: their sum with the weights that are not zero."""
    used = np.flatnonzero(weights).tolist()
    factors = weights[used].tolist()
    if not used:
        return lambda outputs: 0.0
    if len(used) == 1:
        at, factor = used[0], factors[0]
        return lambda outputs: factor * outputs[at]
    pick = itemgetter(*used)
    return lambda outputs: sum(map(mul, pick(outputs), factors))


# -------------------------------------------------------------------------------------------- bits

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


# ------------------------------------------------------------------------------------------ blocks

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
