"""Prometheus' text format: a family of samples as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["family"]

#: The end of a sample's name (buckets of a histogram have one), its labels, and its value.
Sample = tuple[str, Mapping[str, Any], float]


def family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> list[str]:
    """The lines of one family: what it is, its type, and its samples."""
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    return lines + [f"{name}{end}{_labels(labels)} {_number(value)}" for end, labels, value in samples]


def _labels(labels: Mapping[str, Any]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape(str(value))}"' for name, value in labels.items()) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
