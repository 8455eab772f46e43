"""Extractors: functions that fetch features, and what a predictor must know about them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Any

import numpy as np

from ...costs import shorten
from ..compiled import CompiledTree, Fault, bits
from ..mixture import CompiledMixture

__all__ = ["Charges", "Extractor", "Source", "as_seconds", "bind", "check_extractors", "describe", "extractor"]

CHARGES_KEPT = 256
QUICK = 1e-4  # seconds: sources that answer within this are called in the caller's thread, if they have no time limit


class Extractor:
    """A function that fetches features; made by `extractor`, and still callable as the function that it was."""

    def __init__(
        self,
        function: Callable,
        *,
        provides: Sequence[str],
        needs: Sequence[str] = (),
        items: Sequence[str] | None = None,
        timeout: float | None = None,
        retries: int = 0,
        batch: bool | int = False,
        instant: bool = False,
        name: str | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(f"an extractor is made from a function; this is a {type(function).__name__}")
        self.function = function
        self.name = name or getattr(function, "__name__", None) or type(function).__name__
        self.provides = self._names("provides", provides)
        self.needs = self._names("needs", needs)
        self.items = None if items is None else self._names("items", items)
        self.timeout = None if timeout is None else self._check_timeout(timeout)
        self.retries, self.batch, self.instant = retries, batch, instant
        self.is_async = _is_async(function)
        self._check()
        self._look_at_parameters()
        self.__name__ = self.name
        self.__doc__ = getattr(function, "__doc__", None)
        self.__wrapped__ = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<extractor {self.name}: {', '.join(self.provides)}>"

    def _names(self, what: str, names: Any) -> tuple[str, ...]:
        if isinstance(names, str):
            raise ValueError(f"{self.name}: {what} is the text {names!r}; give a list of names: [{names!r}]")
        found = tuple(str(name) for name in names)
        if len(set(found)) < len(found):
            raise ValueError(f"{self.name}: {what} names a feature twice: {shorten(found)}")
        return found

    def _check_timeout(self, timeout: Any) -> float:
        seconds = as_seconds(timeout)
        if not 0 < seconds < math.inf:
            raise ValueError(f"{self.name}: timeout is {timeout!r}; it must be seconds above 0, or None")
        return seconds

    def _check(self) -> None:
        if not self.provides:
            raise ValueError(f"{self.name}: provides is empty; name at least one feature")
        circle = sorted(set(self.provides) & set(self.needs))
        if circle:
            raise ValueError(f"{self.name}: {shorten(circle)} is both provided and needed")
        if isinstance(self.retries, bool) or not isinstance(self.retries, int) or self.retries < 0:
            raise ValueError(f"{self.name}: retries is {self.retries!r}; it must be a whole number, 0 or more")
        if not isinstance(self.batch, bool | int) or self.batch < 0:
            raise ValueError(f"{self.name}: batch is {self.batch!r}; it must be True, False or the most rows of a call")
        if self.instant and (self.timeout is not None or self.is_async):
            raise ValueError(
                f"{self.name}: instant=True calls a function in the caller's own thread, where it cannot be "
                "interrupted; leave timeout out and give a plain function, or leave instant out"
            )

    def _look_at_parameters(self) -> None:
        try:
            parameters = list(inspect.signature(self.function).parameters)[1:]
        except (TypeError, ValueError):  # some callables of C extensions do not tell
            parameters = []
        self.takes_features = "features" in parameters
        self.takes_inputs = "inputs" in parameters
        if self.needs and not self.takes_inputs:
            raise ValueError(
                f"{self.name}: needs names {shorten(self.needs)}, but the function has no second parameter `inputs` "
                f"to take their values: def {self.name}(row, inputs)"
            )
        if self.takes_inputs and not self.needs:
            raise ValueError(
                f"{self.name}: the function takes `inputs`, but needs is empty; name their features in needs"
            )


def as_seconds(value: Any) -> float:
    """A number of seconds; NaN, which no comparison lets pass, if it is none."""
    if isinstance(value, bool | str | bytes):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def extractor(
    *,
    provides: Sequence[str],
    needs: Sequence[str] = (),
    items: Sequence[str] | None = None,
    timeout: float | None = None,
    retries: int = 0,
    batch: bool | int = False,
    instant: bool = False,
    name: str | None = None,
) -> Callable[[Callable], Extractor]:
    """Declare a function as a source of features.

    The function takes the row as the caller names it (an id, a key, anything) and returns values by feature names (a
    mapping, a pandas Series, a row of a database, a named tuple), a sequence in the order of `provides`, or, if it
    provides one feature, the value.  It is called at most once for a row: what it returns beyond what the path wanted
    is kept, and bought only when the path comes to need it.  A function with a further parameter ``features`` is told
    the names that are wanted now, need return no others, and may be called again for others later.  It may be
    ``async``.

    Parameters
    ----------
    provides : list of str
        The features that it fetches.
    needs : list of str, optional
        Features that it is computed from.  They are fetched first, and the function gets their values as a mapping
        in its parameter ``inputs``.  In the cost model the provided features must require their items.  An input that
        is known brings in no items: what the call itself buys as well stands in `items`.
    items : list of str, optional
        Items that every call buys, whatever was asked for.  By default a call buys the items that the cost model lists
        for the features it was asked for, and always at least these.
    timeout : float, optional
        Seconds after which a call has failed; as long is waited for a free thread.
    retries : int, default=0
        How often a failed call is repeated.  Its items are bought once.
    batch : bool or int, default=False
        The function takes a list of rows (a number: at most so many), and returns a sequence with one result for each
        row, or columns by feature names: a mapping to sequences, or a data frame.  An exception in the place of a
        row's result is a failure of this row alone.
    instant : bool, default=False
        The function answers from memory: call it in the caller's own thread, without a time limit.
    name : str, optional
        What the trail and the counters call it; the function's name by default.

    Examples
    --------
    >>> from cstc.serving import extractor
    >>> @extractor(provides=["s1", "s2", "s3"], timeout=2.0)
    ... def lab(row_id):
    ...     return {"s1": 157.0, "s2": 93.2, "s3": 38.0}
    >>> lab
    <extractor lab: s1, s2, s3>
    """

    def declare(function: Callable) -> Extractor:
        return Extractor(
            function,
            provides=provides,
            needs=needs,
            items=items,
            timeout=timeout,
            retries=retries,
            batch=batch,
            instant=instant,
            name=name,
        )

    return declare


class Source:
    """An extractor bound to the columns of one model."""

    __slots__ = (
        "batch",
        "extractor",
        "function",
        "instant",
        "is_async",
        "name",
        "needs",
        "pairs",
        "provided",
        "quick",
        "retries",
        "simple",
        "takes_features",
        "takes_inputs",
        "timeout",
        "untimed",
        "usual",
    )

    def __init__(self, extractor: Extractor, column: Callable[[str], int]) -> None:
        self.extractor = extractor
        self.function = extractor.function
        self.name = extractor.name
        self.provided = tuple(column(name) for name in extractor.provides)
        self.pairs = tuple(zip(self.provided, extractor.provides, strict=True))
        self.needs = tuple(column(name) for name in extractor.needs)
        self.timeout = extractor.timeout
        self.retries = extractor.retries
        self.batch = extractor.batch
        self.instant = extractor.instant
        self.is_async = extractor.is_async
        self.takes_features = extractor.takes_features
        self.takes_inputs = extractor.takes_inputs
        plain = not (self.batch or self.takes_features or self.takes_inputs)
        self.simple = plain and self.instant
        self.untimed = plain and not self.is_async and self.timeout is None
        self.usual = 0.0  # seconds of a call, as far as is known
        self.quick = False

    def clock(self, seconds: float) -> None:
        """Learn how long a call takes: one that takes no longer than starting a thread is not worth one."""
        usual = self.usual or seconds
        self.usual = usual + 0.2 * (seconds - usual)  # one slow call is enough to be no longer quick
        self.quick = self.untimed and self.usual < QUICK

    def unpack(self, result: Any, asked: tuple[int, ...]) -> dict[int, Any]:
        """The values in one row's result; `Fault` if they are not what was asked for."""
        try:
            return self._unpack(result, asked)
        except Fault:
            raise
        except Exception as error:  # a lazy row that cannot be read, say: the source's fault, and not the caller's
            raise Fault(describe(error)) from error

    def _unpack(self, result: Any, asked: tuple[int, ...]) -> dict[int, Any]:
        kind = result.__class__
        expected = asked if self.takes_features else self.provided
        if (kind is float or kind is int) and len(expected) == 1:
            return {expected[0]: result}
        if kind is dict:
            try:
                return {f: result[name] for f, name in self.pairs}
            except KeyError:  # something is not there, and perhaps was not asked for
                named = result
        else:
            named = self._by_name(result)
        if named is not None:
            if _is_table(result):
                raise Fault(f"returned a {kind.__name__} for one row; return a mapping of names to values")
            got = {f: named[name] for f, name in self.pairs if name in named}
            for f in asked:
                if f not in got:
                    missing = [name for f, name in self.pairs if f in asked and f not in got]
                    raise Fault(f"returned no {shorten(missing)}")
            return got
        if isinstance(result, list | tuple) or (isinstance(result, np.ndarray) and result.ndim == 1):
            if len(result) != len(expected):
                raise Fault(f"returned {len(result)} values; {len(expected)} are expected")
            return dict(zip(expected, result, strict=True))
        if isinstance(result, BaseException):
            raise Fault(describe(result))
        _refuse_coroutine(result)
        if len(expected) != 1:
            raise Fault(f"returned a {type(result).__name__}; {len(expected)} values are expected")
        return {expected[0]: result}

    def rows_of(self, result: Any, n_rows: int) -> list[Any]:
        """One result for each row of a batch."""
        try:
            return self._rows_of(result, n_rows)
        except Fault:
            raise
        except Exception as error:
            raise Fault(describe(error)) from error

    def _rows_of(self, result: Any, n_rows: int) -> list[Any]:
        named = self._by_name(result)
        if named is not None:
            columns = {name: _column(name, named[name], n_rows) for _, name in self.pairs if name in named}
            return [{name: column[i] for name, column in columns.items()} for i in range(n_rows)]
        _refuse_coroutine(result)
        if not _is_sequence(result):
            raise Fault(f"returned a {type(result).__name__}; one result for each of {n_rows} rows is expected")
        if len(result) != n_rows:
            raise Fault(f"returned {len(result)} results; {n_rows} rows were asked for")
        return _in_order(result, n_rows)

    def _by_name(self, result: Any) -> Mapping[str, Any] | None:
        """A result that says itself which value is which; None if it goes by position.

        Beside mappings these are known by what they can do, so that no library must be there: rows of databases and
        pandas objects have `keys`, tables of polars `columns`, named tuples `_fields`.
        """
        kind = result.__class__
        if kind in _BY_POSITION or isinstance(result, np.ndarray | type):
            return None
        if isinstance(result, Mapping):
            return result
        if hasattr(kind, "_fields"):
            named = dict(zip(result._fields, result, strict=True))
            return named if any(name in named for _, name in self.pairs) else None
        table = _is_table(result)
        if not hasattr(kind, "__getitem__") or not (table or hasattr(kind, "keys")):
            return None
        there = set(result.columns if table else result.keys())
        found = {name: result[name] for _, name in self.pairs if name in there}
        return found if found or table else None


