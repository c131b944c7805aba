"""Pricing and ranking, the pace of a traced graph, and rules that no program on every machine can show."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.trace.kineto import Maker

from trackside.diagnose import diagnosis, training
from trackside.diagnose.diagnosis import all_rules, diagnose
from trackside.diagnose.evidence import Evidence, Machine, gather
from trackside.diagnose.rule import RULES, Draft, Rule
from trackside.diagnose.source import read_source
from trackside.diagnose.workbench import Memory, Timing, Workbench
from trackside.profiling.captured import Captured
from trackside.profiling.line_stacks import Line
from trackside.records.profile import WindowTimes
from trackside.trace.edits import Scale
from trackside.trace.reader import read_trace
from trackside.trace.steps import Steps

STEPS = 5


def host_steps(folder: Path, hiccup: float = 0.0, captured: Captured | None = None) -> Evidence:
    """Steps of 1 ms on the host: a product of 600 µs, and sixteen operators of 20 µs, 5 µs apart."""
    maker = Maker()
    for number in range(STEPS):
        start = 1_000.0 * number + (hiccup if number > 2 else 0.0)
        late = hiccup if number == 2 else 0.0
        maker.mark(f"ProfilerStep#{number}", start, 999 + late)
        shapes = {"Input Dims": [[512, 768], [768, 768]], "Input type": ["float", "float"]}
        maker.op("aten::mm", start, 600 + late, **shapes)
        for place in range(16):
            maker.op("aten::add", start + 600 + late + 25.0 * place, 20, **shapes)
    found = captured or Captured()
    found.traced = read_trace(maker.write(folder / "trace.json"))
    evidence = gather(found, ["train.py"], Machine(cpus=2))
    assert evidence is not None
    return evidence


def test_a_hiccup_in_one_step_does_not_count(tmp_path: Path) -> None:
    calm, disturbed = host_steps(tmp_path), host_steps(tmp_path, hiccup=40_000)
    assert disturbed.step_ns == pytest.approx(calm.step_ns)
    assert disturbed.before_as_traced.step_ns > 8 * calm.step_ns
    assert disturbed.share(disturbed.ops("aten::mm")) == pytest.approx(0.6, abs=0.01)


def test_the_range_of_an_optimizer_counts_in_the_last_step_too(tmp_path: Path) -> None:
    """The hook that ends a step runs inside the range, which ends a little later."""
    maker = Maker()
    ends = []
    for number in range(4):
        start = 100.0 * number
        maker.op("aten::mm", start + 10, 50)
        maker.mark("Optimizer.step#Adam.step", start + 70, 32)
        maker.op("aten::add_", start + 75, 20)
        ends.append(int((start + 100) * 1e3))
    begins = [0, *ends[:-1]]
    found = Captured(steps=Steps(np.array(begins), np.array(ends), "optimizer"))
    found.traced = read_trace(maker.write(tmp_path / "trace.json"))
    evidence = gather(found, ["train.py"])
    assert evidence is not None
    assert len(evidence.annotations("Optimizer.step#")) == len(evidence.steps) == 4


def test_tracing_is_taken_off_each_operator_and_not_in_proportion(tmp_path: Path) -> None:
    untraced = WindowTimes(window="A", steps=5, step_ms=0.985, spread=0.0, slowdown=None)
    evidence = host_steps(tmp_path, captured=Captured(windows=[untraced]))
    assert evidence.step_ns == pytest.approx(985_000, rel=0.001)
    # Of 15 µs the product has lost nothing: tracing takes its time before an event begins and behind its end.
    assert evidence.cost(evidence.ops("aten::mm")) == pytest.approx(600_000, abs=100)


def test_a_machine_that_got_faster_is_not_taken_for_tracing(tmp_path: Path) -> None:
    untraced = WindowTimes(window="A", steps=5, step_ms=0.5, spread=0.0, slowdown=None)
    evidence = host_steps(tmp_path, captured=Captured(windows=[untraced]))
    assert evidence.share(evidence.ops("aten::add")) > 0.28


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> dict[str, Rule]:
    """Rules of the test's own instead of all."""
    all_rules()
    rules: dict[str, Rule] = {}
    monkeypatch.setattr(diagnosis, "RULES", rules)
    return rules


