"""The method of an estimator, by name or as an object; and where parameters went that were the estimator's once."""

from __future__ import annotations

from typing import Any

from ..experts.method import Experts
from ..method import Method
from ..paper.exact import Exact
from ..paper.method import Paper

__all__ = ["explain_unknown", "method_of"]

METHODS: dict[str, type[Method]] = {"paper": Paper, "experts": Experts, "exact": Exact}

#: Parameters that left the estimators: the methods that have them now, by the name that they have there.
MOVED = {
    "l1_weight": "Paper and Exact",
    "depth": "Paper and Exact",
    "max_nodes": "Paper and Exact",
    "solver": "Paper and Exact",
    "max_iter": "Paper and Exact",
    "tol": "Paper and Exact",
    "validation_fraction": "Paper and Exact",
    "dtype": "Paper and Exact",
    "pruning": "Paper",
    "fine_tuning": "Paper",
}
#: Parameters that are gone, or have another name, with what to do instead.
GONE = {
    "cross_fit": "it is `folds` of Experts now: method=Experts(folds=...)",
    "cost_strengths": "it belonged to ensembles as columns, which are gone; leave it out",
}


def method_of(method: Any, weak_learners: str) -> Method:
    """The method that a parameter means: "auto", a name, or an object."""
    if isinstance(method, str):
        if method == "auto":
            return Experts() if weak_learners == "boosted" else Exact()
        if method in METHODS:
            found: Any = METHODS[method]()
        elif method == "refined":
            raise ValueError("method 'refined' is 'exact' now, for weak_learners='identity'; boosted trees: 'experts'")
        else:
            raise ValueError(f"method is {method!r}; {_RIGHT}")
    else:
        found = method
    if not isinstance(found, Method):
        raise ValueError(f"method is {_shown(found)}; {_RIGHT}")
    if weak_learners not in found.takes:
        raise ValueError(
            f"method {type(found).__name__} is for weak_learners={found.takes[0]!r}, not for {weak_learners!r}; "
            "take method='auto', or 'paper', which is for both"
        )
    found.check()
    return found


_RIGHT = "it must be 'auto', 'paper', 'experts', 'exact', or an object such as Paper(depth=3)"


def _shown(method: Any) -> str:
    return f"{method.__name__}, a class" if isinstance(method, type) else repr(method)


def explain_unknown(name: str, method: Any) -> str | None:
    """What to say of a parameter that `set_params` was given and the estimator does not have."""
    own, _, nested = name.partition("__")
    if own == "method" and nested and not isinstance(method, Method):
        owners = [kind.__name__ for kind in METHODS.values() if nested in kind().get_params()]
        return (
            f"method is {_shown(method)}, which has no parameters to set; give an object first: "
            f"set_params(method={owners[0] if owners else 'Paper'}()).set_params({name}=...)"
        )
    if own in MOVED:
        return (
            f"{own} is a parameter of {MOVED[own]} now: method=Paper({own}=...), or set_params(method__{own}=...) "
            "once method is such an object"
        )
    if own in GONE:
        return f"{own} is no parameter any more: {GONE[own]}"
    return None
