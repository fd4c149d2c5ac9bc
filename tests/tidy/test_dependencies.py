"""The declared dependencies are what the code imports, each has an exact version, and each has its reason."""

import re
import sys
import tomllib

from tests.tidy.tree import ROOT, imports, python_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = {
    "google": "protobuf",
    "grpc": "grpcio",
    "grpc_tools": "grpcio-tools",
    "pytest_trio": "pytest-trio",
    "trio_asyncio": "trio-asyncio",
}
#: Ours: the packages, and what scripts import from beside themselves.
OWN = {"cronoq", "cronoq_sansio", "tests", "tools", "bench", "fuzz"} | {
    path.stem for path in (ROOT / "bench").iterdir()
}
#: Of fuzz targets, where somebody has installed it: there is no wheel for every platform.
OPTIONAL = {"atheris"}
#: Needed without being imported by code that people write.
NOT_IMPORTED = {"mypy", "pytest-trio", "ruff", "types-protobuf"}


def normal(requirement):
    return re.match(r"[A-Za-z0-9_.-]+", requirement)[0].lower().replace("_", "-")


def third_parties(paths):
    tops = {module.partition(".")[0] for path in paths for _, module in imports(path)}
    return {
        DISTRIBUTIONS.get(top, top).lower() for top in tops if top not in sys.stdlib_module_names and top not in OWN
    }


def declared(extra=None):
    return {normal(entry) for entry in (PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"])}


def test_run_time_dependencies_are_the_imports_of_the_source():
    # h2 brings hpack and hyperframe and shows their types in its interface.
    assert third_parties(python_files("src")) - {"hpack", "hyperframe"} == declared()


def test_development_dependencies_are_the_imports_of_the_rest():
    used = third_parties(python_files("tests", "tools", "bench", "fuzz")) - OPTIONAL
    assert used - declared() <= declared("dev")
    assert declared("dev") - NOT_IMPORTED <= used | {"grpcio-tools"}


def test_every_dependency_has_an_exact_version():
    pinned = {normal(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert declared() | declared("dev") | declared("docs") | {"hatchling"} <= pinned


def test_every_dependency_has_its_reason():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    reasons = {
        name for cell in re.findall(r"^\| (.+?) \|", text, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", cell)
    }
    assert declared() | declared("dev") | declared("docs") | {"hatchling"} <= {normal(name) for name in reasons}
