"""The OpenAPI document of a service: made from the model, and from the fields that the service reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..answer import STATUSES
from ..compiled import CompiledTree
from ..mixture import CompiledMixture
from .requests import Record

__all__ = ["openapi_document"]

NUMBER_OR_NULL = {"type": ["number", "null"]}  # null: no number, where a missing value was passed on
PRICES = {"type": "object", "additionalProperties": {"type": "number"}}

_REFUSALS = {
    "400": "The body is not JSON in UTF-8, or was not complete.",
    "401": "The token is missing or wrong.",
    "404": "There is no such session, and never was.",
    "408": "The body did not come in time.",
    "409": "The session cannot do this any more, or not now; strict, and a value that training did not see.",
    "410": "The session has expired or was removed.",
    "413": "The body is too long.",
    "415": "The body is not declared as application/json.",
    "421": "The host of the request is none that this service answers to.",
    "422": "A field or a feature is unknown, or a value is of the wrong type.",
    "431": "The headers are too long.",
    "429": "As many sessions are open as may be.",
    "503": "As many rows are being worked on as may be; nothing was bought.",
}
_BODY = ("400", "408", "413", "415", "422")
_ANY = ("421", "431")


def openapi_document(
    compiled: CompiledTree | CompiledMixture, records: Mapping[str, Record], *, version: str, has_token: bool
) -> dict[str, Any]:
    """The document, as plain values."""
    schemas = {name: record.schema for name, record in records.items()} | _response_schemas(compiled)
    components: dict[str, Any] = {"schemas": schemas}
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "cstc",
            "version": version,
            "description": "Predictions that buy only the features that their own path needs.",
        },
        "paths": _paths(has_token),
        "components": components,
    }
    if has_token:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(schema: Mapping[str, Any], media_type: str = "application/json") -> dict[str, Any]:
    return {media_type: {"schema": schema}}


def _object(properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), **more}


# ------------------------------------------------------------------------------------------------ paths


def _paths(has_token: bool) -> dict[str, Any]:
    strict = {
        "409": {"description": "Strict, and not complete or never seen.", "content": _content(_reference("Strict"))}
    }
    one_session = ("404", "410")
    operations = {
        ("/predict", "post"): _operation(
            "predict", "Answer for one row.", "PredictRequest", "Answer", strict, refusals=("503",)
        ),
        ("/predict/batch", "post"): _operation(
            "predict_batch",
            "Answers for many rows, worked out together.",
            "BatchRequest",
            "Answers",
            strict,
            refusals=("503",),
        ),
        ("/sessions", "post"): _operation(
            "open_session",
            "Open a session: the caller fetches what the answer to a row needs, and tells it.",
            "SessionRequest",
            "Session",
            refusals=("409", "429"),
            status="201",
        ),
        ("/sessions/{id}", "get"): _operation(
            "get_session", "What a session wants next.", None, "Session", refusals=one_session
        ),
        ("/sessions/{id}", "delete"): _operation(
            "remove_session", "Give a session up.", None, None, refusals=one_session, status="204"
        ),
        ("/sessions/{id}/tell", "post"): _operation(
            "tell", "Values of features.", "TellRequest", "Session", refusals=(*one_session, "409")
        ),
        ("/sessions/{id}/fail", "post"): _operation(
            "fail", "Features that could not be had.", "FailRequest", "Session", refusals=(*one_session, "409")
        ),
        ("/sessions/{id}/answer", "post"): _operation(
            "answer",
            "The answer; it ends the session, and is the same if it is asked for again.",
            None,
            "Answer",
            refusals=one_session,
        ),
        ("/health", "get"): _operation("health", "Whether the service is there.", None, "Health"),
        ("/metrics", "get"): _operation("metrics", "Counters in Prometheus' text format.", None, None),
        ("/openapi.json", "get"): _operation("openapi", "This document.", None, None),
    }
    operations["/metrics", "get"]["responses"]["200"]["content"] = _content({"type": "string"}, "text/plain")
    operations["/openapi.json", "get"]["responses"]["200"]["content"] = _content({"type": "object"})
    opened = operations["/sessions", "post"]["responses"]["201"]
    opened["headers"] = {"Location": {"schema": {"type": "string"}, "description": "The path of the session."}}
    opened["links"] = {
        name: {"operationId": name, "parameters": {"id": "$response.body#/id"}}
        for name in ("get_session", "tell", "fail", "answer", "remove_session")
    }
    paths: dict[str, Any] = {}
    for (path, method), operation in operations.items():
        if "{id}" in path:
            operation["parameters"] = [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            ]
        if path == "/health":
            operation["security"] = []
        elif has_token:
            operation["responses"]["401"] = _refusal("401")
        paths.setdefault(path, {})[method] = operation
    return paths


def _operation(
    name: str,
    summary: str,
    request: str | None,
    response: str | None,
    further: Mapping[str, Any] | None = None,
    *,
    refusals: tuple[str, ...] = (),
    status: str = "200",
) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": name, "summary": summary}
    success: dict[str, Any] = {"description": "Done."}
    if response is not None:
        success["content"] = _content(_reference(response))
    operation["responses"] = {status: success} | dict(further or {})
    if request is not None:
        operation["requestBody"] = {"required": True, "content": _content(_reference(request))}
        refusals += _BODY
    for code in (*refusals, *_ANY):
        operation["responses"][code] = _refusal(code)
    return operation


def _refusal(code: str) -> dict[str, Any]:
    return {"description": _REFUSALS[code], "content": _content(_reference("Error"))}


# -------------------------------------------------------------------------------------------- responses


def _response_schemas(compiled: CompiledTree | CompiledMixture) -> dict[str, Any]:
    text, text_or_null = {"type": "string"}, {"type": ["string", "null"]}
    warnings = {"type": "array", "items": text, "description": "What was taken as missing, as training never saw it."}
    node = {"type": "integer", "minimum": -1}
    terminal = {"type": ["integer", "null"], "minimum": 0}
    if compiled.classes is None:
        value: dict[str, Any] = NUMBER_OR_NULL
        probabilities: dict[str, Any] = {"type": "null"}
    else:
        refers = compiled.decisions is not None and compiled.decisions.can_refer
        value = {"enum": [*compiled.classes, *([None] if refers else [])]}
        probabilities = _object({str(name): NUMBER_OR_NULL for name in compiled.classes}, additionalProperties=False)
    gate = _object(
        {"event": {"const": "gate"}, "node": node, "margin": NUMBER_OR_NULL, "threshold": NUMBER_OR_NULL, "to": text}
    )
    bought = _object(
        {
            "event": {"const": "bought"},
            "node": node,
            "wave": {"type": "integer"},
            "margin": NUMBER_OR_NULL,
            "threshold": NUMBER_OR_NULL,
            "features": {"type": "array", "items": text},
            "items": PRICES,
            "price": {"type": "number"},
            "source": {"type": ["string", "null"]},
            "latency": NUMBER_OR_NULL,
            "outcome": text,
        }
    )
    answer = _object(
        {
            "value": value,
            "probabilities": probabilities,
            "cost": {"type": "number", "minimum": 0},
            "status": {"enum": list(STATUSES)},
            "reason": text,
            "basis": text | {"description": "What an early answer rests on; empty if complete."},
            "expected_loss": NUMBER_OR_NULL
            | {"description": "What that loses on average: 0 if complete, null if it is not known."},
            "node": node | {"description": "The node that predicted; -1: the constant prediction before the root."},
            "terminal": terminal,
            "path": {"type": "array", "items": {"type": "integer", "minimum": 0}},
            "margins": {"type": "array", "items": NUMBER_OR_NULL},
            "items": PRICES | {"description": "The items bought for this row, with their prices."},
            "seconds": NUMBER_OR_NULL,
            "warnings": warnings,
        }
    )
    answer["properties"]["trail"] = {"type": "array", "items": {"oneOf": [gate, bought]}}
    if isinstance(compiled, CompiledMixture):
        words = "Which of the two models answered, and why; nodes and terminals are its own."
        answer["properties"]["taken"] = text | {"description": words}
    session = _object(
        {
            "id": text,
            "finished": {"type": "boolean", "description": "Whether nothing more is wanted."},
            "wanted": {"type": "array", "items": text, "description": "The features to fetch now."},
            "items": PRICES | {"description": "The items that these buy, with their prices."},
            "cost": {"type": "number", "minimum": 0, "description": "What has been spent so far."},
            "warnings": warnings,
            "expires_in": {"type": "number", "description": "Seconds after which the session is gone, if not used."},
        }
    )
    model = _object(
        {
            "name": text_or_null | {"description": "The name of the model's file."},
            "sha256": text_or_null | {"description": "The digest of the file."},
            "rows": {"type": ["integer", "null"], "description": "Training rows."},
            "trained": text_or_null | {"description": "The date of training, if the file has one."},
        }
    )
    error = _object({"status": {"type": "integer"}, "message": text, "where": {"type": ["string", "null"]}})
    answers = {"type": "array", "items": _reference("Answer")}
    return {
        "Answer": answer,
        "Answers": _object({"answers": answers, "cost": {"type": "number", "minimum": 0}}),
        "Session": session,
        "Health": _object({"status": {"const": "ok"}, "version": text, "model": model}),
        "Error": _object({"error": error}),
        "Strict": _object({"error": error, "answers": answers}),
    }
