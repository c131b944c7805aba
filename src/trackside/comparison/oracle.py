"""The oracle: the baseline's `reference`, else its `run`, with every float turned into float64.

Runs in the reference process, on its own copies of inputs and state.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from trackside.comparison.long_sums import summed_otherwise
from trackside.comparison.operators import (
    Arithmetic,
    is_coarse,
    is_shortened,
    makes_doubles,
    narrows,
    overflowed,
    ranks_nan,
    squares_beyond_float32,
)
from trackside.comparison.rerounding import HALF_ULP, Reround, rerounded, settled_otherwise
from trackside.comparison.ties import Order, flattened, told_apart, watched
from trackside.workload import state, tree

__all__ = ["HALF_ULP", "Answer", "Oracle"]

_SINGLE = {torch.float32, torch.complex64}
_LOW = {torch.float32, torch.float16, torch.bfloat16}
# TF32's bits: what a product of float32 is off by where it may round what it multiplies. A mean over many is
# off by far less, and the baseline's own may be so by chance.
_SHORT_MANTISSA = 10

Answer = dict[str, Any]
"""Leaf path -> tensor or plain value."""


class _Widen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Every narrower float that reaches an operator, or that one is asked to make, becomes `wide`.

    With None they stay what they are. What operators make is then rounded another way, if that is asked for.
    """

    def __init__(
        self, wide: torch.dtype | None, reround: Callable[[torch.Tensor], torch.Tensor] | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._wide = wide
        self._reround = reround
        self._low = _LOW - {wide} if wide is not None else set()
        self.drew = False
        """Whether a random operator ran: in another type it draws other numbers."""
        self.widened = False
        """Whether an operator made doubles of narrower floats: somebody wants to be more exact than those."""
        self.squared = False
        """Whether an operator squared what has no square in float32, and took the root again; or a derivative
        went through exponentials of numbers that float32 has no fractions of."""
        self._coarse = False
        self.ranked_nan = False
        """Whether an operator put numbers in order of which some were none."""
        self.flattened: int | None = None
        """How many numbers an operator made 0, 1 or -1 in float32 that were none; None: not counted."""
        self.order: Order | None = None
        """In which order numbers come that an operator made equal; None: they are equal."""
        self.overflowed: bool | None = None
        """Whether a product or a sum of numbers was too large for its type; None: nobody asks."""
        self.arithmetic: Arithmetic | None = None
        """What operators have computed so far; None: nobody asks."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # The default wraps the method so that its first call imports torch._dynamo: 3 to 6 s for nothing.
        return False

    def _widen(self, value: Any) -> Any:
        if self._wide is None:
            return value
        if isinstance(value, torch.Tensor):
            if value.dtype in self._low:
                return value.to(self._wide)
            return value.to(torch.complex128) if value.dtype == torch.complex64 else value
        if isinstance(value, torch.dtype) and value in self._low:
            return self._wide
        return torch.complex128 if value is torch.complex64 else value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        wide, named = tree_map(self._widen, args), tree_map(self._widen, kwargs or {})
        self.widened = self.widened or (self._wide is None and makes_doubles(func, args, kwargs or {}))
        self.squared = self.squared or squares_beyond_float32(func, args)
        self._coarse = self._coarse or is_coarse(func, args)
        self.ranked_nan = self.ranked_nan or ranks_nan(func, args)
        if self.arithmetic is not None:
            self.arithmetic = self.arithmetic.with_call(func, args, kwargs or {})
        if func is torch.ops.aten._softmax_backward_data.default:
            self.squared = self.squared or self._coarse
        if self.drew or torch.Tag.nondeterministic_seeded not in func.tags:
            # What goes in is gone where operators work in place.
            given = wide[0].clone() if self.order is not None and watched(func) else None
            made = func(*wide, **named)
            if given is not None and self.order is not None and made.is_floating_point():
                apart = told_apart(func, given, made, self.order)
                made = made.copy_(apart) if made is wide[0] else apart
            if self.flattened is not None:
                self.flattened += flattened(func, wide, made)
            if self.overflowed is False:
                self.overflowed = overflowed(func, wide, made)
            return self._rounded(func, wide, made)
        # The tag says that it may draw; attention without dropout bears it and does not.
        before = _random_states()
        made = func(*wide, **named)
        own = any(isinstance(v, torch.Generator) for v in (*args, *(kwargs or {}).values()))
        self.drew = own or any(not torch.equal(a, b) for a, b in zip(before, _random_states(), strict=True))
        return self._rounded(func, wide, made)

    def _rounded(self, func: Any, args: Any, made: Any) -> Any:
        """What an operator made, rounded another way where that is asked for."""
        if self._reround is None or not hasattr(func, "_schema"):
            return made
        if self._wide is None and (
            torch.Tag.nondeterministic_seeded in func.tags or narrows(func, args, made)
        ):
            # What is drawn is not rounded, and a cast rounds what has been moved.
            return made
        values = made if isinstance(made, tuple) else (made,)
        reround = self._reround
        if self._wide is None and isinstance(reround, Reround) and is_shortened(func, args):
            reround = replace(reround, coarsest=min(reround.coarsest, _SHORT_MANTISSA))
        rounded = tuple(
            self._rounded_one(value, returned.alias_info, reround)
            for value, returned in zip(values, func._schema.returns, strict=False)
        )
        if isinstance(self._reround, Reround):
            rounded = tuple(settled_otherwise(func, args, one, self._reround) for one in rounded)
            rounded = summed_otherwise(func, args, rounded, self._reround)
        return rounded if isinstance(made, tuple) else rounded[0] if rounded else made

    def _rounded_one(self, value: Any, alias: Any, reround: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        if isinstance(value, list):
            return [self._rounded_one(one, alias, reround) for one in value]
        if (
            not isinstance(value, torch.Tensor)
            or value.dtype not in ((torch.float64, torch.complex128) if self._wide is not None else HALF_ULP)
            or (alias is not None and not alias.is_write)
        ):
            return value
        rounded = reround(value)
        return rounded if alias is None else value.copy_(rounded)


def _random_states() -> list[torch.Tensor]:
    generators = [torch.default_generator]
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        generators.append(torch.cuda.default_generators[torch.cuda.current_device()])
    return [generator.get_state() for generator in generators]


class Oracle:
    """Computes what the outputs should be, and says in which precision it could."""

    def __init__(self, workload: Any, device: str) -> None:
        self._workload = workload
        self.device = device
        self._state: Any = None
        self._remake: Callable[[], Any] = lambda: None
        self._wide_state: Any = None
        self.precision: torch.dtype | None = torch.float64
        self.kind = "reference in float64" if workload.reference is not None else "run in float64"
        self._reround: Callable[[torch.Tensor], torch.Tensor] | None = None
        self._as_run = False
        self._movable: set[torch.dtype] = set()
        self.drew = False
        self._flattened: int | None = None
        self._order: Order | None = None
        self._overflowed: bool | None = None
        self._arithmetic: Arithmetic | None = None
        self.widened = self.squared = self.ranked_nan = False
        self.changed_inputs: list[int] = []
        self.changed_state: list[str] = []

    def set_state(self, made: Any, remake: Callable[[], Any] = lambda: None) -> None:
        """Compute on copies of this state; `remake` makes another like it, for what cannot be copied."""
        self._state, self._remake = made, remake
        self._wide_state = None

    def state_changed(self) -> None:
        """Look anew at the state, which somebody has written into."""
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
        state.seed(state.generators(held), seed)
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
            now = state.leaves(held)
            found.update({f"state:{path}": now[path] for path in self.changed_state if path in now})
        return {
            # Where copies of outputs lie too, whatever device the baseline returns its on.
            path: v.detach().to(self.device) if isinstance(v, torch.Tensor) else v
            for path, v in found.items()
        }

    def _call(self, held: Any, inputs: Any) -> tuple[Any, list[torch.Tensor]]:
        """What comes out, and the widened inputs that went in."""
        tensors: list[torch.Tensor] = []
        spec = tree.specify(inputs, tensors)
        wide = [self._widened(t) for t in tensors]
        reference = None if self._as_run else self._workload.reference
        call = reference or self._workload.call
        before = torch.get_default_dtype()
        try:
            watched = self._reround, self._overflowed, self._arithmetic
            if self.precision is None and all(one is None for one in watched):
                return call(held, tree.build(spec, lambda i: wide[i])), wide
            torch.set_default_dtype(self.precision or before)
            with _Widen(self.precision, self._reround) as mode:
                mode.flattened, mode.overflowed = self._flattened, self._overflowed
                mode.arithmetic, mode.order = self._arithmetic, self._order
                output = call(held, tree.build(spec, lambda i: wide[i]))
            self._flattened, self._overflowed = mode.flattened, mode.overflowed
            self._arithmetic = mode.arithmetic
            self.drew = self.drew or mode.drew
            self.widened, self.squared = self.widened or mode.widened, self.squared or mode.squared
            self.ranked_nan = self.ranked_nan or mode.ranked_nan
            return output, wide
        finally:
            torch.set_default_dtype(before)

    def flattened(self, inputs: Any, seed: int, earlier: Sequence[Any] = ()) -> int:
        """How many numbers exponentials and the like make equal in float32: orders end there in ties.

        0 where no operator can be watched.
        """
        self._flattened = 0
        try:
            self.answer(inputs, seed, earlier)
            return self._flattened or 0
        finally:
            self._flattened = None

    def answer_ordered(self, inputs: Any, seed: int, earlier: Sequence[Any], order: Order) -> Answer:
        """The answer where what exponentials and the like make equal comes in some order all the same."""
        self._order = order
        try:
            return self.answer(inputs, seed, earlier)
        finally:
            self._order = None

    def overflows(self, inputs: Any, seed: int, earlier: Sequence[Any] = ()) -> bool:
        """Whether a product or a sum of `run` is too large for its own type, whatever comes of that later.

        exp(-x**2) is 0 beyond, by luck: other code for the square, just as good, has infinity less infinity.
        False where `run` cannot be watched.
        """
        self._overflowed = False
        try:
            self.answer_as_run(inputs, seed, earlier)
            return bool(self._overflowed)
        except Exception:
            # What stands for it, a `reference`, need not be stopped by that: the probe counts.
            return False
        finally:
            self._overflowed = None

    def arithmetic(self, inputs: Any, seed: int, earlier: Sequence[Any] = ()) -> Arithmetic | None:
        """What `run` computes in, in its own types; None where it cannot be watched."""
        self._arithmetic = Arithmetic()
        try:
            self.answer_as_run(inputs, seed, earlier)
            return self._arithmetic
        except Exception:
            return None
        finally:
            self._arithmetic = None

    def answer_beside(
        self,
        inputs: Any,
        seed: int,
        earlier: Sequence[Any],
        scale: Callable[[torch.dtype], float],
        generator: torch.Generator,
    ) -> Answer:
        """The answer on inputs whose floats are moved at random, relatively, by up to their type's `scale`.

        Where no input is a float (tokens, say), those of the state are moved.
        """
        tensors: list[torch.Tensor] = []
        tree.specify(inputs, tensors)

        def move(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
            moved = _moved(tensor.detach(), scale(dtype), generator)
            if self.precision is None:
                return moved.to(tensor.dtype)
            return moved if moved.is_complex() else moved.to(self.precision)

        if any(t.dtype in HALF_ULP for t in tensors):
            return self.answer(
                tree_map(
                    lambda v: (
                        move(v, v.dtype).requires_grad_(v.requires_grad)
                        if isinstance(v, torch.Tensor) and v.dtype in HALF_ULP
                        else v
                    ),
                    inputs,
                ),
                seed,
                earlier,
            )
        self._fresh_state()
        kept, given = self._wide_state, state.walk(self._state)
        self._wide_state = self._copied(kept)
        for path, tensor in state.walk(self._wide_state).items():
            if tensor.dtype in HALF_ULP:
                tensor.data = move(tensor, given.get(path, tensor).dtype)
        try:
            return self.answer(inputs, seed, earlier)
        finally:
            self._wide_state = kept

    def answer_rerounded(
        self, inputs: Any, seed: int, earlier: Sequence[Any], times: float, generator: torch.Generator
    ) -> Answer:
        """The answer with every float64 on the way off by one unit in the last place, or so many `times` it.

        What an honest double may be off by where no input is a float that could be moved.
        """
        salt = int(torch.randint(1 << 62, (1,), generator=generator, device=generator.device))
        bits = 1 + max(0, round(math.log2(times)))
        self._reround = lambda value: rerounded(value, bits, salt)
        try:
            return self.answer(inputs, seed, earlier)
        finally:
            self._reround = None

    def answer_as_run(
        self,
        inputs: Any,
        seed: int,
        earlier: Sequence[Any],
        times: float = 0,
        generator: torch.Generator | None = None,
        output: torch.dtype | None = None,
    ) -> Answer:
        """What `run` itself answers, in its own types.

        With `times`, what other code in the same types may make of it: every result on the way is off by a
        unit in its type's last place now and then, or by so many `times` it. Inputs and state of 16-bit types
        are exact, since what is computed from them may well be wider; wider ones are moved like results. If
        an `output` of some type is asked about, that may be a result's type on the way too where it is
        narrower; and where it is a double, all inputs but doubles are exact.
        """
        kept = self.precision, self._wide_state
        self.precision, self._wide_state, self._as_run = None, None, True
        doubles = {torch.float64, torch.complex128}
        self._movable = doubles if output in doubles else doubles | _SINGLE
        if generator is not None:
            salt = int(torch.randint(1 << 62, (1,), generator=generator, device=generator.device))
            coarsest = -round(math.log2(torch.finfo(output or torch.float64).eps))
            more = max(0, round(math.log2(times)))
            self._reround = Reround(coarsest, more, salt)
        try:
            return self.answer(inputs, seed, earlier)
        finally:
            (self.precision, self._wide_state), self._as_run, self._reround = kept, False, None

    def ulp(self, tensors: Iterable[torch.Tensor]) -> float:
        """The widest relative step among the floats that `answer_beside` moves; 0 if there are none."""
        for found in (tensors, state.walk(self._state).values()):
            steps = [2 * HALF_ULP[t.dtype] for t in found if t.dtype in HALF_ULP]
            if steps:
                return max(steps)
        return 0.0

    def _widened(self, tensor: torch.Tensor) -> torch.Tensor:
        copied = tensor.detach().clone()
        if self.precision is not None and copied.dtype in _LOW:
            copied = copied.to(self.precision)
        elif self._moves(copied):
            copied = self._reround(copied)  # type: ignore[misc]
        return copied.requires_grad_(tensor.requires_grad)

    def _fresh_state(self) -> Any:
        if self._wide_state is None:
            held = self._copied(self._state)
            tensors = state.walk(held)
            if self.precision is not None:
                _widen_together({p: t for p, t in tensors.items() if t.dtype in _LOW}, self.precision)
            for tensor in tensors.values():
                if self._moves(tensor):
                    tensor.data = self._reround(tensor.data)  # type: ignore[misc]
            self._wide_state = held
        # Copied only when calls change it: a copy per call of a large model would dominate.
        return self._copied(self._wide_state) if self.changed_state else self._wide_state

    def _copied(self, held: Any) -> Any:
        try:
            made = copy.deepcopy(held)
        except Exception:
            # Locks, compiled modules, weights that are computed: one that is made again takes the values.
            values, made = state.walk(held), self._remake()
            others = state.walk(made)
            if {p: t.shape for p, t in values.items()} != {p: t.shape for p, t in others.items()}:
                raise
            for path, tensor in others.items():
                tensor.data = values[path].detach().clone()
        _share_alike(state.walk(held), state.walk(made))
        return made

    def _moves(self, tensor: torch.Tensor) -> bool:
        """Whether what goes in is rounded another way too."""
        return self.precision is None and self._reround is not None and tensor.dtype in self._movable


def _widen_together(tensors: Mapping[str, torch.Tensor], precision: torch.dtype) -> None:
    """Widen tensors in place; those that share memory, such as views of one flat buffer, go on sharing it."""
    for paths in _sharing(tensors):
        one = tensors[paths[0]].data
        if len(paths) == 1:
            tensors[paths[0]].data = one.to(precision)
        else:
            _put_into({p: tensors[p] for p in paths}, tensors, _whole(one).to(precision))


def _share_alike(originals: Mapping[str, torch.Tensor], copies: Mapping[str, torch.Tensor]) -> None:
    """Let copies share memory as the originals do: a copy of a parameter has memory of its own."""
    for paths in _sharing(originals):
        made = {path: copies[path] for path in paths if path in copies}
        if len({_memory_of(tensor) for tensor in made.values()}) > 1:
            _put_into(made, originals, _whole(originals[paths[0]].data).clone())


def _sharing(tensors: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Paths of tensors of one type that lie in the same memory; most lie alone."""
    found: dict[Any, list[str]] = {}
    for path, tensor in tensors.items():
        found.setdefault((_memory_of(tensor) or path, tensor.dtype), []).append(path)
    return list(found.values())


def _memory_of(tensor: torch.Tensor) -> int:
    """Where a tensor's memory begins; 0 for one without any of its own: a packed one, a wrapper of others."""
    try:
        return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided and tensor.numel() else 0
    except (RuntimeError, NotImplementedError):
        return 0


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """All of the memory in which a tensor lies, as one flat tensor of its type."""
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())


def _put_into(
    tensors: Mapping[str, torch.Tensor], places: Mapping[str, torch.Tensor], whole: torch.Tensor
) -> None:
    for path, tensor in tensors.items():
        place = places[path]
        tensor.data = whole.as_strided(place.shape, place.stride(), place.storage_offset())


def _moved(tensor: torch.Tensor, scale: float, generator: torch.Generator) -> torch.Tensor:
    wide = torch.view_as_real(tensor.to(torch.complex128).resolve_conj()) if tensor.is_complex() else tensor
    wide = wide.double()
    noise = torch.rand(wide.shape, generator=generator, dtype=torch.float64, device=wide.device)
    moved = wide * (1 + scale * (2 * noise - 1))
    return torch.view_as_complex(moved) if tensor.is_complex() else moved
