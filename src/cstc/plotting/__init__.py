"""Pictures of a fitted tree, and of quality against cost.

Display classes in scikit-learn's manner: `from_estimator` or `from_predictions` computes what is to be seen and
draws it; the display keeps the numbers, and `plot` draws them again elsewhere.

`TreeDisplay`
    The tree with the average label above each node (paper, figure "jaccard", left), what each node buys, and
    what each path costs.
`NodePredictionsDisplay`
    The tree with the predictions and the weights of every node (paper, figure "CSTC on synthetic data").
`CostQualityDisplay`
    Quality against cost, one curve for each system (paper, figure "versus").
`JaccardDisplay`
    How many features each two predictive classifiers have in common (paper, figure "jaccard", right).
`ExtractionDisplay`
    The share of the features of each price that is extracted by depth (paper, figure "features").
`ExplanationDisplay`
    How one answer came about: the prediction against the money spent, purchase by purchase.

matplotlib is imported when something is drawn; it comes with the extra ``cstc[plot]``.
"""

from ._cost_quality import CostQualityDisplay
from ._drawing import COLOURS
from ._explanation import ExplanationDisplay
from ._extraction import ExtractionDisplay
from ._jaccard import JaccardDisplay
from ._node_predictions import NodePredictionsDisplay
from ._tree import TreeDisplay

__all__ = [
    "COLOURS",
    "CostQualityDisplay",
    "ExplanationDisplay",
    "ExtractionDisplay",
    "JaccardDisplay",
    "NodePredictionsDisplay",
    "TreeDisplay",
]
