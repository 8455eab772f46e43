"""More rows than one fit reads: a core of them that judges, and samples of the others that teach.

Where there are more rows than ``Experts(rows_per_fit=)``, each ensemble learns from a sample of its own.  One order of
all rows is cut into samples, one after the other and round and round, so that the members of an expert learn from
different rows as long as there are any, and all members of all experts together learn from all rows.  The core teaches
no ensemble.  So every member can say something of all rows of the core, and what predicts, the mean of all members,
is known there as it is.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ..folders import Folder
from ..rows import Rows, Units
from .in_folder import InFolder, Piece, Reading
from .stored import Part

__all__ = ["CORE", "FolderSamples", "RowSamples", "Samples", "core_of_folder", "core_of_rows"]

CORE = 100_000  # rows that judge, at most: gates learn from 40,000 of them, and a frontier holds some out
CORE_PIECES = 16  # row groups that they are taken from
MOST_LOST = 0.1  # part of the rows that may be lost because row groups cut queries, before we say so


class Samples(Protocol):
    """Further rows.

    Attributes
    ----------
    n_per_fit : int
        So many of them are read for each ensemble, at most.
    """

    @property
    def n_per_fit(self) -> int: ...

    def of(self, number: int) -> Part:
        """The rows of one ensemble; the next number gets the next ones."""


class _Rounds:
    """Things of some sizes in an order that is cut into samples, one after the other, round and round.

    The last sample of a round is filled up by the first things, so that all samples are about as large.
    """

    def __init__(self, sizes: np.ndarray, most: int):
        self._most = most
        self.ends = np.concatenate([[0], np.cumsum(sizes)])
        self._starts = [0]
        while (end := self._end(self._starts[-1], most)) < len(sizes):
            self._starts.append(end)

    def of(self, number: int) -> list[slice]:
        """The things of a sample, as one range or two."""
        n, start = len(self.ends) - 1, self._starts[number % len(self._starts)]
        end = self._end(start, self._most)
        left = self._most - int(self.ends[end] - self.ends[start])
        if end < n or self.ends[1] > left:
            return [slice(start, end)]
        return [slice(0, min(start, self._end(0, left))), slice(start, end)]

    def _end(self, start: int, most: int) -> int:
        """The first thing that there is no room for; one is always taken."""
        return max(start + 1, up_to(self.ends, self.ends[start] + most))


def up_to(ends: np.ndarray, most: int) -> int:
    """The place of the last of some rising numbers that is not above `most`."""
    return int(np.searchsorted(ends, most, side="right")) - 1


@dataclass(frozen=True, eq=False)
class RowSamples:
    """Samples of rows that are in memory, or were.

    Attributes
    ----------
    part : Part
        All rows.
    order : int ndarray
        Those that teach, in the order in which they are sampled.
    sizes : int ndarray
        How many of them stay together, one query after the other.
    n_per_fit : int
    """

    part: Part
    order: np.ndarray
    sizes: np.ndarray
    n_per_fit: int

    def of(self, number: int) -> Part:
        ends = self._rounds.ends
        ranges = [self.order[ends[some.start] : ends[some.stop]] for some in self._rounds.of(number)]
        return self.part.take(np.sort(np.concatenate(ranges)))

    @cached_property
    def _rounds(self) -> _Rounds:
        return _Rounds(self.sizes, self.n_per_fit)


@dataclass(frozen=True, eq=False)
class FolderSamples:
    """Samples of row groups.

    Attributes
    ----------
    stored : InFolder
    pieces : tuple of Piece
        Rows that teach, in the order in which they are sampled.
    n_per_fit : int
    """

    stored: InFolder
    pieces: tuple[Piece, ...]
    n_per_fit: int

    def of(self, number: int) -> Part:
        found = [piece for some in self._rounds.of(number) for piece in self.pieces[some]]
        return Part(self.stored.of_pieces(tuple(sorted(found))))

    @cached_property
    def _rounds(self) -> _Rounds:
        return _Rounds(np.array([piece.n_rows for piece in self.pieces]), self.n_per_fit)

    def identity(self) -> dict[str, Any]:
        """What tells these rows from others: where they lie, and their targets and weights."""
        stored, digest = self.stored, hashlib.sha256()
        for place in range(len(stored.folder.groups)):
            table = stored.folder.read([name for name in (stored.target, stored.weight) if name], [place])
            for column in table.columns:
                values = column.to_numpy()
                digest.update(repr(values.tolist()).encode() if values.dtype == object else values.tobytes())
        groups = [list(piece) for piece in sorted(self.pieces)]
        return {"targets": f"sha256:{digest.hexdigest()}", "pieces": groups, "columns": list(stored.folder.columns)}

    def read_as(self, reading: Reading) -> FolderSamples:
        return replace(self, stored=self.stored.read_as(reading))

    def in_units(self, units: Units) -> FolderSamples:
        return replace(self, stored=self.stored.in_units(units))


def core_of_rows(rows: Rows, n_per_fit: int) -> tuple[np.ndarray, RowSamples]:
    """The rows (rising numbers) that judge, and samples of the others; whole queries.  `rows` have a part."""
    rng, n = np.random.default_rng(n_per_fit), len(rows)
    if rows.qid is None:
        order, sizes = rng.permutation(n), np.ones(n, dtype=int)
    else:
        _, query, sizes = np.unique(rows.qid, return_inverse=True, return_counts=True)
        places = rng.permutation(len(sizes))
        order, sizes = np.argsort(places[query], kind="stable"), sizes[np.argsort(places)]
    ends = np.concatenate([[0], np.cumsum(sizes)])
    first = up_to(ends, min(CORE, n_per_fit, n // 2))
    if not first or sizes.max() > n_per_fit:
        raise ValueError(
            f"rows_per_fit={n_per_fit} is too small: a query has {sizes.max()} rows, and queries stay whole; give "
            f"{10 * sizes.max()} or more"
        )
    return np.sort(order[: ends[first]]), RowSamples(rows.part, order[ends[first] :], sizes[first:], n_per_fit)


def core_of_folder(stored: InFolder, n_per_fit: int, qid: str | None) -> tuple[InFolder, FolderSamples]:
    """The rows of a folder that judge, from several row groups, and samples of the others; whole queries."""
    folder = stored.folder
    whole = [Piece(place, 0, group.n_rows) for place, group in enumerate(folder.groups) if group.n_rows]
    cuts = None if qid is None else _starts_of_queries(folder, qid)
    if cuts is not None:
        whole = [Piece(piece.place, int(cuts[piece.place][0]), int(cuts[piece.place][-1])) for piece in whole]
        whole = [piece for piece in whole if piece.n_rows]
        lost = 1 - _total(whole) / len(folder)
        if lost > MOST_LOST:
            warnings.warn(
                f"{lost:.0%} of the rows are left out: row groups cut their queries; write larger row groups",
                stacklevel=4,
            )
    rng = np.random.default_rng(n_per_fit)
    order = [whole[at] for at in rng.permutation(len(whole))]
    n_core = min(CORE, n_per_fit, len(folder) // 2)
    core: list[Piece] = []
    teach: list[Piece] = []
    for number, piece in enumerate(order):
        left = n_core - _total(core)
        share = -(-left // max(1, min(CORE_PIECES, len(order)) - number))
        end = min(piece.end, piece.first + share) if left > 0 else piece.first
        if cuts is not None:
            end = int(cuts[piece.place][up_to(cuts[piece.place], end)])
        if end > piece.first:
            core.append(Piece(piece.place, piece.first, end))
        if piece.end > end:
            teach.append(Piece(piece.place, end, piece.end))
    teach = [part for piece in teach for part in _cut(piece, n_per_fit, None if cuts is None else cuts[piece.place])]
    if not core or not teach:
        raise ValueError(
            f"{folder!r} cannot be parted into rows that teach and rows that judge; give a larger rows_per_fit, and "
            "row groups that cut few queries"
        )
    return stored.of_pieces(tuple(sorted(core))), FolderSamples(stored, tuple(teach), n_per_fit)


def _total(pieces: Sequence[Piece]) -> int:
    return sum(piece.n_rows for piece in pieces)


def _cut(piece: Piece, most: int, ends: np.ndarray | None) -> list[Piece]:
    """A piece that is too large for one fit, in several."""
    found, first = [], piece.first
    while first < piece.end:
        end = min(first + most, piece.end)
        if ends is not None:
            before = int(ends[up_to(ends, end)])
            end = before if before > first else int(ends[up_to(ends, first) + 1])  # a query that is larger than that
        found.append(Piece(piece.place, first, end))
        first = end
    return found


def _starts_of_queries(folder: Folder, qid: str) -> Sequence[np.ndarray]:
    """For each row group, where its queries begin, and the row after the last one; those that are cut are no part."""
    found: list[list[int]] = []
    before: Any = None  # the last query so far, and the row group that it lies in
    for place, group in enumerate(folder.groups):
        column = folder.read([qid], [place])[qid]
        queries = np.asarray(column)
        if getattr(column, "null_count", 0) or (queries.dtype.kind == "f" and np.isnan(queries).any()):
            raise ValueError(f"column {qid!r} of {folder.path} lacks values; every row needs a query")
        ends = [*np.flatnonzero(queries[1:] != queries[:-1]) + 1, group.n_rows] if group.n_rows else []
        if group.n_rows and before is not None and before[0] == queries[0]:
            found[before[1]].pop()  # its last query goes on here
        elif group.n_rows:
            ends.insert(0, 0)
        found.append(list(map(int, ends)))
        before = (queries[-1], place) if group.n_rows else before
    return [np.array(ends or [0]) for ends in found]
