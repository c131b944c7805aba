"""Workload files in the formats people have: `describe` looks at one, `load` runs it in a worker.

Importing this package, and everything but `load`, needs no framework: the judge uses it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trackside.workload.formats.facts import FileFacts, describe, detect
from trackside.workload.formats.workload import Format, Role, Workload

__all__ = [
    "FileFacts",
    "Format",
    "Role",
    "Workload",
    "adopt_parameters",
    "confine_default_device",
    "describe",
    "detect",
    "is_out_of_memory",
    "load",
    "parameter_digest",
]


def load(
    path: Path, role: Role, baseline_format: Format | None = None, baseline_path: Path | None = None
) -> Workload:
    """Import a workload. Only in a worker: this runs the user's code.

    Args:
        path: a Python file, or a GPU MODE task folder.
        role: of a candidate only the entry and its untimed set-up are used.
        baseline_format: what a candidate must be written in.
        baseline_path: lets a candidate that leaves out `setup`, `get_init_inputs` or the `task` module use
            the baseline's, which then runs in the candidate's process.

    Raises:
        TracksideError: not-found, workload, missing-dependency or unsupported.
    """
    facts = describe(Path(path), role, baseline_format)
    workload = _load(facts, baseline_path)
    confine_default_device(workload)
    return workload


def confine_default_device(workload: Workload) -> None:
    """See `default_device.confine`; once more after `setup`, which may set one too."""
    from trackside.workload.formats import default_device

    default_device.confine(workload)


def _load(facts: FileFacts, baseline_path: Path | None) -> Workload:
    if facts.format == "native":
        from trackside.workload.formats import native

        return native.load(facts, baseline_path)
    if facts.format == "kernelbench":
        from trackside.workload.formats import kernelbench

        return kernelbench.load(facts, baseline_path)
    from trackside.workload.formats import gpumode

    return gpumode.load(facts, baseline_path)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was wanting; torch says it of a GPU's by a class, of a CPU's only in words."""
    import torch

    words = "can't allocate memory" in str(error) and isinstance(error, RuntimeError)
    return words or isinstance(error, MemoryError | torch.OutOfMemoryError)


def parameter_digest(module: Any) -> dict[str, Any]:
    """See `kernelbench.parameter_digest`."""
    from trackside.workload.formats import kernelbench

    return kernelbench.parameter_digest(module)


def adopt_parameters(module: Any, state_dict: dict[str, Any]) -> bool:
    """See `kernelbench.adopt_parameters`."""
    from trackside.workload.formats import kernelbench

    return kernelbench.adopt_parameters(module, state_dict)
