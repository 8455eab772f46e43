"""What a fit and a frontier are given on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from ._reading import Reading

__all__ = ["Job"]


@dataclass(frozen=True)
class Job:
    """The options of `_options.trains`, as they were given."""

    table: str
    reading: Reading
    target: str
    prices: str | None
    task: str | None
    error_costs: str | None
    validation: str | None
    qid: str | None
    at: int | None
    objective: str | None
    drop: tuple[str, ...]
    category: tuple[str, ...]
    whole_queries: bool
    method: str
    rounds: int | None
    random_state: int
    jobs: int | None
    quiet: bool

    @property
    def places(self) -> int:
        """That count in a ranking."""
        return 5 if self.at is None else self.at

    @property
    def verbose(self) -> int:
        return 0 if self.quiet else 1
