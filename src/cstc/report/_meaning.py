"""What the numbers mean, in words."""

from __future__ import annotations

from ..metrics import ERROR_COST, places_of
from ._html import name
from ._saved import Contents

__all__ = ["meaning_part"]

QUALITIES = {
    "AUC": "Of two rows of different classes, how often the one that is more likely to be of the second class gets the "
    "higher probability: 0.5 is a coin, 1 is never wrong. With more than two classes, the mean of each class against "
    "all others.",
    "R²": "The part of the differences between rows that the predictions explain: 0 is as good as the mean, 1 is "
    "perfect, and below 0 the mean would be better.",
    ERROR_COST: "What wrong decisions cost for each row, with a minus, so that more is better.",
}


NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


def _meaning_of(quality: str) -> str:
    at = places_of(quality)
    if at is None:
        own = "A measure that was chosen when the frontier was made; higher is better."
        return QUALITIES.get(quality, own)
    if at == 1:
        return "How good the first of each query is, by the predictions, against the best one there is: 1 is perfect."
    first = NUMBERS[at - 1] if at <= len(NUMBERS) else at
    return (
        f"How good the first {first} of each query are, in the order of the predictions, against the best order there "
        "is: 1 is perfect."
    )


def meaning_part(contents: Contents) -> str:
    entries = {
        "Cost of a row": "The prices of all items that were bought for it, each paid once, however many features need "
        "it. Each row takes its own path through the tree and buys only what that path looks at.",
        "Mean, 95th percentile, maximum": "What a row costs on average, what 95 of 100 rows stay below, and the most "
        "that any of them paid.",
        name(contents.quality_name): _meaning_of(contents.quality_name),
        "Standard error (±)": "How far a figure would typically be off if other rows of the same kind had been "
        "measured. Two models that are closer than this cannot be told apart.",
        "Budget": "The page shows the best model whose mean cost is within it. A mean is met on average: single rows "
        "may cost more.",
        "Cost weight": "How much loss one unit of money must save to be spent. A larger weight buys less.",
        "Node": "A place in the tree where something is bought and rows are sent on, or get their answer.",
        "Loss saved": "How much worse the answers of all rows would be without the item, on average. Two items that "
        "say the same save little each. In money it is divided by the cost weight.",
    }
    if contents.models[-1].schema.classes is not None:
        entries["Promises kept"] = (
            "Of rows that are given a probability of 70%, about 70% should turn out so. Where that holds, "
            "probabilities can be used to weigh what a decision costs."
        )
    if contents.in_money:
        entries["Total cost"] = "What features and wrong decisions cost together, for each row. Less is better."
    listed = "".join(f"<div><dt>{head}</dt><dd>{text}</dd></div>" for head, text in entries.items())
    return (
        '<section id="meaning" aria-labelledby="meaning-head"><h2 id="meaning-head">What the numbers mean</h2>'
        f'<dl class="made">{listed}</dl></section>'
    )
