"""Tables from files: separators, encodings, decimals, missing values, kinds of columns, and where faults are."""

import datetime
import gzip
import hashlib
import io

import numpy as np
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from cli.commands import as_text as csv_text
from cli.commands import call, rows_of, small_table, without
from cstc.cli import _csv, _tables
from cstc.cli._columns import kind_of
from cstc.cli._input import open_input
from cstc.cli._reading import Reading
from cstc.cli._tables import as_held, labels_of, open_table, places_in, raw_table


def read_table(table, columns, reading, categories=()):
    return as_held(table, raw_table(table, columns), columns, reading, categories)


def read(path, content, reading=None, categories=()):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    reading = Reading() if reading is None else reading
    table = open_table(str(path), reading)
    return read_table(table, table.names, reading, categories)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_found(tmp_path, separator):
    text = csv_text([["a", "b, c", "d;e"], ["1", "x", "2"], ["3", "y;z", "4"], ["5", "u,v|w\tt", "6"]], separator)
    found = read(tmp_path / "t.csv", text)
    assert found.column_names == ["a", "b, c", "d;e"]
    assert found.to_pydict() == {"a": [1, 3, 5], "b, c": ["x", "y;z", "u,v|w\tt"], "d;e": [2, 4, 6]}


def test_a_separator_that_is_given(tmp_path):
    found = read(tmp_path / "t.csv", "a,b:c\n1,5:2\n", Reading(separator=":", decimal=","))
    assert found.to_pydict() == {"a,b": [1.5], "c": [2.0]}
    assert read(tmp_path / "t.csv", "a\n1\n2\n").to_pydict() == {"a": [1, 2]}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
def test_encodings(tmp_path, encoding):
    content = "Größe,Stadt\n1,Köln\n2,Zürich\n".encode(encoding)
    marked = encoding in ("utf-8", "utf-8-sig", "utf-16")  # the others do not say what they are
    found = read(tmp_path / "t.csv", content, Reading(encoding=None if marked else encoding))
    assert found.to_pydict() == {"Größe": [1, 2], "Stadt": ["Köln", "Zürich"]}


def test_gzip_by_its_content(tmp_path):
    assert read(tmp_path / "t.csv", gzip.compress(b"a,b\n1,x\n")).to_pydict() == {"a": [1], "b": ["x"]}


def test_kinds_of_columns(tmp_path):
    text = (
        "n,signed,small,flag,words,gone,codes\n1,+2,.5,true,x,,01\n,-3e2,1.,False,,NA,02\n 4 ,NaN,1E-3,TRUE,y,null,01\n"
    )
    found = read(tmp_path / "t.csv", text, categories=["codes"])
    assert [kind_of(column) for column in found.columns] == [
        *["number"] * 3, "true/false", "category", "number", "category"
    ]  # fmt: skip
    assert found.to_pydict() == {
        "n": [1, None, 4],
        "signed": [2, -300, None],
        "small": [0.5, 1, 0.001],
        "flag": [True, False, True],
        "words": ["x", None, "y"],
        "gone": [None] * 3,
        "codes": ["01", "02", "01"],
    }


def test_missing_values_of_ones_own(tmp_path):
    text = "a,b\n1,x\n?,-\n"
    with pytest.raises(ValueError, match=r"line 3, column 'a': '\?' is no number, and most .* --missing '\?' if"):
        read(tmp_path / "t.csv", text)
    found = read(tmp_path / "t.csv", text, Reading(missing=("?", "-")))
    assert found.to_pydict() == {"a": [1, None], "b": ["x", None]}


def test_decimal_commas(tmp_path):
    text = "a;b\n1,5;x\n-2;y\n"
    found = read(tmp_path / "t.csv", text, Reading(decimal=","))
    assert found.to_pydict() == {"a": [1.5, -2.0], "b": ["x", "y"]}
    with pytest.raises(ValueError, match=r"line 3, column 'a': '2\.5' is no number"):
        read(tmp_path / "t.csv", "a;b\n1,5;x\n2.5;y\n3,5;z\n", Reading(decimal=","))


def test_lines_are_those_of_an_editor(tmp_path):
    text = '\n"a","b"\n\n1,"two\nlines"\n2,x\n\n3,y\nzz,w\n'
    with pytest.raises(ValueError, match=r"t\.csv, line 9, column 'a': 'zz'"):
        read(tmp_path / "t.csv", text)


def test_a_quote_that_stays_open_in_a_column_that_nobody_reads(tmp_path):
    (tmp_path / "t.csv").write_text('a,b,c\n1,2,x\n3,4,"y\n5,6,z\n')
    table = open_table(str(tmp_path / "t.csv"), Reading())
    with pytest.raises(ValueError, match=r"t\.csv, line 3: a quote in the row that begins here is never closed"):
        read_table(table, ["a"], Reading())
    inches = read(tmp_path / "t.csv", 'a,b\n1,5" pipe\n2,x\n')  # a quote inside of a field is one of its letters
    assert inches["b"].to_pylist() == ['5" pipe', "x"]


def test_numbers_that_are_too_large_for_any(tmp_path):
    with pytest.raises(ValueError, match="line 3, column 'a'"):
        read(tmp_path / "t.csv", "a,b\n1,2\n1e999,3\n4,5\n")


