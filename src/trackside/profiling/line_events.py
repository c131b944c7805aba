"""What a line log holds: which line of the user's code ran when, on each thread. Plain data, to be sent."""

from array import array
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = [
    "CALLED",
    "FARTHEST_LINE",
    "PAUSED",
    "RAISED",
    "RETURNED",
    "SKIPPED_CALLS",
    "SKIPPED_LINES",
    "CodePlace",
    "Costs",
    "LineEvents",
    "Mute",
    "ThreadStart",
]

# The number of an event says what happened. Above 0: that line of the code begins. Otherwise one of these,
# from which a line or a count is subtracted where there is one; the ranges do not touch.
RETURNED = 0  # a frame is left: by return, by yield, or by an exception
CALLED = -1  # minus the line: a frame is entered there, at its start or where it had yielded
RAISED = -(1 << 25)  # minus the line: an exception there; the frame may have been entered by it
PAUSED = -(1 << 26)  # the time since the event before was spent by the log itself
SKIPPED_CALLS = -(1 << 40)  # minus a count: calls not logged since the event before
SKIPPED_LINES = -(1 << 50)  # minus a count: the same for events of lines
FARTHEST_LINE = (1 << 24) - 1


@dataclass(frozen=True, slots=True)
class CodePlace:
    """A code object of the user's, as far as it matters afterwards."""

    file: str
    function: str
    first_line: int


@dataclass(frozen=True, slots=True)
class ThreadStart:
    """A thread, and the user's frames that were on its stack when the log began, outermost first."""

    native_id: int | None
    """The kernel's number, which traces carry too; unknown for threads that ran before and never called."""
    name: str | None
    stack: tuple[tuple[int, int], ...] = ()
    """(code, line)"""


@dataclass(frozen=True, slots=True)
class Mute:
    """A line, or a whole code object, that was too hot to be logged any longer."""

    time_ns: int
    code: int
    line: int
    """0 for calls and returns of the code object; the lines of it that were seen are then muted as well."""
    group: int
    """Muted lines of one code with the same group are not told apart any more; 0 for a whole code object."""


@dataclass(frozen=True, slots=True)
class Costs:
    """What an event costs on this machine, in nanoseconds, measured when the log began."""

    line_ns: float = 0.0
    call_ns: float = 0.0
    """Of a call, and again of a return."""
    muted_line_ns: float = 0.0
    skipped_call_ns: float = 0.0
    """Of a call that is not logged: of code that is muted whole, or not the user's."""
    far_entry_ns: float = 0.0
    """Of a line far into long code, for each entry of its table of lines that is read."""
    plain_line_ns: float = 5.0
    """How long a line of a hot loop takes when nothing is logged."""


@dataclass(frozen=True, slots=True)
class LineEvents:
    """The log of a window. Times are those of `time.perf_counter_ns`."""

    start_ns: int
    stop_ns: int
    times: "array[int]"
    threads: "array[int]"
    """Indices into `thread_starts`; within one thread events are in order of time."""
    codes: "array[int]"
    """Indices into `places`."""
    numbers: "array[int]"
    places: tuple[CodePlace, ...]
    thread_starts: tuple[ThreadStart, ...]
    mutes: tuple[Mute, ...] = ()
    costs: Costs = field(default_factory=Costs)
    far_ns: dict[tuple[int, int], float] = field(default_factory=dict)
    """(code, line) → what its event costs more than others, for lines far into long code."""
    incomplete: tuple[str, ...] = ()
    """What is missing and why, a sentence each."""

    def __len__(self) -> int:
        return len(self.times)

    def to_document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "start_ns": self.start_ns,
            "stop_ns": self.stop_ns,
            "times": list(self.times),
            "threads": list(self.threads),
            "codes": list(self.codes),
            "numbers": list(self.numbers),
            "places": [asdict(place) for place in self.places],
            "thread_starts": [asdict(thread) for thread in self.thread_starts],
            "mutes": [asdict(mute) for mute in self.mutes],
            "costs": asdict(self.costs),
            "far_ns": [[code, line, ns] for (code, line), ns in self.far_ns.items()],
            "incomplete": list(self.incomplete),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "LineEvents":
        """What `to_document` was made of."""
        return cls(
            start_ns=document["start_ns"],
            stop_ns=document["stop_ns"],
            times=array("q", document["times"]),
            threads=array("q", document["threads"]),
            codes=array("q", document["codes"]),
            numbers=array("q", document["numbers"]),
            places=tuple(CodePlace(**one) for one in document["places"]),
            thread_starts=tuple(
                ThreadStart(one["native_id"], one["name"], tuple((code, line) for code, line in one["stack"]))
                for one in document["thread_starts"]
            ),
            mutes=tuple(Mute(**one) for one in document["mutes"]),
            costs=Costs(**document["costs"]),
            far_ns={(code, line): ns for code, line, ns in document["far_ns"]},
            incomplete=tuple(document["incomplete"]),
        )
