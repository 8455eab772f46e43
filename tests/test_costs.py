"""Bills: items with prices, features that require them, and the errors of those who write prices by hand."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference
from builders import N_FEATURES, PROPERTY, random_costs, seeds
from cstc import CostModel
from cstc.costs import ResolvedCosts, as_cost_model

TURNEY = CostModel(
    {"age": 1.0, "blood draw": 2.10, "glucose": 15.51, "insulin": 20.68},
    requires={"glucose": ["blood draw"], "insulin": ["blood draw"]},
)


# -- three ways to give prices ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prices", [[1.0, 5.0, 20.0], (1, 5, 20), np.array([1, 5, 20])])
def test_an_array_prices_features_by_position(prices):
    costs = CostModel(prices)
    assert costs.by_position
    assert costs.price_of([0, 2, 2]) == 21.0
    resolved = costs.resolve(["a", "b", "c"])
    assert resolved.item_names == ["a", "b", "c"]
    np.testing.assert_array_equal(resolved.prices, [1, 5, 20])
    np.testing.assert_array_equal(resolved.feature_items, np.eye(3, dtype=bool))
    assert resolved.full_cost == 26.0
    assert resolved.evaluation == 0.0


def test_a_mapping_prices_features_by_name_in_any_order():
    resolved = CostModel({"b": 5, "a": 1}, evaluation=1).resolve(["a", "b"])
    np.testing.assert_array_equal(resolved.feature_prices, [1, 5])
    assert resolved.evaluation == 1.0


@pytest.mark.parametrize(
    "header", ["feature,cost", "name,price", "item,cost", " feature , cost ,remark", "cost,feature"]
)
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
def test_csv_headers(tmp_path, header, mark):
    columns = [column.strip() for column in header.split(",")]
    row = ",".join({"cost": " 2.5 ", "price": "2.5", "remark": "x"}.get(column, " age ") for column in columns)
    path = tmp_path / "prices.csv"
    path.write_text(f"{mark}{header}\n{row}\n\n", encoding="utf-8")
    assert CostModel.from_csv(path).prices == {"age": 2.5}


def test_csv_with_requirements_and_evaluation(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text(
        "feature,cost,requires\ndraw,2.1,\nglucose,15.51,draw\ninsulin,20.68, draw ;\nratio,,glucose;insulin\n"
    )
    costs = CostModel.from_csv(path, evaluation=0.5)
    assert costs.price_of(["ratio"]) == pytest.approx(38.29)
    assert costs.evaluation == 0.5
    assert as_cost_model(path, 2).prices == as_cost_model(str(path), 2).prices == costs.prices


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("feature,cost\na,1\nb,cheap\n", "line 3: the price of 'b' is 'cheap'; a price must be a number"),
        ("feature,cost\na,-1\n", "line 2: the price of 'a' is -1.0; a price must be finite and 0 or more"),
        ("feature,cost\na,nan\n", "line 2: the price of 'a' is nan"),
        ("feature,cost\na,inf\n", "line 2: the price of 'a' is inf"),
        ("feature,cost\na,17,61\n", "line 2: more fields than the 2 of the header"),
        ("feature,cost\na,1\nb,2\na,1\n", "line 4: 'a' appears twice"),
        ("feature,cost\na,1\n ,2\n", "line 3: the name is empty"),
        ("feature,cost\na,\n", "line 2: 'a' has neither a price nor items that it requires; write a price (0 is free)"),
        ("name,price,requires\na,1,draw\n", "line 2: 'a' requires 'draw', which has no price; add a line for 'draw'"),
        ("feature,cost\na\n", "line 2: 'a' has neither a price nor items that it requires"),
        ("feature|cost\na|1\n", "the header is ['feature|cost']; it needs a column 'feature' and a column 'cost'"),
        ("", "the header is []; it needs a column 'feature' and a column 'cost'"),
    ],
)
def test_csv_errors_name_file_and_line(tmp_path, text, message):
    path = tmp_path / "prices.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        CostModel.from_csv(path)
    assert str(error.value).startswith(str(path))


def test_csv_as_spreadsheets_save_it(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text('# what things cost\n"# shared, items",,,\n\ncolumn,price,requires\na,1,draw\ndraw,2.5,\n,,\n')
    assert CostModel.from_csv(path) == CostModel({"a": 1.0, "draw": 2.5}, {"a": ["draw"]})
    path.write_text('#;;\ncolumn;price;requires\na;1,25;"draw;b"\nb;0;\ndraw;2,5;\n')
    assert CostModel.from_csv(path) == CostModel({"a": 1.25, "b": 0.0, "draw": 2.5}, {"a": ["draw", "b"]})
    path.write_text("# one\n# two\ncolumn,price\na,1\nb,many\n")
    with pytest.raises(ValueError, match="line 5: the price of 'b' is 'many'"):
        CostModel.from_csv(path)
    path.write_bytes("column,price\nGröße,1\n".encode("cp1252"))
    with pytest.raises(ValueError, match="line 2: this is no text in UTF-8"):
        CostModel.from_csv(path)


def test_csv_without_the_line_of_a_target(tmp_path):
    path = tmp_path / "prices.csv"
    path.write_text("column,price\na,1\ntarget,\n")
    assert CostModel.from_csv(path, without=["target"]).prices == {"a": 1.0}
    path.write_text("column,price\na,1\ntarget,\ntarget,\n")
    with pytest.raises(ValueError, match="line 4: 'target' appears twice"):
        CostModel.from_csv(path, without=["target"])


def test_what_an_estimator_takes_as_costs():
    assert as_cost_model(None, 3).prices == (1.0, 1.0, 1.0)
    assert as_cost_model([1, 2], 2).prices == (1.0, 2.0)
    assert as_cost_model({"a": 1}, 1).prices == {"a": 1.0}
    assert as_cost_model(TURNEY, 3) is TURNEY


# -- bills -------------------------------------------------------------------------------------------------------


def test_blood_draw_is_paid_once():
    """Turney: glucose costs 17.61 alone and 15.51 once blood was drawn for insulin."""
    glucose, insulin, both = (TURNEY.price_of(f) for f in (["glucose"], ["insulin"], ["glucose", "insulin"]))
    assert glucose == pytest.approx(17.61)
    assert both - insulin == pytest.approx(15.51)
    resolved = TURNEY.resolve(["insulin", "glucose", "age"])
    assert resolved.item_names == ["age", "blood draw", "glucose", "insulin"]
    np.testing.assert_array_equal(resolved.feature_items.astype(int), [[0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 0]])
    np.testing.assert_allclose(resolved.feature_prices, [22.78, 17.61, 1.0])
    assert resolved.full_cost == pytest.approx(39.29)


def test_one_call_returns_ten_features():
    names = [f"weather {j}" for j in range(10)]
    costs = CostModel({"call": 3.0}, requires={name: ["call"] for name in names})
    assert costs.price_of(names[:1]) == costs.price_of(names) == 3.0
    resolved = costs.resolve(names)
    assert resolved.n_items == 1
    assert resolved.feature_items.all()
    assert resolved.full_cost == 3.0


def test_derived_feature_costs_what_it_is_computed_from():
    """FTI is computed from TT4 and T4U: free once both are there."""
    costs = CostModel({"TT4": 14.51, "T4U": 11.41}, requires={"FTI": ["TT4", "T4U"]})
    assert costs.price_of(["FTI"]) == pytest.approx(25.92)
    assert costs.price_of(["FTI", "TT4", "T4U"]) == pytest.approx(25.92)
    resolved = costs.resolve(["TT4", "FTI"])
    np.testing.assert_array_equal(resolved.feature_items, [[True, False], [True, True]])


def test_requirements_are_transitive():
    costs = CostModel(
        {"visit": 1, "draw": 2, "glucose": 4}, {"index": ["glucose"], "glucose": ["draw"], "draw": ["visit"]}
    )
    assert costs.price_of(["index"]) == 7.0
    assert costs.price_of(["draw"]) == 3.0


@pytest.mark.parametrize(
    ("requires", "circle"),
    [({"a": ["a"]}, "a -> a"), ({"a": ["b"], "b": ["c"], "c": ["b"]}, "b -> c -> b")],
)
def test_requirements_in_a_circle(requires, circle):
    with pytest.raises(ValueError, match=f"requires goes in a circle: {circle}$"):
        CostModel({"a": 1, "b": 1, "c": 1}, requires)


def test_two_ways_to_one_item_are_no_circle():
    costs = CostModel({"d": 1}, {"a": ["b", "c"], "b": ["d"], "c": ["d"]})
    assert costs.price_of(["a"]) == 1.0


# -- errors ------------------------------------------------------------------------------------------------------


def test_wrong_length():
    with pytest.raises(ValueError, match=r"^costs has 518 entries, X has 519 features$"):
        CostModel(np.ones(518)).resolve([f"x{j}" for j in range(519)])


@pytest.mark.parametrize("price", [-1, float("nan"), float("inf"), "cheap", None, [1.0]], ids=str)
@pytest.mark.parametrize("make", [lambda p: [1, p], lambda p: {"b": 1, "feature 1": p}], ids=["array", "mapping"])
def test_bad_prices(make, price):
    with pytest.raises(ValueError, match=r"the price of 'feature 1' is .*; a price must be .* 0 or more"):
        CostModel(make(price))


@pytest.mark.parametrize("evaluation", [-1, float("nan"), "free"])
def test_bad_evaluation_cost(evaluation):
    with pytest.raises(ValueError, match="the price of 'evaluation' is"):
        CostModel([1], evaluation=evaluation)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"a": 1}, {"a": ["draw"]}), "'a' requires 'draw', which has no price; known items: 'a'"),
        (({"a": 1}, {"b": []}), "requires['b'] is empty; name at least one item, or give 'b' a price"),
        (({"a": 1}, {"b": "a"}), "requires['b'] is the text 'a'; give a list of names: ['a']"),
        (([1, 2], {"a": ["b"]}), "requires= needs prices by name: pass prices as a mapping {name: price}"),
        (([[1, 2]],), "prices has shape (1, 2); give one price per feature"),
        ((3,), "prices has shape (); give one price per feature"),
    ],
)
def test_bad_models(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        CostModel(*arguments)


def test_unknown_names():
    with pytest.raises(
        ValueError, match=r"no price and no required items for 'weight'; costs knows 'age', 'blood draw'"
    ):
        TURNEY.resolve(["age", "glucose", "insulin", "weight"])
    with pytest.raises(ValueError, match=r"costs names 'insulin', which is neither a column of X nor required by one"):
        TURNEY.resolve(["age", "glucose"])
    with pytest.raises(ValueError, match="unknown item or feature 'weight'; known: 'age'"):
        TURNEY.price_of(["weight"])


def test_long_lists_of_names_are_shortened():
    with pytest.raises(ValueError, match=r"'x7' and 12 more; costs knows 'a'$"):
        CostModel({"a": 1}).resolve([f"x{j}" for j in range(20)])


@pytest.mark.parametrize("column", [3, -1, "age"])
def test_unknown_columns(column):
    with pytest.raises(ValueError, match=f"no price for '{column}'; prices go by column number, 0 to 2"):
        CostModel([1, 2, 3]).price_of([0, column])


# -- identities --------------------------------------------------------------------------------------------------


@st.composite
def bills(draw):
    """A cost model without circles (a name requires later names only), and two sets of its features."""
    names = [f"f{j}" for j in range(draw(st.integers(1, 7)))]
    prices = {name: draw(st.floats(0, 1e3)) for name in names}
    requires = {name: draw(st.sets(st.sampled_from(names[j:]))) - {name} for j, name in enumerate(names)}
    costs = CostModel(prices, {name: sorted(items) for name, items in requires.items() if items})
    features = st.sets(st.sampled_from(names))
    return costs, draw(features), draw(features)


def brute_force(costs, features):
    """Grow the set of items until nothing is added."""
    items = set(features)
    while True:
        more = items.union(*(costs.requires.get(item, ()) for item in items))
        if more == items:
            return sum(costs.prices[item] for item in items)
        items = more


@PROPERTY
@given(bills())
def test_price_of_is_monotone_subadditive_and_exact(drawn):
    costs, some, others = drawn
    price, other, both = costs.price_of(some), costs.price_of(others), costs.price_of(some | others)
    assert price == pytest.approx(brute_force(costs, some))
    assert both == pytest.approx(brute_force(costs, some | others))
    rounding = 1e-9 * (1 + both)
    assert max(price, other) - rounding <= both <= price + other + rounding
    assert costs.price_of([]) == 0.0


@PROPERTY
@given(bills())
def test_resolved_bills_are_the_same_bills(drawn):
    costs, some, _ = drawn
    names = sorted(costs.prices)
    resolved = costs.resolve(names)
    at = [names.index(name) for name in some]
    assert resolved.prices[resolved.feature_items[at].any(axis=0)].sum() == pytest.approx(costs.price_of(some))
    assert resolved.full_cost == pytest.approx(costs.price_of(names))
    np.testing.assert_allclose(resolved.feature_prices, [costs.price_of([name]) for name in names])


# -- rows pay ---------------------------------------------------------------------------------------------------


@PROPERTY
@given(seeds)
def test_rows_are_charged_for_each_item_and_each_learner(seed):
    rng = np.random.default_rng(seed)
    costs = random_costs(rng, n_items=int(rng.integers(1, 9)), evaluation=float(rng.choice([0.0, 0.7])))
    items, n_learners = rng.random((6, costs.n_items)) < 0.5, rng.integers(0, 5, 6)
    expected = [
        sum(costs.prices[r] for r in range(costs.n_items) if row[r]) + costs.evaluation * n
        for row, n in zip(items, n_learners, strict=True)
    ]
    np.testing.assert_allclose(costs.charge(items, n_learners), expected, rtol=1e-12)
    np.testing.assert_allclose(costs.charge(items, 3), costs.charge(items) + 3 * costs.evaluation, rtol=1e-12)
    np.testing.assert_array_equal(costs.charge(items), costs.bills(items))


@PROPERTY
@given(seeds)
def test_items_of_columns_and_columns_at_hand_against_plain_enumeration(seed):
    rng = np.random.default_rng(seed)
    costs = random_costs(rng)
    columns = np.flatnonzero(rng.random(N_FEATURES) < 0.4)
    items = costs.items_of(columns)
    assert set(np.flatnonzero(items)) == reference.items_of(columns, costs.feature_items)
    np.testing.assert_array_equal(costs.items_of(columns.tolist()), items)
    paid = items | (rng.random(costs.n_items) < 0.2)
    there = set(np.flatnonzero(paid))
    expected = [j for j in range(N_FEATURES) if reference.items_of({j}, costs.feature_items) <= there]
    assert costs.at_hand(paid).tolist() == expected
    assert set(columns) <= set(expected)


def test_a_shared_item_brings_columns_that_nobody_asked_for():
    resolved = TURNEY.resolve(["insulin", "glucose", "age"])
    assert resolved.items_of([]).tolist() == [False] * 4
    assert resolved.at_hand(resolved.items_of([])).tolist() == []
    assert resolved.at_hand(resolved.items_of([0])).tolist() == [0]  # blood alone is not glucose
    free = CostModel({"call": 3.0}, requires={"a": ["call"], "b": ["call"]}).resolve(["a", "b"])
    assert free.at_hand(free.items_of([0])).tolist() == [0, 1]  # one call brings both


def test_features_that_share_an_item_divide_its_price():
    costs = CostModel(
        {"call": 6.0, "a": 1.0, "idle": 5.0}, {"a": ["call"], "b": ["call"], "c": ["call"], "d": ["idle", "call"]}
    )
    resolved = costs.resolve(["a", "b", "c", "d"])
    np.testing.assert_allclose(resolved.divided_prices, [2.5, 1.5, 1.5, 6.5])
    assert resolved.divided_prices.sum() == resolved.full_cost
    # the median of what is not free
    assert resolved.typical_price == 2.0
    assert resolved.unit_of_weight(0.8) == pytest.approx(0.8 / 2.0)
    unused = ResolvedCosts(["a", "b"], np.array([1.0, 2.0]), np.array([[True, False]]))
    assert unused.divided_prices.tolist() == [1.0]  # an item that no column requires is divided among none


# -- to the cent ------------------------------------------------------------------------------------------------


@PROPERTY
@given(st.lists(st.integers(0, 99_999), min_size=1, max_size=12), st.randoms())
def test_bills_in_cents_are_the_numbers_that_a_user_would_type(cents, random):
    resolved = CostModel([cent / 100 for cent in cents]).resolve([f"x{j}" for j in range(len(cents))])
    items = [r for r in range(len(cents)) if random.random() < 0.6]
    random.shuffle(items)
    typed = float(f"{sum(cents[r] for r in items) // 100}.{sum(cents[r] for r in items) % 100:02d}")
    assert resolved.bill(items) == typed
    table = np.isin(np.arange(len(cents)), items)[None, :]
    assert resolved.bills(table)[0] == typed
    assert CostModel([cent / 100 for cent in cents]).price_of(items) == typed


@pytest.mark.parametrize("prices", [[np.pi, 0.1, np.e, 1 / 3], [1e100, 0.1, 2.0, 3.0], [2.0**53, 1.0, 1.0, 0.5]])
def test_other_bills_do_not_depend_on_the_order(prices):
    resolved = CostModel(prices).resolve(list("abcd"))
    assert resolved.decimal is None
    rows = np.random.default_rng(0).random((50, 4)) < 0.5
    bills = resolved.bills(rows)
    for row, bill in zip(rows, bills, strict=True):
        items = np.flatnonzero(row).tolist()
        assert bill == resolved.bill(items) == resolved.bill(items[::-1]) == pytest.approx(np.dot(row, prices))


def test_nothing_is_for_nothing():
    resolved = CostModel([]).resolve([])
    assert resolved.bill([]) == 0.0
    np.testing.assert_array_equal(resolved.bills(np.zeros((3, 0), dtype=bool)), [0, 0, 0])


@pytest.mark.filterwarnings("error")
def test_prices_of_a_forged_file_overflow_nothing():
    resolved = ResolvedCosts(["a", "b"], np.array([1.7e308, 0.1]), np.eye(2, dtype=bool))
    assert resolved.decimal is None
    assert resolved.bill([1]) == 0.1


def test_what_is_left_to_pay_is_of_some_columns_and_without_what_is_paid():
    costs = CostModel({"a": 1.0, "b": 2.0, "draw": 5.0, "c": 4.0}, {"a": ["draw"], "b": ["draw"]})
    resolved = costs.resolve(["a", "b", "c"])
    paid = np.array([name in ("draw", "c") for name in resolved.item_names])
    left = resolved.left_to_pay(paid, np.array([1, 2]))
    assert left.feature_prices.tolist() == [2.0, 0.0]  # b without the draw, and c
    assert left.at_hand(paid).tolist() == [1]
    assert resolved.feature_prices.tolist() == [6.0, 7.0, 4.0]  # what it was made from stays
