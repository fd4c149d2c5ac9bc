"""Figures that tests measured, kept in a JSON file so that they can be quoted: its path is in `CRONOQ_LEDGER`."""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

VARIABLE = "CRONOQ_LEDGER"


def wanted() -> bool:
    """Whether there is a path, so that figures are worth some time."""
    return bool(os.environ.get(VARIABLE))


def record(name: str, **figures: Any) -> None:
    """Put the figures of one measurement under `name`; the latest run of a name counts. No-op without a path."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    file = Path(path)
    entries = json.loads(file.read_text()) if file.exists() else {}
    entries[name] = {
        **figures,
        "measured": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpus": os.cpu_count(),
    }
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(entries, indent=2, sort_keys=True) + "\n")
    partial.replace(file)


def percentiles(values: list[float]) -> dict[str, float]:
    """Median and extremes of seconds, rounded to what a clock here can tell."""
    ordered = sorted(values)
    return {
        "count": len(ordered),
        "min": round(ordered[0], 4),
        "p50": round(ordered[len(ordered) // 2], 4),
        "max": round(ordered[-1], 4),
    }
