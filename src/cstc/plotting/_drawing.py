"""What all pictures share: colours, places, lines and texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..model import TreeShape
from ..model.sketch import letter_width

__all__ = ["CLASS_COLOURS", "COLOURS", "EDGE", "INK", "LINES", "MARKERS", "PALE", "plain"]
__all__ += ["as_number", "as_percent", "children", "connect", "layout", "log_ticks", "pyplot", "quiet", "spreads"]
__all__ += ["wide", "with_minus", "wrapped", "write"]

#: Okabe and Ito's colours: told apart by all kinds of colour vision, in print as well.  Their yellow is left out, since
#: it is hardly seen on white; a dark red of Tol's takes its place.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
#: Of classes, of which there may be more than curves in one picture.
CLASS_COLOURS = (*COLOURS, "#999933", "#BBAA99")
#: One fewer than the colours, so that colour and marker together come back after 56 curves only.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: The second round of colours is dashed, the third dotted.
LINES = ("-", "--", ":")
INK, PALE, EDGE = "#222222", "#5f6670", "#aab2bd"
#: Costs that differ by more than this factor are drawn on a logarithmic axis: on a linear one all but a few are zero.
SPREAD = 30.0


def pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("drawing needs matplotlib; install it with: pip install 'cstc[plot]'") from error
    return plt


def layout(shape: TreeShape) -> tuple[np.ndarray, np.ndarray]:
    """Places (column, row) of nodes and terminals, upper children above: each terminal has a row of its own."""
    nodes, terminals = np.zeros((shape.n_nodes, 2)), np.zeros((shape.n_terminals, 2))
    free_row = 0

    def place(element: int, column: float) -> float:
        nonlocal free_row
        if element < 0:
            terminals[-1 - element] = column, free_row
            free_row += 1
            return terminals[-1 - element, 1]
        if shape.is_leaf[element]:
            row = place(shape.upper[element], column + 0.62)
        else:
            row = (place(shape.upper[element], column + 1) + place(shape.lower[element], column + 1)) / 2
        nodes[element] = column, row
        return row

    place(0, 0.0)
    return nodes, terminals


def connect(ax: Any, start: Sequence[float], end: Sequence[float], share: float, scale: float = 1.0) -> None:
    """An edge from left to right whose thickness is the share of rows; dashed where no row goes."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    bend = (start[0] + end[0]) / 2
    path = Path([start, (bend, start[1]), (bend, end[1]), end], [Path.MOVETO, *[Path.CURVE4] * 3])
    style: dict[str, Any] = {"lw": scale * (1.2 + 9.0 * share)} if share > 0 else {"lw": 1.0, "ls": (0, (2, 2))}
    ax.add_patch(PathPatch(path, fc="none", ec=EDGE, capstyle="butt", zorder=1, **style))


def plain(name: Any) -> str:
    """A name that a user gave, for labels: in matplotlib's text, what stands between dollars is a formula."""
    return str(name).replace("$", r"\$")


def write(ax: Any, x: float, y: float, text: str, **options: Any) -> None:
    """Text with a white rim, readable on top of an edge."""
    from matplotlib.patheffects import withStroke

    options = {"ha": "center", "va": "center", "color": INK, "fontsize": 9, "zorder": 4, "parse_math": False} | options
    ax.text(x, y, text, path_effects=[withStroke(linewidth=2.5, foreground="white")], **options)


def children(shape: TreeShape, node: int) -> list[int]:
    """The elements right below a node; a leaf classifier has one terminal for both ways."""
    return list(dict.fromkeys((int(shape.upper[node]), int(shape.lower[node]))))


def quiet(ax: Any) -> None:
    """No box around the axes, no dark ticks."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["bottom", "left"]].set_color(EDGE)
    ax.tick_params(color=EDGE)


def spreads(costs: Any) -> bool:
    """Whether costs are so far apart that they need a logarithmic axis; what is free has its own place there."""
    paid = np.asarray(costs, dtype=float)
    paid = paid[paid > 0]
    return len(paid) > 1 and bool(paid.max() > SPREAD * paid.min())


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Where numbers are written on a logarithmic axis: powers of ten; where they are few, those times 2 and 5 too."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for times in ((1, 2, 5), (1, 3), (1,)):
        found = [m * 10.0**power for power in range(first, last + 1) for m in times]
        found = [value for value in found if low <= value <= high]
        if len(found) < most:
            break
    return found[:: max(1, math.ceil(len(found) / most))]


def wide(text: str, size: float) -> float:
    """About the width of a text in inches, at a size in points; rather more than less."""
    return size / 72 * sum(map(letter_width, text))


def wrapped(text: str, inches: float, size: float, most: int) -> list[str]:
    """A text in lines of a width, at words where there are any; what is longer than `most` lines ends with a sign."""
    lines, line = [], ""
    for word in text.split():
        while word:
            longer = f"{line} {word}" if line else word
            if wide(longer, size) <= inches:
                line, word = longer, ""
            elif line:
                lines.append(line)
                line = ""
            else:  # one word is too long for a line
                cut = next((n for n in range(len(word), 1, -1) if wide(word[:n], size) <= inches), 1)
                lines.append(word[:cut])
                word = word[cut:]
    lines += [line] if line else []
    if len(lines) > most:
        last = lines[most - 1]
        while last and wide(last + "…", size) > inches:
            last = last[:-1]
        lines = [*lines[: most - 1], last.rstrip(" ,") + "…"]
    return lines


def as_number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.2f}".rstrip("0").rstrip(".") if value >= 0.1 or not value else f"{value:.2g}"


def as_percent(share: float) -> str:
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


def with_minus(number: str) -> str:
    """A number with a real minus sign, and none before zero."""
    return number.lstrip("-") if not number.strip("-0.") else number.replace("-", "\N{MINUS SIGN}")
