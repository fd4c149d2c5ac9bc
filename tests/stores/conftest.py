"""Every rule runs on every store, under Trio and, for the embedded scheduler, under asyncio."""

import pytest

from tests.stores.support import Harness

KINDS = [(kind, backend) for kind in ("memory", "sqlite") for backend in ("trio", "asyncio")]


@pytest.fixture(params=KINDS, ids=["-".join(pair) for pair in KINDS])
def harness(request, tmp_path):
    return Harness(*request.param, tmp_path)


@pytest.fixture
def sqlite(tmp_path):
    return Harness("sqlite", "trio", tmp_path)
