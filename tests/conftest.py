"""What every folder of tests shares: hypothesis profiles, and the rule about helpers that are not there."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

HELPER_MISSING = "helper missing:"

# A shell starts its background jobs with SIGINT ignored, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "quick", max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("long", settings.get_profile("quick"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_addoption(parser):
    parser.addoption("--rewrite", action="store_true", help="write what happens now into the scenario transcripts")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Where CI runs, a test may not be left out because a program of the machine is missing: that is a failure."""
    report = yield
    if os.environ.get("CI") and report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if reason.startswith(HELPER_MISSING):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid}: skipped in CI, {reason}"
    return report
