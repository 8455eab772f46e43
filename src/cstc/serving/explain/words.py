"""An explanation in sentences, for readers who never heard of the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explanation import Belief, Explanation, Step

__all__ = ["about", "answer_in_words", "as_text", "belief_in_words", "bought_in_words", "class_name", "listed"]
__all__ += [
    "decision_in_words",
    "lost_in_words",
    "next_in_words",
    "paid_in_words",
    "percent",
    "printed",
    "speaks_of_worth",
    "value_in_words",
    "worth_in_words",
]

WIDTH = 100
MOST_FEATURES, MOST_CLASSES, MOST_LETTERS = 12, 3, 60
WORTH = (
    "About worth: a better answer is put into money at a rate that was chosen when the model was made, and something "
    "is bought if it is estimated to be worth more than it costs. The estimates come from earlier cases like this one, "
    "before the result is known."
)


WORTH_OF_ERRORS = (
    "About worth: something is bought if the errors that it is expected to save cost more than it does. The estimates "
    "come from earlier cases like this one, before the result is known."
)


def worth_in_words(explanation: Explanation) -> str:
    """What worth means; where errors have prices and are weighed as they are, no rate comes between."""
    return WORTH if explanation.decisions is None or explanation.cost_weight != 1 else WORTH_OF_ERRORS


def as_text(explanation: Explanation) -> str:
    """All of it, as paragraphs."""
    parts = [printed(explanation.taken)] if explanation.taken else []
    if explanation.decisions is not None:
        parts.append(decision_in_words(explanation))
    parts += [
        f"{'Answer' if explanation.decisions is None else 'Most likely'}: {answer_in_words(explanation.outcome)}",
        paid_in_words(explanation),
    ]
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
    if speaks_of_worth(explanation):
        lines += ["", fill(worth_in_words(explanation), WIDTH)]
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
    prices = step.items
    names = sorted(step.features, key=lambda name: -prices.get(name, 0.0))
    values = [f"{printed(name)} = {value_in_words(step.features[name])}" for name in names]
    if not step.price:
        return f"Looked at, for nothing more to pay: {listed(values, most)}."
    alike = len(prices) > 2 and len(set(prices.values())) == 1 and set(prices) == set(names)
    if len(prices) > 1 and set(prices) <= set(names) and not alike:  # every item is the feature of its name
        told = {name: f"for {money(prices[name])}" if prices.get(name) else "free" for name in names}
        values = [f"{text} ({told[name]})" for name, text in zip(names, values, strict=True)]
    text = f"Bought for {money(step.price)}: {listed(values, most) if values else 'nothing came of it'}."
    if set(prices) <= set(names):
        return f"{text} Each costs {money(max(prices.values()))}." if alike else text
    paid = sorted(((name, price) for name, price in prices.items() if price), key=lambda each: -each[1])
    bill = [f"{printed(name)} {money(price)}" for name, price in paid]
    return f"{text} The bill: {listed(bill, most)}."


def change_in_words(step: Step) -> str:
    """The prediction after a step, and what it was before."""
    before, after = step.before, step.after
    if before == after:
        return f"Prediction, as before: {belief_in_words(after)}."
    if after.probabilities is None or before.probabilities is None:
        return f"Prediction now: {belief_in_words(after)}; it was {belief_in_words(before)}."
    ranked = _ranked(after)
    told = [
        f"{class_name(name)} {percent(share)} (was {percent(before.probabilities[name])})"
        for name, share in ranked[: len(_shown(ranked))]
    ]
    text = f"Prediction now: {', '.join(told)}"
    if len(told) < len(ranked):
        text += f", {_others(ranked)}"
    if len(ranked) == 2 or after.uncertainty is None or before.uncertainty is None:
        return f"{text}."
    return f"{text}. Chance of being wrong: {percent(after.uncertainty)} (was {percent(before.uncertainty)})."


def answer_in_words(belief: Belief) -> str:
    """The answer in a sentence, or two."""
    if belief.probabilities is None:
        return f"{belief_in_words(belief)}."
    (name, share), *others = _ranked(belief)
    text = f"{class_name(name)}, with a probability of {percent(share)}."
    if len(others) <= MOST_CLASSES:
        return f"{text} Otherwise: {', '.join(f'{class_name(each)} {percent(part)}' for each, part in others)}."
    told = ", ".join(f"{class_name(each)} {percent(part)}" for each, part in others[: MOST_CLASSES - 1])
    return f"{text} Otherwise: {told}, {_others(_ranked(belief))}."


def decision_in_words(explanation: Explanation) -> str:
    """Where errors have prices, what was decided and what the other decisions were expected to cost."""
    decided = explanation.outcome.value
    costs = explanation.decisions or {}

    def named(decision: Any) -> str:
        return "refer to a person" if decision is None else class_name(decision)

    others = [f"{named(each)} {money(cost)}" for each, cost in costs.items() if each != decided]
    return (
        f"Decision: {named(decided)}. It is expected to cost {money(costs[decided])} in errors; "
        f"otherwise: {listed(others, MOST_CLASSES)}."
    )


def _ranked(belief: Belief) -> list[tuple[Any, float]]:
    """Classes, the most likely one first."""
    return sorted((belief.probabilities or {}).items(), key=lambda each: -each[1])


def _shown(ranked: list[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Those that are named: no single one is left out."""
    return ranked if len(ranked) <= MOST_CLASSES + 1 else ranked[:MOST_CLASSES]


def _others(ranked: list[tuple[Any, float]]) -> str:
    left = ranked[len(_shown(ranked)) :]
    return f"{len(left)} others {percent(sum(share for _, share in left))} together"


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
    by_price = sorted(following.features, key=lambda name: -following.items.get(name, 0.0))
    names = listed([printed(name) for name in by_price], MOST_FEATURES)
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
    ranked = _ranked(belief)
    shown = _shown(ranked)
    text = ", ".join(f"{class_name(name)} {percent(share)}" for name, share in shown)
    return text + (f", {_others(ranked)}" if len(shown) < len(ranked) else "") + sure_in_words(belief)


def sure_in_words(belief: Belief) -> str:
    """The uncertainty, in brackets."""
    if belief.uncertainty is None:
        return ""
    if belief.probabilities is None:
        return f" (typically off by {number_in_words(belief.uncertainty, belief.uncertainty)})"
    # of two classes, the other one's probability is the chance of being wrong
    return "" if len(belief.probabilities) == 2 else f" (chance of being wrong: {percent(belief.uncertainty)})"


def speaks_of_worth(explanation: Explanation) -> bool:
    """Whether anything was weighed, so that the reader must know what worth is."""
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
    decimals = digits - 1 - size
    text = f"{round(value, decimals):,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


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
