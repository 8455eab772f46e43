"""What people meet on the first day with a table of their own: messages that say what would be right."""

import csv
import json

import numpy as np
import pytest

import cstc
from cli.commands import PRICES, QUICK, as_text, call, without
from cstc.cli._judging import Figure
from cstc.cli._reading import Reading
from cstc.cli._tables import open_table

FIT = ("fit", "train.csv", "--target", "ill", "-o", "m.cstc", *QUICK)


def lines_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


# -- parts of a table --------------------------------------------------------------------------------------------------


def test_a_table_in_parts(world):
    said = call("split", "whole.csv", "-o", "parts", "--validation", 0.2).stderr
    assert said.splitlines() == [
        "parts/train.csv: 88 rows", "parts/test.csv: 40 rows", "parts/validation.csv: 32 rows"
    ]  # fmt: skip
    whole = lines_of("whole.csv")
    parts = [lines_of(f"parts/{name}.csv") for name in ("train", "test", "validation")]
    assert all(part[0] == whole[0] for part in parts)
    places = {line[0]: at for at, line in enumerate(whole)}
    drawn = [[places[line[0]] for line in part[1:]] for part in parts]
    assert sorted(at for part in drawn for at in part) == list(range(1, 161))  # each row once
    assert all(at == sorted(at) for at in drawn)
    assert drawn[1] != list(range(121, 161))  # at random
    assert all(line == whole[places[line[0]]] for part in parts for line in part[1:])
    first = (world / "parts" / "test.csv").read_bytes()
    call("split", "whole.csv", "-o", "parts", "--validation", 0.2, "-q")
    assert (world / "parts" / "test.csv").read_bytes() == first
    call("split", "whole.csv", "-o", "parts", "--validation", 0.2, "-q", "--random-state", 1)
    assert (world / "parts" / "test.csv").read_bytes() != first
    call("split", "whole.csv", "-o", "two")
    assert {path.name for path in (world / "two").iterdir()} == {"train.csv", "test.csv"}
    drop = [part for name in ("id", "stage", "risk", "query") for part in ("--drop", name)]
    call("fit", "parts/train.csv", "--target", "ill", *drop, "-o", "m.cstc", *QUICK)
    call("evaluate", "m.cstc", "parts/test.csv", "--target", "ill")


def test_rows_that_belong_together_stay_together(world):
    lines = lines_of("whole.csv")
    lines[3][-1] = lines[4][-1] = ""  # of no query: each alone
    (world / "t.csv").write_text(as_text(lines), encoding="utf-8")
    call("split", "t.csv", "-o", "parts", "--together", "query", "--test", 0.3)
    train, test = ({line[-1] for line in lines_of(f"parts/{name}.csv")[1:]} - {""} for name in ("train", "test"))
    assert train
    assert test
    assert not train & test
    assert 40 <= len(lines_of("parts/test.csv")) - 1 <= 56


def test_parts_are_of_the_kind_of_the_table(world):
    call("predict", "model.cstc", "new.csv", "-o", "a.parquet")
    call("split", "a.parquet", "-o", "parts")
    assert open_table("parts/test.parquet", Reading()).n_rows == 15


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("--test", 0.6, "--validation", 0.5), 2, "together they must be below 1"),
        (("--test", 0), 2, "'--test'"),
        (("--together", "ids"), 2, "(is 'id' meant?)"),
        (("--test", 0.001), 1, "has too few rows (160): test would get none"),
        (("-o", "whole.csv"), 1, "whole.csv is a file; the parts go into a folder"),
        (("-o", "-"), 2, "the parts go into a folder"),
    ],
)
def test_parts_that_cannot_be(world, arguments, status, message):
    assert message in call("split", "whole.csv", "-o", "parts", *arguments, status=status).stderr


def test_no_part_is_written_over_the_table(world):
    (world / "test.csv").write_bytes((world / "whole.csv").read_bytes())
    assert "is read by this very command" in call("split", "test.csv", "-o", ".", status=1).stderr
    assert (world / "test.csv").read_bytes() == (world / "whole.csv").read_bytes()


# -- names and prices --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "wrong", "right"), [("--target", "Ill", "ill"), ("--drop", "glucos", "glucose")])
def test_a_column_that_is_nearly_named_is_suggested(world, option, wrong, right):
    said = call(*FIT, option, wrong, status=2).stderr
    assert f"{option} is {wrong!r}, and train.csv has no such column (is {right!r} meant?); it has 'age'" in said


def test_a_name_like_no_other_suggests_nothing(world):
    assert "has no such column; it has 'age'" in call(*FIT, "--target", "outcome", status=2).stderr