_BY_POSITION = (list, tuple, float, int, str, bytes, bool, type(None))


def _refuse_coroutine(result: Any) -> None:
    if inspect.isawaitable(result):
        getattr(result, "close", lambda: None)()
        raise Fault("returned a coroutine; declare the function with async def")


def _is_table(result: Any) -> bool:
    """Whether this is a data frame, of whatever library."""
    return hasattr(type(result), "columns") and not isinstance(result, Mapping)


def _is_sequence(values: Any) -> bool:
    """Whether values stand in an order, as many as one can count."""
    if isinstance(values, str | bytes | type | Mapping | Set) or getattr(values, "ndim", 1) == 0:
        return False
    return hasattr(values, "__len__") and (hasattr(values, "__getitem__") or isinstance(values, Collection))


def _column(name: str, values: Any, n_rows: int) -> list[Any]:
    """One feature of the rows of a batch."""
    if isinstance(values, Mapping | Set) or _is_table(values):
        # going through one would give its keys: wrong answers, and nobody would know
        raise Fault(f"returned {name!r} as a {type(values).__name__}; a list with one value for each row is expected")
    if not _is_sequence(values) or len(values) != n_rows:
        raise Fault(f"returned {name!r} without one value for each of {n_rows} rows")
    return _in_order(values, n_rows)


