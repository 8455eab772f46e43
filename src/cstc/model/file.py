"""The model file: a zip of JSON and plain arrays, versioned, with a digest; no pickle, nothing is executed.

::

    manifest.json        {"format": "cstc-model", "version": 3, "sha256": "..."}
    model.json           names, categories, classes, link, items, the limit, what is known of the training
    arrays/NAME.npy      little-endian arrays in numpy's format 1.0, see `_VERSIONS`

or, of a mixture (from version 3 on), two such files as they are, and what joins them::

    manifest.json
    mixture.json         {"share": 0.25, "seed": 0}
    cheaper.cstc
    costlier.cstc

or, of a model of whole queries (version 4), its tree as such a file, and by how many places it goes::

    manifest.json
    queries.json         {"at": 5}
    tree.cstc

Members are stored as they are, in a fixed order, with a fixed date: the same model gives the same bytes on
every machine, and a file cannot unpack to more than its own size.  The digest covers the format, the version
and the name, the length and the content of every member but the manifest.  Whole numbers are stored in 32 bits,
weights and bills as the places and values of what is not zero.

Every version is read for ever.  A model is written in the latest one that has anything new for its kind: trees and
mixtures in version 3, whole queries in version 4.  A version of trees is one entry of `_VERSIONS`: what it has beyond
the one before, and `_members_of` and `_model_of` say what becomes of that.

Only numpy and the standard library are imported here: whoever loads a model waits for nothing else.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..costs import ResolvedCosts
from .decisions import Decisions
from .fallbacks import Estimates
from .fitted import FittedTree
from .mixture import Mixture
from .pool import STEPS, TreePool
from .queries import QueryTree
from .schema import Schema
from .shape import TreeShape
from .training import Training, as_iso_date
from .validate import ModelFileError, check_memory, fail, shown, validate_model

__all__ = ["FileIdentity", "Model", "ModelFileError", "load", "load_named", "save", "whole_file", "write_whole"]

FORMAT = "cstc-model"
MAX_BYTES = 256 * 2**20
JSON_SHARE = 16  # JSON may take this part of the bytes: as Python objects it takes up to 25 times its size
MAX_MANIFEST_BYTES = 2**16
MAX_DIRECTORY_BYTES = 2**16
CHUNK = 2**20

_MANIFEST = "manifest.json"
_DOCUMENT = "model.json"
_MIXTURE = "mixture.json"
_MIXTURE_CONTENTS = (_MIXTURE, "cheaper.cstc", "costlier.cstc")
_QUERIES = "queries.json"
_QUERIES_CONTENTS = (_QUERIES, "tree.cstc")
FIRST_WITH_MIXTURES = 3
WITH_QUERIES = 4  # and nothing else
_POOL_ARRAYS = tuple(field.name for field in fields(TreePool))


def _member(name: str) -> str:
    return f"arrays/{name}.npy"


@dataclass(frozen=True)
class _Version:
    """What the files of a version hold."""

    entries: Mapping[str, tuple[type, ...]]  # of model.json, with the types that each may have
    arrays: Mapping[str, tuple[str, int]]  # type and number of dimensions

    @property
    def contents(self) -> tuple[str, ...]:
        """All members but the manifest, in their order."""
        return _DOCUMENT, *map(_member, self.arrays)

    def with_more(
        self,
        entries: Mapping[str, tuple[type, ...]] | None = None,
        arrays: Mapping[str, tuple[str, int]] | None = None,
    ) -> _Version:
        """The version after this one."""
        return _Version({**self.entries, **(entries or {})}, {**self.arrays, **(arrays or {})})


_FIRST = _Version(
    entries={
        "features": (list,),
        "categories": (dict,),
        "classes": (dict, type(None)),
        "link": (str,),
        "items": (list,),
        "evaluation": (float,),
    },
    arrays={
        "roots": ("<i4", 1),
        "feature": ("<i4", 1),
        "threshold": ("<f8", 1),
        "left": ("<i4", 1),
        "right": ("<i4", 1),
        "missing_left": ("|b1", 1),
        "zero_is_missing": ("|b1", 1),
        "category_start": ("<i4", 1),
        "category_count": ("<i4", 1),
        "category_left": ("|b1", 1),
        "value": ("<f8", 1),
        "linear_feature": ("<i4", 1),
        "upper": ("<i4", 1),
        "lower": ("<i4", 1),
        "predict_places": ("<i8", 1),  # in (n_learners, n_nodes, n_outputs), rows first
        "predict_values": ("<f8", 1),
        "predict_intercepts": ("<f8", 2),
        "route_places": ("<i8", 1),  # in (n_learners, n_nodes)
        "route_values": ("<f8", 1),
        "thresholds": ("<f8", 1),
        "constant": ("<f8", 1),
        "prices": ("<f8", 1),
        "feature_item_places": ("<i8", 1),  # in (n_features, n_items)
        "may_miss": ("|b1", 1),
    },
)
_SECOND = _FIRST.with_more(
    entries={"booleans": (list,), "training": (dict,), "estimates": (dict, type(None))},
    arrays={
        "share_left": ("|u1", 1),  # in steps of 1/254
        "means": ("<f8", 1),
        "fallback_places": ("<i8", 1),  # in (n_learners, n_fallbacks, n_outputs)
        "fallback_values": ("<f8", 1),
        "fallback_intercepts": ("<f8", 2),
        "losses": ("<f8", 2),  # these six of the estimates, empty where there are none
        "path_losses": ("<f8", 1),
        "harm": ("<f8", 2),
        "set_places": ("<i8", 1),  # in (n_sets, n_features)
        "set_harm": ("<f8", 2),
        "source_places": ("<i8", 1),  # in (n_sources, n_features)
    },
)
_THIRD = _SECOND.with_more(
    entries={"limit": (float, type(None))},
    arrays={"error_costs": ("<f8", 2)},  # the truth by decisions; empty where errors have no prices
)
_VERSIONS = {1: _FIRST, 2: _SECOND, 3: _THIRD}
VERSION = max(_VERSIONS)
LATEST = WITH_QUERIES
_IN_MEMORY = {"i": np.int64, "f": np.float64, "b": np.bool_, "u": np.int64}


#: What a file may hold.
Model = FittedTree | Mixture | QueryTree


class FileIdentity(NamedTuple):
    """What tells a model file from others: the name that it has now, and the SHA-256 of its bytes."""

    name: str
    sha256: str


def save(model: Any, path: str | os.PathLike[str], *, trained: Any = None) -> None:
    """Write a fitted model into one file.

    The file appears whole or not at all: a crash leaves what was there before.  The same model gives the same
    bytes.

    Parameters
    ----------
    model : fitted estimator, FittedTree, Mixture or QueryTree
    path : path
    trained : str, date or datetime, optional
        When the model was trained, as ISO 8601.  A file has no date that nobody gave: the same model would not give
        the same bytes.

    Raises
    ------
    ModelFileError
        If the model is not valid; nothing is written then.

    Examples
    --------
    >>> import cstc, numpy as np, pathlib, tempfile
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = cstc.CSTCRegressor(n_weak_learners=5, random_state=0).fit(X, X[:, 0])
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "model.cstc"
    >>> cstc.save(model, path)
    >>> bool((cstc.load(path).predict(X) == model.predict(X)).all())
    True
    """
    tree = getattr(model, "model_", model)
    if not isinstance(tree, FittedTree | Mixture | QueryTree):
        raise TypeError(f"a {type(model).__name__} cannot be saved; give a fitted estimator or its model_")
    if trained is not None:
        tree = tree.with_training_date(as_iso_date(trained))
    write_whole(os.path.realpath(os.fsdecode(path)), _bytes_of(tree))


def load(path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES) -> Model:
    """Read a model from a file that `save` wrote.

    Nothing in the file is executed, and all of it is checked.  The model takes matrices of numbers, a categorical
    column as the position of its value in ``model.schema.categories``, and tables with the columns of its training.

    Parameters
    ----------
    path : path
    max_bytes : int, default=256 MiB
        A file, or a model, that needs more is refused.

    Returns
    -------
    FittedTree, Mixture or QueryTree

    Raises
    ------
    ModelFileError
        If the file is damaged, of a later version, too large or no model file at all.
    OSError
        If it cannot be opened: FileNotFoundError if there is none, PermissionError if it may not be read.
    """
    return _load(path, max_bytes, None)


def load_named(
    path: str | os.PathLike[str], *, max_bytes: int = MAX_BYTES
) -> tuple[Model, FileIdentity]:
    """`load`, and what the file is: both are of the same bytes, whoever replaces the file meanwhile."""
    digest = hashlib.sha256()
    model = _load(path, max_bytes, digest)
    return model, FileIdentity(os.path.basename(os.fsdecode(path)), digest.hexdigest())


def _load(path: str | os.PathLike[str], max_bytes: int, digest: Any) -> Model:
    """`digest` is fed with the whole of the file, once it was found right."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            fail("it is no plain file")
        with open(path, "rb") as stream:
            version, members = _unpack(stream, max_bytes)
            if digest is not None:
                stream.seek(0)
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
        if _MIXTURE in members:
            return _mixture_of(members, max_bytes)
        if _QUERIES in members:
            return _queries_of(members, max_bytes)
        return _model_of(_VERSIONS[version], members, max_bytes)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__


