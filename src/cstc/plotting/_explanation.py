"""How one answer came about: the prediction against the money that was spent."""

from __future__ import annotations

from textwrap import wrap
from typing import Any

from ..model.mixture import Mixture
from ..serving.compiled import fitted_tree
from ..serving.explain.words import about, class_name, percent, printed
from ._drawing import COLOURS, EDGE, INK, PALE, as_number, pyplot, quiet, with_minus

__all__ = ["ExplanationDisplay"]

MOST_CLASSES = 4  # with a colour and a name; the others are pale
FEW_STEPS = 6  # of more steps, only the first name of each is in the list
MOST_NAMES, LONGEST = 4, 40  # names in the list of a step, and letters of a name
POINTS = 11  # from one line of the list to the next
LINE = 50  # letters of a line of the list
NEAR = 0.035  # of the width: steps that are nearer share a number above the axes
FARTHEST = 1.5  # times what was spent, the next purchase is drawn at most that far out
TAIL = 0.12  # of what was spent, drawn after the last step where nothing follows


class ExplanationDisplay:
    """The prediction after each purchase against the money spent by then, and the next purchase, dotted.

    For classes there is a line for each, the most likely ones with their names; for numbers one line, with a band of
    the typical error where that is known.  The numbers above stand for the steps that are listed beside the picture.

    Parameters
    ----------
    explanation : Explanation

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from cstc import CSTCClassifier
    >>> from cstc.plotting import ExplanationDisplay
    >>> X, y = load_iris(return_X_y=True)
    >>> model = CSTCClassifier(costs=[1, 1, 2, 2], n_weak_learners=20, random_state=0).fit(X, y)
    >>> display = ExplanationDisplay.from_estimator(model, X[0])
    >>> display.figure_.savefig("explanation.png")  # doctest: +SKIP
    """

    def __init__(self, *, explanation):
        self.explanation = explanation

    @classmethod
    def from_explanation(cls, explanation, *, ax=None) -> ExplanationDisplay:
        """Draw an explanation, as `explain` of a model or of an answer gives it.

        Parameters
        ----------
        explanation : Explanation
        ax : matplotlib axes, optional
            The list of steps stands to the right of them.
        """
        return cls(explanation=explanation).plot(ax)

    @classmethod
    def from_estimator(
        cls, estimator, row, *, budget=None, unavailable=(), id=None, number=0, ax=None
    ) -> ExplanationDisplay:
        """Explain one row and draw it.

        Parameters
        ----------
        estimator : fitted estimator, FittedTree or Mixture
        row, budget, unavailable
            As in `explain`.
        id, number : optional
            Of the row, where the model is a `Mixture`.
        ax : matplotlib axes, optional
        """
        which = {}
        if isinstance(getattr(estimator, "model_", estimator), Mixture):
            which = {"id": id, "number": number}
        else:
            fitted_tree(estimator)  # says what is wrong with anything else
        return cls.from_explanation(estimator.explain(row, budget=budget, unavailable=unavailable, **which), ax=ax)

    def plot(self, ax: Any = None) -> ExplanationDisplay:
        """Draw into `ax`, or into a new figure."""
        plt = pyplot()
        list_lines = self._list()
        if ax is None:
            # inches: a list that is longer than the axes goes on below them
            high = max(3.6, 0.45 + POINTS / 72 * len(list_lines) + 0.2)
            figure, ax = plt.subplots(figsize=(8.4, high))
            lowest = max(0.54, high - 0.45 - 4.2)
            figure.subplots_adjust(left=0.1, right=0.56, top=1 - 0.45 / high, bottom=lowest / high)
        money, end = self._money()
        if self.explanation.outcome.probabilities is None:
            self._draw_number(ax, money, end)
        else:
            self._draw_classes(ax, money, end)
        self._draw_steps(ax, money, end)
        ax.set_xlabel("money spent")
        quiet(ax)
        ax.grid(axis="y", color="#e6e9ed", lw=0.8, zorder=0)
        for place, (text, colour, weight) in enumerate(list_lines):
            self._beside(ax, text, place, colour, weight)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    # -- numbers -------------------------------------------------------------------------------------------------

    def _beliefs(self) -> list[Any]:
        steps = self.explanation.steps
        return [self.explanation.start, *(step.after for step in steps)] if steps else [self.explanation.outcome]

    def _money(self) -> tuple[list[float], float]:
        """What was spent at each belief, and where the picture ends."""
        money = [0.0, *(step.spent for step in self.explanation.steps)]
        following = self.explanation.next_purchase
        further = 0.0 if following is None else following.price
        if money[-1] > 0:
            further = max(TAIL * money[-1], min(further, FARTHEST * money[-1]))
        return money, (money[-1] + further) or 1.0

    def _path(self, money: list[float], levels: list[float]) -> tuple[list[float], list[float]]:
        """Corners: the prediction stays until something is bought, and then jumps."""
        x, y = [money[0]], [levels[0]]
        for spent, level in zip(money[1:], levels[1:], strict=False):
            x += [spent, spent]
            y += [y[-1], level]
        return x, y

    def _draw_line(self, ax: Any, money: list[float], levels: list[float], end: float, **style: Any) -> None:
        x, y = self._path(money, levels)
        ax.plot(x, y, lw=1.8, solid_joinstyle="round", clip_on=False, zorder=3, **style)
        ax.plot(money[: len(levels)], levels, ls="", marker="o", ms=5, mec="white", clip_on=False, zorder=4, **style)
        if end > money[-1]:
            line = "-" if self.explanation.next_purchase is None else ":"
            ax.plot([money[-1], end], [levels[-1]] * 2, ls=line, lw=1.8, clip_on=False, zorder=3, **style)

    def _draw_number(self, ax: Any, money: list[float], end: float) -> None:
        beliefs = self._beliefs()
        levels = [float(belief.value) for belief in beliefs]
        for number, belief in enumerate(beliefs):
            if belief.uncertainty is not None:
                right = money[number + 1] if number + 1 < len(money) else end
                low, high = belief.value - belief.uncertainty, belief.value + belief.uncertainty
                ax.fill_between([money[number], right], low, high, color=COLOURS[0], alpha=0.15, lw=0, zorder=1)
        self._draw_line(ax, money, levels, end, color=COLOURS[0])
        ax.set_ylabel("prediction" + (", with its typical error" if beliefs[-1].uncertainty is not None else ""))
        ax.margins(y=0.12)
        ax.set_xlim(0, end)

    def _draw_classes(self, ax: Any, money: list[float], end: float) -> None:
        beliefs = [belief.probabilities for belief in self._beliefs()]
        ranked = sorted(beliefs[-1], key=lambda name: -beliefs[-1][name])
        named = ranked if len(ranked) <= MOST_CLASSES + 1 else ranked[:MOST_CLASSES]
        for name in reversed(ranked):
            colour = self._colour(name, named.index(name)) if name in named else "#cfd5dc"
            self._draw_line(ax, money, [shares[name] for shares in beliefs], end, color=colour)
        ax.set(ylim=(0, 1), xlim=(0, end), ylabel="probability", yticks=[0, 0.25, 0.5, 0.75, 1])
        ax.set_yticklabels(["0", "25%", "50%", "75%", "100%"])

    def _colour(self, name: Any, rank: int) -> str:
        """Of a class: the same in all pictures of a model, if there are colours enough."""
        classes = list(self.explanation.outcome.probabilities)
        return COLOURS[classes.index(name) if len(classes) <= len(COLOURS) else rank]

    def _draw_steps(self, ax: Any, money: list[float], end: float) -> None:
        """A thin line where something was bought, with the number of the step above it."""
        groups: list[tuple[float, list[int]]] = []
        for number, spent in enumerate(money[1:], 1):
            ax.axvline(spent, color=EDGE, lw=0.8, zorder=0)
            if groups and spent - groups[-1][0] < NEAR * end:
                groups[-1][1].append(number)
            else:
                groups.append((spent, [number]))
        for spent, numbers in groups:
            text = f"{numbers[0]}" if len(numbers) == 1 else f"{numbers[0]}–{numbers[-1]}"
            ax.text(spent / end, 1.025, text, transform=ax.transAxes, ha="center", va="bottom", fontsize=8, color=INK)
        room = (end - money[-1]) / end > 3 * NEAR
        if room and self.explanation.next_purchase is not None:
            middle = (money[-1] + end) / 2 / end
            ax.text(middle, 1.025, "next", transform=ax.transAxes, ha="center", va="bottom", fontsize=8, color=PALE)

    # -- the list beside it ----------------------------------------------------------------------------------------

    def _list(self) -> list[tuple[str, str, str]]:
        """Lines with their colour and weight."""
        explanation, lines = self.explanation, []
        lines += [(text, colour, "bold") for text, colour in self._answer_lines()]
        lines.append(("", INK, "normal"))
        most = MOST_NAMES if len(explanation.steps) <= FEW_STEPS else 1
        for number, step in enumerate(explanation.steps, 1):
            head = f"{number}  +{as_number(step.price)}: "
            names = sorted(step.features or step.failed, key=lambda name: -step.items.get(name, 0.0))
            lines += [(text, INK, "normal") for text in _wrapped(head + _names(names, most))]
        if not explanation.steps:
            lines.append(("nothing was bought", INK, "normal"))
        following = explanation.next_purchase
        if following is not None and following.features:
            head = f"next  +{as_number(following.price)}: "
            names = sorted(following.features, key=lambda name: -following.items.get(name, 0.0))
            lines += [(text, PALE, "normal") for text in _wrapped(head + _names(names, MOST_NAMES))]
            expected = following.expected
            if expected is not None and expected.worth is not None:
                worth, price = about(max(0.0, expected.worth), expected.price)
                more = "" if price == about(0.0, following.price)[1] else " with what may follow"
                lines.append((f"    expected to be worth {worth}, for {price}{more}", PALE, "normal"))
        return lines

    def _answer_lines(self) -> list[tuple[str, str]]:
        outcome = self.explanation.outcome
        if outcome.probabilities is None:
            off = "" if outcome.uncertainty is None else f" ± {outcome.uncertainty:.3g}"
            return [
                (f"{with_minus(f'{outcome.value:.4g}')}{off},  paid {as_number(self.explanation.cost)}", COLOURS[0])
            ]
        ranked = sorted(outcome.probabilities.items(), key=lambda each: -each[1])
        shown = ranked if len(ranked) <= MOST_CLASSES + 1 else ranked[:MOST_CLASSES]
        found = [
            (f"{_short(class_name(name))}: {percent(share)}", self._colour(name, place))
            for place, (name, share) in enumerate(shown)
        ]
        if len(shown) < len(ranked):
            rest = sum(share for _, share in ranked[len(shown) :])
            found.append((f"{len(ranked) - len(shown)} others: {percent(rest)}", EDGE))
        return [*found, (f"paid {as_number(self.explanation.cost)}", INK)]

    def _beside(self, ax: Any, text: str, place: int, colour: str, weight: str) -> None:
        options = {"color": colour, "fontweight": weight, "fontsize": 8, "parse_math": False}
        where = {"xy": (1.0, 1.0), "xycoords": "axes fraction", "textcoords": "offset points"}
        # in points, so that lines keep their distance whatever the size of the axes
        ax.annotate(text, xytext=(16, -POINTS * place), ha="left", va="top", annotation_clip=False, **where, **options)


def _names(names: list[str], most: int) -> str:
    shown = ", ".join(map(_short, names[:most]))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _short(name: str) -> str:
    name = printed(name)
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _wrapped(text: str) -> list[str]:
    return wrap(text, LINE, subsequent_indent="    ", break_long_words=True)
