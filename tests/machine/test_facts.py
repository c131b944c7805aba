import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trackside.machine.facts import Cache, Limits, MachineFacts, NumaNode, facts, fingerprint, gpu_numbered
from trackside.machine.system_files import Unknown

MakeMachine = Callable[[dict[str, str]], Path]

# Two sockets of two cores with two threads each.
SERVER = {
    "proc/cpuinfo": "model name\t: Some Server CPU\nflags\t\t: fpu avx2 amx_bf16 hypervisor\n",
    "proc/meminfo": "MemTotal:       131072000 kB\nMemFree: 1 kB\nSwapTotal:       1024 kB\n",
    "proc/sys/kernel/osrelease": "6.8.0-generic\n",
    "proc/self/cgroup": "0::/pod/job\n",
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/pod/job/cpu.max": "max 100000\n",
    "sys/fs/cgroup/pod/job/memory.max": "max\n",
    "sys/fs/cgroup/pod/cpu.max": "350000 100000\n",
    "sys/fs/cgroup/pod/memory.max": "8589934592\n",
    "sys/fs/cgroup/pod/cpuset.cpus.effective": "0-3\n",
    "sys/devices/system/cpu/online": "0-7\n",
    "sys/devices/system/node/node0/cpulist": "0-1,4-5\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:       65536000 kB\n",
    "sys/devices/system/node/node1/cpulist": "2-3,6-7\n",
    "sys/class/dmi/id/sys_vendor": "Some Cloud\n",
    "sys/devices/system/clocksource/clocksource0/available_clocksource": "kvm-clock tsc\n",
} | {
    f"sys/devices/system/cpu/cpu{cpu}/{name}": text
    for cpu in range(8)
    for name, text in {
        "topology/thread_siblings_list": f"{cpu % 4},{cpu % 4 + 4}\n",
        "topology/physical_package_id": f"{cpu % 4 // 2}\n",
        "cache/index0/level": "2\n",
        "cache/index0/type": "Unified\n",
        "cache/index0/size": "2048K\n",
        "cache/index0/shared_cpu_list": f"{cpu % 4},{cpu % 4 + 4}\n",
    }.items()
}


def test_this_machine_is_read() -> None:
    found = facts()
    assert found.cpu.threads == os.cpu_count()
    assert set(found.cpu.allowed) == os.sched_getaffinity(0)
    assert found.kernel == os.uname().release
    assert found.memory.total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert found.software.numpy
    json.dumps(found.to_record())


def test_a_server_with_two_sockets_is_read(machine: MakeMachine) -> None:
    found = facts(machine(SERVER))
    cpu = found.cpu
    assert (cpu.model, cpu.sockets, cpu.cores, cpu.threads, cpu.smt) == ("Some Server CPU", 2, 4, 8, True)
    assert cpu.caches == (Cache(level=2, kind="unified", bytes=2 << 20, instances=4),)
    assert cpu.cache_bytes(2) == 8 << 20
    assert cpu.isa == ("avx2", "amx_bf16")
    assert cpu.numa == (NumaNode(0, (0, 1, 4, 5), 65536000 * 1024), NumaNode(1, (2, 3, 6, 7), None))
    assert found.virtualisation == "kvm (Some Cloud)"
    assert (found.memory.total_bytes, found.memory.swap_bytes) == (131072000 * 1024, 1024 * 1024)


def test_a_limit_on_an_ancestor_holds(machine: MakeMachine) -> None:
    assert facts(machine(SERVER)).limits == Limits(
        2, cpu_quota=3.5, cpuset=(0, 1, 2, 3), memory_bytes=8 << 30
    )


def test_version_1_without_a_memory_limit_reads_as_none(machine: MakeMachine) -> None:
    root = machine(
        {
            "proc/self/cgroup": "4:memory:/\n",
            "proc/self/mountinfo": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        }
    )
    found = facts(root)
    assert found.limits.memory_bytes is None
    assert "memory limit" not in [entry.what for entry in found.unknown]


def test_an_empty_machine_yields_unknowns_and_no_exception(tmp_path: Path) -> None:
    found = facts(tmp_path)
    named = {entry.what for entry in found.unknown}
    assert named >= {
        "cpu model",
        "cpu topology",
        "cpu caches",
        "memory",
        "cpu limit",
        "kernel",
        "virtualisation",
    }
    assert all(entry.why for entry in found.unknown)


