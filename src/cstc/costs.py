"""What a prediction costs: items with prices, and which feature requires which items.

The paper charges ``c[alpha]`` once per input for every extracted feature.  Real bills have more
structure: one service call returns ten features, two lab values share one blood draw, a ratio is
computed from two other features.  All of it is one idea: a feature *requires* a set of **items**, each
item has a price and is paid once per input.  The paper is the case of one item per feature.
"""

from __future__ import annotations

import csv
import difflib
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["CostModel", "ResolvedCosts", "as_cost_model", "counted", "is_number", "price_lines"]
__all__ += ["meant", "shorten", "span"]


MOST_EXPENSIVE = 1e100
BY_NAME = "the columns of an array are named 'x0', 'x1', ..."
MOST_DIGITS = 9  # behind the point, of a price that is a decimal number


def _check_price(name: object, price: Any) -> float:
    """A price is a finite number, zero or more; anything else is named in the error."""
    try:
        value = float(price)
    except (TypeError, ValueError):
        raise ValueError(f"the price of {name!r} is {price!r}; a price must be a number, 0 or more") from None
    if not np.isfinite(value) or value < 0:
        raise ValueError(f"the price of {name!r} is {value}; a price must be finite and 0 or more")
    if value > MOST_EXPENSIVE:
        raise ValueError(f"the price of {name!r} is {value}; a bill of such prices overflows: take a larger unit")
    return value


@dataclass(frozen=True)
class ResolvedCosts:
    """A cost model bound to the columns of one matrix: plain arrays, the form all code computes with.

    Attributes
    ----------
    item_names : list of str
        One name per item.
    prices : ndarray of shape (n_items,)
        ``c`` in the paper.
    feature_items : bool ndarray of shape (n_features, n_items)
        Which items a feature requires.
    evaluation : float
        ``e_t``: the price of evaluating one weak learner.
    """

    item_names: list[str]
    prices: np.ndarray
    feature_items: np.ndarray
    evaluation: float = 0.0

    def __repr__(self) -> str:
        n_features, n_items = self.feature_items.shape
        what = f"{counted(n_features, 'feature')}, {counted(n_items, 'item')}"
        return f"<ResolvedCosts: {what}{_told(self.prices, self.evaluation)}>"

    @property
    def n_items(self) -> int:
        return len(self.prices)

    @property
    def full_cost(self) -> float:
        """Price of all features together, each item paid once."""
        return self.bill(np.flatnonzero(self.feature_items.any(axis=0)))

    @cached_property
    def decimal(self) -> tuple[np.ndarray, float] | None:
        """Prices as whole numbers of a decimal unit, and that unit's number in 1; None if they are no short decimals.

        Sums of whole numbers are exact, so a bill in cents is the number that a user would type, in whatever order
        its items were bought.
        """
        if self.prices.max(initial=0.0) >= 2.0**53:
            return None
        for digits in range(MOST_DIGITS + 1):
            scale = 10.0**digits
            units = np.round(self.prices * scale)
            if np.array_equal(units / scale, self.prices):
                return (units, scale) if units.sum() < 2.0**53 else None
        return None

    def bill(self, items: Iterable[int]) -> float:
        """Price of some items, by their numbers."""
        if self.decimal is None:
            return math.fsum(self.prices[list(items)])  # rounded once: in every order the same
        units, scale = self.decimal
        return float(units[list(items)].sum() / scale)

    def bills(self, items: np.ndarray) -> np.ndarray:
        """Price of each row of a table of items, bool (n, n_items); the same numbers as `bill` gives."""
        if self.decimal is not None:
            units, scale = self.decimal
            return (items @ units) / scale
        sets, which = np.unique(np.packbits(items, axis=1), axis=0, return_inverse=True)
        members = np.unpackbits(sets, axis=1, count=self.n_items)
        return np.array([self.bill(np.flatnonzero(row)) for row in members], dtype=float)[which.ravel()]

    def charge(self, items: np.ndarray, n_learners: np.ndarray | int = 0) -> np.ndarray:
        """What each row pays for its items, bool (n, n_items), and for the weak learners that it evaluates."""
        return self.bills(items) + self.evaluation * n_learners

    def items_of(self, columns: np.ndarray | Sequence[int]) -> np.ndarray:
        """Bool (n_items,): all that some columns require together."""
        return self.feature_items[np.asarray(columns, dtype=int)].any(axis=0)

    def at_hand(self, items: np.ndarray) -> np.ndarray:
        """The columns that can be had when the items, bool (n_items,), are paid for."""
        return np.flatnonzero(~(self.feature_items & ~items).any(axis=1))

    def left_to_pay(self, paid: np.ndarray, columns: np.ndarray) -> ResolvedCosts:
        """The bill of some columns alone, for those who have paid some items (bool)."""
        return replace(self, prices=np.where(paid, 0.0, self.prices), feature_items=self.feature_items[columns])

    @property
    def feature_prices(self) -> np.ndarray:
        """Price of each feature if it alone is bought."""
        return self.feature_items @ self.prices

    @property
    def divided_prices(self) -> np.ndarray:
        """Price of each feature when the features that require an item divide its price among them."""
        return self.feature_items @ (self.prices / np.maximum(self.feature_items.sum(axis=0), 1))

    @property
    def typical_price(self) -> float:
        """The median of what is not free; 0 if all is."""
        prices = self.divided_prices
        return float(np.median(prices[prices > 0])) if (prices > 0).any() else 0.0

    def unit_of_weight(self, risk: float) -> float:
        """The cost weight at which a typical feature would cost all of `risk`; 0 if nothing has a price."""
        return risk / self.typical_price if self.typical_price else 0.0


