"""``cstc inspect``: which model a file holds, its tree, what its paths buy, its items and its features."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import click
import numpy as np

from ..model import Decisions, FittedTree
from ..model.file import FileIdentity, Model, load_named
from ..model.mixture import Mixture
from ..model.queries import QueryTree
from ._needed import features_used, trees_of
from ._options import model_argument

__all__ = ["inspect"]


@click.command()
@model_argument
@click.option("--path", "paths", is_flag=True, help="The whole path to each terminal: what every node on it buys.")
@click.option("--json", "as_json", is_flag=True, help="All of it, the paths too, as JSON.")
def inspect(model: str, paths: bool, as_json: bool) -> None:
    """Print which model it is, its tree, its items with their prices, and its features.

    Items and features that the model buys come first.
    """
    loaded, identity = load_named(model)
    if as_json:
        click.echo(json.dumps(_document(loaded, identity), indent=1, ensure_ascii=False, default=str))
        return
    click.echo("\n".join(_identity(loaded, identity)))
    names = loaded.schema.feature_names
    if isinstance(loaded, FittedTree):
        _show(loaded, names, paths)
        return
    if isinstance(loaded, QueryTree):
        click.echo(f"queries      whole ones: gates see the place of a document, by the {loaded.at} best of its query")
        n_made = len(loaded.tree.schema.feature_names) - len(names)
        click.echo(
            f"made         {_count(n_made, 'column')} of scores for that, which cost nothing and are no features"
        )
        _show(loaded.charged_tree, names, paths, takes_budget=False)
        return
    part = f"{1 - loaded.share:.1%}", f"{loaded.share:.1%}"
    click.echo(f"mixture      {part[0]} of rows take the cheaper of two models, {part[1]} the other")
    click.echo(f"seed         {loaded.seed}, of the coins that are drawn from the ids of rows")
    for name, tree in zip(("cheaper", "more expensive"), loaded.trees, strict=True):
        click.echo(f"\nthe {name} model")
        _show(tree, names, paths)


def _show(tree: FittedTree, names: list[str], paths: bool, takes_budget: bool = True) -> None:
    """A tree with the features of these names, which come first among its columns."""
    ways = [_path_lines(tree)] if paths else []
    for block in (_summary(tree, takes_budget), _tree(tree), *ways, _items(tree), _features(tree, names)):
        click.echo("\n".join(block))


# -- paths -----------------------------------------------------------------------------------------------------------


class _Step(NamedTuple):
    """A node on a path: which way the row leaves it (None: it ends there), and what is newly bought for it at most."""

    node: int
    way: str | None
    buys: dict[str, float]


class _Path(NamedTuple):
    terminal: int
    most: float
    share: float | None  # of the training rows
    steps: list[_Step]
    items: dict[str, float]  # the most expensive first


def _paths_of(tree: FittedTree) -> list[_Path]:
    """The way to each terminal, as rows go it."""
    uses = tree.pool.learner_uses(tree.costs.feature_items)
    prices = dict(zip(tree.costs.item_names, tree.costs.prices.tolist(), strict=True))
    costs, shares, found = tree.terminal_costs(), tree.training.reached, []

    def priced(items: np.ndarray) -> dict[str, float]:
        names = [tree.costs.item_names[r] for r in np.flatnonzero(items)]
        return {name: prices[name] for name in sorted(names, key=lambda name: -prices[name])}

    def go(element: int, steps: list[_Step], bought: np.ndarray) -> None:
        routes, answers = tree.route_learners[element], tree.predict_learners[element]
        threshold = float(tree.thresholds[element])
        children: list[tuple[str | None, Any]] = [(None, tree.shape.upper[element])]
        if not tree.shape.is_leaf[element]:
            children = [(f"> {threshold:.6g}", tree.shape.upper[element])]
            children += [(f"≤ {threshold:.6g}", tree.shape.lower[element])]
        for way, child in children:
            needed = answers if way is None else routes if child >= 0 else routes | answers
            new = uses[needed].any(axis=0) & ~bought
            taken = [*steps, _Step(element, way, priced(new))]
            if child >= 0:
                go(int(child), taken, bought | new)
            else:
                terminal = -1 - int(child)
                share = None if shares is None else float(shares[terminal])
                found.append(_Path(terminal, float(costs[terminal]), share, taken, priced(bought | new)))

    go(0, [], np.zeros(tree.costs.n_items, dtype=bool))
    return found


def _path_lines(tree: FittedTree) -> list[str]:
    lines = ["", "paths (what a node buys at most, beyond what was bought before)"]
    for path in _paths_of(tree):
        share = "" if path.share is None else f", {path.share:.1%} of the training rows"
        lines.append(f"  terminal {path.terminal}: at most {path.most:g}{share}")
        for step in path.steps:
            way = "ends here" if step.way is None else f"margin {step.way}"
            bought = ", ".join(f"{name} {price:g}" for name, price in step.buys.items()) or "nothing"
            lines.append(f"    node {step.node}, {way}: buys {bought}")
    return lines


# -- as JSON ---------------------------------------------------------------------------------------------------------


def _document(loaded: Model, identity: FileIdentity) -> dict[str, Any]:
    training, classes = loaded.training, loaded.schema.classes
    found: dict[str, Any] = {
        "model": identity.name,
        "sha256": identity.sha256,
        "trained": training.trained,
        "rows": training.rows,
        "mean_cost": training.mean_cost,
        "classes": None if classes is None else classes.tolist(),
        "full_cost": loaded.costs.full_cost,
        "limit": loaded.limit,
        "error_costs": None if loaded.decisions is None else loaded.decisions.costs.tolist(),
    }
    if isinstance(loaded, Mixture):
        found["mixture"] = {"share": loaded.share, "seed": loaded.seed}
    if isinstance(loaded, QueryTree):
        found["whole_queries"] = {"at": loaded.at}
    trees = [loaded.charged_tree] if isinstance(loaded, QueryTree) else trees_of(loaded)
    return found | {"trees": [_tree_document(tree, loaded.schema.feature_names) for tree in trees]}


def _tree_document(tree: FittedTree, names: list[str]) -> dict[str, Any]:
    return {
        "nodes": tree.shape.n_nodes,
        "weak_learners": tree.pool.n_learners,
        "fallbacks": tree.fallback_weights.shape[1],
        "sources": [] if tree.estimates is None else list(tree.estimates.source_names),
        "paths": [path._asdict() | {"steps": [step._asdict() for step in path.steps]} for path in _paths_of(tree)],
        "items": [{"item": name, "price": price, "use": use} for name, price, use in _items_of(tree)],
        "features": [each._asdict() for each in _features_of(tree, names)],
    }


# -- as text ---------------------------------------------------------------------------------------------------------


def _identity(tree: Model, identity: FileIdentity) -> list[str]:
    training = tree.training
    lines = [f"model        {identity.name}", f"sha256       {identity.sha256}"]
    known = [] if training.rows is None else [f"on {_count(training.rows, 'row')}"]
    known += [] if training.trained is None else [training.trained]
    lines += [f"trained      {', '.join(known)}"] if known else []
    return lines + ([] if training.mean_cost is None else [f"mean cost    {training.mean_cost:g} in training"])


def _summary(tree: FittedTree, takes_budget: bool) -> list[str]:
    classes = tree.schema.classes
    kind = "numbers" if classes is None else f"{len(classes)} classes: {_few([str(name) for name in classes])}"
    full = tree.costs.full_cost
    lines = [
        f"predicts     {kind}",
        f"tree         {_count(tree.shape.n_nodes, 'node')}, {_count(tree.shape.n_terminals, 'terminal')}, "
        f"{_count(tree.pool.n_learners, 'weak learner')}",
        f"all features {full:g}",
    ]
    if tree.limit is not None:
        lines.append(f"limit        {tree.limit:g}; no row pays more")
    if tree.decisions is not None and classes is not None:
        lines += _errors(tree.decisions, [str(name) for name in classes])
    n_fallbacks = tree.fallback_weights.shape[1]
    if n_fallbacks:
        when = "a source is down or the budget is spent" if takes_budget else "a source is down"
        lines.append(f"fallbacks    {_count(n_fallbacks, 'expert')} for when {when}")
    if tree.estimates is not None:
        lines.append(f"sources      {_few(tree.estimates.source_names) or 'none'}")
    if tree.costs.evaluation:
        lines.append(f"evaluation   {tree.costs.evaluation:g} for each weak learner")
    return lines


def _errors(decisions: Decisions, names: list[str]) -> list[str]:
    """What each decision costs, by the truth."""
    lines = []
    decided = [*names, "refer to a person"]
    for name, prices in zip(names, decisions.costs.tolist(), strict=True):
        told = [f"{each} {price:g}" for each, price in zip(decided, prices, strict=False)]
        lines.append(f"errors       where {name} is true, to decide costs: {_few(told)}")
    return lines


def _tree(tree: FittedTree) -> list[str]:
    """The nodes, children below their parents, and what the paths to the terminals cost at most."""
    lines = ["", "tree (upper child first: margin above the threshold)"]
    costs, items = tree.terminal_costs(), tree.terminal_items()

    def show(element: int, depth: int, way: str) -> None:
        indent = "  " * (depth + 1)
        if element < 0:
            terminal = -1 - element
            names = [tree.costs.item_names[r] for r in np.flatnonzero(items[terminal])]
            lines.append(f"{indent}{way}terminal {terminal}: at most {costs[terminal]:g} ({_few(names) or 'nothing'})")
            return
        n_learners = int((tree.route_learners[element] | tree.predict_learners[element]).sum())
        described = f"{indent}{way}node {element}: {_count(n_learners, 'weak learner')}"
        if tree.shape.is_leaf[element]:
            lines.append(described)
            show(int(tree.shape.upper[element]), depth + 1, "")
            return
        lines.append(f"{described}, threshold {tree.thresholds[element]:.6g}")
        show(int(tree.shape.upper[element]), depth + 1, "> ")
        show(int(tree.shape.lower[element]), depth + 1, "≤ ")

    show(0, 0, "")
    return lines


BOUGHT, BY_FALLBACKS, NEVER = "bought", "only by fallbacks", "never bought"


def _items_of(tree: FittedTree) -> list[tuple[str, float, str]]:
    """Name, price and use of each item: those that are bought first, the most expensive of them before the others."""
    used = np.asarray(tree.terminal_items().any(axis=0))
    by_fallbacks = tree.costs.items_of(np.flatnonzero(tree.expert_features.any(axis=0)))
    uses = np.where(used, BOUGHT, np.where(by_fallbacks, BY_FALLBACKS, NEVER)).tolist()
    found = zip(tree.costs.item_names, tree.costs.prices.tolist(), uses, strict=True)
    order = (BOUGHT, BY_FALLBACKS, NEVER)
    return sorted(found, key=lambda item: (order.index(item[2]), -item[1]))


def _items(tree: FittedTree) -> list[str]:
    rows = [[name, f"{price:g}", "" if use == BOUGHT else use] for name, price, use in _items_of(tree)]
    return ["", "items", *_table(["item", "price", ""], rows)]


class _Feature(NamedTuple):
    feature: str
    price: float
    items: list[str]
    categories: list[str] | None
    may_be_missing: bool
    use: str


def _features_of(tree: FittedTree, names: list[str]) -> list[_Feature]:
    """The features that are used first."""
    used, by_fallbacks = features_used(tree)
    found = []
    for j, name in enumerate(names):
        needs = [tree.costs.item_names[r] for r in np.flatnonzero(tree.costs.feature_items[j])]
        use = "used" if used[j] else BY_FALLBACKS if by_fallbacks[j] else "not used"
        categories, may_miss = tree.schema.categories.get(name), bool(tree.schema.may_miss[j])
        found.append(_Feature(name, float(tree.costs.feature_prices[j]), needs, categories, may_miss, use))
    order = ("used", BY_FALLBACKS, "not used")
    return sorted(found, key=lambda feature: order.index(feature.use))


def _features(tree: FittedTree, names: list[str]) -> list[str]:
    rows = []
    for each in _features_of(tree, names):
        kind = "number" if each.categories is None else f"category: {_few(each.categories)}"
        notes = ["may be missing"] * each.may_be_missing + [each.use] * (each.use != "used")
        rows.append([each.feature, f"{each.price:g}", _few(each.items), kind, ", ".join(notes)])
    return ["", "features", *_table(["feature", "price", "items", "values", ""], rows)]


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[k]) for row in [header, *rows]) for k in range(len(header))]
    return [
        ("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))).rstrip()
        for row in [header, *rows]
    ]


def _few(names: list[str], most: int = 6) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
