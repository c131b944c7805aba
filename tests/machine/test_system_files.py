from collections.abc import Callable
from pathlib import Path

from trackside.machine.system_files import (
    Cgroup,
    Unknown,
    cpu_quota,
    find_cgroup,
    parse_cpu_list,
    parse_fields,
)

MakeMachine = Callable[[dict[str, str]], Path]

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_cpu_lists_with_ranges_and_gaps_are_read() -> None:
    assert parse_cpu_list("0-2,8,10-11\n") == (0, 1, 2, 8, 10, 11)
    assert parse_cpu_list("") == ()


def test_lines_that_are_no_numbers_are_skipped() -> None:
    assert parse_fields("MemTotal:  12 kB\nname x\n\nnr_throttled 3") == {"MemTotal": 12, "nr_throttled": 3}


def test_a_version_2_group_lists_itself_and_then_its_ancestors(machine: MakeMachine) -> None:
    root = machine(
        {
            "proc/self/cgroup": "0::/user.slice/session.scope\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/user.slice/session.scope/cpu.max": "max 100000",
        }
    )
    top = root / "sys/fs/cgroup"
    folders = (top / "user.slice/session.scope", top / "user.slice", top)
    assert find_cgroup("cpu", root) == Cgroup(2, folders)


def test_a_version_1_controller_wins_over_an_empty_unified_hierarchy(machine: MakeMachine) -> None:
    root = machine(
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/jobs\n0::/\n",
            "proc/self/mountinfo": V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
            + "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
            "sys/fs/cgroup/cpu/jobs/cpu.stat": "",
        }
    )
    top = root / "sys/fs/cgroup/cpu"
    assert find_cgroup("cpu", root) == Cgroup(1, (top / "jobs", top))


def test_a_containers_mount_is_cut_off_the_hosts_path(machine: MakeMachine) -> None:
    root = machine(
        {
            "proc/self/cgroup": "4:cpu:/docker/abc/inner\n",
            "proc/self/mountinfo": "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n",
            "sys/fs/cgroup/cpu/inner/cpu.stat": "",
        }
    )
    top = root / "sys/fs/cgroup/cpu"
    assert find_cgroup("cpu", root) == Cgroup(1, (top / "inner", top))


def test_a_group_outside_the_namespace_falls_back_to_what_is_visible(machine: MakeMachine) -> None:
    root = machine({"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": V2_MOUNT})
    assert find_cgroup("cpu", root) == Cgroup(2, (root / "sys/fs/cgroup",))


def test_a_mount_without_a_source_is_no_obstacle(machine: MakeMachine) -> None:
    # What the kernel writes after mount("", "/mnt", "tmpfs").
    nameless = "63 43 0:39 / /mnt rw,relatime - tmpfs  rw\n"
    root = machine({"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": nameless + V2_MOUNT})
    assert find_cgroup("cpu", root) == Cgroup(2, (root / "sys/fs/cgroup",))


def test_a_machine_without_control_groups_says_so(machine: MakeMachine) -> None:
    root = machine({"proc/self/cgroup": "", "proc/self/mountinfo": "1 0 0:1 / / rw - ext4 /dev/vda rw\n"})
    found = find_cgroup("cpu", root)
    assert isinstance(found, Unknown)
    assert "mounted" in found.why


def test_quotas_of_both_versions_are_read_as_cpus(machine: MakeMachine) -> None:
    root = machine(
        {
            "two/cpu.max": "150000 100000\n",
            "free/cpu.max": "max 100000\n",
            "one/cpu.cfs_quota_us": "50000\n",
            "one/cpu.cfs_period_us": "100000\n",
            "open/cpu.cfs_quota_us": "-1\n",
            "open/cpu.cfs_period_us": "100000\n",
        }
    )
    assert cpu_quota(root / "two") == 1.5
    assert cpu_quota(root / "free") is None
    assert cpu_quota(root / "one") == 0.5
    assert cpu_quota(root / "open") is None
    assert cpu_quota(root / "absent") is None
