"""Stands in for the `utils` module that GPU MODE tasks share: seeds, deterministic contexts, comparisons."""

import os
import random
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch

__all__ = [
    "DeterministicContext",
    "DisableCuDNNTF32",
    "clear_l2_cache",
    "get_device",
    "make_match_reference",
    "match_reference",
    "set_seed",
    "verbose_allclose",
    "verbose_allequal",
]

_Report = list[str]


def set_seed(seed: int = 42) -> None:
    random.seed(seed)
    torch.manual_seed(seed)


def get_device(use_cuda: bool = True) -> torch.device:
    return torch.device("cuda" if use_cuda and torch.cuda.is_available() else "cpu")


class DisableCuDNNTF32:
    """Convolutions in full precision and deterministic, until the block ends."""

    def __init__(self) -> None:
        self._before: tuple[bool, bool] = (False, False)

    def __enter__(self) -> "DisableCuDNNTF32":
        cudnn = torch.backends.cudnn
        self._before = (cudnn.allow_tf32, cudnn.deterministic)
        cudnn.allow_tf32, cudnn.deterministic = False, True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = self._before


class DeterministicContext(DisableCuDNNTF32):
    """The same, with every operation deterministic. Unlike the original it leaves the process as it was."""

    def __init__(self) -> None:
        super().__init__()
        self._modes: tuple[bool, bool] = (False, False)
        self._workspace: str | None = None

    def __enter__(self) -> "DeterministicContext":
        super().__enter__()
        self._modes = (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )
        self._workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
        # cuBLAS refuses deterministic mode without a fixed workspace; this is the size its manual names.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        torch.use_deterministic_algorithms(self._modes[0], warn_only=self._modes[1])
        if self._workspace is None:
            os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
        super().__exit__(kind, error, trace)


def verbose_allclose(
    received: torch.Tensor, expected: torch.Tensor, rtol: float = 1e-5, atol: float = 1e-8, max_print: int = 5
) -> _Report:
    """Where two tensors differ by more than the tolerance; empty when nowhere."""
    if received.shape != expected.shape:
        return [f"shape {tuple(received.shape)} instead of {tuple(expected.shape)}"]
    close = torch.isclose(received.to(expected.dtype), expected, rtol=rtol, atol=atol, equal_nan=True)
    return _differences(~close, received, expected, max_print)


def verbose_allequal(received: torch.Tensor, expected: torch.Tensor, max_print: int = 5) -> _Report:
    """Where two tensors differ at all; empty when nowhere."""
    if received.shape != expected.shape:
        return [f"shape {tuple(received.shape)} instead of {tuple(expected.shape)}"]
    return _differences(received != expected, received, expected, max_print)


def _differences(
    wrong: torch.Tensor, received: torch.Tensor, expected: torch.Tensor, max_print: int
) -> _Report:
    places = wrong.nonzero()
    report = [f"{len(places)} elements differ"] if len(places) else []
    for place in places[:max_print].tolist():
        at = tuple(place)
        report.append(f"at {at}: {received[at].item()} instead of {expected[at].item()}")
    return report


def match_reference(
    data: Any,
    output: torch.Tensor,
    reference: Callable[[Any], torch.Tensor],
    rtol: float = 1e-5,
    atol: float = 1e-8,
) -> tuple[bool, str]:
    report = verbose_allclose(output, reference(data), rtol=rtol, atol=atol)
    return not report, "; ".join(report)


def make_match_reference(
    reference: Callable[[Any], torch.Tensor], **kwargs: Any
) -> Callable[..., tuple[bool, str]]:
    def check(data: Any, output: torch.Tensor) -> tuple[bool, str]:
        return match_reference(data, output, reference=reference, **kwargs)

    return check


def clear_l2_cache() -> None:
    """Nothing: the flush belongs to the one who measures."""
