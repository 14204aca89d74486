import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from linkengine.batches.patch import shift_through_zeros


@given(st.binary(min_size=40, max_size=40), st.binary(min_size=40, max_size=40), st.binary(max_size=5000))
def test_the_checksum_of_a_changed_prefix_is_updated_without_reading_the_rest(before: bytes, after: bytes, rest: bytes) -> None:
    difference = google_crc32c.value(before) ^ google_crc32c.value(after)

    adjusted = google_crc32c.value(before + rest) ^ shift_through_zeros(difference, len(rest))

    assert adjusted == google_crc32c.value(after + rest)


def test_the_checksum_of_long_messages_is_updated() -> None:
    for size in (511, 512, (1 << 17) - 1, (1 << 20) - 1, 1 << 20, 5_000_003, 40_000_005):
        rest = b"kafka" * (size // 5) + b"x" * (size % 5)
        difference = google_crc32c.value(b"a") ^ google_crc32c.value(b"b")
        assert google_crc32c.value(b"a" + rest) ^ shift_through_zeros(difference, size) == google_crc32c.value(b"b" + rest)


def test_a_zero_difference_stays_zero() -> None:
    assert shift_through_zeros(0, 123_456) == 0
    assert shift_through_zeros(77, 0) == 77
