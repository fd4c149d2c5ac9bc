"""TOML of people: what the parser would brood over for minutes is refused at once, and nothing else is."""

import pytest
from hypothesis import given, strategies

from cronoq_sansio.limits import MAX_TOML_DOTS
from cronoq_sansio.toml import parse_toml

FEW, MANY = "a" + ".a" * MAX_TOML_DOTS, "a" + ".a" * (MAX_TOML_DOTS + 1)
DOTS = "." * 1_000


def nested(levels, value):
    return value if not levels else {"a": nested(levels - 1, value)}


@pytest.mark.parametrize(
    "text", [f"{MANY} = 1", f"[{MANY}]", f"[[{MANY}]]", f"x = {{ {MANY} = 1 }}", f"x = {{ y = 1, {MANY} = 1 }}"]
)
def test_too_many_dots_in_a_key(text):
    with pytest.raises(ValueError, match=rf"^more than {MAX_TOML_DOTS} dots in one key \(at line 3, column 1\)$"):
        parse_toml(f'z = """\n"""\n{text}\n')


def test_as_many_dots_as_there_may_be():
    assert parse_toml(f"{FEW} = 1") == nested(MAX_TOML_DOTS + 1, 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f"# {DOTS}\nx = 1 # {DOTS}", 1),
        (f'x = "{DOTS}"', DOTS),
        (f"x = '{DOTS}'", DOTS),
        (f'x = "\\"{DOTS}"', f'"{DOTS}'),
        (f'x = """{DOTS}"{DOTS}"""', f'{DOTS}"{DOTS}'),
        (f"x = '''{DOTS}\n'{DOTS}'''", f"{DOTS}\n'{DOTS}"),
        ("x = [" + "1.5, " * 1_000 + "]", [1.5] * 1_000),
        (f'x = """{DOTS}"""""', f'{DOTS}""'),
    ],
)
def test_dots_that_stand_elsewhere(text, found):
    assert parse_toml(text)["x"] == found


@pytest.mark.parametrize("before", ['x = { y = """z"""", ', "x = { y = '''z'''', ", 'x = { y = "\\\\", '])
def test_no_text_hides_a_key(before):
    with pytest.raises(ValueError, match="dots in one key"):
        parse_toml(f'{before}{MANY} = "" }}')


@pytest.mark.parametrize("text", ['"' + '\\"' * 400_000, '"""' * 300_000, "'" * 400_001, "'''\"\"\"" * 100_000, '"\\'])
def test_texts_that_never_end_are_refused_soon(text):
    with pytest.raises(ValueError):
        parse_toml(f"x = {DOTS}{text}")


@given(strategies.text("ab.='\"\\#[]{},\n ", max_size=60))
def test_whatever_it_is_it_is_read_or_refused(text):
    try:
        parse_toml(f"# {DOTS}\n{text}")
    except ValueError as error:
        assert "dots in one key" not in str(error)
