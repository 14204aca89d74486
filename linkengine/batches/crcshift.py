"""CRC-32C arithmetic: update a checksum for changed bytes without reading the unchanged ones. Does not know batches.

A CRC is linear over GF(2) apart from its initial and final inversion, which cancel between two messages of the same length:
``crc(a) ^ crc(b)`` depends only on ``a ^ b``. If the difference lies in a prefix, its effect on the whole message is its
effect on the prefix, shifted through as many zero bytes as follow. A shift through zeros is a linear map of 32 bits, stored as
four tables of 256 entries. Zeros are counted in rows of 512 bytes, and the number of rows in digits of eight bits, with a map
per digit value: a single map for a batch of up to 128 KB, two for up to 32 MB. The rest of less than a row is computed by the
checksum itself, on real zeros. At a throughput of megabytes, a cache miss costs more than all arithmetic: hence few, small
tables. Polynomial: Castagnoli, 0x1EDC6F41, reflected (RFC 3720, appendix B.4).
"""

from __future__ import annotations

from array import array
from functools import cache
from typing import TypeAlias

import google_crc32c

ROW = 1 << 9  # bytes
_DIGIT_BITS = 8
_DIGIT = (1 << _DIGIT_BITS) - 1
_ZEROS = bytes(ROW)
_ONES = 0xFFFFFFFF
_POLYNOMIAL = 0x82F63B78  # reflected
_Columns = list[int]  # images of the 32 unit vectors
_Table: TypeAlias = "array[int]"  # of 32 bits: a tenth of the memory of a list
_Tables = tuple[_Table, _Table, _Table, _Table]


def push_through_zeros(value: int, count: int) -> int:
    """Return the checksum difference ``value`` after ``count`` more equal bytes; O(log count)."""
    value = google_crc32c.extend(value ^ _ONES, _ZEROS[: count % ROW]) ^ _ONES  # without the inversions at both ends
    rows, digit = count // ROW, _DIGIT
    while rows:
        if rows & digit:
            first, second, third, fourth = _tables(rows & digit)
            value = first[value & 255] ^ second[value >> 8 & 255] ^ third[value >> 16 & 255] ^ fourth[value >> 24]
            rows &= ~digit
        digit <<= _DIGIT_BITS
    return value


@cache
def _tables(rows: int) -> _Tables:
    columns = _columns(rows * ROW)
    first, second, third, fourth = (_expand(columns[start : start + 8]) for start in (0, 8, 16, 24))
    return first, second, third, fourth


def _expand(columns: _Columns) -> array[int]:
    """Return the table of a linear map of eight bits: each new column doubles it."""
    table = array("I", [0])
    for column in columns:
        table.extend([entry ^ column for entry in table])
    return table


@cache
def _columns(zeros: int) -> _Columns:
    """Return the images of the unit vectors under ``zeros`` zero bytes (at least 1)."""
    if zeros == 1:
        return [_shift_by_byte(1 << bit) for bit in range(32)]
    half = _columns(zeros // 2)
    rest = _columns(zeros - zeros // 2)
    return [_apply(rest, image) for image in half]


def _shift_by_byte(value: int) -> int:
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
