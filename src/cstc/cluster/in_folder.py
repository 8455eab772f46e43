"""Rows in a folder of Parquet files, read by whoever needs them, as the driver reads them.

What is read is a row of pieces: some rows of one row group after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from ..folders import Folder
from ..model.schema import encode
from ..rows import Units

__all__ = ["InFolder", "Piece", "Reading"]

ROWS_AT_ONCE = 1 << 16  # of row groups that are smaller

class Piece(NamedTuple):
    """Rows that lie together."""

    place: int  # of the row group in the folder
    first: int
    end: int

    @property
    def n_rows(self) -> int:
        return self.end - self.first


@dataclass(frozen=True, eq=False)
class Reading:
    """How columns of a folder become rows.

    Attributes
    ----------
    names : tuple of str
        The features, in their order.
    categories : mapping of str to list
        Of those that hold categories.
    dtype : str
        Of the cells.
    classes : ndarray or None
        Where targets are classes, a target is the number of its class.
    class_weights : ndarray or None
        What a row of each class counts.
    units : Units
        Of the targets.
    token : str
        Another one for each fit: a worker that kept rows of an earlier fit does not take them for those of this one.
    """

    names: tuple[str, ...]
    categories: Mapping[str, list]
    dtype: str
    classes: np.ndarray | None = None
    class_weights: np.ndarray | None = None
    units: Units = field(default_factory=Units)
    token: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True, eq=False)
class InFolder:
    """Some rows of a folder.

    Attributes
    ----------
    folder : Folder
    target : str
        The column of the targets.
    weight : str or None
        The column of the weights.
    pieces : tuple of Piece or None
        Where they lie; None: all rows.
    reading : Reading or None
        None while nobody knows yet.
    """

    folder: Folder
    target: str
    weight: str | None = None
    pieces: tuple[Piece, ...] | None = None
    reading: Reading | None = None

    def read_as(self, reading: Reading) -> InFolder:
        return replace(self, reading=reading)

    def of_pieces(self, pieces: tuple[Piece, ...]) -> InFolder:
        return replace(self, pieces=pieces)

    def in_units(self, units: Units) -> InFolder:
        """The same with targets in standard units."""
        return replace(self, reading=replace(self._reading, units=units))

    @property
    def _reading(self) -> Reading:
        assert self.reading is not None
        return self.reading

    @cached_property
    def key(self) -> str:
        return f"{self._reading.token} {self.pieces}"

    @cached_property
    def _pieces(self) -> tuple[Piece, ...]:
        if self.pieces is not None:
            return self.pieces
        return tuple(Piece(place, 0, group.n_rows) for place, group in enumerate(self.folder.groups))

    @cached_property
    def _starts(self) -> np.ndarray:
        """The number of the first row of each piece, and of the row after the last."""
        return np.cumsum([0, *(piece.n_rows for piece in self._pieces)])

    @property
    def n_rows(self) -> int:
        return int(self._starts[-1])

    @property
    def n_columns(self) -> int:
        return len(self._reading.names)

    def targets(self) -> tuple[np.ndarray, np.ndarray]:
        reading = self._reading
        table = self.table([self.target, *([self.weight] if self.weight else [])])
        y = np.asarray(table[self.target])
        weights = np.asarray(table[self.weight]).astype(np.float64) if self.weight else np.ones(len(y))
        if table[self.target].null_count or (y.dtype.kind == "f" and not np.isfinite(y).all()):
            raise ValueError(f"column {self.target!r} of {self.folder.path} lacks values; every row needs a target")
        if not (np.isfinite(weights) & (weights >= 0)).all():
            raise ValueError(f"column {self.weight!r} of {self.folder.path} has weights that are not 0 or more")
        if reading.classes is None:
            y = y.astype(np.float64)
            if reading.units != Units():
                y = (y - reading.units.offset) / reading.units.scale
        else:
            codes = np.searchsorted(reading.classes, y)
            if (reading.classes[np.minimum(codes, len(reading.classes) - 1)] != y).any():
                raise ValueError(
                    f"column {self.target!r} of {self.folder.path} has classes that none of the rows which judge has; "
                    f"those have {reading.classes.tolist()}: leave such rows out, or give a larger rows_per_fit"
                )
            y = codes
            if reading.class_weights is not None:
                weights = weights * reading.class_weights[y]
        return y, weights

    def cells(self, columns: np.ndarray, at: np.ndarray | None = None) -> np.ndarray:
        n = self.n_rows if at is None else len(at)
        found = np.empty((n, len(columns)), dtype=self._reading.dtype, order="F")
        names = [self._reading.names[column] for column in columns.tolist()]
        categories = {name: levels for name, levels in self._reading.categories.items() if name in names}
        for pieces, some in self._together(at):
            own = encode(self._of_pieces(self._pieces[pieces], names), categories, names)
            if np.isinf(own).any():
                raise ValueError(f"a column of {self.folder.path} holds an infinite value; give numbers, or none")
            found[some] = own if at is None else own[at[some] - self._starts[pieces.start]]
        return found

    def table(self, names: Iterable[str] | None = None) -> Any:
        """Some columns, or all, as one table."""
        import pyarrow

        names = list(self.folder.columns) if names is None else list(names)
        found = [self._of_pieces(self._pieces[pieces], names) for pieces, _ in self._together()]
        return pyarrow.concat_tables(found).unify_dictionaries() if found else self.folder.read(names, [])

    def _of_pieces(self, pieces: Sequence[Piece], names: list[str]) -> Any:
        import pyarrow

        table = self.folder.read(names, [piece.place for piece in pieces])
        starts = np.cumsum([0, *(self.folder.groups[piece.place].n_rows for piece in pieces)]).tolist()
        if starts[-1] == sum(piece.n_rows for piece in pieces):
            return table
        parts = [table.slice(start + piece.first, piece.n_rows) for start, piece in zip(starts, pieces, strict=False)]
        return pyarrow.concat_tables(parts)

    def _together(self, at: np.ndarray | None = None) -> Iterator[tuple[slice, slice]]:
        """Pieces that are read together, and which rows, or which of the given ones, lie there.

        Small ones are, since each reading takes its time; a large one is read alone.
        """
        ends = self._starts if at is None else np.searchsorted(at, self._starts)
        first = 0
        while first < len(self._pieces):
            last = int(np.searchsorted(self._starts, self._starts[first] + ROWS_AT_ONCE, side="right")) - 1
            last = max(first + 1, last)
            if ends[first] < ends[last]:
                yield slice(first, last), slice(int(ends[first]), int(ends[last]))
            first = last

    def steps(self, at: np.ndarray, n_rows: int) -> Iterator[slice]:
        for _, some in self._together(at):
            yield some
