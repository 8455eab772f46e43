"""Folders of Parquet files: which rows lie where, and what is read of them."""

import builtins
import pickle
import re

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cstc.folders import Folder, RowGroup


def error(message, kind=ValueError):
    return pytest.raises(kind, match=re.escape(message))


def write(path, table, row_group_size=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), path, row_group_size=row_group_size)


@pytest.fixture
def folder(tmp_path):
    """Seven rows in two files, one of them in a sub-folder; b.parquet comes before c/a.parquet."""
    write(tmp_path / "c/a.parquet", {"n": [5, 6], "t": ["z", None]})
    write(tmp_path / "b.parquet", {"n": [0, 1, 2, 3, 4], "t": ["x", "y", "x", None, "y"]}, row_group_size=2)
    return tmp_path


def test_names_and_sizes_and_no_data(folder):
    found = Folder.open(folder)
    assert found.path == str(folder)
    assert found.columns == ("n", "t")
    sizes = [("b.parquet", 0, 2), ("b.parquet", 1, 2), ("b.parquet", 2, 1), ("c/a.parquet", 0, 2)]
    assert found.groups == tuple(RowGroup(*size) for size in sizes)
    assert len(found) == 7
    assert repr(found) == f"<Folder {str(folder)!r}: 7 rows, 2 columns, 4 row groups>"
    assert pickle.loads(pickle.dumps(found)) == found
    assert len(pickle.dumps(found)) < 1000


def test_a_relative_path_becomes_absolute(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    opened = Folder.open(folder.name)
    monkeypatch.chdir("/")
    assert opened == Folder.open(folder)
    assert opened.read(["n"])["n"].to_pylist() == list(range(7))


def test_one_file_is_a_folder_of_one(folder):
    found = Folder.open(folder / "c/a.parquet")
    assert found.groups == (RowGroup("a.parquet", 0, 2),)
    assert found.read()["t"].to_pylist() == ["z", None]


def test_some_columns_of_some_row_groups_in_the_order_asked_for(folder):
    found = Folder.open(folder)
    assert found.read().to_pydict() == {"n": list(range(7)), "t": ["x", "y", "x", None, "y", "z", None]}
    assert found.read(groups=np.array([3, 0])).to_pydict() == {"n": [5, 6, 0, 1], "t": ["z", None, "x", "y"]}
    assert found.read(columns=["t"], groups=[2]).to_pydict() == {"t": ["y"]}
    assert found.read(columns=["t", "n"]).column_names == ["t", "n"]
    nothing = found.read(groups=[])
    assert nothing.num_rows == 0
    assert nothing.schema == found.read().schema


def test_pieces_of_row_groups(folder):
    write(folder / "d.parquet", {"n": np.arange(7, 17), "t": list("abcdefghij")})
    found = Folder.open(folder)
    pieces = list(found.batches(4, ["n"]))
    assert [len(piece) for piece in pieces] == [2, 2, 1, 2, 4, 4, 2]
    assert pa.concat_tables(pieces) == found.read(["n"])


def test_what_is_no_data_is_left_out(folder):
    for name in ("_metadata.parquet", ".hidden.parquet", "_temporary/part.parquet", "c/.tmp/x.parquet"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"no Parquet")
    (folder / "notes.txt").write_text("no data")
    assert len(Folder.open(folder)) == 7


def test_files_may_have_columns_in_another_order(tmp_path):
    write(tmp_path / "1.parquet", {"a": [1], "b": [2.0]})
    write(tmp_path / "2.parquet", {"b": [4.0], "a": [3]})
    assert Folder.open(tmp_path).read().to_pydict() == {"a": [1, 3], "b": [2.0, 4.0]}


def test_a_column_whose_name_begins_another(tmp_path):
    write(tmp_path / "1.parquet", {"a": [1], "a.b": [2]})
    found = Folder.open(tmp_path)
    assert found.read(["a"]).to_pydict() == {"a": [1]}
    assert found.read(["a.b", "a"]).to_pydict() == {"a.b": [2], "a": [1]}


@pytest.mark.parametrize("write_index", [pd.RangeIndex(2), [7, 3], pd.Index([7, 3], name="row")], ids=str)
def test_an_index_of_pandas_is_no_column(tmp_path, write_index):
    frame = pd.DataFrame({"a": [1.5, 2.5]}, index=write_index)
    frame.to_parquet(tmp_path / "1.parquet")
    found = Folder.open(tmp_path)
    assert found.columns == ("a",)
    assert found.read().column_names == ["a"]


def test_dictionaries_of_row_groups_are_one(tmp_path):
    """More categories in all than one byte counts, though each file has few."""
    for number in range(3):
        values = [f"{number} {k}" for k in range(100)]
        write(tmp_path / f"{number}.parquet", pd.DataFrame({"c": pd.Categorical(values)}).pipe(pa.Table.from_pandas))
    column = Folder.open(tmp_path).read()["c"]
    assert pa.types.is_dictionary(column.type)
    assert len({tuple(chunk.dictionary.to_pylist()) for chunk in column.chunks}) == 1
    assert column.to_pylist() == [f"{number} {k}" for number in range(3) for k in range(100)]


def test_text_and_categories_of_several_libraries(tmp_path):
    pd.DataFrame({"t": ["a", None], "c": pd.Categorical(["x", "y"])}).to_parquet(tmp_path / "1.parquet")
    frame = pl.DataFrame({"t": ["b", "c"], "c": pl.Series(["y", None], dtype=pl.Categorical)})
    frame.write_parquet(tmp_path / "2.parquet")
    write(tmp_path / "3.parquet", {"t": ["d"], "c": pa.array(["z"]).dictionary_encode()})
    frame = pl.DataFrame({"t": ["e"], "c": pl.Series(["x"], dtype=pl.Enum(["y", "x"]))})
    frame.write_parquet(tmp_path / "4.parquet")
    found = Folder.open(tmp_path).read().to_pydict()
    assert found == {"t": ["a", None, "b", "c", "d", "e"], "c": ["x", "y", "y", None, "z", "x"]}


def test_a_file_with_nothing_but_gaps_in_a_column(tmp_path):
    """As pandas and Dask write the empty and the odd partition."""
    write(tmp_path / "0.parquet", {"n": pa.nulls(1), "c": pa.nulls(1)})
    write(tmp_path / "1.parquet", {"n": [1.5], "c": pa.array(["x"]).dictionary_encode()})
    write(tmp_path / "2.parquet", {"n": pa.nulls(2), "c": pa.nulls(2)})
    found = Folder.open(tmp_path)
    assert found.read().to_pydict() == {"n": [None, 1.5, None, None], "c": [None, "x", None, None]}
    assert found.read().schema == found.read(groups=[1]).schema
    write(tmp_path / "3.parquet", {"n": ["text"], "c": pa.nulls(1)})
    with error("column 'n' is large_string in '3.parquet' and double in '1.parquet'; all files need"):
        Folder.open(tmp_path)


# -- bad folders ---------------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there(tmp_path):
    with error("there is no folder and no file 'nowhere/train'; give a folder of Parquet files", FileNotFoundError):
        Folder.open("nowhere/train")


def test_a_folder_without_parquet_files(tmp_path):
    (tmp_path / "a.csv").write_text("a,b")
    with error(f"the folder {str(tmp_path)!r} has no Parquet file; names of files end with .parquet"):
        Folder.open(tmp_path)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"n": [1]}, "'d.parquet' has no column 't', which 'b.parquet' has; all files need the same columns"),
        (
            {"n": [1], "t": ["x"], "u": [1]},
            "'d.parquet' has a column 'u', which 'b.parquet' has not; all files need the same columns",
        ),
        (
            {"n": [1.5], "t": ["x"]},
            "column 'n' is double in 'd.parquet' and int64 in 'b.parquet'; all files need the same types",
        ),
        (
            {"n": [1], "t": pa.array(["x"]).dictionary_encode()},
            "column 't' is dictionary<values=large_string, indices=int32, ordered=0> in 'd.parquet' and large_string",
        ),
    ],
)
def test_files_that_differ(folder, other, message):
    write(folder / "d.parquet", other)
    with error(message):
        Folder.open(folder)


