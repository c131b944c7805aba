"""The log of a window on its way out of the program."""

import json
from array import array
from dataclasses import fields

from trackside.profiling.line_events import CodePlace, Costs, LineEvents, Mute, ThreadStart


def test_a_log_that_was_written_and_read_again_has_lost_nothing() -> None:
    costs = Costs(**{one.name: float(place) for place, one in enumerate(fields(Costs), 1)})
    log = LineEvents(
        start_ns=5,
        stop_ns=90,
        times=array("q", [6, 7]),
        threads=array("q", [0, 1]),
        codes=array("q", [0, 0]),
        numbers=array("q", [3, -(1 << 50) - 2]),
        places=(CodePlace(**_values(CodePlace)),),
        thread_starts=(ThreadStart(12, "Main \udce9", ((0, 3), (0, 4))),),
        mutes=(Mute(**_values(Mute)),),
        costs=costs,
        far_ns={(0, 3): 1.5, (0, 9): 2.5},
        incomplete=("a sentence",),
    )
    for one in fields(LineEvents):
        assert getattr(log, one.name), f"{one.name} is empty: it would not be missed"
    assert LineEvents.from_document(json.loads(json.dumps(log.to_document()))) == log


def _values(kind: type) -> dict[str, object]:
    """Something for every field, by its type's name."""
    samples: dict[str, object] = {"int": 7, "float": 2.5, "str": "f.py"}
    return {one.name: samples[str(getattr(one.type, "__name__", one.type))] for one in fields(kind)}
