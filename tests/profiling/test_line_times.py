"""Logs written by hand: spans, stacks and times to the nanosecond."""

import pickle
from array import array

import numpy as np
import pytest

from trackside.profiling.line_events import (
    CALLED,
    PAUSED,
    RAISED,
    RETURNED,
    SKIPPED_CALLS,
    SKIPPED_LINES,
    CodePlace,
    Costs,
    LineEvents,
    Mute,
    ThreadStart,
)
from trackside.profiling.line_stacks import NO_STACK, Line
from trackside.profiling.line_times import (
    LineSpans,
    inclusive_times,
    line_spans,
    self_times,
    without_breaks,
)

MAIN, HELPER, OTHER = 0, 1, 2
PLACES = (CodePlace("a.py", "main", 1), CodePlace("a.py", "helper", 20), CodePlace("b.py", "other", 1))
FREE = Costs(plain_line_ns=0.0)
THREAD = 7


def log(
    *events: tuple[int, int, int],
    start: int = 0,
    stop: int = 1000,
    stack: tuple[tuple[int, int], ...] = (),
    mutes: tuple[Mute, ...] = (),
    costs: Costs = FREE,
) -> LineEvents:
    """Of one thread: time, code and number of each event."""
    times, codes, numbers = (
        (array("q", column) for column in zip(*events, strict=True)) if events else (array("q"),) * 3
    )
    threads = array("q", [0] * len(times))
    return LineEvents(
        start,
        stop,
        times,
        threads,
        codes,
        numbers,
        PLACES,
        (ThreadStart(THREAD, "main", stack),),
        mutes,
        costs,
    )


def call(line: int) -> int:
    return CALLED - line


def times_of(spans: LineSpans) -> dict[int, float]:
    return {line.line: ns for line, ns in self_times(spans).items() if ns}


def lines_at(spans: LineSpans, *times: int) -> list[int | None]:
    found = spans.line_at(THREAD, times).lines.tolist()
    return [None if line == NO_STACK else spans.stacks.lines[line].line for line in found]


def callers_at(spans: LineSpans, time: int) -> list[int]:
    (stack,) = spans.line_at(THREAD, [time]).stacks.tolist()
    return [spans.stacks.line(one).line for one in spans.stacks.trail(stack)]


NESTED = (
    (100, MAIN, call(1)),
    (110, MAIN, 2),
    (200, MAIN, 3),
    (210, HELPER, call(20)),
    (220, HELPER, 21),
    (300, HELPER, RETURNED),
    (350, MAIN, 4),
    (400, MAIN, RETURNED),
)


def test_a_line_runs_from_its_event_to_the_next() -> None:
    spans = line_spans(log(*NESTED))
    assert lines_at(spans, 99, 100, 109, 110, 199, 200) == [None, 1, 1, 2, 2, 3]


def test_after_a_return_the_callers_line_runs_again() -> None:
    spans = line_spans(log(*NESTED))
    assert lines_at(spans, 219, 220, 299, 300, 349, 350) == [20, 21, 21, 3, 3, 4]
    assert callers_at(spans, 250) == [21, 3]
    assert callers_at(spans, 320) == [3]


def test_outside_of_the_users_code_and_of_the_window_there_is_no_line() -> None:
    spans = line_spans(log(*NESTED, start=50))
    assert lines_at(spans, 0, 49, 60, 400, 999, 1000, 5000) == [None] * 7
    assert spans.line_at(THREAD + 1, [250]).lines.tolist() == [NO_STACK]
    assert spans.line_at(THREAD, []).stacks.tolist() == []


def test_times_are_asked_for_in_any_order_and_shape() -> None:
    spans = line_spans(log(*NESTED))
    found = spans.line_at(THREAD, np.array([[355, 115], [0, 225]]))
    assert found.lines.shape == (2, 2)
    assert [spans.stacks.lines[line].line for line in found.lines.ravel()[[0, 1, 3]]] == [4, 2, 21]


def test_self_time_is_the_innermost_lines_and_inclusive_time_also_the_callers() -> None:
    spans = line_spans(log(*NESTED))
    assert times_of(spans) == {1: 10, 2: 90, 3: 60, 20: 10, 21: 80, 4: 50}
    inclusive = inclusive_times(spans)
    assert inclusive[Line("a.py", 3)] == 150
    assert inclusive[Line("a.py", 21)] == 80


