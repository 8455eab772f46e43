"""More rows than one fit reads: a core of them that judges, and samples of the others that teach.

Where there are more rows than ``Experts(rows_per_fit=)``, each ensemble learns from a sample of its own.  One order of
all rows is cut into samples, one after the other and round and round, so that the members of an expert learn from
different rows as long as there are any, and all members of all experts together learn from all rows.  The core teaches
no ensemble.  So every member can say something of all rows of the core, and what predicts, the mean of all members,
is known there as it is.
"""

from __future__ import annotations

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


@dataclass(frozen=True, eq=False)
class RowSamples:
    """Samples of rows that are in memory, or were.

    Attributes
    ----------
    part : Part
        All rows.
    order : int ndarray
        Those that teach, in the order in which they are sampled.
    ends : int ndarray
        Where a sample may end: after each of so many rows, rising.
    n_per_fit : int
    """

    part: Part
    order: np.ndarray
    ends: np.ndarray
    n_per_fit: int

    def of(self, number: int) -> Part:
        n = len(self.order)
        first = self._end(number * self.n_per_fit % n)
        end = self._end(min(first + self.n_per_fit, n))
        some = self.order[first:end] if end > first else self.order[: self._end(self.n_per_fit)]
        return self.part.take(np.sort(some))

    def _end(self, at: int) -> int:
        """The last place up to here where a sample may end."""
        before = np.searchsorted(self.ends, at, side="right") - 1
        return int(self.ends[before]) if before >= 0 else 0


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
        start = self._starts[number % len(self._starts)]
        found = self.pieces[start : self._end(start)]
        if self._end(start) == len(self.pieces):  # the last sample of a round is filled up by the first pieces
            left = self.n_per_fit - _total(found)
            sizes = np.cumsum([piece.n_rows for piece in self.pieces[:start]])
            found += self.pieces[: np.searchsorted(sizes, left, side="right")]
        return Part(self.stored.of_pieces(tuple(sorted(found))))

    @cached_property
    def _starts(self) -> list[int]:
        """Where the samples of a round begin."""
        found = [0]
        while (end := self._end(found[-1])) < len(self.pieces):
            found.append(end)
        return found

    def _end(self, start: int) -> int:
        """The first piece that a sample has no room for; one piece is always taken."""
        sizes = np.cumsum([piece.n_rows for piece in self.pieces[start:]])
        return start + max(1, int(np.searchsorted(sizes, self.n_per_fit, side="right")))

    def identity(self) -> dict[str, Any]:
        """What tells these rows from others."""
        groups = [list(piece) for piece in sorted(self.pieces)]
        return {"rows": _total(self.pieces), "pieces": groups, "columns": list(self.stored.folder.columns)}

    def read_as(self, reading: Reading) -> FolderSamples:
        return replace(self, stored=self.stored.read_as(reading))

    def in_units(self, units: Units) -> FolderSamples:
        return replace(self, stored=self.stored.in_units(units))


def core_of_rows(rows: Rows, n_per_fit: int) -> tuple[np.ndarray, RowSamples]:
    """The rows (rising numbers) that judge, and samples of the others; whole queries.  `rows` have a part."""
    rng = np.random.default_rng(n_per_fit)
    n = len(rows)
    if rows.qid is None:
        order, ends = rng.permutation(n), np.arange(n + 1)
    else:
        _, query, sizes = np.unique(rows.qid, return_inverse=True, return_counts=True)
        places = rng.permutation(len(sizes))
        order = np.argsort(places[query], kind="stable")
        ends = np.concatenate([[0], np.cumsum(sizes[np.argsort(places)])])
    n_core = int(ends[np.searchsorted(ends, min(CORE, n_per_fit, n // 2), side="right") - 1])
    later = ends[ends >= n_core] - n_core
    return np.sort(order[:n_core]), RowSamples(rows.part, order[n_core:], later, n_per_fit)


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
            own = cuts[piece.place]
            end = int(own[np.searchsorted(own, end, side="right") - 1])
        if end > piece.first:
            core.append(Piece(piece.place, piece.first, end))
        if piece.end > end:
            teach.append(Piece(piece.place, end, piece.end))
    at_ends = {} if cuts is None else dict(enumerate(cuts))
    teach = [part for piece in teach for part in _cut(piece, n_per_fit, at_ends.get(piece.place))]
    if not core or not teach:
        raise ValueError(
            f"{folder!r} cannot be parted into rows that teach and rows that judge; write smaller row groups, or give "
            "a larger rows_per_fit"
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
            before = int(ends[np.searchsorted(ends, end, side="right") - 1])
            end = before if before > first else int(ends[np.searchsorted(ends, first, side="right")])
        found.append(Piece(piece.place, first, end))
        first = end
    return found


def _starts_of_queries(folder: Folder, qid: str) -> Sequence[np.ndarray]:
    """For each row group, where its queries begin, and the row after the last one; those that are cut are no part."""
    columns = [np.asarray(folder.read([qid], [place])[qid]) for place in range(len(folder.groups))]
    found = []
    for place, column in enumerate(columns):
        starts = np.flatnonzero(np.concatenate([[True], column[1:] != column[:-1]])[: len(column)])
        before = next((other[-1] for other in reversed(columns[:place]) if len(other)), None)
        after = next((other[0] for other in columns[place + 1 :] if len(other)), None)
        ends: list[Any] = [*starts.tolist(), len(column)]
        if len(column) and after is not None and column[-1] == after:
            ends.pop()  # its last query goes on in the next one
        if len(column) and before is not None and column[0] == before:
            ends.pop(0)  # its first query began in the one before
        found.append(np.array(ends or [0]))
    return found
