"""Files and options that are wrong: an answer or one sentence, the right exit code, and nothing half written."""

import gzip
import re
import sys
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from cli.commands import QUICK
from cstc.cli import main

FIT = ("fit", "bad.csv", "--target", "ill", "-o", "out.cstc", *QUICK)
FIT_PRICED = ("fit", "train.csv", "--target", "ill", "--prices", "bad.csv", "-o", "out.cstc", *QUICK)
FRONTIER = ("frontier", "bad.csv", "--target", "ill", "-o", "out", "--n-weights", "3", *QUICK)
PREDICT = ("predict", "model.cstc", "bad.csv", "-o", "out.csv")
EXPLAIN = ("explain", "model.cstc", "bad.csv", "-o", "out.txt")
EVALUATE = ("evaluate", "model.cstc", "bad.csv", "--target", "ill", "-o", "out.txt")
REPORT = ("report", "done", "--test", "bad.csv", "-o", "out.html")
CLOSED = "/proc" if sys.platform == "linux" else "/"  # not even the administrator makes files there
HEAD = "age,glucose,bmi,smoker,city"
WIDE_HEAD = ",".join(f"c{j}" for j in range(500)) + ",ill"
WIDE = WIDE_HEAD + "\n" + "".join(",".join(str((k * j) % 7) for j in range(500)) + f",{k % 2}\n" for k in range(40))


class Case(NamedTuple):
    """A file ``bad.csv`` with this content, a command, and what must come of it."""

    name: str
    content: bytes | str | None
    arguments: tuple
    status: int
    says: str  # a pattern that the sentence has


def case(name, content, arguments, status, says=""):
    return pytest.param(Case(name, content, arguments, status, says), id=name)


def rows(head, *lines, times=1):
    return head + "\n" + "".join(line + "\n" for line in lines) * times


GOOD = ("51,99,28,true,Paris,1", "44,,25,false,Rome,0", "60,120,31,true,Köln,1", "39,85,22,false,Rome,0")
TRAIN = rows(HEAD + ",ill", *GOOD, times=10)
NEW = rows(HEAD, "51,99,28,true,Paris")

