"""Folders of Parquet files: which rows lie where, and some of their columns read as a table.

A `Folder` holds names and sizes only.  So it can be sent to whoever reads its rows, and two readers of the same row
groups get the same table.

pyarrow is imported when a folder is opened; it comes with the extra ``cstc[dask]``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from .costs import counted, shorten

__all__ = ["Folder", "RowGroup", "is_path"]

SUFFIX = ".parquet"
BUFFER = 1 << 18  # bytes of a column that are read at a time, where a row group is read in pieces


@dataclass(frozen=True)
class RowGroup:
    """Rows of a file that are read together.

    Attributes
    ----------
    file : str
        The path of the file within the folder, with "/" between names.
    number : int
        Of the row group in the file, from 0 on.
    n_rows : int
    """

    file: str
    number: int
    n_rows: int


@dataclass(frozen=True)
class Folder:
    """Parquet files with the same columns, as one table that is not read yet.

    Attributes
    ----------
    path : str
        The folder, as an absolute path: who reads it may stand elsewhere.
    groups : tuple of RowGroup
        All rows, file by file in the order of their names.
    columns : tuple of str
        In the order of the first file.  An index that pandas or Dask wrote beside the columns is none of them.

    Examples
    --------
    >>> import pyarrow as pa, pyarrow.parquet as pq, tempfile
    >>> with tempfile.TemporaryDirectory() as path:
    ...     pq.write_table(pa.table({"a": [1, 2, 3], "b": [4, 5, 6]}), path + "/part.parquet", row_group_size=2)
    ...     folder = Folder.open(path)
    ...     print(len(folder), folder.columns, folder.read(columns=["b"], groups=[1])["b"].to_pylist())
    3 ('a', 'b') [6]
    """

    path: str
    groups: tuple[RowGroup, ...]
    columns: tuple[str, ...]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Folder:
        """Look at all files of a folder and of its sub-folders, or at one file, and read nothing but their schemas.

        Names that begin with "." or "_" are left out: they are not data by the custom of those who write such folders.
        """
        _pyarrow()
        root, given = Path(path).absolute(), os.fspath(path)
        if not root.exists():
            raise FileNotFoundError(f"there is no folder and no file {given!r}; give a folder of Parquet files")
        files = _files_of(root) if root.is_dir() else [root]
        if not files:
            raise ValueError(f"the folder {given!r} has no Parquet file; names of files end with {SUFFIX}")
        root = root if root.is_dir() else root.parent
        known: dict[str, tuple[Any, str]] = {}  # of each column, its type and the file that says so
        groups: list[RowGroup] = []
        for file in files:
            name = file.relative_to(root).as_posix()
            with _naming(file):
                opened = _opened(file)
                found, sizes = _types_of(opened, name), _sizes_of(opened)
            _learn(known, found, name, first=files[0].relative_to(root).as_posix())
            groups += [RowGroup(name, number, n_rows) for number, n_rows in enumerate(sizes)]
        return cls(str(root), tuple(groups), tuple(known))

    def __len__(self) -> int:
        return self._n_rows

    @cached_property
    def _n_rows(self) -> int:
        return sum(group.n_rows for group in self.groups)

    def __repr__(self) -> str:
        sizes = [(len(self), "row"), (len(self.columns), "column"), (len(self.groups), "row group")]
        return f"<Folder {self.path!r}: {', '.join(counted(*size) for size in sizes)}>"

    def read(self, columns: Iterable[str] | None = None, groups: Iterable[int] | None = None) -> Any:
        """Some columns of some row groups, as one table.

        Parameters
        ----------
        columns : iterable of str, optional
            In the order in which they are to stand in the table; None: all.
        groups : iterable of int, optional
            Places in `groups`, in the order in which their rows are to stand in the table; None: all.

        Returns
        -------
        pyarrow.Table
            Text is large_string, and a column of categories has one dictionary for all rows.  A column that has
            nothing but gaps in the files of these row groups may be of type null.
        """
        pa, _ = _pyarrow()
        names = self.check_columns(columns)
        wanted = list(self.groups) if groups is None else [self.groups[place] for place in self._places(groups)]
        tables = []
        for file, parts in groupby(wanted, key=lambda group: group.file):
            some = list(parts)
            with _naming(self._file(file)):
                opened = self._still(file, some)
                table = opened.read_row_groups([group.number for group in some], columns=names)
                tables.append(_uniform(table, names))
        if not tables:
            return self._empty(names)
        return pa.concat_tables(tables, promote_options="default").unify_dictionaries()

    def batches(self, n_rows: int, columns: Iterable[str] | None = None) -> Iterator[Any]:
        """The rows in pieces, each a table of at most `n_rows` rows of one row group.

        A row group that is larger than memory is never held as a whole.
        """
        pa, _ = _pyarrow()
        names = self.check_columns(columns)
        for file, parts in groupby(self.groups, key=lambda group: group.file):
            some = list(parts)
            with _naming(self._file(file)):
                opened = self._still(file, some, buffer_size=BUFFER)
                for group in some:
                    pieces = opened.iter_batches(batch_size=n_rows, row_groups=[group.number], columns=names)
                    # not in a loop, whose variable would hold a piece until the next one is there
                    yield from map(lambda piece: _uniform(pa.Table.from_batches([piece]), names), pieces)

    def check_columns(self, columns: Iterable[str] | None) -> list[str]:
        """The names of columns that are there; None: all."""
        if isinstance(columns, str):
            raise TypeError(f"columns is {columns!r}; give a list of names: columns=[{columns!r}]")
        names = list(self.columns) if columns is None else list(columns)
        lost = [name for name in names if name not in self.columns]
        if lost:
            raise ValueError(f"the folder {self.path!r} has no column {shorten(lost)}; it has {shorten(self.columns)}")
        return names

    def _places(self, groups: Iterable[int]) -> list[int]:
        places = [int(place) for place in groups]
        for place in places:
            if not 0 <= place < len(self.groups):
                raise IndexError(f"there is no row group {place}; {self!r} has those from 0 to {len(self.groups) - 1}")
        return places

    def _file(self, name: str) -> Path:
        return Path(self.path) / name

    def _still(self, file: str, groups: Sequence[RowGroup], buffer_size: int = 0) -> Any:
        """The file, opened; an error if it is no longer what it was."""
        path = self._file(file)
        opened = _opened(path, buffer_size)
        sizes = _sizes_of(opened)
        if any(group.number >= len(sizes) or sizes[group.number] != group.n_rows for group in groups):
            raise ValueError(f"{str(path)!r} is another file than when the folder was opened; open it again")
        return opened

    def _empty(self, names: list[str]) -> Any:
        """A table of no rows: of the columns of the first file, if there is one."""
        pa, _ = _pyarrow()
        if not self.groups:
            return pa.table({name: pa.nulls(0) for name in names})
        with _naming(self._file(self.groups[0].file)):
            schema = _opened(self._file(self.groups[0].file)).schema_arrow.empty_table()
        return _uniform(schema, names)


def is_path(X: Any) -> bool:
    """Whether this is the path of a folder or of a file, and not the rows themselves."""
    return isinstance(X, str | os.PathLike)


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("folders of Parquet files need pyarrow; install it with: pip install 'cstc[dask]'") from error
    return pyarrow, pyarrow.parquet


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """What goes wrong with a file names it."""
    pa, _ = _pyarrow()
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(f"{str(file)!r} is no longer there; all files of a folder are needed") from None
    except (pa.ArrowException, OSError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{str(file)!r} cannot be read as a Parquet file: {first}") from error


def _files_of(root: Path) -> list[Path]:
    """All Parquet files, by their path in the folder."""
    found = []
    for file in root.rglob("*" + SUFFIX):
        names = file.relative_to(root).parts
        if not file.is_file() or any(name.startswith((".", "_")) for name in names):
            continue
        for name in names[:-1]:
            if "=" in name:  # a value for all rows below, which the files themselves do not have
                raise ValueError(
                    f"the sub-folder {name!r} of {str(root)!r} has a column in its name, and those are not read; "
                    "write all columns into the files"
                )
        found.append(file)
    return sorted(found, key=lambda file: file.relative_to(root).parts)


def _opened(file: Path, buffer_size: int = 0) -> Any:
    """A file; with a buffer, its columns are read so many bytes at a time, and whole row groups without."""
    _, parquet = _pyarrow()
    options = {"buffer_size": buffer_size, "pre_buffer": not buffer_size}  # the second would read it all ahead
    return parquet.ParquetFile(file, page_checksum_verification=True, **options)


def _sizes_of(opened: Any) -> list[int]:
    return [opened.metadata.row_group(number).num_rows for number in range(opened.metadata.num_row_groups)]


def _types_of(opened: Any, file: str) -> dict[str, Any]:
    """The columns of a file with their types, without an index that pandas or Dask wrote beside them."""
    schema = opened.schema_arrow
    twice = [name for name in schema.names if schema.names.count(name) > 1]
    if twice:
        raise ValueError(f"two columns of {file!r} have the same name, {twice[0]!r}; give each its own")
    index = set()
    if schema.pandas_metadata is not None:
        index = {name for name in schema.pandas_metadata["index_columns"] if isinstance(name, str)}
    return {field.name: _uniform_type(field.type) for field in schema if field.name not in index}


def _learn(known: dict[str, tuple[Any, str]], found: dict[str, Any], name: str, first: str) -> None:
    """Check that a file has the columns of the first one, of the same types; keep what it says of types."""
    if name == first:
        known |= {column: (kind, name) for column, kind in found.items()}
    lost = [column for column in known if column not in found]
    if lost:
        raise ValueError(f"{name!r} has no column {lost[0]!r}, which {first!r} has; all files need the same columns")
    for column, kind in found.items():
        if column not in known:
            raise ValueError(
                f"{name!r} has a column {column!r}, which {first!r} has not; all files need the same columns"
            )
        own, file = known[column]
        if str(own) == "null":  # a file in which nothing but gaps stand does not know the type
            known[column] = kind, name
        elif str(kind) != "null" and kind != own:
            raise ValueError(
                f"column {column!r} is {kind} in {name!r} and {own} in {file!r}; all files need the same types"
            )


def _uniform_type(kind: Any) -> Any:
    """One type for what means the same: libraries write text, and the numbers of categories, in several widths."""
    pa, _ = _pyarrow()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(pa.int32(), _uniform_type(kind.value_type))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or str(kind) == "string_view":
        return pa.large_string()
    return kind


def _uniform(table: Any, names: list[str]) -> Any:
    """Some columns of a table, in types that are the same for all files, and nothing else that a file says of them."""
    pa, _ = _pyarrow()
    schema = pa.schema([(name, _uniform_type(table.schema.field(name).type)) for name in names])
    return table.select(names).replace_schema_metadata(None).cast(schema)
