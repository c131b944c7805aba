"""What operators have to compute and move, against torch's own count and against counts by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from trackside.profiling.roofline import placed
from trackside.trace.model import Kind, OpInputs, Trace
from trackside.trace.reader import read_trace
from trackside.trace.steps import as_run, find_steps
from trackside.trace.timeline import outermost, ran_longest
from trackside.trace.work import Work, work_of


def traced(run: Callable[[], object], folder: Path) -> Trace:
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as kept:
        run()
    kept.export_chrome_trace(str(folder / "trace.json"))
    return read_trace(folder / "trace.json")


def works(trace: Trace) -> list[Work]:
    known = {
        row: work
        for row in trace.of(Kind.OP).tolist()
        if trace.detail[row] >= 0
        and (work := work_of(trace.name_of(row), trace.inputs[int(trace.detail[row])])) is not None
    }
    rows = trace.of(Kind.OP)
    return [known[row] for row in outermost(trace, rows[[row in known for row in rows.tolist()]]).tolist()]


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype).requires_grad_()


PRODUCTS: dict[str, Callable[[], torch.Tensor]] = {
    "mm": lambda: leaf(64, 32) @ leaf(32, 48),
    "addmm": lambda: torch.addmm(leaf(48), leaf(64, 32), leaf(32, 48)),
    "bmm": lambda: torch.bmm(leaf(4, 16, 32), leaf(4, 32, 24)),
    "baddbmm": lambda: torch.baddbmm(leaf(4, 16, 24), leaf(4, 16, 32), leaf(4, 32, 24)),
    "linear over three dimensions": lambda: F.linear(leaf(2, 16, 32), leaf(48, 32), leaf(48)),
    "bfloat16": lambda: leaf(64, 32, dtype=torch.bfloat16) @ leaf(32, 48, dtype=torch.bfloat16),
    "convolution": lambda: F.conv2d(leaf(2, 8, 20, 20), leaf(16, 8, 3, 3), leaf(16), padding=1),
    "strided and dilated": lambda: F.conv2d(
        leaf(2, 8, 30, 31), leaf(16, 8, 3, 5), stride=(2, 3), padding=(1, 2), dilation=2
    ),
    "one dimension": lambda: F.conv1d(leaf(3, 4, 50), leaf(8, 4, 7)),
    "transposed": lambda: F.conv_transpose2d(leaf(2, 8, 10, 10), leaf(8, 6, 3, 3), stride=2, padding=1),
}


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_products_are_counted_as_torch_counts_them(name: str, tmp_path: Path) -> None:
    with FlopCounterMode(display=False) as counter:
        PRODUCTS[name]()
    found = works(traced(PRODUCTS[name], tmp_path))
    assert sum(work.flops for work in found) == counter.get_total_flops()
    assert {work.dtype for work in found if work.flops} == {"bf16" if name == "bfloat16" else "fp32"}


@pytest.mark.parametrize("name", list(PRODUCTS))
def test_derivatives_of_products_are_counted_as_torch_counts_them(name: str, tmp_path: Path) -> None:
    with FlopCounterMode(display=False) as counter:
        PRODUCTS[name]().sum().backward()
    found = works(traced(lambda: PRODUCTS[name]().sum().backward(), tmp_path))
    assert sum(work.flops for work in found) == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_convolutions_in_groups_multiply_within_them(tmp_path: Path) -> None:
    image, weight = leaf(2, 8, 20, 20), leaf(16, 4, 3, 3)
    forward = works(traced(lambda: F.conv2d(image, weight, groups=2), tmp_path))
    assert sum(work.flops for work in forward) == 2 * (2 * 16 * 18 * 18) * (4 * 3 * 3)
    both = works(traced(lambda: F.conv2d(image, weight, groups=2).sum().backward(), tmp_path))
    # Torch counts the weights' derivative once for each group.
    assert sum(work.flops for work in both) == 3 * sum(work.flops for work in forward)


def test_attention_is_counted_as_its_products_and_backward_as_five(tmp_path: Path) -> None:
    q, k, v = leaf(2, 4, 64, 16), leaf(2, 4, 48, 16), leaf(2, 4, 48, 16)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        F.scaled_dot_product_attention(q, k, v)
    forward = counter.get_total_flops()
    found = works(traced(lambda: F.scaled_dot_product_attention(q, k, v), tmp_path))
    assert sum(work.flops for work in found) == forward
    found = works(traced(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward(), tmp_path))
    # One forward is two products; its derivative computes the scores again, and four more.
    assert sum(work.flops for work in found) == forward + forward / 2 * 5


def test_a_causal_mask_leaves_half_of_the_scores_out(tmp_path: Path) -> None:
    q, k, v = torch.randn(3, 2, 4, 64, 16)

    def flops(is_causal: bool) -> float:
        run = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)  # noqa: E731
        return sum(work.flops for work in works(traced(run, tmp_path)))

    assert flops(True) == flops(False) / 2 > 0


TABLE, ROW, HALF, PICKED = torch.ones(100, 50), torch.ones(50), torch.ones(10, 5).bfloat16(), torch.arange(10)


@pytest.mark.parametrize(
    ("run", "moved"),
    [
        (lambda: TABLE + ROW, 4 * (5000 + 50 + 5000)),
        (lambda: TABLE * TABLE, 4 * 15_000),
        (lambda: TABLE.sum(), 4 * 5000),
        (lambda: TABLE.softmax(-1), 4 * 10_000),
        (lambda: F.layer_norm(TABLE, (50,), ROW), 4 * (10_000 + 50)),
        (lambda: F.gelu(HALF), 2 * 100),
        (lambda: F.embedding(PICKED, TABLE), 2 * 10 * 50 * 4 + 10 * 8),
    ],
)
def test_what_only_moves_bytes_counts_its_inputs_and_what_it_makes(
    run: Callable[[], object], moved: int, tmp_path: Path
) -> None:
    (found,) = works(traced(run, tmp_path))
    assert found == Work(0.0, moved, "")


def test_an_operator_that_is_not_known_has_no_number() -> None:
    nothing = OpInputs((), (), ())
    assert work_of("aten::svd", OpInputs(((4, 4),), ("float",), ("",))) is None
    assert work_of("my_library::add", OpInputs(((4, 4),), ("float",), ("",))) is None
    for name in (
        "aten::mm",
        "aten::add",
        "aten::convolution",
        "aten::sum",
        "aten::embedding",
        "triton_poi_a",
    ):
        assert work_of(name, nothing) is None
    # Shapes that do not fit together were not what was multiplied.
    assert work_of("aten::mm", OpInputs(((4, 5), (6, 7)), ("float", "float"), ("", ""))) is None


def test_the_compilers_kernels_move_what_they_are_given() -> None:
    given = OpInputs(((2048, 2048), (16, 128, 2048), ()), ("float", "float", "Scalar"), ("", "", "4194304"))
    assert work_of("triton_poi_fused_gelu_view_7", given) == Work(0.0, 2 * 4 * 2048 * 2048, "")
    assert work_of("triton_tem_fused_mm_3", given) is None


def test_an_operator_of_the_host_is_held_against_the_hosts_ceilings(tmp_path: Path) -> None:
    a, b = torch.randn(400, 300), torch.randn(300, 500)
    big = torch.randn(4_000_000)
    trace = traced(lambda: (a @ b, big + 1.0), tmp_path)
    rows = outermost(trace, trace.of(Kind.OP))
    times = {trace.name_of(row): float(trace.duration[row]) for row in rows.tolist()}
    begin, end = int(trace.start.min()), int(trace.end.max()) + 1
    flops, moved = 2 * 400 * 300 * 500, 4 * 8_000_000
    # Ceilings at which each took twice the least that it could.
    ceilings = {
        "cpu.gemm.fp32": 2e9 * flops / times["aten::matmul"],
        "cpu.memory.copy": 2e9 * moved / times["aten::add"],
    }
    found = placed(trace, begin, end, ceilings)
    assert found["aten::matmul"].flops == flops
    assert (found["aten::matmul"].bound, found["aten::add"].bound) == ("compute", "memory")
    assert found["aten::matmul"].roof_share == pytest.approx(0.5, abs=0.01)
    assert found["aten::add"].roof_share == pytest.approx(0.5, abs=0.01)
    # What is faster than a ceiling allows did not do what its shapes say; without one nothing is said.
    assert (
        placed(trace, begin, end, {name: one / 4 for name, one in ceilings.items()})["aten::add"].roof_share
        is None
    )
    unknown = placed(trace, begin, end, {})["aten::matmul"]
    assert (unknown.flops, unknown.roof_share, unknown.bound) == (flops, None, "unknown")


def test_kernels_of_a_real_gpu_are_where_its_ceilings_put_them() -> None:
    trace = read_trace(Path(__file__).parent / "data" / "pageable.json.gz")
    # As measured on that H200.
    ceilings = {
        "gpu.gemm.fp32": 51.3e12,
        "gpu.gemm.tf32": 353e12,
        "gpu.memory.copy": 4.3e12,
        "gpu.l2.copy": 6.31e12,
    }
    steps = as_run(trace, find_steps(trace))
    begin, end = int(steps.begin[0]), int(steps.end[-1])
    found = placed(trace, begin, end, ceilings)
    ran = ran_longest(trace, begin, end)
    time = {one.name: one.total_ns for one in ran if one.name in found}
    total = sum(one.total_ns for one in ran if not one.name.startswith("Mem"))
    # float32 products are within a few percent of what one large product reaches.
    products = {name for name in found if "gemm" in name}
    assert all(found[name].bound == "compute" for name in products)
    share = sum(time[name] * (found[name].roof_share or 0) for name in products)
    assert share / sum(time[name] for name in products) == pytest.approx(0.97, abs=0.03)
    assert sum(time.values()) / total > 0.93
    elementwise = [one for name, one in found.items() if "vectorized_elementwise" in name]
    assert elementwise
    assert all(one.bound == "memory" for one in elementwise)
