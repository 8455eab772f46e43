"""One row for each model of a frontier."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["FrontierTable"]


class FrontierTable:
    """One row for each model, as dictionaries; `to_pandas` for a data frame."""

    def __init__(self, rows: list[dict[str, Any]], quality_name: str):
        self.rows = rows
        self.quality_name = quality_name

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at):
        return self.rows[at]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __eq__(self, other) -> bool:
        return isinstance(other, FrontierTable) and self.rows == other.rows

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: str) -> np.ndarray:
        """The values of one column."""
        return np.array([row[name] for row in self.rows])

    def to_pandas(self):
        """The table as a pandas data frame."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError('to_pandas needs pandas: pip install "cstc[frames]"') from error
        return pandas.DataFrame(self.rows)

    def __repr__(self) -> str:
        names = list(self.rows[0])
        heads = [self.quality_name if name == "quality" else name.replace("_", " ") for name in names]
        lines = [heads] + [[_shown(name, row[name]) for name in names] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
        return "\n".join(map("  ".join, padded))


def _shown(name: str, value: Any) -> str:
    if isinstance(value, float):
        return format(value, {"quality": ".4f"}.get(name, ".2f" if name.endswith("_cost") else ".4g"))
    return str(value)