def test_a_file_in_an_unforeseen_shape_costs_its_section_only(machine: MakeMachine) -> None:
    found = facts(machine(SERVER | {"sys/devices/system/cpu/online": "none today\n"}))
    assert "cpu" in [entry.what for entry in found.unknown]
    assert found.memory.total_bytes


def test_bare_metal_is_not_virtual(machine: MakeMachine) -> None:
    plain = SERVER["proc/cpuinfo"].replace(" hypervisor", "")
    assert facts(machine(SERVER | {"proc/cpuinfo": plain})).virtualisation == "none"


def test_an_arm_cpu_has_a_model_and_an_open_question(machine: MakeMachine) -> None:
    arm = "Features\t: fp asimd sve bf16\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
    found = facts(machine({"proc/cpuinfo": arm}))
    assert found.cpu.model == "implementer 0x41 part 0xd4f"
    assert found.cpu.isa == ("asimd", "sve", "bf16")
    assert "virtualisation" in [entry.what for entry in found.unknown]


def test_a_gpu_is_described(pynvml: Any) -> None:
    found = facts()
    (gpu,) = found.gpus
    assert (gpu.name, gpu.uuid) == ("NVIDIA H200", "GPU-8a4e2c54-0000-0000-0000-000000000000")
    assert (gpu.compute_capability, gpu.memory_bytes, gpu.power_limit_w) == ("9.0", 150754820096, 700.0)
    assert (gpu.ecc, gpu.mig, gpu.compute_mode, gpu.persistence) == (True, False, "default", True)
    assert (found.software.cuda_driver, found.software.nvidia_driver) == ("13.0", "580.159.04")
    assert gpu.driver == "580.159.04"


def test_an_odd_answer_of_a_gpu_is_unknown_and_the_rest_stays(pynvml: Any) -> None:
    pynvml.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(total=None)
    pynvml.nvmlDeviceGetEccMode = lambda handle: None
    pynvml.nvmlSystemGetCudaDriverVersion_v2 = lambda: "thirteen"
    found = facts()
    assert (found.gpus[0].memory_bytes, found.gpus[0].ecc, found.gpus[0].name) == (None, None, "NVIDIA H200")
    assert (found.software.cuda_driver, found.software.nvidia_driver) == (None, "580.159.04")
    named = {entry.what for entry in found.unknown}
    assert named >= {"gpu 0 memory", "gpu 0 ecc", "cuda driver version"}


def test_what_a_gpu_does_not_support_is_unknown_and_the_rest_stays(pynvml: Any) -> None:
    pynvml.refused.update({"nvmlDeviceGetMigMode", "nvmlDeviceGetEccMode"})
    found = facts()
    assert (found.gpus[0].mig, found.gpus[0].ecc, found.gpus[0].name) == (None, None, "NVIDIA H200")
    assert Unknown("gpu 0 mig", "Not Supported") in found.unknown


def test_no_driver_is_an_unknown_with_the_reason(pynvml: Any) -> None:
    pynvml.refused.add("nvmlInit")
    found = facts()
    assert found.gpus == ()
    assert Unknown("gpus", "NVML: Not Supported") in found.unknown


def test_the_fingerprint_survives_a_reboot(machine: MakeMachine) -> None:
    before = facts(machine(SERVER))
    assert before.memory.total_bytes
    after = replace(before, memory=replace(before.memory, total_bytes=before.memory.total_bytes - (3 << 20)))
    assert fingerprint(after) == fingerprint(before)
    assert len(fingerprint(before)) == 16


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "6.9.0"},
        {"virtualisation": "none"},
        {"gpus": ()},
    ],
)
def test_the_fingerprint_changes_with_what_decides_speed(change: dict[str, Any], pynvml: Any) -> None:
    before = facts()
    assert fingerprint(replace(before, **change)) != fingerprint(before)


def test_the_fingerprint_changes_with_the_driver_and_memory(pynvml: Any) -> None:
    before = facts()
    newer = replace(before, software=replace(before.software, nvidia_driver="590.1"))
    larger = replace(before, memory=replace(before.memory, total_bytes=2 * (before.memory.total_bytes or 1)))
    assert len({fingerprint(before), fingerprint(newer), fingerprint(larger)}) == 3


