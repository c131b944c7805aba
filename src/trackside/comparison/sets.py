"""Input sets: drawn by the baseline's `inputs`, derived from earlier draws, or bent into probes.

Runs in the reference process. Seeds are secret until a set is used, and no set is used twice by one worker.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

import torch

from trackside.comparison.bending import Lines, bend, computable, filled, reals
from trackside.comparison.probe_kinds import SCALES
from trackside.workload import tree
from trackside.workload.memory import ALIGN, align

__all__ = ["Feeder", "InputSet", "alike", "structure_of"]

# Enough base draws that two derived sets hardly ever mix the same two.
_BASES = 4
_SAMPLE = 1 << 20
# How far towards the other base: enough to change nearly every value in 16 bits too, too little to change
# their kind.
_LEAST_PULL, _MOST_PULL = 2.0**-7, 2.0**-4


class InputSet:
    """One set: nested values with tensors on the device."""

    def __init__(self, value: Any) -> None:
        held: list[torch.Tensor] = []
        self.tree = tree.specify(value, held)
        self.tensors = [_materialised(tensor) for tensor in held]
        self.bent: list[int] = []
        """Tensors whose values a probe changed."""
        self.positions = [
            position
            for position, argument in enumerate(value if isinstance(value, tuple) else (value,))
            for _, leaf in tree.flatten(argument)
            if isinstance(leaf, torch.Tensor)
        ]
        """For each tensor, the position of the argument that it belongs to."""

    def rebuilt(self, tensors: list[torch.Tensor] | None = None) -> Any:
        held = self.tensors if tensors is None else tensors
        return tree.build(self.tree, lambda i: held[i])

    def specification(self, device: str) -> dict[str, Any]:
        """What a worker needs to build the same arguments over its own memory."""
        leaves, at = [], 0
        for number, tensor in enumerate(self.tensors):
            if odd := _oddity(tensor):
                raise TypeError(
                    f"input {number} is a {odd}; needed: ordinary strided tensors of numbers: let `inputs` "
                    "return what it is made of, and make it in `run`, or in `setup` if it never changes"
                )
            if tensor.device.type != torch.device(device).type:
                raise TypeError(
                    f"input {number} lies on {tensor.device}; needed: on {device}, which `inputs` is given "
                    "as `device`; what must be on the host can be a plain number, or made in `setup`"
                )
            facts = tree.facts_of("", tensor)
            leaves.append(
                {
                    **{k: facts[k] for k in ("dtype", "shape", "stride", "span")},
                    "offset": at,
                    "grad": tensor.requires_grad,
                }
            )
            at += align(facts["span"], ALIGN)
        return {"tree": self.tree, "leaves": leaves, "device": device, "bytes": at}


def _oddity(x: torch.Tensor) -> str | None:
    """What a tensor is that cannot be handed over as bytes, shape and strides; None for one that can."""
    if x.is_nested:
        return "nested tensor"
    kind = str(tree.facts_of("", x)["kind"])
    if kind != "tensor":
        return kind
    return None if _holds_numbers(x.dtype) else f"tensor of {tree.dtype_name(x.dtype)}"


@cache
def _holds_numbers(dtype: torch.dtype) -> bool:
    """Whether torch can compute with it at all; not with bits, nor with several numbers in one byte."""
    if tree.dtype_name(dtype) not in tree.DTYPES:
        return False
    try:
        torch.zeros(1, dtype=torch.uint8).to(dtype).to(torch.complex128)
    except (NotImplementedError, RuntimeError):
        return False
    return True


def _materialised(x: torch.Tensor) -> torch.Tensor:
    """The same values in memory: a worker is given bytes, and no note that they are to be conjugated."""
    if not (x.is_conj() or x.is_neg()):
        return x
    return x.detach().resolve_conj().resolve_neg().requires_grad_(x.requires_grad)


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same values, be it in different types; NaN is like NaN."""
    if one.shape != other.shape:
        return False
    a, b = computable(one.detach()), computable(other.detach())
    if a.dtype != b.dtype:
        wide = torch.complex128 if a.is_complex() or b.is_complex() else torch.float64
        a, b = a.to(wide), b.to(wide)
    if torch.equal(a, b):
        return True
    return (a.is_floating_point() or a.is_complex()) and bool(((a == b) | (a.isnan() & b.isnan())).all())


