"""The oracle: the baseline's `reference`, else its `run`, with every float turned into float64.

Runs in the reference process, on its own copies of inputs and state.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from trackside.workload import state, tree

__all__ = ["Answer", "Oracle", "jittered"]

_LOW = {torch.float32, torch.float16, torch.bfloat16}

Answer = dict[str, Any]
"""Leaf path -> tensor or plain value."""


class _Widen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every narrower float that reaches an operator, or that one is asked to make, becomes `wide`."""

    def __init__(self, wide: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._wide = wide
        self._low = _LOW - {wide}
        self.drew = False
        """Whether a random operator ran: in another type it draws other numbers."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default wraps the method so that its first call imports torch._dynamo: 3 to 6 s for nothing.
        return False

    def _widen(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.dtype in self._low:
                return value.to(self._wide)
            return value.to(torch.complex128) if value.dtype == torch.complex64 else value
        if isinstance(value, torch.dtype) and value in self._low:
            return self._wide
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drew = self.drew or torch.Tag.nondeterministic_seeded in func.tags
        return func(*tree_map(self._widen, args), **tree_map(self._widen, kwargs or {}))


class Oracle:
    """Computes what the outputs should be, and says in which precision it could."""

    def __init__(self, workload: Any, device: str) -> None:
        self._workload = workload
        self._device = device
        self._state: Any = None
        self._wide_state: Any = None
        self.precision: torch.dtype | None = torch.float64
        self.kind = "reference in float64" if workload.reference is not None else "run in float64"
        self.drew = False
        self.changed_inputs: list[int] = []
        self.changed_state: list[str] = []

    def set_state(self, made: Any) -> None:
        self._state = made
        self._wide_state = None

    def use_precision(self, precision: torch.dtype | None) -> None:
        """Compute in `precision` from now on; None means the baseline's own arithmetic."""
        self.precision = precision
        self._wide_state = None
        what = "reference" if self._workload.reference is not None else "run"
        self.kind = f"{what} in {tree.dtype_name(precision)}" if precision is not None else f"{what} as it is"

    def answer(self, inputs: Any, seed: int, earlier: Sequence[Any] = ()) -> Answer:
        """Outputs, and whatever else the baseline changes, for one set of inputs.

        Calls on `earlier` sets go before, on the same state, with nothing seeded in between.
        """
        held = self._fresh_state()
        torch.manual_seed(seed)
        for one in earlier:
            self._call(held, one)
        output, wide = self._call(held, inputs)
        found: Answer = dict(tree.flatten(output, "out"))
        for i in self.changed_inputs:
            found[f"in:{i}"] = wide[i]
        for i, tensor in enumerate(wide):
            if tensor.requires_grad and tensor.grad is not None:
                found[f"in:{i}.grad"] = tensor.grad
        if self.changed_state:
            now = state.walk(held)
            found.update({f"state:{path}": now[path] for path in self.changed_state if path in now})
        return {path: v.detach() if isinstance(v, torch.Tensor) else v for path, v in found.items()}

    def _call(self, held: Any, inputs: Any) -> tuple[Any, list[torch.Tensor]]:
        """What comes out, and the widened inputs that went in."""
        tensors: list[torch.Tensor] = []
        spec = tree.specify(inputs, tensors)
        wide = [self._widened(t) for t in tensors]
        call = self._workload.reference or self._workload.call
        before = torch.get_default_dtype()
        try:
            if self.precision is None:
                return call(held, tree.build(spec, lambda i: wide[i])), wide
            torch.set_default_dtype(self.precision)
            with _Widen(self.precision) as mode:
                output = call(held, tree.build(spec, lambda i: wide[i]))
            self.drew = self.drew or mode.drew
            return output, wide
        finally:
            torch.set_default_dtype(before)

    def _widened(self, tensor: torch.Tensor) -> torch.Tensor:
        copied = tensor.detach().clone()
        if self.precision is not None and copied.dtype in _LOW:
            copied = copied.to(self.precision)
        return copied.requires_grad_(tensor.requires_grad)

    def _fresh_state(self) -> Any:
        if self._wide_state is None:
            held = copy.deepcopy(self._state)
            if self.precision is not None:
                for tensor in state.walk(held).values():
                    if tensor.dtype in _LOW:
                        tensor.data = tensor.data.to(self.precision)
            self._wide_state = held
        # Copied only when calls change it: a copy per call of a large model would dominate.
        return copy.deepcopy(self._wide_state) if self.changed_state else self._wide_state


def jittered(inputs: Any, scale: float, generator: torch.Generator) -> Any:
    """Inputs with every float moved by a random relative amount up to `scale`, in float64."""

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            wide = value.detach().double()
            noise = torch.rand(wide.shape, generator=generator, dtype=torch.float64, device=wide.device)
            return (wide * (1 + scale * (2 * noise - 1))).requires_grad_(value.requires_grad)
        return value

    return tree_map(move, inputs)
