"""Finished models of a long fit in a folder, so that a fit that was killed goes on where it stopped.

::

    settings.json          what the models belong to: digests of the data, prices, parameters, versions
    model-WEIGHT.cstc      a finished model, in the format of `cstc.save`
    model-WEIGHT.json      what a full estimator has beside its model; written last, so it says "finished"

Every file is written beside its place and renamed: it is there whole or not at all.  No pickle.  A folder serves
one fit at a time.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..matrix import is_sparse
from ..model import FittedTree
from ..model.file import ModelFileError, load, save
from ..model.queries import QueryTree
from ..whole_file import write_whole

__all__ = ["Checkpoint", "digest"]

FORMAT = "cstc-checkpoint"
VERSION = 4  # 2: states have the solution that the next fit starts from; 3: and the candidates; 4: and out_of_fold
_SETTINGS = "settings.json"
_UNFINISHED = ".cstc-*.tmp"
_SHOWN = 5  # differences that an error lists
DIGESTED_ROWS = 4096  # at a time: rows that do not lie one after the other are copied for it


def digest(array: Any) -> str | None:
    """SHA-256 of the type, the shape and the bytes of an array, or of the parts of a sparse matrix."""
    if array is None:
        return None
    if is_sparse(array):
        parts = (digest(part) for part in (array.data, array.indices.astype(np.int64), array.indptr.astype(np.int64)))
        found = hashlib.sha256(f"sparse {array.shape} {' '.join(map(str, parts))}".encode())
    else:
        array = np.asarray(array)
        found = hashlib.sha256(f"{array.dtype.str} {array.shape}\n".encode())
        for start in range(0, len(array), DIGESTED_ROWS):
            found.update(np.ascontiguousarray(array[start : start + DIGESTED_ROWS]).data)
    return f"{'x'.join(map(str, array.shape))} sha256:{found.hexdigest()}"


class Checkpoint:
    """A folder of finished models.

    Parameters
    ----------
    path : path
        The folder; made when the first model is stored.

    Attributes
    ----------
    settings : dict or None
        What the models in the folder belong to; None for a new one.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.folder = Path(path)
        self.settings: dict[str, Any] | None = None
        if not self.folder.exists():
            return
        if not self.folder.is_dir():
            raise ValueError(f"checkpoint {str(path)!r} is a file; give a folder")
        if (self.folder / _SETTINGS).exists():
            self.settings = self._read(_SETTINGS)
        elif any(not name.match(_UNFINISHED) for name in self.folder.iterdir()):
            raise ValueError(
                f"checkpoint {str(path)!r} is a folder with other files in it, and no {_SETTINGS}; "
                "give a new or an empty folder"
            )
        for unfinished in self.folder.glob(_UNFINISHED):  # of a fit that was killed
            with contextlib.suppress(OSError):
                unfinished.unlink()

    def bind(self, settings: Mapping[str, Any]) -> None:
        """Say what is to be fitted; an error says how a folder of other models differs."""
        wanted = json.loads(json.dumps({"format": FORMAT, "version": VERSION, **settings}))
        if self.settings is not None and self.settings != wanted:
            found = list(_differences(wanted, self.settings))
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            raise ValueError(
                f"checkpoint {str(self.folder)!r} belongs to a fit of other data or settings: "
                f"{'; '.join(found[:_SHOWN])}{more}. Give another folder, or delete this one"
            )
        self._wanted = wanted
        self._fingerprint = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()

    def restore(self, weight: float) -> tuple[FittedTree | QueryTree, dict[str, Any]] | None:
        """The finished model of a cost weight and its state, or None."""
        name = f"model-{float(weight)!r}"
        if self.settings is None or not (self.folder / f"{name}.json").exists():
            return None
        stored = self._read(f"{name}.json")
        if stored.get("fingerprint") != self._fingerprint:
            raise ValueError(f"{str(self.folder / name)!r}.json belongs to another fit; delete it, or the whole folder")
        try:
            model = load(self.folder / f"{name}.cstc")
        except (ModelFileError, OSError) as error:
            raise ValueError(
                f"{name}.cstc of the checkpoint cannot be read: {error}. Without {name}.json it is fitted again"
            ) from error
        if not isinstance(model, FittedTree | QueryTree):
            raise ValueError(f"{name}.cstc is no model of this checkpoint. Without {name}.json it is fitted again")
        return model, stored["state"]

    def store(self, weight: float, model: FittedTree | QueryTree, state: Mapping[str, Any]) -> None:
        """Add a finished model."""
        if self.settings is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._write(_SETTINGS, self._wanted)
            self.settings = self._wanted
        name = f"model-{float(weight)!r}"
        save(model, self.folder / f"{name}.cstc")
        self._write(f"{name}.json", {"fingerprint": self._fingerprint, "state": dict(state)})

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        write_whole(os.path.realpath(self.folder / name), json.dumps(document, indent=1).encode())

    def _read(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads((self.folder / name).read_bytes())
        except ValueError as error:
            raise ValueError(f"{str(self.folder / name)!r} is damaged: {error}. Delete the checkpoint") from error
        if not isinstance(document, dict):
            raise ValueError(f"{str(self.folder / name)!r} is no part of a checkpoint. Delete the checkpoint")
        return document


def _differences(here: Any, there: Any, name: str = "") -> Iterator[str]:
    """One sentence for each entry that is not the same in two nested dictionaries."""
    if isinstance(here, dict) and isinstance(there, dict):
        for key in [*here, *(key for key in there if key not in here)]:
            nothing = "absent"
            yield from _differences(here.get(key, nothing), there.get(key, nothing), f"{name}.{key}" if name else key)
    elif here != there:
        digests = [isinstance(value, str) and "sha256:" in value for value in (here, there)]
        if any(digests):
            here, there = (f"{value}".partition("sha256:") for value in (here, there))
            shapes = "" if here[0] == there[0] else f" ({here[0].strip()} here, {there[0].strip()} in the checkpoint)"
            yield f"{name} has other values{shapes}"
        else:
            yield f"{name} is {_short(here)} here and {_short(there)} in the checkpoint"


def _short(value: Any) -> str:
    text = "given" if isinstance(value, dict) else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
