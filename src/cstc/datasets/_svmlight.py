"""SVMlight text with query ids, the format of LETOR: read in chunks, and every fault named by its line.

A line is ``grade qid:query number:value number:value ... # comment``.  Two readers of it stand here.
`_read_line` is the plain one: it defines the format and its errors.  `_read_chunk` does the same to
thousands of lines at once with array operations, and gives up (returns None) when anything looks odd; then
the plain one reads that chunk, and finds the line that is wrong.
"""

from __future__ import annotations

import gzip
import re
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

__all__ = ["Documents", "read_svmlight"]

#: Characters of text that are read at once, and the length from which something is no line of a text file.
CHUNK, LONGEST_LINE = 1 << 20, 1 << 26
#: Feature numbers above this are taken for faults where nobody says how many features there are: X is dense.
MOST_FEATURES = 100_000
#: A query id has at most so many digits (int64), a feature number so many.
QID_DIGITS, FEATURE_DIGITS = 18, 9

_NUMBER = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_COMMENT = re.compile(rb"#[^\n]*")


@dataclass(frozen=True, eq=False)
class Documents:
    """The documents of some lines: their features (dense), grades, queries, line numbers and comments.

    `last_feature` is the highest feature number that stands there, whatever its value.
    """

    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray
    line: np.ndarray
    comments: list[str]
    last_feature: int


@dataclass(frozen=True)
class _Format:
    """What the reader was told: where the text is, how many features there are and who says so."""

    path: Path
    n_features: int | None
    said_by: str
    dtype: np.dtype
    with_comments: bool

    @property
    def last_feature(self) -> int:
        return MOST_FEATURES if self.n_features is None else self.n_features

    def fault(self, line: int, what: str) -> NoReturn:
        raise ValueError(f"{self.path}, line {line}: {what}")


def read_svmlight(
    path: str | Path,
    *,
    n_features: int | None = None,
    said_by: str = "n_features",
    columns: np.ndarray | None = None,
    dtype: type = np.float64,
    comments: bool = False,
) -> Documents:
    """Read a whole file, plain or compressed by gzip (told by its content, not by its name).

    `said_by` names what fixes `n_features`, for the error about a feature number beyond it.  `columns` are those
    to keep, ascending and counted from 0; the others are read and checked, too.
    """
    form = _Format(Path(path), n_features, said_by, np.dtype(dtype), comments)
    if form.dtype.kind != "f":
        raise ValueError(f"dtype is {form.dtype}; features are read as float64 or float32")
    blocks: list[Documents] = []
    n_lines = 0
    for chunk in _chunks(form):
        block = _read_chunk(chunk, n_lines, form)
        if block is None:
            block = _read_lines(chunk, n_lines, form)
        n_lines += chunk.count(b"\n")
        if len(block.y):
            blocks.append(block)
    if not blocks:
        what = "the file is empty" if n_lines == 0 else f"none of the {n_lines} lines holds a document"
        raise ValueError(f"{path}: {what}; a document is a line like '2 qid:17 1:0.25 2:0.5'")
    if columns is None:
        columns = np.arange(n_features if n_features is not None else max(block.last_feature for block in blocks))
    documents = _join(blocks, columns)
    _check_queries(documents, form)
    return documents


def _chunks(form: _Format) -> Iterator[bytes]:
    """Whole lines of the file, about `CHUNK` characters at a time; the last one ends with a newline, too."""
    with form.path.open("rb") as plain:
        compressed = plain.read(2) == b"\x1f\x8b"
        plain.seek(0)
        with gzip.GzipFile(fileobj=plain) if compressed else plain as text:
            n_lines = 0
            while True:
                try:
                    chunk = _next_chunk(text)
                except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                    raise ValueError(
                        f"{form.path}: the compressed file is damaged somewhere after line {n_lines} ({error})"
                    ) from None
                if not chunk:
                    return
                if len(chunk) > CHUNK + LONGEST_LINE:
                    line = n_lines + chunk.count(b"\n") + 1
                    form.fault(line, f"longer than {LONGEST_LINE} characters; is this a text file?")
                if n_lines == 0:
                    chunk = chunk.removeprefix(b"\xef\xbb\xbf")  # the mark that some editors put before UTF-8
                if not chunk.endswith(b"\n"):
                    chunk += b"\n"
                n_lines += chunk.count(b"\n")
                yield chunk


def _next_chunk(text: IO[bytes] | gzip.GzipFile) -> bytes:
    chunk = text.read(CHUNK)
    return chunk if chunk.endswith(b"\n") else chunk + text.readline(LONGEST_LINE + 1)


# ------------------------------------------------------------------------------------- many lines at once


