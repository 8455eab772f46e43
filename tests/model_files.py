"""Random models by hand, what a loaded model is used for, and model files taken apart: for the tests of the file."""

import hashlib
import io
import json
import warnings
import zipfile
from dataclasses import replace

import numpy as np

from cstc import Mixture, QueryTree, UnseenValueWarning
from cstc.costs import ResolvedCosts
from cstc.model import Decisions, FittedTree, Schema, Training, TreePool, TreeShape
from cstc.model.fallbacks import Estimates
from cstc.model.queries import N_MADE, gated_nodes, splits_of, with_made_costs, with_made_schema

TASKS = ("identity", "logistic", "softmax")

# -- models ------------------------------------------------------------------------------------------------------


def random_pool(rng, n_learners, n_features, categorical, depth=3):
    """Random trees: splits on numbers and categories, missing values both ways, leaves with and without a column."""
    nodes = {name: [] for name in TreePool.__dataclass_fields__ if name not in ("roots", "category_left")}
    category_left, roots = [], []

    def add(level):
        here = len(nodes["feature"])
        row = {"feature": -1, "threshold": 0.0, "left": here, "right": here, "missing_left": False}
        row |= {"zero_is_missing": False, "category_start": -1, "category_count": 0, "linear_feature": -1}
        row |= {"value": rng.normal(), "share_left": int(rng.integers(255)) / 254}
        for name, values in nodes.items():
            values.append(row[name])
        if level == 0 or rng.random() < 0.2:
            if rng.random() < 0.1:
                nodes["linear_feature"][here] = int(rng.integers(n_features))
            return here
        column = int(rng.integers(n_features))
        nodes["feature"][here] = column
        if column in categorical:
            count = int(rng.integers(1, 5))
            nodes["category_start"][here], nodes["category_count"][here] = len(category_left), count
            category_left.extend(rng.random(count) < 0.5)
        else:
            nodes["threshold"][here] = rng.normal()
            nodes["missing_left"][here] = bool(rng.random() < 0.5)
            nodes["zero_is_missing"][here] = bool(rng.random() < 0.1)
        nodes["left"][here], nodes["right"][here] = add(level - 1), add(level - 1)
        return here

    for _ in range(n_learners):
        roots.append(add(depth))
    kinds = {"threshold": float, "value": float, "share_left": float, "missing_left": bool, "zero_is_missing": bool}
    return TreePool(
        roots=np.array(roots, dtype=int),
        category_left=np.array(category_left, dtype=bool),
        **{name: np.array(values, dtype=kinds.get(name, int)) for name, values in nodes.items()},
    )


def random_classes(rng, link):
    if link == "identity":
        return None
    n = 2 if link == "logistic" else int(rng.integers(3, 6))
    kinds = [
        np.array([f"class {k} é" for k in range(n)]),
        np.arange(n) * 3 - 1,
        np.arange(n) / 2,
        np.arange(n, dtype="u1"),
    ]
    kinds.append(np.array([f"{k}" for k in range(n)], dtype=object))
    if n == 2:
        kinds.append(np.array([False, True]))
    return kinds[int(rng.integers(len(kinds)))]


def random_costs(rng, names):
    """One item for each feature, or items that several features share."""
    n = len(names)
    if rng.random() < 0.5:
        return ResolvedCosts(list(names), rng.random(n).round(2), np.eye(n, dtype=bool), float(rng.random() < 0.5))
    n_items = int(rng.integers(1, n + 3))
    requires = rng.random((n, n_items)) < 0.4
    return ResolvedCosts([f"item {r}" for r in range(n_items)], rng.random(n_items) * 10, requires, 0.25)


def random_training(rng, n_terminals):
    """All of it, some of it or nothing."""
    shares = rng.random(n_terminals) + 0.01
    known = {"rows": int(rng.integers(1, 10**6)), "mean_cost": float(rng.random()), "reached": shares / shares.sum()}
    known["trained"] = "2026-11-16" if rng.random() < 0.5 else "2026-11-16T12:30:00+01:00"
    return Training(**{name: value for name, value in known.items() if rng.random() < 0.7})


