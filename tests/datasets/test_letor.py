"""Readers of LETOR and Yahoo files: against scikit-learn's, fast against plain, and every fault by its line."""

import gzip
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from cstc import CostModel
from cstc.datasets import RankingData, load_letor, load_yahoo
from cstc.datasets import _svmlight as svmlight


def ranking_problem(n_queries=12, n_features=9, seed=0):
    rng = np.random.default_rng(seed)
    qid = np.repeat(rng.permutation(1000)[:n_queries], rng.integers(1, 9, n_queries))
    X = rng.normal(size=(len(qid), n_features)) * 10.0 ** rng.integers(-9, 9, n_features)
    X[rng.uniform(size=X.shape) < 0.4] = 0.0
    X[0, -1] = 1 / 3  # so that the last feature is in the file
    return X, rng.integers(0, 5, len(qid)), qid


@pytest.fixture
def write(tmp_path):
    def write_text(text, name="data.txt"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_text


# ---------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("chunk", [1 << 20, 200, 1])
def test_what_scikit_learn_wrote_comes_back_to_the_last_bit(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(svmlight, "CHUNK", chunk)
    X, y, qid = ranking_problem()
    path = tmp_path / "train.txt"
    dump_svmlight_file(X, y, str(path), zero_based=False, query_id=qid, comment="written by a test")
    data = load_letor(path)
    theirs, their_y, their_qid = load_svmlight_file(str(path), query_id=True, zero_based=False)
    np.testing.assert_array_equal(data.X, theirs.toarray())
    np.testing.assert_array_equal(data.y, their_y)
    np.testing.assert_array_equal(data.qid, their_qid)
    assert (data.X.dtype, data.y.dtype, data.qid.dtype) == (np.float64, np.int64, np.int64)
    assert data.costs is data.comments is data.feature_names is None
    assert data.feature_numbers.tolist() == list(range(1, 10))


def test_it_unpacks_as_x_y_qid_costs(write):
    data = load_letor(write("1 qid:2 1:3\n"))
    X, y, qid, costs = data
    assert isinstance(data, RankingData)
    assert X is data.X
    assert y is data.y
    assert qid is data.qid
    assert costs is None


def test_compressed_text_is_told_by_its_content(write):
    text = b"1 qid:2 1:3\n0 qid:2 2:4\n"
    for name in ("data.txt.gz", "data.txt"):
        np.testing.assert_array_equal(load_letor(write(gzip.compress(text), name)).X, [[3, 0], [0, 4]])


def test_blanks_comments_and_line_ends_do_not_matter(write):
    text = (
        "\ufeff# a header: with 1:2 in it\r\n\r\n"
        "  2\tqid:007   1:+1.5e0 \t 3:.5  # docid = A:1 # more\r\n"
        "   \n"
        "0 qid:7 2:-2.#docid = Ü\n"
        "3.0 qid:8\n"
        "1 qid:9 001:1e-400"
    )
    data = load_letor(write(text), comments=True)
    np.testing.assert_array_equal(data.X, [[1.5, 0, 0.5], [0, -2, 0], [0, 0, 0], [0, 0, 0]])
    assert data.y.tolist() == [2, 0, 3, 1]
    assert data.qid.tolist() == [7, 7, 8, 9]
    assert data.comments == ["docid = A:1 # more", "docid = Ü", "", ""]


def test_query_ids_are_read_as_whole_numbers(write):
    assert load_letor(write("0 qid:999999999999999999 1:1\n")).qid.tolist() == [999999999999999999]


def test_n_features_gives_parts_of_a_set_the_same_columns(write):
    data = load_letor(write("1 qid:2 1:3\n"), n_features=4)
    np.testing.assert_array_equal(data.X, [[3, 0, 0, 0]])


@pytest.mark.parametrize("wrong", ["3", 2.5, 0])
def test_n_features_is_a_whole_number(write, wrong):
    with pytest.raises(ValueError, match=f"n_features is {wrong!r}; it should be a whole number, 1 or more"):
        load_letor(write("1 qid:2 1:3\n"), n_features=wrong)


def test_single_precision(write):
    data = load_letor(write("1 qid:2 1:0.1\n"), dtype=np.float32)
    assert data.X.dtype == np.float32
    assert data.X[0, 0] == np.float32(0.1)
    with pytest.raises(ValueError, match="dtype is int64; features are read as float64 or float32"):
        load_letor(write("1 qid:2 1:0.1\n"), dtype=np.int64)


# ----------------------------------------------------------------------------------------------- prices


@pytest.mark.parametrize(
    "text",
    [
        "1\n5\n20.5\n",
        "1,5,20.5",
        "1,5,\n20.5,\n",
        "cost\n1\n5\n20.5\n",
        "index,feature,cost\n3,c,20.5\n1,a,1\n2,b,5\n",
    ],
)
def test_prices_beside_the_data(write, text):
    data = load_letor(write("1 qid:2 1:3 3:0\n"), costs=write(text, "prices"))
    assert isinstance(data.costs, CostModel)
    assert data.costs.prices == (1.0, 5.0, 20.5)
    assert data.feature_names == (["a", "b", "c"] if "feature" in text else None)
    assert data.X.shape == (1, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "prices: the file is empty"),
        ("1\n-5\n20\n", "prices, line 2: '-5' is no price"),
        ("1\n\nfive\n", "prices, line 3: 'five' is no price"),
        ("1\ninf\n3\n", "prices, line 2: 'inf' is no price"),
        ("1,,3\n", "prices, line 1: '' is no price"),
        ("1_0\n5\n20\n", "prices, line 1: '1_0' is no price"),
        ("1\n5\n", "line 1: feature 3 is out of range: the number of prices in .*prices says 1 to 2"),
        ("1\n5\n20\n50\n", "prices has 4 prices, but the last feature in .*data.txt is 3; .* pass n_features=4"),
        ("index,cost\n1,2\n1,3\n", "prices, line 3: feature 1 appears twice"),
        ("index,cost\n1,2\n99999999999,3\n", "feature 2 has no price, but feature 99999999999 has one"),
        ("index,cost\n1,2\n3,3\n", "prices: feature 2 has no price, but feature 3 has one"),
        ("index,cost\n0,2\n", "prices, line 2: the index is '0'"),
        ("index,cost\n1,2,3\n", "prices, line 2: 3 fields; the header has 2"),
        ("feature,cost\n", "the header is not followed by prices"),
        ("feature,cost,requires\na,1,b\n", "a column 'requires' needs features with names"),
        (b"\xff\xfe1\n", "not a text file with prices"),
    ],
)
def test_faults_in_prices_are_named(write, text, message):
    with pytest.raises(ValueError, match=message):
        load_letor(write("1 qid:2 1:3 3:1\n"), costs=write(text, "prices"))


