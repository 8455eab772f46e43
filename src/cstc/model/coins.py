"""A coin for each row, the same one wherever and whenever the row is answered.

A coin is a number from 0 to below 1: a digest of the seed and of the text of the row's id.  So a row that comes again
takes the same model again, in a table, on demand and in another process, on any machine.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

__all__ = ["check_ids", "coin", "coins"]

BITS = 53  # what a float holds exactly


def coin(seed: int, identity: Any) -> float:
    """The coin of one row: a text, or a number.

    Examples
    --------
    >>> coin(0, "patient 7") == coin(0, "patient 7"), coin(0, 7) == coin(0, "7") == coin(0, 7.0)
    (True, True)
    """
    digest = hashlib.blake2b(f"{seed} {_text(identity)}".encode(errors="surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> (64 - BITS)) / 2.0**BITS


def coins(seed: int, ids: Any, n: int) -> np.ndarray:
    """The coins of n rows, by their ids; without ids by their numbers, from 0 on."""
    found = range(n) if ids is None else check_ids(ids, n)
    return np.array([coin(seed, identity) for identity in found], dtype=float)


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
    """Whether this tells no row from another: nothing, or no number."""
    return identity is None or (isinstance(identity, float | np.floating) and not math.isfinite(identity))


def _text(identity: Any) -> str:
    """A whole number has one text, whatever type a table gave it."""
    if isinstance(identity, np.generic):
        identity = identity.item()
    if isinstance(identity, float) and identity.is_integer():
        identity = int(identity)
    return str(identity)
