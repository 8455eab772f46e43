"""Small problems of every task, as arrays, as tables and as folders of Parquet files."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cstc import CSTCClassifier, CSTCRanker, CSTCRegressor, Experts, Frontier

TASKS = ("regression", "two classes", "three classes", "ranking")
PRICES = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "kind": 1.0}


def world(task, n=400, seed=0):
    """X as a table, targets, and queries for ranking."""
    rng = np.random.default_rng(seed)
    numbers = np.round(rng.normal(size=(n, 4)), 2)
    numbers[rng.random(numbers.shape) < 0.05] = np.nan
    kind = rng.choice(["red", "green", "blue"], n)
    filled = np.nan_to_num(numbers)
    score = filled[:, 0] + np.where(kind == "red", filled[:, 1], filled[:, 2]) + 0.3 * rng.normal(size=n)
    table = pa.table({**{name: numbers[:, j] for j, name in enumerate("abcd")}, "kind": kind})
    if task == "regression":
        return table, score, {}
    if task == "two classes":
        return table, np.where(score > 0, "yes", "no").astype(object), {}
    if task == "three classes":
        return table, np.digitize(score, [-1, 1]), {}
    return table, np.clip(np.round(score + 1), 0, 4), {"qid": np.repeat(np.arange(n // 10), 10)}


def estimator(task, n_weak_learners=5, rows_per_fit=None, folds=3, **parameters):
    kind = {"regression": CSTCRegressor, "ranking": CSTCRanker}.get(task, CSTCClassifier)
    method = Experts(folds=folds, rows_per_fit=rows_per_fit)
    return kind(costs=PRICES, n_weak_learners=n_weak_learners, method=method, random_state=0, **parameters)


def frontier(task, *, n_weights=3, checkpoint=None, **parameters):
    return Frontier(estimator(task, **parameters), n_weights=n_weights, checkpoint=checkpoint)


def as_folder(path, task, n=400, rows_of_a_group=70, n_files=2):
    """The rows of `world` in Parquet files, and what `fit` is told of them."""
    table, y, queries = world(task, n)
    table = table.append_column("target", pa.array(y))
    for name, values in queries.items():
        table = table.append_column(name, pa.array(values))
    path.mkdir(exist_ok=True)
    cuts = np.linspace(0, n, n_files + 1).astype(int)
    for number in range(n_files):
        part = table.slice(cuts[number], cuts[number + 1] - cuts[number])
        pq.write_table(part, path / f"part-{number}.parquet", row_group_size=rows_of_a_group)
    return {"X": path, "target": "target", **{name: name for name in queries}}


def files_of(fitted, path):
    """The bytes of the files of all models that were fitted."""
    found = []
    for model in fitted.tried_models_ if hasattr(fitted, "tried_models_") else [fitted]:
        model.save(path / "model.cstc")
        found.append((path / "model.cstc").read_bytes())
    return found