def a_rule(name: str, drafts: list[Draft], **more: object) -> Rule:
    return replace(RULES["float64"], id=name, look=lambda evidence: iter(drafts), **more)  # type: ignore[arg-type]


def test_findings_are_ranked_and_together_they_gain_less_than_their_sum(
    tmp_path: Path, only: dict[str, Rule]
) -> None:
    evidence = host_steps(tmp_path)
    product, small = evidence.tasks(evidence.ops("aten::mm")), evidence.tasks(evidence.ops("aten::add"))
    half = Draft("half", Line("a.py", 1), ["1"], "f", [Scale(product, 0.5)])
    gone = Draft("gone", Line("a.py", 2), ["1"], "f", [Scale(product, 0.1), Scale(small, 0.9)])
    only.update(one=a_rule("one", [half]), other=a_rule("other", [gone]))
    found = diagnose(evidence)
    assert [one.id for one in found.findings] == ["other", "one"]
    assert found.findings[1].gain.mid == pytest.approx(0.3, abs=0.01)
    # Both shorten the product: the deeper cut counts, once.
    assert found.together is not None
    assert found.together.mid == pytest.approx(found.findings[0].gain.mid)
    assert found.findings[0].prove == "trackside compare --command 'python train.py' 'python train_new.py'"


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        (["train.py", "--lr", "0.1"], "'python train.py --lr 0.1' 'python train_new.py --lr 0.1'"),
        (["./a b/train"], """'python '"'"'./a b/train'"'"'' 'python '"'"'./a b/train_new'"'"''"""),
        (["app/"], "'python app/' 'python app_new'"),
        (
            ["-m", "package.train", "-n", "1"],
            "'python -m package.train -n 1' 'python -m package.train_new -n 1'",
        ),
        (["-", "1"], None),
        ([], None),
    ],
)
def test_a_proof_compares_the_program_with_a_changed_copy(
    tmp_path: Path, only: dict[str, Rule], command: list[str], programs: str | None
) -> None:
    evidence = replace(host_steps(tmp_path), command=tuple(command))
    product = evidence.tasks(evidence.ops("aten::mm"))
    only.update(one=a_rule("one", [Draft("half", Line("a.py", 1), ["1"], "f", [Scale(product, 0.5)])]))
    (found,) = diagnose(evidence).findings
    assert found.prove == (None if programs is None else f"trackside compare --command {programs}")


def test_ranges_are_neither_too_narrow_nor_too_wide(tmp_path: Path, only: dict[str, Rule]) -> None:
    evidence = host_steps(tmp_path)
    product = evidence.tasks(evidence.ops("aten::mm"))
    wide = Draft(
        "wide", Line("a.py", 1), ["1"], "f", [Scale(product, 0.7)], least=[], most=[Scale(product, 0.0)]
    )
    sure = Draft("sure", Line("a.py", 2), ["1"], "f", [Scale(product, 0.95)], spread=0.0)
    only.update(wide=a_rule("wide", [wide]), sure=a_rule("sure", [sure]))
    first, second = diagnose(evidence).findings
    assert first.gain.high - first.gain.low == pytest.approx(first.gain.mid)
    assert second.gain.high - second.gain.low == pytest.approx(0.03)  # 1.5 points to either side


def test_a_particular_rule_silences_a_general_one_on_its_line_only(
    tmp_path: Path, only: dict[str, Rule]
) -> None:
    evidence = host_steps(tmp_path)
    product = evidence.tasks(evidence.ops("aten::mm"))

    def draft(line: int) -> Draft:
        return Draft("t", Line("a.py", line), ["1"], "f", [Scale(product, 0.5)])

    only["general"] = a_rule("general", [draft(1), draft(2)], yields_to=frozenset({"particular"}))
    only["particular"] = a_rule("particular", [draft(1)])
    assert {(one.id, one.line) for one in diagnose(evidence).findings} == {("general", 2), ("particular", 1)}


