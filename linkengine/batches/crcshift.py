"""CRC-32C arithmetic: the checksum of changed bytes without reading the unchanged ones. Knows nothing of batches.

A CRC is linear over GF(2) apart from its initial and final inversion, and these cancel between two messages of one length:
``crc(a) ^ crc(b)`` depends on ``a ^ b`` only. If the difference lies in a prefix, its effect on the whole message is its
effect on the prefix, pushed through as many zero bytes as follow. Pushing through zeros is a linear map of 32 bits; the maps
for 1, 2, 4, ... zero bytes are squares of each other and are kept as four tables of 256 entries each. The first few thousand
zeros are quicker pushed through by the checksum itself, on a real row of zeros.
Polynomial: Castagnoli, 0x1EDC6F41, reflected (RFC 3720, appendix B.4).
"""

from __future__ import annotations

from functools import cache

import google_crc32c

ROW_BITS = 13
ROW = 1 << ROW_BITS  # costs about what one table costs
_ZEROS = bytes(ROW)
_ONES = 0xFFFFFFFF
_POLYNOMIAL = 0x82F63B78  # reflected
_Columns = list[int]  # images of the 32 unit vectors
_Tables = tuple[list[int], list[int], list[int], list[int]]


def push_through_zeros(value: int, count: int) -> int:
    """Answer what the checksum difference ``value`` becomes after ``count`` more equal bytes; O(log count)."""
    power = ROW_BITS
    value = google_crc32c.extend(value ^ _ONES, _ZEROS[: count & ROW - 1]) ^ _ONES  # without the inversions at both ends
    count >>= ROW_BITS
    while count:
        if count & 1:
            first, second, third, fourth = _tables(power)
            value = first[value & 255] ^ second[value >> 8 & 255] ^ third[value >> 16 & 255] ^ fourth[value >> 24]
        count >>= 1
        power += 1
    return value


@cache
def _tables(power: int) -> _Tables:
    columns = _columns(power)
    first, second, third, fourth = (_expand(columns[start : start + 8]) for start in (0, 8, 16, 24))
    return first, second, third, fourth


def _expand(columns: _Columns) -> list[int]:
    """Tabulate a linear map of eight bits: each new column doubles the table."""
    table = [0]
    for column in columns:
        table += [entry ^ column for entry in table]
    return table


@cache
def _columns(power: int) -> _Columns:
    """Images of the unit vectors under 2**power zero bytes."""
    if power == 0:
        return [_one_zero_byte(1 << bit) for bit in range(32)]
    half = _columns(power - 1)
    return [_apply(half, image) for image in half]


def _one_zero_byte(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


def _apply(columns: _Columns, value: int) -> int:
    image = 0
    for column in columns:
        if value & 1:
            image ^= column
        value >>= 1
    return image
