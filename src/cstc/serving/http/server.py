"""Run the service: where it listens, who may use it, and how it ends."""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...model.file import FileIdentity
from ..log import LOGGER
from ..predictor import OnDemandPredictor
from .app import Limits, create_app

try:
    import uvicorn

    from .protocol import protocol_with
except ImportError as error:
    raise ImportError(
        "the service needs Starlette and uvicorn; install them with: pip install 'cstc[serve]'"
    ) from error

__all__ = ["TOKEN_VARIABLE", "configure", "is_loopback", "read_token", "serve"]

TOKEN_VARIABLE = "CSTC_TOKEN"
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
GRACE = 5.0  # seconds beyond the longest prediction, for bodies and answers that are on their way


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(variable: str = TOKEN_VARIABLE) -> str | None:
    """The bearer token in the environment; None if there is none."""
    token = os.environ.get(variable)
    if token is None:
        return None
    if not token.strip() or token.strip() != token or not token.isascii() or not token.isprintable():
        raise ValueError(f"the token in {variable} is empty or has blanks at its ends, or signs other than ASCII")
    return token


def _announce(address: str) -> None:
    print(f"serving on {address}", flush=True)


def serve(
    predictor: OnDemandPredictor,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    allow_no_token: bool = False,
    limits: Limits | None = None,
    model: FileIdentity | None = None,
    access_log: bool = False,
    on_ready: Callable[[str], Any] = _announce,
) -> None:
    """Serve until SIGINT or SIGTERM; then answer what is in flight, and close the predictor.

    To be called in the main thread, where signals arrive; an application of one's own takes `create_app`.

    Parameters
    ----------
    predictor : OnDemandPredictor
    host : str, default="127.0.0.1"
        Where to listen.  An address that other machines can reach needs a token.
    port : int, default=8000
        0: any that is free.
    token : str, optional
        See `read_token`.
    allow_no_token : bool, default=False
        Listen to other machines without a token: where something in front of the service checks who asks.
    limits : Limits, optional
    model : FileIdentity, optional
        What ``/health`` calls the model: see `cstc.model.file.load_named`.
    access_log : bool, default=False
        Log every request.  Failing sources, and values that training did not see, are always logged.
    on_ready : callable, optional
        Called with the address as text once connections are taken; prints it by default.
    """
    limits = limits or Limits()
    local = is_loopback(host)
    if not local and token is None and not allow_no_token:
        raise ValueError(
            f"{host} can be reached from other machines, and there is no token: set {TOKEN_VARIABLE} and pass what "
            "read_token returns, listen on 127.0.0.1, or allow it with allow_no_token=True"
        )
    hosts = LOOPBACK_NAMES if local and token is None else None
    app = create_app(predictor, limits=limits, token=token, hosts=hosts, model=model)
    server = uvicorn.Server(configure(app, limits, access_log=access_log))
    listener = _listen(host, port)

    def leave(*_: Any) -> None:
        server.should_exit = True

    # uvicorn raises a signal again once it has ended; with a handler of ours in place that does nothing more
    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with predictor, _logging():
            on_ready(_address(listener))
            server.run(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        listener.close()


def configure(app: Any, limits: Limits, *, access_log: bool = False) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        http=protocol_with(limits.head_seconds),
        h11_max_incomplete_event_size=int(limits.head_bytes),
        ws="none",
        lifespan="off",
        log_level="info" if access_log else "warning",
        access_log=access_log,
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds + GRACE + 0.5),
    )


@contextmanager
def _logging() -> Iterator[None]:
    """What the library logs goes to standard error, unless the program has a log of its own."""
    if logging.getLogger().handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOGGER.addHandler(handler)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )[0]
        # asyncio turns Nagle's algorithm off only for sockets that name their protocol; with it on, an answer whose
        # head and body are written one after the other waits 40 ms for the client to confirm the head
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except BaseException:
            listener.close()
            raise
        return listener
    except (OSError, OverflowError) as error:
        raise OSError(f"cannot listen on {host}, port {port}: {error}") from None


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
