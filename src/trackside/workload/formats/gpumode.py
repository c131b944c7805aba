"""GPU MODE task folders (`task.yml`, `reference.py`) and submissions (`custom_kernel`), read as published."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from trackside.records.errors import TracksideError
from trackside.workload.formats.devices import cuda_means, seed_all
from trackside.workload.formats.facts import FileFacts
from trackside.workload.formats.importing import blaming, import_file, offer_modules, required_callable
from trackside.workload.formats.taskfile import Task, find_task_folder, helper_modules, read_task
from trackside.workload.formats.workload import Workload, fault

__all__ = ["load"]

# Tasks put seeds into 32-bit tensors and NumPy generators; 31 bits are too many to tabulate answers for.
_SEEDS: Final = 2**31 - 1


def load(facts: FileFacts, baseline_path: Path | None) -> Workload:
    """Import the task's reference (baseline) or a submission."""
    home = find_task_folder(facts.path) or (find_task_folder(baseline_path) if baseline_path else None)
    task = _read(home, facts)
    offer_modules(helper_modules(task, facts.source.resolve().parent))
    module = import_file(facts.source, facts.role)
    kernel = required_callable(module, facts.entry, facts.source)
    workload = Workload(
        path=facts.path, format="gpumode", module=module, call=_call(kernel), setup=_no_state, has_state=False
    )
    if facts.role == "candidate":
        return workload
    assert task is not None, "describe() accepts a GPU MODE baseline only with its task.yml"
    reference = (
        module if facts.entry == "ref_kernel" else import_file(task.reference, "reference", first=False)
    )
    workload.inputs = _inputs(required_callable(reference, "generate_input", task.reference), task)
    workload.shapes = list(task.shapes) or None
    workload.probe_shapes = list(task.probe_shapes) or None
    if facts.entry == "custom_kernel":
        # A reference that is itself the baseline says nothing of the right answer beyond what `call` says.
        workload.reference = _call(required_callable(reference, "ref_kernel", task.reference))
    return workload


def _read(home: Path | None, facts: FileFacts) -> Task | None:
    try:
        return read_task(home) if home is not None else None
    except TracksideError:
        if facts.role == "candidate":
            return None
        raise


def _call(kernel: Callable[..., Any]) -> Callable[[Any, tuple[Any, ...]], Any]:
    def call(state: Any, args: tuple[Any, ...]) -> Any:
        return kernel(*args)

    return call


def _no_state(seed: int, device: str) -> None:
    return None


def _inputs(generate: Callable[..., Any], task: Task) -> Callable[[int, str, Any], tuple[Any, ...]]:
    takes_seed = _takes_seed(generate)
    path = task.reference

    def inputs(seed: int, device: str, shape: Any = None) -> tuple[Any, ...]:
        spec = dict(shape if shape is not None else (task.shapes[0] if task.shapes else {}))
        _check_spec(generate, spec, takes_seed, path)
        seed = seed % _SEEDS
        if takes_seed:
            spec["seed"] = seed
        # Tasks draw part of their data from the global generators and only part from `seed`.
        seed_all(seed)
        data = _generated(generate, spec, device, path)
        _check_device(data, device, path)
        return (data,)

    return inputs


def _generated(generate: Callable[..., Any], spec: dict[str, Any], device: str, path: Path) -> Any:
    try:
        with blaming("running `generate_input` of", path), cuda_means(device):
            return generate(**spec)
    except TracksideError as error:
        if device == "cpu" and any(word in error.message for word in ("CUDA", "cuda", "NVIDIA", "nvidia")):
            raise fault(
                "unsupported",
                f"a task whose `generate_input` needs a GPU ({error.message})",
                "inputs on the CPU",
                "run on a CUDA device, or take the device as a parameter in generate_input",
            ) from error
        raise


def _takes_seed(generate: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(generate).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(p.name == "seed" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def _check_spec(generate: Callable[..., Any], spec: dict[str, Any], takes_seed: bool, path: Path) -> None:
    try:
        inspect.signature(generate).bind(**spec, **({"seed": 0} if takes_seed else {}))
    except TypeError as error:
        signature = f"generate_input{inspect.signature(generate)}"
        raise fault(
            "workload",
            f"the arguments {spec} for `{signature}` in {path} ({error})",
            "arguments that it takes",
            f"make the tests and benchmarks in {path.parent / 'task.yml'} agree with generate_input",
        ) from error
    except ValueError:
        return


def _check_device(data: Any, device: str, path: Path) -> None:
    """On a GPU some tensors may stay on the host, as tasks keep scale factors there, but not all of them."""
    tensors = list(_tensors(data))
    wanted = torch.device(device).type
    if tensors and not any(tensor.device.type == wanted for tensor in tensors):
        found = sorted({tensor.device.type for tensor in tensors})
        raise fault(
            "unsupported",
            f"inputs on {', '.join(found)} from `generate_input` in {path}",
            f"at least one tensor on {device}",
            f"compare with --device {found[0]}, or let generate_input place its tensors on the GPU",
        )


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return [tensor for item in items for tensor in _tensors(item)]