@pytest.fixture
def four_gpus(pynvml: Any) -> MachineFacts:
    """Numbers 0 and 1 share the start of their UUIDs; NVML does not tell that of number 3."""
    found = facts()
    (one,) = found.gpus
    uuids = (
        *(f"GPU-{start}-d72c-4106-c12f-20bd9faed9f6" for start in ("8932f937", "8932aaaa", "11111111")),
        None,
    )
    gpus = tuple(replace(one, index=index, uuid=uuid) for index, uuid in enumerate(uuids))
    return replace(found, gpus=gpus)


def numbered(machine: MachineFacts, visible: str | None, count: int) -> list[int | str]:
    """CUDA's numbers from 0 on, each UUID by its first eight digits."""
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = [gpu_numbered(machine, number, environment) for number in range(count)]
    return [
        gpu.removesuffix("-d72c-4106-c12f-20bd9faed9f6") if isinstance(gpu, str) else gpu for gpu in found
    ]


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ["GPU-8932f937", "GPU-8932aaaa", "GPU-11111111", 3, 4]),
        ("2,0", ["GPU-11111111", "GPU-8932f937", 2]),
        (" 2 , 3,1", ["GPU-11111111", 3, "GPU-8932aaaa"]),
        ("GPU-8932a, GPU-1", ["GPU-8932aaaa", "GPU-11111111", 2]),
        ("GPU-8932aaaa-d72c-4106-c12f-20bd9faed9f6", ["GPU-8932aaaa", 1]),
        # CUDA refuses these two; NVML will say that it does not know them.
        ("GPU-8932", ["GPU-8932"]),
        ("GPU-77", ["GPU-77"]),
        ("MIG-4f2a,MIG-GPU-8932f937/1/0", ["MIG-4f2a", "MIG-GPU-8932f937/1/0", 2]),
        # The programming guide's own example: the list ends before -1.
        ("0,2,-1,1", ["GPU-8932f937", "GPU-11111111", 2, 3]),
        ("1,4,0", ["GPU-8932aaaa", 1, 2]),
        ("2,,0", ["GPU-11111111", 1, 2]),
        ("2,²,0", ["GPU-11111111", 1, 2]),
        ("none", [0, 1]),
        ("", [0, 1]),
        # As strtoul reads it: digits count up to the first other sign.
        ("2gpu,+1", ["GPU-11111111", "GPU-8932aaaa"]),
    ],
)
def test_cudas_number_names_the_gpu_that_the_variable_puts_there(
    four_gpus: MachineFacts, visible: str | None, expected: list[int | str]
) -> None:
    assert numbered(four_gpus, visible, len(expected)) == expected


def test_a_gpu_without_facts_goes_by_its_index(four_gpus: MachineFacts) -> None:
    blind = replace(four_gpus, gpus=())
    assert numbered(blind, None, 2) == [0, 1]
    assert numbered(blind, "5,GPU-8932,-1", 4) == [5, "GPU-8932", 2, 3]
    # A GPU that NVML cannot open keeps its number, and moves no other.
    lost = replace(four_gpus, gpus=four_gpus.gpus[::2])
    assert numbered(lost, None, 3) == ["GPU-8932f937", 1, "GPU-11111111"]
    assert numbered(lost, "1,2,3", 3) == [1, "GPU-11111111", 2]


def test_the_variable_is_that_of_this_process_unless_given(
    four_gpus: MachineFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert gpu_numbered(four_gpus, 0) == four_gpus.gpus[2].uuid


def test_reading_facts_imports_neither_torch_nor_pydantic() -> None:
    program = (
        "import sys; from trackside.machine.facts import facts; facts(); "
        "print([name for name in ('torch', 'pydantic', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.gpu
def test_a_real_gpu_is_described(gpu: int) -> None:
    found = facts().gpus[gpu]
    assert found.name
    assert found.uuid
    assert found.uuid.startswith("GPU-")
    assert found.memory_bytes
    assert found.memory_bytes > 1 << 30
    assert found.compute_capability
    assert float(found.compute_capability) >= 5
    assert found.power_limit_w is None or 10 < found.power_limit_w < 3000
