import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from trackside.machine import ceilings
from trackside.machine.ceilings import FloorCeilings, floor_ceilings
from trackside.machine.facts import Cache, facts
from trackside.machine.nvml import Nvml
from trackside.records.errors import TracksideError

CUDA_ANSWER = {
    "name": "Some GPU",
    "uuid": "GPU-1",
    "l2_bytes": 64_000_000,
    "times": [
        {"place": "dram", "operation": "fill", "bytes": 1_000_000_000, "seconds": [0.4e-3, 0.5e-3]},
        {"place": "dram", "operation": "copy", "bytes": 1_000_000_000, "seconds": [0.6e-3, 0.5e-3]},
        # 5.5 µs of launch on top of 2.5 µs and 1.25 µs.
        {"place": "l2", "operation": "fill", "bytes": 16_000_000, "seconds": [8e-6]},
        {"place": "l2", "operation": "fill", "bytes": 8_000_000, "seconds": [6.75e-6]},
        {"place": "l2", "operation": "copy", "bytes": 16_000_000, "seconds": [8e-6]},
        {"place": "l2", "operation": "copy", "bytes": 8_000_000, "seconds": [8e-6]},
    ],
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[FloorCeilings, Path]:
    cache = tmp_path_factory.mktemp("cache")
    return floor_ceilings("cpu", cache), cache


def test_the_cpus_memory_is_measured(measured: tuple[FloorCeilings, Path]) -> None:
    found, _ = measured
    # From a slow board to a large server; a result outside is an error of units.
    assert 1e8 < found.dram_read < 5e12
    assert 1e8 < found.dram_write < 5e12
    assert found.cache_read >= found.dram_read
    assert found.cache_write >= found.dram_write
    assert found.cache_bytes >= 1 << 18
    assert found.n >= 2


def test_a_measured_result_is_cached(measured: tuple[FloorCeilings, Path]) -> None:
    found, cache = measured
    assert floor_ceilings("cpu", cache, measure=False) == found


def test_a_broken_cache_is_measured_again_or_said_to_be_empty(
    measured: tuple[FloorCeilings, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found, cache = measured
    (name,) = [path.name for path in cache.iterdir()]
    (tmp_path / name).write_text('{"dram_read": 1')
    with pytest.raises(TracksideError, match="no measured ceilings") as caught:
        floor_ceilings("cpu", tmp_path, measure=False)
    assert caught.value.kind == "not-found"
    monkeypatch.setattr(ceilings, "_measure_cpu", lambda machine, cpus: found)
    assert floor_ceilings("cpu", tmp_path) == found
    assert floor_ceilings("cpu", tmp_path, measure=False) == found


def test_an_unsteady_result_is_measured_again_and_only_raised(
    measured: tuple[FloorCeilings, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    noisy = replace(measured[0], dram_read=10.0, dram_write=9.0, n=4, spread=0.3)
    passes = iter([noisy, replace(noisy, dram_read=12.0, dram_write=3.0), replace(noisy, spread=0.01)])
    monkeypatch.setattr(ceilings, "_measure_cpu", lambda machine, cpus: next(passes))
    floor_ceilings("cpu", tmp_path)
    second = floor_ceilings("cpu", tmp_path)
    assert (second.dram_read, second.dram_write, second.n, second.passes) == (12.0, 9.0, 8, 2)
    third = floor_ceilings("cpu", tmp_path)
    assert third.dram_read == 12.0
    assert floor_ceilings("cpu", tmp_path) == third


def test_other_cpus_are_another_cache_entry(
    measured: tuple[FloorCeilings, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[list[int]] = []

    def measure(machine: object, cpus: list[int]) -> FloorCeilings:
        seen.append(cpus)
        return replace(measured[0], spread=0.0)

    monkeypatch.setattr(ceilings, "_measure_cpu", measure)
    floor_ceilings("cpu", tmp_path, cpus=[0])
    floor_ceilings("cpu", tmp_path, cpus=[0])
    floor_ceilings("cpu", tmp_path, cpus=[0, 1])
    floor_ceilings("cpu", tmp_path, cpus=[1, 0])
    # As many, but perhaps the slow cores, or those of another socket.
    floor_ceilings("cpu", tmp_path, cpus=[1, 2])
    assert seen == [[0], [0, 1], [1, 2]]


def test_the_choice_of_visible_gpus_is_part_of_the_cache_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ceilings, "_child", lambda *arguments: CUDA_ANSWER)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    uuids = ["GPU-8a4e2c54-0000-0000-0000-000000000000", "GPU-8a4e2c54-1111-0000-0000-000000000000"]
    # Differences past the 80th character, and in signs that a file name cannot hold.
    for visible in ("0", "1", "GPU-1", "GPU 1", "", ",".join([*uuids, "GPU-1"]), ",".join([*uuids, "GPU-2"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        floor_ceilings("cuda:0", tmp_path)
    assert len(list(tmp_path.iterdir())) == 7
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    floor_ceilings("cuda:0", tmp_path)
    assert len(list(tmp_path.iterdir())) == 8


def test_gpu_bounds_are_the_best_repetition_and_free_of_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_child", lambda *arguments: CUDA_ANSWER)
    found = floor_ceilings("cuda:0")
    # A copy reads and writes: 2 GB in 0.5 ms.
    assert found.dram_read == pytest.approx(4e12)
    assert found.dram_write == pytest.approx(4e12)
    # Without a usable slope the plain rate stands, and memory's speed is the least.
    assert found.cache_read == pytest.approx(4e12)
    # 8 MB more take 1.25 µs more; with its launch, 16 MB in 8 µs looks like 2 TB/s.
    assert found.cache_write == pytest.approx(6.4e12)
    assert (found.cache_bytes, found.n) == (64_000_000, 1)


def kept_ceilings(folder: Path, place: str, gpus: dict[str, str | int], **best: Any) -> None:
    kind = "cpu" if place == "cpu" else "gpu"
    rows: list[dict[str, Any]] = [
        {"place": place, "name": f"{kind}.{name.replace('_', '.')}", "title": name, "unit": "B/s"}
        | {"value": value, "best": value, "spread": 0.0, "n": 5, "method": ""}
        for name, value in best.items()
    ]
    empty: dict[str, list[str]] = {"sustained": [], "skipped": [], "sentences": []}
    more = {"fingerprint": "", "disk_folder": None, "software": {}, "seconds": 1.0, "version": "1"}
    record = {"schema": "trackside.ceilings/1", "places": [place], "ceilings": rows, "gpus": gpus}
    path = folder / f"{ceilings.KEPT}{ceilings.fingerprint(facts())}-{place.replace(':', '')}-v1.json"
    path.write_text(json.dumps(record | empty | more | {"measured_at": "2026-11-16T08:00:00+00:00"}))


@pytest.mark.parametrize("best", ["fast", [1.0], None, {"a": 1}])
def test_kept_figures_that_are_no_numbers_raise_nothing(
    measured: tuple[FloorCeilings, Path], best: object, tmp_path: Path
) -> None:
    found, cache = measured
    (name,) = [path.name for path in cache.iterdir()]
    (tmp_path / name).write_bytes((cache / name).read_bytes())
    kept_ceilings(tmp_path, "cpu", {}, memory_read=best)
    assert ceilings.kept_ceilings("cpu", tmp_path, facts()) == {}
    assert floor_ceilings("cpu", tmp_path, measure=False) == found


@pytest.mark.parametrize(
    "wrong", [{"dram_read": "fast"}, {"spread": "0.01"}, {"n": None}, {"measured_at": 3}]
)
def test_a_cache_with_other_types_is_measured_again(
    measured: tuple[FloorCeilings, Path],
    wrong: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    found, cache = measured
    (name,) = [path.name for path in cache.iterdir()]
    (tmp_path / name).write_text(json.dumps(asdict(found) | wrong))
    with pytest.raises(TracksideError, match="no measured ceilings"):
        floor_ceilings("cpu", tmp_path, measure=False)
    monkeypatch.setattr(ceilings, "_measure_cpu", lambda machine, cpus: found)
    assert floor_ceilings("cpu", tmp_path) == found


def test_a_python_that_cannot_be_started_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    with pytest.raises(TracksideError, match="No such file") as caught:
        floor_ceilings("cpu")
    assert "-m trackside" in caught.value.remedy


def test_what_the_ceilings_verb_measured_raises_a_bound_and_never_lowers_one(
    measured: tuple[FloorCeilings, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ceilings, "_measure_cpu", lambda machine, cpus: replace(measured[0], spread=0.0))
    plain = floor_ceilings("cpu", tmp_path)
    kept_ceilings(tmp_path, "cpu", {}, memory_read=9e15, memory_write=1.0)
    found = floor_ceilings("cpu", tmp_path)
    assert (found.dram_read, found.dram_write) == (9e15, plain.dram_write)
    assert found.method.endswith("raised to what `trackside ceilings` measured")
    # All CPUs together were measured there: that is no bound of one, and not raised again by the next call.
    assert floor_ceilings("cpu", tmp_path, cpus=[0]).dram_read == plain.dram_read
    (tmp_path / f"{ceilings.KEPT}{ceilings.fingerprint(facts())}-cpu-v1.json").write_text("[1]")
    assert floor_ceilings("cpu", tmp_path) == plain


def test_figures_of_another_gpu_raise_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ceilings, "_child", lambda *arguments: CUDA_ANSWER)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(ceilings, "gpu_numbered", lambda machine, number: "GPU-2")
    kept_ceilings(tmp_path, "cuda:0", {"cuda:0": "GPU-1"}, memory_copy=9e12, l2_copy=2e13)
    assert floor_ceilings("cuda:0", tmp_path).dram_read == pytest.approx(4e12)
    kept_ceilings(tmp_path, "cuda:0", {"cuda:0": "GPU-2"}, memory_copy=9e12, l2_copy=2e13)
    found = floor_ceilings("cuda:0", tmp_path)
    assert (found.dram_read, found.dram_write) == (9e12, 9e12)
    assert (found.cache_read, found.cache_write) == (2e13, 2e13)


def test_a_device_of_another_name_is_refused() -> None:
    for name in ("gpu", "cuda:", "cuda:x", "cuda:²", "cuda:٣", "mps"):
        with pytest.raises(TracksideError, match="found --device") as caught:
            floor_ceilings(name)
        assert caught.value.kind == "usage"


def test_a_child_that_fails_hangs_or_reports_an_error_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # _child starts programs beside its own file: let that be a folder of the test.
    monkeypatch.setattr(ceilings, "__file__", str(tmp_path / "ceilings.py"))
    (tmp_path / "fails.py").write_text("raise MemoryError('none left')")
    (tmp_path / "hangs.py").write_text("import time; time.sleep(600)")
    (tmp_path / "reports.py").write_text(
        'print(\'{"error": {"kind": "device", "message": "cuInit failed"}}\')'
    )
    with pytest.raises(TracksideError, match="none left") as caught:
        ceilings._child("fails.py", {}, "cpu")
    assert caught.value.kind == "device"
    with pytest.raises(TracksideError, match="cuInit failed") as caught:
        ceilings._child("reports.py", {}, "cuda:0")
    assert "nvidia-smi" in caught.value.remedy
    monkeypatch.setattr(ceilings, "_TIMEOUT_SECONDS", 0.2)
    with pytest.raises(TracksideError, match=r"more than 0.2 s") as caught:
        ceilings._child("hangs.py", {}, "cpu")
    assert caught.value.exit_code == 124


def test_without_a_gpu_its_ceilings_are_unsupported() -> None:
    if isinstance(Nvml.open(), Nvml):
        pytest.skip("this machine has a GPU")
    with pytest.raises(TracksideError, match="cannot measure cuda:0") as caught:
        floor_ceilings("cuda:0")
    assert (caught.value.kind, caught.value.exit_code) == ("unsupported", 3)


@pytest.mark.parametrize(("l2", "l3", "sizes"), [(1, 1024, "256 and 8192"), (64, 256, "8192 and 8192")])
def test_caches_larger_than_the_memory_at_hand_are_measured_within_it(l2: int, l3: int, sizes: str) -> None:
    """A container's limit can be far below the host's caches; the child must not run past its buffer."""
    machine = facts()
    caches = (Cache(2, "unified", l2 << 20, 1), Cache(3, "unified", l3 << 20, 1))
    small = replace(
        machine,
        cpu=replace(machine.cpu, caches=caches),
        limits=replace(machine.limits, memory_bytes=64 << 20),
    )
    found = floor_ceilings("cpu", machine=small)
    assert "memory 8 MiB" in found.method
    assert f"caches {sizes} KiB" in found.method


def test_measuring_never_takes_more_than_an_eighth_of_a_small_memory() -> None:
    machine = facts()
    small = replace(machine, limits=replace(machine.limits, memory_bytes=256 << 20))
    assert ceilings._dram_bytes(32 << 20, small) == 32 << 20
    large = replace(machine, memory=replace(machine.memory, total_bytes=1 << 40))
    assert ceilings._dram_bytes(32 << 20, large) == 128 << 20
    assert ceilings._dram_bytes(1 << 30, large) == 512 << 20


@pytest.mark.gpu
def test_a_real_gpus_memory_is_measured(gpu: int, tmp_path: Path) -> None:
    found: FloorCeilings = floor_ceilings("cuda:0", tmp_path)
    print(json.dumps(asdict(found), indent=1))
    assert 1e10 < found.dram_read < 5e13
    assert found.cache_read >= found.dram_read
    assert found.n >= 5
    assert floor_ceilings("cuda:0", tmp_path, measure=False) == found


@pytest.mark.gpu
def test_a_gpu_that_does_not_exist_is_not_found(gpu: int) -> None:
    with pytest.raises(TracksideError, match="cuda:99") as caught:
        floor_ceilings("cuda:99")
    assert caught.value.kind == "not-found"