def test_prices_and_n_features_must_agree(write):
    data, prices = write("1 qid:2 1:3\n"), write("1\n2\n3\n", "prices")
    assert load_letor(data, costs=prices, n_features=3).X.shape == (1, 3)
    with pytest.raises(ValueError, match="has 3 prices, n_features is 2"):
        load_letor(data, costs=prices, n_features=2)
    with pytest.raises(ValueError, match="n_features is 0"):
        load_letor(data, n_features=0)


# ----------------------------------------------------------------------------------------------- faults

FAULTS = [
    ("1 1:2", "the query id is missing: after the grade there should be qid:number, not '1:2'"),
    ("1", "the query id is missing"),
    ("qid:1 1:2", "the grade is 'qid:1', which is not a number"),
    ("nan qid:1 1:2", "the grade is 'nan'; it should be a finite number"),
    ("-1 qid:1 1:2", "the grade is '-1'; a grade is 0 or more"),
    ("0.5 qid:1 1:2", "the grade is '0.5'; a grade is a whole number"),
    ("1e300 qid:1 1:2", "a grade is a whole number"),
    ("1 qid: 1:2", "the query id is ''"),
    ("1 qid:a 1:2", "the query id is 'a'; it should be a whole number"),
    ("1 qid:1.5 1:2", "the query id is '1.5'"),
    ("1 qid:-1 1:2", "the query id is '-1'"),
    ("1 qid:1:1 1:2", "the query id is '1:1'"),
    ("1 qid:1234567890123456789 1:2", "at most 18 digits"),
    ("1 QID:1 1:2", "not 'QID:1'"),
    ("1 qid:1 qid:1 1:2", "'qid:1' should be number:value"),
    ("1 qid:1 2", "'2' should be number:value"),
    ("1 qid:1 1:", "'1:' should be number:value"),
    ("1 qid:1 1: 2", "'1:' should be number:value"),
    ("1 qid:1 :2", "':2' should be number:value"),
    ("1 qid:1 1:2:3", "feature 1 is '2:3', which is not a number"),
    ("1 qid:1 1:2,3", "feature 1 is '2,3', which is not a number"),
    ("1 qid:1 1:2-3", "feature 1 is '2-3', which is not a number"),
    ("1 qid:1 1:2-3 2:", "feature 1 is '2-3', which is not a number"),
    ("1 qid:1 1:0x10", "which is not a number"),
    ("1 qid:1 1:1_0", "which is not a number"),
    ("1 qid:1 1:1e", "which is not a number"),
    ("1 qid:1 1:nan", "feature 1 is 'nan'; it should be a finite number"),
    ("1 qid:1 1:-Infinity", "feature 1 is '-Infinity'; it should be a finite number"),
    ("1 qid:1 1:nan(7)", "which is not a number"),
    ("1 qid:1 1:1e999", "feature 1 is '1e999', which is too large for float64"),
    ("1 qid:1 0:1", "feature 0 is out of range: the first feature has the number 1"),
    ("1 qid:1 -1:1", "'-1:1' should be number:value"),
    ("1 qid:1 1.0:1", "'1.0:1' should be number:value"),
    ("1 qid:1 6:1", "feature 6 is out of range: n_features says 1 to 5"),
    ("1 qid:1 99999999999999999999:1", "feature 99999999999999999999 is out of range"),
    ("1 qid:1 1:1 1:1", "feature 1 appears twice"),
    ("1 qid:1 1:1 3:1 1:1", "feature 1 appears twice"),
    ("1 qid:1 3:1 2:1", "feature 2 stands after feature 3; the numbers should ascend"),
    ("1 qid:1 1:\x002", "which is not a number"),
    ("1 qid:1 1:2\x1c2:3", "which is not a number"),
    ("1 qid:1 1:²", "which is not a number"),
    ("1 qid:1 ²:1", "should be number:value"),
    ("1 qid:1 1:" + "7x" * 50, r"feature 1 is '(7x)+' ..., which is not a number"),
]


