"""The rings: an inner one never imports an outer one, and each ring has its own third parties."""

import pytest

from tests.tidy.tree import imports, module_of, name_of, python_files

SHARED, ENGINE, SERVICE, WIRE, FACADE, RECORDING, SIM, RUNTIME = range(8)
RINGS = {
    "cronoq_sansio.engine": ENGINE,
    "cronoq_sansio.outbox": ENGINE,
    "cronoq_sansio.service": SERVICE,
    "cronoq_sansio.wire": WIRE,
    "cronoq_sansio.recording": RECORDING,
    "cronoq_sansio.sim": SIM,
    "cronoq": RUNTIME,
}
THIRD_PARTIES = {
    SHARED: (),
    ENGINE: (),
    SERVICE: (),
    WIRE: ("google.protobuf", "h2", "hpack", "hyperframe"),
    FACADE: (),
    RECORDING: (),
    SIM: (),
}
#: Third parties of one module, and of no other in its ring.
OF_ONE_MODULE = {"src/cronoq_sansio/engine/cron.py": ("croniter", "tzdata")}
#: What the naive model may know of the engine: the words, and the formula of the backoff. It has rules of its own.
ENGINE_WORDS = (
    "cronoq_sansio.engine.cron",
    "cronoq_sansio.engine.events",
    "cronoq_sansio.engine.records",
    "cronoq_sansio.engine.retry",
)
#: What the bytes may know of the service: the words, not the machine.
SERVICE_WORDS = (
    "cronoq_sansio.service.messages",
    "cronoq_sansio.service.messages_recurring",
    "cronoq_sansio.service.access",
)
#: These run under asyncio too, or in a thread, so they may not need Trio.
WITHOUT_TRIO = ("src/cronoq/_stores/", "src/cronoq/_runtime/driver.py", "src/cronoq/_runtime/clock.py")


def ring(module):
    """The ring of a module of ours, None of others."""
    if module == "cronoq_sansio":
        return FACADE
    for prefix, rank in RINGS.items():
        if module == prefix or module.startswith(f"{prefix}."):
            return rank
    return SHARED if module.startswith("cronoq_sansio.") else None


FILES = python_files("src", with_generated=True)


def test_no_program_needs_the_simulator():
    wrong = [
        f"{path}:{line}"
        for path in FILES
        if ring(module_of(path)) == RUNTIME
        for line, module in imports(path)
        if ring(module) == SIM
    ]
    assert not wrong


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_ring_imports_an_outer_one(path):
    own = ring(module_of(path))
    wrong = [f"{path}:{line}: {module}" for line, module in imports(path) if (ring(module) or 0) > own]
    assert not wrong


@pytest.mark.parametrize("path", python_files("src/cronoq_sansio"), ids=name_of)
def test_each_ring_has_its_own_third_parties(path):
    allowed = THIRD_PARTIES[ring(module_of(path))] + OF_ONE_MODULE.get(name_of(path), ())
    for line, module in imports(path):
        if ring(module) is None and not module.startswith(allowed or ("-",)):
            assert is_standard(module), f"{path}:{line}: {module} is not for this ring"


@pytest.mark.parametrize("path", python_files("src/cronoq_sansio/wire"), ids=name_of)
def test_bytes_know_the_words_of_the_service_alone(path):
    for line, module in imports(path, for_types=False):
        if ring(module) == SERVICE:
            assert module in SERVICE_WORDS, f"{path}:{line}: {module}"


@pytest.mark.parametrize("path", [path for path in FILES if "/sim/lockstep/model" in name_of(path)], ids=name_of)
def test_the_model_has_rules_of_its_own(path):
    modules = [module for _, module in imports(path, for_types=False) if ring(module) == ENGINE]
    assert not [module for module in modules if module not in ENGINE_WORDS]


@pytest.mark.parametrize("path", [path for path in FILES if name_of(path).startswith(WITHOUT_TRIO)], ids=name_of)
def test_driver_and_stores_need_no_trio(path):
    assert "trio" not in [module.partition(".")[0] for _, module in imports(path)]


def test_the_rule_sees_a_violation(tmp_path):
    (tmp_path / "x.py").write_text("import trio\nfrom cronoq_sansio.service import messages\n")
    found = imports(tmp_path / "x.py")
    assert found == [(1, "trio"), (2, "cronoq_sansio.service.messages")]
    assert ring("cronoq_sansio.service.messages") > ring("cronoq_sansio.engine.engine") > ring("cronoq_sansio.clock")


def is_standard(module):
    import sys

    return module.partition(".")[0] in sys.stdlib_module_names
