"""One row for each model of a frontier."""

from __future__ import annotations

from typing import Any

from ..records import Records

__all__ = ["FrontierTable"]


class FrontierTable(Records):
    """One row for each model, as dictionaries; `to_pandas` for a data frame."""

    def __init__(self, rows: list[dict[str, Any]], quality_name: str):
        super().__init__(rows)
        self.quality_name = quality_name

    def _head(self, name: str) -> str:
        return self.quality_name if name == "quality" else super()._head(name)

    def _shown(self, name: str, value: Any) -> str:
        if isinstance(value, float):
            return format(value, {"quality": ".4f"}.get(name, ".2f" if name.endswith("_cost") else ".4g"))
        return str(value)