def test_what_began_before_a_moment_can_be_left_out_as_long_as_nothing_was_muted() -> None:
    spans = line_spans(log(*NESTED), since_ns=220)
    assert {line: ns for line, ns in times_of(spans).items() if ns} == {3: 50, 21: 80, 4: 50}
    assert lines_at(spans, 219, 220, 320) == [None, 21, 3]
    muted = (Mute(900, MAIN, 2, 1),)
    assert times_of(line_spans(log(*NESTED, mutes=muted), since_ns=220)) == times_of(
        line_spans(log(*NESTED, mutes=muted))
    )


def test_recursion_counts_once_in_inclusive_time() -> None:
    deep = 5
    down = [(100 + 10 * n, HELPER, number) for n in range(deep) for number in (call(20), 21)]
    up = [(500 + 10 * n, HELPER, RETURNED) for n in range(deep)]
    spans = line_spans(log(*down, *up))
    assert inclusive_times(spans)[Line("a.py", 21)] == 440
    assert self_times(spans)[Line("a.py", 21)] == 440


def test_two_functions_on_one_line_count_once_too() -> None:
    spans = line_spans(log((0, MAIN, call(1)), (0, MAIN, 3), (100, HELPER, call(3)), (100, HELPER, 3)))
    assert inclusive_times(spans)[Line("a.py", 3)] == 1000


def test_a_deep_stack_takes_no_deep_recursion() -> None:
    deep = 50_000
    events = [(n, HELPER, call(20)) for n in range(deep)]
    spans = line_spans(log(*events, stop=deep + 5))
    assert inclusive_times(spans) == {Line("a.py", 20): deep + 5}


def test_frames_that_ran_before_are_on_the_stack() -> None:
    spans = line_spans(log((100, HELPER, 22), (200, HELPER, RETURNED), stack=((MAIN, 5), (HELPER, 21))))
    assert callers_at(spans, 50) == [21, 5]
    assert callers_at(spans, 150) == [22, 5]
    assert callers_at(spans, 250) == [5]


def test_a_generator_goes_on_where_it_had_yielded() -> None:
    spans = line_spans(
        log(
            (0, MAIN, call(1)),
            (10, MAIN, 2),
            (20, HELPER, call(20)),
            (30, HELPER, 21),
            (40, HELPER, RETURNED),
            (50, HELPER, call(21)),
            (60, HELPER, 22),
        )
    )
    assert lines_at(spans, 45, 55, 65) == [2, 21, 22]


def test_an_exception_thrown_into_a_generator_puts_it_on_the_stack_and_any_other_does_not() -> None:
    spans = line_spans(
        log(
            (0, MAIN, call(1)),
            (10, MAIN, 2),
            (20, MAIN, RAISED - 2),
            (30, HELPER, RAISED - 25),
            (40, HELPER, 26),
            (50, HELPER, RETURNED),
        )
    )
    assert callers_at(spans, 25) == [2]
    assert callers_at(spans, 35) == [25, 2]
    assert callers_at(spans, 45) == [26, 2]
    assert callers_at(spans, 55) == [2]


def test_a_lost_return_is_made_up_for_by_the_next_line_of_a_caller() -> None:
    lost = [event for event in NESTED if event != (300, HELPER, RETURNED)]
    spans = line_spans(log(*lost))
    assert callers_at(spans, 360) == [4]


def test_a_lost_call_is_made_up_for_by_its_first_line() -> None:
    lost = [event for event in NESTED if event != (210, HELPER, call(20))]
    spans = line_spans(log(*lost))
    assert callers_at(spans, 250) == [21, 3]
    assert callers_at(spans, 320) == [3]


def test_a_return_of_what_is_not_on_the_stack_changes_nothing() -> None:
    spans = line_spans(log((0, MAIN, call(1)), (10, MAIN, 2), (20, OTHER, RETURNED)))
    assert callers_at(spans, 30) == [2]


