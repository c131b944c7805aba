"""Lines far into long code, whose events cost more on Python 3.12 and later."""

from bisect import bisect_right
from types import CodeType

__all__ = ["far_entries"]

# With each instruction the interpreter keeps, in a byte, how far its line is from where it would be at 16
# units of code a line. Where a byte is too small, each event searches the table of lines from the start.
_UNITS_SHIFT = 4
_LEAST, _MOST = -124, 127
# Of a table that is shorter than this many bytes, no line is far.
_SHORT_TABLE = 250


def far_entries(code: CodeType) -> dict[int, int]:
    """For each line that is searched for, how many entries of the table are read."""
    table = code.co_linetable
    if len(table) < _SHORT_TABLE:
        return {}
    starts, units = [], 0
    for byte in table:
        if byte & 0x80:  # an entry begins; its low bits are its length
            starts.append(units)
            units += (byte & 7) + 1
    far: dict[int, int] = {}
    for first, _, line in code.co_lines():
        if line is not None and line not in far:
            off = line - code.co_firstlineno - (first // 2 >> _UNITS_SHIFT)
            if not _LEAST <= off <= _MOST:
                far[line] = bisect_right(starts, first // 2)
    return far
