"""KernelBench files: `Model`, `get_inputs`, `get_init_inputs`, and `ModelNew` as the candidate.

KernelBench leaves normalisation weights at one and biases at zero, so a candidate that drops them passes.
Here both constructors run under one seed, and constant parameters and running statistics get noise that
depends on that seed alone.
"""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode

from trackside.workload import tree
from trackside.workload.formats import default_device
from trackside.workload.formats.devices import cuda_means, moved, replaced, seed_all
from trackside.workload.formats.facts import FileFacts
from trackside.workload.formats.importing import blaming, import_file, required_callable
from trackside.workload.formats.workload import Workload, as_arguments, fault

__all__ = ["InitNoise", "adopt_parameters", "construct", "load", "parameter_digest"]

_InitArgs = tuple[tuple[Any, ...], dict[str, Any]]

# Half the constant: a weight of one becomes 0.5 to 1.5. Signs hold; a dropped weight is 29 % off (RMS).
_NOISE: Final = 0.5
# Buffers that torch's norms, and norms written after them, keep statistics in, and what these start at.
_STATISTICS: Final = {"running_mean": 0.0, "running_var": 1.0}


def load(facts: FileFacts, baseline_path: Path | None) -> Workload:
    """Import the file; a candidate gives its class, and constructor arguments where nobody else does."""
    path = facts.source
    module = import_file(path, facts.role)
    model = required_callable(module, facts.entry, path)
    own = _init_inputs(module, path) if callable(getattr(module, "get_init_inputs", None)) else None

    of_baseline: list[Callable[[int, str], _InitArgs]] = []

    def setup(seed: int, device: str) -> Any:
        arguments = workload.init_args
        if arguments is None and facts.role == "candidate" and baseline_path is not None:
            if not of_baseline:
                theirs = _init_inputs(import_file(baseline_path, "baseline", first=False), baseline_path)
                of_baseline.append(default_device.under(default_device.taken_off(), theirs))
            arguments = of_baseline[0](seed, device)
        if arguments is None:
            if own is None and not _needs_nothing(model):
                raise fault(
                    "workload",
                    f"{path} without `get_init_inputs`, and no constructor arguments from a baseline",
                    f"the arguments of `{facts.entry}`",
                    f"copy get_init_inputs from the baseline into {path}",
                )
            arguments = own(seed, device) if own is not None else ((), {})
        args, kwargs = moved(arguments[0], device), moved(arguments[1], device)
        workload.init_noise = InitNoise(seed)
        with blaming(f"constructing `{facts.entry}` of", path):
            return construct(model, args, kwargs, workload.init_noise, device)

    workload = Workload(
        path=facts.path,
        format="kernelbench",
        module=module,
        call=_forward,
        setup=setup,
        has_state=True,
        no_grad=True,
        init_inputs=own,
    )
    if facts.role == "baseline":
        workload.inputs = _inputs(required_callable(module, "get_inputs", path), path)
    return workload


def _needs_nothing(model: Callable[..., Any]) -> bool:
    try:
        inspect.signature(model).bind()
    except TypeError:
        return False
    return True


def _forward(state: Any, args: tuple[Any, ...]) -> Any:
    return state(*args)


def _inputs(get_inputs: Callable[[], Any], path: Path) -> Callable[[int, str, Any], tuple[Any, ...]]:
    def drawn(seed: int, device: str) -> Any:
        seed_all(seed)
        with cuda_means(device):
            return get_inputs()

    def inputs(seed: int, device: str, shape: Any = None) -> tuple[Any, ...]:
        returned = None
        with blaming("running `get_inputs` of", path):
            if device != "cpu":
                # The files draw on the default device, and half of them 2 GiB or more: seconds on a host.
                try:
                    with torch.device(device):
                        returned = drawn(seed, device)
                except (RuntimeError, TypeError, NotImplementedError) as error:
                    if isinstance(error, torch.OutOfMemoryError):
                        raise
            if returned is None:
                returned = drawn(seed, device)
        return as_arguments(moved(returned, device), "get_inputs")

    return inputs