@pytest.mark.parametrize(("line", "message"), FAULTS)
@pytest.mark.parametrize("chunk", [1 << 20, 1])
def test_faults_are_named_by_file_and_line(write, monkeypatch, line, message, chunk):
    monkeypatch.setattr(svmlight, "CHUNK", chunk)
    path = write(f"# header\n1 qid:1 1:2 5:0\n\n{line}\n0 qid:1 1:1\n")
    with pytest.raises(
        ValueError, match=re.escape(f"{path}, line 4: ") + ".*" + (message if "+" in message else re.escape(message))
    ):
        load_letor(path, n_features=5)


def test_without_n_features_a_huge_feature_number_is_a_fault(write):
    path = write("1 qid:1 1:1\n1 qid:1 100001:1\n")
    with pytest.raises(ValueError, match=r"line 2: feature 100001 is out of range: more than 100000 .* n_features="):
        load_letor(path)
    assert load_letor(path, n_features=100001).X.shape == (2, 100001)


def test_too_large_for_single_precision(write):
    with pytest.raises(ValueError, match="line 1: feature 1 is '1e39', which is too large for float32"):
        load_letor(write("1 qid:1 1:1e39\n"), dtype=np.float32)


@pytest.mark.parametrize("chunk", [1 << 20, 1])
def test_a_query_that_comes_back_is_a_fault(write, monkeypatch, chunk):
    monkeypatch.setattr(svmlight, "CHUNK", chunk)
    path = write("".join(f"0 qid:{q} 1:1\n\n" for q in (5, 5, 3, 4, 5, 5, 3)))
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 9: query 5 comes back") + ".* on line 3"):
        load_letor(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),  # without the time of day: it is a part of the test's name
        (b"\n# a\n", "none of the 2 lines"),
    ],
)
def test_files_without_documents(write, text, message):
    with pytest.raises(ValueError, match=f"data.txt: {message}"):
        load_letor(write(text))


