"""How a probe bends one tensor of inputs, with every structure that was seen in it kept.

Runs in the reference process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from trackside.comparison.probe_kinds import SCALES

__all__ = ["Lines", "bend", "computable", "filled", "reals"]

# Times the other elements: so much shows in most sums, and leaves squares of 16 bits finite.
_OUTLIER = 2.0**10
# Of so many places one is chosen for that, which a copy of a large tensor's places would not be worth.
_TRIED_PLACES = 4096
# Rows of which the largest values take most: so far apart that a chain of such moves mixes slowly, and what
# is left still has a logarithm in float32.
_PEAK = 8
# How much of a line is another's that it is laid beside: near enough to be taken for it, and far enough that
# their difference is no matter of rounding.
_ALIGNED, _OWN = 0.97, 0.24
# One term among millions must outweigh rounding; of 16 bits no more than the other fits.
_END = 2.0**14


def reals(x: torch.Tensor) -> torch.Tensor:
    """Complex numbers as pairs."""
    return torch.view_as_real(x.resolve_conj()) if x.is_complex() else x


def computable(x: torch.Tensor) -> torch.Tensor:
    """Floats of one byte as float32: hardly any operator takes them."""
    return x.float() if x.is_floating_point() and x.element_size() == 1 else x


def filled(x: torch.Tensor) -> torch.Tensor:
    """Zeros for what is not finite: none of them is bent, and what they were is put back."""
    wide = computable(x)
    return torch.where(torch.isfinite(wide), x, torch.zeros((), dtype=x.dtype, device=x.device))


@dataclass
class _Source:
    place: tuple[int, ...]
    line: torch.Tensor
    met: int = 0
    """Further tensors that got it at the same place."""


class Lines:
    """Lines of the last dimension laid beside each other, within a tensor and from one to the next.

    Drawn vectors are hardly ever near each other: who drops what happens to those that are, is right.
    """

    def __init__(self, g: torch.Generator) -> None:
        self._g = g
        self._sources: dict[int, _Source] = {}

    def align(self, x: torch.Tensor, structure: list[str], domain: str) -> torch.Tensor | None:
        """Secret lines made nearly parallel to another, and nearly opposite where that may be.

        In the next tensors of that width also the line of the same place, in turns the one and the other:
        what belongs together lies there.
        """
        kept = ("sorted", "symmetric", "zeros", "constant", "nonfinite", "complex")
        if x.ndim < 2 or x.shape[-1] < 3 or x.shape[-2] < 3 or any(s in structure for s in kept):
            return None
        width, lines = x.shape[-1], x.shape[-2]
        signed = "row sums" not in structure and domain not in ("positive", "nonnegative")
        opposite = -1 if signed and bool((x < 0).any()) else 1
        first = width not in self._sources
        if first:
            place = tuple(self._below(size) for size in x.shape[:-1])
            self._sources[width] = _Source(place, x[place].clone())
        source = self._sources[width]
        *around, at = source.place
        if not _inside(around, x.shape[:-2]):
            around = [self._below(size) for size in x.shape[:-2]]
        others = [n for n in range(lines) if n != at]
        places = [others.pop(self._below(len(others))) for _ in range(2)]
        signs = [1, opposite]
        if not first and at < lines:
            source.met += 1
            places.append(at)
            signs.append(1 if source.met % 2 else opposite)
        bent = x.clone(memory_format=torch.contiguous_format)
        for number, sign in zip(places, signs, strict=True):
            line = bent[(*around, number)]
            line.copy_(_beside(source.line, line, sign, "row sums" in structure))
        return bent

    def _below(self, size: int) -> int:
        return int(torch.randint(0, size, (), generator=self._g, device=self._g.device))


def _inside(place: Sequence[int], shape: torch.Size) -> bool:
    return len(place) == len(shape) and all(n < size for n, size in zip(place, shape, strict=True))


def _beside(source: torch.Tensor, own: torch.Tensor, sign: int, keeps_sum: bool) -> torch.Tensor:
    """A line mostly of the source's direction, as long as it was itself, or of the same sum."""
    if keeps_sum:
        alike: torch.Tensor = source * (own.sum() / source.sum())
        return torch.lerp(own, alike, _ALIGNED)
    wide = torch.float64 if own.dtype == torch.float64 else torch.float32
    one, other = source.to(wide), own.to(wide)
    length = other.norm()
    mixed = sign * _ALIGNED * one / one.norm().clamp_min(1e-30) + _OWN * other / length.clamp_min(1e-30)
    made: torch.Tensor = mixed * (length / mixed.norm().clamp_min(1e-30))
    return made.to(own.dtype)


