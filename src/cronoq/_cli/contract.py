"""`print-proto` gives the contract to whoever generates stubs in another language."""

import sys
from importlib.resources import files
from pathlib import Path

from cronoq.errors import CronoqError

IN_WHEEL = ("_proto", "cronoq.proto")
IN_CHECKOUT = Path(__file__).parents[3] / "proto" / "cronoq" / "v1" / "cronoq.proto"


def print_proto() -> int:
    """Print cronoq.proto, the contract of the server, to stdout."""
    sys.stdout.write(contract())
    return 0


def contract() -> str:
    """The text of the .proto file: from the installed package, or from the checkout that this module lies in."""
    installed = files("cronoq").joinpath(*IN_WHEEL)
    for place in (installed, IN_CHECKOUT):
        if place.is_file():
            return place.read_text(encoding="utf-8")
    raise CronoqError("cronoq.proto is missing from this installation; install the package again")
