"""Kernels that torch.compile made stand at the lines that they come from, also when a cache made them."""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.trace.kineto import Maker

from trackside.profiling.attribution import attribute
from trackside.profiling.captured import read_capture
from trackside.profiling.clock import ClockFit
from trackside.profiling.compiled_code import CompiledCode
from trackside.profiling.launch import launch
from trackside.profiling.line_stacks import Line, LineStacks
from trackside.profiling.line_times import LineSpans
from trackside.profiling.program import Program
from trackside.profiling.provenance import (
    KernelCall,
    Origin,
    compiled_graphs,
    kernel_calls,
    lines_of_kernels,
)
from trackside.trace.model import Trace
from trackside.trace.reader import read_trace

# As Inductor writes it, the bodies of kernels left out.
CODE = """
triton_poi_fused_add_gelu_0 = async_compile.triton('triton_poi_fused_add_gelu_0', '''
    def triton_poi_fused_add_gelu_0(in_ptr0, xnumel, XBLOCK : tl.constexpr):
''', device_str='cuda')

class Runner:
    def call(self, args):
        buf0 = empty_strided_cuda((32, 64), (64, 1), torch.float32)
        # Topologically Sorted Source Nodes: [h], Original ATen: [aten.t, aten.addmm]
        extern_kernels.addmm(primals_2, primals_3, reinterpret_tensor(primals_1, (64, 64)), out=buf0)
        # Topologically Sorted Source Nodes: [gelu, h_1], Original ATen: [aten.gelu, aten.add]
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_gelu_0.run(buf0, primals_3, buf1, 2048, stream=stream0)
        # Topologically Sorted Source Nodes: [y], Original ATen: [aten.addmm]
        extern_kernels.addmm(primals_5, buf1, reinterpret_tensor(primals_4, (64, 64)), out=buf2)
        # Topologically Sorted Source Nodes: [z], Original ATen: [aten._scaled_dot_product_flash_attention]
        buf3 = torch.ops.aten._scaled_dot_product_flash_attention.default(buf2, buf2, buf2)
        triton_poi_fused_add_gelu_0.run(buf3, primals_3, buf4, 2048, stream=stream0)
"""
NOBODY = LineSpans(LineStacks(()), (), np.empty(0))
"""No line of the program's own ran in Python."""
NODES = {
    "h": ["model.py", 6, "forward"],
    "gelu": ["model.py", 7, "forward"],
    "h_1": ["model.py", 8, "forward"],
    "y": ["model.py", 9, "forward"],
    "z": ["layers.py", 30, "mix"],
}


def test_each_call_has_the_lines_of_its_nodes_in_order() -> None:
    calls = kernel_calls(CODE, NODES)
    assert [(call.kernel, [origin.line for origin in call.origins]) for call in calls] == [
        ("addmm", [Line("model.py", 6)]),
        ("triton_poi_fused_add_gelu_0", [Line("model.py", 7), Line("model.py", 8)]),
        ("addmm", [Line("model.py", 9)]),
        ("_scaled_dot_product_flash_attention", [Line("layers.py", 30)]),
        # The comment before belongs to another call.
        ("triton_poi_fused_add_gelu_0", []),
    ]


def test_nodes_of_no_known_line_are_left_out() -> None:
    assert [call.origins for call in kernel_calls(CODE, {})] == [()] * 5


def traced(folder: Path, key: str = "fabc") -> Trace:
    """Two steps of a compiled graph: two products, of 30 and 50 µs on the device, and a fused one of 20."""
    maker = Maker()
    for step in range(2):
        at = 1000.0 * step
        maker.mark(f"## Call CompiledFxGraph {key} ##", at, 400)
        for place, (name, took) in enumerate(
            [("aten::addmm", 30), ("triton_poi_fused_add_gelu_0", 20), ("aten::addmm", 50)]
        ):
            maker.op(name, at + 10 + 100 * place, 60)
            maker.kernel(f"gpu_{name}", at + 20 + 100 * place, at + 40 + 100 * place, took)
        # Outside of the graph.
        maker.op("aten::addmm", at + 500, 60)
        maker.kernel("gemm", at + 510, at + 520, 15)
    return read_trace(maker.write(folder / "trace.json"))


def test_time_goes_to_the_lines_and_what_is_fused_is_split_and_labelled(tmp_path: Path) -> None:
    trace = traced(tmp_path)
    graphs, unknown = compiled_graphs(trace, [{"key": "fabc", "code": CODE, "nodes": NODES}], None)
    assert unknown == 0
    same = ClockFit(np.array([0]), np.array([0]), 0)
    found = attribute(trace, NOBODY, same, lines_of_kernels(trace, graphs))
    took = {line.line: (time.device_ns, time.shared, time.function) for line, time in found.lines.items()}
    assert took == {
        6: (60_000, False, "forward"),
        7: (20_000, True, "forward"),
        8: (20_000, True, "forward"),
        9: (100_000, False, "forward"),
    }
    # What no graph ran has no line here.
    assert found.device_ns["unattributed"] == 30_000
    assert found.callers["gpu_aten::addmm"][0] == Line("model.py", 9)


