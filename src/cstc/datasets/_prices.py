"""Files with one price for each numbered feature, as they lie beside learning-to-rank data."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["FeaturePrices", "read_feature_prices"]


@dataclass(frozen=True, eq=False)
class FeaturePrices:
    """Prices of the features 1, 2, ... of a data set, in that order."""

    path: Path
    prices: np.ndarray
    names: list[str] | None = None

    def __len__(self) -> int:
        return len(self.prices)


def read_feature_prices(path: str | Path) -> FeaturePrices:
    """Read prices by feature number, from one of two kinds of text.

    - Plain numbers, feature 1 first: one on each line, or separated by commas (Yahoo's ``featurecost.csv``).
    - CSV with a header: a column ``cost`` (or ``price``), and optionally ``index`` (feature numbers; without it
      the lines stand in the order of the features) and ``feature`` (or ``name``).

    Every feature has exactly one price, a finite number, 0 or more.
    """
    path = Path(path)
    with path.open(newline="", encoding="utf-8-sig") as lines:
        try:
            rows = [(number, [cell.strip() for cell in row]) for number, row in _numbered(lines) if any(row)]
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path}: not a text file with prices ({error})") from None
    if not rows:
        raise ValueError(f"{path}: the file is empty; it should have one price for each feature")
    if any(cell.lower() in ("cost", "price") for cell in rows[0][1]):
        return _read_table(path, rows)
    # A trailing comma at the end of a line is no price.
    cells = [
        (number, cell) for number, row in rows for at, cell in enumerate(row) if cell or not 0 < at == len(row) - 1
    ]
    return FeaturePrices(path, np.array([_price(path, number, cell) for number, cell in cells]))


def _numbered(lines):
    reader = csv.reader(lines)
    for row in reader:
        yield reader.line_num, row


def _read_table(path: Path, rows: list[tuple[int, list[str]]]) -> FeaturePrices:
    header = [cell.lower() for cell in rows[0][1]]
    if "requires" in header:
        raise ValueError(
            f"{path}: a column 'requires' needs features with names; the features of a LETOR file have numbers. "
            "Read it with CostModel.from_csv and give the columns of X their names"
        )
    price_column = next(header.index(name) for name in ("cost", "price") if name in header)
    name_column = next((header.index(name) for name in ("feature", "name") if name in header), None)
    index_column = header.index("index") if "index" in header else None
    prices: dict[int, float] = {}
    names: dict[int, str] = {}
    for place, (number, row) in enumerate(rows[1:], start=1):
        if len(row) != len(header):
            raise ValueError(f"{path}, line {number}: {len(row)} fields; the header has {len(header)}, {header}")
        feature = place
        if index_column is not None:
            text = row[index_column]
            if not (text.isascii() and text.isdigit()) or int(text) < 1:
                raise ValueError(f"{path}, line {number}: the index is {text!r}; it should be a feature number, from 1")
            feature = int(text)
        if feature in prices:
            raise ValueError(f"{path}, line {number}: feature {feature} appears twice")
        prices[feature] = _price(path, number, row[price_column])
        names[feature] = row[name_column] if name_column is not None else ""
    if not prices:
        raise ValueError(f"{path}: the header is not followed by prices")
    if max(prices) != len(prices):
        missing = next(feature for feature in range(1, len(prices) + 1) if feature not in prices)
        raise ValueError(f"{path}: feature {missing} has no price, but feature {max(prices)} has one")
    order = range(1, len(prices) + 1)
    named = [names[feature] for feature in order]
    return FeaturePrices(
        path,
        np.array([prices[feature] for feature in order]),
        named if all(named) and len(set(named)) == len(named) else None,
    )


def _price(path: Path, number: int, text: str) -> float:
    try:
        price = float(text) if "_" not in text else np.nan
    except ValueError:
        price = np.nan
    if not np.isfinite(price) or price < 0:
        raise ValueError(f"{path}, line {number}: {text!r} is no price; a price is a finite number, 0 or more")
    return price