def bend(
    kind: str, part: torch.Tensor, structure: list[str], domain: str, g: torch.Generator
) -> torch.Tensor | None:
    x = computable(part)
    rigid = any(s in structure for s in ("row sums", "sorted"))
    if kind == "in-order":
        if any(s in structure for s in ("sorted", "symmetric", "zeros", "nonfinite")):
            return None
        # Rows keep their norms and sums whatever the order of their elements; columns need not.
        rows_only = any(s in structure for s in ("row sums", "unit rows"))
        return _in_order(x, g.initial_seed(), (x.ndim - 1,) if rows_only else range(x.ndim))
    if kind == "signs":
        if domain in ("positive", "nonnegative") or rigid:
            return None
        if "symmetric" in structure:
            drawn = torch.rand(x.shape[:-1], generator=g, device=x.device)
            row = torch.where(drawn < 0.5, -1.0, 1.0).to(x.dtype)
            return x * row[..., :, None] * row[..., None, :]
        return torch.where(torch.rand(x.shape, generator=g, device=x.device) < 0.5, -x, x)
    if kind == "negative":
        # Who pads with zeros, or starts a maximum there, is right for rows with a positive value only.
        if domain in ("positive", "nonnegative") or rigid or "symmetric" in structure:
            return None
        return -x.abs()
    if kind == "peaked":
        return _peaked(x, structure)
    if kind in SCALES:
        if "unit rows" in structure or "row sums" in structure:
            return None
        return x * SCALES[kind]
    if rigid or any(s in structure for s in ("unit rows", "symmetric")):
        return None
    if kind == "mixed-scales":
        exponents = torch.randint(-4, 4, x.shape, generator=g, device=x.device)
        return torch.ldexp(x, exponents)
    if kind == "one-element":
        return _with_outliers(x, g, positive=True, negative=bool((x < 0).any()))
    if kind == "one-negative":
        # Where any are, the probe before has one too.
        signed = domain in ("positive", "nonnegative") or bool((x < 0).any())
        return None if signed else _with_outliers(x, g, positive=False, negative=True)
    if kind == "ends":
        return _with_ends(x, _END if part.itemsize > 2 else _OUTLIER)
    if kind == "zeros":
        return None if domain == "positive" or "zeros" in structure else _with_zeros(x, g)
    raise ValueError(kind)


def _peaked(x: torch.Tensor, structure: list[str]) -> torch.Tensor | None:
    """Rows of one sum or norm in which few values take nearly all: sure guesses, chains that mix slowly."""
    sums = "row sums" in structure
    if "unit rows" not in structure and not (sums and bool((x >= 0).all())):
        return None
    wide = x.double()
    most = wide.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    bent = (wide / most).abs().pow(_PEAK).mul(wide.sign())
    order = 1 if sums else 2
    before, after = (torch.linalg.vector_norm(v, order, dim=-1, keepdim=True) for v in (wide, bent))
    bent *= before / after.clamp_min(torch.finfo(torch.float64).tiny)
    return bent.to(x.dtype)


def _with_outliers(
    x: torch.Tensor, g: torch.Generator, *, positive: bool, negative: bool
) -> torch.Tensor | None:
    """One secret element made large, or one of each sign: who looks at a part of x takes it for any other.

    None of the first or last line, which most would look at and `ends` bends; and no small one, whose
    multiple is an ordinary value.
    """
    bent = x.clone(memory_format=torch.contiguous_format).reshape(-1)
    places = _telling_places(bent, x.shape, g)
    if not places.numel():
        return None
    for sign in (-1,) * negative + (1,) * positive:
        at = places[torch.randint(0, places.numel(), (1,), generator=g, device=x.device)]
        bent[at] = sign * _OUTLIER * bent[at].abs()
    return bent.reshape(x.shape)


def _telling_places(flat: torch.Tensor, shape: torch.Size, g: torch.Generator) -> torch.Tensor:
    """Where values lie that are no smaller than most, of a sample; off the ends of the first dimension."""
    places = torch.randint(0, flat.numel(), (_TRIED_PLACES,), generator=g, device=flat.device)
    places = places[flat[places] != 0]
    if not places.numel():
        # So few are not zero that none was met.
        places = torch.nonzero(flat).reshape(-1)
    if places.numel():
        sizes = flat[places].abs().float()
        places = places[sizes >= sizes.median()]
    line = flat.numel() // shape[0] if len(shape) else 1
    inside = (places >= line) & (places < flat.numel() - line)
    return places[inside] if bool(inside.any()) else places


def _with_ends(x: torch.Tensor, factor: float) -> torch.Tensor | None:
    """The first and the last elements made the largest: what code for whole tiles forgets, shows.

    Where there are negative values the last but one is the smallest.
    """
    places = torch.nonzero(x.reshape(-1)).reshape(-1)
    if places.numel() < 3:
        return None
    bent = x.clone(memory_format=torch.contiguous_format).reshape(-1)
    most = factor * x.abs().max()
    bent[places[0]], bent[places[-1]] = most, 2 * most
    if bool((x < 0).any()):
        bent[places[-2]] = -4 * most
    return bent.reshape(x.shape)


def _in_order(x: torch.Tensor, seed: int, dims: Iterable[int]) -> torch.Tensor | None:
    """A secret line of each dimension sorted: its large values lie together, where draws scatter them.

    Who keeps the best few of every chunk, or judges a line by a part of it, is right for scattered ones only.
    All else stays as drawn, and so do the norms of most rows and columns. Tensors of one shape have the same
    lines sorted the same way, so that a lower bound stays below an upper one.
    """
    g = torch.Generator(x.device).manual_seed(seed)
    falling = bool(torch.rand((), generator=g, device=x.device) < 0.5)
    bent = x.clone(memory_format=torch.contiguous_format)
    for dim in dims:
        line = bent.movedim(dim, -1)
        for size in line.shape[:-1]:
            line = line[int(torch.randint(0, size, (), generator=g, device=x.device))]
        line.copy_(line.sort(descending=falling).values)
    return None if torch.equal(bent, x) else bent


def _with_zeros(x: torch.Tensor, g: torch.Generator) -> torch.Tensor | None:
    """A secret place of the first dimension and one of the last made zero: norms are zero there."""
    bent, changed = x.clone(memory_format=torch.contiguous_format), False
    for dim in {0, x.ndim - 1} if x.ndim else ():
        if x.shape[dim] > 1:
            place = int(torch.randint(0, x.shape[dim], (1,), generator=g, device=x.device))
            changed = changed or bool(bent.select(dim, place).any())
            bent.select(dim, place).zero_()
    return bent if changed else None