def _init_inputs(module: Any, path: Path) -> Callable[[int, str], _InitArgs]:
    def init_inputs(seed: int, device: str) -> _InitArgs:
        get = getattr(module, "get_init_inputs", None)
        if get is None:
            return (), {}
        seed_all(seed)
        with blaming("running `get_init_inputs` of", path), cuda_means(device):
            given = get()
        if not isinstance(given, list | tuple):
            raise fault(
                "workload",
                f"a {type(given).__name__} from `get_init_inputs` in {path}",
                "a list of arguments",
                "return a list",
            )
        model = getattr(module, "Model", None) or getattr(module, "ModelNew", None)
        return _split(tuple(given), model)

    return init_inputs


def _split(given: tuple[Any, ...], model: Any) -> _InitArgs:
    """Positional and named arguments; collections derived from KernelBench return `[[...], {...}]`."""
    if len(given) == 2 and isinstance(given[0], list | tuple) and isinstance(given[1], dict):
        try:
            inspect.signature(model).bind(*given[0], **given[1])
        except (TypeError, ValueError):
            return given, {}
        return tuple(given[0]), dict(given[1])
    return given, {}


def construct(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], noise: InitNoise, device: str
) -> Any:
    """A module with the weights of the noise's seed, in the mode its constructor left it in, on `device`."""
    with torch.no_grad(), cuda_means(device):
        seed_all(noise.seed)
        with noise:
            module = model(*args, **kwargs)
            if isinstance(module, nn.Module):
                noise.sweep(module)
    if isinstance(module, nn.Module):
        # KernelBench runs under no_grad; frozen parameters give the same without a context in the timed call.
        for parameter in module.to(device).parameters():
            if not nn.parameter.is_lazy(parameter):
                parameter.requires_grad_(False)
    return module


