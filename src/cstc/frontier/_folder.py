"""A fitted frontier in a folder: its models, its tables, its picture, and how it was made.

::

    frontier.json          all that is known: how it was made, the tables, the file of each model
    models/model-03.cstc   the models of `models_`, numbered from the cheapest on, in the format of `cstc.save`
    table.csv, tried.csv   `table_` and `tried_`, for a spreadsheet
    frontier.png           quality against cost
    checkpoint/            finished models, while the fit is at work (`_checkpoint`)

``frontier.json`` is written last and taken away first: where it is, the folder is whole.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..model.file import Model, ModelFileError, load_named, save
from ..whole_file import write_whole
from ._table import FrontierTable

__all__ = ["CHECKPOINT", "DOCUMENT", "SavedFrontier", "check_folder", "load_frontier", "save_frontier"]

FORMAT = "cstc-frontier"
VERSION = 1
DOCUMENT = "frontier.json"
CHECKPOINT = "checkpoint"
MODELS = "models"
TABLES = ("table.csv", "tried.csv")
PICTURE = "frontier.png"
_OWN = (DOCUMENT, CHECKPOINT, MODELS, *TABLES, PICTURE)
_UNFINISHED = ".cstc-*.tmp"


@dataclass(frozen=True, eq=False)
class SavedFrontier:
    """What `load_frontier` finds in a folder.

    Attributes
    ----------
    path : Path
    models : list of FittedTree, Mixture or QueryTree
        From cheap to expensive.
    table, tried : FrontierTable
        `table_`, a row for each of `models`, and `tried_`.
    quality_name : str
    made : dict
        How it was made, as `save_frontier` was told.
    files : list of str
        Of each model, inside of the folder.
    references : list
        Other systems beside it: a name, and points with mean_cost and quality.
    """

    path: Path
    models: list[Model]
    table: FrontierTable
    tried: FrontierTable
    quality_name: str
    made: dict[str, Any]
    files: list[str]
    references: list[Any] = field(default_factory=list)


def check_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a finished frontier lies there; an error where something else does."""
    folder = Path(path)
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise ValueError(f"{os.fspath(path)} is a file; a frontier goes into a folder")
    other = [each.name for each in folder.iterdir() if each.name not in _OWN and not each.match(_UNFINISHED)]
    if other:
        raise ValueError(
            f"{os.fspath(path)} is a folder with other files in it, such as {sorted(other)[0]!r}; give a new folder"
        )
    return (folder / DOCUMENT).exists()


def save_frontier(
    frontier: Any, path: str | os.PathLike[str], made: Mapping[str, Any], *, references: Sequence[Any] = ()
) -> None:
    """Write a fitted `Frontier` into a folder, and take its checkpoint away.

    Parameters
    ----------
    frontier : Frontier
    path : path
        A new or an empty folder, or one that had a frontier before, which is replaced.
    made : mapping
        How it was made, in values of JSON: command line, data, prices, versions, dates.
    references : sequence of (name, points), optional
        Other systems on the same rows; a point is a mapping with mean_cost and quality.
    """
    frontier._check_fitted()
    check_folder(path)
    folder = Path(path)
    picture = _picture(frontier)  # what may fail comes before anything is replaced
    (folder / MODELS).mkdir(parents=True, exist_ok=True)
    (folder / DOCUMENT).unlink(missing_ok=True)
    for old in [*(folder / MODELS).iterdir(), *folder.glob(_UNFINISHED)]:
        old.unlink()
    width = max(2, len(str(len(frontier.models_))))
    files = []
    for rank, model in enumerate(frontier.models_, start=1):
        name = f"{MODELS}/model-{rank:0{width}}.cstc"
        save(model, folder / name, trained=made.get("finished"))
        files.append({"file": name, "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest()})
    named = [{"model": each["file"]} | row for each, row in zip(files, frontier.table_, strict=True)]
    for name, rows in zip(TABLES, (named, list(frontier.tried_)), strict=True):
        _write(folder / name, _as_csv(rows))
    _write(folder / PICTURE, picture)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "quality_name": frontier.quality_name_,
        "made": dict(made),
        "models": files,
        "table": list(frontier.table_),
        "tried": list(frontier.tried_),
        "references": [[name, list(points)] for name, points in references],
    }
    _write(folder / DOCUMENT, json.dumps(document, indent=1, ensure_ascii=False, default=_plain).encode())
    shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)


