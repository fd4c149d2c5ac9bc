"""Views of the contract's hot messages: the same bytes, read with the fields that nearly every message has and no more.

A view has the contract's numbers and types for the fields that it reads. All others are members of one oneof, as bytes
or numbers: whether any of them was sent is one question, and then the message is read once more, as it is in the
contract. Asking for each of them costs more than the rest of the decoding. Fields that the contract does not have are
skipped, as ever.
"""

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from cronoq_sansio.wire import pb

RARE = "rare"
"""Name of the oneof: `WhichOneof(RARE)` is None when nothing was sent but what the view reads."""
_LENGTH_DELIMITED = (
    FieldDescriptorProto.TYPE_STRING,
    FieldDescriptorProto.TYPE_MESSAGE,
    FieldDescriptorProto.TYPE_BYTES,
)


def _view(name: str, of: str, read: Iterable[str], raw: Iterable[str] = ()) -> DescriptorProto:
    """A view `name` of the message `of` that reads some of its fields; each entry of those in `raw` as its bytes."""
    source = DescriptorProto()
    pb.DESCRIPTOR.message_types_by_name[of].CopyToProto(source)
    wanted = set(read)
    view = DescriptorProto(name=name)
    view.oneof_decl.add(name=RARE)
    for field in source.field:
        copy = view.field.add(name=field.name, number=field.number, label=FieldDescriptorProto.LABEL_OPTIONAL)
        if field.name in raw:
            copy.label, copy.type = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.TYPE_BYTES
            continue
        if field.type == FieldDescriptorProto.TYPE_ENUM:
            copy.type = FieldDescriptorProto.TYPE_INT32  # on the wire an enumeration is one
        elif field.name not in wanted and field.type in _LENGTH_DELIMITED:
            copy.type = FieldDescriptorProto.TYPE_BYTES
        else:
            copy.type = field.type
        if field.name not in wanted:
            copy.oneof_index = 0
    return view


_FILE = FileDescriptorProto(name="view.proto", package="view", syntax="proto3")
_FILE.message_type.extend(
    [_view("Task", "TaskSpec", ("payload", "content_type", "kind", "pool", "priority", "key"), raw=("tags",))]
)
_POOL = DescriptorPool()
_POOL.Add(_FILE)
Task: Any = GetMessageClass(_POOL.FindMessageTypeByName("view.Task"))
"""Of `TaskSpec`. `tags` are the entries of the map as they were sent: a name may come twice, and any be damaged."""
