"""What goes into a model file as bytes: JSON and arrays, each in one form only, and both checked when read.

The same content gives the same bytes on every machine.  Readers take nothing on trust: JSON must have the entries and
types that it is asked for, an array the header that `npy_of` writes, with the type and the size that it claims.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from .validate import ModelFileError, fail, shown

__all__ = ["check_keys", "dense", "json_of", "npy_of", "read_json", "read_npy", "sparse"]

_NPY_START = b"\x93NUMPY\x01\x00"
_NPY_HEADER = re.compile(
    rb"\{'descr': '(?P<kind>[<|][a-z][0-9])', 'fortran_order': False, "
    rb"'shape': \((?P<first>[0-9]{1,12}),(?: (?P<second>[0-9]{1,12}))?\), \} *\n"
)
_IN_MEMORY = {"i": np.int64, "f": np.float64, "b": np.bool_, "u": np.int64}


def json_of(document: Mapping[str, Any]) -> bytes:
    """A document as the one text that it has."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def read_json(name: str, raw: bytearray) -> dict[str, Any]:
    """The object that a member holds."""
    try:
        document = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name} is no JSON: {error}") from error
    if not isinstance(document, dict):
        fail(f"{name} must be a JSON object")
    return document


def check_keys(name: str, document: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    """That an object has these entries and no others, each of one of its types."""
    if document.keys() != kinds.keys():
        fail(f"{name} has the entries {shown(sorted(document))}; it must have {sorted(kinds)}")
    for key, allowed in kinds.items():
        if type(document[key]) not in allowed:
            wanted = " or ".join(kind.__name__ for kind in allowed)
            fail(f"{key!r} in {name} is a {type(document[key]).__name__}; it must be a {wanted}")


def npy_of(name: str, array: np.ndarray, kind: str) -> bytes:
    """The array as numpy would save it (`numpy.load` reads it), with a header that no version of numpy changes."""
    stored = np.ascontiguousarray(array, dtype=kind)
    if stored.dtype.kind in "iu" and not np.array_equal(stored, array):
        fail(f"{name} holds numbers beyond {8 * stored.dtype.itemsize} bits")
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {stored.shape}, }}".encode()
    start = -(-(len(_NPY_START) + 2 + len(header) + 1) // 64) * 64
    header = header.ljust(start - len(_NPY_START) - 3) + b"\n"
    return _NPY_START + len(header).to_bytes(2, "little") + header + stored.tobytes()


def read_npy(name: str, raw: bytearray, kind: str, n_dimensions: int) -> np.ndarray:
    """The header has one form only: numpy's own reader evaluates it as a Python literal, this one matches it."""
    start = 10 + int.from_bytes(raw[8:10], "little")
    header = _NPY_HEADER.fullmatch(raw, 10, start)
    if raw[:8] != _NPY_START or start > len(raw) or start % 64 or header is None:
        fail(f"the array {name} does not begin as an array of version 1.0 does")
    found = header["kind"].decode()
    if found != kind:
        fail(f"the array {name} is of type {found!r}; it must be {kind!r}")
    shape = tuple(int(length) for length in (header["first"], header["second"]) if length is not None)
    if len(shape) != n_dimensions:
        fail(f"the array {name} has {len(shape)} dimensions; it must have {n_dimensions}")
    dtype = np.dtype(kind)
    if math.prod(shape) * dtype.itemsize != len(raw) - start:
        fail(f"the array {name} has shape {shape} and {len(raw) - start} bytes, which is not the same")
    array = np.frombuffer(raw, dtype=dtype, offset=start).reshape(shape)
    if kind == "|b1" and array.view(np.uint8).max(initial=0) > 1:
        fail(f"the array {name} holds bytes that are neither true nor false")
    return array.astype(_IN_MEMORY[dtype.kind], copy=False)


def sparse(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places in the flattened array, growing, and values of all that is not zero."""
    flat = np.ascontiguousarray(array).ravel()
    places = np.flatnonzero(flat)
    return places, flat[places]


def dense(name: str, places: np.ndarray, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The array that `sparse` took apart."""
    size = math.prod(shape)
    if len(places) != len(values):
        fail(f"{name}_places has {len(places)} entries, {name}_values has {len(values)}; they must be as many")
    if ((places < 0) | (places >= size)).any() or (places[1:] <= places[:-1]).any():
        fail(f"{name}_places must grow from entry to entry and be from 0 to {size - 1}")
    flat = np.zeros(size, dtype=values.dtype)
    flat[places] = values
    return flat.reshape(shape)