def random_model(rng, link=None):
    """A model of any task, of any shape, with or without categories, missing values and shared items."""
    link = link or TASKS[int(rng.integers(3))]
    n_features, n_learners = int(rng.integers(1, 8)), int(rng.integers(0, 13))
    names = [f"column {j} ü" if rng.random() < 0.1 else f"x{j}" for j in range(n_features)]
    categorical = set(np.flatnonzero(rng.random(n_features) < 0.3).tolist())
    classes = random_classes(rng, link)
    n_outputs = len(classes) if link == "softmax" else 1
    shape = TreeShape.full(int(rng.integers(1, 4))) if rng.random() < 0.8 else TreeShape.chain(int(rng.integers(1, 5)))
    if shape.n_nodes > 1 and rng.random() < 0.5:
        shape = shape.prune(int(rng.integers(1, shape.n_nodes)))
    n = shape.n_nodes
    route = rng.normal(size=(n_learners, n)) * (rng.random((n_learners, n)) < 0.5)
    fallbacks = random_fallbacks(rng, n_learners, n, n_outputs, n_features) if rng.random() < 0.5 else {}
    return FittedTree(
        pool=random_pool(rng, n_learners, n_features, categorical),
        shape=shape,
        predict_weights=rng.normal(size=(n_learners, n, n_outputs)) * (rng.random((n_learners, n, n_outputs)) < 0.4),
        predict_intercepts=rng.normal(size=(n, n_outputs)),
        route_weights=np.where(shape.is_leaf, 0.0, route),
        thresholds=rng.normal(size=n) * 0.3,
        constant=rng.normal(size=n_outputs),
        costs=random_costs(rng, names),
        link=link,
        schema=Schema(
            names,
            {names[j]: [f"value {k}" for k in range(4)] for j in sorted(categorical)},
            rng.random(n_features) < 0.5,
            classes,
            frozenset(names[j] for j in range(n_features) if j not in categorical and rng.random() < 0.2),
            rng.normal(size=n_features),
        ),
        training=random_training(rng, shape.n_terminals),
        limit=float(rng.random()) * 5 if rng.random() < 0.3 else None,
        decisions=random_decisions(rng, classes),
        **fallbacks,
    )


def random_decisions(rng, classes):
    """What errors cost, for some of the models with classes."""
    if classes is None or rng.random() < 0.7:
        return None
    n = len(classes)
    return Decisions(rng.random((n, n + int(rng.random() < 0.5))) * 100)


def random_mixture(rng, link=None):
    """Two models of the same columns, classes and prices."""
    first = random_model(rng, link)
    second = replace(first, thresholds=first.thresholds + rng.normal(), constant=first.constant + 1.0)
    return Mixture(first, second, share=float(rng.random()), seed=int(rng.integers(2**31)))


def random_query_shape(rng, n_groups):
    """Splits of some groups, and a chain for each; nodes of chains come in any order after the splits."""
    parents, is_upper = [], []
    ends = [(-1, True)]  # where a group may hang
    for split in range(n_groups - 1):
        parent, above = ends.pop(int(rng.integers(len(ends))))
        parents.append(parent)
        is_upper.append(above)
        ends += [(split, True), (split, False)]
    left = {end: int(rng.integers(1, 4 if n_groups > 1 else 5)) for end in ends}  # nodes that a chain still gets
    while left:
        end = list(left)[int(rng.integers(len(left)))]
        n = left.pop(end)
        parents.append(end[0])
        is_upper.append(end[1])
        if n > 1:
            left[len(parents) - 1, True] = n - 1
    return TreeShape.from_parents(parents, is_upper)


