"""Each command does what the library does with the same files, and says on standard error what it took for what."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from click.testing import CliRunner

import cstc
from cli.commands import DROPPED, QUICK, as_text, call, rows_of
from cstc import CostModel, CSTCClassifier, CSTCRanker, CSTCRegressor
from cstc.baselines import CEGB
from cstc.cli import _csv as csv_module
from cstc.cli import main
from cstc.cli._reading import Reading
from cstc.cli._tables import as_held, open_table, raw_table
from cstc.frontier import load_frontier
from cstc.frontier._checkpoint import Checkpoint
from cstc.metrics import ndcg

OTHERS = ("id", "ill", "stage", "risk", "query")


def table_of(path, *dropped):
    table = open_table(str(path), Reading())
    columns = [name for name in table.names if name not in dropped]
    return as_held(table, raw_table(table, columns), columns, Reading())


def column(path, name):
    return table_of(path)[name].to_numpy(zero_copy_only=False)


# -- prices ------------------------------------------------------------------------------------------------------------


def test_prices_can_be_filled_in_and_read(world):
    text = call("prices", "train.csv", "--target", "ill").stdout
    lines = text.splitlines()
    header = lines.index("column,price,requires,holds")
    assert all(line.startswith("#") and "," not in line and '"' not in line for line in lines[:header])
    rows = rows_of("\n".join(lines[header:]))
    assert [row["column"] for row in rows] == ["age", "glucose", "bmi", "smoker", "city"]
    assert {row["price"] for row in rows} == {""}
    holds = {row["column"]: row["holds"] for row in rows}
    assert holds["city"] == "Köln, Paris, Rome"
    assert holds["glucose"].endswith(", 9% missing")
    assert holds["smoker"] == "true/false"
    filled = [
        "# my own comment, with a comma",
        *lines[:header],
        "column,price,requires,holds",
        *(
            f"{row['column']},{2.5 if row['column'] != 'glucose' else ''},{'draw' * (row['column'] == 'glucose')},x"
            for row in rows
        ),
        "draw,3,,",
    ]
    (world / "filled.csv").write_text("\n".join(filled), encoding="utf-8")
    expected = CostModel(dict.fromkeys(["age", "bmi", "smoker", "city"], 2.5) | {"draw": 3.0}, {"glucose": ["draw"]})
    assert CostModel.from_csv(world / "filled.csv") == expected
    call("fit", "train.csv", "--target", "ill", "--prices", "filled.csv", "-o", "m.cstc", *QUICK)
    assert cstc.load("m.cstc").costs.full_cost == 13.0


def test_prices_with_a_price_fit_at_once(world):
    call("prices", "train.csv", "--price", 2, "-o", "p.csv")
    said = call("fit", "train.csv", "--target", "ill", "--prices", "p.csv", "-o", "m.cstc", *QUICK).stderr
    assert "p.csv: the price of 'ill' is not used; nobody learns from it" in said
    assert cstc.load("m.cstc").costs.prices.tolist() == [2.0] * 5


def test_prices_of_names_that_cannot_stand_there(world):
    (world / "odd.csv").write_text('"a;b",c\n1,2\n')
    assert "'a;b' cannot be named in a file of prices" in call("prices", "odd.csv", status=1).stderr


# -- fit ---------------------------------------------------------------------------------------------------------------


def test_fit_is_the_fit_of_python(world):
    said = call("fit", "train.csv", "--target", "ill", "--prices", "prices.csv", "-o", "m.cstc", *QUICK).stderr
    assert "train.csv: 160 rows, 5 columns to learn from: 3 of numbers, 1 of true and false, 1 of categories" in said
    assert "target 'ill': 2 classes: 0, 1; task classification, found from the target" in said
    assert "cstc fit: 100%" in said
    assert "m.cstc: a training row costs" in said
    X, y = table_of("train.csv", "ill"), column("train.csv", "ill").astype(int)
    model = CSTCClassifier(costs="prices.csv", n_weak_learners=5, random_state=0, n_jobs=1).fit(X, y)
    saved = cstc.load("m.cstc")
    assert np.array_equal(saved.predict_proba(X), model.predict_proba(X))
    assert saved.schema.categories == {"city": ["Köln", "Paris", "Rome"]}
    assert saved.schema.booleans == {"smoker"}
    assert saved.schema.may_miss.tolist() == [False, True, False, False, False]
    assert saved.training.trained is not None
    quiet = call("fit", "train.csv", "--target", "ill", "--prices", "prices.csv", "-o", "m.cstc", *QUICK, "--quiet")
    assert quiet.output == ""


def test_the_task_is_found_from_the_target(world):
    drop = {name: [part for other in OTHERS if other != name for part in ("--drop", other)] for name in OTHERS}
    for target, task in (("stage", "classification"), ("risk", "regression"), ("ill", "classification")):
        said = call("fit", "whole.csv", "--target", target, *drop[target], "-o", "m.cstc", *QUICK).stderr
        assert f"task {task}, found from the target" in said
        assert "no --prices: every column costs 1" in said
    ranking = [part for other in ("id", "ill", "risk") for part in ("--drop", other)]
    (world / "grades.csv").write_text(
        (world / "whole.csv")
        .read_text(encoding="utf-8")
        .replace("none", "0")
        .replace("early", "1")
        .replace("late", "2"),
        encoding="utf-8",
    )
    said = call("fit", "grades.csv", "--target", "stage", "--qid", "query", *ranking, "-o", "r.cstc", *QUICK).stderr
    assert "task ranking, found from the target" in said
    X, grades = table_of("grades.csv", *OTHERS), column("grades.csv", "stage")
    qid = column("grades.csv", "query")
    model = CSTCRanker(n_weak_learners=5, random_state=0, n_jobs=1).fit(X, grades, qid=qid)
    assert np.array_equal(cstc.load("r.cstc").predict(X), model.predict(X))
    found = call(
        "evaluate", "r.cstc", "grades.csv", "--target", "stage", "--qid", "query", "--train", "grades.csv"
    ).stdout
    value, error = re.fullmatch(r"NDCG@5 +([\d.]+) ± ([\d.]+) .*", found.splitlines()[2]).groups()
    assert float(value) == pytest.approx(ndcg(grades, model.predict(X), qid), abs=float(error))
    options = ("--target", "stage", "--qid", "query", "--at", 2)
    call("fit", "grades.csv", *options, "--objective", "lambdarank", *ranking, "-o", "r.cstc", *QUICK, "-q")
    ordered = CSTCRanker(n_weak_learners=5, random_state=0, n_jobs=1, at=2, objective="lambdarank")
    ordered.fit(X, grades, qid=qid)
    assert np.array_equal(cstc.load("r.cstc").predict(X), ordered.predict(X))
    found = call("evaluate", "r.cstc", "grades.csv", *options).stdout
    value, error = re.fullmatch(r"NDCG@2 +([\d.]+) ± ([\d.]+)", found.splitlines()[1]).groups()
    assert float(value) == pytest.approx(ndcg(grades, ordered.predict(X), qid, 2), abs=float(error))
    for option in (("--at", 3), ("--objective", "auto")):
        said = call("fit", "grades.csv", "--target", "stage", *option, "-o", "r.cstc", status=2).stderr
        assert f"{option[0]} belongs to ranking, which needs --qid" in said
    said = call("evaluate", "r.cstc", "grades.csv", "--target", "stage", "--at", 3, status=2).stderr
    assert "--at belongs to a model that ranks, which needs --qid" in said
    said = call("fit", "whole.csv", "--target", "ill", "--task", "regression", *DROPPED, "-o", "m.cstc", *QUICK).stderr
    assert "task regression\n" in said
    assert cstc.load("m.cstc").schema.classes is None


@pytest.mark.parametrize("values", [["yes", "no"], ["true", "false"], ["3", "7"]])
def test_classes_of_all_kinds(world, values):
    rng = np.random.default_rng(0)
    X = rng.normal(size=120)
    lines = [["x", "y"]] + [[f"{x:.3f}", values[int(x > 0)]] for x in X]
    (world / "t.csv").write_text(as_text(lines))
    call("fit", "t.csv", "--target", "y", "-o", "m.cstc", *QUICK)
    answers = rows_of(call("predict", "m.cstc", "t.csv", "-q").stdout)
    right = np.mean([row["prediction"] == line[1] for row, line in zip(answers, lines[1:], strict=True)])
    assert right > 0.9
    assert "accuracy" in call("evaluate", "m.cstc", "t.csv", "--target", "y").stdout


def test_fit_for_a_mean_cost_and_with_a_cost_weight(world):
    options = ("--target", "ill", "--prices", "prices.csv", "-o", "m.cstc", *QUICK, "--quiet")
    X, y = table_of("train.csv", "ill"), column("train.csv", "ill").astype(int)
    for option in ("mean_cost", "cost_weight"):
        call("fit", "train.csv", *options, f"--{option.replace('_', '-')}", 3)
        given = {"costs": "prices.csv", "n_weak_learners": 5, "random_state": 0, "n_jobs": 1, option: 3.0}
        expected = CSTCClassifier(**given).fit(X, y)
        assert np.array_equal(cstc.load("m.cstc").predict_cost(X), expected.predict_cost(X))


def test_errors_have_prices(world):
    arguments = ("--target", "ill", "--prices", "prices.csv", "--error-costs", "errors.csv", "-o", "m.cstc")
    call("fit", "train.csv", *arguments, *QUICK)
    assert cstc.load("m.cstc").decisions.costs.tolist() == [[0, 30, 10], [250, 0, 10]]
    found = json.loads(call("evaluate", "m.cstc", "test.csv", "--target", "ill", "--json").stdout)["model"]
    total = cstc.load("m.cstc").total_cost(table_of("test.csv", "ill"), column("test.csv", "ill").astype(int))
    assert found["total cost"]["value"] == pytest.approx(total.mean())
    answers = rows_of(call("predict", "m.cstc", "test.csv", "-q").stdout)
    referred = [row["prediction"] for row in answers].count("")
    assert referred == sum(
        answer is None for answer in cstc.load("m.cstc").predict(table_of("test.csv", "ill")).tolist()
    )
    assert (
        "belongs to classes"
        in call("fit", "whole.csv", "--target", "risk", "--error-costs", "errors.csv", "-o", "x.cstc", status=2).stderr
    )


def test_validation_rows_measure(world):
    arguments = ("--target", "ill", "--validation", "test.csv", "-o", "m.cstc", *QUICK)
    said = call("fit", "train.csv", *arguments).stderr.splitlines()[-1]
    lines = call("evaluate", "m.cstc", "test.csv", "--target", "ill").stdout.splitlines()
    figures = {line[:20].strip(): line[20:].strip() for line in lines[1:]}
    assert said == f"test.csv: AUC {figures['AUC']}, mean cost {figures['mean cost']}"
    call("fit", "train.csv", *arguments, "--method", "paper")  # which prunes by them
    pruned = cstc.load("m.cstc")
    X, y = table_of("train.csv", "ill"), column("train.csv", "ill").astype(int)
    judges = table_of("test.csv", "ill"), column("test.csv", "ill").astype(int)
    model = CSTCClassifier(method="paper", n_weak_learners=5, random_state=0, n_jobs=1)
    model.fit(X, y, X_val=judges[0], y_val=judges[1])
    assert np.array_equal(pruned.predict_proba(X), model.predict_proba(X))


def test_text_that_is_no_category_is_pointed_out(world):
    drop = [part for other in ("stage", "risk", "query") for part in ("--drop", other)]
    said = call("fit", "whole.csv", "--target", "ill", *drop, "-o", "m.cstc", *QUICK, "--quiet").stderr
    assert said == (
        "Warning: column 'id' is text with 160 different values in 160 rows; leave it out with --drop id unless these "
        "are categories\n"
    )


def test_a_model_to_standard_output(world):
    found = CliRunner().invoke(main, ["fit", "train.csv", "--target", "ill", "-o", "-", *QUICK, "--quiet"])
    assert found.exit_code == 0
    (world / "piped.cstc").write_bytes(found.stdout_bytes)
    assert cstc.load("piped.cstc").schema.feature_names == ["age", "glucose", "bmi", "smoker", "city"]


# -- predict -----------------------------------------------------------------------------------------------------------


def expected_answers(model, X, **options):
    value, cost = model.predict(X, return_cost=True, **options)
    return [str(each) for each in value.tolist()], cost.tolist()


def test_predict_is_the_predict_of_the_model(world):
    said = call("predict", "model.cstc", "test.csv", "-o", "a.csv").stderr
    assert "test.csv has columns that the model does not know, such as 'ill'" in said
    rows = rows_of((world / "a.csv").read_text())
    model, X = cstc.load("model.cstc"), table_of("test.csv", "ill")
    values, costs = expected_answers(model, X)
    assert [row["prediction"] for row in rows] == values
    assert [float(row["cost"]) for row in rows] == costs
    assert [[float(row["probability 0"]), float(row["probability 1"])] for row in rows] == model.predict_proba(
        X
    ).tolist()
    names = np.array(model.costs.item_names)
    assert [row["items"].split(";") for row in rows] == [
        (names[each].tolist() or [""]) for each in model.bought_items(X)
    ]
    ends = {terminal: " > ".join(map(str, np.flatnonzero(nodes))) for terminal, nodes in enumerate(model.shape.paths)}
    assert [row["path"] for row in rows] == [ends[terminal] for terminal in model.apply(X)]
    numbers = rows_of(call("predict", "risk.cstc", "new.csv", "-q").stdout)
    assert list(numbers[0]) == ["prediction", "cost", "path", "items"]
    assert [float(row["prediction"]) for row in numbers] == cstc.load("risk.cstc").predict(table_of("new.csv")).tolist()


def test_predict_with_a_budget_and_without_a_source(world):
    model, X = cstc.load("model.cstc"), table_of("new.csv")
    free = rows_of(call("predict", "model.cstc", "new.csv", "-q").stdout)
    assert max(float(row["cost"]) for row in free) > 5
    rows = rows_of(call("predict", "model.cstc", "new.csv", "-q", "--budget", 5).stdout)
    values, costs = expected_answers(model, X, budget=5)
    assert [row["prediction"] for row in rows] == values
    assert [float(row["cost"]) for row in rows] == costs
    for row, before in zip(rows, free, strict=True):
        assert (row["path"] == "stopped") == (float(before["cost"]) > 5)
    rows = rows_of(call("predict", "model.cstc", "new.csv", "-q", "--unavailable", "blood draw").stdout)
    assert [float(row["cost"]) for row in rows] == expected_answers(model, X, unavailable=["blood draw"])[1]
    assert not any("glucose" in row["items"] for row in rows)
    text = (world / "new.csv").read_text(encoding="utf-8")
    lacks = as_text([[cell for at, cell in enumerate(line) if at != 1] for line in csv.reader(text.splitlines())])
    assert lacks.startswith("age,bmi,")
    (world / "lacks.csv").write_text(lacks, encoding="utf-8")
    assert rows_of(call("predict", "model.cstc", "lacks.csv", "-q", "--unavailable", "blood draw").stdout) == rows


def test_blocks_answer_as_the_whole_does(world, monkeypatch):
    """Also the coins of a mixture, which go by the number of a row in the whole table."""
    X, y = table_of("train.csv", "ill"), column("train.csv", "ill").astype(int)
    given = {"costs": "prices.csv", "n_weak_learners": 5, "random_state": 0, "n_jobs": 1}
    free, full = (CSTCClassifier(cost_weight=weight, **given).fit(X, y).model_ for weight in (10.0, 0.0))
    mixture = cstc.Mixture(free, full, share=0.4, seed=3)
    mixture.save("mixture.cstc")
    names = ("model.cstc", "mixture.cstc")
    whole = {name: call("predict", name, "test.csv", "-q").stdout for name in names}
    with monkeypatch.context() as small:
        small.setattr(csv_module, "BLOCK", 512)
        assert {name: call("predict", name, "test.csv", "-q").stdout for name in names} == whole
    rows = rows_of(whole["mixture.cstc"])
    assert [float(row["cost"]) for row in rows] == mixture.predict_cost(table_of("test.csv", "ill")).tolist()
    assert {row["path"].partition(":")[0] for row in rows} == {"cheaper", "costlier"}
    by_id = rows_of(call("predict", "mixture.cstc", "whole-test.csv", "-q", "--id", "id").stdout)
    ids = [row["id"] for row in by_id]
    assert ids[:2] == ["p0", "p1"]
    assert [float(row["cost"]) for row in by_id] == mixture.predict_cost(table_of("test.csv", "ill"), ids=ids).tolist()
    told = call("explain", "mixture.cstc", "whole-test.csv", "--id", "id", "--row", 3).stdout
    assert "its id, 'p2'" in told
    assert "its number, 2" in call("explain", "mixture.cstc", "test.csv", "--row", 3).stdout


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "feather"])
def test_answers_of_all_kinds(world, ending):
    call("predict", "model.cstc", "new.csv", "-o", f"a.{ending}")
    names = ["prediction", "probability 0", "probability 1", "cost", "path", "items"]
    assert open_table(f"a.{ending}", Reading()).names == names
    found = table_of(f"a.{ending}", "path")  # which may be a number in most rows: the root
    expected = cstc.load("model.cstc").predict_cost(table_of("new.csv"))
    assert np.array_equal(found["cost"].to_numpy(), expected)
    call("predict", "model.cstc", "new.csv", "-o", f"a.{ending}", "--budget", 0)  # the old answers are replaced
    assert not table_of(f"a.{ending}", "path")["cost"].to_numpy().any()


def test_values_that_training_did_not_see_are_said_once(world):
    lines = (world / "new.csv").read_text(encoding="utf-8").replace("Rome", "Oslo")
    (world / "new.csv").write_text(lines, encoding="utf-8")
    said = call("predict", "model.cstc", "new.csv", "-o", "a.csv", "-q").stderr
    assert said == "Warning: taken as missing: city holds a category that training did not see\n"


def test_an_id_that_answers_have_already(world):
    (world / "new.csv").write_text((world / "new.csv").read_text(encoding="utf-8").replace("age", "cost", 1))
    assert (
        "--id is 'cost', which is a column of the answers"
        in call(
            "predict", "model.cstc", "new.csv", "--id", "cost", "--unavailable", "age", "-o", "a.csv", status=1
        ).stderr
    )


# -- explain, evaluate, inspect ----------------------------------------------------------------------------------------


def test_explain_is_the_explanation_of_the_row(world):
    model, row = cstc.load("model.cstc"), table_of("new.csv").slice(16, 1)
    assert call("explain", "model.cstc", "new.csv", "--row", 17).stdout == f"{model.explain(row)}\n"
    assert (
        json.loads(call("explain", "model.cstc", "new.csv", "--row", 17, "--json").stdout)
        == model.explain(row).to_dict()
    )
    call("explain", "model.cstc", "new.csv", "--row", 17, "--html", "-o", "why.html")
    assert (world / "why.html").read_text(encoding="utf-8").rstrip() == model.explain(row).to_html().rstrip()
    limited = call("explain", "model.cstc", "new.csv", "--row", 17, "--budget", 1, "--unavailable", "bmi").stdout
    assert limited == f"{model.explain(row, budget=1, unavailable=['bmi'])}\n"


def test_evaluate_measures_as_the_library_does(world):
    from sklearn.metrics import accuracy_score, log_loss, r2_score, roc_auc_score

    model, X, y = cstc.load("model.cstc"), table_of("test.csv", "ill"), column("test.csv", "ill").astype(int)
    found = json.loads(call("evaluate", "model.cstc", "test.csv", "--target", "ill", "--json").stdout)
    assert found["rows"] == 60
    figures = {name: each["value"] for name, each in found["model"].items()}
    shares, costs = model.predict_proba(X), model.predict_cost(X)
    expected = {
        "AUC": roc_auc_score(y, shares[:, 1]),
        "accuracy": accuracy_score(y, model.predict(X)),
        "log loss": log_loss(y, shares),
        "mean cost": costs.mean(),
        "p95 cost": np.percentile(costs, 95),
        "max cost": costs.max(),
        "cost of all columns": 20.1,
    }
    assert figures == pytest.approx(expected)
    error = found["model"]["accuracy"]["standard_error"]
    assert error == pytest.approx(np.sqrt(figures["accuracy"] * (1 - figures["accuracy"]) / 60), rel=0.25)
    limited = json.loads(call("evaluate", "model.cstc", "test.csv", "--target", "ill", "--budget", 2, "--json").stdout)
    assert limited["model"]["max cost"]["value"] <= 2
    risk = json.loads(call("evaluate", "risk.cstc", "whole-test.csv", "--target", "risk", "--json").stdout)["model"]
    truth, told = column("whole-test.csv", "risk"), cstc.load("risk.cstc").predict(X)
    assert risk["R²"]["value"] == pytest.approx(r2_score(truth, told))
    assert risk["RMSE"]["value"] == pytest.approx(np.sqrt(np.mean((truth - told) ** 2)))


def test_evaluate_beside_plain_lightgbm(world):
    arguments = ("evaluate", "model.cstc", "test.csv", "--target", "ill", "--train", "train.csv")
    lines = call(*arguments).stdout.splitlines()
    assert lines[1].split() == ["model", "LightGBM"]
    found = json.loads(call(*arguments, "--json").stdout)
    assert found["LightGBM"]["mean cost"]["value"] > found["model"]["mean cost"]["value"]
    assert found["LightGBM"]["AUC"]["value"] > 0.8
    assert found["LightGBM"]["cost of all columns"] == found["model"]["cost of all columns"]
    assert "LightGBM knows neither --budget" in call(*arguments, "--budget", 1).stderr
    drop = [part for other in ("id", "ill", "risk", "query") for part in ("--drop", other)]
    call("fit", "whole.csv", "--target", "stage", *drop, "-o", "m.cstc", *QUICK)
    text = call("evaluate", "m.cstc", "whole-test.csv", "--target", "stage", "--train", "whole.csv").stdout
    assert [line.split()[0] for line in text.splitlines()[2:5]] == ["AUC", "accuracy", "log"]


def test_what_few_rows_do_not_tell_is_said(world):
    text = (world / "test.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    (world / "one.csv").write_text("".join(text[:2]), encoding="utf-8")
    told = call("evaluate", "model.cstc", "one.csv", "--target", "ill").stdout
    assert "AUC                  not known: these rows hold one class" in told
    assert json.loads(call("evaluate", "model.cstc", "one.csv", "--target", "ill", "--json").stdout)["rows"] == 1


def test_inspect_shows_whole_paths(world):
    model = cstc.load("model.cstc")
    lines = [line.strip() for line in call("inspect", "model.cstc", "--path").stdout.splitlines()]
    assert sum(line.startswith("terminal ") and "of the training rows" in line for line in lines) == model.n_terminals
    assert "paths (what a node buys at most, beyond what was bought before)" in lines
    assert not any(line.startswith("paths ") for line in call("inspect", "model.cstc").stdout.splitlines())
    (tree,) = json.loads(call("inspect", "model.cstc", "--json").stdout)["trees"]
    assert len(tree["paths"]) == model.n_terminals
    for path in tree["paths"]:
        bought = {name: price for step in path["steps"] for name, price in step["buys"].items()}
        assert bought == path["items"]
        assert sum(bought.values()) == pytest.approx(path["most"])
        assert [step["node"] for step in path["steps"]] == np.flatnonzero(model.shape.paths[path["terminal"]]).tolist()
    uses = [item["use"] for item in tree["items"]]
    assert uses == sorted(uses)  # bought, only by fallbacks, never bought
    assert [each["feature"] for each in tree["features"] if each["categories"]] == ["city"]


# -- frontier ----------------------------------------------------------------------------------------------------------


FRONTIER = ("frontier", "train.csv", "--target", "ill", "--prices", "prices.csv", "--n-weights", 4, *QUICK)


def test_a_frontier_in_a_folder(world):
    result = call(*FRONTIER, "-o", "f", "--validation", "test.csv")
    assert {path.name for path in (world / "f").iterdir()} == {
        "models", "table.csv", "tried.csv", "frontier.png", "frontier.json"
    }  # fmt: skip
    saved = load_frontier("f")
    assert result.stdout.count("model-") == len(saved.models) == len(saved.table)
    X, y = table_of("train.csv", "ill"), column("train.csv", "ill").astype(int)
    judges = {"X_val": table_of("test.csv", "ill"), "y_val": column("test.csv", "ill").astype(int)}
    estimator = CSTCClassifier(costs="prices.csv", n_weak_learners=5, random_state=0, n_jobs=1)
    expected = cstc.Frontier(estimator, n_weights=4).fit(X, y, **judges)
    assert saved.table == expected.table_
    assert saved.tried == expected.tried_
    for ours, theirs in zip(saved.models, expected.models_, strict=True):
        assert np.array_equal(ours.predict_proba(X), theirs.predict_proba(X))
    rows = rows_of((world / "f" / "table.csv").read_text())
    assert [row["model"] for row in rows] == saved.files
    assert [float(row["quality"]) for row in rows] == saved.table.column("quality").tolist()
    made = saved.made
    assert made["command"] == "cstc " + " ".join(map(str, (*FRONTIER, "-o", "f", "--validation", "test.csv")))
    assert [(each["role"], each["name"], each["rows"]) for each in made["data"]] == [
        ("TRAIN", "train.csv", 160),
        ("--validation", "test.csv", 60),
    ]
    assert made["prices"]["requires"] == {"glucose": ["blood draw"]}
    assert (made["target"], made["task"], made["qid"], made["random_state"]) == ("ill", "classification", None, 0)
    assert {"cstc", "Python", "lightgbm"} <= set(made["versions"])


def test_a_killed_frontier_goes_on(world, monkeypatch):
    call(*FRONTIER, "-o", "whole")
    store, stored = Checkpoint.store, []

    def die_later(self, *arguments):
        if len(stored) == 2:
            raise KeyboardInterrupt
        stored.append(arguments[0])
        store(self, *arguments)

    monkeypatch.setattr(Checkpoint, "store", die_later)
    said = call(*FRONTIER, "-o", "f", status=1).stderr
    assert said.splitlines()[-1] == "Error: stopped"
    assert {path.name for path in (world / "f").iterdir()} == {"checkpoint"}
    assert "is not finished" in call("report", "f", "-o", "r.html", status=1).stderr
    monkeypatch.setattr(Checkpoint, "store", store)
    other = call(*FRONTIER, "--random-state", 1, "-o", "f", status=1).stderr.splitlines()[-1]
    assert "belongs to a fit of other data or settings: random_state is 1 here and 0 in the checkpoint" in other
    finished = []
    monkeypatch.setattr(
        Checkpoint, "store", lambda self, *arguments: (finished.append(arguments[0]), store(self, *arguments))
    )
    assert "f: going on where an earlier run was" in call(*FRONTIER, "-o", "f").stderr
    assert not set(finished) & set(stored)
    assert not (world / "f" / "checkpoint").exists()
    assert load_frontier("f").table == load_frontier("whole").table
    assert "holds a finished frontier" in call(*FRONTIER, "-o", "f", status=1).stderr
    call(*FRONTIER, "--random-state", 1, "-o", "f", "--overwrite")
    assert load_frontier("f").made["random_state"] == 1


def test_a_frontier_goes_on_after_its_process_was_killed(world, monkeypatch):
    """By SIGKILL, which nothing can be done about: what was finished is whole, and is not fitted again."""
    command = [str(part) for part in (*FRONTIER, "--n-weights", 12, "-o", "f", "--quiet")]
    checkpoint = world / "f" / "checkpoint"
    process = subprocess.Popen([sys.executable, "-m", "cstc", *command])
    try:
        until = time.monotonic() + 300
        while len(list(checkpoint.glob("model-*.json"))) < 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    finished = {float(path.stem.removeprefix("model-")) for path in checkpoint.glob("model-*.json")}
    assert len(finished) >= 2
    store, stored = Checkpoint.store, []
    monkeypatch.setattr(
        Checkpoint, "store", lambda self, *arguments: (stored.append(arguments[0]), store(self, *arguments))
    )
    assert call(*command).stderr == ""
    assert stored
    assert not finished & set(stored)
    call(*command[:-3], "-o", "whole", "--quiet")
    assert load_frontier("f").table == load_frontier("whole").table


def test_overwriting_takes_another_checkpoint_away(world):
    shutil.copytree("done", "f")
    X, y = table_of("train.csv", "ill"), column("train.csv", "ill").astype(int)
    estimator = CSTCClassifier(n_weak_learners=3, random_state=5, n_jobs=1)
    cstc.Frontier(estimator, cost_weights=[1.0], checkpoint="f/checkpoint").fit(X, y)
    call(*FRONTIER, "-o", "f", status=1)
    assert load_frontier("f").table == load_frontier("done").table
    call(*FRONTIER, "-o", "f", "--overwrite")
    assert len(load_frontier("f").tried) == 4


def test_a_frontier_of_numbers_and_of_rankings(world):
    drop = [part for other in ("id", "ill", "stage", "query") for part in ("--drop", other)]
    call("frontier", "whole.csv", "--target", "risk", *drop, "-o", "f", "--n-weights", 3, *QUICK, "-q")
    assert load_frontier("f").quality_name == "R²"
    drop = [part for other in ("id", "risk", "stage") for part in ("--drop", other)]
    call("frontier", "whole.csv", "--target", "ill", "--qid", "query", *drop, "-o", "g", "--n-weights", 3, *QUICK, "-q")
    saved = load_frontier("g")
    assert (saved.quality_name, saved.made["qid"]) == ("NDCG@5", "query")


def test_other_systems_beside_a_ranking_are_judged_at_the_same_places(world):
    drop = [part for other in ("id", "risk", "stage") for part in ("--drop", other)]
    options = ("--target", "ill", "--qid", "query", "--at", 2, "--n-weights", 2, *drop, *QUICK, "-q")
    call("frontier", "whole.csv", *options, "--validation", "whole.csv", "--compare", "-o", "f")
    saved = load_frontier("f")
    assert saved.quality_name == "NDCG@2"
    X, y, qid = table_of("whole.csv", *OTHERS), column("whole.csv", "ill").astype(float), column("whole.csv", "query")
    references = dict(saved.references)
    assert list(references) == ["LightGBM", "CEGB"]
    system = CEGB(task="ranking", random_state=0, n_jobs=1)
    own = system.frontier(X, y, qid=qid, X_val=X, y_val=y, qid_val=qid, n_points=12, quality=at_two)
    assert [point["quality"] for point in references["CEGB"]] == [row["quality"] for row in own.table_]


def at_two(system, X, y, qid):
    return ndcg(y, system.predict(X, qid=qid), qid, 2)


def test_other_systems_beside_a_frontier(world):
    told = call(*FRONTIER, "-o", "f", "--validation", "test.csv", "--compare").stdout
    references = dict(load_frontier("f").references)
    assert list(references) == ["LightGBM", "CEGB"]
    (plain,) = references["LightGBM"]
    assert plain["mean_cost"] > load_frontier("f").table[1]["mean_cost"]
    beside = ("evaluate", "model.cstc", "test.csv", "--target", "ill", "--train", "train.csv", "--json")
    expected = json.loads(call(*beside).stdout)["LightGBM"]
    assert plain["quality"] == expected["AUC"]["value"]
    assert plain["mean_cost"] == expected["mean cost"]["value"]
    assert len(references["CEGB"]) > 1
    assert f"LightGBM: AUC {plain['quality']:.4f} for {plain['mean_cost']:.4g}" in told
    drop = [part for other in ("id", "ill", "risk", "query") for part in ("--drop", other)]
    options = ("--validation", "whole-test.csv", "--compare", "-o", "g", "--n-weights", 3, *QUICK)
    said = call("frontier", "whole.csv", "--target", "stage", *drop, *options).stderr
    assert "CEGB is left out" in said
    assert [name for name, _ in load_frontier("g").references] == ["LightGBM"]


def test_an_executor_is_handed_over(world, monkeypatch):
    import types

    fit, seen = cstc.Frontier.fit, []

    class Client:
        def __init__(self, address, timeout):
            if address == "nobody:1":
                raise OSError("Timed out")
            seen.append(address)

        def close(self):
            seen.append("closed")

    def with_executor(self, X, y, *, executor=None, scratch=None, **options):
        seen.append((type(executor).__name__, scratch))
        return fit(self, X, y, **options)

    monkeypatch.setitem(sys.modules, "distributed", types.SimpleNamespace(Client=Client))
    arguments = (*FRONTIER, "-o", "f", "--executor", "host:8786")
    monkeypatch.setattr(cstc.Frontier, "fit", with_executor)
    call(*arguments, "--scratch", "shared")
    assert seen == ["host:8786", ("Client", "shared"), "closed"]
    said = call(*FRONTIER, "-o", "g", "--executor", "nobody:1", status=1).stderr.splitlines()[-1]
    assert said == "Error: no scheduler of Dask answers at nobody:1: Timed out"
    assert "--scratch belongs to --executor" in call(*FRONTIER, "-o", "g", "--scratch", "s", status=2).stderr


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_report_hands_over_the_frontier_and_the_rows(world, monkeypatch):
    import types

    calls = []
    page = types.ModuleType("cstc.report")
    page.write_report = lambda *arguments, **options: calls.append((arguments, options))
    monkeypatch.setitem(sys.modules, "cstc.report", page)
    assert "r.html: open it in a browser" in call("report", "done", "-o", "r.html").stderr
    call("report", "done", "--test", "test.csv", "-o", "r.html", "-q")
    ((saved, path), options), (_, tested) = calls
    assert (saved.quality_name, path, options) == ("AUC", "r.html", {})
    assert tested["X"].column_names == ["age", "glucose", "bmi", "smoker", "city"]
    assert tested["X"]["age"] == table_of("test.csv")["age"]
    assert tested["y"].tolist() == column("test.csv", "ill").astype(int).tolist()
    assert (tested["qid"], tested["test_name"]) == (None, "test.csv")
    assert "goes into a file" in call("report", "done", "-o", "-", status=2).stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    assert "_CSTC_COMPLETE" in call("completion", shell).stdout


def test_completion_knows_commands():
    command = [sys.executable, "-m", "cstc"]
    asked = {"_CSTC_COMPLETE": "bash_complete", "COMP_WORDS": "cstc ev", "COMP_CWORD": "1"}
    done = subprocess.run(command, env=os.environ | asked, capture_output=True, text=True, check=False)
    assert "evaluate" in done.stdout


def test_debug_shows_where_an_error_came_from(world):
    arguments = ["fit", "none.csv", "--target", "y", "-o", "m.cstc"]
    command = [sys.executable, "-m", "cstc", "--debug", *arguments]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert "Traceback" in shown.stderr
    assert "FileNotFoundError: none.csv" in shown.stderr
    assert call(*arguments, status=1).stderr == "Error: none.csv: there is no such file\n"


def test_faults_of_the_program_are_one_sentence_too(world, monkeypatch):
    monkeypatch.setattr(CSTCRegressor, "fit", lambda *_, **__: {}["lost"])
    arguments = ("fit", "whole.csv", "--target", "risk", "-o", "m.cstc", *QUICK, "-q")
    said = call(*arguments, *(part for name in ("id", "ill", "stage", "query") for part in ("--drop", name)), status=1)
    assert said.stderr == "Error: KeyError: 'lost'; 'cstc --debug ...' shows where it came from\n"


def test_all_is_written_down_for_help():
    text = call("--help").stdout
    assert call().stdout == text
    names = "split prices fit frontier predict explain evaluate report inspect serve completion".split()
    assert all(f"\n  {name} " in text for name in names)
    for name in names:
        assert "--help" in call(name, "--help").stdout
