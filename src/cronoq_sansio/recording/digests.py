"""Bytes that were left out: what stands for a payload or an output where its content may not, or need not, be kept.

The core never looks into a payload. It counts its length, compares it with another one, and passes it on. So a value
that has the length of the bytes and knows their digest takes the same way through all rules as the bytes themselves.
"""

from hashlib import sha256

DIGEST_DIGITS = 32  #: of the hexadecimal SHA-256: 128 bits tell payloads apart, and whole ones would fill the file


def digest_of(data: bytes) -> str:
    """The first `DIGEST_DIGITS` hexadecimal digits of the SHA-256, of bytes that were left out too."""
    if type(data) is Digested:
        return data.digest
    return sha256(data).hexdigest()[:DIGEST_DIGITS]


class Digested(bytes):
    """Stands for bytes of this length and digest. It holds no content, and takes no memory for it."""

    length: int
    digest: str

    def __new__(cls, length: int, digest: str) -> "Digested":
        """Stand for `length` bytes, ≥ 0, with that `digest_of`."""
        made = super().__new__(cls)
        made.length, made.digest = length, digest
        return made

    def __len__(self) -> int:
        return self.length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, bytes) and len(other) == self.length and digest_of(other) == self.digest

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return int(self.digest, 16)

    def __repr__(self) -> str:
        return f"<{self.length} bytes, SHA-256 {self.digest}…>"
