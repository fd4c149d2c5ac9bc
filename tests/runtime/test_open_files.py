"""The limit of open files is raised to what the configuration needs, as far as the system allows."""

from types import SimpleNamespace
from typing import Any

import pytest

from cronoq._runtime import open_files
from cronoq_sansio.limits import SPARE_FILES

INFINITY = -1


class Resource(SimpleNamespace):
    """The module, for a process with these limits."""

    RLIMIT_NOFILE, RLIM_INFINITY = 7, INFINITY

    def __init__(self, soft: int, hard: int, lower: int | None = None) -> None:
        self.limits = (soft, hard)
        self.lower = lower

    def getrlimit(self, which: int) -> tuple[int, int]:
        assert which == self.RLIMIT_NOFILE
        return self.limits

    def setrlimit(self, which: int, limits: tuple[int, int]) -> None:
        assert which == self.RLIMIT_NOFILE and limits[1] == self.limits[1]
        if self.lower is not None and limits[0] > self.lower:
            raise ValueError("not allowed")
        self.limits = limits


@pytest.mark.parametrize(
    ("soft", "hard", "lower", "connections", "new_soft", "warned"),
    [
        (1_024, 524_288, None, 10_000, 10_000 + SPARE_FILES, False),
        (1_024, INFINITY, None, 10_000, 10_000 + SPARE_FILES, False),
        (INFINITY, INFINITY, None, 10_000, INFINITY, False),
        (65_536, 65_536, None, 10_000, 65_536, False),
        (1_024, 4_096, None, 4_096 - SPARE_FILES, 4_096, True),
        (1_024, INFINITY, 2_000, 1_024 - SPARE_FILES, 1_024, True),
        (100, 100, None, 0, 100, True),
    ],
)
def test_the_limit_is_what_is_needed_or_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    soft: int,
    hard: int,
    lower: int | None,
    connections: int,
    new_soft: int,
    warned: bool,
) -> None:
    fake: Any = Resource(soft, hard, lower)
    monkeypatch.setattr(open_files, "resource", fake)
    assert open_files.allow(10_000) == connections
    assert fake.limits == (new_soft, hard)
    out = capsys.readouterr().out
    assert ("fewer connections fit" in out) == warned == (f"connections={connections} " in out)


def test_where_there_is_no_such_limit_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "resource", None)
    assert open_files.allow(10_000) is None
