"""Models of whole queries on the command line: the library's answers, and one sentence where they cannot be used."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest

import cstc
from cli.commands import QUICK, call, rows_of

COLUMNS = ["a", "b", "c"]
FIT = ("fit", "train.csv", "--target", "grade", "--qid", "query", "--whole-queries", "--prices", "prices.csv")


NO_BUDGET = "--budget is given, and this model looks at whole queries, where no row can be stopped by itself"


def write(path, n_queries, seed):
    rng = np.random.default_rng(seed)
    queries = np.repeat(np.arange(n_queries), 10)
    X = rng.normal(size=(len(queries), 3)).round(6)
    grades = np.clip(np.round(X[:, 0] + X[:, 1]), 0, 4)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["query", *COLUMNS, "grade"])
        writer.writerows([f"q{query}", *row, grade] for query, row, grade in zip(queries, X, grades, strict=True))
    return X, grades, [f"q{query}" for query in queries]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write("train.csv", 60, 0)
        (folder / "prices.csv").write_text("feature,cost\na,1\nb,5\nc,5\n")
        test = write("test.csv", 20, 1)
        call(*FIT, "--cost-weight", 0.01, "-o", "m.cstc", *QUICK)
        yield test


def test_answers_are_those_of_the_library(world):
    X, _, qid = world
    model = cstc.load("m.cstc")
    assert isinstance(model, cstc.QueryTree)
    scores, cost = model.predict(X, qid=qid, return_cost=True)
    call("predict", "m.cstc", "test.csv", "--qid", "query", "--id", "query", "-o", "answers.csv", "-q")
    rows = rows_of(Path("answers.csv").read_text())
    np.testing.assert_allclose([float(row["prediction"]) for row in rows], scores)
    np.testing.assert_allclose([float(row["cost"]) for row in rows], cost)
    ends = model.apply(X, qid=qid)
    assert [row["path"] for row in rows] == [" > ".join(map(str, range(end + 1))) for end in ends]
    said = json.loads(call("evaluate", "m.cstc", "test.csv", "--target", "grade", "--qid", "query", "--json").stdout)
    assert said["model"]["mean cost"]["value"] == pytest.approx(cost.mean())


def test_blocks_of_a_table_cut_no_query(world):
    from cstc.cli._arrow import pyarrow
    from cstc.cli._queries import whole_queries

    queries = ["a"] * 3 + ["b"] * 5 + ["c"] + ["d"] * 4
    table = pyarrow.table({"q": queries, "x": list(range(len(queries)))})
    for size in (1, 2, 3, 5, 20):
        blocks = [(at, table.slice(at, size), table.slice(at, size)) for at in range(0, len(queries), size)]
        found = list(whole_queries(blocks, "q"))
        assert [start for start, _, _ in found] == [sum(len(b) for _, _, b in found[:k]) for k in range(len(found))]
        parts = [block["q"].to_pylist() for _, _, block in found]
        assert [query for part in parts for query in part] == queries
        assert sum(len(set(part)) for part in parts) == 4
    again = pyarrow.table({"q": ["a", "b", "a"]})
    with pytest.raises(ValueError, match="query 'a' comes back after other queries; sort the rows by 'q'"):
        list(whole_queries([(at, again.slice(at, 1), again.slice(at, 1)) for at in range(3)], "q"))


def test_a_model_is_inspected_with_what_its_paths_cost(world):
    text = call("inspect", "m.cstc", "--path").stdout
    model = cstc.load("m.cstc")
    assert "queries      whole ones: gates see the place of a document, by the 5 best of its query" in text
    n_made = 2 * (model.n_nodes - 1)
    assert f"made         {n_made} columns of scores for that, which cost nothing and are no features" in text
    assert "at node" not in text
    assert re.search(r"^fallbacks +\d+ experts? for when a source is down$", text, re.MULTILINE)
    for terminal, cost in enumerate(model.terminal_costs()):
        assert f"terminal {terminal}: at most {cost:g}" in text
    document = json.loads(call("inspect", "m.cstc", "--json").stdout)
    assert document["whole_queries"] == {"at": 5}
    assert {each["feature"] for each in document["trees"][0]["features"]} == set(COLUMNS)
    most = {path["terminal"]: path["most"] for path in document["trees"][0]["paths"]}
    assert most == dict(enumerate(model.terminal_costs().tolist()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("predict", "m.cstc", "test.csv"), "looks at whole queries; name the column with the query of each"),
        (("evaluate", "m.cstc", "test.csv", "--target", "grade"), "looks at whole queries; name the column"),
        (
            ("explain", "m.cstc", "test.csv", "--row", 1),
            "this command at rows one by one; 'cstc predict --qid COLUMN' tells the path and the purchases of each row",
        ),
        (
            ("serve", "m.cstc"),
            "this command at rows one by one; 'cstc predict --qid COLUMN' answers the rows of a table",
        ),
        (("predict", "m.cstc", "test.csv", "--qid", "query", "--budget", 3), NO_BUDGET),
        (("evaluate", "m.cstc", "test.csv", "--target", "grade", "--qid", "query", "--budget", 3), NO_BUDGET),
        ((*FIT[:4], "--whole-queries", "-o", "n.cstc"), "--whole-queries needs --qid"),
        ((*FIT, "--method", "paper", "-o", "n.cstc"), "--whole-queries is for --method experts, and --method is paper"),
    ],
)
def test_what_cannot_be_is_wrong_use_and_one_sentence(world, arguments, message):
    found = call(*arguments, status=2)
    assert message in " ".join(found.output.split())


@pytest.mark.parametrize("method", ["paper", "exact"])
def test_an_order_is_boosted_by_one_method_which_is_said_before_files_are_read(world, method):
    options = ("--target", "grade", "--qid", "query", "--objective", "lambdarank", "--method", method)
    found = call("fit", "not-there.csv", *options, "-o", "n.cstc", status=2)
    assert f"--objective lambdarank is for --method experts, and --method is {method}" in found.output


def test_names_of_what_is_down_are_those_of_the_table(world):
    found = call("predict", "m.cstc", "test.csv", "--qid", "query", "--unavailable", "d", status=1)
    assert "--unavailable names 'd', which is no source, item or feature of the model: 'a', 'b', 'c'" in found.output


def test_places_that_count_are_those_of_the_model(world):
    call(*FIT, "--at", 3, "--cost-weight", 0.01, "-o", "three.cstc", *QUICK)
    judge = ("evaluate", "three.cstc", "test.csv", "--target", "grade", "--qid", "query")
    assert "NDCG@3 " in call(*judge).stdout
    assert "NDCG@5 " in call(*judge, "--at", 5).stdout


def test_a_frontier_has_a_table_and_no_page(world):
    found = call("frontier", *FIT[1:], "--n-weights", 2, "-o", "frontier", *QUICK)
    assert "frontier: 2 models; table.csv and frontier.png show them" in found.output
    refused = call("report", "frontier", "-o", "page.html", status=2)
    assert "the models of frontier look at whole queries, and a page is about rows that go their way" in refused.output
    assert not Path("page.html").exists()


def test_the_column_of_queries_is_of_no_use_to_other_models(world):
    call(*FIT[:6], "--prices", "prices.csv", "-o", "rows.cstc", *QUICK)
    found = call("predict", "rows.cstc", "test.csv", "--qid", "query", status=2)
    assert "--qid is given, and this model answers row by row; leave it out" in found.output
