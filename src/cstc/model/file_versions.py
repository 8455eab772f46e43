"""What the files of each version hold: the names of their members, and the types of what is in them.

Every version is read for ever.  A model is written in the latest one that has anything new for its kind: trees and
mixtures in version 3, whole queries of one chain in version 4, and of several in version 5.  A version of trees is one
entry of `VERSIONS`: what it has beyond the one before.  `file_tree` says what becomes of that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

__all__ = [
    "DOCUMENT",
    "LATEST",
    "LATEST_OF_TREES",
    "MANIFEST",
    "MIXTURE",
    "MIXTURE_CONTENTS",
    "QUERIES",
    "QUERIES_CONTENTS",
    "VERSIONS",
    "WITH_CHAINS_OF_QUERIES",
    "WITH_QUERIES",
    "Version",
    "contents_of",
    "member_of",
]

MANIFEST = "manifest.json"
DOCUMENT = "model.json"
MIXTURE = "mixture.json"
MIXTURE_CONTENTS = (MIXTURE, "cheaper.cstc", "costlier.cstc")
QUERIES = "queries.json"
QUERIES_CONTENTS = (QUERIES, "tree.cstc")
FIRST_WITH_MIXTURES = 3
WITH_QUERIES, WITH_CHAINS_OF_QUERIES = 4, 5  # and nothing else


def member_of(name: str) -> str:
    """The member that an array is."""
    return f"arrays/{name}.npy"


@dataclass(frozen=True)
class Version:
    """What the files of trees hold."""

    entries: Mapping[str, tuple[type, ...]]  # of model.json, with the types that each may have
    arrays: Mapping[str, tuple[str, int]]  # type and number of dimensions

    @property
    def contents(self) -> tuple[str, ...]:
        """All members but the manifest, in their order."""
        return DOCUMENT, *map(member_of, self.arrays)

    def with_more(
        self,
        entries: Mapping[str, tuple[type, ...]] | None = None,
        arrays: Mapping[str, tuple[str, int]] | None = None,
    ) -> Version:
        """The version after this one."""
        return Version({**self.entries, **(entries or {})}, {**self.arrays, **(arrays or {})})


_FIRST = Version(
    entries={
        "features": (list,),
        "categories": (dict,),
        "classes": (dict, type(None)),
        "link": (str,),
        "items": (list,),
        "evaluation": (float,),
    },
    arrays={
        "roots": ("<i4", 1),
        "feature": ("<i4", 1),
        "threshold": ("<f8", 1),
        "left": ("<i4", 1),
        "right": ("<i4", 1),
        "missing_left": ("|b1", 1),
        "zero_is_missing": ("|b1", 1),
        "category_start": ("<i4", 1),
        "category_count": ("<i4", 1),
        "category_left": ("|b1", 1),
        "value": ("<f8", 1),
        "linear_feature": ("<i4", 1),
        "upper": ("<i4", 1),
        "lower": ("<i4", 1),
        "predict_places": ("<i8", 1),  # in (n_learners, n_nodes, n_outputs), rows first
        "predict_values": ("<f8", 1),
        "predict_intercepts": ("<f8", 2),
        "route_places": ("<i8", 1),  # in (n_learners, n_nodes)
        "route_values": ("<f8", 1),
        "thresholds": ("<f8", 1),
        "constant": ("<f8", 1),
        "prices": ("<f8", 1),
        "feature_item_places": ("<i8", 1),  # in (n_features, n_items)
        "may_miss": ("|b1", 1),
    },
)
_SECOND = _FIRST.with_more(
    entries={"booleans": (list,), "training": (dict,), "estimates": (dict, type(None))},
    arrays={
        "share_left": ("|u1", 1),  # in steps of 1/254
        "means": ("<f8", 1),
        "fallback_places": ("<i8", 1),  # in (n_learners, n_fallbacks, n_outputs)
        "fallback_values": ("<f8", 1),
        "fallback_intercepts": ("<f8", 2),
        "losses": ("<f8", 2),  # these six of the estimates, empty where there are none
        "path_losses": ("<f8", 1),
        "harm": ("<f8", 2),
        "set_places": ("<i8", 1),  # in (n_sets, n_features)
        "set_harm": ("<f8", 2),
        "source_places": ("<i8", 1),  # in (n_sources, n_features)
    },
)
_THIRD = _SECOND.with_more(
    entries={"limit": (float, type(None))},
    arrays={"error_costs": ("<f8", 2)},  # the truth by decisions; empty where errors have no prices
)
VERSIONS = {1: _FIRST, 2: _SECOND, 3: _THIRD}
LATEST_OF_TREES = max(VERSIONS)
LATEST = WITH_CHAINS_OF_QUERIES


def contents_of(version: int, names: Collection[str]) -> tuple[str, ...]:
    """All members but the manifest that a file of a version must have, by what it says it is."""
    if version in (WITH_QUERIES, WITH_CHAINS_OF_QUERIES):
        return QUERIES_CONTENTS
    if version >= FIRST_WITH_MIXTURES and MIXTURE in names:
        return MIXTURE_CONTENTS
    return VERSIONS[version].contents