def _in_order(values: Any, n_rows: int) -> list[Any]:
    """By position: ``values[i]`` of a pandas Series is the value of the label i, wherever that stands."""
    found = list(islice(values, n_rows))
    if len(found) != n_rows:
        raise Fault(f"returned {len(found)} results; {n_rows} rows were asked for")
    return found


def describe(error: BaseException | None) -> str:
    """An exception in one line."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def bind(
    extractors: Iterable[Extractor], compiled: CompiledTree | CompiledMixture, given: Iterable[str] = ()
) -> tuple[list[Source | None], Charges]:
    """For each feature its source, and the items that asking for it buys; errors name what does not fit together."""
    by_caller = _columns_of("given", _as_list("given", given), compiled)
    sources: list[Source | None] = [None] * len(compiled.feature_names)
    for declared in check_extractors(extractors):
        try:
            source = Source(declared, compiled.feature)
            compiled.items_named(declared.items or ())
        except ValueError as error:
            raise ValueError(f"extractor {declared.name}: {error}") from None
        for f in source.provided:
            sources[f] = source
    _check_coverage(sources, by_caller, compiled)
    return sources, Charges(sources, compiled)


def check_extractors(extractors: Iterable[Extractor]) -> list[Extractor]:
    """The extractors as a list; errors say which is none, or takes the name or a feature of another."""
    if isinstance(extractors, Extractor):
        raise TypeError(f"the extractors are {extractors!r} alone; give a list: [{extractors.name}]")
    found = list(extractors)
    names: set[str] = set()
    homes: dict[str, str] = {}
    for declared in found:
        if not isinstance(declared, Extractor):
            raise TypeError(f"{declared!r} is no extractor; declare it with @extractor(provides=[...])")
        if declared.name in names:
            raise ValueError(f"two extractors are called {declared.name!r}; give one of them another name=")
        names.add(declared.name)
        for feature in declared.provides:
            if feature in homes:
                raise ValueError(f"{feature!r} is provided by two extractors, {homes[feature]} and {declared.name}")
            homes[feature] = declared.name
    return found


def _columns_of(what: str, names: Iterable[str], compiled: CompiledTree | CompiledMixture) -> set[int]:
    try:
        return {compiled.feature(name) for name in names}
    except ValueError as error:
        raise ValueError(f"{what}= names an {error}") from None


def _as_list(what: str, names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise ValueError(f"{what} is the text {names!r}; give a list of names: [{names!r}]")
    return list(names)


def _check_coverage(
    sources: list[Source | None], by_caller: set[int], compiled: CompiledTree | CompiledMixture
) -> None:
    needed = set(compiled.features_needed)
    for source in sources:
        if source is not None:
            needed |= set(source.needs)
    lacking = [compiled.feature_names[f] for f in sorted(needed) if sources[f] is None and f not in by_caller]
    if lacking:
        raise ValueError(
            f"no extractor provides {shorten(lacking)}; write one, or name in given= what every call "
            "brings along as known"
        )


class Charges:
    """The items that asking for a feature buys; inputs that are at hand bring in none."""

    def __init__(self, sources: list[Source | None], compiled: CompiledTree | CompiledMixture) -> None:
        self._sources = sources
        self._compiled = compiled
        self._usual = [_charge(f, sources, compiled, []) for f in range(len(sources))]
        self._inputs = frozenset(f for source in sources if source is not None for f in source.needs)
        self._with_inputs: dict[frozenset[int], list[int]] = {}

    def __call__(self, known: Collection[int]) -> list[int]:
        """For each feature its items, as bits, if these features are known from the start."""
        if not known or not self._inputs:
            return self._usual
        at_hand = self._inputs.intersection(known)
        if not at_hand:
            return self._usual
        charges = self._with_inputs.get(at_hand)
        if charges is None:
            if len(self._with_inputs) >= CHARGES_KEPT:
                self._with_inputs = {}
            charges = [self._charge(f, at_hand) for f in range(len(self._usual))]
            self._with_inputs[at_hand] = charges
        return charges

    def _charge(self, feature: int, at_hand: frozenset[int]) -> int:
        source = self._sources[feature]
        if source is None or not source.needs:
            return self._usual[feature]
        from_inputs = still_from_inputs = 0
        for other in source.needs:
            from_inputs |= self._usual[other]
            if other not in at_hand:
                still_from_inputs |= self._charge(other, at_hand)
        own = self._usual[feature] & ~from_inputs | self._compiled.items_named(source.extractor.items or ())
        return own | still_from_inputs


def _charge(
    feature: int, sources: list[Source | None], compiled: CompiledTree | CompiledMixture, on_the_way: list[int]
) -> int:
    """All items that asking for a feature buys: its own, those of its source's calls, and those of what it needs."""
    if feature in on_the_way:
        circle = [compiled.feature_names[f] for f in [*on_the_way[on_the_way.index(feature) :], feature]]
        raise ValueError(f"needs goes in a circle: {' -> '.join(circle)}")
    own = compiled.feature_items[feature]
    source = sources[feature]
    if source is None:
        return own
    if source.extractor.items is not None:
        own |= compiled.items_named(source.extractor.items)
    for other in source.needs:
        further = _charge(other, sources, compiled, [*on_the_way, feature])
        unlisted = [compiled.item_names[r] for r in bits(further & ~own) if compiled.prices[r] > 0]
        if unlisted:
            name, needed = compiled.feature_names[feature], compiled.feature_names[other]
            raise ValueError(
                f"{name!r} is computed from {needed!r}, which requires {shorten(unlisted)}, but the cost model "
                f"does not list that for {name!r}, so predict_cost would promise too little; use model.with_costs with "
                f"requires={{{name!r}: [{needed!r}, ...]}}"
            )
        own |= further
    return own
