"""A loaded workload, and the rules for what a file may declare beside its code. Imports no framework."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, get_args

from trackside.records.errors import ErrorKind, TracksideError

__all__ = [
    "Domain",
    "Format",
    "OutputLifetime",
    "Role",
    "Workload",
    "as_arguments",
    "checked_domain",
    "checked_lifetime",
    "checked_shapes",
    "checked_tolerance",
    "fault",
]

Format = Literal["native", "kernelbench", "gpumode"]
Role = Literal["baseline", "candidate"]

OutputLifetime = Literal["fresh", "until_next_call"]

Domain = Literal["any", "positive", "nonnegative", "unit", "fixed"]
"""What probes may do with an argument: any values, > 0, >= 0, within [0, 1], or only what `inputs` draws."""

_DOMAINS: Final[tuple[str, ...]] = get_args(Domain)
_LIFETIMES: Final[tuple[str, ...]] = get_args(OutputLifetime)
_TOLERANCE_KEYS: Final = ("rms", "max")


def fault(kind: ErrorKind, found: str, needed: str, remedy: str) -> TracksideError:
    """An error in the order in which people read it: found, needed, remedy."""
    return TracksideError(kind, f"Found {found}; needed {needed}.", remedy)


@dataclass
class Workload:
    """One user file, ready to run. Made in a worker that has imported the framework; never in the judge."""

    path: Path
    """The file, or the GPU MODE task folder."""
    format: Format
    module: ModuleType
    """The module that holds the entry."""
    call: Callable[[Any, tuple[Any, ...]], Any]
    """`call(state, args)`: the code under test, on one set of arguments."""
    setup: Callable[[int, str], Any]
    """`setup(seed, device)`: the untimed state; gives None where there is none."""
    has_state: bool
    borrows_setup: bool = False
    """Whether a candidate's state is made by the baseline's `setup`, for it has none of its own."""
    inputs: Callable[[int, str, Any], tuple[Any, ...]] | None = None
    """`inputs(seed, device, shape)`: the arguments of one call; a shape of None means the first one."""
    reference: Callable[[Any, tuple[Any, ...]], Any] | None = None
    """`reference(state, args)`: what the answer should be, where the file says so."""
    tolerance: dict[str, float] | None = None
    """`rms` and `max`, relative; either may be absent."""
    work: Callable[..., Any] | None = None
    domain: str | dict[int, str] | None = None
    shapes: list[Any] | None = None
    """Sizes to time, a verdict for each."""
    probe_shapes: list[Any] | None = None
    """Sizes to check without timing: GPU MODE's `tests`."""
    outputs: OutputLifetime = "fresh"
    no_grad: bool = False
    """Run under no_grad, as KernelBench does; parameters are frozen either way."""
    default_device: Any = None
    """What the file sets as torch's default, in force while its own code runs."""
    init_args: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    """KernelBench: the baseline's constructor arguments. When set, `setup` uses them and nothing else."""
    init_noise: Any = None
    """KernelBench: the `InitNoise` that the last `setup` ran under."""
    init_inputs: Callable[[int, str], tuple[tuple[Any, ...], dict[str, Any]]] | None = None
    """KernelBench: `init_inputs(seed, device)` gives the file's own constructor arguments."""


def as_arguments(returned: Any, where: str) -> tuple[Any, ...]:
    """What `inputs` returned, as positional arguments: a tuple or list is spread, anything else is one."""
    if returned is None:
        raise fault(
            "workload",
            f"that `{where}` returned None",
            "the arguments of one call",
            f"end `{where}` with a return of a tensor, or of a tuple of arguments",
        )
    if type(returned) in (tuple, list):
        return tuple(returned)
    return (returned,)


def checked_tolerance(value: object, where: str) -> dict[str, float] | None:
    """A declared tolerance as a dict; a lone number bounds both the RMS and the maximum."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in _TOLERANCE_KEYS]
        if unknown or not value:
            raise _bad("tolerance", value, where, 'a number, or {"rms": number, "max": number}')
        return {str(key): _bound(item, where) for key, item in value.items()}
    bound = _bound(value, where)
    return dict.fromkeys(_TOLERANCE_KEYS, bound)


def _bound(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _bad("tolerance", value, where, "a finite number")
    if not 0 <= value < 1:
        # A relative error of 1 is what an output of zeros has: such a tolerance accepts anything.
        raise _bad(
            "tolerance", value, where, "a relative error of at least 0 and below 1, which zeros would have"
        )
    return float(value)


def checked_domain(value: object, where: str) -> str | dict[int, str] | None:
    """A declared domain: one word for all arguments, or a word for each argument's position."""
    if value is None or (isinstance(value, str) and value in _DOMAINS):
        return value
    if isinstance(value, Mapping) and value:
        positions = all(type(key) is int and key >= 0 for key in value)
        if positions and all(isinstance(word, str) and word in _DOMAINS for word in value.values()):
            return dict(value)
    words = ", ".join(f'"{word}"' for word in _DOMAINS)
    raise _bad("domain", value, where, f"one of {words}, or a dict from argument position to one of them")


def checked_shapes(value: object, where: str) -> list[Any] | None:
    """Declared shapes as a list that is not empty."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not value:
        raise _bad("shapes", value, where, "a list with at least one shape")
    return list(value)


def checked_lifetime(value: object, where: str) -> OutputLifetime:
    """How long an output stays valid, as declared."""
    if value == "fresh":
        return "fresh"
    if value == "until_next_call":
        return "until_next_call"
    raise _bad("outputs", value, where, " or ".join(f'"{word}"' for word in _LIFETIMES))


def _bad(name: str, value: object, where: str, needed: str) -> TracksideError:
    shown = repr(value)
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    return fault(
        "workload", f"`{name} = {shown}` in {where}", needed, f"change `{name}`, or remove it for the default"
    )
