"""What the columns of a table hold: numbers, true and false, or text, which stands for categories.

Text of a CSV file says nothing of types.  In training, a column holds true and false if all its values do, numbers if
all are, and categories otherwise.  Where most values are numbers and some are not, that is an error, since one
misprint would make hundreds of categories of a column of numbers.  A model knows what its columns are, and reads new
rows accordingly.
"""

from __future__ import annotations

from collections.abc import Callable
from shlex import quote
from typing import Any

import numpy as np

from ._arrow import compute, pyarrow

__all__ = ["Place", "as_booleans", "as_numbers", "as_text", "inferred", "kind_of"]

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
THOUSANDS = r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$"
MOSTLY = 0.5  # share of numbers from which on a column is meant to hold them
BOOLEANS = {"true": "1", "false": "0"}

#: Of a row and a column: where it stands, for messages.
Place = Callable[[int, str], str]


def is_text(column: Any) -> bool:
    kind = column.type
    return bool(pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind))


def kind_of(column: Any) -> str:
    """What a column holds, in a word."""
    kind = column.type
    if pyarrow.types.is_boolean(kind):
        return "true/false"
    if is_text(column) or pyarrow.types.is_dictionary(kind):
        return "category"
    is_number = pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or pyarrow.types.is_decimal(kind)
    return "number" if is_number or pyarrow.types.is_null(kind) else str(kind)


def inferred(column: Any, name: str, place: Place, decimal: str = ".") -> Any:
    """A column of text as what it holds."""
    known = column.drop_null()
    if not len(known):
        return compute.cast(column, pyarrow.float64())
    if compute.all(compute.is_in(compute.utf8_lower(known), value_set=pyarrow.array([*BOOLEANS]))).as_py():
        return compute.equal(compute.utf8_lower(column), "true")
    numbers = _cast(_with_point(column, decimal))
    if numbers is not None:
        return _finite(numbers, column, name, place)
    shares = {mark: _share_of_numbers(_with_point(known, mark)) for mark in (".", ",")}
    if shares[decimal] >= MOSTLY:
        row = _first(_with_point(column, decimal))
        raise ValueError(
            f"{place(row, name)}: {_shown(column, row)} is no number, and most values of this column are; correct it, "
            f"or say --missing {_quoted(column, row)} if it stands for none, or --category {quote(name)} for codes"
        )
    other = "," if decimal == "." else "."
    if decimal == "." and compute.all(compute.match_substring_regex(known, THOUSANDS)).as_py():
        raise ValueError(
            f"{place(0, name)}: {_shown(column, 0)} has marks between thousands, or a decimal comma; write numbers "
            "without marks between thousands, or say --decimal , for decimal commas"
        )
    if shares[other] == 1.0:
        raise ValueError(
            f"{place(0, name)}: the numbers of this column have {other!r} as decimal point; say "
            f"--decimal {quote(other)}, or --category {quote(name)} for codes"
        )
    return column


def as_numbers(
    column: Any, name: str, place: Place, decimal: str = ".", why: str = "this column held numbers in training"
) -> Any:
    """A column that must hold numbers, and why."""
    if not is_text(column):
        return column
    numbers = _cast(_with_point(column, decimal))
    if numbers is None:
        row = _first(_with_point(column, decimal))
        raise ValueError(
            f"{place(row, name)}: {_shown(column, row)} is no number, and {why}; "
            f"correct it, or say --missing {_quoted(column, row)} if it stands for none"
        )
    return _finite(numbers, column, name, place)


def as_booleans(column: Any, name: str, place: Place, decimal: str = ".") -> Any:
    """A column that a model takes for true and false, or for 1 and 0."""
    if not is_text(column):
        return column
    lower = compute.utf8_lower(column)
    digits = column  # words become digits, and whatever is neither is no number
    for word, digit in BOOLEANS.items():
        digits = compute.if_else(compute.equal(lower, word), digit, digits)
    return as_numbers(digits, name, place, decimal)


def as_text(column: Any) -> Any:
    """A column that a model takes for categories."""
    if is_text(column) or pyarrow.types.is_dictionary(column.type):
        return column
    if pyarrow.types.is_floating(column.type):  # 2.0 is the category "2"
        texts = [None if value is None or value != value else _number_text(value) for value in column.to_pylist()]
        return pyarrow.chunked_array([pyarrow.array(texts, pyarrow.string())])
    return compute.cast(column, pyarrow.string())


def _number_text(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)


def _with_point(column: Any, decimal: str) -> Any:
    """Numbers as they are written with a point; a plus sign, which says nothing, is left out."""
    if decimal != ".":
        swapped = compute.replace_substring(column, ".", "\0")  # a point is none of a number here
        column = compute.replace_substring(swapped, decimal, ".")
    if compute.any(compute.starts_with(column, "+")).as_py():
        column = compute.replace_substring_regex(column, r"^\+(\d|\.)", r"\1")
    return column


def _cast(column: Any) -> Any:
    try:
        return compute.cast(column, pyarrow.float64())
    except pyarrow.ArrowInvalid:
        return None


def _is_number(column: Any) -> Any:
    return compute.match_substring_regex(column, NUMBER)


def _share_of_numbers(known: Any) -> float:
    return float(compute.mean(compute.cast(_is_number(known), pyarrow.float64())).as_py())


def _first(column: Any) -> int:
    """The first row that holds something else than a number."""
    wrong = compute.and_(compute.is_valid(column), compute.invert(compute.fill_null(_is_number(column), True)))
    row = int(compute.index(wrong, True).as_py())
    if row >= 0:
        return row
    # it looks like one, and is too large for any
    return next(at for at, text in enumerate(column.to_pylist()) if text and _cast(pyarrow.array([text])) is None)


def _finite(numbers: Any, column: Any, name: str, place: Place) -> Any:
    values = np.asarray(numbers)
    wrong = np.isinf(values)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(
            f"{place(row, name)}: {_shown(column, row)} is not finite; give a number, or leave the field empty where "
            "it is missing"
        )
    return numbers


def _shown(column: Any, row: int) -> str:
    text = str(column[row].as_py())
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _quoted(column: Any, row: int) -> str:
    return quote(str(column[row].as_py())[:40])
