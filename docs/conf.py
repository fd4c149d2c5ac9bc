"""Sphinx configuration: MyST pages, furo, warnings are errors (`make docs`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from cronoq import __version__

project = "cronoq-trio"
author = "The cronoq-trio authors"
copyright = author
release = version = __version__

extensions = ["myst_parser"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"cronoq-trio {__version__}"
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nitpicky = True