def test_prices_that_are_not_filled_in_say_what_may_be_written(world):
    call("prices", "whole.csv", "--target", "ill", "-o", "p.csv")
    said = call("fit", "whole.csv", "--target", "ill", "--prices", "p.csv", "-o", "m.cstc", status=1).stderr
    assert "p.csv, line 13: 'id' has no price yet (and 8 more lines have none)" in said
    assert "write one (0 is free)" in said
    assert said.rstrip().endswith("leave the column out with --drop id")


def test_lines_of_columns_that_are_dropped_may_stay_empty(world):
    """The file of prices says so itself."""
    text = call("prices", "whole.csv", "--target", "ill").stdout
    assert "name these with --drop" in text
    filled = text.replace("age,,", "age,2,").replace("glucose,,", "glucose,3,").replace("bmi,,", "bmi,4,")
    filled = filled.replace("smoker,,", "smoker,5,").replace("city,,", "city,6,")
    (world / "p.csv").write_text(filled, encoding="utf-8")
    drop = [part for name in ("id", "stage", "risk", "query") for part in ("--drop", name)]
    call("fit", "whole.csv", "--target", "ill", *drop, "--prices", "p.csv", "-o", "m.cstc", *QUICK)
    assert cstc.load("m.cstc").costs.full_cost == 20.0


def test_a_column_that_costs_only_its_items_is_pointed_out(world):
    (world / "p.csv").write_text(PRICES.replace("glucose,15.5,", "glucose,,"))
    said = call(*FIT, "--prices", "p.csv").stderr
    assert "p.csv: 'glucose' has no price of its own: only what it requires is paid" in said
    assert "price of its own" not in call(*FIT, "--prices", "prices.csv").stderr


def test_an_item_without_a_line_is_said_with_its_place(world):
    (world / "p.csv").write_text(PRICES.replace("15.5,blood draw", "15.5,blood drow"))
    said = call(*FIT, "--prices", "p.csv", status=1).stderr
    assert "p.csv, line 3: 'glucose' requires 'blood drow', which has no price (is 'blood draw' meant?)" in said
    assert "add a line for 'blood drow' with its price" in said


# -- what the columns hold ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["2026-11-{day:02}", "{day}.11.2026", "11/{day}/26", "2026-11-{day:02} 08:30"])
def test_dates_are_pointed_out(world, form):
    lines = lines_of("train.csv")
    dated = [[*lines[0], "admitted"], *([*line, form.format(day=k % 28 + 1)] for k, line in enumerate(lines[1:]))]
    dated[5][-1] = ""
    (world / "dated.csv").write_text(as_text(dated), encoding="utf-8")
    said = call("fit", "dated.csv", "--target", "ill", "-o", "m.cstc", *QUICK).stderr
    assert "Warning: column 'admitted' holds dates, and each date is taken for a category of its own" in said
    assert "--drop admitted" in said
    said = call("fit", "dated.csv", "--target", "ill", "-o", "m.cstc", *QUICK, "--drop", "admitted").stderr
    assert "dates" not in said


def test_one_class_in_two_spellings_is_pointed_out(world):
    lines = lines_of("train.csv")
    for k, line in enumerate(lines[1:]):
        line[-1] = ("no", "yes")[int(line[-1])] if k else "Yes "
    (world / "spelled.csv").write_text(as_text(lines), encoding="utf-8")
    said = call("fit", "spelled.csv", "--target", "ill", "-o", "m.cstc", *QUICK).stderr
    assert "differ only in how they are written" in said
    assert "'yes'" in said.partition("Warning: the classes ")[2].partition(" of 'ill'")[0]
    assert "'no'" not in said.partition("Warning: the classes ")[2]
    assert "differ only" not in call(*FIT).stderr


# -- rows to answer ----------------------------------------------------------------------------------------------------