def test_threads_have_stacks_of_their_own() -> None:
    events = LineEvents(
        0,
        100,
        array("q", [10, 15, 20, 25]),
        array("q", [0, 1, 0, 1]),
        array("q", [MAIN, OTHER, MAIN, OTHER]),
        array("q", [call(1), call(1), 2, 3]),
        PLACES,
        (ThreadStart(7, "main"), ThreadStart(8, "worker")),
        costs=FREE,
    )
    spans = line_spans(events)
    one, other = (spans.line_at(thread, [12, 22, 30]) for thread in (7, 8))
    assert [spans.stacks.lines[line] for line in one.lines] == [("a.py", 1), ("a.py", 2), ("a.py", 2)]
    assert other.lines.tolist()[0] == NO_STACK
    assert [spans.stacks.lines[line] for line in other.lines[1:]] == [("b.py", 1), ("b.py", 3)]
    assert sum(self_times(spans).values()) == 90 + 85


def test_what_logging_cost_is_taken_off_and_nothing_becomes_negative() -> None:
    costs = Costs(line_ns=20, call_ns=30, plain_line_ns=0)
    assert times_of(line_spans(log(*NESTED, costs=costs))) == {2: 70, 3: 10, 21: 60, 4: 30}


def test_calls_that_were_skipped_cost_the_line_that_made_them() -> None:
    events = (0, MAIN, call(1)), (0, MAIN, 2), (500, MAIN, SKIPPED_CALLS - 3), (500, MAIN, 3)
    costs = Costs(skipped_call_ns=50, plain_line_ns=0)
    assert times_of(line_spans(log(*events, costs=costs))) == {2: 350, 3: 500}


def test_the_logs_own_time_is_nobodys() -> None:
    events = (0, MAIN, call(1)), (0, MAIN, 2), (300, MAIN, 3), (700, MAIN, PAUSED), (800, MAIN, 4)
    spans = line_spans(log(*events))
    assert times_of(spans) == {2: 300, 3: 100, 4: 200}
    assert lines_at(spans, 500, 750) == [3, 3]


def test_events_on_the_edge_of_the_window_are_put_inside() -> None:
    spans = line_spans(log((5, MAIN, call(1)), (6, MAIN, 2), (2000, MAIN, 3), start=10, stop=100))
    assert times_of(spans) == {2: 90}
    assert lines_at(spans, 10, 99) == [2, 2]


def a_loop_with_a_break(pause: int) -> LineSpans:
    """Line 2 takes 10 and line 3 takes 20, five times; once line 2 takes so much more."""
    events, now = [(0, MAIN, call(1))], 0
    for turn in range(5):
        events.append((now, MAIN, 2))
        now += 10 + (pause if turn == 3 else 0)
        events.append((now, MAIN, 3))
        now += 20
    return line_spans(log(*events, stop=now))


def test_time_in_which_others_had_the_core_is_taken_off_the_span_that_was_longer() -> None:
    assert times_of(without_breaks(a_loop_with_a_break(1000), 1000)) == {2: 50, 3: 100}
    assert times_of(without_breaks(a_loop_with_a_break(1000), 600)) == {2: 450, 3: 100}


def test_what_a_line_does_now_and_then_stays_where_nobody_else_had_the_core() -> None:
    assert times_of(without_breaks(a_loop_with_a_break(1000), 0)) == {2: 1050, 3: 100}
    # More than all that was longer cannot have been breaks.
    assert times_of(without_breaks(a_loop_with_a_break(30), 5000)) == {2: 50, 3: 100}


def test_an_empty_log_has_no_times() -> None:
    spans = line_spans(log())
    assert self_times(spans) == {}
    assert inclusive_times(spans) == {}
    assert lines_at(spans, 5) == [None]


def hot_loop(rounds: int, mute_at: int, then: int) -> tuple[tuple[int, int, int], ...]:
    """Line 3 and lines 4 (10 ns) and 5 (30 ns) in turn, the last two muted; silent until line 6."""
    events = [(0, MAIN, call(1)), (0, MAIN, 3)]
    for n in range(rounds):
        events += [(100 + 40 * n, MAIN, 4), (110 + 40 * n, MAIN, 5)]
    assert events[-1][0] < mute_at
    return (*events, (mute_at, MAIN, PAUSED), (mute_at, MAIN, 4), (then, MAIN, 6))


MUTES = (Mute(500, MAIN, 4, 4), Mute(500, MAIN, 5, 4))


def test_muted_time_is_split_as_it_was_before() -> None:
    spans = line_spans(log(*hot_loop(10, 500, 4500), stop=5000, mutes=MUTES))
    got = times_of(spans)
    # Ten rounds of 10 and 30 were seen; the last run of line 5 was interrupted by the log itself.
    assert got[3] == 100
    assert got[6] == 500
    assert got[4] + got[5] == pytest.approx(4000 + 10 * 10 + 9 * 30)
    assert (got[5] - 9 * 30) / (got[4] - 100) == pytest.approx(27 / 10)
    assert lines_at(spans, 3000, 4600) == [4, 6]


