"""How much is learned from how many rows: rounds, leaves and folds, where the user leaves them to us.

Few rows
    200 rounds of depth 4 and five folds.  The members of all folds predict together: where few rows leave much noise,
    their mean is better than one ensemble on all rows.
Many rows (from 10,000 on)
    Trees have 31 leaves and are at most 8 splits deep, and there are 200 rounds for each 10,000 rows, at most 3,000;
    early stopping decides how many of them are grown.  Three folds say enough, and two from 50,000 rows on.  What
    predicts is the mean of one ensemble on all rows and of what the members say, of whom each has seen only a half or
    two thirds.  Columns have 127 bins instead of LightGBM's 255: that loses next to nothing, and saves a tenth of the
    time, or half of it where columns are many.

The figures for few rows were chosen on the sets of `benchmarks/ahead.py`; the ones for many rows on 12,000 and 66,000
rows of MiniBooNE, 11,000 of MAGIC and 50,000 and 200,000 generated ones (docs/speed.md has the figures).
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

__all__ = ["FEW", "FOR_MANY_ROWS", "MANY_ROWS", "Capacity", "capacity_for", "folds_for", "rounds_on_all"]

MANY_ROWS = 10_000
SO_MANY_THAT_TWO_FOLDS_DO = 50_000
ROUNDS = 200  # for few rows, and for each `MANY_ROWS` of many
MOST_ROUNDS = 3000


class Capacity(NamedTuple):
    """How large an ensemble may grow."""

    n_rounds: int
    depth: int
    n_leaves: int


#: How many rows are boosted, beside that: half of LightGBM's bins, and all of two or three columns for every tree.
FOR_MANY_ROWS: dict[str, Any] = {"max_bin": 127, "in_full_view": 3}
FEW = Capacity(ROUNDS, depth=4, n_leaves=16)


def capacity_for(n_rows: int) -> Capacity:
    """For an expert on so many rows."""
    if n_rows < MANY_ROWS:
        return FEW
    return Capacity(min(MOST_ROUNDS, ROUNDS * n_rows // MANY_ROWS), depth=8, n_leaves=31)


def folds_for(n_rows: int) -> int:
    """Parts of the rows that are left out in turn."""
    if n_rows < MANY_ROWS:
        return 5
    return 3 if n_rows < SO_MANY_THAT_TWO_FOLDS_DO else 2


def rounds_on_all(rounds: int, n_folds: int) -> int:
    """Rounds for an ensemble on all rows, if those without a fold were best after so many.

    More rows bear more rounds: about the square root of how many more there are.
    """
    return max(1, round(rounds * sqrt(n_folds / (n_folds - 1))))
