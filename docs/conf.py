"""The site: `make docs` builds it into build/docs/html, without a network and for readers without one.

The pages are the Markdown files beside this one, which are also read on their own; the tutorials are the scripts of
examples/tutorials, run at build; the reference comes from the docstrings.  A warning fails the build.
"""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import cstc  # noqa: E402

# ---------------------------------------------------------------------------------------------- what it is

project = "cstc"
author = "the cstc developers"
copyright = "the cstc developers, BSD-3 licence"
version = release = cstc.__version__

extensions = [
    "mathml",  # _ext/mathml.py
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_ext", "_static", "_templates", "**/GALLERY_HEADER.rst"]
templates_path = ["_templates"]
default_role = "code"  # `Experts` in a docstring
nitpicky = True  # a name in a docstring or a link that leads nowhere is a warning, and a warning fails the build
suppress_warnings = ["config.cache"]  # sphinx_gallery_conf holds functions, which are not kept between builds

# ---------------------------------------------------------------------------------------------- Markdown

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3  # `frontier.md#the-grid`, as in other readers of Markdown
html_math_renderer = "mathml"

# ---------------------------------------------------------------------------------------------- the reference

autosummary_generate = True
autosummary_ignore_module_all = False
autodoc_typehints = "none"  # types are in the docstrings, in words
autodoc_member_order = "bysource"
add_module_names = False
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False  # _templates/autosummary/class.rst lists them
numpydoc_xref_param_type = False
# What is wrong with a docstring whatever its style; the other checks of numpydoc are about habits that differ here.
numpydoc_validation_checks = {"GL01", "GL05", "GL06", "GL07", "GL10", "PR02", "SS01"}



#: What predictors call on a session, and nobody else.
FOR_PREDICTORS = {"accept_held", "failure_of", "give_up_if_lost", "go_to", "holds", "is_gone", "lose", "note_failure"}
FOR_PREDICTORS |= {"receive", "receive_bad", "receive_failure", "receive_numbers", "resume", "value_of"}
FOR_PREDICTORS |= {"warn_of_unseen"}


def skip_what_is_not_for_users(app, what, name, found, skip, options):
    """Methods that come from scikit-learn, numpy or Python have their own documentation, with links of their own."""
    home = getattr(found, "__module__", None) or getattr(getattr(found, "fget", None), "__module__", None) or "cstc"
    of_session = getattr(found, "__qualname__", "").startswith("Session.") and name in FOR_PREDICTORS
    return True if of_session or home.partition(".")[0] != "cstc" or name.endswith("_request") else None


def leave_out_private_parameters(app, what, name, found, options, signature, returns):
    return (re.sub(r", _\w+=[^,)]+", "", signature) if signature else signature), returns


def name_pages_by_their_titles(app, name, source):
    """Files that are read on their own name each other, `[prices.md](prices.md)`; the site has titles instead."""
    source[0] = re.sub(r"\[([\w-]+\.md)\]\((\1[^)]*)\)", r"[](\2)", source[0])


def setup(app):
    app.connect("source-read", name_pages_by_their_titles)
    app.connect("autodoc-skip-member", skip_what_is_not_for_users)
    app.connect("autodoc-process-signature", leave_out_private_parameters)


# ---------------------------------------------------------------------------------------------- the tutorials

os.environ.setdefault("MPLBACKEND", "Agg")


def with_figures_that_fit(gallery_conf, fname):
    """Called before each script: figures that fit the width of a page."""
    import matplotlib.pyplot as plt

    plt.rcParams["figure.dpi"] = 110
    plt.rcParams["savefig.bbox"] = "tight"


sphinx_gallery_conf = {
    "examples_dirs": "../examples/tutorials",
    "gallery_dirs": "tutorials",
    "filename_pattern": r"\.py$",
    "abort_on_example_error": True,
    "capture_repr": (),  # what a script prints is shown, and nothing else
    "copyfile_regex": r"^$",
    "download_all_examples": False,
    "min_reported_time": 1e9,
    "reference_url": {},
    "remove_config_comments": True,
    "reset_modules": ("matplotlib", with_figures_that_fit),
    "show_memory": False,
    "show_signature": False,
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,  # that page would load a script from elsewhere
}

# ---------------------------------------------------------------------------------------------- how it looks

TUTORIALS = [path.stem for path in (HERE.parent / "examples" / "tutorials").glob("*.py")]
html_theme = "pydata_sphinx_theme"
html_title = "cstc"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_align": "left",
    "navbar_persistent": ["search-button"],  # the field beside it has a name that differs from what is seen
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"]} | {f"tutorials/{name}": [] for name in TUTORIALS},  # room for code
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": [], "install": [], "first-model": []}
