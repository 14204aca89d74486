import struct

import pytest

from linkengine.batches.records import ControlType, control_type
from linkengine.batches.view import CorruptBatchError, read_view
from tests.linkengine.batches.batchlog import CONTROL, TRANSACTIONAL, Batch, Rec, marker


def kind_of(batch: Batch) -> ControlType:
    data = memoryview(batch.encode())
    view = read_view(data)
    assert view is not None
    return control_type(view, data)


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (0, ControlType.ABORT),
        (1, ControlType.COMMIT),
        (2, ControlType.LEADER_CHANGE),
        (3, ControlType.SNAPSHOT_HEADER),
        (6, ControlType.KRAFT_VOTERS),
        (99, ControlType.UNKNOWN),
    ],
)
def test_the_type_is_the_second_number_of_the_key(number: int, kind: ControlType) -> None:
    assert kind_of(marker(5, number, 1)) is kind


def test_a_newer_key_may_be_longer() -> None:
    assert kind_of(Batch(0, {0: Rec(key=struct.pack(">hhq", 1, 0, 7))}, bits=CONTROL | TRANSACTIONAL)) is ControlType.ABORT


def test_an_emptied_control_batch_has_no_type() -> None:
    assert kind_of(Batch(0, {}, last_offset_delta=0, bits=CONTROL | TRANSACTIONAL)) is ControlType.UNKNOWN


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_key_without_a_type_is_refused(key: bytes | None) -> None:
    with pytest.raises(CorruptBatchError, match="no type in its key"):
        kind_of(Batch(0, {0: Rec(key=key)}, bits=CONTROL))