def test_a_rule_that_breaks_down_is_named_and_the_others_still_speak(
    tmp_path: Path, only: dict[str, Rule]
) -> None:
    evidence = host_steps(tmp_path)

    def breaks(evidence: Evidence) -> Iterator[Draft]:
        raise KeyError("x")
        yield

    product = evidence.tasks(evidence.ops("aten::mm"))
    only["broken"] = replace(RULES["float64"], id="broken", look=breaks)
    only["sound"] = a_rule("sound", [Draft("t", None, ["1"], "f", [Scale(product, 0.5)])])
    found = diagnose(evidence)
    assert [one.id for one in found.findings] == ["sound"]
    assert found.failed[0].what == "rule broken"
    assert "KeyError" in found.failed[0].effect


class Saying(Workbench):
    """Gives the answers of a test, in seconds by setup, arms, threads and memory, and times nothing."""

    def __init__(
        self, answer: Callable[[str, tuple[str, ...], int | None, Memory], tuple[float, ...]]
    ) -> None:
        super().__init__()
        self._answer = answer

    def times(
        self,
        setup: str,
        *arms: str,
        threads: int | None = None,
        on_host: bool = False,
        memory: Memory = "kept",
    ) -> tuple[Timing, ...] | None:
        self.asked += 1
        ast.parse(setup)
        return tuple(Timing(seconds) for seconds in self._answer(setup, arms, threads, memory))


def two_idle_cores(
    setup: str, arms: tuple[str, ...], threads: int | None, memory: Memory
) -> tuple[float, ...]:
    """As the real one said for a product of 512×768 with 768×768 on two quiet cores: 7.1 and 3.7 ms."""
    assert arms == ("torch.mm(a, b)",)
    return ({1: 7.1e-3, 2: 3.7e-3}[threads or 0],)


