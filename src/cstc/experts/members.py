"""Members: ensembles on the same columns that each lack a part of the rows, all with the same number of rounds.

A member says of the rows that it lacks what it would say of new ones (but for the number of rounds, which is one for
all members).  Members know nothing of each other, so all of them grow side by side: in threads of this process, or on
workers (`cluster`), where the trees are the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..boosting import MOST_JUDGES, Boosting, agreed_rounds, rounds_of, work_of
from ..cluster import Samples
from ..cluster.tasks import Bins, Grow, Grown, GrowOn, Hear, Heard, bare, hear
from ..engines import Shared, bin_for_one
from ..lightgbm_engine import go_on
from ..lightgbm_trees import trees_of, without_stumps
from ..matrix import cells_at
from ..model import TreePool
from ..parallel import side_by_side
from ..rows import Rows, some_of

__all__ = ["HEARING", "Members", "Trees", "Wanted", "grow_members", "grow_on_samples", "hear_at"]

HEARING = 0.08  # of what growing a member takes, what its trees take to say something of each row
HEARD_ROWS = 1 << 15  # at a time: their columns are copied

Trees = tuple[TreePool, np.ndarray]  # and a weight of each for each output


@dataclass(frozen=True, eq=False)
class Wanted:
    """What members are wanted.

    Attributes
    ----------
    columns : int ndarray
    boosting : Boosting
    parts : sequence of bool ndarray of shape (n,)
        The rows that each member lacks.
    cost_weight : float
        Of lazy prices (`boosting`).
    buys : bool
        Whether it is asked what the branches of rows buy.
    name : str
        For those who read of a failure.
    """

    columns: np.ndarray
    boosting: Boosting
    parts: Sequence[np.ndarray]
    cost_weight: float = 0.0
    buys: bool = False
    name: str = "the expert"

    @property
    def feature_items(self) -> np.ndarray | None:
        return self.boosting.costs.feature_items if self.buys else None


@dataclass(frozen=True, eq=False)
class Members:
    """Members that are grown.

    Attributes
    ----------
    boosting : Boosting
        On the columns.
    columns : int ndarray
        In the order in which trees number them.
    parts : sequence of bool ndarray of shape (n,)
        The rows that each member lacks.
    rounds : int
    trees : list of Trees
        Of each member.
    heard : list of Heard
        What each says of the rows that it lacks.
    on_all : callable
        Grows an ensemble of so many rounds on all rows.
    """

    boosting: Boosting
    columns: np.ndarray
    parts: Sequence[np.ndarray]
    rounds: int
    trees: list[Trees]
    heard: list[Heard]
    on_all: Callable[[int], Trees]


def grow_members(wanted: Sequence[Wanted], rows: Rows, blocks: Shared | None) -> list[Members]:
    """All of them, side by side."""
    if not wanted:
        return []
    boosting = wanted[0].boosting
    if boosting.workers is not None and rows.part is not None:
        # they only wait for workers; those that take longest are given out first
        order = sorted(range(len(wanted)), key=lambda number: -len(wanted[number].columns))
        grown = side_by_side([_There(wanted[number], rows, blocks).grow for number in order], len(order))
        return [members for _, members in sorted(zip(order, grown, strict=True), key=lambda each: each[0])]
    binned = side_by_side(
        [partial(bin_for_one, each.boosting, rows, each.columns, blocks) for each in wanted], boosting.n_jobs
    )
    near = [_Here(each, rows, data) for each, data in zip(wanted, binned, strict=True)]
    del binned  # each lets go of its own when it is finished
    side_by_side([partial(each.member, number) for each in near for number in each.numbers], boosting.n_jobs)
    return [each.found() for each in near]


def grow_on_samples(
    wanted: Sequence[tuple[np.ndarray, Boosting]], rows: Rows, more: Samples, n_members: int, names: Sequence[str]
) -> list[list[Trees]]:
    """For each (columns, how to boost), members that each learn from a sample of further rows.

    `rows` stop them early, and teach none of them.  Each has as many rounds as are best for itself: that its answers
    are known at rows that chose them flatters them by less than the noise of the samples.
    """
    tasks: list[GrowOn] = []
    for (columns, boosting), of_whom in zip(wanted, names, strict=True):
        n_judges = MOST_JUDGES * max(1, boosting.n_rounds // 200)
        judges = rows.part.take(some_of(np.arange(len(rows)), n_judges))
        for member in range(n_members):
            name = f"{of_whom} on {_columns(columns)}, member {member + 1} of {n_members}"
            tasks.append(GrowOn(more.of(len(tasks)), judges, bare(boosting), columns, name))
    boosting = wanted[0][1]

    def done(task: GrowOn) -> None:
        boosting.progress.did(work_of(more.n_per_fit, len(task.columns), task.boosting.n_rounds), n_pieces=1)

    def grow(task: GrowOn) -> Grown:
        found = task()
        done(task)
        return found

    if boosting.workers is None:
        grown = side_by_side([partial(grow, task) for task in tasks], boosting.n_jobs)
    else:
        grown = boosting.workers.results(tasks, done)
    trees = [without_stumps(each.pool, len(boosting.constant)) for each in grown]
    return [trees[start : start + n_members] for start in range(0, len(trees), n_members)]


class _Here:
    """Some members in the making, in threads: whoever grows the last of them finishes all.

    A booster in training holds its rows, their gradients and their scores.  Those of all experts at once would be many
    times the data.
    """

    def __init__(self, wanted: Wanted, rows: Rows, binned: Any):
        self.wanted, self._rows, self._binned = wanted, rows, binned
        self._boosters: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._found: Members | None = None
        self.numbers = range(len(wanted.parts))

    def member(self, number: int) -> None:
        booster = self._binned.boost_without(self.wanted.parts[number], self.wanted.cost_weight)
        with self._lock:
            self._boosters[number] = booster
            if len(self._boosters) < len(self.numbers):
                return
        boosters = [self._boosters[each] for each in self.numbers]
        self._boosters = {}
        rounds = agreed_rounds([rounds_of(each) for each in boosters])
        for each in boosters:
            go_on(each, rounds)
        binned, n_outputs = self._binned, len(self._binned.boosting.constant)
        trees = [trees_of(each, n_outputs, rounds) for each in boosters]
        heard = [self._hear(*each, out) for each, out in zip(trees, self.wanted.parts, strict=True)]
        on_all = partial(_on_all, binned, self.wanted.cost_weight)
        self._found = Members(binned.boosting, binned.columns, self.wanted.parts, rounds, trees, heard, on_all)

    def _hear(self, pool: TreePool, weights: np.ndarray, out: np.ndarray) -> Heard:
        found = hear_at(pool, weights, self._rows, out, self._binned.columns, self.wanted.feature_items)
        _tell(self.wanted, HEARING * _work(self.wanted, out))
        return found

    def found(self) -> Members:
        assert self._found is not None
        return self._found


def hear_at(
    pool: TreePool, weights: np.ndarray, rows: Rows, out: np.ndarray, columns: np.ndarray, items: np.ndarray | None
) -> Heard:
    """What an ensemble on some columns says of some rows (bool), and what it buys there, if `items` are given."""
    at = np.flatnonzero(out)
    pieces = np.split(at, range(HEARD_ROWS, len(at), HEARD_ROWS))
    return hear(pool, weights, (cells_at(rows.X, some, columns) for some in pieces), columns, items)


def _on_all(binned: Any, cost_weight: float, rounds: int) -> Trees:
    return trees_of(binned.boost_all(rounds, cost_weight), len(binned.boosting.constant), rounds)


class _There:
    """Some members in the making, on workers."""

    def __init__(self, wanted: Wanted, rows: Rows, blocks: Any):
        self.wanted = wanted
        self._part, self._workers = rows.part, wanted.boosting.workers
        # bins are the same for both objectives, and are kept for the loss
        plain = replace(wanted.boosting, lambdarank=None)
        self._bins = Bins(rows.part, bare(plain), None if blocks is None else blocks.sets)

    def grow(self) -> Members:
        wanted, numbers = self.wanted, range(len(self.wanted.parts))
        tasks = [self._grow(number) for number in numbers]
        grown: list[Grown] = self._workers.results(tasks, lambda task: _tell(wanted, _work(wanted, task.out), 1))
        rounds = agreed_rounds([each.best for each in grown])
        short = [number for number in numbers if grown[number].n_rounds < rounds]
        again = self._workers.results([self._grow(number, rounds) for number in short])
        for number, each in zip(short, again, strict=True):
            grown[number] = each
        n_outputs, columns = len(wanted.boosting.constant), grown[0].columns
        trees = [without_stumps(each.pool, n_outputs, rounds) for each in grown]
        asked = [
            Hear(self._part, _bits(out), *each, columns, self._name(number), wanted.feature_items)
            for number, (each, out) in enumerate(zip(trees, wanted.parts, strict=True))
        ]
        heard = self._workers.results(asked, lambda task: _tell(wanted, HEARING * _work(wanted, task.at)))
        return Members(wanted.boosting.on(columns), columns, wanted.parts, rounds, trees, heard, self._on_all)

    def _on_all(self, rounds: int) -> Trees:
        wanted = self.wanted
        name = f"the ensemble on all rows and {_columns(wanted.columns)}"
        task = Grow(self._bins, bare(wanted.boosting), wanted.columns, name, None, wanted.cost_weight, rounds)
        (grown,) = self._workers.results([task], lambda _: _tell(wanted, 0.0, 1))
        return without_stumps(grown.pool, len(wanted.boosting.constant), rounds)

    def _grow(self, number: int, rounds: int | None = None) -> Grow:
        wanted, out = self.wanted, _bits(self.wanted.parts[number])
        name = self._name(number)
        return Grow(self._bins, bare(wanted.boosting), wanted.columns, name, out, wanted.cost_weight, rounds)

    def _name(self, number: int) -> str:
        return f"{self.wanted.name} on {_columns(self.wanted.columns)}, fold {number + 1} of {len(self.wanted.parts)}"


def _columns(columns: np.ndarray) -> str:
    return f"{len(columns)} column{'s' if len(columns) > 1 else ''}"


def _bits(mask: np.ndarray) -> bytes:
    return np.packbits(mask).tobytes()


def _work(wanted: Wanted, out: Any) -> float:
    """Of growing a member, for those who watch."""
    n = len(wanted.parts[0])
    lacks = int(out.sum()) if isinstance(out, np.ndarray) else int(np.unpackbits(np.frombuffer(out, np.uint8)).sum())
    return work_of(n - lacks, len(wanted.columns), wanted.boosting.n_rounds)


def _tell(wanted: Wanted, work: float, n_pieces: int = 0) -> None:
    wanted.boosting.progress.did(work, n_pieces=n_pieces)
