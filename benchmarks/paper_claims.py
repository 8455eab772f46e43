"""What the measured points say: curves, the table, and whether each claim of the paper holds.

A result is a dictionary of one (set, state, system): its `points`, each with validation and test figures in both
countings.  Nothing here fits anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

COUNTINGS = {"learner": "all items of every used learner (the paper's counting)", "branch": "the branches taken"}
#: Budgets, as parts of what the whole boosted ensemble costs in the same counting.
BUDGETS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.4, 0.6, 0.8, 1.0)
FULL = "stage-wise regression"
SAME = 0.002  # qualities that differ by less are the same
HARDLY = 0.01  # a change of NDCG@5 that is hardly one
USABLE = 0.95  # of the best quality: figures are drawn from the first budget on that allows so much

Results = dict[tuple[str, int, str], dict[str, Any]]
#: Mean test qualities at the budgets, by system, for each (set, counting): what the printed tables hold.
Curves = dict[tuple[str, str], dict[str, np.ndarray]]
#: What the paper puts CSTC above.
BELOW_CSTC = ("single classifier", "Cronus", "early exit", FULL)


class Claim(NamedTuple):
    """A sentence of the paper, whether it held, and the figures that say so."""

    name: str
    held: bool | None
    why: str

    @property
    def verdict(self) -> str:
        return {True: "held", False: "did not hold", None: "could not be judged"}[self.held]


# -- curves --------------------------------------------------------------------------------------------------------


def chosen(points: list[dict[str, Any]], counting: str) -> list[dict[str, Any]]:
    """Points from cheap to expensive that no other one beats, by validation data only."""
    kept: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda p: (p["validation"][counting], -p["validation"]["quality"])):
        if not kept or point["validation"]["quality"] > kept[-1]["validation"]["quality"]:
            kept.append(point)
    return kept


def for_budget(points: list[dict[str, Any]], counting: str, budget: float) -> dict[str, Any] | None:
    """The point that validation data chooses for a budget; None where all cost more."""
    within = [point for point in chosen(points, counting) if point["validation"][counting] <= budget]
    return within[-1] if within else None


def full_point(results: Results, name: str, state: int) -> dict[str, Any]:
    """The whole boosted ensemble: the last point of stage-wise regression."""
    points = results[name, state, FULL]["points"]
    return max(points, key=lambda point: point["parameter"])


def full_qualities(results: Results, name: str) -> np.ndarray:
    """Test quality of the whole ensemble, one entry for each state."""
    return np.array([full_point(results, name, state)["test"]["quality"] for state in states_of(results, name)])


def states_of(results: Results, name: str) -> list[int]:
    return sorted({state for set_name, state, system in results if set_name == name and system == FULL})


def systems_of(results: Results, name: str) -> list[str]:
    found = dict.fromkeys(system for set_name, _, system in results if set_name == name)
    return [system for system in found if system != "CSTC unpruned"]


def curve(results: Results, name: str, system: str, counting: str, parts=BUDGETS) -> np.ndarray:
    """Test quality at each budget, one row for each state; NaN below the cheapest model.

    Between two models the curve is a straight line: what a mix of both gives.
    """
    qualities = []
    for state in states_of(results, name):
        full = full_point(results, name, state)["validation"][counting]
        points = chosen(results.get((name, state, system), {"points": []})["points"], counting)
        costs = [point["validation"][counting] for point in points] or [np.inf]
        tested = [point["test"]["quality"] for point in points] or [np.nan]
        budgets = np.array(parts) * full * (1 + 1e-9)
        qualities.append(np.where(budgets >= costs[0], np.interp(budgets, costs, tested), np.nan))
    return np.array(qualities)


def cost_of_quality(results: Results, name: str, system: str, counting: str, share: float) -> np.ndarray:
    """Cost of the cheapest point whose validation quality is that share of the whole ensemble's.

    As a part of the ensemble's cost, at the test rows, one entry for each state; NaN where no point reaches it.
    """
    found = []
    for state in states_of(results, name):
        full = full_point(results, name, state)
        points = chosen(results.get((name, state, system), {"points": []})["points"], counting)
        good = [p for p in points if p["validation"]["quality"] >= share * full["validation"]["quality"]]
        found.append(good[0]["test"][counting] / full["test"][counting] if good else np.nan)
    return np.array(found)


def part_on_curve(results: Results, name: str, system: str, counting: str, share: float) -> float:
    """Where the mean curve reaches that share of the ensemble's mean quality, as a part of its cost; NaN if never."""
    parts = np.geomspace(0.001, 1.0, 500)
    wanted = share * np.mean(
        [full_point(results, name, state)["test"]["quality"] for state in states_of(results, name)]
    )
    reached = parts[curve(results, name, system, counting, parts).mean(axis=0) >= wanted]
    return float(reached[0]) if len(reached) else float("nan")