@dataclass(frozen=True)
class CostModel:
    """Items with prices, and the items that each feature requires.

    A feature requires the item of its own name, if there is one, and all that `requires` lists for it;
    what those require in turn is required too.  Each item is paid once per input.

    Parameters
    ----------
    prices : mapping of str to float, mapping of int to float, or sequence of float
        Price of each item.  A plain sequence is the paper's case: one item per feature, by position.  A mapping from
        numbers, or a pandas Series whose index has them, is the same case by column number: every column needs a price.
        Where the columns of a table have whole numbers as names (``0`` in pandas, ``"0"`` in polars), a number means
        the column of that name, wherever it stands; otherwise it means the position, from 0 on.
    requires : mapping of str to sequence of str, optional
        For a feature or an item, the further items that it needs.
    evaluation : float, default=0.0
        Price of evaluating one weak learner (``e_t``; 1 in the paper, whose prices are in that unit).

    Examples
    --------
    Turney's shared blood draw: glucose costs 17.61 alone, 15.51 once blood was drawn for insulin.

    >>> from cstc import CostModel
    >>> costs = CostModel(
    ...     prices={"age": 1.0, "blood draw": 2.10, "glucose": 15.51, "insulin": 20.68},
    ...     requires={"glucose": ["blood draw"], "insulin": ["blood draw"]},
    ... )
    >>> costs.price_of(["glucose"]), costs.price_of(["glucose", "insulin"])
    (17.61, 38.29)
    >>> costs
    <CostModel: 4 items, prices 1 to 20.68, 2 names with requirements>
    >>> CostModel({0: 1.0, 1: 5.0, 2: 20.0}).price_of([0, 2])
    21.0
    """

    prices: Any
    requires: Mapping[str, Sequence[str]] = field(default_factory=dict)
    evaluation: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "evaluation", _check_price("evaluation", self.evaluation))
        given = _as_mapping(self.prices)
        prices: Any
        requires: dict[str, tuple[str, ...]] = {}
        if isinstance(given, Mapping) and _are_numbers([*given, *(self.requires or {})]):
            if self.requires:
                raise ValueError(f"requires= needs prices by name, and these go by number; {BY_NAME}")
            prices = {int(number): _check_price(f"column {number}", price) for number, price in given.items()}
        elif isinstance(given, Mapping):
            prices = {str(name): _check_price(name, price) for name, price in given.items()}
            requires = {str(name): _as_names(name, items) for name, items in dict(self.requires or {}).items()}
            for name, items in requires.items():
                for item in items:
                    if item not in prices and item not in requires:
                        raise ValueError(
                            f"{name!r} requires {item!r}, which has no price{meant(item, prices)}; "
                            f"known items: {shorten(prices)}"
                        )
        else:
            if self.requires:
                raise ValueError("requires= needs prices by name: pass prices as a mapping {name: price}")
            values = np.asarray(given, dtype=object)
            if values.ndim != 1:
                raise ValueError(
                    f"prices has shape {values.shape}; give one price per feature, or a mapping {{name: price}}"
                )
            prices = tuple(_check_price(f"feature {j}", price) for j, price in enumerate(values))
        object.__setattr__(self, "prices", prices)
        object.__setattr__(self, "requires", requires)
        for name in requires:
            self._items_of(name)  # a circle among the requirements is found here, not in the first fit

    def __repr__(self) -> str:
        items = list(self.prices.values()) if isinstance(self.prices, dict) else list(self.prices)
        named = not self.by_position and not self.by_number
        what = counted(len(items), "item" if named else "feature") + (" by number" if self.by_number else "")
        more = f", {counted(len(self.requires), 'name')} with requirements" if self.requires else ""
        return f"<CostModel: {what}{_told(items, self.evaluation, more)}>"

    @property
    def by_position(self) -> bool:
        """Whether prices are given as a plain sequence, one for each column."""
        return not isinstance(self.prices, dict)

    @property
    def by_number(self) -> bool:
        """Whether prices are given as a mapping from column numbers."""
        return isinstance(self.prices, dict) and _are_numbers(self.prices)

    @classmethod
    def from_csv(cls, path: str | Path, *, evaluation: float = 0.0, without: Iterable[str] = ()) -> CostModel:
        """Read prices from a CSV file with a header.

        Columns: ``feature`` (or ``column``, ``name``, ``item``), ``cost`` (or ``price``) and, optionally,
        ``requires``: names separated by semicolons.  A line may also price an item that is no feature,
        such as a blood draw.  Other columns are ignored, and so are lines above the header that begin with ``#``.
        Fields are separated by commas, or by semicolons or tabs, where 2,10 is a price, too.

        Parameters
        ----------
        path : path
        evaluation : float, default=0.0
            As in the constructor.
        without : iterable of str, optional
            Names whose lines are left out, such as that of a target.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "prices.csv"
        >>> _ = path.write_text("feature,cost,requires\\nTT4,14.51,\\nT4U,11.41,\\nFTI,,TT4;T4U\\n")
        >>> CostModel.from_csv(path).price_of(["FTI", "TT4"])
        25.92
        """
        path, left_out = Path(path), set(without)
        prices: dict[str, float] = {}
        requires: dict[str, list[str]] = {}
        seen: set[str] = set()
        places: dict[str, str] = {}
        for where, name, price, items in price_lines(path):
            if name in seen:
                raise ValueError(f"{where}: {name!r} appears twice")
            seen.add(name)
            if name in left_out:
                continue
            if not price and not items:
                raise ValueError(
                    f"{where}: {name!r} has neither a price nor items that it requires; write a price (0 is free) or "
                    "an item, or take the line away if nobody learns from it"
                )
            if price:
                try:
                    prices[name] = _check_price(name, price)
                except ValueError as error:
                    raise ValueError(f"{where}: {error}") from None
            if items:
                requires[name], places[name] = items, where
        for name, items in requires.items():
            for item in items:
                if item not in prices and item not in requires:
                    raise ValueError(
                        f"{places[name]}: {name!r} requires {item!r}, which has no price{meant(item, prices)}; add a "
                        f"line for {item!r} with its price"
                    )
        return cls(prices, requires, evaluation)

    def price_of(self, features: Iterable[str | int]) -> float:
        """Price of a set of features bought together, each item paid once."""
        if self.by_position or self.by_number:
            columns = set(features)
            unknown = columns.difference(self.prices if self.by_number else range(len(self.prices)))
            if unknown:
                known = f": {shorten(self.prices)}" if self.by_number else f", 0 to {len(self.prices) - 1}"
                raise ValueError(f"no price for {shorten(map(str, unknown))}; prices go by column number{known}")
            return _sum([self.prices[j] for j in columns])
        items = set().union(*(self._items_of(str(name)) for name in features), set())
        return _sum([self.prices[item] for item in items])

    def resolve(self, feature_names: Sequence[str], numbers: Sequence[int] | None = None) -> ResolvedCosts:
        """Bind the model to columns.

        Parameters
        ----------
        feature_names : sequence of str
            In the order of the columns of X.
        numbers : sequence of int, optional
            The own names of the columns where these are numbers, for prices by number.
        """
        names = [str(name) for name in feature_names]
        if self.by_number:
            columns = self._columns_of(names, numbers)
            prices = np.array([self.prices[number] for number in columns], dtype=float)
            return ResolvedCosts(names, prices, np.eye(len(names), dtype=bool), self.evaluation)
        if self.by_position:
            if len(self.prices) != len(names):
                raise ValueError(f"costs has {len(self.prices)} entries, X has {len(names)} features")
            return ResolvedCosts(
                names, np.array(self.prices, dtype=float), np.eye(len(names), dtype=bool), self.evaluation
            )
        unpriced = [name for name in names if name not in self.prices and name not in self.requires]
        if unpriced:
            raise ValueError(
                f"no price and no required items for {shorten(unpriced)}; "
                f"costs knows {shorten(self._names())}"
            )
        items_of = [self._items_of(name) for name in names]
        used = set().union(*items_of, set())
        mentioned = set(names).union(*(self._all_required(name) for name in names))
        unknown = [name for name in self._names() if name not in mentioned]
        if unknown:
            raise ValueError(
                f"costs names {shorten(unknown)}, which is neither a column of X nor required by one; "
                f"columns: {shorten(names)}"
            )
        item_names = [item for item in self.prices if item in used]
        index = {item: r for r, item in enumerate(item_names)}
        feature_items = np.zeros((len(names), len(item_names)), dtype=bool)
        for j, items in enumerate(items_of):
            feature_items[j, [index[item] for item in items]] = True
        prices = np.array([self.prices[item] for item in item_names], dtype=float)
        return ResolvedCosts(item_names, prices, feature_items, self.evaluation)

    def _columns_of(self, names: list[str], numbers: Sequence[int] | None) -> list[int]:
        """The number of each column in a mapping from numbers: its own name if that is one, else its position."""
        if numbers is None and all(_is_whole(name) for name in names):
            numbers = [int(name) for name in names]
        columns = list(range(len(names))) if numbers is None else [int(number) for number in numbers]
        missing = [number for number in columns if number not in self.prices]
        unknown = [number for number in self.prices if number not in columns]
        if not missing and not unknown:
            return columns
        if numbers is None:
            there = f"X has columns 0 to {len(names) - 1}, and each needs a price"
        else:
            there = (
                f"the columns of X are named {shorten(columns)}, and a number in costs means the column of that name; "
                "for prices by position give a list"
            )
        if missing:
            raise ValueError(f"costs has no price for column {shorten(missing)}; {there}")
        raise ValueError(f"costs has a price for {shorten(unknown)}, which is no column of X; {there}")

    def _names(self) -> list[str]:
        return list(dict.fromkeys([*self.prices, *self.requires]))

    def _items_of(self, name: str) -> set[str]:
        """All items that `name` requires: its own, those listed for it, and theirs in turn."""
        return {item for item in self._all_required(name) if item in self.prices}

    def _all_required(self, name: str) -> set[str]:
        """`name`, all that it requires, and what those require in turn, priced or not."""
        seen: set[str] = set()
        on_the_way: list[str] = []

        def visit(current: str) -> None:
            if current in on_the_way:
                circle = [*on_the_way[on_the_way.index(current) :], current]
                raise ValueError(f"requires goes in a circle: {' -> '.join(circle)}")
            if current in seen:
                return
            seen.add(current)
            if current not in self.prices and current not in self.requires:
                raise ValueError(f"unknown item or feature {current!r}; known: {shorten(self._names())}")
            on_the_way.append(current)
            for item in self.requires.get(current, ()):
                visit(item)
            on_the_way.pop()

        visit(name)
        return seen


