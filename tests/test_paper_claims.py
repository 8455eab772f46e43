"""The benchmark of the paper: what it concludes from measured points, and that it runs, resumes and writes."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
DOCUMENT = BENCHMARKS.parent / "docs" / "paper.md"


def load(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


claims = load("paper_claims")
SET = "yahoo"


def point(parameter, cost, quality, *, test=None, trees=1.0, mse=1.0, branch=None, **more):
    """A point with the same figures at validation and test rows, but for the test quality."""
    rows = {"learner": cost, "branch": cost / 2 if branch is None else branch, "mse": mse, "trees": trees}
    return {
        "parameter": parameter,
        "validation": rows | {"quality": quality},
        "test": rows | {"quality": quality if test is None else test},
    } | more


def results(**systems):
    """One state; the whole ensemble costs 100 and has a quality of 0.8."""
    full = [point(0, 0, 0.3, trees=0), point(10, 40, 0.6, trees=4), point(50, 100, 0.8, trees=20)]
    found = {(SET, 0, "stage-wise regression"): {"points": full, "seconds": 1.0}}
    return found | {(SET, 0, name.replace("_", " ")): {"points": points} for name, points in systems.items()}


# -- curves --------------------------------------------------------------------------------------------------------


def test_validation_data_chooses_and_test_data_reports():
    points = [point("a", 10, 0.5, test=0.4), point("b", 20, 0.45, test=0.99), point("c", 30, 0.7, test=0.6)]
    assert [p["parameter"] for p in claims.chosen(points, "learner")] == ["a", "c"]
    assert claims.for_budget(points, "learner", 29)["parameter"] == "a"
    assert claims.for_budget(points, "learner", 30)["parameter"] == "c"
    assert claims.for_budget(points, "branch", 29)["parameter"] == "c"
    assert claims.for_budget(points, "learner", 9) is None
    qualities = claims.curve(results(CSTC=points), SET, "CSTC", "learner")
    by_budget = dict(zip(claims.BUDGETS, qualities[0], strict=True))
    assert str(by_budget[0.05]) == "nan"
    assert by_budget[0.1] == pytest.approx(0.4)
    assert by_budget[0.15] == pytest.approx(0.45)  # a quarter of the way from 10 to 30
    assert by_budget[0.4] == by_budget[1.0] == 0.6


def test_cost_of_a_quality():
    found = results(CSTC=[point("a", 10, 0.7), point("b", 30, 0.795), point("c", 60, 0.81)])
    assert claims.cost_of_quality(found, SET, "CSTC", "learner", 0.99).tolist() == [0.3]
    assert claims.cost_of_quality(found, SET, "stage-wise regression", "branch", 0.99).tolist() == [1.0]


def test_a_table_has_one_counting():
    text = claims.tables(results(CSTC=[point("a", 10, 0.5), point("b", 30, 0.8)]), {SET: "NDCG@5"})
    blocks = text.split("## ")[1:]
    assert [("learner" in block, "branches" in block) for block in blocks] == [(True, False), (False, True)]
    assert "| CSTC | – | – | – | 0.5000 | 0.5750 | 0.7250 | 0.8000 | 0.8000 | 0.8000 | 0.8000 | 0.300 |" in blocks[0]


def test_tables_are_read_back():
    found = results(CSTC=[point("a", 10, 0.5), point("b", 30, 0.8)], early_exit=[point("p", 50, 0.7)])
    curves = claims.parse_tables(
        "# Measured\n\n" + claims.tables(found, {SET: "NDCG@5"}) + "\n## Claims\n\n| a | b |\n"
    )
    assert list(curves) == [(SET, "learner"), (SET, "branch")]
    for (name, counting), systems in curves.items():
        assert list(systems) == ["stage-wise regression", "CSTC", "early exit"]
        for system, qualities in systems.items():
            np.testing.assert_allclose(qualities, claims.curve(found, name, system, counting)[0], atol=5e-5)


def test_tables_with_other_budgets_are_refused():
    text = claims.tables(results(CSTC=[point("a", 10, 0.5)]), {SET: "NDCG@5"})
    with pytest.raises(ValueError, match="budgets are"):
        claims.parse_tables(text.replace("| 15% |", "| 20% |"))
    with pytest.raises(ValueError, match="line 7: 10 cells"):
        claims.parse_tables(text.replace("| 1.000 |", "|"))


# -- claims --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quality", "held"),
    [((0.5, 0.7, 0.85), True), ((0.5, 0.51, 0.85), False), ((0.3, 0.6, 0.8), False)],
    ids=["above everywhere", "below at 40%", "the same"],
)
def test_above_along_the_curve(quality, held):
    costs = (1, 40, 100)
    found = results(CSTC=[point(c, c, q) for c, q in zip(costs, quality, strict=True)])
    assert claims.above(found, SET, "CSTC", "stage-wise regression")[0].held is held
    assert [claim.held for claim in claims.above(found, SET, "CSTC", "Cronus")] == [None, None]


@pytest.mark.parametrize(
    ("ours", "theirs", "verdicts", "start"),
    [
        ((0.3, 0.7, 0.8), (0.4, 0.6, 0.75), [False, True], "80%"),  # behind only where nothing is usable
        ((0.4, 0.7, 0.8), (0.3, 0.6, 0.82), [False, False], "100%"),  # ahead only where nothing is usable
        ((0.4, 0.7, 0.8), (0.3, 0.6, 0.7), [True, True], "80%"),
        ((0.3, 0.79, 0.8), (0.4, 0.6, 0.79), [False, True], "40%"),  # the better of the two opens the range
        ((0.4, 0.60, 0.8), (0.3, 0.79, 0.7), [False, False], "40%"),  # also when it is the other one
    ],
)
def test_above_where_figures_are_drawn(ours, theirs, verdicts, start):
    costs = (1, 40, 100)
    systems = {
        name: [point(c, c, q) for c, q in zip(costs, quality, strict=True)]
        for name, quality in (("CSTC", ours), ("Cronus", theirs))
    }
    found = claims.above(results(**systems), SET, "CSTC", "Cronus")
    assert [claim.held for claim in found] == verdicts
    assert found[1].why.startswith(f"from {start} of the full cost on")
    from_tables = claims.curve_claims(claims.parse_tables(claims.tables(results(**systems), {SET: "NDCG@5"})))
    assert [claim[:2] for claim in from_tables if "Cronus" in claim.name] == [claim[:2] for claim in found]


def test_the_range_has_models_of_both():
    found = results(CSTC=[point("a", 1, 0.79), point("b", 100, 0.8)], early_exit=[point("p", 60, 0.7)])
    whole, drawn = claims.above(found, SET, "CSTC", "early exit")
    assert whole.held is drawn.held is True
    assert "below 60% early exit has no model" in whole.why
    assert drawn.why.startswith("from 60%")


@pytest.mark.parametrize(("trees", "cost", "held"), [(4, 80, True), (4, 30, False)])
def test_early_exit(trees, cost, held):
    found = results(early_exit=[point("p", cost, 0.8, trees=trees)])
    claim = claims.early_exit_is_limited(found, SET)
    assert claim.held is held
    assert "extraction is 80%" in claim.why
    assert claims.early_exit_is_limited(results(), SET).held is None


@pytest.mark.parametrize(("mse", "quality", "held"), [(0.9, 0.701, True), (1.1, 0.701, False), (0.9, 0.75, False)])
def test_fine_tuning(mse, quality, held):
    found = results(
        CSTC=[point(0.1, 10, quality, mse=mse), point(9.0, 0, 0.3)],
        CSTC_without_fine_tuning=[point(0.1, 10, 0.7, mse=1.0), point(9.0, 0, 0.3)],
    )
    found[SET, 0, "CSTC without fine-tuning"] = found.pop((SET, 0, "CSTC without fine tuning"))
    assert claims.fine_tuning(found, SET).held is held


def tree(labels=(2.0, 1.0, 0.5), features=((0, 1, 2), (0, 1), (1, 3)), gates=((0,), (1,))):
    """A root whose upper child is a leaf and whose lower child has two leaves: three predictive classifiers."""
    high, middle, low = labels
    return {
        "upper": [1, -1, 3, -2, -3],
        "lower": [2, -1, 4, -2, -3],
        "depths": [0, 1, 1, 2, 2],
        "node_labels": [1.0, high, (middle + low) / 2, middle, low],
        "terminal_labels": [high, middle, low],
        "terminal_parents": [1, 3, 4],
        "predictive_features": [[], list(features[0]), [], list(features[1]), list(features[2])],
        "gate_features": [list(gates[0]), [], list(gates[1]), [], []],
        "prices": [1.0, 5.0, 20.0, 200.0],
    }


def with_tree(**changes):
    return results(CSTC_unpruned=[point(4.0, 10, 0.5, structure=tree(**changes))])


def test_upper_branches():
    assert claims.upper_branches(with_tree(), SET).held is True
    assert claims.upper_branches(with_tree(labels=(2.0, 0.5, 1.0)), SET).held is False
    collapsed = with_tree()
    structure = collapsed[SET, 0, "CSTC unpruned"]["points"][0]["structure"]
    structure["node_labels"][1] = structure["terminal_labels"][0] = None
    structure["node_labels"][3] = structure["terminal_labels"][1] = None
    claim = claims.upper_branches(collapsed, SET)
    assert claim.held is None
    assert "collapsed" in claim.why
    assert claims.jaccard_falls(collapsed, SET).held is None


def test_jaccard():
    assert claims.jaccard_falls(with_tree(), SET).held is True  # 2/3 and 1/3 beside, 1/4 apart
    assert claims.jaccard_falls(with_tree(features=((0, 1), (2,), (0, 1))), SET).held is False


def test_extraction_by_depth():
    late = with_tree(gates=((0, 1, 3), (1, 3)), features=((0, 3), (2, 3), (1, 3)))
    more, early, everywhere = claims.extraction(late, SET)
    assert (more.held, early.held, everywhere.held) == (True, True, True)
    same = ((0, 1, 2), (0, 1, 2))
    more, early, everywhere = claims.extraction(with_tree(gates=same, features=((0,), (1,), (2,))), SET)
    assert (more.held, early.held, everywhere.held) == (False, False, False)


@pytest.mark.parametrize(("cost", "held"), [(24, True), (26, False)])
def test_a_quarter_of_the_cost(cost, held):
    found = results(default_method=[point(1.0, cost, 0.795), point(2.0, 1, 0.5)])
    assert claims.quarter_of_the_cost(found, SET).held is held


# -- the command ---------------------------------------------------------------------------------------------------


def run(folder, *options):
    command = [sys.executable, str(BENCHMARKS / "paper.py"), "--quick", "--sets", "quadrants", "--out", str(folder)]
    found = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0, found.stderr
    return found


def test_it_runs_resumes_and_writes(tmp_path):
    pytest.importorskip("matplotlib")
    first = run(tmp_path)
    assert "## quadrants, cost counted by the branches taken" in first.stdout
    assert "quadrants: MSE near 0 at a cost of 12: **" in first.stdout
    assert "default method" in first.stderr
    stored = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert {"table.md", "paper.json", "quadrants-branch.png", "quadrants-tree.png"} <= {
        p.name for p in tmp_path.iterdir()
    }
    document = json.loads((tmp_path / "paper.json").read_text())
    assert len(document["results"]) == len(stored) == 15
    (tmp_path / "results" / "quadrants-0-l1.json").unlink()
    again = run(tmp_path)
    assert again.stderr.count("models in") == 1  # only what was missing
    assert again.stdout.split("results,")[0] == first.stdout.split("results,")[0]
    assert "models in" not in run(tmp_path, "--report").stderr


def test_verdicts_from_the_tables_of_the_document():
    done = run(Path("unused"), "--table", str(DOCUMENT))
    lines = done.stdout.splitlines()
    assert len(lines) == 3 * 4 * 2
    text = " ".join(DOCUMENT.read_text().split())
    assert [line for line in lines if line not in text] == []  # the document prints what its tables say
    for other in ("single classifier", "Cronus", "stage-wise regression"):
        start = f"- yahoo: CSTC above {other} "
        assert any(line.startswith(f"{start}along the curve: **did not hold**") for line in lines)
        assert any(line.startswith(f"{start}where quality is within 5% of the best: **held**") for line in lines)
    assert not Path("unused").exists()


def test_a_document_without_tables(tmp_path):
    (tmp_path / "empty.md").write_text("# Nothing\n")
    command = [sys.executable, str(BENCHMARKS / "paper.py"), "--table", str(tmp_path / "empty.md")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "has no table of curves" in done.stderr
