"""What `import cronoq.client` loads, and what it costs: a program that submits tasks pays for no server."""

import json
import subprocess
import sys

import pytest

from tests.acceptance.server import environment

HEAVY = ("grpc", "grpclib", "h2", "hyperframe", "hypercorn", "trio", "cyclopts", "structlog", "sqlite3", "msgspec")
HEAVY += (
    "cattrs",
    "attrs",
    "rich",
    "cronoq._runtime",
    "cronoq._stores",
    "cronoq.config",
    "cronoq._cli",
    "cronoq._proto",
)
HEAVY += ("cronoq_sansio.engine", "cronoq_sansio.service", "cronoq_sansio.settings", "cronoq_sansio.wire.grpc")
ROUNDS = 5


def loaded(statement: str) -> list[str]:
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    modules: list[str] = json.loads(done.stdout)
    return modules


@pytest.mark.parametrize(
    "statement", ["import cronoq.client", "import cronoq; cronoq.client.Client('localhost:1', token='t')"]
)
def test_the_client_loads_neither_grpcio_nor_the_server(statement: str) -> None:
    modules = loaded(statement)
    assert "cronoq.client" in modules
    heavy = [name for name in modules if name in HEAVY or name.startswith(tuple(f"{name}." for name in HEAVY))]
    assert heavy == []


def test_the_package_alone_loads_nothing() -> None:
    assert [name for name in loaded("import cronoq") if name.startswith("cronoq")] == ["cronoq"]


def cost(module: str) -> float:
    """CPU seconds of an import, the least of several: what disturbs only adds."""
    code = f"import time; begun = time.process_time(); import {module}; print(time.process_time() - begun)"
    return min(
        float(subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, check=True).stdout)
        for _ in range(ROUNDS)
    )


def test_the_import_costs_at_most_twice_that_of_trio() -> None:
    assert cost("cronoq.client") <= 2 * cost("trio")