def _read_chunk(chunk: bytes, n_before: int, form: _Format) -> Documents | None:
    """The documents of whole lines by array operations, or None where a line may be wrong.

    Grades and values are converted by NumPy's text reader, from a copy of the text in which all else is
    blank; query ids and feature numbers are converted here, digit by digit, for all tokens together.
    """
    text = _COMMENT.sub(b"", chunk) if b"#" in chunk else chunk
    byte = np.frombuffer(text, dtype=np.uint8)
    if ((byte - np.uint8(9) > 4) & (byte < 32)).any():  # a control character that is no blank
        return None
    start, stop, line, n_tokens = _tokens(byte)
    if not len(line):
        return _no_documents(form)
    if n_tokens.min() < 2:
        return None

    # The first token of a line is the grade.  Every other one has one colon, with something on both sides of it.
    row = np.arange(len(line))
    grade_token = np.cumsum(n_tokens) - n_tokens
    start, stop = np.delete(start, grade_token), np.delete(stop, grade_token)
    colon = np.flatnonzero(byte == 58)
    if len(colon) != len(start) or (colon <= start).any() or (colon + 1 >= stop).any():
        return None

    # The second is qid:number.
    values_only = byte.copy()
    at = grade_token - row  # where it is among the tokens with a colon
    for i, letter in enumerate(b"qid:"):
        if (byte[start[at] + i] != letter).any():
            return None
        values_only[start[at] + i] = 32
    qid = _integers(byte, colon[at] + 1, stop[at], QID_DIGITS, values_only)

    # The others are number:value, with numbers that ascend.
    numbers = _integers(byte, np.delete(start, at), np.delete(colon, at), FEATURE_DIGITS, values_only)
    values_only[colon] = 32
    if qid is None or numbers is None or not _in_order(numbers, n_tokens - 2, form):
        return None

    # What is left are the values and, where the query ids stood among the tokens with a colon, the grades.
    values = _floats(values_only)
    if values is None or len(values) != len(line) + len(numbers):
        return None
    grade = values[at]
    if (grade < 0).any() or (grade != np.floor(grade)).any() or grade.max() >= 2**53:
        return None
    with np.errstate(over="ignore"):
        values = np.delete(values, at).astype(form.dtype)
    if not np.isfinite(values).all():
        return None
    width = int(numbers.max(initial=0))
    X = np.zeros((len(line), width), dtype=form.dtype)
    X[np.repeat(row, n_tokens - 2), numbers - 1] = values
    comments: list[str] = []
    if form.with_comments:
        lines = chunk.split(b"\n")
        comments = [_comment(lines[i]) for i in line]
    return Documents(X, grade.astype(np.int64), qid, line + n_before + 1, comments, width)


def _tokens(byte: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Where tokens start and stop; the lines that have any, counted from 0, and how many each."""
    blank = byte <= 32
    edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
    if not blank[0]:
        edges = np.concatenate([[0], edges])
    start, stop = edges[0::2], edges[1::2]  # the last character is a newline, so every token has an end
    n_tokens = np.diff(np.searchsorted(start, np.flatnonzero(byte == 10)), prepend=0)
    line = np.flatnonzero(n_tokens)
    return start, stop, line, n_tokens[line]


def _in_order(numbers: np.ndarray, per_line: np.ndarray, form: _Format) -> bool:
    """Whether the feature numbers ascend in each line, from 1 on, and none is too high."""
    begins = (np.cumsum(per_line) - per_line)[per_line > 0]
    rises = np.diff(numbers, prepend=0) > 0
    rises[begins] = numbers[begins] > 0
    return bool(rises.all()) and int(numbers.max(initial=0)) <= form.last_feature


def _integers(byte: np.ndarray, start: np.ndarray, stop: np.ndarray, most: int, erase: np.ndarray) -> np.ndarray | None:
    """Whole numbers from their digits, byte[start:stop] each, and blanks in `erase` where they stood."""
    length = stop - start
    if not len(start):
        return np.zeros(0, dtype=np.int64)
    if length.max() > most:
        return None
    numbers = np.zeros(len(start), dtype=np.int64)
    for place in range(int(length.max())):
        here = np.flatnonzero(length > place) if place >= length.min() else slice(None)
        at = stop[here] - 1 - place
        digit = byte[at] - np.uint8(48)  # wraps around for what is below "0"
        if (digit > 9).any():
            return None
        numbers[here] += digit.astype(np.int64) * 10**place
        erase[at] = 32
    return numbers


def _floats(byte: np.ndarray) -> np.ndarray | None:
    """All numbers of a text that has only numbers and blanks in it, or None if it has anything else."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)  # NumPy's word for "I stopped before the end"
        try:
            return np.fromstring(byte.tobytes(), dtype=np.float64, sep=" ")
        except (DeprecationWarning, ValueError):
            return None


# ------------------------------------------------------------------------------------------ line by line


def _read_lines(chunk: bytes, n_before: int, form: _Format) -> Documents:
    """The same, one line after the other: the meaning of the format, and its errors."""
    lines, grades, queries, comments = [], [], [], []
    entries: list[dict[int, float]] = []
    for number, whole in enumerate(chunk.split(b"\n")[:-1], start=n_before + 1):
        tokens = whole.partition(b"#")[0].split()
        if not tokens:
            continue
        grade, qid, features = _read_line(tokens, number, form)
        lines.append(number)
        grades.append(grade)
        queries.append(qid)
        entries.append(features)
        comments.append(_comment(whole))
    if not lines:
        return _no_documents(form)
    width = max((max(features, default=0) for features in entries), default=0)
    X = np.zeros((len(lines), width), dtype=form.dtype)
    for row, features in zip(X, entries, strict=True):
        for feature, value in features.items():
            row[feature - 1] = value
    y, query, line = (np.array(part, dtype=np.int64) for part in (grades, queries, lines))
    return Documents(X, y, query, line, comments, width)


def _read_line(tokens: list[bytes], line: int, form: _Format) -> tuple[int, int, dict[int, float]]:
    """Grade, query id and features of one line, or an error that says what is wrong in it."""
    grade = _value(tokens[0], "the grade", line, form)
    if grade < 0:
        form.fault(line, f"the grade is {_show(tokens[0])}; a grade is 0 or more")
    if grade != int(grade) or grade >= 2**53:
        form.fault(line, f"the grade is {_show(tokens[0])}; a grade is a whole number, 0 or more")
    if len(tokens) < 2 or not tokens[1].startswith(b"qid:"):
        found = _show(tokens[1]) if len(tokens) > 1 else "nothing"
        form.fault(line, f"the query id is missing: after the grade there should be qid:number, not {found}")
    query = tokens[1].removeprefix(b"qid:")
    if not query.isdigit() or len(query) > QID_DIGITS:
        form.fault(line, f"the query id is {_show(query)}; it should be a whole number of at most {QID_DIGITS} digits")
    features: dict[int, float] = {}
    last = 0
    for token in tokens[2:]:
        number, colon, text = token.partition(b":")
        if not colon or not number.isdigit() or not text:
            form.fault(line, f"{_show(token)} should be number:value")
        if len(number) > FEATURE_DIGITS or not 1 <= int(number) <= form.last_feature:
            _out_of_range(number, line, form)
        feature = int(number)
        if feature in features:
            form.fault(line, f"feature {feature} appears twice")
        if feature < last:
            form.fault(line, f"feature {feature} stands after feature {last}; the numbers should ascend")
        features[feature] = _value(text, f"feature {feature}", line, form)
        last = feature
    return int(grade), int(query), features


def _value(text: bytes, of: str, line: int, form: _Format) -> float:
    if _NOT_FINITE.fullmatch(text):
        form.fault(line, f"{of} is {_show(text)}; it should be a finite number")
    if not _NUMBER.fullmatch(text):
        form.fault(line, f"{of} is {_show(text)}, which is not a number")
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float64(float(text)).astype(form.dtype)):
            form.fault(line, f"{of} is {_show(text)}, which is too large for {form.dtype}")
    return float(text)


