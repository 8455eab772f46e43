"""What is known of one row: the values as they were told, and those that came along and are not bought yet.

Every value is encoded as the number that the model computes with before anything else happens with it, and that number
is filled into the walk of the row.  What cannot be encoded is a fault of who gave it.  What training did not see is
taken as missing, with a warning, or is a fault in strict mode.

Features are column numbers here; nothing is known of prices.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Mapping, Sequence
from typing import Any

from ..model.unseen import OnceEach
from .compiled import CompiledTree, Fault
from .sources.extractors import describe
from .walk.choice import Walk

__all__ = ["BadKnownError", "Values", "pairs"]


class BadKnownError(ValueError):
    """A value that was given as known cannot be used."""


class Values:
    """The values of one row.

    Parameters
    ----------
    compiled : CompiledTree
        Encodes values.
    walk : Walk
        Takes their numbers.
    strict : bool
        Whether what training did not see is a fault.
    once : OnceEach or None
        Warns of what training did not see; all rows of a predictor share one.

    Attributes
    ----------
    known : dict
        The values that the answer may rest on, as they were told.
    held : dict
        Values that came along unasked.  They are put aside until the path needs them, and bought then.
    unseen : dict of str or None
        What is to be said of values that training did not see; None if there is nothing to be said.
    """

    __slots__ = ("_are_numbers", "_compiled", "_once", "_strict", "_walk", "held", "known", "unseen")

    def __init__(self, compiled: CompiledTree, walk: Walk, strict: bool, once: OnceEach | None) -> None:
        self._compiled = compiled
        self._walk: Any = walk
        self._strict = strict
        self._once = once
        self._are_numbers = False  # whether what is known is given as the numbers that the model computes with
        self.known: dict[int, Any] = {}
        self.held: dict[int, Any] = {}
        self.unseen: dict[str, None] | None = None

    def move_to(self, compiled: CompiledTree, walk: Walk) -> None:
        """From now on another model computes with these values, on another walk."""
        self._compiled, self._walk = compiled, walk
        for f, value in self.numbers().items():
            walk.fill(f, value)

    def numbers(self) -> dict[int, float]:
        """What is known, as the model computes with it."""
        if self._are_numbers:
            return self.known
        return {f: self._compiled.encode(f, raw) for f, raw in self.known.items()}

    # -- taking in ---------------------------------------------------------------------------------------------

    def know(self, known: Mapping[str, Any]) -> None:
        """Take in what is known from the start, by name."""
        for name, raw in pairs("known", known):
            try:
                self.take_in(self._compiled.feature(name), raw)
            except Fault as fault:
                raise BadKnownError(f"known: {fault}") from None
        if self.unseen is not None:
            self.warn_of_unseen()

    def take_in(self, feature: int, raw: Any) -> None:
        """A value is known now; `Fault` if it cannot be used."""
        value = self.encode(feature, raw)
        self.known[feature] = raw
        self._walk.fill(feature, value)
        if value != value:
            self._notice(feature, raw)

    def receive(self, asked: tuple[int, ...], got: dict[int, Any]) -> dict[int, str] | None:
        """Take in what was asked for, and put aside what came along; `got` belongs to the values then.

        If a value cannot be used, nothing is changed and the reasons are returned.
        """
        compiled, known, walk = self._compiled, self.known, self._walk
        further = len(got) > len(asked)
        moved = compiled.is_native and walk.fill_floats(asked, got, known, compiled.float_kinds, True)
        if not moved:
            try:
                encoded = [self.encode(f, got[f]) for f in asked]
            except Exception:
                return self._reasons(asked, got)
            for f, value in zip(asked, encoded, strict=True):
                known[f] = got[f]
                walk.fill(f, value)
                if value != value:
                    self._notice(f, got[f])
        if further:
            alone = moved and len(known) == len(asked)  # nothing else was known, so all that is left is new
            came = got if alone else {f: raw for f, raw in got.items() if f not in known}
            if self.held:
                self.held.update(came)
            else:
                self.held = came
        return None

    def receive_without(self, bad: Mapping[int, str], asked: Iterable[int], got: Mapping[int, Any]) -> None:
        """The same, where some values cannot be used."""
        for f in asked:
            if f not in bad:
                self.take_in(f, got[f])
        for f, raw in got.items():
            if f not in bad and f not in self.known:
                self.held[f] = raw

    def receive_numbers(self, asked: Iterable[int], values: Sequence[float]) -> None:
        """Take in what was asked for, of the numbers of all features in order."""
        self._are_numbers = True
        for f in asked:
            self.known[f] = values[f]
            self._walk.fill(f, values[f])

    def accept_held(self, features: Iterable[int]) -> dict[int, str]:
        """Take in values that came along earlier; the reasons of those that cannot be used."""
        bad = {}
        for f in features:
            try:
                self.take_in(f, self.held.pop(f))
            except Exception as error:
                bad[f] = _why(error)
        return bad

    def take_over(self, earlier: Values) -> None:
        """All that is known, and was put aside, of the same row on another tree with the same columns."""
        self.held = dict(earlier.held)
        for f, raw in earlier.known.items():
            self.take_in(f, raw)

    # -- what can be used --------------------------------------------------------------------------------------

    def encode(self, feature: int, raw: Any) -> float:
        """The number of a value; `Fault` if it cannot be used."""
        value = self._compiled.encode(feature, raw)
        if value != value and self._strict:
            reason = self._compiled.unseen(feature, raw)
            if reason is not None:
                raise Fault(reason)
        return value

    def _reasons(self, asked: Iterable[int], got: Mapping[int, Any]) -> dict[int, str]:
        bad = {}
        for f in asked:
            try:
                self.encode(f, got[f])
            except Exception as error:
                bad[f] = _why(error)
        return bad

    def _notice(self, feature: int, raw: Any) -> None:
        """A value was taken as missing; the warning comes later, when the session is at rest."""
        reason = self._compiled.unseen(feature, raw)
        if reason is not None:
            self.unseen = {} if self.unseen is None else self.unseen
            self.unseen[reason] = None

    def warn_of_unseen(self) -> None:
        """One warning for what nobody was warned of yet."""
        if self._once is None:
            self._once = OnceEach()
        self._once(self.unseen or ())


def pairs(what: str, values: Any) -> ItemsView[str, Any]:
    """The entries of a mapping, or of what has them in the same way, such as a pandas Series."""
    items = getattr(values, "items", None)
    if not callable(items) or isinstance(values, type):
        raise TypeError(
            f"{what} is a {type(values).__name__}; it must be a mapping of feature names to values: {{'age': 61.0}}"
        )
    return items()


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, Fault) else describe(error)
