"""What goes into the log: sources that fail, and values that training did not see.

A row is named by its key or its number.  Its values, and the texts of exceptions, which may quote them, stay out of the
log: they are in the answer, for the one who asked.

The log is that of the standard library, under the name "cstc.serving"; a service writes it to standard error.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import date
from typing import Any
from uuid import UUID

import numpy as np

__all__ = ["LOGGER", "log_failure", "log_unseen"]

LOGGER = logging.getLogger("cstc.serving")
LOGGER.addHandler(logging.NullHandler())  # a library is quiet unless its user sets up a log

MOST_ROWS = 10  # that a line names
LONGEST_KEY = 80
_KEYS = (str, bytes, int, np.integer, UUID, date)
_WORDS = {
    "error": "raised an exception",
    "cancelled": "was cancelled by its own doing",
    "nonsense": "returned what cannot be used",
    "timeout": "did not answer in time",
}


def log_failure(
    source: str, kind: str, error: BaseException | None, rows: Sequence[tuple[Any, int | None]], *, again: bool
) -> None:
    """A call of a source failed for rows, each with the number that it has among many, if it has one.

    Kinds that are no fault of the source, such as the end of a deadline, are passed over.
    """
    if kind not in _WORDS or not rows or not LOGGER.isEnabledFor(logging.WARNING):
        return
    raised = "" if error is None else f" ({type(error).__name__})"
    names = ", ".join(_name(row, number) for row, number in rows[:MOST_ROWS])
    more = f" and {len(rows) - MOST_ROWS} more" if len(rows) > MOST_ROWS else ""
    noun = "row" if len(rows) == 1 else f"{len(rows)} rows:"
    then = "; it is called again" if again else ""
    LOGGER.warning("source %s %s%s for %s %s%s%s", source, _WORDS[kind], raised, noun, names, more, then)


def log_unseen(reasons: list[str]) -> None:
    """Values were taken as missing; said once for a column."""
    LOGGER.warning("taken as missing: %s", "; ".join(reasons))


def _name(row: Any, number: int | None) -> str:
    """The key of a row, or its number; what is neither may be made of the row's values."""
    if isinstance(row, _KEYS) or (isinstance(row, tuple) and all(isinstance(part, _KEYS) for part in row)):
        key = str(row) if isinstance(row, np.integer) else repr(row)  # repr: no line of a log begins inside of a key
        return key if len(key) <= LONGEST_KEY else f"{key[: LONGEST_KEY - 3]}..."
    return f"given as {type(row).__name__}" if number is None else f"number {number}"
