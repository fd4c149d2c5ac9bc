"""What a key of the configuration file is, and the rules that several of them share."""

from enum import Enum
from typing import Any

from cronoq_sansio.clock import MAX_CLIENT_DURATION, SECOND
from cronoq_sansio.limits import MIN_TOKEN
from cronoq_sansio.values import value


class Kind(Enum):
    """What a key holds. The value is the word of the documentation."""

    BOOLEAN = "true or false"
    INTEGER = "integer"
    NUMBER = "number"
    SECONDS = "seconds"
    TEXT = "text"
    ADDRESS = "address"
    TABLE = "table"
    TABLES = "array of tables"
    NUMBERS = "table of numbers"
    """The caller chooses the names; range and unit are those of each number."""
    INTEGERS = "table of integers"
    """The same with whole numbers."""
    TEXTS = "table of texts"
    """The caller chooses the names."""


NAMED = (Kind.NUMBERS, Kind.INTEGERS, Kind.TEXTS)
"""Tables whose names the caller chooses."""


MAX_SECONDS = 31_536_000  #: 365 days (server.md section 1)
MAX_TASK_SECONDS = MAX_CLIENT_DURATION // SECOND  #: what a task may ask for, in the file as on the wire
MAX_COUNT = 1_000_000_000_000  #: a trillion entries: as good as no bound on any machine
MAX_BYTES = 1 << 50  #: a pebibyte: the same
MIN_RATIO, MAX_RATIO = (
    1e-9,
    1_000_000_000,
)  #: of weights and rates: one in thirty years; times and tags stay finite with them
MAX_UINT32 = (1 << 32) - 1  #: slots travel as uint32, a gRPC length prefix and an HTTP/2 setting have 32 bits


@value
class Key:
    """One key. Ranges are in the unit of the file: seconds, bytes, counts."""

    name: str
    field: str
    """Attribute of the value class."""
    kind: Kind
    meaning: str
    """A sentence for the reference."""
    minimum: float | None = None
    maximum: float | None = None
    words: tuple[str, ...] = ()
    """The only allowed values of a TEXT."""
    required: bool = False
    default_text: str = ""
    """What the reference says where the default is not a constant."""
    default_key: str = ""
    """A key of `[limits]` whose value is the default."""
    allowed_text: str = ""
    """The rule in words, where neither range nor words say it."""
    ours: bool = False
    kind_of_table: str = ""
    """The key stands only in a table whose `kind` has this value, and is required there."""
    own_rule: bool = False
    """Any text is read; what it means is checked, and what is wrong is said, where the table is read."""
    secret: bool = False
    """What was found there is never shown: it could be a credential."""


@value
class Table:
    """One table of the file and the value class that it fills."""

    name: str
    """As in the file."""
    target: type[Any]
    meaning: str
    keys: tuple[Key, ...]
    unbuilt: tuple[str, ...] = ()
    """Keys of the specification that this version refuses with that sentence."""
    repeated: bool = False
    """An array of tables, written `[[name]]`."""


NAME_RULE = "1 to 64 characters of A-Z a-z 0-9 _ . : -"
NAME_CHARACTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.:-"
PATH_RULE = "the path of a file, not empty, not beginning with `:` or `file:`"
FILE_RULE = "the path of a PEM file, not empty"
TOKEN_RULE = f"at least {MIN_TOKEN} characters of printable ASCII; blanks around it are dropped"
VARIABLE_RULE = "the name of an environment variable that holds the token"
ADDRESS_RULE = 'an IP address and a port, like "127.0.0.1:7070" or "[::1]:7070"; port 0 lets the system choose'
