"""The walk over a plain mapping that a table of keys drives, and every problem that it finds on its way.

`settings_check` walks a configuration with it, `sim.scenario` the description of a workload. A value is never converted
silently: an integer may stand for a number, nothing else may stand for anything else.
"""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from cronoq_sansio.clock import ns
from cronoq_sansio.limits import MAX_POOL_NAME
from cronoq_sansio.settings import LimitSettings
from cronoq_sansio.settings_keys import NAME_CHARACTERS, NAME_RULE, NAMED, PATH_RULE, VARIABLE_RULE, Key, Kind, Table
from cronoq_sansio.settings_text import allowed, show, show_kind, shown_name
from cronoq_sansio.settings_tokens import is_variable
from cronoq_sansio.values import value


@value
class Problem:
    """One thing that is wrong with a configuration."""

    path: str
    """Where: `pools[1].lease_ttl_s`, counted from 0; empty = the whole."""
    message: str
    """What was found and what is allowed."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


_ENTRIES = {Kind.NUMBERS: Kind.NUMBER, Kind.INTEGERS: Kind.INTEGER, Kind.TEXTS: Kind.TEXT}


class Walk:
    """One walk over one document. Whoever checks a kind of document says what its tables are, and adds its rules."""

    inner: ClassVar[Mapping[str, Table]] = {}
    """Tables within tables, by name."""
    make: ClassVar[Mapping[str, Callable[[Mapping[str, Any]], object]]] = {}
    """From what such a table sets, by field, to the value of its key."""
    unbuilt_words: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Values of the specification that this version refuses with that sentence, by table and key."""

    def __init__(self, document: Mapping[str, object]) -> None:
        self.document = document
        self.limits = LimitSettings()
        """Those that count, once they are known."""
        self.problems: list[Problem] = []

    def _wrong(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    # --- the walk

    def _names(
        self, found: Mapping[str, object], path: str, known: Sequence[str], unbuilt: Sequence[str], noun: str
    ) -> None:
        """Refuse what is not known, each with the sentence that helps."""
        for name in found:
            if name in known:
                continue
            where = f"{path}.{shown_name(name)}" if path else shown_name(name)
            if name in unbuilt:
                self._wrong(where, f"this {noun} is not built in this version; leave it out")
                continue
            close = difflib.get_close_matches(name, (*known, *unbuilt), n=1)
            hint = f"did you mean `{close[0]}`?" if close else f"known are {', '.join(known)}"
            self._wrong(where, f"unknown {noun}; {hint}")

    def _keys(self, found: Mapping[str, object], path: str, table: Table) -> dict[str, Any]:
        self._names(found, path, tuple(key.name for key in table.keys), table.unbuilt, "key")
        values: dict[str, Any] = {}
        for key in table.keys:
            where = f"{path}.{key.name}" if path else key.name
            if key.name not in found:
                if key.required:
                    self._wrong(where, f"missing; required is {allowed(key)}")
                continue
            checked = self._value(found[key.name], where, key, f"{table.name}.{key.name}" if table.name else key.name)
            if checked is not None:
                values[key.field] = checked
        return values

    def _value(self, found: object, path: str, key: Key, place: str) -> object:
        """The value in the unit of its value class, or None after noting the problem. `place`: table and key."""
        if key.kind is Kind.TABLE and isinstance(found, Mapping):
            return self._inner(found, path, place)
        if key.kind in NAMED and isinstance(found, Mapping):
            return self._named(found, path, key)
        if key.kind is Kind.TABLES:
            return self._tables(found, path, place)
        if isinstance(found, str) and found in self.unbuilt_words.get(place, ()):
            self._wrong(path, f'"{found}" is not built in this version; allowed is {allowed(key)}')
            return None
        checked = self._convert(found, key)
        if checked is None:
            shown = show_kind(found) if key.secret else show(found)
            self._wrong(path, f"found {shown}; allowed is {allowed(key)}")
        return checked

    def _inner(self, found: Mapping[str, object], path: str, place: str) -> object:
        """What a table within a table says, when all of it is right."""
        before = len(self.problems)
        values = self._keys(found, path, self.inner[place])
        return self.make[place](values) if len(self.problems) == before else None

    def _named(self, found: Mapping[str, object], path: str, key: Key) -> tuple[tuple[str, Any], ...]:
        """A table whose names are the caller's, as pairs sorted by name; what is wrong is left out and told."""
        one = replace(key, kind=_ENTRIES[key.kind], own_rule=True)
        longest = self.limits.max_tag_len if key.kind is Kind.TEXTS else self.limits.max_key_len
        pairs: list[tuple[str, object]] = []
        for name, entry in found.items():
            where = f"{path}.{shown_name(name)}"
            size = len(name.encode("utf-8", "surrogatepass"))
            what = f"the name has {size} bytes" if size > longest else _fault_of_name(name)
            if what:
                self._wrong(where, f"{what}; allowed are names of at most {longest} bytes without NUL characters")
                continue
            value = self._value(entry, where, one, "")
            if value is not None:
                pairs.append((name, value))
        return tuple(sorted(pairs, key=lambda pair: pair[0]))

    def _tables(self, found: object, path: str, place: str) -> object:
        """What an array of tables within a table says."""
        raise NotImplementedError  # a document that has one says what it means

    # --- arrays of tables at the top

    def _entries(self, name: str) -> list[Mapping[str, object]]:
        """The tables of a top-level array of tables, after telling when it is none."""
        found = self.document.get(name)
        if found is None:
            return []
        if isinstance(found, list) and all(isinstance(entry, Mapping) for entry in found):
            return found
        self._wrong(name, f"found {show(found)}; allowed is an array of tables, each written [[{name}]]")
        return []

    def _unique(self, name: str, path: str, first: dict[str, str]) -> None:
        """`first`: the names so far, and where each stands."""
        if name in first:
            self._wrong(f"{path}.name", f'"{name}" is the name of {first[name]} already; names are unique')
        first.setdefault(name, path)

    def _check_kind(self, entry: Mapping[str, object], path: str, kind: str | None, table: Table) -> None:
        """Keys that belong to one kind of the table are required with it, and refused with another."""
        for key in table.keys:
            belongs = key.kind_of_table
            if not belongs or kind is None:
                continue
            if belongs == kind and key.name not in entry:
                self._wrong(f"{path}.{key.name}", f'missing; kind "{kind}" requires {allowed(key)}')
            if belongs != kind and key.name in entry:
                self._wrong(
                    f"{path}.{key.name}", f'has no meaning with kind "{kind}"; leave it out, or use kind "{belongs}"'
                )

    # --- single values

    def _convert(self, found: object, key: Key) -> object:
        """The value in the unit of its value class, or None when the key does not allow it."""
        if key.kind is Kind.BOOLEAN:
            return found if isinstance(found, bool) else None
        if key.kind is Kind.TEXT:
            return found if isinstance(found, str) and _is_text(found, key) else None
        return _number(found, key) if key.kind in (Kind.INTEGER, Kind.NUMBER, Kind.SECONDS) else None


def _is_text(text: str, key: Key) -> bool:
    if key.words:
        return text in key.words
    if key.own_rule:
        return _is_unicode(text)
    if key.allowed_text == NAME_RULE:
        return 1 <= len(text) <= MAX_POOL_NAME and all(character in NAME_CHARACTERS for character in text)
    if key.allowed_text == VARIABLE_RULE:
        return is_variable(text)
    return bool(text) and "\0" not in text and not (key.allowed_text == PATH_RULE and text.startswith((":", "file:")))


def _fault_of_name(name: str) -> str:
    if "\0" in name:
        return "the name contains a NUL character"
    return "" if _is_unicode(name) else "the name is not Unicode"


def _is_unicode(text: str) -> bool:
    """A lone half of a surrogate pair is none; a TOML parser gives no such text, other callers may."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(found: object, key: Key) -> int | float | None:
    """A number within the key's range, durations in nanoseconds; None when it is not one."""
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    if isinstance(found, float) and (key.kind is Kind.INTEGER or not math.isfinite(found)):
        return None
    if key.minimum is not None and key.maximum is not None and not key.minimum <= found <= key.maximum:
        return None
    if key.kind is Kind.SECONDS:
        return ns(found)
    return float(found) if key.kind is Kind.NUMBER else int(found)
