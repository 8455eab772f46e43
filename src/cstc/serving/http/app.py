"""The service: predictions on demand, and ask and tell, over HTTP.

One process and one event loop: sessions live in its memory and are only touched from the loop, so they need no lock;
async sources run on the loop, others in the predictor's threads.  What a batch computes, reads and writes is done in
threads too, a few of them, so that no request waits until another one's thousand rows are worked out.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from ... import __version__
from ...model.file import FileIdentity
from ..answer import Answer, IncompleteAnswer
from ..log import log_unseen
from ..predictor import OnDemandPredictor
from ..prometheus import family
from ..session import Session
from ..values import BadKnownError
from .openapi import openapi_document
from .requests import Refused, read_json, records_for
from .store import NoRoom, OpenSession, SessionStore

try:
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
except ImportError as error:
    raise ImportError(
        "the service needs Starlette and uvicorn; install them with: pip install 'cstc[serve]'"
    ) from error

__all__ = ["Limits", "create_app"]

RETRY_SECONDS = 1
OPEN_PATHS = ("/health",)  # answered without a token, for those who only look whether the service is there


@dataclass(frozen=True)
class Limits:
    """What one request, and all sessions together, may take.

    Parameters
    ----------
    head_bytes : int, default=16384
        Bytes of the first line and the headers.
    head_seconds : float, default=10
        Seconds within which they must have come; a connection that takes longer is cut off.  This needs `serve`: an
        application in another server has that server's own limit.
    body_bytes : int, default=1048576
    body_seconds : float, default=10
        Seconds within which a body must have come.
    rows : int, default=1000
        Rows of a batch.
    predictions : int, default=2000
        Rows that are worked on at the same time, those of batches counted one by one.  Beyond that requests are
        refused, before anything is bought for them.
    seconds : float, default=30
        Every prediction is answered within this; a request may ask for a shorter deadline.
    sessions : int, default=1000
        Sessions open at the same time.
    session_seconds : float, default=600
        A session that is not used for so long is gone.
    """

    head_bytes: int = 2**14
    head_seconds: float = 10.0
    body_bytes: int = 2**20
    body_seconds: float = 10.0
    rows: int = 1000
    predictions: int = 2000
    seconds: float = 30.0
    sessions: int = 1000
    session_seconds: float = 600.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
                raise ValueError(f"{entry.name} is {value!r}; it must be a number above 0")


def create_app(
    predictor: OnDemandPredictor,
    *,
    limits: Limits | None = None,
    token: str | None = None,
    hosts: Iterable[str] | None = None,
    model: FileIdentity | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Starlette:
    """The service of one predictor as an ASGI application.

    Parameters
    ----------
    predictor : OnDemandPredictor
        It stays the caller's: close it after the application has ended.
    limits : Limits, optional
    token : str, optional
        What clients must send as ``Authorization: Bearer ...``, for all but ``/health``.
    hosts : iterable of str, optional
        The names that the service answers to, without a port; all by default.
    model : FileIdentity, optional
        What ``/health`` calls the model, as `cstc.model.file.load_named` returns it.
    clock : callable, optional
        Seconds that only grow, for the expiry of sessions.

    Returns
    -------
    Starlette
    """
    if predictor.whole_queries:
        raise ValueError(
            "this model looks at whole queries, and the service answers rows one by one; call predict_many(rows, "
            "qid=...) of the predictor, or fit without whole_queries"
        )
    service = _Service(predictor, limits or Limits(), clock, has_token=token is not None, model=model)
    app = Starlette(
        routes=service.routes(),
        exception_handlers={
            Refused: _refuse,
            BadKnownError: _refuse_known,
            HTTPException: _refuse_route,
            Exception: _fail,
        },
    )
    app.router.redirect_slashes = False
    app.add_middleware(_Gate, service=service, token=token, hosts=hosts)
    return app


class _Service:
    """The endpoints."""

    def __init__(
        self,
        predictor: OnDemandPredictor,
        limits: Limits,
        clock: Callable[[], float],
        *,
        has_token: bool,
        model: FileIdentity | None,
    ) -> None:
        self.predictor = predictor
        # a warning of Python belongs to who wrote the call; here that is a client, and the log is for who serves
        predictor._unseen.say = log_unseen
        self.limits = limits
        self.sessions = SessionStore(limits.sessions, limits.session_seconds, clock, self._count_lost)
        self.n_predictions = 0  # in flight
        self.n_refused = 0
        self.requests: dict[tuple[str, int], int] = {}  # by endpoint and status
        compiled = predictor._compiled
        has_sources = bool(predictor.extractors)
        self._records = records_for(
            compiled, has_sources=has_sources, most_rows=limits.rows, strict_by_default=predictor.strict
        )
        document = openapi_document(compiled, self._records, version=__version__, has_token=has_token)
        self._document = json.dumps(document).encode()
        training = compiled.training
        named = {"name": None, "sha256": None} if model is None else model._asdict()
        named |= {"rows": training.rows, "trained": training.trained}
        self._health = {"status": "ok", "version": __version__, "model": named}

    def routes(self) -> list[Route]:
        return [
            Route("/predict", self.predict, methods=["POST"]),
            Route("/predict/batch", self.predict_batch, methods=["POST"]),
            Route("/sessions", self.open_session, methods=["POST"]),
            Route("/sessions/{id}", self.session, methods=["GET", "DELETE"]),
            Route("/sessions/{id}/tell", self.tell, methods=["POST"]),
            Route("/sessions/{id}/fail", self.fail, methods=["POST"]),
            Route("/sessions/{id}/answer", self.answer, methods=["POST"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
            Route("/openapi.json", self.openapi, methods=["GET"]),
        ]

    # -- the predictor fetches ---------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        asked = await self._read(request, "PredictRequest")
        with self._room_for(1):
            try:
                answer = await self.predictor.apredict(
                    asked.get("row"),
                    id=asked["id"],
                    known=asked["known"],
                    paid=asked["paid"],
                    budget=asked["budget"],
                    unavailable=asked["unavailable"],
                    deadline=self._deadline(asked),
                    prefetch=asked["prefetch"],
                    strict=asked["strict"],
                )
            except IncompleteAnswer as early:
                return _strict(early.answers, asked["trail"])
        return _respond(_as_dict(answer, asked["trail"]))

    async def predict_batch(self, request: Request) -> Response:
        aside = self.predictor._caller.aside
        body = await self._body(request)
        with self._room_for(1):  # for the reading; how many rows there are is known after it
            asked = await aside(self._parse, "BatchRequest", body)
        rows = asked["rows"]
        with self._room_for(len(rows)):
            try:
                answers = await self.predictor.apredict_many(
                    [row.get("row") for row in rows],
                    ids=[row["id"] for row in rows],
                    known=[row["known"] for row in rows],
                    paid=asked["paid"],
                    budget=[asked["budget"] if row["budget"] is None else row["budget"] for row in rows],
                    unavailable=asked["unavailable"],
                    deadline=self._deadline(asked),
                    prefetch=asked["prefetch"],
                    strict=asked["strict"],
                )
            except IncompleteAnswer as early:
                return await aside(_strict, early.answers, asked["trail"])
            return await aside(_respond_to_batch, answers, asked["trail"])

    @contextmanager
    def _room_for(self, n_rows: int) -> Iterator[None]:
        """Rows in flight; `Refused` if they are too many, unless there are no others at all."""
        most = self.limits.predictions
        if self.n_predictions and self.n_predictions + n_rows > most:
            self.n_refused += 1
            raise Refused(
                503,
                f"{self.n_predictions} rows are being worked on, and no more than {most} may be at the same time; "
                f"nothing was bought: try again in {RETRY_SECONDS} s",
                headers={"Retry-After": str(RETRY_SECONDS)},
            )
        self.n_predictions += n_rows
        try:
            yield
        finally:
            self.n_predictions -= n_rows

    def _deadline(self, asked: dict[str, Any]) -> float:
        deadline = asked["deadline"]
        return self.limits.seconds if deadline is None else min(deadline, self.limits.seconds)

    # -- the client fetches ------------------------------------------------------------------------------------

    async def open_session(self, request: Request) -> Response:
        asked = await self._read(request, "SessionRequest")
        try:
            entry = self.sessions.add(self.predictor.session(**asked))
        except NoRoom as full:
            wait = math.ceil(full.seconds)
            raise Refused(
                429,
                f"{self.limits.sessions} sessions are open, and no more may be; ask for the answers of those that are "
                f"done with, or try again in {wait} s",
                headers={"Retry-After": str(wait)},
            ) from None
        return _respond(self._state(entry), 201, {"Location": f"/sessions/{entry.id}"})

    async def session(self, request: Request) -> Response:
        entry = self._entry(request)
        if request.method == "DELETE":
            self.sessions.remove(entry.id)
            return Response(status_code=204)
        return _respond(self._state(entry))

    async def tell(self, request: Request) -> Response:
        asked = await self._read(request, "TellRequest")
        entry = self._entry(request, must_be_open=True)
        try:
            entry.session.check(asked["values"])  # of a strict session; the others take what was read
        except ValueError as error:
            raise Refused(409, f"strict: {error}", "values") from None
        entry.session.tell(asked["values"])
        return _respond(self._state(entry))

    async def fail(self, request: Request) -> Response:
        asked = await self._read(request, "FailRequest")
        entry = self._entry(request, must_be_open=True)
        try:
            entry.session.fail(asked["features"], asked["reason"], charged=asked["charged"])
        except ValueError as error:
            raise Refused(409, str(error), "features") from None
        return _respond(self._state(entry))

    async def answer(self, request: Request) -> Response:
        entry = self._entry(request)
        if entry.answer is None:
            entry.answer = entry.session.answer()
            self.predictor.counters.count_answer(entry.answer)
        return _respond(_as_dict(entry.answer, True))

    def _count_lost(self, session: Session) -> None:
        """A session that nobody asked for its answer has spent what it has spent."""
        session.stop("stopped", "the session was given up")
        self.predictor.counters.count_answer(session.answer())

    def _entry(self, request: Request, *, must_be_open: bool = False) -> OpenSession:
        id = request.path_params["id"]
        entry = self.sessions.get(id)
        if entry is None:
            if self.sessions.is_own(id):
                limit = self.limits.session_seconds
                raise Refused(410, f"the session is gone: removed, or not used for {limit:g} s; open another one")
            raise Refused(404, "there is no session of this id; open one with POST /sessions")
        if must_be_open and entry.answer is not None:
            raise Refused(409, "the session was answered, which ended it; open another one with POST /sessions")
        return entry

    def _state(self, entry: OpenSession) -> dict[str, Any]:
        session, done = entry.session, entry.answer is not None
        return {
            "id": entry.id,
            "finished": done or session.finished,
            "wanted": [] if done else session.wanted(),
            "items": {} if done else session.wanted_items(),
            "cost": entry.answer.cost if entry.answer is not None else session.cost,
            "warnings": session.warnings,
            "expires_in": self.sessions.seconds_left(entry),
        }

    # -- about the service -------------------------------------------------------------------------------------

    async def health(self, request: Request) -> Response:
        return _respond(self._health)

    async def metrics(self, request: Request) -> Response:
        found = [("", {"endpoint": e, "status": s}, count) for (e, s), count in sorted(self.requests.items())]
        lines = family("cstc_http_requests_total", "counter", "Requests answered, by endpoint and status.", found)
        for name, words, count in (
            ("predictions_in_flight", "Rows that are being worked on.", self.n_predictions),
            ("sessions_open", "Sessions that are open.", len(self.sessions)),
        ):
            lines += family(f"cstc_{name}", "gauge", words, [("", {}, count)])
        for name, words, count in (
            ("predictions_refused", "Requests refused because too many rows were in flight.", self.n_refused),
            ("sessions_opened", "Sessions opened.", self.sessions.n_opened),
            ("sessions_expired", "Sessions that expired before they were answered.", self.sessions.n_expired),
            ("sessions_refused", "Sessions refused because too many were open.", self.sessions.n_refused),
        ):
            lines += family(f"cstc_{name}_total", "counter", words, [("", {}, count)])
        text = self.predictor.counters.prometheus() + "\n".join(lines) + "\n"
        return Response(text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def openapi(self, request: Request) -> Response:
        return Response(self._document, media_type="application/json")

    # -- bodies ------------------------------------------------------------------------------------------------

    async def _read(self, request: Request, record: str) -> dict[str, Any]:
        return self._parse(record, await self._body(request))

    def _parse(self, record: str, body: bytes | bytearray) -> dict[str, Any]:
        return self._records[record].read(read_json(body))

    async def _body(self, request: Request) -> bytes | bytearray:
        declared = request.headers.get("content-type", "")
        if declared.partition(";")[0].strip().lower() != "application/json":
            # a page in a browser cannot send this type to another site unasked
            raise Refused(415, f"the body is declared as {declared!r}; send it as Content-Type: application/json")
        most = self.limits.body_bytes
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise Refused(413, f"the body has {length} bytes; at most {most} are read: send several requests")
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise Refused(413, f"the body has more than {most} bytes; send several requests")
        except TimeoutError:
            raise Refused(408, f"the body did not come within {self.limits.body_seconds:g} s") from None
        except ClientDisconnect:
            raise Refused(400, "the connection ended before the body did") from None
        return body


# ---------------------------------------------------------------------------------------- the way in


class _Gate:
    """All requests come through here: the host and the token are checked, and the answers counted."""

    def __init__(self, app: Any, service: _Service, token: str | None, hosts: Iterable[str] | None) -> None:
        self._app = app
        self._counts = service.requests
        self._head_bytes = service.limits.head_bytes
        self._token = None if token is None else token.encode()
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        def count(status: int) -> None:
            key = (getattr(scope.get("endpoint"), "__name__", "none"), status)
            self._counts[key] = self._counts.get(key, 0) + 1

        async def count_and_send(message: Any) -> None:
            if message["type"] == "http.response.start":
                count(message["status"])
            await send(message)

        refused = self._check(scope)
        if refused is not None:
            await _error_response(refused)(scope, receive, count_and_send)
            return
        try:
            await self._app(scope, receive, count_and_send)
        except Exception:
            count(500)
            raise

    def _check(self, scope: Any) -> Refused | None:
        length = sum(len(name) + len(value) for name, value in scope["headers"])
        length += len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if length > self._head_bytes:
            return Refused(431, f"the headers have {length} bytes; at most {self._head_bytes} are read")
        if self._token is None and self._hosts is None:
            return None
        headers = dict(scope["headers"])
        if self._hosts is not None:
            host = headers.get(b"host", b"").decode("latin-1").lower()
            name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
            if name.strip("[]") not in self._hosts:
                # a page whose own name was made to point here must not get in with the reader's browser
                return Refused(421, f"this service does not answer to the host {host!r}")
        if self._token is not None and scope["path"] not in OPEN_PATHS:
            scheme, _, sent = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(sent.strip(), self._token):
                wrong = "the token is wrong" if scheme else "a token is needed"
                message = f"{wrong}; send the service's token as Authorization: Bearer ..."
                return Refused(401, message, headers={"WWW-Authenticate": "Bearer"})
        return None


# ------------------------------------------------------------------------------------------ responses


def _respond(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_dump(content), status, headers, media_type="application/json")


def _dump(content: Any) -> str:
    try:
        return json.dumps(content, allow_nan=False)
    except ValueError:  # a missing value that a weak learner passed on made a margin that is no number
        return json.dumps(_without_nan(content))


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _without_nan(value) for name, value in content.items()}
    if isinstance(content, list):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def _as_dict(answer: Answer, trail: bool) -> dict[str, Any]:
    found = answer.to_dict()
    if not trail:
        del found["trail"]
    return found


def _respond_to_batch(answers: list[Answer], trail: bool) -> Response:
    cost = math.fsum(answer.cost for answer in answers)
    # one by one: other threads must wait while one text is written, megabytes of it for a thousand answers
    texts = ", ".join(_dump(_as_dict(answer, trail)) for answer in answers)
    return Response(f'{{"answers": [{texts}], "cost": {_dump(cost)}}}', media_type="application/json")


def _strict(answers: list[Answer], trail: bool) -> Response:
    """Not 502 or 504, which many clients and proxies repeat by themselves, and would pay for again."""
    k, first = next((k, answer) for k, answer in enumerate(answers) if not answer.complete)
    where = f"rows[{k}]" if len(answers) > 1 else None
    error = {"status": 409, "message": f"{first.status}: {first.reason}", "where": where}
    return _respond({"error": error, "answers": [_as_dict(answer, trail) for answer in answers]}, 409)


def _error_response(refused: Refused) -> Response:
    error = {"status": refused.status, "message": refused.message, "where": refused.where}
    return _respond({"error": error}, refused.status, refused.headers)


async def _refuse(request: Request, refused: Exception) -> Response:
    assert isinstance(refused, Refused)
    return _error_response(refused)


async def _refuse_known(request: Request, raised: Exception) -> Response:
    """What strict mode refuses of the known features; all else was refused when the body was read."""
    error = {"status": 409, "message": f"strict: {raised}", "where": "known"}
    return _respond({"error": error, "answers": []}, 409)


async def _refuse_route(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, HTTPException)
    headers = dict(raised.headers or {})
    if raised.status_code == 405:
        message = f"{request.method} is not possible here; possible: {headers.get('Allow', '')}"
    elif raised.status_code == 404:
        message = "there is nothing under this path; GET /openapi.json says what there is"
    else:
        message = str(raised.detail)
    return _error_response(Refused(raised.status_code, message, headers=headers))


async def _fail(request: Request, raised: Exception) -> Response:
    return _error_response(Refused(500, "a fault of the service, not of the request; its log says more"))
