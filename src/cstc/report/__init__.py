"""A frontier as one page to look at: which model for which budget, what it buys and why, how it was made.

`_saved` says what a page is made of, `_measured` is what rows say of each model, `_axis` and `_html` are what all parts
share. Then one file for each part of the page: `_models` (the frontier and its slider), `_tree`, `_money`, `_costs`,
`_promises` (calibration), `_spenders`, `_made` and `_meaning`. `_page` puts them together with ``page.css`` and
``page.js`` into one file that asks nobody for anything.
"""

from ._page import report_page, write_report

__all__ = ["report_page", "write_report"]
