"""What a request to the service may say: each field with its JSON Schema, and the check that goes with it.

The OpenAPI document is made of the schemas, the service reads bodies with the checks; both stand side by side here so
that they say the same.  What does not fit is `Refused`: a status, and a message that says what would be right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...costs import shorten
from ..compiled import CompiledTree, Fault
from ..mixture import CompiledMixture
from ..session import PREFETCHES

__all__ = ["Field", "Record", "Refused", "read_json", "records_for"]

LONGEST_TEXT = 1000  # signs of a reason or a category: what a session keeps must not grow without end


class Refused(Exception):
    """A request that is not served: the status, what was wrong, where, and what would be right."""

    def __init__(
        self, status: int, message: str, where: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.where = where
        self.headers = dict(headers or {})


# ------------------------------------------------------------------------------------------------ JSON


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON; a missing value is null")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {_clip(text)} is too large; the largest is about 1.8e308")
    return value


def _no_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in found if names.count(name) > 1)!r} stands twice in one object")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_no_repetition, parse_float=_finite, parse_constant=_no_constant)


def read_json(body: bytes | bytearray) -> Any:
    """The value of a body; `Refused` with status 400 if it is not JSON."""
    if not body:
        raise Refused(400, "the body is empty; send a JSON object")
    try:
        return _DECODER.decode(body.decode())
    except RecursionError:
        raise Refused(400, "the body is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise Refused(400, f"the body is not UTF-8 from byte {error.start} on; send JSON in UTF-8") from None
    except json.JSONDecodeError as error:
        raise Refused(400, f"the body is not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except ValueError as error:
        raise Refused(400, f"the body is not JSON that can be used: {error}") from None


# ---------------------------------------------------------------------------------------------- fields

#: Turns a JSON value, found at a place with this name, into what the predictor takes, or raises `Refused`.
Read = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Field:
    """One field of a request."""

    schema: dict[str, Any]
    read: Read
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class Record:
    """A JSON object with these fields and no others."""

    name: str
    fields: Mapping[str, Field]
    description: str = ""
    _required: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_required", tuple(name for name, f in self.fields.items() if f.required))

    @property
    def schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: f.schema for name, f in self.fields.items()},
            "additionalProperties": False,
        }
        if self._required:
            schema["required"] = list(self._required)
        if self.description:
            schema["description"] = self.description
        return schema

    def read(self, raw: Any, where: str = "") -> dict[str, Any]:
        """All fields, with defaults in place of those that are left out."""
        if raw.__class__ is not dict:
            raise Refused(422, f"{where or 'the body'} is {_describe(raw)}; it must be an object", where or None)
        fields = self.fields
        for name in raw:
            if name not in fields:
                place = f"{where}.{name}" if where else name
                inside = next((field for field in ("known", "values") if field in fields), None)
                more = "" if inside is None else f"; values of features go into {inside!r}"
                known = f"the fields are {shorten(list(fields), 12)}"
                raise Refused(422, f"unknown field {_clip(name)}; {known}{more}", place)
        for name in self._required:
            if name not in raw:
                raise Refused(422, f"{name!r} is missing; it must be given", where or None)
        prefix = f"{where}." if where else ""
        return {name: f.read(raw[name], prefix + name) if name in raw else f.default for name, f in fields.items()}


def anything(description: str, *, required: bool = False) -> Field:
    return Field({"description": description}, lambda raw, where: raw, required=required)


def number(description: str, unit: str = "a number") -> Field:
    """Zero or more, or null."""

    def read(raw: Any, where: str) -> float | None:
        if raw is None:
            return None
        if raw.__class__ in (int, float) and raw >= 0:
            try:
                return float(raw)
            except OverflowError:
                pass
        raise Refused(422, f"{where} is {_describe(raw)}; it must be {unit}, 0 or more, or null", where)

    return Field({"type": ["number", "null"], "minimum": 0, "description": description}, read)


def flag(description: str, default: bool) -> Field:
    def read(raw: Any, where: str) -> bool:
        if raw.__class__ is not bool:
            raise Refused(422, f"{where} is {_describe(raw)}; it must be true or false", where)
        return raw

    return Field({"type": "boolean", "default": default, "description": description}, read, default)


def choice(description: str, values: Sequence[str]) -> Field:
    def read(raw: Any, where: str) -> str | None:
        if raw is not None and (raw.__class__ is not str or raw not in values):
            raise Refused(422, f"{where} is {_describe(raw)}; it must be one of {shorten(values)}, or null", where)
        return raw

    return Field({"enum": [*values, None], "description": description}, read)


def text(description: str) -> Field:
    def read(raw: Any, where: str) -> str:
        if raw.__class__ is not str or not 0 < len(raw) <= LONGEST_TEXT:
            raise Refused(422, f"{where} is {_describe(raw)}; it must be a text of 1 to {LONGEST_TEXT} signs", where)
        return raw

    schema = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT, "description": description}
    return Field(schema, read, required=True)


def identity(description: str) -> Field:
    """A text or a whole number, or null."""

    def read(raw: Any, where: str) -> str | int | None:
        if raw is None or raw.__class__ is int or (raw.__class__ is str and 0 < len(raw) <= LONGEST_TEXT):
            return raw
        right = f"a text of 1 to {LONGEST_TEXT} signs, a whole number or null"
        raise Refused(422, f"{where} is {_describe(raw)}; it must be {right}", where)

    kinds = ["string", "integer", "null"]
    return Field({"type": kinds, "minLength": 1, "maxLength": LONGEST_TEXT, "description": description}, read)


def names(
    description: str, what: str, allowed: Sequence[str], *, required: bool = False, plural: str | None = None
) -> Field:
    """A list of names of items or features."""
    known, plural = frozenset(allowed), plural or f"{what}s"

    def read(raw: Any, where: str) -> list[str]:
        if raw.__class__ is not list:
            raise Refused(422, f"{where} is {_describe(raw)}; it must be a list of names", where)
        for k, name in enumerate(raw):
            if name.__class__ is not str or name not in known:
                place = f"{where}[{k}]"
                raise Refused(422, f"unknown {what} {_clip(name)}; the model's {plural} are {shorten(allowed)}", place)
        if required and not raw:
            raise Refused(422, f"{where} is empty; name at least one {what}", where)
        return raw

    schema: dict[str, Any] = {
        "type": "array",
        "items": {"enum": list(allowed)} if allowed else False,
        "description": description,
    }
    if required:
        schema["minItems"] = 1
    return Field(schema, read, (), required)


#: What the value of a feature may be: JSON types, Python's for them, and in words.
_NUMBER = (["number"], (int, float), "a number")
_BOOLEAN = (["boolean", "number"], (bool, int, float), "true, false or a number")
_CATEGORY = (["string", "number", "boolean"], (str, int, float, bool), "one category: a text, a number, true or false")


def features(description: str, compiled: CompiledTree | CompiledMixture, *, required: bool = False) -> Field:
    """Values of features by name: numbers, true and false, categories, and null where they are missing."""
    properties: dict[str, Any] = {}
    allowed: dict[str, tuple[tuple[type, ...], str]] = {}
    longest = max([LONGEST_TEXT, *(len(value) for codes in compiled.codes for value in codes or ())])
    for j, (name, codes) in enumerate(zip(compiled.feature_names, compiled.codes, strict=True)):
        kind = _CATEGORY if codes is not None else _BOOLEAN if compiled.is_boolean[j] else _NUMBER
        types, classes, right = kind
        needed = compiled.is_plain[j] and not compiled.may_miss[j]
        properties[name] = {"type": types if needed else [*types, "null"]}
        if codes:
            properties[name]["description"] = f"a category; training saw {shorten(list(codes))}"
        if codes is not None:
            properties[name]["maxLength"] = longest
        allowed[name] = ((*classes, type(None)), right)

    def read(raw: Any, where: str) -> dict[str, Any]:
        if raw.__class__ is not dict:
            raise Refused(422, f"{where} is {_describe(raw)}; it must be an object of features and values", where)
        for name, value in raw.items():
            place = f"{where}.{name}"
            if name not in allowed:
                message = f"unknown feature {_clip(name)}; the model's features are {shorten(compiled.feature_names)}"
                raise Refused(422, message, place)
            classes, right = allowed[name]
            if value.__class__ not in classes:
                raise Refused(422, f"{name} is {_describe(value)}; it must be {right}", place)
            if value.__class__ is str and len(value) > longest:
                raise Refused(422, f"{name} is a text of {len(value)} signs; at most {longest} are taken", place)
            try:
                compiled.encode(compiled.index[name], value)
            except Fault as fault:
                raise Refused(422, str(fault), place) from None
        return raw

    schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "description": description,
    }
    return Field(schema, read, {}, required)


def list_of(record: Record, most: int, description: str) -> Field:
    def read(raw: Any, where: str) -> list[dict[str, Any]]:
        if raw.__class__ is not list:
            raise Refused(422, f"{where} is {_describe(raw)}; it must be a list of objects", where)
        if len(raw) > most:
            raise Refused(
                422, f"{where} has {len(raw)} entries; at most {most} fit into one request: send several", where
            )
        return [record.read(entry, f"{where}[{k}]") for k, entry in enumerate(raw)]

    reference = {"$ref": f"#/components/schemas/{record.name}"}
    schema = {"type": "array", "items": reference, "maxItems": most, "description": description}
    return Field(schema, read, required=True)


# --------------------------------------------------------------------------------------------- records


def records_for(
    compiled: CompiledTree | CompiledMixture, *, has_sources: bool, most_rows: int, strict_by_default: bool = False
) -> dict[str, Record]:
    """The bodies that the service of one model takes."""
    row = anything("What the sources are called with: an id, a key, or any other JSON value.", required=has_sources)
    known = features("Features at hand: they cost nothing and are not fetched.", compiled)
    id = identity(
        "What tells the row from others. Where the model is a mixture of two, it decides which of them answers; null: "
        "`row`, where that is a text or a whole number, else a running number."
    )
    paid = names("Items that are already paid.", "item", compiled.item_names)
    budget = number("The cost of a row is never above this; null: no limit.")
    unavailable = names(
        "Sources, items or features that are down: nothing of them is asked for, and nothing paid.",
        "source, item or feature",
        compiled.names_of_outages,
        plural="sources, items and features",
    )
    deadline = number("Seconds from now until the answer must be there; null: the service's own limit.", "seconds")
    prefetch = choice("Fetch what is certainly needed next, or all that a node may need; null: as served.", PREFETCHES)
    strict = flag(
        "Answer 409 instead of 200 if a path was not completed, and refuse what training did not see.",
        strict_by_default,
    )
    strict_session = flag("Refuse values that training did not see.", strict_by_default)
    trail = flag("Say why each item was bought.", True)
    row_record = Record("BatchRow", {"row": row, "known": known, "budget": budget, "id": id}, "One row of a batch.")
    bounds = {"paid": paid, "budget": budget, "unavailable": unavailable}
    common = bounds | {"deadline": deadline, "prefetch": prefetch, "strict": strict}
    records = [
        Record("PredictRequest", {"row": row, "known": known} | common | {"trail": trail, "id": id}),
        row_record,
        Record(
            "BatchRequest",
            {"rows": list_of(row_record, most_rows, "The rows, worked out together.")} | common | {"trail": trail},
            "`paid`, `budget` and `unavailable` hold for every row; a row's own `budget` comes before it.",
        ),
        Record(
            "SessionRequest",
            {"known": known} | bounds | {"prefetch": prefetch, "strict": strict_session, "id": id},
        ),
        Record(
            "TellRequest",
            {"values": features("Wanted features, all or some; others are put aside.", compiled, required=True)},
        ),
        Record(
            "FailRequest",
            {
                "features": names(
                    "Wanted features that could not be had.", "feature", compiled.feature_names, required=True
                ),
                "reason": text("What happened, for the trail."),
                "charged": flag("Whether the source was called, and so is paid.", True),
            },
        ),
    ]
    return {record.name: record for record in records}


_KINDS = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}


def _describe(raw: Any) -> str:
    if raw is None:
        return "null"
    if raw.__class__ is bool:
        return "true" if raw else "false"
    if raw.__class__ is str:
        return f"the text {_clip(raw)}"
    return _KINDS.get(raw.__class__) or _clip(raw)


def _clip(raw: Any) -> str:
    try:
        shown = repr(raw)
    except ValueError:  # a whole number of more digits than Python writes
        shown = "a number that is too large"
    return shown if len(shown) <= 60 else shown[:57] + "..."
