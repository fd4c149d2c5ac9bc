"""Text that came from elsewhere, shown so that it cannot do anything to a terminal."""

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_BREAKS = frozenset("\u2028\u2029")


def escape(text: str, keep: str = "") -> str:
    r"""Control characters, those that turn the direction of writing, and lone surrogates as `\u{…}`; not `keep`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(f"\\u{{{ord(c):x}}}" if _is_active(c) and c not in keep else c for c in text)


def _is_active(character: str) -> bool:
    code = ord(character)
    return code < 0x20 or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000 or character in _BIDI or character in _BREAKS
