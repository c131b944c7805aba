"""Programs whose lines are timed by hand, under the log: by time and by share, on each way to log lines."""

import pickle
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from tests.profiling import line_programs
from tests.profiling.hand_timer import Waited
from tests.profiling.interpreters import INTERPRETERS, environment, interpreter
from tests.profiling.line_driver import Run

from trackside.profiling.line_stacks import NO_STACK, Line
from trackside.profiling.line_times import LineSpans, inclusive_times, line_spans, self_times

FILE = line_programs.__file__
SOURCE = Path(FILE).read_text().splitlines()
PROGRAMS = [
    name
    for name, value in vars(line_programs).items()
    if callable(value) and getattr(value, "__module__", None) == line_programs.__name__
]
# What ran when must be right in every run; times are compared in the quietest of them.
TOLERANCE_NS = 500_000

pytestmark = pytest.mark.parametrize("which", INTERPRETERS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[Run]]:
    """Of a program; all of them at once in a process of their own, which other tests have left nothing in."""

    @cache
    def all_of(which: str) -> dict[str, list[Run]]:
        out = tmp_path_factory.mktemp("lines") / "runs.pickle"
        command = [interpreter(which), "-m", "tests.profiling.line_driver", str(out), *PROGRAMS]
        subprocess.run(command, check=True, env=environment(), timeout=100)
        loaded: dict[str, list[Run]] = pickle.loads(out.read_bytes())
        return loaded

    return lambda which, program: all_of(which)[program]


def line_of(label: str) -> int:
    (found,) = [number for number, line in enumerate(SOURCE, 1) if f'"{label}"' in line]
    return found


def line_with(program: str, text: str) -> Line:
    """Of that program, the line with that text."""
    first = SOURCE.index(f"def {program}() -> None:")
    return Line(FILE, 1 + next(at for at in range(first, len(SOURCE)) if SOURCE[at].strip() == text))


def place_of(label: str) -> Line:
    inside = {"in the source": 2, "its top level": 5, "far into the function": 604}
    if label in inside:
        return Line("<source of the user>", inside[label])
    return Line(FILE, line_of(label))


def within(run: Run) -> list[Waited]:
    """Those waits that the log saw, from the first to the last moment."""
    events, waits, _ = run
    return [
        wait
        for wait in waits
        if wait.label != "hot loop" and events.start_ns <= wait.start_ns and wait.end_ns <= events.stop_ns
    ]