def load_frontier(path: str | os.PathLike[str]) -> SavedFrontier:
    """Read what `save_frontier` wrote; nothing in the folder is executed.

    Examples
    --------
    >>> import tempfile
    >>> from cstc import CSTCRegressor, Frontier
    >>> from cstc.datasets import QUADRANT_COSTS, make_quadrants
    >>> from cstc.frontier import load_frontier, save_frontier
    >>> X, y = make_quadrants(400, random_state=0)
    >>> estimator = CSTCRegressor(costs=QUADRANT_COSTS, weak_learners="identity", random_state=0)
    >>> frontier = Frontier(estimator, cost_weights=[0.03]).fit(X, y)
    >>> folder = tempfile.mkdtemp()
    >>> save_frontier(frontier, folder, {"data": "quadrants"})
    >>> saved = load_frontier(folder)
    >>> saved.files, saved.table == frontier.table_, saved.made
    (['models/model-01.cstc', 'models/model-02.cstc'], True, {'data': 'quadrants'})
    """
    folder, shown = Path(path), os.fspath(path)
    file = folder / DOCUMENT
    if not file.exists():
        if (folder / CHECKPOINT).exists():
            raise ValueError(f"the frontier in {shown} is not finished; call 'cstc frontier' again, and it goes on")
        raise ValueError(f"{shown} holds no frontier: there is no {DOCUMENT}; 'cstc frontier -o FOLDER' makes one")
    try:
        document = json.loads(file.read_bytes())
        if document["format"] != FORMAT:
            raise ValueError(f"the format is {document['format']!r}, not {FORMAT!r}")
        if document["version"] != VERSION:
            raise ValueError(f"it has version {document['version']!r}; this cstc reads version {VERSION}")
        name, made = str(document["quality_name"]), dict(document["made"])
        table, tried = (FrontierTable([dict(row) for row in document[key]], name) for key in ("table", "tried"))
        files = [(str(each["file"]), str(each["sha256"])) for each in document["models"]]
        references = [(str(name), list(points)) for name, points in document.get("references", [])]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{file} is damaged: {error}") from None
    if not files or len(files) != len(table):
        raise ValueError(f"{file} is damaged: it has {len(files)} models and {len(table)} rows in its table")
    models = [_model(folder, each, digest) for each, digest in files]
    return SavedFrontier(folder, models, table, tried, name, made, [each for each, _ in files], references)


def _model(folder: Path, name: str, digest: str) -> Model:
    if Path(name).parts[:-1] != (MODELS,):  # no file of elsewhere
        raise ValueError(f"{folder / DOCUMENT} is damaged: it names the model {name!r}")
    try:
        model, identity = load_named(folder / name)
    except FileNotFoundError:
        raise ValueError(f"{folder / name} is not there, though {DOCUMENT} names it") from None
    except ModelFileError as error:
        raise ValueError(str(error)) from error
    if identity.sha256 != digest:
        raise ValueError(f"{folder / name} is another model than the one that was saved there")
    return model


def _picture(frontier: Any) -> bytes:
    found = io.BytesIO()
    figure = frontier.plot().figure_
    figure.savefig(found, format="png", dpi=150)
    return found.getvalue()


def _as_csv(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _write(path: Path, content: bytes) -> None:
    write_whole(os.path.realpath(path), content)


def _plain(value: Any) -> Any:
    """Numbers of numpy as those of Python."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"made holds a {type(value).__name__}, which JSON does not know")
