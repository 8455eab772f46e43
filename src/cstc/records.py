"""A small table to be looked at: rows as dictionaries, as text, as HTML, and as a data frame."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

import numpy as np

__all__ = ["Records"]


class Records:
    """Rows as dictionaries with the same keys; `to_pandas` for a data frame."""

    def __init__(self, rows: list[dict[str, Any]]):
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at):
        return self.rows[at]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __eq__(self, other) -> bool:
        return type(other) is type(self) and self.rows == other.rows

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

    def _head(self, name: str) -> str:
        """What stands above a column."""
        return name.replace("_", " ")

    def _shown(self, name: str, value: Any) -> str:
        """A cell as text."""
        return format(value, ".4g") if isinstance(value, float) else str(value)

    def _lines(self) -> list[list[str]]:
        """The heads of the columns, then the rows, as text."""
        names = self._columns()
        return [[self._head(name) for name in names]] + [[self._cell(name, row) for name in names] for row in self.rows]

    def _columns(self) -> list[str]:
        """The columns that are shown."""
        return list(self.rows[0]) if self.rows else []

    def _cell(self, name: str, row: dict[str, Any]) -> str:
        return self._shown(name, row[name])

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