def test_two_columns_of_one_name(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), tmp_path / "1.parquet")
    with error("two columns of '1.parquet' have the same name, 'a'; give each its own"):
        Folder.open(tmp_path)


def test_columns_in_names_of_folders(tmp_path):
    write(tmp_path / "year=2024/1.parquet", {"a": [1]})
    with error(f"the sub-folder 'year=2024' of {str(tmp_path)!r} has a column in its name, and those are not read"):
        Folder.open(tmp_path)


def test_files_that_are_broken_from_the_start(folder):
    for content in (b"", b"no Parquet file at all", (folder / "b.parquet").read_bytes()[:-10]):
        (folder / "d.parquet").write_bytes(content)
        with error(f"{str(folder / 'd.parquet')!r} cannot be read as a Parquet file: "):
            Folder.open(folder)


def test_a_file_that_is_broken_in_its_middle(tmp_path):
    rng = np.random.default_rng(0)
    write(tmp_path / "1.parquet", {"a": rng.normal(size=5000)})
    found = Folder.open(tmp_path)
    content = bytearray((tmp_path / "1.parquet").read_bytes())
    content[4:20_000] = bytes(19_996)
    (tmp_path / "1.parquet").write_bytes(content)
    for reading in (found.read, lambda: list(found.batches(100))):
        with error(f"{str(tmp_path / '1.parquet')!r} cannot be read as a Parquet file: "):
            reading()


def test_files_that_change_after_the_folder_was_opened(folder):
    found = Folder.open(folder)
    write(folder / "b.parquet", {"n": [0, 1], "t": ["x", "y"]})
    with error(f"{str(folder / 'b.parquet')!r} is another file than when the folder was opened; open it again"):
        found.read()
    assert found.read(["n"], groups=[3])["n"].to_pylist() == [5, 6]
    (folder / "b.parquet").unlink()
    with error(f"{str(folder / 'b.parquet')!r} is no longer there", FileNotFoundError):
        found.read()


def test_columns_and_row_groups_that_are_not_there(folder):
    found = Folder.open(folder)
    with error(f"the folder {str(folder)!r} has no column 'm'; it has 'n', 't'"):
        found.read(["m"])
    with error("columns is 'n'; give a list of names: columns=['n']", TypeError):
        found.read("n")
    for place in (4, -1):
        with error(f"there is no row group {place}; <Folder ", IndexError):
            found.read(groups=[place])


def test_without_pyarrow(folder, monkeypatch):
    own = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("pyarrow"):
            raise ImportError(f"no module {name}")
        return own(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with error("folders of Parquet files need pyarrow; install it with: pip install 'cstc[dask]'", ImportError):
        Folder.open(folder)
