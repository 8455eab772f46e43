"""What errors cost, from a CSV file: a line for each class as the truth, a column for each class as the decision.

::

    truth,sick,well,refer
    sick,0,5000,60
    well,300,0,60

The column ``refer`` is the price of handing the row to a person, and may be left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..costs import shorten
from ._csv import CsvFile
from ._input import open_input
from ._reading import Reading
from ._tables import class_of

__all__ = ["read_error_costs"]

REFER = "refer"


def read_error_costs(path: str, reading: Reading, classes: np.ndarray) -> dict[Any, dict[Any, float]]:
    """``{truth: {decision: price}}`` with the classes of the data; None is to refer to a person."""
    table, names = CsvFile(open_input(path), reading), classes.tolist()
    decisions = [_decision(path, name, names) for name in table.names[1:]]
    wanted = f"the header is 'truth', then the classes {shorten(names)}, and 'refer' if a person may be asked"
    if table.names[0] != "truth" or not set(map(str, names)) <= set(map(str, decisions)):
        raise ValueError(f"{path}, line 1: {wanted}; this one is {shorten(table.names)}")
    found: dict[Any, dict[Any, float]] = {}
    row = 0
    for block in table.blocks(table.names):
        for cells in block.to_pylist():
            where = f"{path}, {table.place(row)}"
            truth = _decision(where, cells["truth"], names)
            if truth is None or truth in found:
                raise ValueError(f"{where}: {cells['truth']!r} stands there twice, or is no class; {wanted}")
            prices = [_price(where, name, cells[name], reading.decimal) for name in table.names[1:]]
            found[truth] = dict(zip(decisions, prices, strict=True))
            row += 1
    lost = [name for name in names if name not in found]
    if lost:
        raise ValueError(f"{path} has no line for the class {shorten(lost)}; each class needs one")
    return found


def _decision(where: str, text: str | None, classes: list[Any]) -> Any:
    at = class_of(text, classes)
    if at is None and text != REFER:
        raise ValueError(f"{where}: {text!r} is no class of the target; it has {shorten(classes)}")
    return None if at is None else classes[at]


def _price(where: str, name: str, text: str | None, decimal: str) -> float:
    try:
        return float((text or "").replace(decimal, "."))
    except ValueError:
        raise ValueError(f"{where}, column {name!r}: {text!r} is no price; give a number, 0 or more") from None
