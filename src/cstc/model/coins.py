"""A coin for each row: a number from 0 to below 1, the same one wherever and whenever the row is answered.

By the row's id, it is a digest of the seed and of the text of the id.  So a row that comes again takes the same model
again, in a table, on demand and in another process, on any machine.

Without ids, rows take turns by their numbers: the coin of row k is the fraction of ``start + k * (sqrt(5) - 1) / 2``.
Of any rows that follow each other, nearly the same share has a coin below a bound, so that few rows meet a mean
better than by chance.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from datetime import date
from numbers import Real
from typing import Any
from uuid import UUID

import numpy as np

__all__ = ["Turns", "check_ids", "coin", "coins", "is_no_id", "turn"]

BITS = 53  # what a float holds exactly
GOLDEN = 0x9E3779B97F4A7C15  # (sqrt(5) - 1) / 2 in 64 bits; its multiples lie as evenly as those of any number can


def coin(seed: int, identity: Any) -> float:
    """The coin of the row of an id: a text, or a number.

    Examples
    --------
    >>> coin(0, "patient 7") == coin(0, "patient 7"), coin(0, 7) == coin(0, "7") == coin(0, 7.0)
    (True, True)
    """
    return _fraction(_digest(f"{seed} {_text(identity)}"))


def turn(seed: int, number: int) -> float:
    """The coin of a row without an id, by its number.

    Examples
    --------
    >>> sum(turn(0, number) < 0.25 for number in range(1000, 1400))
    100
    """
    return _fraction((_digest(f"{seed}") + number * GOLDEN) % 2**64)


@dataclass(frozen=True)
class Turns:
    """In the place of ids, where rows are a part of more: they take turns by their numbers, from `first` on."""

    first: int


def coins(seed: int, ids: Any, n: int) -> np.ndarray:
    """The coins of n rows, by their ids; without ids by their numbers, from 0 on or as `Turns` says."""
    if ids is not None and not isinstance(ids, Turns):
        return np.array([coin(seed, identity) for identity in check_ids(ids, n)], dtype=float)
    first = 0 if ids is None else ids.first
    # whole numbers of 64 bits that wrap around
    steps = (np.arange(n, dtype=np.uint64) + np.uint64(first)) * np.uint64(GOLDEN)
    return (steps + np.uint64(_digest(f"{seed}")) >> np.uint64(64 - BITS)) / 2.0**BITS


def check_ids(ids: Any, n: int) -> list[Any]:
    """One id for each of n rows, as a list."""
    if isinstance(ids, str | bytes | dict) or not hasattr(ids, "__iter__"):
        raise ValueError(f"ids is {ids!r}; give one id for each row, texts or numbers: ids=['a17', 'a18']")
    found = ids.tolist() if isinstance(ids, np.ndarray) else list(ids)
    if len(found) != n:
        raise ValueError(f"ids has {len(found)} entries, X has {n} rows; give one for each row")
    for number, identity in enumerate(found):
        if is_no_id(identity):
            raise ValueError(f"ids has {identity!r} for row {number}; each row needs a text or a number of its own")
    return found


def is_no_id(identity: Any) -> bool:
    """Whether this tells no row from another in every process: neither a text, nor a number, a date or a UUID."""
    if isinstance(identity, np.generic):
        identity = identity.item()
    if isinstance(identity, bool):
        return True
    if isinstance(identity, Real):
        return not math.isfinite(float(identity))
    return not isinstance(identity, str | bytes | date | UUID)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "big")


def _fraction(whole: int) -> float:
    return (whole >> (64 - BITS)) / 2.0**BITS


def _text(identity: Any) -> str:
    """A whole number has one text, whatever type a table gave it."""
    if isinstance(identity, np.generic):
        identity = identity.item()
    if isinstance(identity, float) and identity.is_integer():
        identity = int(identity)
    return str(identity)
