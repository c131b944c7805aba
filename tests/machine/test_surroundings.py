"""Disks, file systems, fabrics, profilers and versions, read from recorded files and from this machine."""

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import pytest

from trackside.machine import surroundings as module
from trackside.machine.facts import Gpu, MachineFacts, Software, facts
from trackside.machine.surroundings import surroundings

GPU = Gpu(0, "NVIDIA H200", "GPU-1", None, None, "9.0", None, None, None, None, None, None)


@pytest.fixture(scope="module")
def here() -> MachineFacts:
    return facts()


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_on_this_machine_the_root_file_system_has_a_size(here: MachineFacts) -> None:
    found = {fs.point: fs for fs in surroundings(here).filesystems}
    assert (found["/"].bytes or 0) > (found["/"].free or 0) >= 0


def test_disks_are_told_by_kind_and_loop_devices_are_none(here: MachineFacts, tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "sys/block/nvme0n1/size": "7501476528\n",
            "sys/block/nvme0n1/device/model": "SAMSUNG MZQL23T8HCLS    \n",
            "sys/block/nvme0n1/queue/scheduler": "[none] mq-deadline kyber\n",
            "sys/block/sda/queue/rotational": "1\n",
            "sys/block/sdb/queue/rotational": "0\n",
            "sys/block/vda/queue/rotational": "1\n",
            "sys/block/loop0/size": "8\n",
        },
    )
    disks = {disk.name: disk for disk in surroundings(here, root).disks}
    assert {name: disk.kind for name, disk in disks.items()} == {
        "nvme0n1": "nvme",
        "sda": "rotating",
        "sdb": "ssd",
        "vda": "virtual",
    }
    assert disks["nvme0n1"].bytes == 3_840_755_982_336
    assert (disks["nvme0n1"].model, disks["nvme0n1"].scheduler) == ("SAMSUNG MZQL23T8HCLS", "none")


def test_file_systems_are_told_by_where_their_data_lies(here: MachineFacts, tmp_path: Path) -> None:
    mounts = (
        "21 1 0:20 / / rw - overlay overlay rw,lowerdir=/a\n"
        "22 21 0:21 / /data rw - nfs4 server:/export rw,nconnect=8\n"
        "23 21 259:1 / /local\\040disk rw - xfs /dev/nvme0n1p1 rw\n"
        "24 21 0:22 / /dev/shm rw - tmpfs shm rw,size=65536k\n"
        "25 21 0:23 / /proc rw - proc proc rw\n"
        "26 21 259:2 / /data rw - ext4 /dev/sda1 rw\n"
    )
    found = surroundings(here, write(tmp_path, {"proc/self/mountinfo": mounts})).filesystems
    assert {fs.point: fs.kind for fs in found} == {
        "/": "overlay",
        "/data": "local",
        "/local disk": "local",
        "/dev/shm": "memory",
    }


def test_a_fabric_s_port_tells_its_state_and_rate(here: MachineFacts, tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "sys/class/infiniband/mlx5_0/fw_ver": "28.39.3004\n",
            "sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            "sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
        },
    )
    (port,) = surroundings(here, root).fabrics
    assert (port.state, port.rate, port.link) == ("ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand")


def test_a_machine_without_proc_and_sys_says_what_is_unknown(here: MachineFacts, tmp_path: Path) -> None:
    found = surroundings(here, tmp_path)
    assert (found.disks, found.filesystems, found.fabrics) == ((), (), ())
    assert [one.what for one in found.unknown] == ["file systems"]


@pytest.mark.parametrize(("admin_only", "root_user", "may"), [("0", False, True), ("1", False, False)])
def test_counters_are_the_driver_s_to_give(
    admin_only: str, root_user: bool, may: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path, {"proc/driver/nvidia/params": f"ResmanDebugLevel: 1\nRmProfilingAdminOnly: {admin_only}\n"}
    )
    monkeypatch.setattr(module.os, "geteuid", lambda: 0 if root_user else 1000)
    assert module._gpu_counters(tmp_path, gpus=True)[0] is may
    assert module._gpu_counters(tmp_path, gpus=False)[0] is None


@pytest.mark.parametrize(
    ("built_for", "driver", "fits"),
    [("12.8", "13.0", True), ("12.8", "12.4", True), ("13.0", "12.8", False), (None, "13.0", False)],
)
def test_torch_fits_a_driver_of_its_own_cuda_or_a_later_one(
    built_for: str | None, driver: str, fits: bool, here: MachineFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_torch_cuda", lambda: built_for)
    software = Software(torch="2.11.0", cuda_driver=driver, nvidia_driver="580.1")
    found = surroundings(replace(here, gpus=(GPU,), software=software)).fits
    assert [fit.fits for fit in found if "driver" in fit.what] == [fits]


def test_a_triton_that_torch_does_not_ask_for_does_not_fit(
    here: MachineFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        importlib.metadata, "requires", lambda package: ['triton==3.6.0; platform_system == "Linux"']
    )
    for installed, fits in (("3.6.0", True), ("3.2.0", False), (None, False)):
        software = Software(torch="2.11.0", triton=installed)
        found = surroundings(replace(here, software=software)).fits
        assert [fit.fits for fit in found if fit.what == "torch and triton"] == [fits]
