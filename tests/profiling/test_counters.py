"""Counters from ncu: which kernels, which names, and what becomes of its answers. A stand-in plays ncu here;
the real one runs where there is a GPU."""

import stat
from pathlib import Path

import pytest

from trackside.profiling.counter_names import COUNTERS, base_name
from trackside.profiling.counters import (
    _function,
    _plain,
    choose_kernels,
    collect_counters,
    read_table,
)
from trackside.profiling.program import Program
from trackside.records.profile import Kernel, Trust

SGEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_execute_kernel__5x_cublas"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
FILL = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, "
    "std::array<char*, 1ul> >(int, at::native::FillFunctor<float>, std::array<char*, 1ul>)"
)
# As ncu prints the same.
NCU_ADD = (
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, "
    "std::array<char *, (unsigned long)3>>(int, at::native::CUDAFunctor_add<float>, "
    "std::array<char *, (unsigned long)3>)"
)


def kernel(id: str, name: str, total_ms: float = 1.0) -> Kernel:
    return Kernel(id=id, name=name, calls=1, total_ms=total_ms, share=0.1, median_us=10.0, bound="unknown")


def table(*rows: tuple[str, float], names: tuple[str, ...] = COUNTERS) -> str:
    head = ["ID", "Process ID", "Kernel Name", *names]
    units = ["", "", "", *("%" for _ in names)]
    lines = [head, units]
    for n, (name, value) in enumerate(rows):
        lines.append([str(n), "7", name, *(f"{value:,.2f}" for _ in names)])
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in lines)
    return f"==PROF== Connected to process 7\n{text}\n==PROF== Disconnected\n"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (SGEMM, SGEMM),
        (ADD, "vectorized_elementwise_kernel"),
        (NCU_ADD, "vectorized_elementwise_kernel"),
        ("void (anonymous namespace)::softmax_warp_forward<float, 4>(float*, int)", "softmax_warp_forward"),
        ("void at::native::(anonymous namespace)::f<a::(anonymous namespace)::B<1> >(long)", "f"),
        ("void cutlass::Kernel2<cutlass_80_simt>(cutlass_80_simt::Params)", "Kernel2"),
        ("triton_poi_fused_gelu_view_7", "triton_poi_fused_gelu_view_7"),
        ("", ""),
    ],
)
def test_a_kernel_is_filtered_by_the_function_in_its_name(name: str, function: str) -> None:
    assert _function(name) == function


def test_the_two_tools_names_of_one_kernel_are_the_same_and_of_two_are_not() -> None:
    assert _plain(ADD) == _plain(NCU_ADD)
    assert _plain(ADD) != _plain(FILL)
    assert _plain("void f<32u, true, false>(int)") == _plain(
        "void f<(unsigned int)32, (bool)1, (bool)0>(int)"
    )


def test_kernels_are_chosen_until_they_make_up_nine_tenths_of_the_time() -> None:
    kernels = [
        kernel("k1", "a", 2.0),
        kernel("k2", "b", 50.0),
        kernel("k3", "c", 40.0),
        kernel("k4", "d", 8.0),
    ]
    assert [one.id for one in choose_kernels(kernels)] == ["k2", "k3"]
    assert [one.id for one in choose_kernels(kernels[:1])] == ["k1"]
    assert len(choose_kernels([kernel(f"k{n}", str(n)) for n in range(1000)])) == 40


def test_counters_are_means_over_a_kernel_s_launches() -> None:
    kernels = [kernel("k1", ADD), kernel("k2", FILL), kernel("k3", SGEMM)]
    found = read_table(table((NCU_ADD, 1000.0), (NCU_ADD, 3000.0), (FILL, 5.0)), kernels)
    assert set(found.kernels["k1"]) == set(COUNTERS)
    assert found.kernels["k1"]["dram__bytes_read.sum"] == 2000.0
    assert found.kernels["k2"]["dram__bytes_read.sum"] == 5.0
    assert found.launches == 3
    (unseen,) = found.missing
    assert "1 of 3 kernels" in unseen.effect
    assert unseen.effect.endswith("k3")


def test_of_two_kernels_with_one_function_a_strange_third_is_neither() -> None:
    other = ADD.replace("CUDAFunctor_add", "BinaryFunctor")
    assert "k1" not in read_table(table((other, 1.0)), [kernel("k1", ADD), kernel("k2", FILL)]).kernels


def test_a_table_that_breaks_off_gives_what_it_has() -> None:
    whole = table((ADD, 4.0), (SGEMM, 6.0))
    kernels = [kernel("k1", ADD), kernel("k2", SGEMM)]
    for length in range(0, len(whole), 37):
        found = read_table(whole[:length], kernels)
        assert all(
            value in (4.0, 6.0) or value < 10 for one in found.kernels.values() for value in one.values()
        )
        assert found.missing or len(found.kernels) == 2
    assert read_table(whole, kernels).missing == []


