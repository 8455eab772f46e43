"""Extractors: functions that fetch features, and what a predictor must know about them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .compiled import CompiledTree, Fault, bits, shorten

__all__ = ["Extractor", "Source", "bind", "describe", "extractor"]

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
        self.timeout, self.retries, self.batch, self.instant = timeout, retries, batch, instant
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

    def _check(self) -> None:
        if not self.provides:
            raise ValueError(f"{self.name}: provides is empty; name at least one feature")
        circle = sorted(set(self.provides) & set(self.needs))
        if circle:
            raise ValueError(f"{self.name}: {shorten(circle)} is both provided and needed")
        if self.timeout is not None and not 0 < float(self.timeout) < math.inf:
            raise ValueError(f"{self.name}: timeout is {self.timeout!r}; it must be seconds above 0, or None")
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

    The function takes the row as the caller names it (an id, a key, anything) and returns a mapping from feature names
    to values, a sequence in the order of `provides`, or, if it provides one feature, the value.  It is called at
    most once for a row: what it returns beyond what the path wanted is kept, and bought only when the path comes to
    need it.  A function with a further parameter ``features`` is told the names that are wanted now, need return no
    others, and may be called again for others later.  It may be ``async``.

    Parameters
    ----------
    provides : list of str
        The features that it fetches.
    needs : list of str, optional
        Features that it is computed from.  They are fetched first, and the function gets their values as a mapping
        in its parameter ``inputs``.  In the cost model the provided features must require their items.
    items : list of str, optional
        Items that every call buys, whatever was asked for.  By default a call buys the items that the cost model lists
        for the features it was asked for, and always at least these.
    timeout : float, optional
        Seconds after which a call has failed; as long is waited for a free thread.
    retries : int, default=0
        How often a failed call is repeated.  Its items are bought once.
    batch : bool or int, default=False
        The function takes a list of rows (a number: at most so many), and returns a sequence with one result for each
        row, or a mapping from feature names to sequences.  An exception in the place of a row's result is a failure of
        this row alone.
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
        kind = result.__class__
        expected = asked if self.takes_features else self.provided
        if (kind is float or kind is int) and len(expected) == 1:
            return {expected[0]: result}
        if kind is dict or isinstance(result, Mapping):
            got = {f: result[name] for f, name in self.pairs if name in result}
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
        if inspect.isawaitable(result):
            getattr(result, "close", lambda: None)()
            raise Fault("returned a coroutine; declare the function with async def")
        if len(expected) != 1:
            raise Fault(f"returned a {type(result).__name__}; {len(expected)} values are expected")
        return {expected[0]: result}

    def rows_of(self, result: Any, n_rows: int) -> list[Any]:
        """One result for each row of a batch."""
        if isinstance(result, Mapping):
            columns = {}
            for _, name in self.pairs:
                if name in result:
                    column = result[name]
                    if isinstance(column, str | bytes) or not hasattr(column, "__len__") or len(column) != n_rows:
                        raise Fault(f"returned {name!r} without one value for each of {n_rows} rows")
                    columns[name] = list(column)
            return [{name: column[i] for name, column in columns.items()} for i in range(n_rows)]
        if isinstance(result, str | bytes) or not hasattr(result, "__len__") or not hasattr(result, "__getitem__"):
            raise Fault(f"returned a {type(result).__name__}; one result for each of {n_rows} rows is expected")
        if len(result) != n_rows:
            raise Fault(f"returned {len(result)} results; {n_rows} rows were asked for")
        return [result[i] for i in range(n_rows)]


def describe(error: BaseException | None) -> str:
    """An exception in one line."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def bind(
    extractors: Iterable[Extractor], compiled: CompiledTree, given: Iterable[str] = ()
) -> tuple[list[Source | None], list[int]]:
    """For each feature its source, and the items that asking for it buys; errors name what does not fit together."""
    by_caller = {compiled.feature(name) for name in _as_list("given", given)}
    sources: list[Source | None] = [None] * len(compiled.feature_names)
    names: set[str] = set()
    for declared in extractors:
        if not isinstance(declared, Extractor):
            raise TypeError(f"{declared!r} is no extractor; declare it with @extractor(provides=[...])")
        if declared.name in names:
            raise ValueError(f"two extractors are called {declared.name!r}; give one of them another name=")
        names.add(declared.name)
        try:
            source = Source(declared, compiled.feature)
        except ValueError as error:
            raise ValueError(f"extractor {declared.name}: {error}") from None
        for f in source.provided:
            other = sources[f]
            if other is not None:
                raise ValueError(
                    f"{compiled.feature_names[f]!r} is provided by two extractors, {other.name} and {source.name}"
                )
            sources[f] = source
    _check_coverage(sources, by_caller, compiled)
    charges = [_charge(f, sources, compiled, []) for f in range(len(sources))]
    return sources, charges


def _as_list(what: str, names: Iterable[str]) -> list[str]:
    if isinstance(names, str):
        raise ValueError(f"{what} is the text {names!r}; give a list of names: [{names!r}]")
    return list(names)


def _check_coverage(sources: list[Source | None], by_caller: set[int], compiled: CompiledTree) -> None:
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


def _charge(feature: int, sources: list[Source | None], compiled: CompiledTree, on_the_way: list[int]) -> int:
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