def test_many_small_blocks_are_one_table(tmp_path, monkeypatch):
    lines = small_table(300)
    whole = read(tmp_path / "t.csv", csv_text(lines))
    monkeypatch.setattr(_csv, "BLOCK", 512)
    assert read(tmp_path / "t.csv", csv_text(lines)) == whole
    assert whole.num_rows == 300
    with pytest.raises(ValueError, match=r"t\.csv: a row is longer than"):
        read(tmp_path / "t.csv", "a,b\n1," + "2" * 2000 + "\n")
    with pytest.raises(ValueError, match="line 3: a quote in the row that begins here is never closed"):
        read(tmp_path / "t.csv", 'a,b\n1,2\n3,"4\n' + "5,6\n" * 500)


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_parquet_and_feather_are_read_as_csv_is(world, kind, monkeypatch):
    monkeypatch.setattr(_tables, "BLOCK_ROWS", 7)
    reading = Reading()
    table = open_table("test.csv", reading)
    columns = read_table(table, table.names, reading)
    write = {"parquet": pyarrow.parquet.write_table, "feather": pyarrow.feather.write_feather}[kind]
    write(columns, "test.bin")
    assert read_table(open_table("test.bin", reading), table.names, reading) == columns
    by_text = call("predict", "model.cstc", "test.csv", "-q").stdout
    assert call("predict", "model.cstc", "test.bin", "-q").stdout == by_text
    assert call("evaluate", "model.cstc", "test.bin", "--target", "ill").stdout.startswith("60 rows")
    write(columns.drop_columns(["age"]), "lacks.bin")
    assert "lacks.bin has no column 'age'" in call("predict", "model.cstc", "lacks.bin", status=1).stderr
    twice = pyarrow.table([columns["age"], columns["bmi"]], names=["a", "a"])
    if kind == "feather":
        with pyarrow.OSFile("twice.bin", "wb") as sink, pyarrow.ipc.new_file(sink, twice.schema) as writer:
            writer.write_table(twice)
        assert "2 columns are named 'a'" in call("prices", "twice.bin", status=1).stderr


def test_dates_in_parquet_are_refused_with_their_column(world):
    days = [datetime.date(2026, 1, 1)] * 40
    pyarrow.parquet.write_table(pyarrow.table({"day": days, "x": list(range(40)), "y": [0, 1] * 20}), "t.parquet")
    assert "column 'day'" in call("fit", "t.parquet", "--target", "y", "-o", "out.cstc", status=1).stderr


def test_standard_input(world):
    text = (world / "new.csv").read_text(encoding="utf-8")
    by_file = call("predict", "model.cstc", "new.csv", "-q").stdout
    assert call("predict", "model.cstc", "-", "-q", stdin=text).stdout == by_file
    assert call("predict", "model.cstc", "-", "-q", stdin=gzip.compress(text.encode())).stdout == by_file
    assert "standard input is empty" in call("predict", "model.cstc", "-", stdin="", status=1).stderr
    bad = text + "1,2\n"
    assert "standard input, line 62: 2 fields" in call("predict", "model.cstc", "-", stdin=bad, status=1).stderr


def test_a_file_is_described_by_what_it_is(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n")
    found = open_input(str(tmp_path / "t.csv")).description()
    assert found == {"name": "t.csv", "bytes": 4, "sha256": hashlib.sha256(b"a\n1\n").hexdigest()}
    with pytest.raises(IsADirectoryError, match="is a folder; give a file"):
        open_input(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "classes", "expected"),
    [
        ("1,0,1.0", [0, 1], [1, 0, 1]),
        ("01,0,1", [0, 1], [1, 0, 1]),
        ("true,FALSE,True", [False, True], [True, False, True]),
        ("b,a,b", ["a", "b"], ["b", "a", "b"]),
        ("1,2,1", ["1", "2"], ["1", "2", "1"]),
    ],
)
def test_labels_are_the_classes_that_a_model_knows(tmp_path, text, classes, expected):
    (tmp_path / "t.csv").write_text("y,x\n" + "".join(f"{cell},0\n" for cell in text.split(",")))
    table = open_table(str(tmp_path / "t.csv"), Reading())
    found = labels_of(table, raw_table(table, ["y"])["y"], "y", np.array(classes))
    assert found.tolist() == expected
    with pytest.raises(ValueError, match=r"t\.csv, line 2, column 'y': '.*' is no class of the model; it has 'q'"):
        labels_of(table, raw_table(table, ["y"])["y"], "y", np.array(["q"]))
    assert places_in(table, 1)(1, "y").endswith("t.csv, line 4, column 'y'")


def test_a_model_reads_new_rows_as_it_learned(world):
    """Numbers for a category, digits for true and false, and columns in another order."""
    lines = without(small_table(40), "id", "stage", "risk", "query")
    at = lines[0].index("smoker")
    digits = [[*line[:at], {"true": "1", "false": "0"}.get(line[at], line[at]), *line[at + 1 :]] for line in lines]
    (world / "words.csv").write_text(csv_text(lines), encoding="utf-8")
    (world / "digits.csv").write_text(csv_text([line[::-1] for line in digits]), encoding="utf-8")
    words, others = (rows_of(call("predict", "model.cstc", name, "-q").stdout) for name in ("words.csv", "digits.csv"))
    assert words == others


def test_codes_are_categories_if_the_user_says_so(world):
    text = io.StringIO()
    text.write("ward,x,y\n")
    rng = np.random.default_rng(0)
    for k in range(600):
        text.write(f"{k % 5},{rng.normal():.3f},{int(k % 5 in (1, 3))}\n")
    (world / "wards.csv").write_text(text.getvalue())
    call("fit", "wards.csv", "--target", "y", "--category", "ward", "-o", "wards.cstc", "--rounds", 20, "--jobs", 1)
    assert "category: 0, 1, 2, 3, 4" in call("inspect", "wards.cstc").stdout
    table = pyarrow.table({"ward": [1.0, 2.0], "x": [0.0, 0.0]})
    pyarrow.parquet.write_table(table, "wards.parquet")
    answers = rows_of(call("predict", "wards.cstc", "wards.parquet", "-q").stdout)
    assert [row["prediction"] for row in answers] == ["1", "0"]