def test_a_program_that_sets_too_few_threads_is_told(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import torch\ntorch.set_num_threads(1)\n")
    source = read_source(str(program))
    assert source is not None
    evidence = replace(host_steps(tmp_path), sources={str(program): source}, workbench=Saying(two_idle_cores))
    (found,) = [one for one in diagnose(evidence).findings if one.id == "threads"]
    assert found.line == 2
    assert found.gain.mid == pytest.approx(0.6 * (1 - 3.7 / 7.1), abs=0.01)
    assert found.diff is not None
    assert "+torch.set_num_threads(2)" in found.diff
    program.write_text("import torch\ntorch.set_num_threads(2)\n")
    source = read_source(str(program))
    assert source is not None
    repaired = replace(evidence, sources={str(program): source})
    assert "threads" not in {one.id for one in diagnose(repaired).findings}


def test_the_workbench_times_both_ways_and_refuses_what_cannot_run() -> None:
    with Workbench(threads=1, seconds=0.05) as bench:
        ratio = bench.ratio("a = torch.rand(300, 300)", "\n".join(["a @ a"] * 10), "a @ a")
        assert ratio is not None
        assert 0.01 < ratio.host < 0.7
        assert ratio.device is None
        assert bench.ratio("a = nonsense", "a", "a") is None
        # It goes on after a question that failed.
        assert bench.times("x = 1", "x + 1") is not None


def test_the_workbench_forgets_whether_a_question_took_derivatives() -> None:
    with Workbench(threads=1, seconds=0.05) as bench:
        assert bench.times("torch.set_grad_enabled(False)", "1") is not None
        assert bench.times("assert torch.is_grad_enabled()", "1") is not None


SOFTMAX = (
    "torch.set_grad_enabled(False); x = torch.rand(700, 600)",
    "e = (x - x.amax(-1, keepdim=True)).exp(); e / e.sum(-1, keepdim=True)",
    "x.softmax(-1)",
)


def test_a_way_that_takes_a_program_as_long_as_where_memory_is_kept_is_compared_there() -> None:
    with Workbench(threads=1, seconds=0.2) as bench:
        kept = bench.times(*SOFTMAX)
        assert kept is not None
        here = bench.ratio(*SOFTMAX, old_ns=1.1e9 * kept[0].host)
        assert here is not None
        assert here == bench.ratio(*SOFTMAX)
        assert here.host == pytest.approx(kept[1].host / kept[0].host)


def test_a_way_that_pays_for_new_memory_in_a_program_leaves_open_whether_the_new_one_does() -> None:
    with Workbench(threads=1, seconds=0.2) as bench:
        kept, back = bench.times(*SOFTMAX), bench.times(*SOFTMAX, memory="given back")
        assert kept is not None
        assert back is not None
        assert back[0].host > 1.8 * kept[0].host
        seen = {}
        for reading in ("least", "usual", "most"):
            with bench.read(reading):
                ratio = bench.ratio(*SOFTMAX, old_ns=1e9 * back[0].host)
                assert ratio is not None
                seen[reading] = ratio.host
        assert seen["least"] == pytest.approx(1.06 * back[1].host / back[0].host)
        assert seen["most"] == pytest.approx(0.94 * kept[1].host / back[0].host)
        assert seen["most"] < seen["usual"] < seen["least"]


def two_memories(setup: str, arms: tuple[str, ...], threads: int | None, memory: Memory) -> tuple[float, ...]:
    """Of two ways the second is little faster, but for what new memory costs the first."""
    return {"kept": (380e-6, 330e-6), "given back": (2121e-6, 2000e-6)}[memory]


def test_the_range_of_a_replacement_holds_what_its_timings_leave_open(
    tmp_path: Path, only: dict[str, Rule]
) -> None:
    evidence = replace(host_steps(tmp_path), workbench=Saying(two_memories))

    def look(evidence: Evidence, old_ns: float) -> Iterator[Draft]:
        assert evidence.workbench is not None
        ratio = evidence.workbench.ratio("", "old", "new", old_ns=old_ns)
        assert ratio is not None
        rows = evidence.ops("aten::mm")
        yield Draft(f"{old_ns}", Line("a.py", 1), ["1"], "f", evidence.shrunk(rows, ratio), spread=0.0)

    gains = []
    for old_ns in (400e3, 2121e3):
        only["one"] = replace(RULES["float64"], id="one", look=partial(look, old_ns=old_ns))
        gains.append(diagnose(evidence).findings[0].gain)
    kept, back = gains
    share = evidence.share(evidence.ops("aten::mm"))
    assert kept.mid == pytest.approx(share * (1 - 330 / 380), abs=0.003)
    assert back.mid == pytest.approx(share * (1 - (330 + 2000) / 2 / 2121), abs=0.003)
    # As wide as a range may be: one way it gains nothing, the other way most of the old way's time.
    assert back.high - back.low == pytest.approx(back.mid)
    assert back.low < 0.7 * back.mid
    assert back.high > 1.3 * back.mid


def test_a_reading_by_which_a_change_is_not_worth_it_keeps_the_range_low(
    tmp_path: Path, only: dict[str, Rule]
) -> None:
    evidence = replace(host_steps(tmp_path), workbench=Saying(two_memories))

    def look(evidence: Evidence) -> Iterator[Draft]:
        assert evidence.workbench is not None
        ratio = evidence.workbench.ratio("", "old", "new", old_ns=2121e3)
        assert ratio is not None
        assert ratio.surely > 0.9
        assert str(ratio).startswith("between 16 % and 94 % of the time")
        if ratio.best < 0.9:
            edits = evidence.shrunk(evidence.ops("aten::mm"), ratio)
            yield Draft("t", Line("a.py", 1), ["1"], "f", edits, spread=0.0)

    only["one"] = replace(RULES["float64"], id="one", look=look)
    (found,) = diagnose(evidence).findings
    assert found.gain.low < 0.6 * found.gain.mid


def images(folder: Path) -> Evidence:
    """Steps of 1 ms: two unlike convolutions of 200 and 300 µs, and pooling of 400."""
    maker = Maker()
    kinds = ["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar"]
    values = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"]
    for number in range(STEPS):
        start = 1_000.0 * number
        maker.mark(f"ProfilerStep#{number}", start, 999)
        for at, took, channels in ((0, 200, 3), (200, 300, 24)):
            shapes = [[6, channels, 40, 40], [24, channels, 3, 3], [24], [], [], [], []]
            more = {"Input Dims": shapes, "Input type": kinds, "Concrete Inputs": values}
            maker.op("aten::conv2d", start + at, took, **more)
        pool = {
            "Input Dims": [[6, 24, 40, 40], [], [], [], [], []],
            "Input type": ["float", "ScalarList", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
            "Concrete Inputs": ["", "[2, 2]", "[]", "[0, 0]", "[1, 1]", "False"],
        }
        maker.op("aten::max_pool2d", start + 500, 400, **pool)
    captured = Captured()
    captured.traced = read_trace(maker.write(folder / "trace.json"))
    found = gather(captured, ["train.py"])
    assert found is not None
    return found


def test_in_channels_last_pooling_counts_and_so_does_what_becomes_slower(tmp_path: Path) -> None:
    asked = []

    def answer(setup: str, arms: tuple[str, ...], *_: object) -> tuple[float, ...]:
        asked.append(setup)
        if "max_pool2d(x, [2, 2], [2, 2], [0, 0])" in setup:
            return 1.0, 0.05
        return (1.0, 1.3) if "(6, 3, 40, 40)" in setup else (1.0, 0.7)

    evidence = replace(images(tmp_path), workbench=Saying(answer))
    (found,) = [one for one in diagnose(evidence).findings if one.id == "channels-first"]
    assert found.gain.mid == pytest.approx(0.4 * 0.95 + 0.3 * 0.3 - 0.2 * 0.3, abs=0.01)
    # Nothing of the program takes derivatives.
    assert all("backward" not in setup and "set_grad_enabled(False)" in setup for setup in asked)
    assert any("F.conv2d(x, w, None, [1, 1], [1, 1], [1, 1])" in setup for setup in asked)


def recorded(folder: Path, on_device: float) -> Evidence:
    """Steps of forty operators of 10 µs that autograd records; on a device each takes so long."""
    maker = Maker()
    length = 40 * max(12.0, on_device) + 20
    for number in range(STEPS):
        start = length * number
        maker.mark(f"ProfilerStep#{number}", start, length - 1)
        for place in range(40):
            at = start + 12.0 * place
            more = {"Sequence number": 40 * number + place, "Fwd thread id": 0}
            shapes = {"Input Dims": [[32, 12], []], "Input type": ["float", "Scalar"]}
            maker.op("aten::mul", at, 10, **more, **shapes)
            if on_device:
                maker.kernel("multiply", at + 2, start + 6 + on_device * place, on_device - 0.5)
        if on_device:
            maker.add("cuda_runtime", "cudaDeviceSynchronize", start + 481, length - 490)
    captured = Captured()
    captured.traced = read_trace(maker.write(folder / "trace.json"))
    found = gather(captured, ["train.py"])
    assert found is not None
    return found


@pytest.mark.parametrize(("on_device", "gain"), [(0.0, 0.25 * 400 / 500), (30.0, 0.0)])
def test_recording_costs_the_host_and_no_kernel(tmp_path: Path, on_device: float, gain: float) -> None:
    asked: list[str] = []

    def answer(setup: str, arms: tuple[str, ...], *_: object) -> tuple[float, ...]:
        turns = 20 if on_device else 40
        asked.append(setup)
        assert f"range({turns})" in setup
        return 2.5e-6 * turns + 1e-6, 1e-6

    evidence = replace(recorded(tmp_path, on_device), workbench=Saying(answer))
    rows = evidence.ops("aten::mul").tolist()
    kinds = training._recording_ns(evidence, rows)
    assert len(asked) == 1
    edits = training._unrecorded(evidence, {ns: sorted(own) for ns, own in kinds.items()})
    saved = diagnosis.predict(evidence.traced.graph, edits, evidence.before).gain
    assert saved == pytest.approx(gain, abs=0.02)


def test_the_workbench_ends_rounds_of_calls_that_become_slow_and_forgets_a_question_s_threads() -> None:
    with Workbench(seconds=0.05) as bench:
        slow_later = "seen.append(1)\ntime.sleep(0.05 * (len(seen) > 3))"
        assert bench.times("import time; seen = []", slow_later, threads=3) is not None
        assert bench.times("assert torch.get_num_threads() == 3", "1", threads=3) is not None
        assert bench.times("assert torch.get_num_threads() != 3", "1") is not None


def test_steps_of_unequal_make_keep_their_times(tmp_path: Path) -> None:
    maker = Maker()
    for number in range(4):
        maker.mark(f"ProfilerStep#{number}", 100.0 * number, 99)
        for place in range(1 + number % 2):
            maker.op("aten::mm", 100.0 * number + 30 * place, 20.0 + number)
    evidence = gather(Captured(traced=read_trace(maker.write(tmp_path / "t.json"))))
    assert evidence is not None
    assert np.array_equal(evidence.traced.graph.duration_ns, evidence.as_traced.graph.duration_ns)