def mean(values: np.ndarray) -> float:
    """Mean of what is there; NaN unless all states are."""
    return float(np.mean(values)) if len(values) else float("nan")


# -- the table -----------------------------------------------------------------------------------------------------


def tables(results: Results, quality_names: dict[str, str]) -> str:
    """One block for each set and counting; countings never meet in one block."""
    lines = []
    for name in dict.fromkeys(key[0] for key in results):
        states = states_of(results, name)
        if not states:
            continue
        for counting, meaning in COUNTINGS.items():
            full = [full_point(results, name, state) for state in states]
            cost, quality = (mean(np.array([p["test"][key] for p in full])) for key in (counting, "quality"))
            lines += [
                f"## {name}, cost counted by {meaning}",
                "",
                f"Test {quality_names[name]}, mean of {len(states)} state{'s' if len(states) > 1 else ''}, of the "
                "models that validation data chooses; between two of them, of a mix. Budgets are parts of the cost "
                f"of the whole boosted ensemble ({cost:.1f}; {quality_names[name]} {quality:.4f}). Last column: the "
                "part of that cost that the first model takes which by validation data has 99% of its quality.",
                "",
                "| system | " + " | ".join(f"{budget:.0%}" for budget in BUDGETS) + " | 99% at |",
                "|---|" + "---|" * (len(BUDGETS) + 1),
            ]
            for system in systems_of(results, name):
                qualities = curve(results, name, system, counting)
                cells = ["–" if np.isnan(column).any() else f"{column.mean():.4f}" for column in qualities.T]
                reached = cost_of_quality(results, name, system, counting, 0.99)
                cells.append("–" if np.isnan(reached).any() else f"{reached.mean():.3f}")
                lines.append(f"| {system} | " + " | ".join(cells) + " |")
            lines.append("")
    return "\n".join(lines)


def parse_tables(text: str) -> Curves:
    """The curves of `tables` again, from a document that holds what it printed, at whatever level of heading."""
    meanings = {meaning: counting for counting, meaning in COUNTINGS.items()}
    found: Curves = {}
    systems: dict[str, np.ndarray] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            name, _, meaning = line.lstrip("# ").partition(", cost counted by ")
            systems = found.setdefault((name, meanings[meaning]), {}) if meaning in meanings else None
        elif systems is not None and line.startswith("|") and not line.startswith("|--"):
            system, *cells = (cell.strip() for cell in line.strip().strip("|").split("|"))
            if system == "system":
                budgets = tuple(float(cell.rstrip("%")) / 100 for cell in cells[:-1])
                if budgets != BUDGETS:
                    raise ValueError(f"line {number}: the budgets are {budgets}; they must be {BUDGETS}")
                continue
            if len(cells) != len(BUDGETS) + 1:
                raise ValueError(f"line {number}: {len(cells)} cells beside the system, not {len(BUDGETS) + 1}")
            systems[system] = np.array([np.nan if cell == "–" else float(cell) for cell in cells[:-1]])
    return found


# -- claims --------------------------------------------------------------------------------------------------------


def claims(results: Results) -> list[Claim]:
    """Every claim of the paper's results section that the data can speak to."""
    found: list[Claim] = []
    for name in dict.fromkeys(key[0] for key in results if key[0] != "quadrants"):
        for other in BELOW_CSTC:
            found += above(results, name, "CSTC", other)
        found.append(early_exit_is_limited(results, name))
        found.append(fine_tuning(results, name))
        found.append(upper_branches(results, name))
        found.append(jaccard_falls(results, name))
        if name == "yahoo":
            found += [*extraction(results, name), quarter_of_the_cost(results, name)]
    if any(key[0] == "quadrants" for key in results):
        found.append(quadrants(results))
    return found


def curve_claims(curves: Curves) -> list[Claim]:
    """The claims about whole curves, from mean curves alone, in the paper's counting."""
    found: list[Claim] = []
    for (name, counting), systems in curves.items():
        if name == "quadrants" or counting != "learner":
            continue
        missing = np.full(len(BUDGETS), np.nan)
        for other in BELOW_CSTC:
            ours, theirs = (systems.get(system, missing)[None] for system in ("CSTC", other))
            found += compare(name, "CSTC", other, ours, theirs)
    return found


