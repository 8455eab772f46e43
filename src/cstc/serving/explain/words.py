"""An explanation in sentences, for readers who never heard of the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explanation import Belief, Explanation, Step

__all__ = ["about", "as_text", "belief_in_words", "change_in_words", "listed", "money", "percent", "printed", "value_in_words"]
__all__ += ["WORTH", "bought_in_words", "class_name", "lost_in_words", "next_in_words", "paid_in_words", "sure_in_words"]

WIDTH = 100
MOST_FEATURES, MOST_CLASSES, MOST_LETTERS = 12, 3, 60
WORTH = (
    "Worth: how much money a better answer may cost, at the rate between errors and money that this model was trained "
    "with. It is an estimate made before the purchase, from similar cases."
)


def as_text(explanation: Explanation) -> str:
    """All of it, as paragraphs."""
    parts = [f"Answer: {belief_in_words(explanation.outcome)}.", paid_in_words(explanation)]
    if explanation.given:
        known = [f"{printed(name)} = {value_in_words(value)}" for name, value in explanation.given.items()]
        parts.append(f"Known from the start, for nothing: {listed(known, MOST_FEATURES)}.")
    parts.append(f"Before anything was bought: {belief_in_words(explanation.start)}.")
    lines = [fill(part, WIDTH) for part in parts]
    for number, step in enumerate(explanation.steps, 1):
        lines += ["", *_step_lines(number, step)]
    lines += ["", fill(f"Why it stopped: {explanation.stopped_because}", WIDTH)]
    for more in (lost_in_words(explanation), next_in_words(explanation), *explanation.warnings):
        if more:
            lines.append(fill(printed(more), WIDTH))
    if _speaks_of_worth(explanation):
        lines += ["", fill(WORTH, WIDTH)]
    return "\n".join(lines)


def _step_lines(number: int, step: Step) -> list[str]:
    head = f"{number}. "
    indent = " " * len(head)

    def wrapped(text: str, first: str = indent) -> str:
        return fill(text, WIDTH, initial_indent=first, subsequent_indent=indent)

    lines = [wrapped(bought_in_words(step), head)]
    lines += [wrapped(f"Did not come: {printed(name)} ({printed(why)}).") for name, why in step.failed.items()]
    return [*lines, wrapped(f"Why: {step.why}"), wrapped(change_in_words(step))]


def paid_in_words(explanation: Explanation) -> str:
    """The bill in a sentence."""
    n_steps = len(explanation.steps)
    if not n_steps:
        return f"Paid: {money(explanation.cost)}. Nothing was bought."
    computing = f" (of that {money(explanation.evaluation)} for computing)" if explanation.evaluation else ""
    return f"Paid: {money(explanation.cost)}{computing}, in {n_steps} step{'s' if n_steps > 1 else ''}."


def bought_in_words(step: Step, most: int = MOST_FEATURES) -> str:
    """What a step bought, with values and prices."""
    prices, names = step.items, list(step.features)
    own = [name for name in names if name in prices]
    names.sort(key=lambda name: -prices.get(name, 0.0))
    found = [f"{printed(name)} = {value_in_words(step.features[name])}" for name in names]
    what = listed(found, most) if found else "nothing that came"
    if not step.price:
        return f"Looked at, for nothing more to pay: {what}."
    text = f"Bought for {money(step.price)}: {what}."
    if len(own) == len(prices) and len(prices) == 1:
        return text
    bill = [f"{printed(name)} {money(price)}" for name, price in sorted(prices.items(), key=lambda each: -each[1])]
    if len(set(prices.values())) == 1 and set(prices) == set(step.features):
        return f"{text} Each costs {money(next(iter(prices.values())))}."
    return f"{text} The bill: {listed(bill, most)}."


def change_in_words(step: Step) -> str:
    """The prediction before and after."""
    before, after = belief_in_words(step.before), belief_in_words(step.after)
    if before == after:
        return f"The prediction stays: {after}."
    return f"The prediction was {before}; now it is {after}."


def lost_in_words(explanation: Explanation) -> str:
    """What an answer rests on that is not complete."""
    if not explanation.basis:
        return ""
    text = f"The answer rests on {explanation.basis}."
    if explanation.shortfall and explanation.cost_weight:
        worth = explanation.shortfall / explanation.cost_weight
        text += f" On average that makes it worse, by as much as about {about(worth, 0.0)[0]} is worth."
    return text


def next_in_words(explanation: Explanation) -> str:
    """What would be bought next, for how much, and what it would be worth."""
    following = explanation.next_purchase
    if following is None:
        return ""
    if not following.features:
        return "The next step would need nothing that is not known."
    names = listed([printed(name) for name in following.features], MOST_FEATURES)
    text = f"The next purchase would be {names}, for {'up to ' if len(following.features) > 1 else ''}"
    text += f"{money(following.price)}"
    expected = following.expected
    if expected is None:
        return f"{text}; what that is worth is not known."
    if expected.worth is None or expected.of_this_row:  # then that is why it stopped, and was said
        return f"{text}."
    return f"{text}; on average the better answer is worth about {about(expected.worth, following.price)[0]}."


def belief_in_words(belief: Belief) -> str:
    """A prediction and how sure it is."""
    if belief.probabilities is None:
        return number_in_words(belief.value, belief.uncertainty) + sure_in_words(belief)
    ranked = sorted(belief.probabilities.items(), key=lambda each: -each[1])
    shown = ranked if len(ranked) <= MOST_CLASSES + 1 else ranked[:MOST_CLASSES]
    text = ", ".join(f"{class_name(name)} {percent(share)}" for name, share in shown)
    if len(shown) < len(ranked):
        rest = sum(share for _, share in ranked[len(shown) :])
        text += f", {len(ranked) - len(shown)} others {percent(rest)}"
    return text + sure_in_words(belief)


def sure_in_words(belief: Belief) -> str:
    """The uncertainty, in brackets."""
    if belief.uncertainty is None:
        return ""
    if belief.probabilities is None:
        return f" (typically off by {number_in_words(belief.uncertainty, belief.uncertainty)})"
    # of two classes, the other one's probability is the chance of being wrong
    return "" if len(belief.probabilities) == 2 else f" (wrong in {percent(belief.uncertainty)} of such cases)"


def _speaks_of_worth(explanation: Explanation) -> bool:
    following = explanation.next_purchase
    forecasts = [step.expected for step in explanation.steps] + [following.expected if following else None]
    return any(each is not None and each.worth is not None for each in forecasts)


def class_name(name: Any) -> str:
    """A class that is a number is called so."""
    return f"class {name}" if isinstance(name, int | float) and not isinstance(name, bool) else printed(str(name))


def percent(share: float) -> str:
    if math.isnan(share):
        return "unknown"
    if 0 < share < 0.01:
        return "under 1%"
    return "over 99%" if 0.99 < share < 1 else f"{share:.0%}"


def money(value: float) -> str:
    """An amount without a currency: 12, 12.50, 1,234."""
    if value and abs(value) < 0.1:
        return f"{value:.2g}"
    text = f"{value:,.2f}" if abs(value) < 1e15 else f"{value:.3g}"
    return text.removesuffix(".00")


def about(first: float, second: float) -> tuple[str, str]:
    """Two estimates in few digits, but enough of them to see which is larger."""
    for digits in (2, 3, 4):
        texts = _in_digits(first, digits), _in_digits(second, digits)
        if texts[0] != texts[1]:
            break
    return texts


def _in_digits(value: float, digits: int) -> str:
    size = math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 0
    return f"{round(value, digits - 1 - size):,.{max(0, digits - 1 - size)}f}"


def number_in_words(value: float, uncertainty: float | None) -> str:
    """A predicted number with no more digits than its error has meaning for."""
    if not math.isfinite(value):
        return "unknown"
    size = uncertainty if uncertainty else abs(value) / 100
    decimals = min(12, max(0, 1 - math.floor(math.log10(size)))) if size > 0 else 2
    return f"{value:,.{decimals}f}"


def value_in_words(value: Any) -> str:
    """The value of a feature."""
    value = value.item() if hasattr(value, "item") and not getattr(value, "ndim", 0) else value
    if value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and math.isnan(value)):
        return "missing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        text = f"{value:.6g}"
        return f"{value:,.0f}" if "e+" in text and abs(value) < 1e15 else text
    text = printed(str(value))
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


def listed(texts: Sequence[str], most: int) -> str:
    """The first of some texts, and how many others there are."""
    if len(texts) > most:
        return ", ".join(texts[:most]) + f" and {len(texts) - most} more"
    return ", ".join(texts)


def printed(name: Iterable[str]) -> str:
    """A name without what does not print, such as line ends."""
    return "".join(letter if letter.isprintable() else " " for letter in name)
