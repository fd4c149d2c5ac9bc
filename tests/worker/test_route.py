"""Where a worker connects next: tables for every end of a session, and the jitter of its pauses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronoq_sansio.clock import SECOND
from cronoq_sansio.limits import MAX_REDIRECTS
from cronoq_sansio.worker.route import FATAL, Again, GiveUp, Redirect, Route, SessionEnd

BACKOFF = (SECOND // 10, 5 * SECOND)
LOST = SessionEnd("unavailable", "the server is away")
MOVED = SessionEnd("failed_precondition", "other shard", Redirect("http://127.0.0.1:2"))


def route(**options):
    return Route("home:1", BACKOFF, **options)


@pytest.mark.parametrize("code", FATAL)
def test_fatal_statuses_are_raised(code):
    assert route().ended(SessionEnd(code, "no"), 0.5) == GiveUp(code, "no")


@pytest.mark.parametrize("code", ["unavailable", "cancelled", "internal", "deadline_exceeded", "unknown", "ok"])
def test_others_try_again_unless_told_not_to(code):
    assert route().ended(SessionEnd(code, "x"), 0.5) == Again("home:1", BACKOFF[0] // 2)
    assert route(reconnect=False).ended(SessionEnd(code, "x"), 0.5) == GiveUp(code, "x")


def test_pauses_double_up_to_the_bound_and_start_anew_once_registered():
    way = route()
    bounds = [way.ended(LOST, 1.0).pause for _ in range(8)]
    assert bounds == [min(BACKOFF[0] << step, BACKOFF[1]) for step in range(8)]
    way.registered()
    assert way.ended(LOST, 1.0).pause == BACKOFF[0]


def test_a_redirect_is_followed_at_once_even_without_reconnecting():
    way = route(reconnect=False)
    assert way.ended(MOVED, 0.5) == Again("http://127.0.0.1:2", 0)
    assert way.target == "http://127.0.0.1:2" and way.redirected


def test_a_refused_redirect_is_raised_with_its_reason():
    end = SessionEnd("failed_precondition", "other shard", Redirect("http://far:2", "insecure_redirect_http"))
    assert route().ended(end, 0.5) == GiveUp("failed_precondition", "insecure_redirect_http")


def test_too_many_redirects_in_a_row():
    way = route()
    for _ in range(MAX_REDIRECTS):
        assert isinstance(way.ended(MOVED, 0.5), Again)
    end = way.ended(MOVED, 0.5)
    assert isinstance(end, GiveUp) and end.code == "failed_precondition" and "4 times in a row" in end.message


@pytest.mark.parametrize("between", ["registered", "lost"])
def test_the_count_of_redirects_starts_anew(between):
    way = route()
    for _ in range(3 * MAX_REDIRECTS):
        assert isinstance(way.ended(MOVED, 0.5), Again)
        way.registered() if between == "registered" else way.ended(LOST, 0.5)


def test_any_failure_of_a_shard_leads_back_to_the_configured_target():
    way = route()
    way.ended(MOVED, 0.5)
    assert way.ended(SessionEnd("internal", "x"), 0.5).target == "home:1" and not way.redirected


@given(st.lists(st.tuples(st.sampled_from([LOST, MOVED]), st.floats(0, 1), st.booleans())))
def test_any_way(steps):
    way = route()
    for end, random, registered in steps:
        if registered:
            way.registered()
        decision = way.ended(end, random)
        way.check_invariants()
        if isinstance(decision, GiveUp):
            assert end is MOVED
            return
        assert 0 <= decision.pause <= BACKOFF[1] and decision.target == way.target