def above(results: Results, name: str, system: str, other: str, counting: str = "learner") -> list[Claim]:
    """Better along the curve, and where such figures are drawn."""
    ours, theirs = (curve(results, name, which, counting) for which in (system, other))
    return compare(name, system, other, ours, theirs)


def compare(name: str, system: str, other: str, ours: np.ndarray, theirs: np.ndarray) -> list[Claim]:
    """Two curves, one row for each state: a claim for all budgets at which both have models, and one for the range of
    budgets from the first one on at which the better of the two comes within 5% of the best quality of both.

    Better is: at no budget below, and above on average.
    """
    title = f"{name}: {system} above {other} along the curve"
    drawn = f"{name}: {system} above {other} where quality is within {1 - USABLE:.0%} of the best"
    if np.isnan(ours).all() or np.isnan(theirs).all():
        return [Claim(title, None, "one of them was not run"), Claim(drawn, None, "one of them was not run")]
    both = ~np.isnan(ours).any(axis=0) & ~np.isnan(theirs).any(axis=0)
    if not both.any():
        return [Claim(which, None, "no budget at which both have a model") for which in (title, drawn)]
    note = ""
    if not both.all():
        first = BUDGETS[int(both.argmax())]
        note = f" (below {first:.0%} {other if np.isnan(theirs).any() else system} has no model)"
    better = np.maximum(ours.mean(axis=0), theirs.mean(axis=0))
    usable = both & (np.arange(len(BUDGETS)) >= int((both & (better >= USABLE * better[both].max())).argmax()))
    held, why = _better(ours - theirs, both)
    held_there, why_there = _better(ours - theirs, usable)
    start = BUDGETS[int(usable.argmax())]
    return [
        Claim(title, held, why + note),
        Claim(drawn, held_there, f"from {start:.0%} of the full cost on: {why_there}"),
    ]


def _better(gain: np.ndarray, at: np.ndarray) -> tuple[bool, str]:
    """Whether a gain (states, budgets) is one at the budgets `at`, and its figures."""
    gain, budgets = gain[:, at], np.array(BUDGETS)[at]
    per_budget = gain.mean(axis=0)
    error = gain.mean(axis=1).std(ddof=1) / np.sqrt(len(gain)) if len(gain) > 1 else float("nan")
    worst, best = int(per_budget.argmin()), int(per_budget.argmax())
    why = (
        f"mean difference {per_budget.mean():+.4f}"
        + (f" (standard error over states {error:.4f})" if len(gain) > 1 else "")
        + f", from {per_budget[worst]:+.4f} at {budgets[worst]:.0%} of the full cost to {per_budget[best]:+.4f} at "
        f"{budgets[best]:.0%}; not below at {int((per_budget >= -SAME).sum())} of {len(budgets)} budgets"
    )
    return bool(per_budget.mean() > SAME and (per_budget >= -SAME).all()), why


def early_exit_is_limited(results: Results, name: str) -> Claim:
    """Extraction dominates the cost, so early exit saves less than half as much of the cost as of the evaluations."""
    title = f"{name}: early exit is limited because extraction dominates"
    shares, skipped, saved, early = [], [], [], []
    for state in states_of(results, name):
        full = full_point(results, name, state)
        shares.append(1.0 - full["test"]["trees"] / full["test"]["learner"])
        cuts = sorted((point["test"] for point in results[name, state, FULL]["points"]), key=lambda p: p["trees"])
        trees, costs = ([cut[key] for cut in cuts] for key in ("trees", "learner"))
        early.append(np.interp(full["test"]["trees"] / 4, trees, costs) / full["test"]["learner"])
        points = results.get((name, state, "early exit"), {"points": []})["points"]
        wanted = 0.99 * full["validation"]["quality"]
        good = [point for point in chosen(points, "learner") if point["validation"]["quality"] >= wanted]
        if good:
            skipped.append(1.0 - good[0]["test"]["trees"] / full["test"]["trees"])
            saved.append(1.0 - good[0]["test"]["learner"] / full["test"]["learner"])
    if not skipped:
        return Claim(title, None, "early exit was not run, or never reached 99% of the ensemble's quality")
    share, skip, save = float(np.mean(shares)), float(np.mean(skipped)), float(np.mean(saved))
    why = (
        f"extraction is {share:.0%} of the ensemble's cost; at 99% of its quality early exit skips {skip:.0%} of the "
        f"evaluations and {save:.0%} of the cost; the first quarter of the trees has {np.mean(early):.0%} of the cost"
    )
    return Claim(title, bool(share > 0.5 and save < skip / 2), why)


