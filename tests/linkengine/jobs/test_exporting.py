"""Exported records as JSON lines: large records are written in parts."""

import json

from hypothesis import given
from hypothesis import strategies as st

from linkengine.batches.large import read_large
from linkengine.batches.records import decode_records
from linkengine.batches.view import read_view
from linkengine.jobs.exporting import _line
from tests.linkengine.batches.batchlog import ZSTD, Rec, dense
from tests.linkengine.batches.sourcelog import HEADERS

RECS = st.builds(
    Rec,
    timestamp=st.integers(-1, 1 << 40),
    key=st.none() | st.binary(max_size=5),
    value=st.none() | st.binary(max_size=40) | st.just(bytes(range(256)) * 3000),
    headers=(HEADERS | st.just([(b'\\xff"', None), ("ä".encode(), b"1234")])).map(tuple),
)


@given(st.lists(RECS, min_size=1, max_size=4))
def test_large_records_are_exported_like_small_ones(records: list[Rec]) -> None:
    data = memoryview(bytearray(dense(7, records, codec=ZSTD).encode()))
    view = read_view(data)
    assert view is not None

    small = [b"".join(_line(3, record)) for record in decode_records(view, data)]
    large = [b"".join(_line(3, record)) for record in read_large(view, data)]

    assert [json.loads(line) for line in large] == [json.loads(line) for line in small]
    assert all(line.endswith(b"}\n") and line.count(b"\n") == 1 for line in large)
