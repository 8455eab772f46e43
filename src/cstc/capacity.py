"""How much is learned from how many rows: rounds, leaves and folds, where the user leaves them to us.

Few rows
    200 rounds of depth 4 and five folds.  The members of all folds predict together: where few rows leave much noise,
    their mean is better than one ensemble on all rows.
Many rows (from 10,000 on)
    Trees have 31 leaves and are at most 8 splits deep, and there are 200 rounds for each 10,000 rows, at most 3,000;
    early stopping decides how many of them are grown.  Three folds say enough.  What predicts is the mean of one
    ensemble on all rows and of what the members say, of whom each has seen two thirds.  Columns have 127 bins instead
    of LightGBM's 255: that loses next to nothing, and saves a tenth of the time, or half of it where columns are many.
Very many rows (from 50,000 on)
    Two folds, and the ensemble on all rows predicts alone: its members would hardly make it better.  Each tree sees 85%
    of the columns instead of 70%.

The figures for few rows were chosen on the sets of `benchmarks/ahead.py`; the others on 12,000 and 66,000 rows of
MiniBooNE, 11,000 of MAGIC and 50,000 and 200,000 generated ones (docs/speed.md).
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

__all__ = [
    "FEW",
    "MANY_ROWS",
    "VERY_MANY_ROWS",
    "Capacity",
    "boosted_for",
    "capacity_for",
    "folds_for",
    "rounds_on_all",
]

MANY_ROWS = 10_000
VERY_MANY_ROWS = 50_000
ROUNDS = 200  # for few rows, and for each `MANY_ROWS` of many
MOST_ROUNDS = 3000


class Capacity(NamedTuple):
    """How large an ensemble may grow."""

    n_rounds: int
    depth: int
    n_leaves: int


FEW = Capacity(ROUNDS, depth=4, n_leaves=16)


def capacity_for(n_rows: int) -> Capacity:
    """For an expert on so many rows."""
    if n_rows < MANY_ROWS:
        return FEW
    return Capacity(min(MOST_ROUNDS, ROUNDS * n_rows // MANY_ROWS), depth=8, n_leaves=31)


def boosted_for(n_rows: int) -> dict[str, Any]:
    """What else changes with the rows, as attributes of `Boosting`."""
    found: dict[str, Any] = {}
    if n_rows >= MANY_ROWS:
        found |= {"max_bin": 127, "in_full_view": 3}
    if n_rows >= VERY_MANY_ROWS:
        found |= {"feature_fraction": 0.85}
    return found


def folds_for(n_rows: int) -> int:
    """Parts of the rows that are left out in turn."""
    if n_rows < MANY_ROWS:
        return 5
    return 3 if n_rows < VERY_MANY_ROWS else 2


def rounds_on_all(rounds: int, n_folds: int) -> int:
    """Rounds for an ensemble on all rows, if those without a fold were best after so many.

    More rows bear more rounds: about the square root of how many more there are.
    """
    return max(1, round(rounds * sqrt(n_folds / (n_folds - 1))))