def random_query_tree(rng, n_groups=1):
    """Chains whose gates look at the places of documents: some learners are for experts and splits, some for gates."""
    shape, n_features = random_query_shape(rng, n_groups), int(rng.integers(1, 6))
    n_nodes, gated = shape.n_nodes, gated_nodes(shape)
    n_gates, is_split = len(gated), splits_of(shape)
    names = [f"x{j}" for j in range(n_features)]
    categorical = set(np.flatnonzero(rng.random(n_features) < 0.3).tolist())
    n_own = int(rng.integers(0, 8))
    pools, owners = [random_pool(rng, n_own, n_features, categorical)], [-1] * n_own
    for gate in range(n_gates):
        n_learners = int(rng.integers(0, 5))
        pool = random_pool(rng, n_learners, n_features + N_MADE, categorical)
        seen = np.append(np.arange(n_features), n_features + N_MADE * gate + np.arange(N_MADE))
        pools.append(pool.on_columns(seen))
        owners += [gate] * n_learners
    owners = np.array(owners, dtype=int)
    weights = rng.normal(size=(len(owners), n_nodes, 1)) * (rng.random((len(owners), n_nodes, 1)) < 0.6)
    weights[owners >= 0] = 0.0
    route = np.zeros((len(owners), n_nodes))
    for gate, node in [*enumerate(gated), *((-2, node) for node in np.flatnonzero(is_split))]:
        may = (owners == gate) | ((owners < 0) & (rng.random(len(owners)) < 0.3))
        route[may, node] = rng.normal(size=int(may.sum()))
    fallbacks = {}
    if rng.random() < 0.5:
        fallbacks = random_fallbacks(rng, len(owners), n_nodes, 1, n_features + N_MADE * n_gates)
        fallbacks["fallback_weights"][owners >= 0] = 0.0
        fallbacks["estimates"].source_features[:, n_features:] = False
        fallbacks["estimates"].sets[:, n_features:] = False
    schema = Schema(
        names, {names[j]: [f"value {k}" for k in range(4)] for j in sorted(categorical)}, rng.random(n_features) < 0.5
    )
    tree = FittedTree(
        pool=TreePool.concatenate(pools),
        shape=shape,
        predict_weights=weights,
        predict_intercepts=rng.normal(size=(n_nodes, 1)),
        route_weights=route,
        thresholds=np.where(shape.is_leaf, 0.0, rng.normal(size=n_nodes) * 0.3),
        constant=rng.normal(size=1),
        costs=with_made_costs(random_costs(rng, names), n_gates),
        link="identity",
        schema=with_made_schema(schema, gated.tolist()),
        training=random_training(rng, shape.n_terminals),
        **fallbacks,
    )
    return QueryTree(tree, int(rng.integers(1, 7)))