def stack_at(spans: LineSpans, wait: Waited) -> list[str]:
    """Names of the functions on the stack in the midst of a wait, outermost first."""
    (stack,) = spans.line_at(wait.thread, [(wait.start_ns + wait.end_ns) // 2]).stacks.tolist()
    assert stack != NO_STACK, wait.label
    return [spans.stacks.function(one) for one in spans.stacks.trail(stack)][::-1]


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_moment_is_on_the_line_that_was_running(
    runs: Callable[[str, str], list[Run]], which: str, program: str
) -> None:
    for run in runs(which, program):
        spans = line_spans(run[0])
        assert within(run)
        assert run[0].incomplete == ()
        for wait in within(run):
            moments = [wait.start_ns, (wait.start_ns + wait.end_ns) // 2, wait.end_ns]
            lines = spans.line_at(wait.thread, moments).lines.tolist()
            assert NO_STACK not in lines, wait.label
            places = {place_of(wait.label)}
            if wait.label == "beside the rare line":
                # Muted, and not told apart from the line of its loop.
                places.add(Line(FILE, place_of(wait.label).line - 1))
            assert {spans.stacks.lines[line] for line in lines} <= places, wait.label


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_time_of_each_line_is_the_one_taken_by_hand(
    runs: Callable[[str, str], list[Run]], which: str, program: str
) -> None:
    worst = []
    for run in runs(which, program):
        by_hand: Counter[Line] = Counter()
        for wait in within(run):
            if wait.label in ("after the hot helper, on its line", "beside the rare line"):
                continue  # not all that this line does
            by_hand[place_of(wait.label)] += wait.end_ns - wait.start_ns
        logged = self_times(line_spans(run[0]))
        off = {line: logged[line] - took for line, took in by_hand.items()}
        worst.append(max(off.items(), key=lambda one: abs(one[1])))
    assert min(abs(ns) for _, ns in worst) < TOLERANCE_NS, worst


@pytest.mark.parametrize(
    ("program", "label", "inner"),
    [
        ("nested_helpers", "inner", ["middle", "inner"]),
        ("nested_helpers", "outer, after", []),
        ("generator", "after a yield", ["produce"]),
        ("generator", "between yields", []),
        ("interleaved_generators", "right, inner", ["right", "inner"]),
        ("interleaved_generators", "left", ["left"]),
        ("thrown_into_a_generator", "thrown into", ["target"]),
        ("thrown_into_a_generator", "closed", ["target"]),
        ("thrown_into_a_generator", "after throwing", []),
        ("coroutines", "async generator", ["work", "numbers"]),
        ("coroutines", "after the await", ["work"]),
        ("coroutines", "after the loop", []),
        ("cancelled_task", "cancelled", ["work"]),
        ("exception_through_three_frames", "frame three", ["one", "two", "three"]),
        ("exception_through_three_frames", "handler", []),
        ("exception_through_three_frames", "after the handler", []),
        ("error_swallowed_elsewhere", "rest of the line that swallows", []),
        ("with_statements", "generator got the error", ["managed"]),
        ("with_statements", "after with", []),
        ("decorators", "decorated", ["timed.<locals>.wrapper", "work"]),
        ("class_bodies", "inner class body", ["Model", "Model.Inner"]),
        ("class_bodies", "property", ["Model.__call__", "Model.width"]),
        ("running_already", "first line of the log", ["inner"]),
        ("running_already", "back in the outer frame", []),
        ("hot_recursion", "back from the hot bottom", []),
        ("rare_line_in_a_hot_helper", "rare line of a hot helper", ["look_up"]),
        ("rare_line_in_a_hot_helper", "after the hot helper, on its line", []),
        ("rare_lines_close_together", "rare and soon again", ["look_up"]),
        ("rare_lines_close_together", "beside the rare line", []),
        ("hot_helpers", "after the hot helpers", []),
    ],
)
def test_callers_are_on_the_stack_and_those_left_are_not(
    runs: Callable[[str, str], list[Run]], which: str, program: str, label: str, inner: list[str]
) -> None:
    for run in runs(which, program):
        spans = line_spans(run[0])
        found = [stack_at(spans, wait) for wait in within(run) if wait.label == label]
        assert found
        assert found == [[program, *(f"{program}.<locals>.{name}" for name in inner)]] * len(found)


def test_a_generator_that_throws_into_its_like_is_there_twice(
    runs: Callable[[str, str], list[Run]], which: str
) -> None:
    if (sys.version_info >= (3, 12)) != (which == "here"):
        pytest.skip("sys.settrace does not tell that an exception was thrown into a generator")
    for run in runs(which, "thrown_into_its_like"):
        spans = line_spans(run[0])
        depths = [len(stack_at(spans, wait)) for wait in within(run) if wait.label == "thrown, at any depth"]
        assert depths == [4, 3, 2]


def test_a_thread_has_a_stack_of_its_own(runs: Callable[[str, str], list[Run]], which: str) -> None:
    for run in runs(which, "threads"):
        spans = line_spans(run[0])
        stacks = {wait.label: stack_at(spans, wait) for wait in within(run)}
        assert stacks["left thread"] == ["threads.<locals>.left"]
        assert stacks["helper of the right thread"] == ["threads.<locals>.right", "threads.<locals>.helper"]
        assert stacks["beside the threads"] == ["threads"]
        assert len({wait.thread for wait in within(run)}) == 3


def test_a_deep_stack_is_whole_and_gone_afterwards(runs: Callable[[str, str], list[Run]], which: str) -> None:
    for run in runs(which, "deep_recursion"):
        spans = line_spans(run[0])
        depths = {wait.label: len(stack_at(spans, wait)) for wait in within(run)}
        assert depths == {"bottom": 302, "back from the deep": 1}


def test_a_line_has_the_time_of_what_it_calls_and_recursion_counts_once(
    runs: Callable[[str, str], list[Run]], which: str
) -> None:
    calls = {
        ("nested_helpers", "middle()"): ["middle, before", "inner", "middle, after"],
        ("nested_helpers", "inner()"): ["inner"],
        ("recursion", "descend(4)"): ["on the way down", "on the way up"],
        ("exception_through_three_frames", "one()"): ["frame one", "frame two", "frame three"],
        ("coroutines", "asyncio.run(main())"): [
            "before the await",
            "after the await",
            "async generator",
            "async for",
            "after all tasks",
        ],
    }
    for (program, text), labels in calls.items():
        off = []
        for run in runs(which, program):
            by_hand = sum(wait.end_ns - wait.start_ns for wait in within(run) if wait.label in labels)
            off.append(inclusive_times(line_spans(run[0]))[line_with(program, text)] - by_hand)
        # asyncio itself, and its sleep of 1 ms, are in the line too.
        most = 2 * TOLERANCE_NS + (8_000_000 if program == "coroutines" else 0)
        assert -TOLERANCE_NS < min(off) < most, (text, off)
    for run in runs(which, "recursion"):
        waits = [wait.end_ns - wait.start_ns for wait in within(run) if "on the way" in wait.label]
        logged = inclusive_times(line_spans(run[0]))[line_with("recursion", "descend(depth - 1)")]
        # All but the outermost level, where the sum over the levels would be two and a half times that.
        assert logged < 1.3 * (sum(waits) - waits[0] - waits[-1])


@pytest.mark.slow
def test_shares_next_to_a_hot_loop_are_within_three_points(
    runs: Callable[[str, str], list[Run]], which: str
) -> None:
    (first,) = [n for n, line in enumerate(SOURCE, 1) if "x += i & 7" in line and "y ^= x" in SOURCE[n]]
    loop = [Line(FILE, line) for line in range(first - 1, first + 2)]
    true_shares, logged_shares, events = [], [], []
    for log, _, plain in runs(which, "hot_loop"):
        took = {wait.label: wait.end_ns - wait.start_ns for wait in plain}
        true_shares.append(took["hot loop"] / sum(took.values()))
        times = self_times(line_spans(log))
        logged_shares.append(sum(times[line] for line in loop) / sum(times.values()))
        events.append(len(log))
        # Neither line of the body is forgotten, nor is the loop's own.
        assert min(times[line] for line in loop) > 0.02 * sum(times[line] for line in loop)
    # Of the quiet runs, or the quietest: the loop is short, and what else the machine does makes it longer.
    quiet = [statistics.quantiles(shares, n=4)[0] for shares in (true_shares, logged_shares)]
    quietest = [min(true_shares), min(logged_shares)]
    assert min(abs(true - got) for true, got in (quiet, quietest)) < 0.03, (true_shares, logged_shares)
    assert min(events) < 50_000, "150,000 lines ran"


def test_lines_far_into_a_long_function_are_not_charged_for_the_search_of_their_number(
    runs: Callable[[str, str], list[Run]], which: str
) -> None:
    usual = []
    for events, _, _ in runs(which, "far_into_a_long_function"):
        times = self_times(line_spans(events))
        usual.append(statistics.median(times[Line("<source of the user>", line)] for line in range(300, 600)))
    assert min(usual) < 1_500, "nanoseconds, where the search takes several thousand"


def test_a_rare_line_in_a_hot_loop_has_its_own_time_only(
    runs: Callable[[str, str], list[Run]], which: str
) -> None:
    off = []
    for run in runs(which, "rare_line_in_a_hot_loop"):
        by_hand = sum(wait.end_ns - wait.start_ns for wait in within(run) if wait.label == "rare line")
        off.append(self_times(line_spans(run[0]))[place_of("rare line")] - by_hand)
    assert min(map(abs, off)) < TOLERANCE_NS, off


def test_helpers_called_thousands_of_times_are_muted_whole(
    runs: Callable[[str, str], list[Run]], which: str
) -> None:
    silent, lengths = [], []
    for events, _, _ in runs(which, "hot_helpers"):
        silent.append({events.places[mute.code].function for mute in events.mutes if not mute.line})
        lengths.append(len(events))
    assert {"hot_helpers.<locals>.turned", "hot_helpers.<locals>.<genexpr>"} in silent
    assert min(lengths) < 30_000, "100,000 events would have come"
