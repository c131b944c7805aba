"""Which devices are kept for a program of which nobody knows where it computes; with real processes."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.processes import holding_process, until

from trackside.machine.facts import Gpu, MachineFacts, facts
from trackside.profiling.devices import gpu_keys
from trackside.store.lock_holders import holders_in

UUIDS = ("GPU-b2-0000-0000", "GPU-a1-0000-0000", "GPU-b3-0000-0000")
FIRST, SECOND, THIRD = (f"gpu-{uuid}" for uuid in UUIDS)


def machine(*uuids: str) -> MachineFacts:
    gpus = (
        Gpu(number, "H200", uuid, None, None, None, None, None, None, None, None, None)
        for number, uuid in enumerate(uuids)
    )
    return replace(facts(), gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("visible", "keys"),
    [
        # In one order, whatever the variable's: or two profiles would wait for each other.
        (None, [SECOND, FIRST, THIRD]),
        ("0,1", [SECOND, FIRST]),
        ("1,0,1", [SECOND, FIRST]),
        ("1", [SECOND]),
        (" 2 , 0", [FIRST, THIRD]),
        ("+2gpu", [THIRD]),
        (UUIDS[1], [SECOND]),
        ("GPU-a,GPU-b3", [SECOND, THIRD]),
        ("0,GPU-a1-0000-0000", [SECOND, FIRST]),
        ("MIG-4f2a/1", ["gpu-MIG-4f2a-1"]),
        ("MIG-GPU-b2-0000-0000/7/0,MIG-4f2a", ["gpu-MIG-4f2a", "gpu-MIG-GPU-b2-0000-0000-7-0"]),
        # What CUDA does not know ends its list; what comes before counts.
        ("0,-1,1", [FIRST]),
        ("1,99,0", [SECOND]),
        ("1,GPU-zz,0", [SECOND]),
        ("1,GPU-b,0", [SECOND]),
        ("GPU-zz", []),
        ("", []),
        ("-1", []),
        ("none", []),
        ("NoDevFiles", []),
        ("all", []),
        (",0", []),
        ("0x1", [FIRST]),
        ("../../etc", []),
        ("MIG-../../etc", ["gpu-MIG-------etc"]),
    ],
)
def test_the_gpus_are_those_that_the_variable_leaves(visible: str | None, keys: list[str]) -> None:
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert gpu_keys(machine(*UUIDS), environment) == keys


def test_without_gpus_the_variable_means_nothing() -> None:
    assert gpu_keys(machine(), {"CUDA_VISIBLE_DEVICES": "0"}) == []


# -- the real program, on a machine that says it has two GPUs ------------------------------------------------

# All but the facts of the machine is as it is: the verb, its locks and its program.
ON_TWO_GPUS = """
import dataclasses, sys
from trackside.machine.facts import Gpu, facts
from trackside.profiling import devices
gpus = tuple(Gpu(n, "H200", u, *[None] * 9) for n, u in enumerate(("GPU-0", "GPU-1")))
devices.facts = lambda: dataclasses.replace(facts(), gpus=gpus)
from trackside.cli.main import main
sys.exit(main())
"""
# Says that it runs, and goes on until it is told.
PROGRAM = "import sys, pathlib\npathlib.Path(sys.argv[1]).touch()\nsys.stdin.readline()\n"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setenv("TRACKSIDE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRACKSIDE_LOCKS", str(tmp_path / "locks"))
    (tmp_path / "locks").mkdir(mode=0o700)
    (tmp_path / "program.py").write_text(PROGRAM)
    with ExitStack() as stack:

        def begin(visible: str, *words: str) -> subprocess.Popen[str]:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
            process = subprocess.Popen(
                [sys.executable, "-c", ON_TWO_GPUS, *words],
                cwd=tmp_path,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield begin


def held(folder: Path) -> dict[int, set[str]]:
    """By process: what it has, the CPUs in one word."""
    found: dict[int, set[str]] = {}
    for one in holders_in(folder):
        found.setdefault(one["pid"], set()).update(re.sub(r"^cpu-\d+$", "cpu", part) for part in one["parts"])
    return found


def line(process: subprocess.Popen[str], word: str) -> str:
    assert process.stderr is not None
    return next(line for line in process.stderr if word in line)


@pytest.mark.timeout(120)
def test_profiles_on_different_gpus_run_side_by_side_and_a_measurement_of_the_cpus_waits(
    start: Start, tmp_path: Path
) -> None:
    locks = tmp_path / "locks"
    first = start("0", "profile", "program.py", "ran-0")
    second = start("1", "profile", "program.py", "ran-1")
    until(lambda: (tmp_path / "ran-0").exists() and (tmp_path / "ran-1").exists(), "both run at once")
    third = start("1", "profile", "program.py", "ran-2")
    assert f"profile (process {second.pid}) measures" in line(third, "waiting")
    # A profile without a GPU measures the CPUs, and so has them for itself.
    alone = start("", "profile", "program.py", "ran-3")
    assert "measures on this device" in line(alone, "waiting: profile")
    assert not (tmp_path / "ran-2").exists()
    assert not (tmp_path / "ran-3").exists()
    second.communicate("\n", timeout=60)
    until((tmp_path / "ran-2").exists, "the second GPU is free")
    for process in (first, third):
        process.communicate("\n", timeout=60)
    until((tmp_path / "ran-3").exists, "nobody else is left")
    assert held(locks) == {alone.pid: {"cpu"}}
    alone.communicate("\n", timeout=60)
    assert held(locks) == {}


@pytest.mark.timeout(120)
def test_a_program_that_computes_on_the_cpus_of_a_gpu_machine_waits_for_who_measures_there(
    start: Start, tmp_path: Path
) -> None:
    with holding_process("cpu", tmp_path / "locks") as holder:
        process = start("0,1", "profile", "program.py", "ran")
        assert f"waiting: compare (process {holder.pid}) measures" in line(process, "waiting")
        assert not (tmp_path / "ran").exists()
    until((tmp_path / "ran").exists, "the CPUs are free")
    process.communicate("\n", timeout=60)


@pytest.mark.timeout(120)
def test_commands_that_are_compared_have_the_gpus_that_they_see_and_the_cpus(
    start: Start, tmp_path: Path
) -> None:
    locks = tmp_path / "locks"
    words = ["compare", "--command", "--quick", "--pairs", "2", "sleep 0.5", "sleep 0.5"]
    with holding_process("gpu-GPU-1", locks) as holder:
        process = start("0,1", *words)
        assert f"waiting: compare (process {holder.pid}) measures on this device" in line(process, "waiting")
        assert not (tmp_path / "home").exists(), "who gives up waiting leaves no run"
    everything = {"cpu", "gpu-GPU-0", "gpu-GPU-1"}
    until(lambda: held(locks) == {process.pid: everything}, "it has them all")
