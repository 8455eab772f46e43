"""Whether probabilities keep their promise: of rows that are given 70%, do about 70% turn out so?"""

from __future__ import annotations

from ._html import class_text, fold, name, percent, plural, table
from ._measured import Bin, ModelSeen, TestRows

__all__ = ["promises_part"]


def promises_part(seen: ModelSeen, rows: TestRows | None) -> str:
    """Of classifiers only; nothing for models of numbers."""
    classes = seen.model.schema.classes
    if classes is None:
        return ""
    if not seen.bins:
        return "<p>This needs test rows with labels: give them to see whether probabilities keep their promise.</p>"
    if len(classes) == 2:
        of, came = f"the class {name(class_text(classes[1]))}", "were of that class"
    else:
        of, came = "the class that was most likely", "were of it"
    off = sum(each.n * abs(each.came - each.promised) for each in seen.bins) / sum(each.n for each in seen.bins)
    told = (
        f"Rows are grouped by the probability that they were given for {of}. On average, the share that {came} is "
        f"{_points(off)} away from the promise. On the line, promises are kept; a bar is what chance alone moves."
    )
    ticks = "".join(
        f'<span class="tick x" style="left:{at}%">{at}%</span><span class="tick y" style="bottom:{at}%">{at}%</span>'
        for at in (0, 25, 50, 75, 100)
    )
    grid = "".join(f'<path class="grid" d="M0 {at}H100M{at} 0V100"/>' for at in (0, 25, 50, 75, 100))
    bars, dots = "".join(map(_error, seen.bins)), "".join(map(_dot, seen.bins))
    cells = [
        [percent(each.promised), percent(each.came), f"{100 * each.error:.0f}", f"{each.n:,}"] for each in seen.bins
    ]
    return (
        f'<p>{told}</p><figure class="promises"><p class="axis-name">what came of it</p>'
        f'<div class="area square" role="img" aria-label="Promised and observed probabilities, '
        f'{plural(len(seen.bins), "group")} of rows; the table below has the numbers">'
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">{grid}'
        f'<path class="kept" d="M0 100L100 0"/>{bars}</svg>{dots}<div aria-hidden="true">{ticks}</div></div>'
        '<p class="axis-name">probability that was promised</p></figure>'
        + fold(
            "The points as a table",
            table("Promised and observed", ["promised", "came true", "chance alone (points)", "rows"], cells),
        )
    )


def _points(share: float) -> str:
    points = 100 * share
    return f"{points:.1f} percentage points"


def _error(each: Bin) -> str:
    x = 100 * each.promised
    low, high = (100 - 100 * min(1.0, max(0.0, each.came + sign * each.error)) for sign in (-1, 1))
    return f'<path class="error" d="M{x:.2f} {low:.2f}V{high:.2f}"/>'


def _dot(each: Bin) -> str:
    return f'<i class="mark-dot" style="left:{100 * each.promised:.2f}%;bottom:{100 * each.came:.2f}%"></i>'