def _out_of_range(number: bytes, line: int, form: _Format) -> NoReturn:
    if not number.strip(b"0"):
        form.fault(line, "feature 0 is out of range: the first feature has the number 1")
    limit = f"{form.said_by} says 1 to {form.n_features}"
    if form.n_features is None:
        limit = f"more than {MOST_FEATURES} features are taken for a fault unless n_features= says so"
    form.fault(line, f"feature {number[:40].decode()} is out of range: {limit}")


def _comment(whole: bytes) -> str:
    return whole.partition(b"#")[2].decode("utf-8", errors="replace").strip()


def _show(text: bytes) -> str:
    """Something of the file in an error: as it stands there, but short and printable."""
    shown = repr(text[:40].decode("utf-8", errors="backslashreplace"))
    return shown + " ..." if len(text) > 40 else shown


# --------------------------------------------------------------------------------------- the whole file


def _no_documents(form: _Format) -> Documents:
    empty = np.zeros(0, dtype=np.int64)
    return Documents(np.zeros((0, 0), dtype=form.dtype), empty, empty, empty, [], 0)


def _join(blocks: list[Documents], columns: np.ndarray) -> Documents:
    """One table of all blocks; each is given up as soon as it is copied (at the peak, X is in memory twice)."""
    y = np.concatenate([block.y for block in blocks])
    qid = np.concatenate([block.qid for block in blocks])
    line = np.concatenate([block.line for block in blocks])
    comments = [comment for block in blocks for comment in block.comments]
    last_feature = max(block.last_feature for block in blocks)
    X = np.zeros((len(y), len(columns)), dtype=blocks[0].X.dtype)
    end = len(y)
    while blocks:
        block = blocks.pop().X
        here = columns[columns < block.shape[1]]
        X[end - len(block) : end, : len(here)] = block if len(here) == block.shape[1] else block[:, here]
        end -= len(block)
    return Documents(X, y, qid, line, comments, last_feature)


def _check_queries(documents: Documents, form: _Format) -> None:
    """The documents of a query stand together; one that comes back later means a file put together wrongly."""
    qid, line = documents.qid, documents.line
    begins = np.flatnonzero(np.diff(qid, prepend=qid[0] - 1))
    order = np.argsort(qid[begins], kind="stable")
    again = order[1:][qid[begins[order[1:]]] == qid[begins[order[:-1]]]]
    if len(again):
        row = begins[again.min()]
        before = line[:row][qid[:row] == qid[row]]
        so_far = f"the last one was on line {before[-1]}"
        form.fault(int(line[row]), f"query {qid[row]} comes back; its documents should stand together, and {so_far}")
