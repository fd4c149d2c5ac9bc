"""The ledger of planted bugs: medians, what is missing, what is kept, and a search that finds one."""

from harness import plants
from harness.plant_ledger import APART, Entry, Found, Ledger

from cronoq_sansio.sim import Outcome, run_seed


def entry(*needed):
    return Entry([Found(series, count, 0.1 * count, "SAFETY", "x") for series, count in enumerate(needed)])


def test_medians():
    assert entry(3, 1, 200).median(200) == 3
    assert entry(3, 0, 0).median(200) == 201
    assert entry(1, 2).median(200) == 1.5
    assert Entry().median(200) == 201


def test_the_quickest_seed_comes_first_and_the_usual_words_win():
    found = entry(9, 2, 0, 5)
    assert found.seeds() == [APART + 1, 3 * APART + 4, 8]
    found.series[0].what = "y"
    assert found.usual() == ("SAFETY", "x")
    assert Entry().seeds() == [] and Entry().usual() == ("", "")


def test_measuring_goes_on_where_it_was(tmp_path, monkeypatch):
    path = tmp_path / "plants.json"
    first = Ledger(path, 5)
    assert first.missing(["a", "b"], 2) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    first.add("b", Found(1, 2, 0.5, "LIVENESS", "z"))
    first.add("b", Found(0, 0))
    first.add("gone", Found(0, 1))
    first.save(["a", "b"], {"processor": "p"})
    again = Ledger(path, 0)
    assert again.cap == 5 and again.machine == {"processor": "p"}
    assert again.plants == {"b": Entry([Found(0, 0), Found(1, 2, 0.5, "LIVENESS", "z")])}
    assert again.missing(["a", "b"], 2) == [("a", 0), ("a", 1)]


def test_a_ledger_is_of_one_state_of_the_code(tmp_path):
    ledger = Ledger(tmp_path / "plants.json", 5)
    assert ledger.begin(5, "x") == ""
    ledger.add("a", Found(0, 1))
    ledger.save(["a"], {"code": "x"})
    again = Ledger(tmp_path / "plants.json", 0)
    assert again.begin(5, "x") == ""
    assert "code x, not 5 and y" in again.begin(5, "y") and "cap 5" in again.begin(6, "x")
    again.forget(6)
    assert again.begin(6, "y") == "" and not again.plants and again.cap == 6


def test_a_search_finds_what_is_found_easily():
    found = plants.search("dispatches-are-not-stored", 2, 3)
    assert 1 <= found.needed <= 3 and found.kind and found.what
    outcome = run_seed(found.seed, plant="dispatches-are-not-stored")
    assert outcome.failure is not None and outcome.failure.what == found.what


def test_a_seed_that_fails_by_itself_finds_nothing(monkeypatch):
    asked = []

    def fails_always(seed, *, plant="", steps):
        asked.append(plant)
        failed = run_seed(seed, plant="dispatches-are-not-stored", steps=steps)
        assert isinstance(failed, Outcome) and failed.failure is not None
        return failed

    monkeypatch.setattr(plants, "run_seed", fails_always)
    assert plants.search("heartbeats-are-ignored", 0, 2) == Found(0, 0)
    assert asked == ["heartbeats-are-ignored", ""] * 2


def test_choices_that_fail_without_the_bug_too_find_nothing(monkeypatch):
    real = run_seed(0, plant="dispatches-are-not-stored")
    assert real.failure is not None and not plants._fails_anyway(real.failure)
    monkeypatch.setattr(plants, "replay", lambda trace, *, narrate: real)
    assert plants._fails_anyway(real.failure)
    assert plants.search("dispatches-are-not-stored", 0, 1) == Found(0, 0)


def test_a_seed_that_hangs_is_found(monkeypatch):
    def hangs(*_, **__):
        while True:
            pass

    monkeypatch.setattr(plants, "run_seed", hangs)
    monkeypatch.setattr(plants, "LONGEST", 1)
    assert plants.search("heartbeats-are-ignored", 0, 2).kind == "HANG"
