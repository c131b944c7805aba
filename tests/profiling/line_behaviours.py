"""What the line log does to the process it runs in: `python -m tests.profiling.line_behaviours NAME`.

Each in a process of its own, under any interpreter, by the standard library. The lines here are the user's.
"""

import atexit
import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from trackside.profiling.line_events import LineEvents
from trackside.profiling.line_log import LineLog, LineLogUnavailable

MONITORING: Any = getattr(sys, "monitoring", None)


def make_log(**options: Any) -> LineLog:
    return LineLog(lambda file: file == __file__, **options)


def work() -> int:
    total = 0
    for n in range(3):
        total += n
    return total


def names(events: LineEvents) -> set[str]:
    return {events.places[code].function for code in events.codes}


def logged(program: Callable[[], object]) -> LineEvents:
    log = make_log()
    log.start()
    program()
    return log.stop()


def nothing_is_left_behind() -> None:
    before = state()
    log = make_log()
    log.start()
    assert state() != before
    work()
    log.stop()
    assert state() == before
    frame: Any = sys._getframe()
    while frame is not None:
        assert frame.f_trace is None
        frame = frame.f_back


def state() -> tuple[Any, ...]:
    tools = [MONITORING.get_tool(one) for one in range(6)] if MONITORING else None
    local = None
    if MONITORING:
        local = [
            MONITORING.get_local_events(one, work.__code__) for one in range(6) if MONITORING.get_tool(one)
        ]
    return sys.gettrace(), threading.gettrace(), tools, local


def nothing_is_left_behind_when_the_program_fails() -> None:
    before = state()
    log = make_log()
    log.start()
    try:
        raise KeyError
    except KeyError:
        pass
    finally:
        log.stop()
    assert state() == before


def a_second_log_is_whole_too() -> None:
    log = make_log()
    counts = []
    for _ in range(3):
        log.start()
        work()
        events = log.stop()
        assert "work" in names(events)
        assert events.start_ns <= min(events.times)
        assert max(events.times) <= events.stop_ns
        counts.append([number for number in events.numbers if number > 0])
    assert counts[0] == counts[1] == counts[2]


def a_log_of_other_files_sees_them_though_the_first_did_not() -> None:
    first = LineLog(lambda file: False)
    first.start()
    work()
    assert len(first.stop()) == 0
    assert "work" in names(logged(work))


def starting_twice_and_stopping_twice_are_refused() -> None:
    log = make_log()
    log.start()
    refused(RuntimeError, "runs already", log.start)
    log.stop()
    refused(RuntimeError, "does not run", log.stop)


def refused(kind: type[Exception], words: str, call: Callable[[], object]) -> None:
    said = None
    try:
        call()
    except kind as error:
        said = str(error)
    assert said is not None, f"not refused: {words}"
    assert words in said


def other_tools_keep_what_they_have() -> None:
    if MONITORING is None:
        seen: list[str] = []

        def trace(frame: Any, event: str, arg: Any) -> Any:
            seen.append(event)
            return trace

        log = make_log()
        sys.settrace(trace)
        refused(LineLogUnavailable, "because sys.settrace already holds", log.start)
        assert sys.gettrace() is trace
        work()
        sys.settrace(None)
        assert "line" in seen
        threading.settrace(trace)
        refused(LineLogUnavailable, "because threading.settrace already holds", log.start)
        assert threading.gettrace() is trace
        return
    lines: list[int] = []
    for tool in range(6):
        MONITORING.use_tool_id(tool, f"tool {tool}")
    refused(LineLogUnavailable, "tool 0, tool 1, tool 2, tool 3, tool 4, tool 5", make_log().start)
    MONITORING.free_tool_id(1)
    tool, event = 4, MONITORING.events.LINE
    MONITORING.register_callback(tool, event, lambda code, line: lines.append(line))
    MONITORING.set_local_events(tool, work.__code__, event)
    work()
    alone = list(lines)
    lines.clear()
    events = logged(work)
    assert "work" in names(events)
    assert lines == alone, "while the log ran"
    lines.clear()
    work()
    assert lines == alone, "afterwards"
    assert MONITORING.get_tool(1) is None


