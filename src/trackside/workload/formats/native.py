"""Trackside's own format: `inputs`, `run`, and what a file may declare beside them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackside.workload.formats import default_device
from trackside.workload.formats.devices import seed_all
from trackside.workload.formats.facts import FileFacts, describe
from trackside.workload.formats.importing import blaming, import_file, optional_callable, required_callable
from trackside.workload.formats.workload import (
    Workload,
    as_arguments,
    checked_domain,
    checked_lifetime,
    checked_shapes,
    checked_tolerance,
)

__all__ = ["load"]

_Call = Callable[[Any, tuple[Any, ...]], Any]


def load(facts: FileFacts, baseline_path: Path | None) -> Workload:
    """Import the file; of a candidate's only `run` and `setup` are taken."""
    path = facts.source
    module = import_file(path, facts.role)
    run = required_callable(module, "run", path)
    setup = optional_callable(module, "setup", path)
    own = setup is not None
    if setup is None and facts.role == "candidate" and baseline_path is not None:
        setup = _baseline_setup(facts, baseline_path)
    has_state = setup is not None
    workload = Workload(
        path=facts.path,
        format="native",
        module=module,
        call=_with_state(run) if has_state else _without_state(run),
        setup=_seeded(setup, path),
        has_state=has_state,
        borrows_setup=has_state and not own,
    )
    if facts.role == "candidate":
        return workload
    where = str(path)
    reference = optional_callable(module, "reference", path)
    if reference is not None:
        workload.reference = _with_state(reference) if has_state else _without_state(reference)
    workload.work = optional_callable(module, "work", path)
    workload.tolerance = checked_tolerance(getattr(module, "tolerance", None), where)
    workload.domain = checked_domain(getattr(module, "domain", None), where)
    workload.outputs = checked_lifetime(getattr(module, "outputs", "fresh"), where)
    workload.shapes = checked_shapes(getattr(module, "shapes", None), where)
    workload.inputs = _inputs(required_callable(module, "inputs", path), workload.shapes, path)
    return workload


# Written out per case: one plain Python call is all that stands between the clock and the user's code.
def _with_state(function: Callable[..., Any]) -> _Call:
    def call(state: Any, args: tuple[Any, ...]) -> Any:
        return function(state, *args)

    return call


def _without_state(function: Callable[..., Any]) -> _Call:
    def call(state: Any, args: tuple[Any, ...]) -> Any:
        return function(*args)

    return call


def _seeded(setup: Callable[..., Any] | None, path: Path) -> Callable[[int, str], Any]:
    def seeded(seed: int, device: str) -> Any:
        if setup is None:
            return None
        # Also the global generators: a set-up that forgets its seed must still be the same in both arms.
        seed_all(seed)
        with blaming("running `setup` of", path):
            return setup(seed, device)

    return seeded


def _inputs(
    function: Callable[..., Any], shapes: list[Any] | None, path: Path
) -> Callable[[int, str, Any], tuple[Any, ...]]:
    def inputs(seed: int, device: str, shape: Any = None) -> tuple[Any, ...]:
        seed_all(seed)
        with blaming("running `inputs` of", path):
            if shapes is None:
                returned = function(seed, device)
            else:
                returned = function(seed, device, shapes[0] if shape is None else shape)
        return as_arguments(returned, "inputs")

    return inputs


def _takes_state(candidate: FileFacts, baseline: FileFacts) -> bool:
    """Whether the candidate's `run` can be called like the baseline's, as far as their parameters tell.

    One with further parameters that have defaults can; one that needs fewer takes the inputs alone, unless
    its first parameter is called like the baseline's.
    """
    if baseline.entry_required is None or candidate.entry_required is None:
        return True
    most_given = math.inf if baseline.entry_parameters is None else baseline.entry_parameters
    most_taken = math.inf if candidate.entry_parameters is None else candidate.entry_parameters
    if candidate.entry_required > most_given or most_taken < baseline.entry_required:
        return False
    return (
        candidate.entry_required >= baseline.entry_required
        or most_taken == math.inf
        or candidate.entry_first == baseline.entry_first
    )


def _baseline_setup(candidate: FileFacts, baseline_path: Path) -> Callable[..., Any] | None:
    """The baseline's `setup`, for a candidate without one whose `run` takes the state too."""
    baseline = describe(baseline_path, "baseline")
    if not baseline.has_setup or not _takes_state(candidate, baseline):
        return None

    loaded: list[Callable[..., Any]] = []

    def setup(seed: int, device: str) -> Any:
        if not loaded:
            module = import_file(baseline.source, "baseline", first=False)
            default = default_device.taken_off()
            loaded.append(default_device.under(default, required_callable(module, "setup", baseline.source)))
            seed_all(seed)
        return loaded[0](seed, device)

    return setup