def test_files_that_are_no_text(write, monkeypatch, tmp_path):
    whole = gzip.compress(b"".join(b"0 qid:%d 1:%d\n" % (i, i * i) for i in range(1000)))
    with pytest.raises(ValueError, match="the compressed file is damaged somewhere after line 0"):
        load_letor(write(whole[:-20]))
    with pytest.raises(ValueError, match="the compressed file is damaged"):
        load_letor(write(whole[:500] + bytes(100) + whole[600:]))
    with pytest.raises(ValueError, match="line 1: the grade is"):
        load_letor(write(bytes(range(256)) * 10))
    monkeypatch.setattr(svmlight, "CHUNK", 10)
    monkeypatch.setattr(svmlight, "LONGEST_LINE", 100)
    with pytest.raises(ValueError, match="line 2: longer than 100 characters; is this a text file"):
        load_letor(write("0 qid:1\n" + "0" * 1000))
    with pytest.raises(FileNotFoundError):
        load_letor(tmp_path / "missing.txt")


# ---------------------------------------------------------------------------- the fast reader and the plain one

_token = st.one_of(
    st.from_regex(r"[0-4] qid:[1-3]( [1-3]:-?[0-9]\.[0-9]{1,3}(e-[0-9])?){0,2}", fullmatch=True),
    st.sampled_from(
        ["1", "qid:1", "1:2", "2:0.5", "3:nan", ":", "\t", "#", "\r", "-", "1:1e5", "x", "\x00", "1e", "_"]
    ),
)
_text = st.lists(st.lists(_token, max_size=4).map(" ".join), max_size=6).map(
    lambda lines: "\n".join([*lines, ""]).encode()
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_text)
@example(b"0 qid:1 1:2 3:4\n1 qid:1\n\n# a\n2 qid:3 2:-1e-3 # b\n")
def test_the_fast_reader_never_says_anything_else_than_the_plain_one(text):
    form = svmlight._Format("file", 3, "n_features", np.dtype(float), True)
    fast = svmlight._read_chunk(text, 10, form) if text else None
    try:
        plain = svmlight._read_lines(text, 10, form)
    except ValueError:
        plain = None
    if fast is not None:  # giving up is allowed, reading otherwise is not
        assert plain is not None
        for name in ("X", "y", "qid", "line"):
            np.testing.assert_array_equal(getattr(fast, name), getattr(plain, name))
        assert fast.comments == plain.comments
        assert fast.last_feature == plain.last_feature


def test_the_fast_reader_reads_what_is_in_order(tmp_path):
    X, y, qid = ranking_problem(seed=1)
    path = tmp_path / "train.txt"
    dump_svmlight_file(X, y, str(path), zero_based=False, query_id=qid)
    form = svmlight._Format(path, None, "n_features", np.dtype(float), False)
    fast = svmlight._read_chunk(path.read_bytes(), 0, form)
    assert fast is not None
    np.testing.assert_array_equal(fast.X, load_svmlight_file(str(path), zero_based=False)[0].toarray())
    np.testing.assert_allclose(fast.X, X, rtol=1e-14)


# ------------------------------------------------------------------------------------------------- Yahoo


@pytest.mark.parametrize(("unknown", "separator"), [("10000", "\n"), ("100000000", ",")])
def test_yahoo_drops_features_of_unknown_price_everywhere_alike(write, unknown, separator):
    known = [1, 4, 699]
    prices = write(separator.join("20" if j in known else unknown for j in range(1, 701)), "featurecost.csv")
    train = load_yahoo(write("4 qid:1 1:0.5 2:1 4:0.25\n0 qid:1 700:1\n", "set1.train.txt"), prices)
    test = load_yahoo(write("4 qid:3 3:1 699:0.75\n", "set1.test.txt"), prices)
    np.testing.assert_array_equal(train.X, [[0.5, 0.25, 0], [0, 0, 0]])
    np.testing.assert_array_equal(test.X, [[0, 0, 0.75]])
    assert train.feature_numbers.tolist() == test.feature_numbers.tolist() == known
    assert train.costs.prices == test.costs.prices == (20.0, 20.0, 20.0)


def test_yahoo_faults(write):
    data = write("4 qid:1 701:0.5\n", "set1.train.txt")
    with pytest.raises(ValueError, match="has 699 prices; Yahoo! LTRC has 700 features"):
        load_yahoo(data, write("1\n" * 699, "prices"))
    with pytest.raises(ValueError, match="every price is 10000 or more, which means unknown"):
        load_yahoo(data, write("10000\n" * 700, "prices"))
    with pytest.raises(ValueError, match="line 1: feature 701 is out of range: Yahoo! LTRC says 1 to 700"):
        load_yahoo(data, write("1\n" * 700, "prices"))