def test_what_skipped_events_cost_is_not_the_programs_time() -> None:
    costs = Costs(muted_line_ns=20, plain_line_ns=0)
    got = times_of(line_spans(log(*hot_loop(10, 500, 4500), stop=5000, mutes=MUTES, costs=costs)))
    # Of a round 40 ns are the program's and, once muted, 40 more the log's; the first event is always logged.
    assert got[4] + got[5] - 370 == pytest.approx(4000 * 370 / (370 + 18 * 20))


def test_an_interruption_before_muting_does_not_change_the_split() -> None:
    events = list(hot_loop(10, 500, 4500))
    calm = times_of(line_spans(log(*events, stop=5000, mutes=MUTES)))
    late = [event if event[0] < 150 else (event[0] + 10**6, *event[1:]) for event in events]
    mutes = tuple(Mute(10**6 + 500, *(mute.code, mute.line, mute.group)) for mute in MUTES)
    got = times_of(line_spans(log(*late, stop=5000 + 10**6, mutes=mutes)))
    assert got[4] == pytest.approx(calm[4], rel=0.05)
    assert got[5] == pytest.approx(calm[5], rel=0.05)


def test_muted_lines_of_which_nothing_is_left_count_by_their_runs() -> None:
    costs = Costs(line_ns=200, plain_line_ns=6)
    got = times_of(line_spans(log(*hot_loop(10, 500, 4700), stop=5000, mutes=MUTES, costs=costs)))
    assert got[4] == pytest.approx(got[5], rel=0.12)
    assert got[4] + got[5] > 4000


def test_code_that_is_muted_whole_gets_its_part_of_the_callers_line() -> None:
    events = [(0, MAIN, call(1)), (0, MAIN, 2)]
    for n in range(10):
        at = 10 + 100 * n
        events += [(at, HELPER, call(20)), (at, HELPER, 21), (at + 75, HELPER, RETURNED)]
    # In mid-call when it is muted: its frame leaves the stack then.
    events += [(1010, HELPER, call(20)), (1010, HELPER, 21), (1020, HELPER, PAUSED), (5020, MAIN, 3)]
    mutes = (Mute(1015, HELPER, 21, 21), Mute(1015, HELPER, 0, 0))
    spans = line_spans(log(*events, stop=6000, mutes=mutes))
    got = times_of(spans)
    assert got[3] == 980
    assert got[21] == pytest.approx(750 + 4000 * 750 / 1010, rel=0.02)
    assert inclusive_times(spans)[Line("a.py", 2)] == pytest.approx(5020, rel=0.02)
    assert callers_at(spans, 3000) == [2]


def test_a_rare_line_of_muted_code_is_on_the_stack_until_it_returns() -> None:
    events = (
        (0, MAIN, call(1)),
        (0, MAIN, 2),
        (100, HELPER, 25),
        (200, HELPER, 21),
        (300, HELPER, RETURNED),
        (400, HELPER, RETURNED),
        (500, MAIN, 3),
    )
    mutes = (Mute(50, HELPER, 21, 21), Mute(50, HELPER, 0, 0))
    spans = line_spans(log(*events, mutes=mutes))
    assert [callers_at(spans, time) for time in (50, 150, 250, 350, 450, 550)] == [
        [2],
        [25, 2],
        [25, 2],
        [2],
        [2],
        [3],
    ]


def test_skipped_lines_cost_where_no_split_is_known() -> None:
    events = (0, MAIN, call(1)), (0, MAIN, 2), (100, MAIN, 4), (900, MAIN, SKIPPED_LINES - 10), (900, MAIN, 5)
    mutes = (Mute(50, MAIN, 4, 4),)
    costs = Costs(muted_line_ns=30, plain_line_ns=0)
    assert times_of(line_spans(log(*events, mutes=mutes, costs=costs))) == {2: 100, 4: 500, 5: 100}


def test_a_log_can_be_sent_to_another_process() -> None:
    events = log(*NESTED)
    assert pickle.loads(pickle.dumps(events)) == events
    assert len(events) == len(NESTED)