class InitNoise:
    """While entered, parameters that a constructor leaves at a constant get seeded values around it.

    The noise is there as soon as the parameter is, so that weights folded or packed in the constructor agree.
    It depends on the seed, the constant, the number of elements, and the place among parameters alike in
    both; on no name. So `nn.LayerNorm` and two plain parameters in its stead get the same values. Running
    statistics are told by their names and counted by themselves. Other buffers, frozen parameters, and single
    elements other than 0 and 1 stay as they are.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._counts: Counter[tuple[str, int]] = Counter()
        # The tensor itself is held, since the id of one that was freed may come again.
        self._places: dict[tuple[int, str], tuple[torch.Tensor, int]] = {}
        self._fresh = _ConstantFactories()
        self._stack = ExitStack()

    def __enter__(self) -> InitNoise:
        register_parameter, register_buffer = nn.Module.register_parameter, nn.Module.register_buffer
        reset_running_stats = _NormBase.reset_running_stats

        # Only what a factory filled: memory from `empty` may look like zeros before it is initialised.
        def parameter_registered(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
            register_parameter(module, name, param)
            if param is not None and self._fresh.made(param):
                self._vary(param)

        def buffer_registered(
            module: nn.Module, name: str, tensor: torch.Tensor | None, persistent: bool = True
        ) -> None:
            register_buffer(module, name, tensor, persistent)
            if tensor is not None and self._fresh.made(tensor):
                self._vary_statistic(name, tensor)

        def statistics_reset(norm: _NormBase) -> None:
            reset_running_stats(norm)
            if norm.track_running_stats:
                for name in _STATISTICS:
                    self._vary_statistic(name, getattr(norm, name))

        with ExitStack() as stack:
            # The functions behind ones_, zeros_ and constant_, however those were imported.
            for name in ("_no_grad_fill_", "_no_grad_zero_"):
                stack.enter_context(replaced(nn.init, name, self._then_vary(getattr(nn.init, name))))
            stack.enter_context(replaced(nn.Module, "register_parameter", parameter_registered))
            stack.enter_context(replaced(nn.Module, "register_buffer", buffer_registered))
            stack.enter_context(replaced(_NormBase, "reset_running_stats", statistics_reset))
            stack.enter_context(self._fresh)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
        # This object outlives the constructor; weights that were packed and dropped must not.
        self._places.clear()

    def _then_vary(self, fill: Callable[..., Any]) -> Callable[..., Any]:
        def filled(tensor: torch.Tensor, *value: Any) -> Any:
            result = fill(tensor, *value)
            if isinstance(tensor, nn.Parameter):
                self._vary(tensor)
            return result

        return filled

    def sweep(self, module: nn.Module) -> None:
        """Vary what is still constant: parameters set through `.data`, or computed as constants."""
        for _name, parameter in nn.Module.named_parameters(module):
            self._vary(parameter)
        for path, buffer in nn.Module.named_buffers(module):
            self._vary_statistic(path.rpartition(".")[2], buffer)

    @property
    def statistics(self) -> list[tuple[str, int, int]]:
        """Running statistics that the constructor made: name, elements, and how many of these."""
        return [(*kind, count) for kind, count in self._counts.items() if kind[0] in _STATISTICS]

    def give_statistics(self, module: nn.Module, statistics: list[tuple[str, int, int]]) -> int:
        """Vary the buffers that hold, under other names, what the baseline's constructor has as `statistics`.

        What this module's constructor made itself, be it folded since, is not given again. Of buffers with
        the size and the constant, those with `mean` or `var` in their name come first, then the order in
        which they were registered decides.

        Returns:
            How many buffers were varied.
        """
        given = 0
        for name, elements, count in statistics:
            constant, word = _STATISTICS[name], name.removeprefix("running_")
            free = [
                (path, buffer)
                for path, buffer in nn.Module.named_buffers(module)
                if buffer.numel() == elements and _constant_of(buffer) == constant
            ]
            free.sort(key=lambda entry, word=word: word not in entry[0].rpartition(".")[2].lower())  # type: ignore[misc]
            for _path, buffer in free[: max(0, count - self._counts[name, elements])]:
                self._fill(buffer, name, constant)
                given += 1
        return given

    def _vary(self, parameter: nn.Parameter) -> None:
        constant = _constant_of(parameter) if parameter.requires_grad else None
        if constant is not None:
            self._fill(parameter, f"{constant:.3g}", constant)

    def _vary_statistic(self, name: str, buffer: torch.Tensor) -> None:
        # Any other constant was chosen; around a variance of zero half of the values would be negative.
        if name in _STATISTICS and _constant_of(buffer) == _STATISTICS[name]:
            self._fill(buffer, name, _STATISTICS[name])

    def _fill(self, tensor: torch.Tensor, word: str, constant: float) -> None:
        """Values around `constant` for the next place among tensors of that word and size."""
        kind = (word, tensor.numel())
        key = (id(tensor), word)
        if key not in self._places:
            # A constant written twice to one tensor, as `apply(init_weights)` does, keeps its place.
            self._places[key] = (tensor, self._counts[kind])
            self._counts[kind] += 1
        place = self._places[key][1]
        text = f"{self.seed}:{kind[0]}:{kind[1]}:{place}"
        generator = torch.Generator().manual_seed(
            int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
        )
        noise = torch.rand(tensor.numel(), generator=generator).mul_(2).sub_(1).mul_(_NOISE)
        values = noise if constant == 0 else noise.add_(1).mul_(constant)
        with torch.no_grad():
            tensor.copy_(values.view(tensor.shape))


def _constant_of(tensor: torch.Tensor) -> float | None:
    """The value that fills a floating tensor, if one does and may be varied."""
    if nn.parameter.is_lazy(tensor) or not tensor.is_floating_point():
        return None
    if tensor.numel() == 0 or tensor.device.type == "meta":
        return None
    flat = tensor.detach().reshape(-1)
    first = float(flat[0])
    if tensor.numel() == 1:
        return first if first in (0.0, 1.0) else None
    # The last element first: it settles most cases without reading the whole.
    if float(flat[-1]) != first or not bool((flat == flat[0]).all()):
        return None
    return first


class _ConstantFactories(TorchFunctionMode):  # type: ignore[misc,unused-ignore]
    """Remembers which memory came from `ones`, `zeros`, `full` and the like, or from scaling a tensor."""

    _FUNCTIONS: Final = frozenset(
        {
            torch.ones, torch.zeros, torch.full, torch.tensor,
            torch.ones_like, torch.zeros_like, torch.full_like,
            torch.Tensor.new_ones, torch.Tensor.new_zeros, torch.Tensor.new_full, torch.Tensor.new_tensor,
            torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__,
            torch.div, torch.Tensor.div, torch.Tensor.__truediv__, torch.neg, torch.Tensor.neg,
        }
    )  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self._pointers: set[int] = set()

    def made(self, tensor: torch.Tensor) -> bool:
        if nn.parameter.is_lazy(tensor) or tensor.device.type == "meta":
            return False
        return tensor.numel() > 0 and tensor.data_ptr() in self._pointers

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in self._FUNCTIONS and type(result) is torch.Tensor and result.device.type != "meta":
            self._pointers.add(result.data_ptr())
        return result


# -- which weights a module has ------------------------------------------------------------------------

# Elements taken at a time: 32 MiB in float64, so that a large model is digested without a copy of it.
_CHUNK: Final = 1 << 22
# Odd 63-bit multipliers of splitmix64, one pair for each of two sums: together 128 bits.
_MIXERS: Final = ((0x3F58476D1CE4E5B9, 0x14D049BB133111EB), (0x1E3779B97F4A7C15, 0x5851F42D4C957F2D))


def parameter_digest(module: nn.Module) -> dict[str, Any]:
    """What is needed to tell weights that were renamed or packed from other weights.

    `digest` is of the multiset of all parameter values, whatever their names, shapes, order and float type.
    Zeros do not count, so that padding does not matter. Equal digests mean equal values, not equal places.
    """
    sums = [0, 0]
    elements, nonzero = 0, 0
    shapes: dict[str, list[int]] = {}
    for name, parameter in nn.Module.named_parameters(module):
        shapes[name] = list(parameter.shape)
        if nn.parameter.is_lazy(parameter) or parameter.device.type == "meta":
            continue
        elements += parameter.numel()
        for chunk in _chunks(parameter):
            bits = _value_bits(chunk)
            nonzero += int(torch.count_nonzero(bits))
            for i, mixers in enumerate(_MIXERS):
                sums[i] = (sums[i] + int(_mixed(bits, *mixers).sum())) % 2**64
    return {
        "names": list(shapes),
        "shapes": shapes,
        "elements": elements,
        "nonzero": nonzero,
        "digest": hashlib.sha256(f"{sums[0]:016x}{sums[1]:016x}:{nonzero}".encode()).hexdigest(),
        "buffers": {name: list(buffer.shape) for name, buffer in nn.Module.named_buffers(module)},
    }


def _chunks(parameter: torch.Tensor) -> Iterator[torch.Tensor]:
    flat = parameter.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        yield flat[start : start + _CHUNK]


def _value_bits(values: torch.Tensor) -> torch.Tensor:
    # Adding zero turns -0.0 into 0.0; every narrower float is exact in float64.
    return (values.to(torch.float64) + 0.0).view(torch.int64)


def _mixed(bits: torch.Tensor, first: int, second: int) -> torch.Tensor:
    """A hash of each element with 0 for 0. Products wrap; the masks make the arithmetic shifts logical."""
    mixed = (bits ^ ((bits >> 30) & (2**34 - 1))) * first
    mixed = (mixed ^ ((mixed >> 27) & (2**37 - 1))) * second
    return mixed ^ ((mixed >> 31) & (2**33 - 1))


def adopt_parameters(module: nn.Module, state_dict: dict[str, Any]) -> bool:
    """Give `module` the weights of `state_dict`, when all names and shapes match.

    Every entry must have a namesake of equal shape among the module's parameters and buffers, and every
    parameter must have an entry; the module may have further buffers. Values that are equal already are not
    written, since weights that the constructor packed from them would not follow.

    Returns:
        Whether the module now holds these weights.
    """
    parameters = dict(nn.Module.named_parameters(module, remove_duplicate=False))
    own = {**parameters, **dict(nn.Module.named_buffers(module, remove_duplicate=False))}
    given = {name: value for name, value in state_dict.items() if isinstance(value, torch.Tensor)}
    if not parameters.keys() <= given.keys() or not given.keys() <= own.keys():
        return False
    if any(
        nn.parameter.is_lazy(own[name]) or own[name].shape != value.shape for name, value in given.items()
    ):
        return False
    with torch.no_grad():
        for name, value in given.items():
            target, wanted = own[name], value.to(own[name].device, own[name].dtype)
            if not torch.equal(target, wanted):
                part = tree.once(target)
                part.copy_(wanted[tuple(slice(size) for size in part.shape)])
    return True