def price_lines(given: str | Path) -> Iterator[tuple[str, str, str, list[str]]]:
    """Of each line below the header: where it stands, its name, its price as text, and what it requires."""
    path = Path(given)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}, line {line}: this is no text in UTF-8; save the file as CSV in UTF-8") from None
    lines = list(io.StringIO(text, newline=""))
    told = [bool(line.strip()) and not line.lstrip().startswith(("#", '"#')) for line in lines]
    n_comments = told.index(True) if any(told) else len(lines)
    head = lines[n_comments] if any(told) else ""
    separator = next((mark for mark in (";", "\t") if head.count(mark) > head.count(",")), ",")
    reader = csv.reader(lines[n_comments:], delimiter=separator)
    header = [name.strip() for name in next(reader, [])]
    name_at = next((header.index(c) for c in ("feature", "column", "name", "item") if c in header), None)
    price_at = next((header.index(c) for c in ("cost", "price") if c in header), None)
    if name_at is None or price_at is None:
        raise ValueError(f"{path}: the header is {header}; it needs a column 'feature' and a column 'cost'")
    for row in reader:
        where = f"{path}, line {n_comments + reader.line_num}"
        if not any(cell.strip() for cell in row):  # as spreadsheets leave behind
            continue
        if len(row) > len(header):  # a price of 17,61 must not be read as 17
            raise ValueError(f"{where}: more fields than the {len(header)} of the header, {header}")
        cells = [cell.strip() for cell in row] + [""] * (len(header) - len(row))
        name, price = cells[name_at], cells[price_at]
        required = cells[header.index("requires")] if "requires" in header else ""
        if not name:
            raise ValueError(f"{where}: the name is empty")
        if separator != ",":
            price = price.replace(",", ".")
        yield where, name, price, [part.strip() for part in required.split(";") if part.strip()]


