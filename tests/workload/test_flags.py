"""Switches that hold for a whole process are read in a process of their own: they cannot be put back."""

import subprocess
import sys

import pytest

READ = "; from trackside.workload import flags; print(*(flags.read()[name] for name in NAMES))"


def flags_after(setting: str, *names: str) -> list[str]:
    code = f"import ctypes, gc, torch; NAMES = {names!r}; {setting}{READ}"
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout.split()


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("pass", ["True", "False"]),
        # Blocks that were freed leave the heap with room, which must not be taken for a setting.
        (
            "kept = [torch.empty(30 << 20, dtype=torch.uint8) for _ in range(9)]; kept = kept[8:]",
            ["True", "False"],
        ),
        ("ctypes.CDLL(None).mallopt(-3, 1 << 30)", ["False", "False"]),
        ("ctypes.CDLL(None).mallopt(-4, 0)", ["False", "False"]),
        ("ctypes.CDLL(None).mallopt(-1, 2**31 - 1)", ["True", "True"]),
    ],
    ids=["default", "freed", "threshold", "no-maps", "no-trimming"],
)
def test_a_malloc_that_was_told_otherwise_is_seen(
    setting: str, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_MMAP_THRESHOLD_", str(32 << 20))
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", str(64 << 20))
    assert flags_after(setting, "large_blocks_from_the_system", "unused_heap_kept") == wanted
