"""The generated files are what the generator writes; both sets of stubs live in one process, beside a third."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = ROOT / "proto" / "cronoq" / "v1" / "cronoq.proto"

BOTH = """
from cronoq._proto import cronoq_grpc, cronoq_pb2, cronoq_pb2_grpc
from cronoq_sansio.wire import pb
theirs = cronoq_pb2.SubmitRequest(task=cronoq_pb2.TaskSpec(key="k", priority=cronoq_pb2.PRIORITY_LOW))
ours = pb.SubmitRequest.FromString(theirs.SerializeToString())
assert ours.task.key == "k" and ours.task.priority == pb.PRIORITY_LOW
assert type(ours) is not type(theirs)
assert ours.DESCRIPTOR.file.pool is not theirs.DESCRIPTOR.file.pool
"""

FOREIGN = """
from google.protobuf import descriptor_pb2, descriptor_pool
other = descriptor_pb2.FileDescriptorProto(name="cronoq/v1/cronoq.proto", package="cronoq.v1", syntax="proto3")
other.message_type.add(name="TaskSpec")
descriptor_pool.Default().AddSerializedFile(other.SerializeToString())
from cronoq_sansio.wire import pb
assert pb.TaskSpec(key="k").SerializeToString() == b"\\x32\\x01k"
"""


def run(program: str) -> None:
    path = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r})\n{program}"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="helper missing: grpcio-tools")
def test_generated_files_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate_stubs.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_sets_of_stubs_in_one_process() -> None:
    run(BOTH)


def test_ours_load_beside_other_stubs_of_the_same_file() -> None:
    run(FOREIGN)


def test_the_typed_names_are_there() -> None:
    import ast

    from cronoq_sansio.wire import pb

    tree = ast.parse((ROOT / "src" / "cronoq_sansio" / "wire" / "pb" / "__init__.pyi").read_text())
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    names |= {
        node.target.id for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    assert "TaskSpec" in names and "PRIORITY_LOW" in names
    assert {name for name in names if not hasattr(pb, name)} == set()