def _sum(prices: list[float]) -> float:
    everything = np.ones((1, len(prices)), dtype=bool)
    return ResolvedCosts([""] * len(prices), np.array(prices, dtype=float), everything).full_cost


def as_cost_model(costs: Any, n_features: int) -> CostModel:
    """What the `costs` parameter of an estimator may be: None, a CostModel, a mapping, a path, an array."""
    if costs is None:
        return CostModel(np.ones(n_features))
    if isinstance(costs, CostModel):
        return costs
    if isinstance(costs, str | Path):
        return CostModel.from_csv(costs)
    return CostModel(costs)


def _as_mapping(prices: Any) -> Any:
    """A pandas Series as the mapping that it is; anything else as it came."""
    if not hasattr(prices, "to_dict") or getattr(prices, "ndim", None) != 1:
        return prices
    found = prices.to_dict()
    if len(found) < len(prices):
        twice = prices.index[prices.index.duplicated()].tolist()[0]
        raise ValueError(f"prices has {twice!r} twice in its index; give each column one price")
    return found


def is_number(name: Any) -> bool:
    """Whether what stands for a column is its number rather than its name."""
    return isinstance(name, Integral) and type(name) is not bool


def _are_numbers(keys: Iterable[Any]) -> bool:
    """Whether prices go by number; a mix of numbers and names is refused."""
    keys = list(keys)
    numbers = [key for key in keys if is_number(key)]
    if numbers and len(numbers) < len(keys):
        name = next(key for key in keys if not is_number(key))
        raise ValueError(
            f"costs has the number {numbers[0]} and the name {name!r}; give all by number, such as "
            f"{{0: 1.0, 1: 5.0}}, or all by name; {BY_NAME}"
        )
    return bool(numbers)