def fine_tuning(results: Results, name: str) -> Claim:
    """Pairs of the same cost weight with and without it."""
    title = f"{name}: fine-tuning lowers MSE and hardly moves the ranking"
    errors, qualities = [], []
    for state in states_of(results, name):
        with_it, without = (
            {
                point["parameter"]: point["test"]
                for point in results.get((name, state, system), {"points": []})["points"]
            }
            for system in ("CSTC", "CSTC without fine-tuning")
        )
        for weight in with_it.keys() & without.keys():
            if without[weight]["learner"] > 0:
                errors.append(with_it[weight]["mse"] / without[weight]["mse"] - 1.0)
                qualities.append(with_it[weight]["quality"] - without[weight]["quality"])
    if not errors:
        return Claim(title, None, "no two models that buy anything differ in fine-tuning only")
    change, moved = float(np.mean(errors)), float(np.mean(np.abs(qualities)))
    why = (
        f"test MSE {change:+.1%} on average, lower in {int(np.sum(np.array(errors) < 0))} of {len(errors)} pairs; "
        f"NDCG@5 moves by {moved:.4f} on average ({np.mean(qualities):+.4f} with its sign)"
    )
    mostly = float(np.mean(np.array(errors) < 0)) > 0.5
    return Claim(title, change < 0 and mostly and moved < HARDLY, why)


def _trees(results: Results, name: str) -> Iterable[dict[str, Any]]:
    """The unpruned trees, at the paper's values of lambda, that buy anything."""
    for state in states_of(results, name):
        for point in results.get((name, state, "CSTC unpruned"), {"points": []})["points"]:
            if point["test"]["learner"] > 0:
                yield point["structure"]


def upper_branches(results: Results, name: str) -> Claim:
    title = f"{name}: upper branches hold higher labels"
    right = total = 0
    for tree in _trees(results, name):
        for upper, lower in zip(tree["upper"], tree["lower"], strict=True):
            if upper == lower:
                continue
            labels = [
                tree["node_labels"][child] if child >= 0 else tree["terminal_labels"][-1 - child]
                for child in (upper, lower)
            ]
            if None not in labels:
                total, right = total + 1, right + (labels[0] > labels[1])
    if not total:
        return Claim(title, None, "no gate of the trees sends test rows both ways: they have collapsed to one path")
    return Claim(title, right == total, f"{right} of {total} gates that send test rows both ways")


def jaccard_falls(results: Results, name: str) -> Claim:
    """The mean coefficient falls with the distance of two classifiers in the order of their labels."""
    title = f"{name}: Jaccard similarity falls away from the diagonal"
    by_distance: dict[int, list[float]] = {}
    sizes, roots = [], []
    for tree in _trees(results, name):
        nodes = {}
        for terminal, label in enumerate(tree["terminal_labels"]):
            if label is not None:
                nodes.setdefault(tree["terminal_parents"][terminal], []).append(label)
        order = sorted(nodes, key=lambda node: -float(np.mean(nodes[node])))
        sizes.append(len(order))
        used = set().union(*tree["predictive_features"], *tree["gate_features"])
        roots.append(len(tree["gate_features"][0] or tree["predictive_features"][0]) / max(len(used), 1))
        sets = [set(tree["predictive_features"][node]) for node in order]
        for i in range(len(sets)):
            for j in range(i + 1, len(sets)):
                either = sets[i] | sets[j]
                by_distance.setdefault(j - i, []).append(len(sets[i] & sets[j]) / len(either) if either else 1.0)
    if len(by_distance) < 2:
        return Claim(
            title,
            None,
            f"three predictive classifiers that rows reach are needed, and {len(sizes)} trees have "
            f"{max(sizes, default=0)} at most: their other gates send all rows one way",
        )
    means = [float(np.mean(by_distance[distance])) for distance in sorted(by_distance)]
    held = all(near > far for near, far in pairwise(means))
    why = "mean coefficient by distance: " + ", ".join(f"{value:.3f}" for value in means)
    why += f"; the root alone extracts {np.mean(roots):.0%} of what the tree does, and what it has paid is free below"
    return Claim(title, held, why)


