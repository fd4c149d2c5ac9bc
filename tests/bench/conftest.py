"""The benchmarks are scripts: they import each other from their own folder."""

import sys

from tests.tidy.tree import ROOT

sys.path.insert(0, str(ROOT / "bench"))
