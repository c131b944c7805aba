"""A run of one rank among several: what the first does beside its own, and what each of the others does."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from dataclasses import asdict, replace

from trackside.profiling.captured import read_capture
from trackside.profiling.launch import Ended, launch
from trackside.profiling.program import Program
from trackside.profiling.rank_times import RanksSeen, rank_seen, side_by_side
from trackside.profiling.ranks import Meeting
from trackside.profiling.session import CAPTURE, Seen, program_end
from trackside.profiling.windows import Limits
from trackside.store.runs import RunStore

__all__ = ["gathered", "run_other_rank"]

# How long the first rank waits for what others saw once its own program has ended. torchrun waits for all of
# them anyway; but where the first has failed it must hear of that, and end the others.
_PATIENCE_S, _PATIENCE_AFTER_FAILURE_S = 120.0, 10.0
# After a signal that asks for an end: torchrun kills 30 seconds later, and the record is still to be made.
_PATIENCE_AFTER_SIGNAL_S = 8.0


def run_other_rank(
    program: Program,
    limits: Limits,
    meeting: Meeting,
    store: RunStore,
    *,
    on_begun: Callable[[], None],
    stdout: int | None = None,
    seconds: float | None = None,
) -> tuple[Ended, Callable[[], bool]]:
    """Run a program to its end, as a rank that is not the first.

    Args:
        on_begun: called when the program is under way, and when it has ended.
        stdout: the descriptor to use as the program's, in place of ours.
        seconds: after so many the program is ended.

    Returns:
        How it ended, and what is to be called then: it leaves what was seen for the first rank, and says
        whether that one may still take it.

    Raises:
        TracksideError: it cannot be started, or the ranks' folder not be made.
    """
    capture = meeting.join(store)
    meeting.await_first()
    folder = os.getcwd()
    ended = launch(
        program,
        CAPTURE,
        asdict(limits) | {"rank_clock": meeting.rank_clock},
        capture,
        on_message=lambda message: on_begun(),
        stdout=stdout,
        seconds=seconds,
    )
    on_begun()

    def leave() -> bool:
        seen = rank_seen(
            read_capture(capture), meeting.rank.number, socket.gethostname(), program_end(ended), folder
        )
        taken = meeting.leave(seen.model_dump(mode="json", by_alias=True))
        shutil.rmtree(capture, ignore_errors=True)
        return taken

    return ended, leave


def gathered(
    meeting: Meeting, seen: Seen, asked_to_end: Callable[[], float | None], say: Callable[[str], None]
) -> tuple[Seen, RanksSeen]:
    """The first rank's run with what the others saw in it, and that by itself.

    Args:
        meeting: where they leave it.
        seen: the first rank's own.
        asked_to_end: when a signal asked for an end, in `time.monotonic`; None as long as none has.
        say: told what is waited for.
    """
    own = rank_seen(
        seen.captured, meeting.rank.number, socket.gethostname(), seen.run.program, seen.run.folder
    )
    well = seen.ended.signal is None and not seen.ended.exit_code
    patience = _PATIENCE_S if well else _PATIENCE_AFTER_FAILURE_S

    def until(began: float) -> float:
        asked = asked_to_end()
        return began + patience if asked is None else min(began + patience, asked + _PATIENCE_AFTER_SIGNAL_S)

    ranks = side_by_side(meeting.rank, own, meeting.gather(until, say), seen.run.folder)
    run = replace(seen.run, ranks=ranks.times, trust=[*ranks.trust, *seen.run.trust])
    return replace(seen, run=run), ranks
