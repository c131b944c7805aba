"""What the line log is tried on. Each label of `wait` is on one line, so that its true time is known."""

import asyncio
import contextlib
import functools
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from tests.profiling.hand_timer import note, swallow, wait


def nested_helpers() -> None:
    def middle() -> None:
        wait(4, "middle, before")
        inner()
        wait(2, "middle, after")

    def inner() -> None:
        wait(8, "inner")

    wait(2, "outer, before")
    middle()
    wait(4, "outer, after")


def lambdas() -> None:
    plain: Callable[[], float] = lambda: wait(6, "lambda")  # noqa: E731
    passed = functools.reduce(
        lambda total, ms: total + wait(ms, "lambda passed on"),
        [1.0, 2.0, 3.0],
    )
    plain()
    wait(passed, "after the lambdas")


def two_calls_on_one_line() -> None:
    wait(3, "first of two"), wait(5, "second of two")
    wait(4, "a line of its own")


def comprehension() -> list[float]:
    first = [
        wait(2, "element")
        for _ in range(3)
        if wait(1, "condition")
    ]  # fmt: skip
    wait(5, "between comprehensions")
    return [*first, *{n: wait(2, "value") for n in range(2)}.values()]


def generator() -> None:
    def produce() -> Iterator[int]:
        wait(3, "before the first yield")
        for n in range(3):
            wait(2, "before a yield")
            yield n
            wait(1, "after a yield")

    for _ in produce():
        wait(4, "between yields")
    total = sum(wait(1, "generator expression") for _ in range(4))
    wait(total, "after the generators")


def interleaved_generators() -> None:
    def left() -> Iterator[int]:
        while True:
            wait(2, "left")
            yield 1

    def right() -> Iterator[int]:
        yield from inner()

    def inner() -> Iterator[int]:
        for n in range(3):
            wait(3, "right, inner")
            yield n

    for _ in zip(left(), right(), strict=False):
        wait(1, "both")
    wait(4, "generators dropped")


def thrown_into_a_generator() -> None:
    def target() -> Iterator[int]:
        try:
            wait(2, "before it is thrown")
            yield 1
        except ValueError:
            wait(4, "thrown into")
            yield 2
        finally:
            wait(3, "closed")

    it: Any = target()
    next(it)
    wait(2, "waiting to throw")
    it.throw(ValueError)
    wait(3, "after throwing")
    it.close()
    wait(4, "after closing")


def thrown_into_its_like() -> None:
    def relay(depth: int) -> Iterator[int]:
        try:
            yield depth
        except ValueError:
            if depth:
                inner: Any = relay(depth - 1)
                next(inner)
                inner.throw(ValueError)
            wait(1, "thrown, at any depth")
            yield depth

    outer: Any = relay(2)
    next(outer)
    outer.throw(ValueError)
    wait(2, "after throwing at each depth")


def coroutines() -> None:
    async def numbers() -> AsyncIterator[int]:
        for n in range(2):
            wait(1, "async generator")
            yield n
            await asyncio.sleep(0)

    async def work(name: str) -> None:
        wait(2, "before the await")
        await asyncio.sleep(0.001)
        wait(3, "after the await")
        async for _ in numbers():
            wait(1, "async for")

    async def main() -> None:
        await asyncio.gather(work("one"), work("two"))
        wait(4, "after all tasks")

    asyncio.run(main())
    wait(2, "after the loop")


def cancelled_task() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            wait(4, "cancelled")
            raise

    async def main() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        wait(3, "after the cancelled task")

    asyncio.run(main())


def threads() -> None:
    def left() -> None:
        wait(15, "left thread")

    def right() -> None:
        wait(5, "right thread")
        helper()

    def helper() -> None:
        wait(5, "helper of the right thread")

    both = [threading.Thread(target=target) for target in (left, right)]
    for thread in both:
        thread.start()
    wait(5, "beside the threads")
    for thread in both:
        thread.join()
    wait(5, "after the threads")


def many_short_threads() -> None:
    def work() -> None:
        wait(1, "short thread")

    for _ in range(6):  # each may get the identifier of the one before
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    wait(3, "after the short threads")


def recursion() -> None:
    def descend(depth: int) -> None:
        wait(1, "on the way down")
        if depth:
            descend(depth - 1)
        wait(2, "on the way up")

    descend(4)
    wait(3, "after the recursion")


def deep_recursion() -> None:
    def descend(depth: int) -> int:
        if depth == 0:
            wait(8, "bottom")
            return 0
        return 1 + descend(depth - 1)

    descend(300)
    wait(4, "back from the deep")


