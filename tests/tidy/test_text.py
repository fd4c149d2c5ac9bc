"""What may stand nowhere in the tree: names of machines and registries, paths of one computer, unfinished work."""

import re

import pytest

from tests.tidy.tree import name_of, tracked

#: Written in halves, so that this file does not find itself.
WORDS = [
    "py" + "pi.org",
    "pythonhosted" + ".org",
    "npmjs" + ".org",
    "crates" + ".io",
    "proxy.golang" + ".org",
    "sum.golang" + ".org",
    "maven" + ".org",
    "debian" + ".org",
    "/work" + "/",
    "../" + "shared",
    "/root" + "/",
    "/tmp" + "/v/",
    "clau" + "de",
    "anthro" + "pic",
    "open" + "ai",
    "co" + "pilot",
    "as an a" + "i",
    "issue" + " #",
    "TO" + "DO",
    "FIX" + "ME",
    "XX" + "X",
]
BANNED = re.compile("|".join(re.escape(word) for word in WORDS), re.IGNORECASE)
NUMBERED = re.compile(r"\bissues? \d+\b", re.IGNORECASE)
BINARY = (".png", ".ico", ".db", ".bin", ".woff2")


@pytest.mark.parametrize("path", [path for path in tracked() if path.suffix not in BINARY], ids=name_of)
def test_nothing_banned(path):
    if path.name.startswith("LICENSE"):
        return
    text = path.read_text(encoding="utf-8")
    found = [
        f"{number}: {line.strip()[:100]}"
        for number, line in enumerate(text.splitlines(), 1)
        if BANNED.search(line) or NUMBERED.search(line)
    ]
    assert not found
    assert "\r" not in text, "line endings are LF"
    assert not text or text.endswith("\n"), "the last line ends"


def test_the_constraints_name_packages_and_versions_alone():
    (path,) = [path for path in tracked() if path.name == "constraints.txt"]
    for line in path.read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*", line), line