def test_what_was_learnt_is_kept_for_runs_that_compile_nothing(tmp_path: Path) -> None:
    trace, kept = traced(tmp_path), tmp_path / "compiled"
    graph = {"key": "fabc", "code": CODE, "nodes": NODES}
    first, _ = compiled_graphs(trace, [graph], kept)
    again, unknown = compiled_graphs(trace, [], kept)
    assert unknown == 0
    assert list(again["fabc"]) == list(first["fabc"])
    assert again["fabc"][0] == KernelCall("addmm", (Origin(Line("model.py", 6), "forward"),))
    # Of a graph that is not in the trace nothing is kept.
    compiled_graphs(trace, [graph | {"key": "fother"}], kept)
    assert [file.name for file in kept.iterdir()] == ["fabc.json"]


@pytest.mark.parametrize("content", ["", "[[", "{}", '[["a", [["f"]]]]', "7"])
def test_what_is_kept_and_damaged_is_as_if_it_were_not_there(tmp_path: Path, content: str) -> None:
    kept = tmp_path / "compiled"
    kept.mkdir()
    (kept / "fabc.json").write_text(content)
    graphs, unknown = compiled_graphs(traced(tmp_path), [], kept)
    assert (dict(graphs), unknown) == ({}, 1)


def test_a_key_that_is_no_name_of_a_file_is_not_looked_for(tmp_path: Path) -> None:
    graphs, unknown = compiled_graphs(traced(tmp_path, "../../etc/passwd"), [], tmp_path)
    assert (dict(graphs), unknown) == ({}, 0)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands where Inductor does: what it makes is of no matter here, only who is called."""
    module = ModuleType("torch._inductor.compile_fx")
    vars(module)["_compile_fx_inner"] = lambda graph, *, cpp=False: ("made", graph, cpp)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_the_compiler_is_as_before_when_the_capture_is_over(compiler: ModuleType) -> None:
    before = compiler._compile_fx_inner
    code = CompiledCode(lambda file: True)
    code.watch()
    assert compiler._compile_fx_inner is not before
    assert compiler._compile_fx_inner(graph=1, cpp=True) == ("made", 1, True)
    code.close()
    assert compiler._compile_fx_inner is before


def test_what_a_program_puts_around_the_compiler_stays_when_the_capture_is_over(compiler: ModuleType) -> None:
    code = CompiledCode(lambda file: True)
    code.watch()
    below = compiler._compile_fx_inner

    def programs_own(graph: object) -> object:
        return "mine", below(graph)

    vars(compiler)["_compile_fx_inner"] = programs_own
    code.close()
    assert compiler._compile_fx_inner is programs_own
    assert compiler._compile_fx_inner(1) == ("mine", ("made", 1, False))
    assert code.graphs == []


PROGRAM = """
import torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)
    def forward(self, x):
        h = self.first(x)
        h = torch.nn.functional.gelu(h) + x
        return self.second(h).softmax(-1)
model = torch.compile(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
x = torch.randn(32, 64)
for _ in range(40):
    model(x).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_real_compilation_is_noted_and_the_next_run_knows_it_from_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, kept = tmp_path / "train.py", tmp_path / "compiled"
    script.write_text(PROGRAM)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for run in ("first", "second"):
        folder = tmp_path / run
        folder.mkdir()
        configuration = {"warmup": 2, "steps": 4}
        ended = launch(Program(str(script)), "trackside.profiling.capture:around", configuration, folder)
        assert ended.exit_code == 0
        # The second time a cache answers, and nothing is compiled.
        assert (folder / "compiled.json").exists() == (run == "first")
        found = read_capture(folder, kept)
        assert found.attribution is not None
        trace = found.attribution.trace
        products = lines_of_kernels(trace, compiled_graphs(trace, [], kept)[0])
        assert {origin.line.line for origins in products.values() for origin in origins} == {8, 10}
        assert found.sources.text(str(script), 8).strip() == "h = self.first(x)"


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_on_a_gpu_compiled_kernels_stand_at_the_lines_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    on_gpu = PROGRAM.replace("Linear(64, 64)", "Linear(2048, 2048)").replace(
        "randn(32, 64)", "randn(8192, 2048)"
    )
    script.write_text(on_gpu.replace("import torch", 'import torch; torch.set_default_device("cuda")', 1))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    for run in ("first", "second"):
        folder = tmp_path / run
        folder.mkdir()
        configuration = {"warmup": 2, "steps": 4}
        ended = launch(Program(str(script)), "trackside.profiling.capture:around", configuration, folder)
        assert ended.exit_code == 0
        found = read_capture(folder, tmp_path / "compiled").attribution
        assert found is not None
        took = {line.line: time for line, time in found.lines.items() if line.file == str(script)}
        # Two products of the same size: forward one each, backward two each.
        assert took[8].device_ns == pytest.approx(took[10].device_ns, rel=0.35)
        assert min(took[8].backward_ns, took[10].backward_ns) > 1.4 * took[8].device_ns
        assert took[9].shared
        on_lines = sum(took[line].device_ns + took[line].backward_ns for line in (8, 9, 10))
        assert on_lines > 0.85 * found.total_device_ns
