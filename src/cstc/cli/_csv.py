"""CSV as blocks of text, whatever its separator and its encoding; what is wrong with it is said with its line.

pyarrow reads, quickly and strictly.  It counts records, and a record may have several lines, so that the line of what
it stumbled over is looked for afterwards by reading the file again with Python's own reader.
"""

from __future__ import annotations

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, BinaryIO

from ..costs import shorten
from ._arrow import compute, pyarrow
from ._input import CHUNK, Input
from ._reading import Reading

__all__ = ["CsvFile", "check_names"]

SEPARATORS = (",", ";", "\t", "|")
LOOKED_AT = 20  # records that say which separator it is
BLOCK = 4 * 2**20  # bytes; a record must not be longer
#: What stands for a value that is not there.
MISSING = ("", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL")


class CsvFile:
    """The columns of a CSV file as text, with null where a value is missing."""

    is_text = True

    def __init__(self, source: Input, reading: Reading):
        self.source, self.reading, self.name = source, reading, source.name
        self.encoding = reading.encoding or source.marked_encoding or "utf-8"
        head = self._decoded_head()
        self.separator = reading.separator or _separator_of(head)
        self._raw_names = self._header(head)
        self.names = [name.strip() for name in self._raw_names]
        check_names(self.names, f"{self.name}, line 1")

    # -- the head ------------------------------------------------------------------------------------------------

    def _decoded_head(self) -> str:
        head = self.source.head
        if b"\0" in head and self.encoding == "utf-8":
            raise ValueError(
                f"{self.name} holds zero bytes: it is no text in UTF-8; text in UTF-16 is read with --encoding utf-16"
            )
        try:
            return codecs.getincrementaldecoder(self.encoding)().decode(head).removeprefix("\ufeff")
        except UnicodeDecodeError:
            raise self._wrong_encoding() from None

    def _wrong_encoding(self) -> ValueError:
        """Where the file stops to be text."""
        decoder, line, found = codecs.getincrementaldecoder(self.encoding)(), 1, ""
        with self.source.open() as stream:
            try:
                while chunk := stream.read(CHUNK):
                    line += decoder.decode(chunk).count("\n")
                decoder.decode(b"", final=True)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                found = f" (the byte {error.object[error.start]:#04x})"
        return ValueError(
            f"{self.name}, line {line}: this is no text in {self.encoding.upper()}{found}; say which encoding it is, "
            "such as --encoding cp1252 for Western Windows"
        )

    def _header(self, head: str) -> list[str]:
        found = next((row for row in _records(io.StringIO(head, newline=""), self.separator) if row), None)
        if found is None:
            raise ValueError(f"{self.name} is empty; it should have a line with the names of the columns, then rows")
        return found

    # -- rows ----------------------------------------------------------------------------------------------------

    def blocks(self, columns: Sequence[str]) -> Iterator[pyarrow.Table]:
        """Some rows at a time: the columns of these names, as text."""
        raw = [self._raw_names[self.names.index(name)] for name in columns]
        wrong: list[Any] = []

        def note(row: Any) -> str:
            wrong.append(row)
            return "error"

        text = pyarrow.string()
        options = {
            "read_options": pyarrow.csv.ReadOptions(use_threads=False, block_size=BLOCK, encoding=self._for_arrow),
            "parse_options": pyarrow.csv.ParseOptions(
                delimiter=self.separator, newlines_in_values=True, invalid_row_handler=note
            ),
            "convert_options": pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(self._raw_names, text), include_columns=raw, strings_can_be_null=False
            ),
        }
        try:
            with _Quotes(self.source.open()) as stream, pyarrow.csv.open_csv(stream, **options) as reader:
                for batch in reader:
                    if batch.num_rows:
                        yield self._cleaned(pyarrow.Table.from_batches([batch]), columns)
        except pyarrow.ArrowInvalid as error:
            raise self._explained(error, wrong) from None
        except UnicodeDecodeError:
            raise self._wrong_encoding() from None
        except (EOFError, OSError) as error:
            raise ValueError(f"{self.name} cannot be read to its end: {error}") from None
        if stream.n_quotes % 2:  # one may never be closed, and what follows it be no rows, but one long field
            self._check_quotes()

    @property
    def _for_arrow(self) -> str:
        return "utf8" if self.encoding in ("utf-8", "utf-8-sig") else self.encoding

    def _cleaned(self, block: pyarrow.Table, columns: Sequence[str]) -> pyarrow.Table:
        found = []
        for column in block.columns:
            text = compute.utf8_trim_whitespace(column)
            found.append(compute.if_else(compute.is_in(text, value_set=self._missing), None, text))
        return pyarrow.table(found, names=list(columns))

    @cached_property
    def _missing(self) -> pyarrow.Array:
        return pyarrow.array([*MISSING, *(each.strip() for each in self.reading.missing)])

    # -- faults --------------------------------------------------------------------------------------------------

    def place(self, row: int) -> str:
        """Where a row stands, by its number from 0 on."""
        return f"line {self._line(row + 1)}"

    def _line(self, record: int) -> int:
        """The line on which a record begins; the header is record 0, and empty lines are none."""
        before, seen = 0, -1
        with self._text() as lines:
            reader = csv.reader(lines, delimiter=self.separator)
            for row in reader:
                seen += bool(row)
                if row and seen == record:
                    break
                before = reader.line_num
        return before + 1

    def _text(self) -> io.TextIOWrapper:
        csv.field_size_limit(sys.maxsize)
        return io.TextIOWrapper(self.source.open(), encoding=self.encoding, errors="replace", newline="")

    def _explained(self, error: Exception, wrong: list[Any]) -> ValueError:
        if wrong:
            row = wrong[0]
            if "\n" in row.text:
                self._check_quotes()
            line = self._line(row.number - 1)
            return ValueError(
                f"{self.name}, line {line}: {row.actual_columns} fields, and the header has {row.expected_columns} "
                f"(they are separated by {_shown(self.separator)})"
            )
        text = str(error)
        if "UTF8" in text:
            return self._wrong_encoding()
        if "straddl" in text:
            self._check_quotes()
            return ValueError(f"{self.name}: a row is longer than {BLOCK // 2**20} MiB")
        return ValueError(f"{self.name}: {text}")

    def _check_quotes(self) -> None:
        """A quote that is never closed swallows all that follows."""
        with self._text() as lines:
            reader = csv.reader(lines, delimiter=self.separator, strict=True)
            before = 0
            try:
                for _ in reader:
                    before = reader.line_num
            except csv.Error as error:
                raise ValueError(
                    f"{self.name}, line {before + 1}: a quote in the row that begins here is never closed, or closed "
                    f"in the middle of a field ({error})"
                ) from None