def test_ncu_without_permission_says_who_may() -> None:
    text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters\n"
    (told,) = read_table(text, [kernel("k1", ADD)]).missing
    assert "keeps counters for root" in told.effect
    assert "NVreg_RestrictProfilingToAdminUsers=0" in (told.remedy or "")


def test_what_ncu_complains_of_is_passed_on() -> None:
    (told,) = read_table("==PROF== x\n==WARNING== No kernels were profiled.\n", [kernel("k1", ADD)]).missing
    assert told.effect.endswith("No kernels were profiled.")


# -- a whole run -------------------------------------------------------------------------------------

# No Python: the first that starts is the program, with our code inside.
STAND_IN = """#!/bin/sh
case " $* " in *" --query-metrics "*) cat {folder}/listed; exit 0;; esac
printf '%s\\n' "$@" > {folder}/seen
while [ "$1" != --log-file ]; do shift; done
cp {folder}/table "$2"
shift 2
"$@"
code=$?
{last}
exit $code
"""

# Enough where it does not matter what runs under the tool.
SHORT = "import sys; print('hello'); open(sys.argv[2], 'w').write('ended')"
PROGRAM = """
import sys, torch
print("hello")
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
open(sys.argv[2], "w").write("ended")
"""


def stand_in(folder: Path, written: str, monkeypatch: pytest.MonkeyPatch, dies: bool = False) -> None:
    listed = folder / "listed"
    if not listed.exists():
        listed.write_text("\n".join(f"{base_name(name)}  Counter  unit" for name in COUNTERS))
    tools = folder / "tools"
    tools.mkdir()
    tool = tools / "ncu"
    (folder / "table").write_text(written)
    tool.write_text(STAND_IN.format(folder=folder, last="kill -9 $$" if dies else ""))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tools), prepend=":")


def counted(
    folder: Path, source: str, steps: int, kernels: list[Kernel]
) -> tuple[dict[str, dict[str, float]], list[Trust]]:
    script = folder / "train.py"
    script.write_text(source)
    results = folder / "results"
    results.mkdir()
    said: list[str] = []
    program = Program(str(script), arguments=(str(steps), str(folder / "end")))
    found = collect_counters(program, kernels, results, say=said.append)
    assert any("once more" in one for one in said)
    return found.kernels, found.missing


@pytest.mark.timeout(120)
def test_a_long_program_is_stopped_once_its_steps_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, table((ADD, 7.0), (SGEMM, 9.0)), monkeypatch)
    kernels, missing = counted(tmp_path, PROGRAM, 1_000_000_000, [kernel("k1", ADD), kernel("k2", SGEMM)])
    assert missing == []
    assert kernels["k2"]["lts__t_sector_hit_rate.pct"] == 9.0
    assert not (tmp_path / "end").exists()
    assert (tmp_path / "results" / "counters.csv").read_text() == table((ADD, 7.0), (SGEMM, 9.0))
    assert (tmp_path / "results" / "counters-output.txt").read_text() == "hello\n"
    words = (tmp_path / "seen").read_text().split("\n")
    assert words[words.index("--kernel-name") + 1] == f"regex:^({SGEMM}|vectorized_elementwise_kernel)$"
    assert words[words.index("--metrics") + 1].split(",") == list(COUNTERS)


@pytest.mark.timeout(120)
def test_ncu_that_dies_half_way_leaves_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, table((ADD, 7.0)), monkeypatch, dies=True)
    kernels, missing = counted(tmp_path, SHORT, 2, [kernel("k1", ADD)])
    assert kernels["k1"]["gpu__time_duration.sum"] == 7.0
    assert [one.effect for one in missing] == ["ncu was ended by signal 9"]


@pytest.mark.timeout(120)
def test_counters_that_a_chip_does_not_have_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = "sm__ops_path_tensor_src_fp8.sum"
    there = [name for name in COUNTERS if name != lacking]
    (tmp_path / "listed").write_text("\n".join(base_name(name) for name in there))
    stand_in(tmp_path, table((ADD, 7.0), names=tuple(there)), monkeypatch)
    kernels, missing = counted(tmp_path, SHORT, 2, [kernel("k1", ADD)])
    assert set(kernels["k1"]) == set(there)
    assert [one.effect for one in missing] == [f"1 of 60 are not on this GPU: {lacking}"]


def test_without_ncu_there_are_none_and_the_remedy_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = collect_counters(Program("x.py"), [kernel("k1", ADD)], tmp_path, say=lambda text: None)
    if not found.missing or "not found" not in found.missing[0].effect:
        pytest.skip("ncu is installed outside of PATH")
    assert "Nsight Compute" in (found.missing[0].remedy or "")
