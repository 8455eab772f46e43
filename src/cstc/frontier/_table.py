"""One row for each model of a frontier."""

from __future__ import annotations

from typing import Any

from ..metrics import ERROR_COST
from ..records import Records

__all__ = ["FrontierTable"]

ERROR = "_error"


class FrontierTable(Records):
    """One row for each model, as dictionaries; `to_pandas` for a data frame.

    A figure and its standard error are two columns, which are shown as one: ``12.34 ± 0.56``.
    """

    def __init__(self, rows: list[dict[str, Any]], quality_name: str):
        super().__init__(rows)
        self.quality_name = quality_name

    def _head(self, name: str) -> str:
        return super()._head(name).replace("quality", self.quality_name)

    def _columns(self) -> list[str]:
        shown = [name for name in super()._columns() if not name.endswith(ERROR)]
        # where validation rows alone say something of quality, once is enough
        if all(row.get("validation_quality") == row.get("quality") for row in self.rows):
            shown = [name for name in shown if name != "validation_quality"]
        return shown

    def _cell(self, name: str, row: dict[str, Any]) -> str:
        error = row.get(name + ERROR)
        return super()._cell(name, row) + ("" if error is None else f" ± {self._shown(name, error)}")

    def _shown(self, name: str, value: Any) -> str:
        if isinstance(value, float):
            digits = ".2f" if self.quality_name == ERROR_COST else ".4f"
            return format(value, digits if "quality" in name else ".2f" if name.endswith("_cost") else ".4g")
        return str(value)