def extraction(results: Results, name: str) -> list[Claim]:
    """What the classifiers extract by depth, in the trees that the paper draws."""
    titles = (
        f"{name}: more features with depth",
        f"{name}: cheap features (at most 5) early, expensive ones (20 and more) deeper",
        f"{name}: the feature of 200 at all depths",
    )
    trees = [tree for tree in _trees(results, name) if max(_reached_depths(tree)) > 0]
    if not trees:
        return [Claim(title, None, "no tree has more than its root in use") for title in titles]
    growing, cheap_early, expensive_early, everywhere = [], [], [], []
    for tree in trees:
        prices, depths = np.array(tree["prices"]), _reached_depths(tree)
        at = {depth: np.zeros(len(prices), dtype=bool) for depth in range(max(depths) + 1)}
        for node, depth in enumerate(tree["depths"]):
            if tree["node_labels"][node] is not None:
                at[depth][tree["predictive_features"][node] + tree["gate_features"][node]] = True
        by = np.logical_or.accumulate([at[depth] for depth in sorted(at)], axis=0)
        growing.append(by[-1].sum() / max(by[0].sum(), 1))
        for which, early in ((prices <= 5, cheap_early), (prices >= 20, expensive_early)):
            last = by[-1][which].sum()
            early.append(by[0][which].sum() / last if last else np.nan)
        everywhere.append(all(at[depth][prices == 200].any() for depth in at))
    cheap, expensive, more = (
        float(np.nanmean(values)) for values in (cheap_early, expensive_early, np.array(growing) - 1)
    )
    n = len(trees)
    return [
        Claim(
            titles[0],
            bool(more > 0.01),
            f"in {n} trees, the whole tree extracts {more:.1%} more features than its root, on average",
        ),
        Claim(
            titles[1],
            bool(cheap > expensive + 0.01),
            f"of what a tree extracts in the end, its root has {cheap:.1%} of the cheap and {expensive:.1%} of the "
            "expensive",
        ),
        Claim(titles[2], bool(np.mean(everywhere) > 0.5), f"so in {sum(everywhere)} of {n} trees"),
    ]


def _reached_depths(tree: dict[str, Any]) -> list[int]:
    return [depth for depth, label in zip(tree["depths"], tree["node_labels"], strict=True) if label is not None]


def quarter_of_the_cost(results: Results, name: str) -> Claim:
    """Not the paper's: what this library promises of its default method."""
    title = f"{name}: the default method reaches 99% of stage-wise regression's NDCG@5 at a quarter of its cost or less"
    parts, reached = [], []
    for counting in COUNTINGS:
        reached.append(part_on_curve(results, name, "default method", counting, 0.99))
        quarter = (
            curve(results, name, "default method", counting, (0.25,)).mean() / full_qualities(results, name).mean()
        )
        chosen_at = cost_of_quality(results, name, "default method", counting, 0.99)
        parts.append(
            f"counted by {counting}: on the mean test curve 99% at {reached[-1]:.3f} of the cost, and "
            f"{quarter:.1%} at a quarter of it; the points that have 99% by validation data cost {_share(chosen_at)}"
        )
    held = None if np.isnan(reached).all() else bool(max(reached) <= 0.25)  # false where one is never reached
    return Claim(title, held, "; ".join(parts))


def _share(values: np.ndarray) -> str:
    if not len(values) or np.isnan(values).all():
        return "none"
    missing = int(np.isnan(values).sum())
    return f"{np.nanmean(values):.3f}" + (
        f" (in {missing} of {len(values)} states never, or not run)" if missing else ""
    )


def quadrants(results: Results) -> Claim:
    """A perfect predictor pays 12."""
    title = "quadrants: MSE near 0 at a cost of 12"
    found = {}
    for system in ("CSTC", "default method", "CEGB lazy"):
        cheapest = []
        for state in states_of(results, "quadrants"):
            points = results.get(("quadrants", state, system), {"points": []})["points"]
            good = [point for point in points if point["validation"]["mse"] < 0.01]
            best = min(good, key=lambda p: p["validation"]["learner"], default=None)
            cheapest.append(np.nan if best is None else best["test"]["learner"])
        found[system] = np.array(cheapest)
    text = "; ".join(f"{system}: MSE below 0.01 at a cost of {_share_cost(costs)}" for system, costs in found.items())
    ours = found["CSTC"]
    return Claim(title, bool(len(ours) and not np.isnan(ours).any() and ours.max() < 12.01), text)


def _share_cost(costs: np.ndarray) -> str:
    if not len(costs) or np.isnan(costs).all():
        return "(never)"
    reached = costs[~np.isnan(costs)]
    return f"{reached.mean():.2f} in {len(reached)} of {len(costs)} states"
