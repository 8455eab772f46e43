"""The open sessions of a service: so many at most, each for so long after it was last used."""

from __future__ import annotations

import hmac
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from ..answer import Answer
from ..session import Session

__all__ = ["NoRoom", "OpenSession", "SessionStore"]

TOKEN_BYTES = 15
MAC_DIGITS = 16


class NoRoom(Exception):
    """As many sessions are open as may be; after `seconds` the first of them expires."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"room in {seconds:.0f} s")
        self.seconds = seconds


class OpenSession:
    """A session, and its answer once that was given."""

    __slots__ = ("answer", "id", "last_used", "session")

    def __init__(self, id: str, session: Session, now: float) -> None:
        self.id = id
        self.session = session
        self.last_used = now
        self.answer: Answer | None = None


class SessionStore:
    """Sessions by their ids; used from one thread, the service's event loop.

    An id carries a code that only this store can make, so an id that is no longer here is told apart from one that
    never was, without a list of all that have expired.

    Parameters
    ----------
    most : int
        Sessions that may be open at the same time.
    seconds : float
        A session that is not used for so long is gone.
    clock : callable, optional
        Seconds that only grow.
    on_lost : callable, optional
        Called with every session that leaves without having been answered: what it bought was paid all the same.
    """

    def __init__(
        self,
        most: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        on_lost: Callable[[Session], None] = lambda session: None,
    ) -> None:
        self.most = most
        self.seconds = seconds
        self.n_opened = self.n_expired = self.n_refused = 0
        self._clock = clock
        self._on_lost = on_lost
        self._key = secrets.token_bytes(32)
        self._sessions: OrderedDict[str, OpenSession] = OrderedDict()  # the one used longest ago first

    def __len__(self) -> int:
        self._expire()
        return len(self._sessions)

    def add(self, session: Session) -> OpenSession:
        """Keep a session; `NoRoom` if too many are open."""
        self._make_room()
        token = secrets.token_urlsafe(TOKEN_BYTES)
        entry = OpenSession(token + self._mac(token), session, self._clock())
        self._sessions[entry.id] = entry
        self.n_opened += 1
        return entry

    def get(self, id: str) -> OpenSession | None:
        """The session of this id, which counts as used now; None if there is none."""
        self._expire()
        entry = self._sessions.get(id)
        if entry is not None:
            entry.last_used = self._clock()
            self._sessions.move_to_end(id)
        return entry

    def remove(self, id: str) -> None:
        entry = self._sessions.pop(id)
        if entry.answer is None:
            self._on_lost(entry.session)

    def is_own(self, id: str) -> bool:
        """Whether this store has ever given out the id."""
        token, mac = id[:-MAC_DIGITS], id[-MAC_DIGITS:]
        return hmac.compare_digest(self._mac(token).encode(), mac.encode(errors="replace"))

    def seconds_left(self, entry: OpenSession) -> float:
        return math.ceil(max(0.0, entry.last_used + self.seconds - self._clock()))

    def _make_room(self) -> None:
        self._expire()
        if len(self._sessions) < self.most:
            return
        # a session that was answered is kept only for a client that lost the answer on its way
        done = next((entry.id for entry in self._sessions.values() if entry.answer is not None), None)
        if done is None:
            self.n_refused += 1
            oldest = next(iter(self._sessions.values()))
            raise NoRoom(max(0.0, oldest.last_used + self.seconds - self._clock()))
        del self._sessions[done]

    def _mac(self, token: str) -> str:
        return hmac.digest(self._key, token.encode(errors="replace"), "sha256").hex()[:MAC_DIGITS]

    def _expire(self) -> None:
        latest = self._clock() - self.seconds
        while self._sessions:
            oldest = next(iter(self._sessions.values()))
            if oldest.last_used > latest:
                return
            del self._sessions[oldest.id]
            if oldest.answer is None:
                self.n_expired += 1
                self._on_lost(oldest.session)
