"""The model file: a zip of JSON and plain arrays, versioned, with a digest; no pickle, nothing is executed.

A file of a tree::

    manifest.json        {"format": "cstc-model", "version": 3, "sha256": "..."}
    model.json           names, categories, classes, link, items, the limit, what is known of the training
    arrays/NAME.npy      little-endian arrays in numpy's format 1.0, see `file_versions`

or, of a mixture (from version 3 on), two such files as they are, and what joins them::

    manifest.json
    mixture.json         {"share": 0.25, "seed": 0}
    cheaper.cstc
    costlier.cstc

or, of a model of whole queries (versions 4 and 5), its tree as such a file, and by how many places it goes::

    manifest.json
    queries.json         {"at": 5}
    tree.cstc

Here a model of any kind is saved and loaded, and those that are made of trees are put together.  `file_versions` says
what the files of each version hold, `file_tree` what a tree is as JSON and arrays, `file_encoding` how these are
written, and `file_container` what makes one zip of them that can be trusted.

Only numpy and the standard library are imported here: whoever loads a model waits for nothing else.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from typing import Any, NamedTuple

from ..whole_file import write_whole
from .file_container import CHUNK, MAX_BYTES, pack, unpack
from .file_encoding import check_keys, json_of, read_json
from .file_tree import members_of, tree_of
from .file_versions import (
    LATEST_OF_TREES,
    MIXTURE,
    MIXTURE_CONTENTS,
    QUERIES,
    QUERIES_CONTENTS,
    WITH_CHAINS_OF_QUERIES,
    WITH_QUERIES,
)
from .fitted import FittedTree
from .mixture import Mixture
from .queries import QueryTree
from .training import as_iso_date
from .validate import ModelFileError, fail, validate_model

__all__ = ["FileIdentity", "Model", "ModelFileError", "load", "load_named", "save"]

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
            version, members = unpack(stream, max_bytes)
            if digest is not None:
                stream.seek(0)
                while chunk := stream.read(CHUNK):
                    digest.update(chunk)
        if MIXTURE in members:
            return _mixture_of(members, max_bytes)
        if QUERIES in members:
            return _queries_of(members, max_bytes)
        return tree_of(version, members, max_bytes)
    except ModelFileError as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from error.__cause__


def _bytes_of(model: Model) -> bytes:
    if isinstance(model, FittedTree):
        validate_model(model)
        return pack(LATEST_OF_TREES, members_of(model))
    if isinstance(model, QueryTree):
        places = json_of({"at": model.at})
        version = WITH_QUERIES if len(model.chains) == 1 else WITH_CHAINS_OF_QUERIES
        return pack(version, dict(zip(QUERIES_CONTENTS, (places, _bytes_of(model.tree)), strict=True)))
    coin, trees = json_of({"share": model.share, "seed": model.seed}), map(_bytes_of, model.trees)
    return pack(LATEST_OF_TREES, dict(zip(MIXTURE_CONTENTS, (coin, *trees), strict=True)))


def _mixture_of(members: dict[str, bytearray], max_bytes: int) -> Mixture:
    """Both models must fit into what one may take."""
    document = read_json(MIXTURE, members[MIXTURE])
    check_keys(MIXTURE, document, {"share": (float,), "seed": (int,)})
    trees = [
        _tree_in(members, name, max_bytes // 2, "a mixture is of two models that are none")
        for name in MIXTURE_CONTENTS[1:]
    ]
    try:
        return Mixture(trees[0], trees[1], share=document["share"], seed=document["seed"])
    except ValueError as error:
        raise ModelFileError(str(error)) from None


def _queries_of(members: dict[str, bytearray], max_bytes: int) -> QueryTree:
    """Its tree, and the trees that it is cut into, must fit into what one model may take."""
    document = read_json(QUERIES, members[QUERIES])
    check_keys(QUERIES, document, {"at": (int,)})
    tree = _tree_in(members, QUERIES_CONTENTS[1], max_bytes // 2, "whole queries are answered by one tree")
    try:
        return QueryTree(tree, document["at"])
    except ValueError as error:
        raise ModelFileError(str(error)) from None


def _tree_in(members: dict[str, bytearray], name: str, max_bytes: int, rule: str) -> FittedTree:
    """A tree that is a member of another model."""
    try:
        version, inner = unpack(io.BytesIO(members[name]), max_bytes)
        if MIXTURE in inner or QUERIES in inner:
            fail(f"it is {'a mixture' if MIXTURE in inner else 'a model of whole queries'}; {rule}")
        return tree_of(version, inner, max_bytes)
    except ModelFileError as error:
        raise ModelFileError(f"{name}: {error}") from error.__cause__