# -- model <-> members -------------------------------------------------------------------------------------------


def _bytes_of(model: Model) -> bytes:
    if isinstance(model, FittedTree):
        validate_model(model)
        return _pack(_members_of(model), _VERSIONS[VERSION].contents)
    if isinstance(model, QueryTree):
        members = dict(zip(_QUERIES_CONTENTS, (_json({"at": model.at}), _bytes_of(model.tree)), strict=True))
        return _pack(members, _QUERIES_CONTENTS, WITH_QUERIES)
    content = _json({"share": model.share, "seed": model.seed}), *map(_bytes_of, model.trees)
    return _pack(dict(zip(_MIXTURE_CONTENTS, content, strict=True)), _MIXTURE_CONTENTS)


def _mixture_of(members: dict[str, bytearray], max_bytes: int) -> Mixture:
    """Both models must fit into what one may take."""
    document = _read_json(_MIXTURE, members[_MIXTURE])
    _check_keys(_MIXTURE, document, {"share": (float,), "seed": (int,)})
    trees = [
        _tree_in(members, name, max_bytes // 2, "a mixture is of two models that are none")
        for name in _MIXTURE_CONTENTS[1:]
    ]
    try:
        return Mixture(trees[0], trees[1], share=document["share"], seed=document["seed"])
    except ValueError as error:
        raise ModelFileError(str(error)) from None


def _queries_of(members: dict[str, bytearray], max_bytes: int) -> QueryTree:
    """Its tree, and the trees that it is cut into, must fit into what one model may take."""
    document = _read_json(_QUERIES, members[_QUERIES])
    _check_keys(_QUERIES, document, {"at": (int,)})
    tree = _tree_in(members, _QUERIES_CONTENTS[1], max_bytes // 2, "whole queries are answered by one tree")
    try:
        return QueryTree(tree, document["at"])
    except ValueError as error:
        raise ModelFileError(str(error)) from None


def _tree_in(members: dict[str, bytearray], name: str, max_bytes: int, rule: str) -> FittedTree:
    """A tree that is a member of another model."""
    try:
        version, inner = _unpack(io.BytesIO(members[name]), max_bytes)
        if _MIXTURE in inner or _QUERIES in inner:
            fail(f"it is {'a mixture' if _MIXTURE in inner else 'a model of whole queries'}; {rule}")
        return _model_of(_VERSIONS[version], inner, max_bytes)
    except ModelFileError as error:
        raise ModelFileError(f"{name}: {error}") from error.__cause__


def _members_of(model: FittedTree) -> dict[str, bytes]:
    schema, costs = model.schema, model.costs
    document = {
        "features": schema.feature_names,
        "categories": schema.categories,
        "classes": None if schema.classes is None else _describe_classes(schema.classes),
        "link": model.link,
        "items": costs.item_names,
        "evaluation": float(costs.evaluation),
        "booleans": [name for name in schema.feature_names if name in schema.booleans],
        "training": _describe_training(model.training),
        "estimates": _describe_estimates(model.estimates),
        "limit": model.limit,
    }
    arrays = {name: getattr(model.pool, name) for name in _POOL_ARRAYS}
    arrays["share_left"] = np.round(STEPS * model.pool.share_left)
    arrays |= {"upper": model.shape.upper, "lower": model.shape.lower}
    for name in ("predict_intercepts", "thresholds", "constant", "fallback_intercepts"):
        arrays[name] = getattr(model, name)
    arrays |= {"prices": costs.prices, "may_miss": schema.may_miss, "means": schema.means}
    arrays["error_costs"] = np.zeros((0, 0)) if model.decisions is None else model.decisions.costs
    arrays["fallback_places"], arrays["fallback_values"] = _sparse(model.fallback_weights)
    arrays |= _arrays_of_estimates(model.estimates)
    arrays["predict_places"], arrays["predict_values"] = _sparse(model.predict_weights)
    arrays["route_places"], arrays["route_values"] = _sparse(model.route_weights)
    arrays["feature_item_places"], _ = _sparse(costs.feature_items)
    return {_DOCUMENT: _json(document)} | {
        _member(name): _npy(name, arrays[name], kind) for name, (kind, _) in _VERSIONS[VERSION].arrays.items()
    }


def _model_of(version: _Version, members: dict[str, bytearray], max_bytes: int) -> FittedTree:
    stored = sum(map(len, members.values()))
    document = _read_json(_DOCUMENT, members.pop(_DOCUMENT))
    _check_keys(_DOCUMENT, document, version.entries)
    arrays = {name: _read_npy(name, members.pop(_member(name)), *spec) for name, spec in version.arrays.items()}
    n_nodes, n_outputs = arrays["predict_intercepts"].shape
    sizes = {
        "nodes": n_nodes,
        "outputs": n_outputs,
        "learners": len(arrays["roots"]),
        "positions": len(arrays["feature"]),
        "features": len(arrays["may_miss"]),
        "items": len(arrays["prices"]),
    }
    fallbacks: dict[str, Any] = {}
    if "fallback_intercepts" in arrays:
        intercepts = arrays["fallback_intercepts"]
        sizes["fallbacks"] = len(intercepts)
        if document["estimates"] is not None:
            sizes["sources"], sizes["sets"] = arrays["harm"].shape[1], arrays["set_harm"].shape[1]
    check_memory(sizes, stored, max_bytes)
    if "fallbacks" in sizes:
        shape = (sizes["learners"], sizes["fallbacks"], n_outputs)
        fallbacks["fallback_weights"] = _dense("fallback", arrays["fallback_places"], arrays["fallback_values"], shape)
        fallbacks["fallback_intercepts"] = intercepts
        fallbacks["estimates"] = _read_estimates(document["estimates"], arrays, sizes["features"])
        arrays["share_left"] = arrays["share_left"] / STEPS
    nodes = (sizes["learners"], n_nodes)
    bills = (sizes["features"], sizes["items"])
    requires = np.ones(len(arrays["feature_item_places"]), dtype=bool)
    model = FittedTree(
        pool=TreePool(**{name: arrays[name] for name in _POOL_ARRAYS if name in arrays}),
        shape=TreeShape(arrays["upper"], arrays["lower"]),
        predict_weights=_dense("predict", arrays["predict_places"], arrays["predict_values"], (*nodes, n_outputs)),
        predict_intercepts=arrays["predict_intercepts"],
        route_weights=_dense("route", arrays["route_places"], arrays["route_values"], nodes),
        thresholds=arrays["thresholds"],
        constant=arrays["constant"],
        costs=ResolvedCosts(
            item_names=document["items"],
            prices=arrays["prices"],
            feature_items=_dense("feature_item", arrays["feature_item_places"], requires, bills),
            evaluation=document["evaluation"],
        ),
        link=document["link"],
        schema=Schema(
            feature_names=document["features"],
            categories=document["categories"],
            may_miss=arrays["may_miss"],
            classes=None if document["classes"] is None else _read_classes(document["classes"], max_bytes),
            booleans=_read_booleans(document.get("booleans", [])),
            means=arrays.get("means"),
        ),
        training=_read_training(document["training"]) if "training" in document else Training(),
        limit=document.get("limit"),
        decisions=Decisions(arrays["error_costs"]) if "error_costs" in arrays and arrays["error_costs"].size else None,
        **fallbacks,
    )
    validate_model(model)
    return model


def _describe_estimates(estimates: Estimates | None) -> dict[str, Any] | None:
    if estimates is None:
        return None
    return {"sources": estimates.source_names, "cost_weight": float(estimates.cost_weight)}


def _arrays_of_estimates(estimates: Estimates | None) -> dict[str, np.ndarray]:
    if estimates is None:
        flat, square = np.zeros(0), np.zeros((0, 0))
        nothing = {"losses": square, "path_losses": flat, "harm": square, "set_harm": square}
        return nothing | {"source_places": flat, "set_places": flat}
    found = {name: getattr(estimates, name) for name in ("losses", "path_losses", "harm", "set_harm")}
    places = {"source_places": estimates.source_features, "set_places": estimates.sets}
    return found | {name: _sparse(array)[0] for name, array in places.items()}


def _read_estimates(
    description: dict[str, Any] | None, arrays: Mapping[str, np.ndarray], n_features: int
) -> Estimates | None:
    if description is None:
        for name in ("losses", "path_losses", "harm", "set_harm", "source_places", "set_places"):
            if arrays[name].size:
                fail(f"the array {name} holds something, and there are no estimates")
        return None
    _check_keys("estimates", description, {"sources": (list,), "cost_weight": (float,)})

    def columns(name: str, n: int) -> np.ndarray:
        places = arrays[f"{name}_places"]
        return _dense(name, places, np.ones(len(places), dtype=bool), (n, n_features))

    return Estimates(
        losses=arrays["losses"],
        path_losses=arrays["path_losses"],
        harm=arrays["harm"],
        sets=columns("set", arrays["set_harm"].shape[1]),
        set_harm=arrays["set_harm"],
        source_names=description["sources"],
        source_features=columns("source", arrays["harm"].shape[1]),
        cost_weight=description["cost_weight"],
    )


def _sparse(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places in the flattened array, growing, and values of all that is not zero."""
    flat = np.ascontiguousarray(array).ravel()
    places = np.flatnonzero(flat)
    return places, flat[places]


def _dense(name: str, places: np.ndarray, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    size = math.prod(shape)
    if len(places) != len(values):
        fail(f"{name}_places has {len(places)} entries, {name}_values has {len(values)}; they must be as many")
    if ((places < 0) | (places >= size)).any() or (places[1:] <= places[:-1]).any():
        fail(f"{name}_places must grow from entry to entry and be from 0 to {size - 1}")
    flat = np.zeros(size, dtype=values.dtype)
    flat[places] = values
    return flat.reshape(shape)


# -- JSON --------------------------------------------------------------------------------------------------------


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")).encode()


def _read_json(name: str, raw: bytearray) -> dict[str, Any]:
    try:
        document = json.loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{name} is no JSON: {error}") from error
    if not isinstance(document, dict):
        fail(f"{name} must be a JSON object")
    return document


def _check_keys(name: str, document: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]) -> None:
    if document.keys() != kinds.keys():
        fail(f"{name} has the entries {shown(sorted(document))}; it must have {sorted(kinds)}")
    for key, allowed in kinds.items():
        if type(document[key]) not in allowed:
            wanted = " or ".join(kind.__name__ for kind in allowed)
            fail(f"{key!r} in {name} is a {type(document[key]).__name__}; it must be a {wanted}")


def _read_booleans(names: list[Any]) -> frozenset[str]:
    """Each name once: a file says what it says in one way only."""
    if not all(type(name) is str for name in names) or len(set(names)) != len(names):
        fail("booleans must be a list of feature names, each of them once")
    return frozenset(names)


def _describe_training(training: Training) -> dict[str, Any]:
    """Everything under its name, null where it is not known: one form, and so the same bytes."""
    cost, reached = training.mean_cost, training.reached
    return {
        "rows": training.rows,
        "mean_cost": None if cost is None else float(cost),
        "reached": None if reached is None else reached.tolist(),
        "trained": training.trained,
    }


def _read_training(description: dict[str, Any]) -> Training:
    none = type(None)
    kinds = {"rows": (int, none), "mean_cost": (float, none), "reached": (list, none), "trained": (str, none)}
    _check_keys("training", description, kinds)
    reached = description["reached"]
    if reached is not None:
        if not all(type(share) is float for share in reached):
            fail("'reached' in training must be a list of numbers with a decimal point")
        reached = np.array(reached, dtype=np.float64)
    return Training(description["rows"], description["mean_cost"], reached, description["trained"])


def _describe_classes(classes: np.ndarray) -> dict[str, Any]:
    """Classes keep their type, so that a loaded model answers with what the estimator would."""
    kind = {"U": "str", "O": "object", "T": "object"}.get(classes.dtype.kind, classes.dtype.name)
    return {"type": kind, "values": classes.tolist()}


def _read_classes(description: dict[str, Any], max_bytes: int) -> np.ndarray:
    _check_keys("classes", description, {"type": (str,), "values": (list,)})
    kind, values = description["type"], description["values"]
    if kind in ("str", "object"):
        if not all(type(value) is str for value in values):
            fail("classes must all be texts")
        if kind == "str" and 4 * len(values) * max(map(len, values), default=0) > max_bytes:
            fail(f"the names of the {len(values)} classes are too long")
        return np.array(values, dtype=kind)
    match = re.fullmatch(r"bool|(?:(?P<sign>u?)int(?P<bits>8|16|32|64))|float(?:16|32|64)", kind)
    if match is None:
        fail(f"classes are of type {shown(kind)}; it must be str, object, bool, int8 to uint64 or float16 to float64")
    python = float if kind.startswith("float") else bool if kind == "bool" else int
    if not all(type(value) is python for value in values):
        fail(f"classes must all be of type {python.__name__}, as {kind!r} says")
    if python is int:
        bounds = np.iinfo(kind)
        if not all(bounds.min <= value <= bounds.max for value in values):
            fail(f"a class is outside of what {kind} holds")
    with np.errstate(over="ignore"):  # what is too large for a short float becomes infinite, and is refused for that
        return np.array(values, dtype=kind)


# -- arrays ------------------------------------------------------------------------------------------------------

_NPY_START = b"\x93NUMPY\x01\x00"
_NPY_HEADER = re.compile(
    rb"\{'descr': '(?P<kind>[<|][a-z][0-9])', 'fortran_order': False, "
    rb"'shape': \((?P<first>[0-9]{1,12}),(?: (?P<second>[0-9]{1,12}))?\), \} *\n"
)


def _npy(name: str, array: np.ndarray, kind: str) -> bytes:
    """The array as numpy would save it (`numpy.load` reads it), with a header that no version of numpy changes."""
    stored = np.ascontiguousarray(array, dtype=kind)
    if stored.dtype.kind in "iu" and not np.array_equal(stored, array):
        fail(f"{name} holds numbers beyond {8 * stored.dtype.itemsize} bits")
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {stored.shape}, }}".encode()
    start = -(-(len(_NPY_START) + 2 + len(header) + 1) // 64) * 64
    header = header.ljust(start - len(_NPY_START) - 3) + b"\n"
    return _NPY_START + len(header).to_bytes(2, "little") + header + stored.tobytes()


def _read_npy(name: str, raw: bytearray, kind: str, n_dimensions: int) -> np.ndarray:
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


# -- members <-> file --------------------------------------------------------------------------------------------


def _digest(version: int, members: Mapping[str, bytes | bytearray], contents: tuple[str, ...]) -> str:
    digest = hashlib.sha256(f"{FORMAT} {version}\n".encode())
    for name in contents:
        digest.update(f"{name} {len(members[name])}\n".encode())
        digest.update(members[name])
    return digest.hexdigest()


def _pack(members: Mapping[str, bytes], contents: tuple[str, ...], version: int = VERSION) -> bytes:
    manifest = {"format": FORMAT, "version": version, "sha256": _digest(version, members, contents)}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in ((_MANIFEST, _json(manifest)), *members.items()):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # the same on every system
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return packed.getvalue()


def _unpack(stream: BinaryIO, max_bytes: int) -> tuple[int, dict[str, bytearray]]:
    """The version, and all members but the manifest, once their names, sizes and digest are found right."""
    size = stream.seek(0, os.SEEK_END)
    if size > max_bytes:
        fail(f"it has {size} bytes and the limit is {max_bytes}; a larger max_bytes allows it")
    _check_end(stream, size)
    try:
        with zipfile.ZipFile(stream) as archive:
            infos = _check_directory(archive.infolist(), size, max_bytes)
            manifest = _read_manifest(_read_member(archive, infos[_MANIFEST]))
            contents = _contents_of(manifest["version"], infos.keys())
            if infos.keys() != {_MANIFEST, *contents}:
                missing, strange = {_MANIFEST, *contents} - infos.keys(), infos.keys() - {_MANIFEST, *contents}
                fail(
                    f"its members are not those of a model: missing {sorted(missing)}, strange {shown(sorted(strange))}"
                )
            members = {name: _read_member(archive, infos[name]) for name in contents}
    except ModelFileError:
        raise
    except Exception as error:  # zipfile raises a dozen kinds of errors on damaged files, not all of them its own
        raise ModelFileError(f"it cannot be read as a zip: {str(error)[:200]}") from error
    if _digest(manifest["version"], members, contents) != manifest["sha256"]:
        fail("its content does not have the digest that its manifest names: the file was damaged or changed")
    return manifest["version"], members


def _contents_of(version: int, names: Collection[str]) -> tuple[str, ...]:
    """All members but the manifest that a file of a version must have, by what it says it is."""
    if version == WITH_QUERIES:
        return _QUERIES_CONTENTS
    if version >= FIRST_WITH_MIXTURES and _MIXTURE in names:
        return _MIXTURE_CONTENTS
    return _VERSIONS[version].contents


def _check_end(stream: BinaryIO, size: int) -> None:
    """Bound the zip's directory: zipfile makes objects of all of it before anybody can ask how long it is."""
    stream.seek(max(0, size - 42))
    tail = stream.read(42)
    end = tail[-22:]
    if len(tail) < 42 or end[:4] != b"PK\x05\x06" or end[20:] != b"\0\0" or tail[:4] == b"PK\x06\x07":
        fail("it does not end as a model file does: it is cut off, or it is no model file")
    if int.from_bytes(end[12:16], "little") > MAX_DIRECTORY_BYTES:
        fail("it lists more members than a model has")


def _check_directory(infos: list[zipfile.ZipInfo], size: int, max_bytes: int) -> dict[str, zipfile.ZipInfo]:
    by_name: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.orig_filename
        if not re.fullmatch(r"[A-Za-z0-9_]+(?:[./][A-Za-z0-9_]+)*", name):
            fail(f"the member name {shown(name)} is not allowed: no absolute names, no '..', letters and digits only")
        if name in by_name:
            fail(f"the member {shown(name)} is there twice")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
            fail(f"the member {shown(name)} is compressed or encrypted; a model file stores its members as they are")
        texts = dict.fromkeys((_MANIFEST, _MIXTURE, _QUERIES), MAX_MANIFEST_BYTES)
        texts[_DOCUMENT] = max_bytes // JSON_SHARE
        limit = texts.get(name, size)
        if info.file_size > limit:
            fail(f"the member {shown(name)} claims {info.file_size} bytes, more than the {limit} that it may have")
        by_name[name] = info
    total = sum(info.file_size for info in infos)
    if total > min(size, max_bytes):
        fail(f"its members claim {total} bytes together, the file has {size}")
    if _MANIFEST not in by_name:
        fail(f"it has no {_MANIFEST}: it is no model file")
    return by_name


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytearray:
    content, at = bytearray(info.file_size), 0
    with archive.open(info) as member:
        while at < len(content):
            chunk = member.read(min(CHUNK, len(content) - at))
            if not chunk:
                fail(f"the member {shown(info.filename)} ends after {at} of {len(content)} bytes")
            content[at : at + len(chunk)] = chunk
            at += len(chunk)
    return content


def _read_manifest(raw: bytearray) -> dict[str, Any]:
    manifest = _read_json(_MANIFEST, raw)
    if manifest.get("format") != FORMAT:
        fail(f"its format is {shown(manifest.get('format'))}, not {FORMAT!r}: it is no model file")
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        fail(f"its version is {shown(version)}; it must be a whole number from 1 to {LATEST}")
    if version > LATEST:
        fail(
            f"it has version {shown(version)} of the format and this cstc reads up to {LATEST}; a later cstc reads it"
        )
    _check_keys(_MANIFEST, manifest, {"format": (str,), "version": (int,), "sha256": (str,)})
    return manifest


def write_whole(path: str, content: bytes) -> None:
    """Write beside the target, then rename: whoever opens `path` sees the old file or the new one."""
    with whole_file(path) as stream:
        stream.write(content)


@contextmanager
def whole_file(path: str) -> Iterator[BinaryIO]:
    """A stream to write a file with, which takes its place when all of it is written; after an error it is gone.

    A device or a pipe, such as /dev/null, is not replaced: it is given all that was written, at the end.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with tempfile.TemporaryFile() as waiting:
            yield waiting
            waiting.seek(0)
            with open(path, "wb") as target:
                shutil.copyfileobj(waiting, target, CHUNK)
        return
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"the folder {folder!r} does not exist; make it first, or give another path")
    unfinished = os.path.join(folder, f".cstc-{os.urandom(8).hex()}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(unfinished, flags, 0o666)  # the rights of any new file, by the user's umask
    try:
        with open(descriptor, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise
    if os.name == "posix":  # the rename itself must reach the disk too
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
