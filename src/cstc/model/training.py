"""What a model remembers of its training: how many rows, what they paid, where they ended, and when that was.

Nothing of it is needed to predict.  A service names its model by it, and holds what it sees against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np

__all__ = ["UNKNOWN", "Training", "as_iso_date"]


@dataclass(frozen=True, eq=False)
class Training:
    """What is known of a training; None for what is not.

    Attributes
    ----------
    rows : int or None
        Training rows, those without weight left out.
    mean_cost : float or None
        What a training row pays on average, counted by branches.
    reached : ndarray of shape (n_terminals,) or None
        Share of the training rows that ended at each terminal.
    trained : str or None
        A date, or a date with a time, in the form of ISO 8601.
    """

    rows: int | None = None
    mean_cost: float | None = None
    reached: np.ndarray | None = None
    trained: str | None = None


UNKNOWN = Training()


def as_iso_date(value: Any) -> str:
    """A date or a time as text of ISO 8601; ValueError if it is none.

    Text is kept as it was written, so that a model that is saved again has the same bytes.
    """
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    if isinstance(value, str) and value.isascii():
        for read in (date.fromisoformat, datetime.fromisoformat):
            try:
                read(value)
            except ValueError:
                continue
            return value
    raise ValueError(f"trained is {value!r}; give a date, such as '2026-11-16', or a date with a time")