def structure_of(x: torch.Tensor) -> list[str]:
    """Structure that a careless change of values would break, seen in one float tensor."""
    if x.is_complex():
        return _complex_structure(x)
    found: list[str] = []
    # That all rows of an expanded one have one sum says nothing.
    x = tree.once(x)
    flat = x.detach().reshape(-1)[:_SAMPLE].double()
    finite = torch.isfinite(flat)
    if not bool(finite.all()):
        found.append("nonfinite")
        flat = flat[finite]
    if flat.numel() < 2:
        return [*found, "discrete"] if found else found
    if bool((flat == flat[0]).all()):
        return [*found, "discrete"] if found else ["constant"]
    # Labels, masks, places and counts are often floats, and are no others for that: 0.5 is no label.
    if bool((flat == flat.round()).all()) or bool(((flat == flat.min()) | (flat == flat.max())).all()):
        found.append("discrete")
    if float((flat == 0).double().mean()) > 0.01:
        found.append("zeros")
    rows = x.detach().double()
    if _is_square(x) and torch.equal(rows, rows.mT):
        found.append("symmetric")
    if x.ndim >= 1 and x.shape[-1] > 2:
        steps = rows.reshape(-1, x.shape[-1])[:4096].diff(dim=-1)
        if bool((steps >= 0).all()) or bool((steps <= 0).all()):
            found.append("sorted")
        if x.ndim >= 2 and x.shape[0] > 2:
            lines = rows.reshape(-1, x.shape[-1])[:4096]
            for name, norms in (("unit rows", lines.norm(dim=-1)), ("row sums", lines.sum(dim=-1))):
                centre = norms.mean()
                if float(centre.abs()) > 1e-6 and float((norms - centre).abs().max()) < 1e-3 * float(
                    centre.abs()
                ):
                    found.append(name)
    return found


def _is_square(x: torch.Tensor) -> bool:
    """Whether it is a square matrix, or a batch of such."""
    return x.ndim >= 2 and x.shape[-2] == x.shape[-1] > 1


def _complex_structure(x: torch.Tensor) -> list[str]:
    """The same in one of complex numbers, seen as pairs; of one modulus they are unit rows."""
    x = tree.once(x.detach())
    found = ["complex", *(name for name in structure_of(reals(x)) if name != "symmetric")]
    if _is_square(x) and torch.equal(x, x.mH):
        found.append("symmetric")
    moduli = x.reshape(-1)[:_SAMPLE].abs().double()
    if moduli.numel() > 1 and float((moduli - moduli[0]).abs().max()) < 1e-3 * float(moduli[0]):
        found.append("unit rows")
    return found