def a_later_tool_with_the_same_id_misses_nothing() -> None:
    if MONITORING is None:
        return
    log = make_log()
    log.start()
    taken = [one for one in range(6) if MONITORING.get_tool(one)]
    os.path.join("a", "b")
    work()
    log.stop()
    seen: list[str] = []
    MONITORING.use_tool_id(taken[0], "later")
    event = MONITORING.events.PY_START
    MONITORING.register_callback(taken[0], event, lambda code, offset: seen.append(code.co_name))
    MONITORING.set_events(taken[0], event)
    os.path.join("a", "b")
    work()
    MONITORING.set_events(taken[0], 0)
    assert {"join", "work"} <= set(seen), seen


def what_an_earlier_tool_switched_off_is_seen() -> None:
    if MONITORING is None:
        return
    log = make_log()
    log.start()
    (tool,) = [one for one in range(6) if MONITORING.get_tool(one)]
    log.stop()
    event = MONITORING.events.PY_START
    MONITORING.use_tool_id(tool, "earlier")
    MONITORING.register_callback(tool, event, lambda code, offset: MONITORING.DISABLE)
    MONITORING.set_events(tool, event)
    work()
    MONITORING.register_callback(tool, event, None)
    MONITORING.set_events(tool, 0)
    MONITORING.free_tool_id(tool)
    assert "work" in names(logged(work))


def code_that_is_not_the_users_has_no_events() -> None:
    def program() -> None:
        os.path.join("a", "b")
        sorted([3, 1, 2], key=lambda n: -n)

    events = logged(program)
    assert {place.file for place in events.places} == {__file__}
    assert any("lambda" in name for name in names(events))


def whether_a_file_is_the_users_is_asked_once() -> None:
    asked: list[str] = []

    def is_user(file: str) -> bool:
        asked.append(file)
        return file == __file__

    log = LineLog(is_user)
    log.start()
    for _ in range(3):
        work()
        os.path.join("a", "b")
    log.stop()
    assert asked.count(__file__) == 1
    assert len(asked) == len(set(asked))


def a_question_that_fails_is_reported_and_does_not_stop_the_program() -> None:
    def is_user(file: str) -> bool:
        raise ValueError("no answer")

    log = LineLog(is_user)
    log.start()
    assert work() == 3
    events = log.stop()
    assert len(events) == 0
    assert any("no answer" in sentence for sentence in events.incomplete)


def the_log_ends_itself_when_it_is_full() -> None:
    before = state()
    log = make_log(most_events=20_000)
    log.start()
    for n in range(30):
        varied(n)
    assert state() == before, "off before it is stopped"
    time.sleep(0.02)
    events = log.stop()
    assert 20_000 <= len(events) < 60_000
    (sentence,) = events.incomplete
    assert "at most 20000 are kept" in sentence
    assert "ms before the window did" in sentence
    assert events.stop_ns == max(events.times)


def varied(n: int) -> float:
    """Too many lines to be muted soon."""
    source = "\n".join(f"x = {n} + {line}" for line in range(4_000))
    exec(compile(source, __file__, "exec"), {})
    return n


def the_log_is_stopped_at_exit() -> None:
    log = make_log()

    def at_exit() -> None:
        events = log.stop()
        assert "work" in names(events)
        assert sys.gettrace() is None
        print("stopped at exit")

    atexit.register(at_exit)
    log.start()
    work()


def it_is_stopped_from_another_thread() -> None:
    log = make_log()
    got: list[LineEvents] = []
    log.start()
    work()
    thread = threading.Thread(target=lambda: got.append(log.stop()))
    thread.start()
    thread.join()
    work()
    assert "work" in names(got[0])
    assert sys.gettrace() is None
    assert threading.gettrace() is None


def threads_are_left_alone_afterwards() -> None:
    ready, stopped, done = threading.Event(), threading.Event(), threading.Event()
    left: list[Any] = []

    def other() -> None:
        ready.set()
        stopped.wait(10)
        os.path.join("a", "b")
        left.append(sys.gettrace())
        done.set()

    log = make_log()
    log.start()
    thread = threading.Thread(target=other)
    thread.start()
    ready.wait(10)
    log.stop()
    stopped.set()
    done.wait(10)
    thread.join()
    assert left == [None]


