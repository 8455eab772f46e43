"""One row for each model of a frontier."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
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

    def _lines(self) -> list[list[str]]:
        """The heads of the columns, then the rows, as text."""
        names = list(self.rows[0])
        heads = [self.quality_name if name == "quality" else name.replace("_", " ") for name in names]
        return [heads] + [[_shown(name, row[name]) for name in names] for row in self.rows]

    def _repr_html_(self) -> str:
        heads, *rows = self._lines()
        body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
        return f"<table><thead><tr>{_cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"

    def __repr__(self) -> str:
        lines = self._lines()
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in lines]
        return "\n".join(map("  ".join, padded))


def _cells(tag: str, texts: list[str]) -> str:
    style = 'style="text-align:right;padding:0.2em 0.7em;font-variant-numeric:tabular-nums"'
    return "".join(f"<{tag} {style}>{escape(text)}</{tag}>" for text in texts)


def _shown(name: str, value: Any) -> str:
    if isinstance(value, float):
        return format(value, {"quality": ".4f"}.get(name, ".2f" if name.endswith("_cost") else ".4g"))
    return str(value)