def hot_recursion() -> None:
    """So fast that it is muted on the way down, and with a line at its end that was never seen before."""

    def descend(depth: int) -> int:
        if depth == 0:
            wait(8, "hot bottom")
            return 0
        return 1 + descend(depth - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        descend(4_000)
        wait(4, "back from the hot bottom")
        descend(4_000)
    finally:
        sys.setrecursionlimit(limit)
    wait(4, "back again")


def rare_line_in_a_hot_helper() -> int:
    kept: dict[int, float] = {}

    def look_up(n: int) -> float:
        key = n // 5_000
        if key not in kept:
            kept[key] = wait(1, "rare line of a hot helper")
        return kept[key]

    total = 0.0
    for n in range(20_000):
        total += look_up(n)
    kept.clear()
    total += sum(map(look_up, range(20_000))) + wait(2, "after the hot helper, on its line")
    wait(3, "after the hot helper")
    return int(total)


def exception_through_three_frames() -> None:
    def one() -> None:
        wait(1, "frame one")
        two()

    def two() -> None:
        wait(2, "frame two")
        three()

    def three() -> None:
        wait(3, "frame three")
        raise KeyError("three")

    for _ in range(2):
        try:
            one()
        except KeyError:
            wait(4, "handler")
        wait(5, "after the handler")


def error_swallowed_elsewhere() -> None:
    """Between the error and the end of the line no other line begins."""

    def fails() -> None:
        wait(1, "before the error")
        raise ValueError

    swallow(fails, 4, "rest of the line that swallows")
    wait(2, "after the line that swallows")


def try_finally() -> None:
    def work() -> float:
        try:
            wait(2, "try")
            return wait(3, "return in try")
        finally:
            wait(4, "finally")

    def fails() -> None:
        try:
            wait(1, "try that fails")
            raise ValueError
        finally:
            wait(2, "finally after an error")

    work()
    with contextlib.suppress(ValueError):
        fails()
    try:
        wait(1, "no error")
    except ValueError:
        wait(1, "never")
    else:
        wait(3, "else")


def with_statements() -> None:
    class Managed:
        def __enter__(self) -> None:
            wait(2, "enter")

        def __exit__(self, *_: object) -> bool:
            wait(3, "exit")
            return True

    @contextlib.contextmanager
    def managed() -> Iterator[None]:
        wait(1, "generator enter")
        try:
            yield
        except KeyError:
            wait(3, "generator got the error")
        wait(2, "generator exit")

    with Managed(), managed():
        wait(4, "body")
    with managed():
        wait(2, "body that fails")
        raise KeyError
    with Managed():
        raise ValueError
    wait(3, "after with")


def decorators() -> None:
    def timed(function: Callable[[], float]) -> Callable[[], float]:
        wait(2, "decorating")

        @functools.wraps(function)
        def wrapper() -> float:
            wait(1, "wrapper, before")
            result = function()
            wait(2, "wrapper, after")
            return result

        return wrapper

    @timed
    @functools.cache
    def work() -> float:
        return wait(6, "decorated")

    work()
    work()
    wait(3, "after the decorated")


def class_bodies() -> None:
    class Model:
        size = wait(4, "class body")

        class Inner:
            size = wait(2, "inner class body")

        @property
        def width(self) -> float:
            return wait(3, "property")

        def __call__(self) -> float:
            return self.width + wait(2, "call operator")

    Model()()
    wait(3, "after the class")


def executed_source() -> None:
    source = "def inside():\n    wait(5, 'in the source')\n\ninside()\nwait(3, 'its top level')\n"
    exec(compile(source, "<source of the user>", "exec"), {"wait": wait})
    wait(4, "after the source")


def rare_lines_close_together() -> int:
    def look_up(n: int) -> float:
        if n % 4_000 in (1_000, 1_003):
            return wait(0.03, "rare and soon again")
        return 1.0

    total = 0.0
    for n in range(20_000):
        total += look_up(n) + (wait(0.05, "beside the rare line") if n % 4_000 == 1_003 else 0.0)
    wait(3, "after the rare lines")
    return int(total)


def far_into_a_long_function() -> None:
    """Hundreds of lines, and at the end a hot loop."""
    source = [
        "def long(n):",
        *["    x = n"] * 600,
        "    for i in range(20_000):",
        "        x += i & 7",
        "    wait(5, 'far into the function')",
        "long(1)",
    ]
    exec(compile("\n".join(source), "<source of the user>", "exec"), {"wait": wait})
    wait(4, "after the long function")


def running_already(begin: Callable[[], None], end: Callable[[], None]) -> None:
    """The log begins and ends in the midst of it, with frames on the stack and a generator half-way."""

    def produce() -> Iterator[int]:
        for n in range(3):
            wait(2, "half-way generator")
            yield n

    def inner() -> None:
        wait(2, "before the log")
        begin()
        wait(3, "first line of the log")
        next(it)

    it = produce()
    next(it)
    inner()
    wait(4, "back in the outer frame")
    for _ in it:
        wait(1, "rest of the generator")
    end()
    wait(1, "after the log")


def hot_loop() -> int:
    x = y = 0
    wait(20, "before the hot loop")
    wait(20, "just before the hot loop")
    start = time.perf_counter_ns()
    for i in range(50_000):
        x += i & 7
        y ^= x
    note("hot loop", start)
    wait(20, "just after the hot loop")
    wait(20, "after the hot loop")
    return x ^ y


def rare_line_in_a_hot_loop() -> int:
    x = 0
    for i in range(50_000):
        x += i & 7
        x ^= i
        if i % 5_000 == 4_999:
            wait(1, "rare line")
    wait(5, "after the loop with a rare line")
    return x


def hot_helpers() -> int:
    def turned(n: int) -> int:
        return -n

    wait(5, "before the hot helpers")
    values = sorted(range(20_000), key=turned)
    wait(5, "between the hot helpers")
    total = sum(n & 7 for n in values)
    wait(5, "after the hot helpers")
    return total
