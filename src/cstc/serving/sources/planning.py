"""Which sources are called for a wave, and for what: the features that a row wants as calls of sources.

A source is called once for a row, unless it is told which features are wanted.  A feature that is computed from others
waits until these are fetched.  Rows that want the same source at the same time share a call, if it takes batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compiled import CompiledTree
from ..mixture import CompiledMixture
from ..session import Session
from .calls import Call, Member
from .extractors import Source

__all__ = ["Planner"]

WAVES_KEPT = 1024

#: The features that each source is asked for.
Asked = dict[Source, tuple[int, ...]]


class Planner:
    """The sources of a model, and what to ask them for.

    Parameters
    ----------
    sources : sequence of Source or None
        For each feature its source; None for one that every call brings along.
    compiled : CompiledTree or CompiledMixture
        Names of features.
    """

    def __init__(self, sources: Sequence[Source | None], compiled: CompiledTree | CompiledMixture) -> None:
        self._sources = sources
        self._compiled = compiled
        self._usual_waves: dict[tuple[int, ...], Asked] = {}

    def calls_for(self, pairs: list[tuple[Session, Any]]) -> list[Call]:
        """The calls that the waves of many rows need now; each row stands beside its session."""
        calls: list[Call] = []
        batches: dict[tuple[Source, tuple[int, ...]], list[Member]] = {}
        for session, row in pairs:
            for source, asked in self.asked(session):
                member = (session, asked, row)
                if source.batch:
                    # rows may want different features: they share a call if the source is not told which
                    batches.setdefault((source, asked if source.takes_features else ()), []).append(member)
                else:
                    calls.append(Call(source, [member]))
        for (source, _), members in batches.items():
            most = len(members) if source.batch is True else int(source.batch)
            calls += [Call(source, members[at : at + most]) for at in range(0, len(members), most)]
        return calls

    def asked(self, session: Session) -> list[tuple[Source, tuple[int, ...]]]:
        """For each source to be called now, the features to ask it for; what cannot be had is lost to the session."""
        wanted = session.wanted_features
        found = self._usual_waves.get(wanted)
        if found is None or not session.called.isdisjoint(found):
            found = self._by_source(session, wanted)
        session.called.update(found)
        return list(found.items())

    def _by_source(self, session: Session, wanted: tuple[int, ...]) -> Asked:
        """The same for a wave that nobody had before; nothing if the session goes on without some of it."""
        by_source: Asked = {}
        computed = lost = False
        waiting = list(wanted)
        for f in waiting:  # grows while it is gone through, where a feature needs others first
            source = self._sources[f]
            if source is None:
                name = self._compiled.feature_names[f]
                session.lose((f,), "unavailable", f"{name} has no extractor and was not among the known features")
                return {}
            if source.needs:
                computed = True
                down = [other for other in source.needs if session.is_gone(other)]
                if down and session.failure_of(down[0]) is None:
                    name, lacks = self._compiled.feature_names[f], self._compiled.describe(down)
                    session.lose((f,), "unavailable", f"{name} is computed from {lacks}, unavailable")
                    return {}
                lacking = self._lacking(session, f, source)
                if lacking is None:
                    lost = True
                    continue
                if lacking:
                    waiting += lacking
                    continue
            if source in session.called and not source.takes_features:
                name = self._compiled.feature_names[f]
                session.receive_failure(
                    (f,), f"{source.name}: was called before and gave no {name}", source.name, None, charged=False
                )
                lost = True
                continue
            asked = by_source.get(source, ())
            if f not in asked:
                by_source[source] = (*asked, f)
        if lost and session.give_up_if_lost():
            return {}  # what else was to be fetched could not complete the node
        if not computed and sum(map(len, by_source.values())) == len(wanted):
            if len(self._usual_waves) >= WAVES_KEPT:
                self._usual_waves = {}
            self._usual_waves[wanted] = by_source  # the same for every row, unless a source was called before
        return by_source

    def _lacking(self, session: Session, feature: int, source: Source) -> list[int] | None:
        """The inputs that must be fetched before a feature can be computed; None if one of them is lost."""
        lacking = []
        for other in source.needs:
            if session.holds(other):
                session.accept_held((other,))
            if session.knows(other):
                continue
            reason = session.failure_of(other)
            if reason is not None:
                session.receive_failure((feature,), reason, source.name, None, charged=False)
                return None
            lacking.append(other)
        return lacking
