"""Rules about devices: on traces of a real H200, and on traces made by hand, with the problem and without it.

The traces in `traces/` were recorded there (torch 2.11); what is made by hand was never seen on a device.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.trace.kineto import DEVICE, Maker

from trackside.diagnose.diagnosis import all_rules, diagnose
from trackside.diagnose.evidence import Evidence, Machine, gather
from trackside.profiling.captured import Captured
from trackside.records.profile import Finding
from trackside.trace.reader import read_trace

TRACES = Path(__file__).parent / "traces"
CEILINGS = {
    "gpu.gemm.fp32": 51.3e12,
    "gpu.gemm.tf32": 353e12,
    "gpu.memory.copy": 4.3e12,
    "gpu.l2.copy": 6.31e12,
    "gpu.copy.host-to-device.pinned": 48.9e9,
}
STEP, STEPS = 2_000.0, 4


def evidence(path: Path) -> Evidence:
    found = gather(Captured(traced=read_trace(path)), ["train.py"], Machine(ceilings=CEILINGS))
    assert found is not None
    return found


def findings(path: Path) -> dict[str, Finding]:
    found = diagnose(evidence(path), least=0.0)
    assert found.failed == []
    for one in found.findings:
        assert one.gain.high - one.gain.low <= max(0.05, one.gain.mid) + 1e-9
        assert one.gain.high <= (1 + one.gain.mid) / 2
    return {one.id: one for one in found.findings}


# -- recorded ----------------------------------------------------------------------------------------


def test_a_training_run_whose_device_waits_is_told_to_launch_less() -> None:
    found = findings(TRACES / "train.json.gz")
    assert found["tiny-kernels"].gain.low > 0.1
    assert "76 %" in found["tiny-kernels"].evidence[0]
    assert found["optimizer-kernels"].gain.mid > 0.02
    # The device waits for the host anyway: quicker products would gain next to nothing.
    assert found["tf32-off"].gain.mid < 0.02


def test_a_device_is_idle_for_as_much_of_a_step_as_the_page_says_beside_a_step_that_was_held_up() -> None:
    # The first of six steps took 10.6 ms, the others about 1.9, of which the device works 1.3.
    found = findings(TRACES / "infer.json.gz")
    assert "the device is idle for 34 % of the step" in found["tiny-kernels"].evidence[0]


def test_a_replayed_graph_is_bound_by_its_products_and_not_by_the_host() -> None:
    found = findings(TRACES / "graph.json.gz")
    assert found["tf32-off"].gain.mid > 0.15
    assert not {"tiny-kernels", "host-bound", "optimizer-kernels"} & set(found)
    assert "scalar-sync" in found


def test_a_training_run_in_float32_with_pageable_batches_is_told_both() -> None:
    found = findings(Path(__file__).parents[1] / "trace" / "data" / "pageable.json.gz")
    # 78 % of the step, in a fifth of the time.
    assert found["tf32-off"].gain.low < 0.6 < found["tf32-off"].gain.high
    assert "14 %" in found["tf32-off"].evidence[1] or "15 %" in found["tf32-off"].evidence[1]
    assert found["pageable-copy"].gain.mid == pytest.approx(0.047, abs=0.01)
    assert "49 GB/s" in found["pageable-copy"].evidence[0]
    assert not {"tiny-kernels", "host-bound"} & set(found)


# -- made by hand --------------------------------------------------------------------------------------


class Step:
    """One step of 2 ms: three products of 400 µs, launched ahead, and room for a problem."""

    def __init__(self, maker: Maker, start: float) -> None:
        self.maker, self.start, self.length = maker, start, STEP
        for place in range(3):
            self.product(20 + 20.0 * place, 60 + 400.0 * place, 400)

    def product(self, at: float, runs: float, length: float, name: str = "sm90_gemm", **inputs: Any) -> None:
        self.op("aten::mm", at, 10, **inputs)
        self.maker.kernel(name, self.start + at + 2, self.start + runs, length)

    def wait(self, until: float, since: float = 200) -> None:
        """The host waits for the device, and the next step begins: the device sets the pace."""
        self.call("cudaStreamSynchronize", since, until + 5 - since)
        self.length = until + 10

    def op(self, name: str, at: float, length: float, **inputs: Any) -> None:
        self.maker.op(name, self.start + at, length, **inputs)

    def call(self, name: str, at: float, length: float) -> None:
        self.maker.add("cuda_runtime", name, self.start + at, length)

    def kernel(self, name: str, at: float, runs: float, length: float) -> None:
        self.maker.kernel(name, self.start + at, self.start + runs, length)

    def copy(self, name: str, at: float, runs: float, length: float, size: int) -> None:
        self.maker.on_device("gpu_memcpy", name, self.start + at, self.start + runs, length, bytes=size)


def _explicit_sync(step: Step) -> None:
    step.call("cudaDeviceSynchronize", 100, 1165)


def _allocates(step: Step) -> None:
    step.call("cudaMalloc", 82, 300)
    step.call("cudaFree", 390, 1000)
    step.product(1400, 1420, 300)


def _masks(step: Step) -> None:
    step.op("aten::nonzero", 100, 1170)
    step.call("cudaStreamSynchronize", 110, 1155)
    step.product(1300, 1320, 300)


def _reads(step: Step) -> None:
    step.op("aten::item", 100, 1170)
    step.op("aten::_local_scalar_dense", 102, 1166)
    step.call("cudaStreamSynchronize", 110, 1155)
    step.product(1300, 1320, 300)


def _pageable(step: Step) -> None:
    step.op("aten::copy_", 1300, 490)
    step.copy("Memcpy HtoD (Pageable -> Device)", 1305, 1320, 450, 8 << 20)
    step.call("cudaStreamSynchronize", 1310, 465)
    step.product(1810, 1830, 100)
    step.wait(1930, since=1835)


def _pinned(step: Step) -> None:
    step.op("aten::copy_", 1300, 20)
    step.copy("Memcpy HtoD (Pinned -> Device)", 1305, 1320, 8, 8 << 10)


def _many_reads(step: Step) -> None:
    for place in range(6):
        step.op("aten::_to_copy", 1300 + 60.0 * place, 50)
        step.copy("Memcpy DtoH (Device -> Pageable)", 1302 + 60.0 * place, 1310 + 60.0 * place, 3, 4)
    step.product(1700, 1720, 100)


def _made_here(step: Step) -> None:
    step.op("aten::randn", 1270, 300)
    step.op("aten::to", 1580, 60)
    step.copy("Memcpy HtoD (Pinned -> Device)", 1585, 1600, 30, 1 << 20)
    step.product(1650, 1670, 100)


def _layouts(step: Step) -> None:
    step.op("aten::cudnn_convolution", 100, 30)
    step.kernel("void cudnn::engines_precompiled::nchwToNhwcKernel<float>", 105, 1260, 200)
    step.wait(1460)


def _older(step: Step) -> None:
    step.product(90, 1260, 400, name="ampere_bf16_s16816gemm_bf16_128x128_ldg8")
    step.wait(1660)


def _odd(step: Step) -> None:
    inputs = {"Input Dims": [[1023, 511], [511, 777]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    step.product(90, 1260, 400, **inputs)
    step.wait(1660)


def _casts(step: Step) -> None:
    step.op("aten::_to_copy", 90, 20, **{"Input Dims": [[4096, 4096]], "Input type": ["float"]})
    step.kernel("unrolled_elementwise_kernel<direct_copy_kernel_cuda>", 95, 1260, 300)
    step.wait(1560)


def _falls_back(step: Step) -> None:
    step.op("aten::_scaled_dot_product_attention_math", 90, 60)
    step.kernel("softmax_warp_forward", 95, 1260, 200)
    step.kernel("sm90_gemm_2", 110, 1460, 100)
    step.wait(1560)


def _waits_for_others(step: Step) -> None:
    step.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 90, 1260, 500)
    step.wait(1760)


def _small_messages(step: Step) -> None:
    for place in range(12):
        step.op(
            "c10d::allreduce_", 1300 + 40.0 * place, 35, **{"Input Dims": [[256]], "Input type": ["float"]}
        )
    step.product(1850, 1870, 60)


def _nothing(step: Step) -> None:
    step.op("aten::relu", 90, 10)
    step.kernel("relu_kernel", 92, 1260, 40)
    step.wait(1300)


def _replays_late(step: Step) -> None:
    step.call("cudaGraphLaunch", 100, 20)
    step.call("cudaStreamSynchronize", 130, 1135)


PROBLEMS: dict[str, Callable[[Step], None]] = {
    "explicit-sync": _explicit_sync,
    "allocating-in-the-step": _allocates,
    "data-dependent-shape": _masks,
    "scalar-sync": _reads,
    "pageable-copy": _pageable,
    "exposed-copy": _pageable,
    "many-reads-back": _many_reads,
    "made-on-the-host": _made_here,
    "layout-conversions": _layouts,
    "older-products": _older,
    "unaligned-products": _odd,
    "cast-storm": _casts,
    "attention-fallback": _falls_back,
    "exposed-collectives": _waits_for_others,
    "small-messages": _small_messages,
    "gap-between-replays": _replays_late,
}


def made(path: Path, problem: Callable[[Step], None]) -> Path:
    maker = Maker()
    start = 0.0
    for number in range(STEPS):
        step = Step(maker, start)
        problem(step)
        maker.mark(f"ProfilerStep#{number}", start, step.length - 1)
        start += step.length
    document = maker.text().replace(
        '"schemaVersion": 1',
        f'"schemaVersion": 1, "deviceProperties": [{{"id": {DEVICE}, "name": "NVIDIA H200"}}]',
    )
    path.write_text(document)
    return path


@pytest.mark.parametrize("rule", sorted(PROBLEMS))
def test_a_problem_is_found_and_a_step_without_it_is_not_blamed(rule: str, tmp_path: Path) -> None:
    found = findings(made(tmp_path / "broken.json", PROBLEMS[rule]))
    assert rule in found
    assert found[rule].gain.mid > 0
    assert rule not in findings(made(tmp_path / "repaired.json", _nothing))
    assert rule not in findings(made(tmp_path / "pinned.json", _pinned))


def test_every_rule_about_devices_is_tested_here() -> None:
    tested = {*PROBLEMS, "tiny-kernels", "host-bound", "tf32-off", "optimizer-kernels"}
    counted = {rule.id for rule in all_rules().values() if rule.look.__module__.endswith(".counted")}
    assert {rule.id for rule in all_rules().values() if rule.on == "device"} - counted <= tested


def test_long_kernels_that_start_as_they_are_launched_show_a_slow_host(tmp_path: Path) -> None:
    maker = Maker()
    for number in range(8):
        start = 300.0 * number
        if number % 2 == 0:
            maker.mark(f"ProfilerStep#{number // 2}", start, 599)
        maker.op("aten::mm", start + 100, 30)
        maker.kernel("sm90_gemm", start + 120, start + 126, 60)
    slow = maker.write(tmp_path / "slow.json")
    assert findings(slow)["host-bound"].gain.low > 0.1
    assert "host-bound" not in findings(made(tmp_path / "ahead.json", _nothing))
