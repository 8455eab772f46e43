"""Formulas as MathML, made at build: browsers draw them without a script, in the colour of the text around them.

The font is STIX Two Math (SIL Open Font License), which the package ziamath ships; it is copied beside the pages, since
few systems have a font for mathematics.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

FONT = "STIXTwoMath-Regular.ttf"
#: What latex2mathml does not know, or sets badly, and what says the same: norms of any size, space after a logarithm,
#: no space of its own between the lines of a case, and letters of other alphabets, which it knows in braces only.
INSTEAD = (
    (r"\\lVert|\\rVert", "‖"),
    (r"(\\[Bb]ig‖)_", r"\1{}_"),  # browsers do not stretch what has an index
    (r"\\log\b", r"\\log\\,"),
    (r"\\\\\[\w+\]", r"\\\\"),
    (r"\\(mathcal|mathbb) (\w)", r"\\\1{\2}"),
)

logger = logging.getLogger(__name__)


def as_mathml(latex: str, *, block: bool) -> str:
    """One formula; a ValueError names what cannot be said in MathML."""
    for pattern, instead in INSTEAD:
        latex = re.sub(pattern, instead, latex)
    made = convert(latex, display="block" if block else "inline")
    made = re.sub(r"<mo([^>]*)>(\||‖|&#x0007C;|&#x02016;)</mo>", r'<mo\1 lspace="0" rspace="0">\2</mo>', made)
    made = made.replace("<mo minsize=", '<mo stretchy="true" minsize=')
    made = made.replace("<mover><mi>", '<mover accent="true"><mi>')  # a bar is near its letter
    if "\\" in made or "mathvariant" in made:
        raise ValueError(f"a part of this formula has no MathML: {latex}")
    return made


def _visit(translator: Any, node: nodes.Element, *, block: bool) -> None:
    try:
        made = as_mathml(node.astext(), block=block)
    except Exception as error:  # whatever it is, it is said where the formula stands, and fails the build
        logger.warning("%s", error, location=node)
        raise nodes.SkipNode from error
    translator.body.append(f'<div class="math-block" tabindex="0">{made}</div>' if block else made)
    raise nodes.SkipNode


def _inline(translator: Any, node: nodes.Element) -> None:
    _visit(translator, node, block=False)


def _block(translator: Any, node: nodes.Element) -> None:
    _visit(translator, node, block=True)


def _bring_font(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        folder = Path(app.outdir) / "_static" / "fonts"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FONT).write_bytes((files("ziamath.fonts") / FONT).read_bytes())


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    app.connect("build-finished", _bring_font)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