def _is_whole(name: str) -> bool:
    """Whether a name is a whole number as one writes it: "7", but not "07" or "7.0"."""
    return name.removeprefix("-").isdecimal() and name == str(int(name))


def _as_names(name: str, items: Any) -> tuple[str, ...]:
    if isinstance(items, str):
        raise ValueError(f"requires[{name!r}] is the text {items!r}; give a list of names: [{items!r}]")
    names = tuple(str(item) for item in items)
    if not names:
        raise ValueError(f"requires[{name!r}] is empty; name at least one item, or give {name!r} a price")
    return names


def _told(prices: Sequence[float] | np.ndarray, evaluation: float, more: str = "") -> str:
    """Prices from the lowest to the highest and the price of a learner, for a repr."""
    text = f", prices {span(min(prices), max(prices))}" if len(prices) else ""
    return text + more + (f", evaluation {evaluation:.6g}" if evaluation else "")


def counted(number: int, noun: str) -> str:
    """A number of things: "1 item", "3 items"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def span(low: float, high: float, form: str = ".6g") -> str:
    """From one number to another, or the one that they both are."""
    low_text, high_text = format(low, form), format(high, form)
    return low_text if low_text == high_text else f"{low_text} to {high_text}"


def meant(name: str, names: Iterable[str]) -> str:
    """The name that was probably meant, for a message; nothing where none is near."""
    known = {str(each).casefold(): str(each) for each in names}
    near = difflib.get_close_matches(str(name).casefold(), list(known), n=1, cutoff=0.75)
    return f" (is {known[near[0]]!r} meant?)" if near else ""


def shorten(names: Iterable[object], most: int = 8) -> str:
    """The first names, for a message."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")