def test_columns_that_the_model_never_looks_at_need_not_be_there(world):
    """Nobody should have to buy what a model never buys; what it may need is asked for as before."""
    call(*FIT, "--prices", "prices.csv", "--cost-weight", 0.02)
    features = json.loads(call("inspect", "m.cstc", "--json").stdout)["trees"][0]["features"]
    spare = [each["feature"] for each in features if each["use"] == "not used"]
    used = [each["feature"] for each in features if each["use"] == "used"]
    assert spare
    assert used
    lines = lines_of("test.csv")
    (world / "lean.csv").write_text(as_text(without(lines, *spare)), encoding="utf-8")
    for command in (("predict",), ("evaluate", "--target", "ill"), ("explain", "--row", 5)):
        whole, lean = (call(command[0], "m.cstc", name, *command[1:]) for name in ("test.csv", "lean.csv"))
        assert lean.stdout == whole.stdout
        assert "taken as missing" not in lean.stderr
    (world / "poor.csv").write_text(as_text(without(lines, used[0])), encoding="utf-8")
    for command in (("predict",), ("evaluate", "--target", "ill"), ("explain",)):
        said = call(command[0], "m.cstc", "poor.csv", *command[1:], status=1).stderr
        assert f"poor.csv has no column {used[0]!r}, which the model needs" in said
    beside = ("evaluate", "m.cstc", "lean.csv", "--target", "ill", "--train", "train.csv")
    assert f"lean.csv has no column {spare[0]!r}" in call(*beside, status=1).stderr  # LightGBM looks at all


def test_a_model_of_plain_inputs_needs_no_other_columns_either(world):
    lines = [["x", "y", "noise"]] + [[f"{x:.3f}", f"{2 * x:.3f}", "1"] for x in np.linspace(-1, 1, 80)]
    (world / "plain.csv").write_text(as_text(lines))
    call("fit", "plain.csv", "--target", "y", "--method", "exact", "-o", "m.cstc")
    (world / "lean.csv").write_text(as_text(without(lines, "noise")))
    assert call("predict", "m.cstc", "lean.csv").stdout == call("predict", "m.cstc", "plain.csv").stdout
    (world / "poor.csv").write_text(as_text(without(lines, "x")))
    assert "has no column 'x'" in call("predict", "m.cstc", "poor.csv", status=1).stderr


def test_a_report_says_whose_target_is_not_there(world):
    said = call("report", "done", "--test", "new.csv", "-o", "r.html", status=2).stderr
    assert "the target of done is 'ill', and new.csv has no such column" in said
    assert "--target" not in said


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (0.8, 0.0141, "0.800 ± 0.014"),
        (143.96, 1.04, "144.0 ± 1.0"),
        (1234.5, 12.0, "1234 ± 12"),
        (0.0075, 0.00354, "0.0075 ± 0.0035"),
        (26.0, 0.0, "26 ± 0"),
        (167.0, None, "167"),
    ],
)
def test_a_figure_has_as_many_digits_as_its_error(value, error, text):
    assert str(Figure("AUC", value, error)) == text


# -- errors in money ---------------------------------------------------------------------------------------------------

MONEY = ("--target", "ill", "--prices", "prices.csv", "--error-costs", "errors.csv")


def test_lightgbm_beside_a_model_whose_errors_have_prices(world):
    call("fit", "train.csv", *MONEY, "-o", "m.cstc", *QUICK)
    arguments = ("evaluate", "m.cstc", "test.csv", "--target", "ill", "--train", "train.csv")
    lines = [line[:21].strip() for line in call(*arguments).stdout.splitlines()[2:]]
    assert lines[3:5] == ["error cost", "total cost"]
    found = json.loads(call(*arguments, "--json").stdout)["LightGBM"]
    expected = found["mean cost"]["value"] + found["error cost"]["value"]
    assert found["total cost"]["value"] == pytest.approx(expected)


def test_other_systems_are_judged_in_money_where_the_frontier_is(world):
    """By what errors cost when each system decides by the same prices; and the page draws the sum of both costs."""
    options = ("--validation", "test.csv", "--compare", "-o", "f", "--n-weights", 3, *QUICK)
    call("frontier", "train.csv", *MONEY, *options)
    saved = cstc.frontier.load_frontier("f")
    references = dict(saved.references)
    assert saved.quality_name == "error cost, negative"
    arguments = ("evaluate", "f/models/model-01.cstc", "test.csv", "--target", "ill", "--train", "train.csv", "--json")
    expected = json.loads(call(*arguments).stdout)["LightGBM"]
    (plain,) = references["LightGBM"]
    assert plain["quality"] == -expected["error cost"]["value"]
    assert plain["mean_cost"] == expected["mean cost"]["value"]
    for point in references["CEGB"]:  # 60 rows, whose errors cost 0, 10, 30 or 250 each
        tens = -point["quality"] * 60 / 10
        assert tens >= 0
        assert tens == pytest.approx(round(tens))
    call("report", "f", "-o", "r.html")
    page = (world / "r.html").read_text(encoding="utf-8")
    total = plain["mean_cost"] - plain["quality"]
    assert f"LightGBM: mean cost {plain['mean_cost']:.2f}, total cost {total:.2f}" in page
