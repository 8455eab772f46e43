"""Tables from files: CSV, Parquet and Feather behind one face, in blocks of rows, whole, or as a model reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..costs import meant, shorten
from ..model.schema import Schema
from ._arrow import compute, pyarrow
from ._columns import Place, as_booleans, as_numbers, as_text, inferred
from ._csv import CsvFile, check_names
from ._errors import WrongUse
from ._input import Input, open_input
from ._reading import Reading

__all__ = [
    "TableFile",
    "as_held",
    "check_columns",
    "class_of",
    "labels_of",
    "model_blocks",
    "no_rows",
    "numbers_of",
    "open_table",
    "places_in",
    "raw_table",
]

BLOCK_ROWS = 65_536


class _ArrowFile:
    """What Parquet and Feather share: columns have types, and rows have numbers instead of lines."""

    is_text = False
    what = ""

    def __init__(self, source: Input):
        self.source, self.name = source, source.name
        try:
            self.names = self._names()
        except (pyarrow.ArrowException, OSError) as error:
            raise self._damaged(error) from None
        check_names(self.names, self.name)

    @property
    def n_rows(self) -> int:
        raise NotImplementedError

    def _names(self) -> list[str]:
        raise NotImplementedError

    def _opened(self) -> Any:
        raise NotImplementedError

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        raise NotImplementedError

    def blocks(self, columns: Sequence[str]) -> Iterator[Any]:
        """Some rows at a time: the columns of these names."""
        try:
            for batch in self._batches(list(columns)):
                whole = pyarrow.Table.from_batches([batch]).select(list(columns))
                for start in range(0, whole.num_rows, BLOCK_ROWS):
                    yield whole.slice(start, BLOCK_ROWS)
        except (pyarrow.ArrowException, OSError) as error:
            raise self._damaged(error) from None

    def place(self, row: int) -> str:
        """Where a row stands, by its number from 0 on."""
        return f"row {row + 1}"

    def _damaged(self, error: Exception) -> ValueError:
        return ValueError(f"{self.name} is a damaged {self.what} file: {error}")


class _ParquetFile(_ArrowFile):
    what = "Parquet"

    def _opened(self) -> Any:
        return pyarrow.parquet.ParquetFile(self.source.path)

    def _names(self) -> list[str]:
        with self._opened() as opened:
            return list(opened.schema_arrow.names)

    @property
    def n_rows(self) -> int:
        with self._opened() as opened:
            return int(opened.metadata.num_rows)

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        with self._opened() as opened:
            yield from opened.iter_batches(BLOCK_ROWS, columns=columns, use_threads=False)


class _FeatherFile(_ArrowFile):
    what = "Feather"

    def _opened(self) -> Any:
        return pyarrow.ipc.open_file(pyarrow.memory_map(self.source.path))

    def _names(self) -> list[str]:
        return list(self._opened().schema.names)

    @property
    def n_rows(self) -> int:
        opened = self._opened()
        return sum(opened.get_batch(number).num_rows for number in range(opened.num_record_batches))

    def _batches(self, columns: list[str]) -> Iterator[Any]:
        opened = self._opened()
        for number in range(opened.num_record_batches):
            yield opened.get_batch(number)


TableFile = CsvFile | _ParquetFile | _FeatherFile


def open_table(path: str, reading: Reading) -> TableFile:
    """The table in a file, or in standard input for ``-``."""
    source = open_input(path)
    if source.kind == "csv":
        return CsvFile(source, reading)
    return _ParquetFile(source) if source.kind == "parquet" else _FeatherFile(source)


def check_columns(table: TableFile, named: dict[str, str | None]) -> None:
    """The columns that options name are there."""
    for option, name in named.items():
        if name is not None and name not in table.names:
            near = meant(name, table.names)
            there = f"{table.name} has no such column{near}; it has {shorten(table.names)}"
            raise WrongUse(f"{option} is {name!r}, and {there}")


def raw_table(table: TableFile, columns: Sequence[str]) -> Any:
    """All rows of some columns as they stand in the file: those of CSV as text."""
    blocks = list(table.blocks(columns))
    if not blocks:
        raise no_rows(table)
    return pyarrow.concat_tables(blocks)


def no_rows(table: TableFile) -> ValueError:
    return ValueError(f"{table.name} has the names of {len(table.names)} columns and no rows")


def as_held(
    table: TableFile, raw: Any, columns: Sequence[str], reading: Reading, categories: Sequence[str] = ()
) -> Any:
    """Some columns of `raw_table`, each as what it holds; those of `categories` as text."""
    found = []
    for name in columns:
        column = raw[name]
        if name in categories:
            column = as_text(column)
        elif table.is_text:
            column = inferred(column, name, places_in(table), reading.decimal)
        found.append(column)
    return pyarrow.table(found, names=list(columns))


def model_blocks(
    table: TableFile,
    schema: Schema,
    reading: Reading,
    *,
    absent: Sequence[str] = (),
    also: Sequence[str | None] = (),
) -> Iterator[tuple[int, Any, Any]]:
    """Rows as a model reads them, some at a time: the number of the first one, the columns, and these as they stand.

    The columns `absent` need not be there; those of `also`, which the model does not know, stand beside the others.
    """
    names = schema.feature_names
    lost = [name for name in names if name not in table.names and name not in absent]
    if lost:
        raise ValueError(
            f"{table.name} has no column {shorten(lost)}, which the model needs; a column that is not to be had is "
            "left out with --unavailable"
        )
    there = [name for name in names if name in table.names]
    extra = [name for name in dict.fromkeys(also) if name is not None and name not in there]
    start = 0
    for block in table.blocks([*there, *extra]):
        places = places_in(table, start)
        found = []
        for name in names:
            if name not in there:
                kind = pyarrow.string() if name in schema.categories else pyarrow.float64()
                found.append(pyarrow.nulls(block.num_rows, kind))
            elif name in schema.categories:
                found.append(as_text(block[name]))
            elif name in schema.booleans:
                found.append(as_booleans(block[name], name, places, reading.decimal))
            else:
                found.append(as_numbers(block[name], name, places, reading.decimal))
        yield start, pyarrow.table(found, names=names), block
        start += block.num_rows


def numbers_of(table: TableFile, column: Any, name: str, reading: Reading) -> np.ndarray:
    """A target of numbers: one for each row."""
    places = places_in(table)
    _check_known(column, name, places)
    if table.is_text:
        column = as_numbers(column, name, places, reading.decimal, "numbers are to be predicted")
    values = np.asarray(column)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{table.name}, column {name!r} holds {column.type}, which is not a number")
    return values.astype(float)


def labels_of(table: TableFile, column: Any, name: str, classes: np.ndarray) -> np.ndarray:
    """A target of classes, each as the model knows it; what it does not know is an error with its place."""
    places = places_in(table)
    _check_known(column, name, places)
    coded = compute.dictionary_encode(column.combine_chunks())
    numbers = []
    for value in coded.dictionary.to_pylist():
        at = class_of(value, classes.tolist())
        if at is None:
            row = int(compute.index(column, value).as_py())
            known = shorten(classes.tolist())
            raise ValueError(f"{places(row, name)}: {value!r} is no class of the model; it has {known}")
        numbers.append(at)
    return classes[np.array(numbers, dtype=int)[np.asarray(coded.indices)]]


def class_of(value: Any, classes: list[Any]) -> int | None:
    """The place of a value among the classes: as it is, by its text, or as the number that both are."""
    for at, known in enumerate(classes):
        same = str(value).lower() == str(known).lower() if isinstance(known, bool) else str(value) == str(known)
        if same:
            return at
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    numbers = [known if isinstance(known, int | float) and not isinstance(known, bool) else None for known in classes]
    return numbers.index(number) if number in numbers else None


def _check_known(column: Any, name: str, places: Any) -> None:
    if column.null_count:
        row = int(compute.index(compute.is_null(column), True).as_py())
        raise ValueError(f"{places(row, name)} is missing; every row needs a target: leave out the rows without one")


def places_in(table: TableFile, start: int = 0) -> Place:
    """Of a row and a column: where that stands, for messages; rows are counted from `start` on."""
    return lambda row, name: f"{table.name}, {table.place(start + row)}, column {name!r}"