class _Quotes(io.RawIOBase):
    """A stream of bytes that counts the quotes in what is read."""

    def __init__(self, stream: BinaryIO):
        self._stream, self.n_quotes = stream, 0

    def read(self, size: int = -1) -> bytes:
        found = self._stream.read(size)
        self.n_quotes += found.count(b'"')
        return found

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()


def _records(lines: Any, separator: str) -> Iterator[list[str]]:
    csv.field_size_limit(sys.maxsize)
    return csv.reader(lines, delimiter=separator)


def _separator_of(head: str) -> str:
    """What splits the header, and best all of the first records alike."""
    best, key = SEPARATORS[0], (False, 1)
    for separator in SEPARATORS:
        rows = (row for row in _records(io.StringIO(head, newline=""), separator) if row)
        lengths = [len(row) for row in islice(rows, LOOKED_AT)]
        alike = len(set(lengths[:-1])) <= 1  # the last one may be cut
        if lengths and lengths[0] > 1 and (alike, lengths[0]) > key:
            best, key = separator, (alike, lengths[0])
    return best


def check_names(names: Sequence[str], where: str) -> None:
    """Each column has a name of its own."""
    for number, name in enumerate(names, start=1):
        if not name:
            raise ValueError(
                f"{where}: column {number} of {len(names)} has no name; give each column one (an index that was "
                "written along needs one, too)"
            )
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        at = [number for number, name in enumerate(names, start=1) if name == twice[0]]
        raise ValueError(
            f"{where}: {len(at)} columns are named {shorten(twice[:1])} (columns {', '.join(map(str, at))}); give each "
            "its own name"
        )


def _shown(separator: str) -> str:
    return "tabs" if separator == "\t" else repr(separator)