CASES = [
    # answers
    case("fit a good file", TRAIN, FIT, 0),
    case("a frontier of a good file", TRAIN, FRONTIER, 0),
    case("predict one row", NEW, PREDICT, 0),
    case("explain one row", NEW, EXPLAIN, 0),
    case("evaluate one row", rows(HEAD + ",ill", GOOD[0]), EVALUATE, 0),
    case("predict a header alone", HEAD + "\n", PREDICT, 0),
    case("fit 500 columns", WIDE, FIT, 0),
    case("prices of 500 columns", WIDE, ("prices", "bad.csv", "-o", "out.csv"), 0),
    case("fit a file without a last new line", TRAIN.rstrip("\n"), FIT, 0),
    case("predict with a column too many", rows("x," + HEAD, "1,51,99,28,true,Paris"), PREDICT, 0),
    case("predict a category that is new", rows(HEAD, "51,99,28,true,Oslo"), PREDICT, 0),
    # empty
    case("fit an empty file", "", FIT, 1, r"^bad\.csv is empty"),
    case("fit a header alone", HEAD + ",ill\n", FIT, 1, r"bad\.csv has the names of 6 columns and no rows"),
    case("a frontier of an empty file", "", FRONTIER, 1, r"bad\.csv is empty"),
    case("predict an empty file", "", PREDICT, 1, r"bad\.csv is empty"),
    case("explain a header alone", HEAD + "\n", EXPLAIN, 2, r"--row is 1, and bad\.csv has 0 rows"),
    case("evaluate a header alone", HEAD + ",ill\n", EVALUATE, 1, "and no rows"),
    case("report on an empty file", "", REPORT, 1, r"bad\.csv is empty"),
    case("prices of an empty file", "", ("prices", "bad.csv", "-o", "out.csv"), 1, "is empty"),
    # one row
    case("fit one row", rows(HEAD + ",ill", GOOD[0]), FIT, 1, "1 row"),
    case("a frontier of one row", rows(HEAD + ",ill", GOOD[0]), FRONTIER, 1, "1 row"),
    case("fit one class", rows(HEAD + ",ill", GOOD[0], times=20), FIT, 1, "one class"),
    # ragged
    case("fit a row too short", TRAIN + "51,99\n", FIT, 1, r"line 42: 2 fields, and the header has 6"),
    case("predict a row too long", NEW + "1,2,3,true,Rome,9\n", PREDICT, 1, r"line 3: 6 fields, and the header has 5"),
    case(
        "a row too short below a row of two lines",
        rows(HEAD + ",ill", '51,99,28,true,"Par\nis",1', "51,99"),
        FIT,
        1,
        r"line 4: 2 fields",
    ),
    case("a quote that stays open", TRAIN + '51,99,28,true,"Paris,1\n' + TRAIN, FIT, 1, r"line 42: a quote"),
    # text
    case("fit another encoding", TRAIN.encode("cp1252"), FIT, 1, r"line 4: this is no text in UTF-8 \(the byte 0xf6\)"),
    case("predict another encoding", NEW.encode() + b"5,5,5,true,K\xf6ln\n", PREDICT, 1, r"line 3: .*--encoding"),
    case("an encoding that there is not", TRAIN, (*FIT, "--encoding", "klingon"), 2, "'klingon' is no encoding"),
    case("zero bytes", TRAIN.encode("utf-16-le"), FIT, 1, "--encoding utf-16"),
    case("half of a gzip file", gzip.compress(TRAIN.encode() * 50)[:-300], FIT, 1, r"bad\.csv .*(gzip|end)"),
    case("a workbook", b"PK\x03\x04 and so on", FIT, 1, "Excel workbook; save the sheet as CSV"),
    case("half of a Parquet file", b"PAR1" + b"\0" * 50, FIT, 1, "damaged Parquet file"),
    case("a Feather file of noise", b"ARROW1\0\0" + b"\1" * 50, PREDICT, 1, "damaged Feather file"),
    # names
    case(
        "names that are there twice", rows("age,bmi,age,ill", "1,2,3,0"), FIT, 1, r"line 1: 2 columns are named 'age'"
    ),
    case("a column without a name", rows(",bmi,ill", "0,2,1"), FIT, 1, "column 1 of 3 has no name"),
    case(
        "the target is not there", rows(HEAD, "51,99,28,true,Paris"), FIT, 2, r"--target is 'ill', and bad\.csv has no"
    ),
    case("the target is not in the test", NEW, EVALUATE, 2, "--target is 'ill'"),
    case("a column that the model needs", rows("age,bmi", "1,2"), PREDICT, 1, r"no column 'glucose', 'smoker', 'city'"),
    case("nothing to learn from", rows("ill", "0", "1", times=9), FIT, 2, "no column beside 'ill'"),
    case("a query that is not there", TRAIN, (*FIT, "--qid", "q"), 2, "--qid is 'q'"),
    case("a column to drop that is not there", TRAIN, (*FIT, "--drop", "name"), 2, "--drop is 'name'"),
    # values
    case(
        "a misprint in a column of numbers",
        TRAIN + "5l,99,28,true,Rome,1\n",
        FIT,
        1,
        r"line 42, column 'age': '5l' is no",
    ),
    case(
        "text where the model has numbers",
        rows(HEAD, "old,99,28,true,Rome"),
        PREDICT,
        1,
        r"line 2, column 'age': 'old'",
    ),
    case(
        "maybe where the model has true and false",
        rows(HEAD, "5,99,28,maybe,Rome"),
        PREDICT,
        1,
        "column 'smoker': 'maybe'",
    ),
    case("decimal commas", rows("age;ill", "1,5;0", "2,5;1", times=9), FIT, 1, r"column 'age': .* --decimal ,"),
    case("marks between thousands", rows("age,ill", '"1,000",0', '"2,500",1', times=9), FIT, 1, "between thousands"),
    case(
        "a query that is missing",
        rows("age,ill,q", "1,0,a", "2,1,", times=5),
        (*FIT, "--qid", "q"),
        1,
        "of --qid holds",
    ),
    case(
        "four rows",
        rows(HEAD + ",ill", *GOOD),
        FIT,
        1,
        "4 training rows are fewer than the 5 folds of the experts; give more rows$",
    ),
    case(
        "a class that is rare",
        rows(HEAD + ",ill", GOOD[0], times=30) + GOOD[1] + "\n",
        FRONTIER,
        1,
        "--validation rows with both classes",
    ),
    case("infinity", rows(HEAD, "inf,99,28,true,Rome"), PREDICT, 1, r"line 2, column 'age': 'inf' is not finite"),
    case("a target that is missing", TRAIN + "51,99,28,true,Rome,\n", FIT, 1, r"line 42, column 'ill' is missing"),
    case(
        "a class that the model does not know",
        rows(HEAD + ",ill", GOOD[0], "5,9,8,true,Rome,7"),
        EVALUATE,
        1,
        "line 3, column 'ill': '7' is no class of the model; it has 0, 1",
    ),
    case(
        "a class that training does not have",
        rows(HEAD + ",ill", GOOD[0], "5,9,8,true,Rome,7"),
        ("fit", "train.csv", "--target", "ill", "--validation", "bad.csv", "-o", "out.cstc", *QUICK),
        1,
        "line 3, column 'ill': '7' is no class",
    ),
    case("a report on a class that is new", rows(HEAD + ",ill", "5,9,8,true,Rome,7"), REPORT, 1, "'7' is no class"),
    case(
        "classes with decimals",
        rows("age,ill", "1,0.5", "2,1.5", times=9),
        (*FIT, "--task", "classification"),
        1,
        "line 2, column 'ill': 0.5 is no class",
    ),
    case(
        "text for a regression",
        rows("age,ill", "1,no", "2,yes", times=9),
        (*FIT, "--task", "regression"),
        1,
        "line 2, column 'ill': 'no' is no number, and numbers are to be",
    ),
    case(
        "queries that come back",
        rows("age,ill,q", "1,0,a", "2,1,b", "3,1,a", times=5),
        (*FIT, "--qid", "q"),
        1,
        "comes back",
    ),
    # prices
    case(
        "a price is missing",
        "column,price\nage,1\n",
        FIT_PRICED,
        1,
        r"bad\.csv: no price and no required items for 'glucose'",
    ),
    case("a price is not filled in", "column,price\nage,\n", FIT_PRICED, 1, "line 2: 'age' has no price yet"),
    case("a price is no number", "column,price\nage,much\n", FIT_PRICED, 1, "line 2: the price of 'age' is 'much'"),
    case(
        "an item that there is not",
        "column,price,requires\nage,1,nurse\n",
        FIT_PRICED,
        1,
        "'nurse', which has no price",
    ),
    case(
        "a price of another column",
        "column,price\nage,1\nglucose,1\nbmi,1\nsmoker,1\ncity,1\nshoe,1\n",
        FIT_PRICED,
        1,
        "names 'shoe', which is neither a column of train.csv",
    ),
    case(
        "prices in another encoding",
        "column,price\nGröße,1\n".encode("cp1252"),
        FIT_PRICED,
        1,
        "line 2: this is no text in UTF-8",
    ),
    case("no prices at all", None, (*FIT_PRICED[:5], "none.csv", *FIT_PRICED[6:]), 1, r"none\.csv: No such file"),
    case(
        "errors of another class",
        "truth,0,2\n0,0,1\n2,1,0\n",
        ("fit", "train.csv", "--target", "ill", "--error-costs", "bad.csv", "-o", "out.cstc", *QUICK),
        1,
        "'2' is no class of the target",
    ),
    case(
        "errors without a price",
        "truth,0,1\n0,0,\n1,1,0\n",
        ("fit", "train.csv", "--target", "ill", "--error-costs", "bad.csv", "-o", "out.cstc", *QUICK),
        1,
        "line 2, column '1': None is no price",
    ),
    # outputs
    case(
        "a folder that there is not",
        TRAIN,
        (*FIT[:5], "none/out.cstc", *QUICK),
        1,
        r"none/out\.cstc cannot be written: there is no folder none",
    ),
    case("a folder that is not writable", TRAIN, (*FIT[:5], f"{CLOSED}/out.cstc", *QUICK), 1, "cannot be written"),
    case("answers where nobody may write", NEW, (*PREDICT[:4], f"{CLOSED}/out.csv"), 1, "cannot be written"),
    case("a frontier where nobody may write", TRAIN, (*FRONTIER[:5], f"{CLOSED}/out", *QUICK), 1, "cannot be written"),
    case("a folder in place of a file", TRAIN, (*FIT[:5], "done", *QUICK), 1, "done is a folder"),
    case(
        "answers over the question",
        NEW,
        ("predict", "model.cstc", "bad.csv", "-o", "bad.csv"),
        1,
        "is read by this very command",
    ),
    case("a file in place of a folder", TRAIN, (*FRONTIER[:5], "model.cstc", *QUICK), 1, r"model\.cstc is a file"),
    case("a folder with other files", TRAIN, (*FRONTIER[:5], ".", *QUICK), 1, "a folder with other files in it"),
    case("a frontier that is finished", TRAIN, (*FRONTIER[:5], "done", *QUICK), 1, "done holds a finished frontier"),
    case("a frontier below nothing", TRAIN, (*FRONTIER[:5], "none/out", *QUICK), 1, "there is no folder"),
    # wrong use
    case("a file that there is not", None, FIT, 1, r"bad\.csv: there is no such file"),
    case("a model that there is not", NEW, ("predict", "none.cstc", "bad.csv"), 2, "'none.cstc' does not exist"),
    case("a model that is none", "nonsense", ("predict", "bad.csv", "new.csv", "-o", "out.csv"), 1, r"bad\.csv: "),
    case("a report of no frontier", None, ("report", ".", "-o", "out.html"), 1, "holds no frontier"),
    case("a cost weight and a mean cost", TRAIN, (*FIT, "--cost-weight", "1", "--mean-cost", "1"), 2, "both given"),
    case("a budget below nothing", NEW, (*PREDICT, "--budget", "-1"), 2, "--budget"),
    case("a name that nobody knows", NEW, (*PREDICT, "--unavailable", "moon"), 1, "'moon'"),
    case("a row beyond the end", NEW, (*EXPLAIN, "--row", "2"), 2, "--row is 2, and bad.csv has 1 rows"),
    case("two forms at once", NEW, (*EXPLAIN, "--json", "--html"), 2, "--json and --html are both given"),
    case("a budget that is no number", NEW, (*PREDICT, "--budget", "nan"), 2, "nan is not finite"),
    case("a mean cost without end", TRAIN, (*FIT, "--mean-cost", "inf"), 2, "inf is not finite"),
    case("rounds where nothing is boosted", TRAIN, (*FIT, "--method", "exact"), 2, "--rounds says how trees"),
    case("others without rows that judge", TRAIN, (*FRONTIER, "--compare"), 2, "--compare needs --validation"),
    case("a command that there is not", None, ("fitt",), 2, "No such command 'fitt'"),
    case("a ranking without queries", TRAIN, (*FIT, "--task", "ranking"), 2, "needs --qid"),
    case("an option that there is not", TRAIN, (*FIT, "--depth", "3"), 2, "No such option '?--depth"),
    case("no jobs", TRAIN, (*FIT, "--jobs", "0"), 2, "--jobs is 0"),
    case("a separator of two letters", TRAIN, (*FIT, "--separator", "ab"), 2, "'ab' is no separator"),
    case("an executor that does not answer", TRAIN, (*FRONTIER, "--executor", "nowhere"), 1, "--executor|Dask"),
]


def listing(folder):
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CASES)
def test_an_answer_or_one_sentence(world, case):
    if case.content is not None:
        (world / "bad.csv").write_bytes(case.content if isinstance(case.content, bytes) else case.content.encode())
    before = listing(world)
    result = CliRunner().invoke(main, list(case.arguments))
    assert result.exit_code == case.status, result.output + repr(result.exception)
    assert "Traceback" not in result.output
    after = listing(world)
    assert not [name for name in after if name.endswith(".tmp")]
    said = result.stderr.splitlines()
    if case.status == 0:
        assert not [line for line in said if line.startswith("Error")]
        assert any(name.startswith("out") for name in after)
        return
    assert [line for line in said if line.startswith("Error: ")] == said[-1:]
    assert re.search(case.says, said[-1].removeprefix("Error: ")), said[-1]
    assert not result.stdout
    assert after == before


def test_there_are_forty_of_them():
    assert len(CASES) >= 40
    assert len({each.id for each in CASES}) == len(CASES)