class Feeder:
    """Draws sets from the baseline's `inputs` and makes further ones from them."""

    def __init__(self, workload: Any, device: str) -> None:
        self._workload = workload
        self._device = device
        self._bases: list[InputSet] = []
        self._masks: dict[tuple[int, ...], torch.Tensor] = {}
        self._smooth: dict[int, bool] = {}
        """By base, whether its values may be pulled."""
        self.structure: list[list[str]] = []
        self.varies: list[bool] = []

    def draw(self, seed: int, number: int | None) -> InputSet:
        """A set of the shape of that number, timed ones before those that are only tested."""
        shape = None
        if number is not None:
            # Shapes may be anything, and come through no message as they were: a tuple, a dtype.
            shape = [*(self._workload.shapes or ()), *(self._workload.probe_shapes or ())][number]
        return InputSet(self._workload.inputs(seed, self._device, shape))

    def study(self, first: InputSet, second: InputSet) -> dict[str, Any]:
        """Look at two draws: which leaves vary, which structure they hold, whether sets can be derived."""
        self._bases = [first, second]
        self._masks, self._smooth = {}, {}
        pairs = list(zip(first.tensors, second.tensors, strict=True))
        self.varies = [not alike(a, b) for a, b in pairs]
        self.structure = [
            sorted({*structure_of(a), *structure_of(b)})
            if a.is_floating_point() or a.is_complex()
            else ["integer"]
            for a, b in pairs
        ]
        moving = [i for i, varies in enumerate(self.varies) if varies]
        derivable = bool(moving) and all(
            set(self.structure[i]) <= {"discrete"} and pairs[i][0].shape == pairs[i][1].shape for i in moving
        )
        return {"derivable": derivable}

    @property
    def first(self) -> InputSet:
        """One of the draws that were studied."""
        return self._bases[0]

    @property
    def shared(self) -> dict[int, torch.Tensor]:
        """Leaves that were the same in the two draws, which a flag or a small number can be by chance."""
        held = self._bases[0].tensors
        return {i: x for i, x in enumerate(held) if not self.varies[i] and x.numel()}

    def moved(self, made: InputSet) -> list[int]:
        """Which of those a set has otherwise."""
        return [i for i, x in self.shared.items() if not alike(x, made.tensors[i])]

    def add_base(self, made: InputSet) -> bool:
        """Keep a draw to derive from; False when there are enough."""
        if len(self._bases) < _BASES:
            self._bases.append(made)
        return len(self._bases) < _BASES

    def derive(self, seed: int) -> InputSet:
        """A full-size mix, element by element, of two base draws under a secret mask.

        Leaves of one shape share the mask, so that element-wise relations between them survive. Where any
        value will do, each element is pulled a secret little towards the other base's: it stays in a range
        that both keep to, and hardly a value returns in a later set, where a table could know it.
        """
        g = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self._bases), generator=g).tolist()
        a, b = self._bases[order[0]], self._bases[order[1]]
        made = []
        shifts: dict[tuple[int, ...], int] = {}
        pull = _LEAST_PULL + (_MOST_PULL - _LEAST_PULL) * float(torch.rand(1, generator=g))
        if order[0] not in self._smooth:
            self._smooth[order[0]] = self._continuous(a)
        pull = pull if self._smooth[order[0]] else 0.0
        for i, (x, y) in enumerate(zip(a.tensors, b.tensors, strict=True)):
            if not self.varies[i]:
                made.append(x)
                continue
            shape, needs_gradient = x.shape, x.requires_grad
            x, y = tree.once(x.detach()), tree.once(y.detach())
            mask = self._mask(tuple(x.shape))
            shift = int(torch.randint(0, max(1, mask.numel()), (1,), generator=g))
            shift = shifts.setdefault(tuple(x.shape), shift)
            rolled = torch.roll(mask.reshape(-1), shift).reshape(mask.shape)
            mixed = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
            if pull:
                # A weight of `pull` under the mask, where x prevails, and of 1 - pull elsewhere.
                weight = rolled.to(x.dtype).mul_(2 * pull - 1).add_(1 - pull)
                torch.lerp(x, y, weight, out=mixed)
            else:
                torch.where(rolled, x, y, out=mixed)
            made.append(mixed.expand(shape).requires_grad_(needs_gradient))
        return InputSet(a.rebuilt(made))

    def _continuous(self, made: InputSet) -> bool:
        """Whether what lies between two values of an input is one too, by its domain and a sample."""
        for i, x in enumerate(made.tensors):
            if not self.varies[i]:
                continue
            sample = x.detach().reshape(-1)[:_SAMPLE].float()
            if (
                x.element_size() == 1
                or self._domain(made, i) == "fixed"
                or bool((sample == sample.round()).all())
            ):
                return False
        return True

    def _domain(self, made: InputSet, leaf: int) -> str:
        domain = self._workload.domain
        kept = domain.get(made.positions[leaf], "any") if isinstance(domain, dict) else domain
        return kept or "any"

    def _mask(self, shape: tuple[int, ...]) -> torch.Tensor:
        if shape not in self._masks:
            self._masks[shape] = torch.rand(shape, device=self._device) < 0.5
        return self._masks[shape]

    def probe(self, kind: str, base: InputSet, seed: int) -> InputSet | None:
        """A set off the beaten distribution that keeps every structure seen, or None when that cannot be."""
        g = torch.Generator(self._device).manual_seed(seed)
        made: list[torch.Tensor] = []
        bent_ones: list[int] = []
        lines = Lines(g)
        for i, x in enumerate(base.tensors):
            part = reals(tree.once(x.detach()))
            bent = None
            if self._maybend(kind, base, i):
                structure, kept = self.structure[i], self._domain(base, i)
                if kind == "aligned":
                    bent = lines.align(computable(part), structure, kept)
                else:
                    bent = bend(kind, filled(part), structure, kept, g)
            if bent is None:
                made.append(x)
                continue
            bent_ones.append(i)
            whole = tree.once(x.detach())
            bent = torch.where(torch.isfinite(computable(part)), bent, computable(part))
            bent = torch.view_as_complex(bent.contiguous()) if x.is_complex() else bent
            target = torch.empty_strided(whole.shape, whole.stride(), dtype=x.dtype, device=x.device)
            made.append(target.copy_(bent).expand(x.shape).requires_grad_(x.requires_grad))
        if not bent_ones:
            return None
        probe = InputSet(base.rebuilt(made))
        probe.bent = bent_ones
        return probe

    def _maybend(self, kind: str, base: InputSet, leaf: int) -> bool:
        x, structure = base.tensors[leaf], self.structure[leaf]
        if not (x.is_floating_point() or x.is_complex()) or not x.numel() or "discrete" in structure:
            return False
        if "symmetric" in structure and x.is_complex() and kind not in SCALES:
            return False
        return self._domain(base, leaf) not in ("fixed", "unit")

    def unbent(self, bent: Collection[int]) -> list[int]:
        """Inputs of numbers that vary from draw to draw, and are not among those that were bent."""
        held = self._bases[0].tensors
        return [
            i
            for i, (x, structure) in enumerate(zip(held, self.structure, strict=True))
            if self.varies[i]
            and i not in bent
            and (x.is_floating_point() or x.is_complex())
            and x.numel()
            and "discrete" not in structure
            and self._domain(self._bases[0], i) not in ("fixed", "unit")
        ]