def a_thread_that_ran_before_is_seen_or_named() -> None:
    go, ready = threading.Event(), threading.Event()

    def earlier() -> None:
        ready.set()
        go.wait(10)
        work()

    thread = threading.Thread(target=earlier, name="the earlier one")
    thread.start()
    ready.wait(10)
    log = make_log()
    log.start()
    go.set()
    thread.join()
    events = log.stop()
    if MONITORING:
        assert "work" in names(events)
        assert events.incomplete == ()
        (start,) = [one for one in events.thread_starts if one.name == "the earlier one"]
        assert [events.places[code].function for code, _ in start.stack][-1].endswith("earlier")
    else:
        (sentence,) = events.incomplete
        assert "the earlier one" in sentence


def threads_that_meet_code_at_the_same_time_do_not_mix_it_up() -> None:
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    functions = []
    for n in range(400):
        space: dict[str, Any] = {}
        exec(compile("\n" * (1000 + 2 * n) + f"def f{n}(): return {n}", __file__, "exec"), space)
        functions.append(space[f"f{n}"])
    log = make_log()
    log.start()
    parts = [functions[n::8] for n in range(8)]
    threads = [threading.Thread(target=lambda part=part: [f() for f in part]) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = log.stop()
    sys.setswitchinterval(switch)
    lines = {f.__name__: f.__code__.co_firstlineno for f in functions}
    logged_lines = {
        events.places[code].function: number
        for code, number in zip(events.codes, events.numbers, strict=True)
        if number > 0 and events.places[code].function in lines
    }
    assert logged_lines == lines
    assert len({one.native_id for one in events.thread_starts}) == 9


def a_generator_left_half_way_logs_no_more() -> None:
    def numbers() -> Iterator[int]:
        yield 0
        yield 1
        yield 2

    it = numbers()
    log = make_log()
    log.start()
    next(it)
    events = log.stop()
    count = len(events)
    if MONITORING is None:
        seen: list[str] = []
        sys.settrace(lambda frame, event, arg: seen.append(event))
        assert next(it) == 1
        assert sys.gettrace() is not None, "a trace function that came later is not taken off"
        sys.settrace(None)
        assert seen
    assert list(it)
    assert len(events) == count


def a_forked_child_stops_logging() -> None:
    log = make_log()
    log.start()
    child = os.fork()
    if child == 0:
        time.sleep(0.003)
        work()
        work()
        off = sys.gettrace() is None and (not MONITORING or set(state()[2]) == {None})
        os._exit(0 if off else 1)
    _, status = os.waitpid(child, 0)
    work()
    assert status == 0
    assert "work" in names(log.stop())


def a_tick_comes_from_the_thread_that_started() -> None:
    ticks: list[int] = []
    log = make_log(tick=lambda: ticks.append(threading.get_ident()))
    log.start()
    thread = threading.Thread(target=for_a_while)
    thread.start()
    for_a_while()
    thread.join()
    log.stop()
    assert set(ticks) == {threading.get_ident()}
    assert 2 <= len(ticks) <= 40


def for_a_while() -> None:
    end = time.monotonic() + 0.02
    while time.monotonic() < end:
        time.sleep(0.0005)


def a_tick_that_fails_is_reported_and_not_repeated() -> None:
    calls: list[int] = []

    def tick() -> None:
        calls.append(1)
        raise ValueError("tick")

    log = make_log(tick=tick)
    log.start()
    for_a_while()
    events = log.stop()
    assert len(calls) == 1
    assert any("ValueError('tick')" in sentence for sentence in events.incomplete)


def code_objects_are_not_kept_alive() -> None:
    names: dict[str, Any] = {}
    exec(compile("def short_lived():\n    return 1\n", __file__, "exec"), names)
    function = names.pop("short_lived")
    code = function.__code__
    events = logged(function)
    assert len(events) > 0
    del function, names
    gc.collect()
    assert [one for one in gc.get_referrers(code) if isinstance(one, list | dict)] == []


def a_trace_function_set_meanwhile_is_kept_and_reported() -> None:
    def other(frame: Any, event: str, arg: Any) -> None:
        return None

    log = make_log()
    log.start()
    work()
    sys.settrace(other)
    work()
    events = log.stop()
    assert sys.gettrace() is other
    sys.settrace(None)
    assert "work" in names(events)
    if MONITORING is None:
        (sentence,) = events.incomplete
        assert "took the trace function off" in sentence
    else:
        assert events.incomplete == ()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
