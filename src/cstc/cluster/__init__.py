"""Fits on other machines: where rows lie so that all workers see them, what workers do, and who they are.

A task names the rows that it needs, by files and parts of them, and brings back trees.  It never carries rows: what is
sent to a worker is lost with it, and what is named can be read again by another one.
"""

from .in_folder import InFolder, Reading
from .samples import Samples, core_of_folder, core_of_rows
from .stored import InMemory, InScratch, Part
from .workers import TaskFailed, Workers, workers_of

__all__ = [
    "InFolder",
    "InMemory",
    "InScratch",
    "Part",
    "Reading",
    "Samples",
    "TaskFailed",
    "Workers",
    "core_of_folder",
    "core_of_rows",
    "workers_of",
]
