"""Connections that do not wait for ever: the head of a request comes in time, or the connection is cut off.

uvicorn waits for the head of a request as long as the client likes, byte by byte; a few thousand such clients are all
connections that a process may have.  Its body is the matter of the application, which knows how long it may be.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["protocol_with"]

_TOO_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class PatientProtocol(H11Protocol):
    """uvicorn's own, with a limit for all that comes outside of a request that is being answered.

    That is the head of a request, from the connection's first moment or its first byte on, and the rest of a body that
    was refused.  Between requests uvicorn has a limit of its own (keep-alive).
    """

    head_seconds = 10.0
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_limit()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_limit()
        elif self._limit is None:  # however many bytes follow, there is one limit for all of them
            self._start_limit()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        super().connection_lost(exc)

    def _start_limit(self) -> None:
        self._limit = self.loop.call_later(self.head_seconds, self._cut_off)

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _cut_off(self) -> None:
        self._limit = None
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:  # a head was begun: say why
            self.transport.write(_TOO_LATE)
        self.transport.close()


def protocol_with(head_seconds: float) -> type[PatientProtocol]:
    """The protocol with this limit, as uvicorn takes it: as a class."""
    return type("Protocol", (PatientProtocol,), {"head_seconds": head_seconds})