def random_queries(rng, n):
    """The query of each of n rows, as a ranker is given it."""
    return np.sort(rng.integers(0, max(1, n // 4), size=n))


def random_fallbacks(rng, n_learners, n_nodes, n_outputs, n_features):
    """Further experts, or none, and what is known of all of them; some are not for the rows of some nodes."""
    n = int(rng.integers(0, 4))
    n_sources, n_sets = int(rng.integers(0, 4)), int(rng.integers(0, 4))
    source_features = np.zeros((n_sources, n_features), dtype=bool)
    if n_sources:
        source_features[rng.integers(n_sources, size=n_features), np.arange(n_features)] = True
    losses = np.where(rng.random((n_nodes, n_nodes + n)) < 0.2, -1.0, rng.random((n_nodes, n_nodes + n)))
    shape = (n_learners, n, n_outputs)
    return {
        "fallback_weights": rng.normal(size=shape) * (rng.random(shape) < 0.4),
        "fallback_intercepts": rng.normal(size=(n, n_outputs)),
        "estimates": Estimates(
            losses=losses,
            path_losses=rng.random(n_nodes),
            harm=rng.random((n_nodes + n, n_sources)),
            sets=rng.random((n_sets, n_features)) < 0.4,
            set_harm=np.where(rng.random((n_nodes + n, n_sets)) < 0.5, -1.0, rng.random((n_nodes + n, n_sets))),
            source_names=[f"source {s}" for s in range(n_sources)],
            source_features=source_features,
            cost_weight=float(rng.random()),
        ),
    }


def random_rows(rng, model, n=12, missing=True):
    """Whole numbers and others, and gaps where the model may have seen some."""
    shape = (n, len(model.schema.feature_names))
    X = np.where(rng.random(shape) < 0.3, rng.integers(-1, 6, size=shape), rng.normal(size=shape))
    return np.where((rng.random(shape) < 0.1) & model.schema.may_miss, np.nan, X) if missing else X


def smoke(model, rng):
    """Use everything that a loaded model is for; rows have categories that it does not know."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenValueWarning)
        _smoke(model, rng)


def _smoke(model, rng):
    if isinstance(model, QueryTree):
        _smoke_queries(model, rng)
        return
    for missing in (False, True):
        X = random_rows(rng, model, missing=missing)
        margins, branch = model.decision_and_cost(X)
        learner = model.with_limit(None).predict_cost(X, "learner")  # a limit is counted by branches
        if model.limit is not None:
            assert (branch <= model.limit).all()
        if not missing:
            assert np.isfinite(margins).all()
            if model.schema.classes is not None:
                assert np.allclose(model.predict_proba(X).sum(axis=1), 1)
        assert np.isfinite(learner).all()
        assert (branch >= 0).all()
        assert (branch <= learner * (1 + 1e-9)).all()
        assert len(model.predict(X)) == len(X)
        assert (model.apply(X) < model.n_terminals).all()
    assert np.isfinite(model.terminal_costs()).all()
    if isinstance(model, Mixture):
        return
    model.compressed()
    gone = np.flatnonzero(rng.random(len(model.schema.feature_names)) < 0.5)
    X = random_rows(rng, model, missing=False)
    other = model.without(gone)
    margins, cost = other.decision_and_cost(X)
    assert np.isfinite(margins).all()
    assert (cost >= 0).all()
    assert not np.isin(other.pool.feature, gone).any()


def _smoke_queries(model, rng):
    for missing in (False, True):
        X = random_rows(rng, model, missing=missing)
        qid = random_queries(rng, len(X))
        margins, branch = model.decision_and_cost(X, qid=qid)
        learner = model.predict_cost(X, "learner", qid=qid)
        if not missing:
            assert np.isfinite(margins).all()
        assert (branch >= 0).all()
        assert (branch <= learner * (1 + 1e-9)).all()
        assert (model.apply(X, qid=qid) < model.n_terminals).all()
    gone = np.flatnonzero(rng.random(len(model.schema.feature_names)) < 0.5)
    X = random_rows(rng, model, missing=False)
    margins, cost = model.without(gone).decision_and_cost(X, qid=random_queries(rng, len(X)))
    assert np.isfinite(margins).all()
    assert (cost >= 0).all()


# -- a file, taken apart -----------------------------------------------------------------------------------------


def unpack(raw):
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(members, method=zipfile.ZIP_STORED):
    """`members` as a mapping, or as pairs where a name is to appear twice."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=method)
    return packed.getvalue()


def with_digest(members):
    """A manifest that fits the content; the digest is computed as the format says, not by the code under test."""
    manifest = json.loads(members["manifest.json"])
    digest = hashlib.sha256(f"cstc-model {manifest['version']}\n".encode())
    for name, content in members.items():
        if name != "manifest.json":
            digest.update(f"{name} {len(content)}\n".encode() + content)
    return members | {"manifest.json": json.dumps(manifest | {"sha256": digest.hexdigest()}).encode()}


ADDED_BY_2 = ("share_left", "means", "fallback_places", "fallback_values", "fallback_intercepts")
ADDED_BY_2 += ("losses", "path_losses", "harm", "set_harm", "source_places", "set_places")


def as_version_1(raw):
    """The bytes of a file as version 1 had them: without what later versions add."""
    members = unpack(raw)
    document = json.loads(members["model.json"])
    del document["booleans"], document["training"], document["estimates"], document["limit"]
    for name in (*ADDED_BY_2, "error_costs"):
        members.pop(f"arrays/{name}.npy", None)
    manifest = json.loads(members["manifest.json"]) | {"version": 1}
    members |= {"model.json": json.dumps(document).encode(), "manifest.json": json.dumps(manifest).encode()}
    return pack(with_digest(members))


def as_version_2(raw):
    """The bytes of a file as version 2 had them."""
    members = unpack(raw)
    document = json.loads(members["model.json"])
    del document["limit"]
    members.pop("arrays/error_costs.npy", None)
    manifest = json.loads(members["manifest.json"]) | {"version": 2}
    members |= {"model.json": json.dumps(document).encode(), "manifest.json": json.dumps(manifest).encode()}
    return pack(with_digest(members))


def get(members, name):
    return np.load(io.BytesIO(members[f"arrays/{name}.npy"]), allow_pickle=False).copy()


def put(members, name, array):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(array), version=(1, 0))
    members[f"arrays/{name}.npy"] = stream.getvalue()


def pick(rng, options):
    return options[int(rng.integers(len(options)))]


def array_names(members, kind=None):
    """The arrays of a file, or those that are not empty and hold integers, floats or flags ("i", "f", "b")."""
    contents = {name[7:-4]: content for name, content in members.items() if name.startswith("arrays/")}
    if kind is None:
        return list(contents)
    return [name for name, content in contents.items() if content[22:23] == kind.encode() and len(content) > 128]
