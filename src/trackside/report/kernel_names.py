"""Names of kernels as a person tells them apart: C++ templates begin alike and differ in their midst."""

from __future__ import annotations

import re

__all__ = ["short_kernel"]

_ARGUMENTS = re.compile(r"\([^()]*\)")
_NAME = re.compile(r"(?<!\w)[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")
# What only wraps the function that a kernel applies, or says how it reads and writes.
_WRAPPERS = frozenset(
    [
        *("ReduceOp", "func_wrapper_t", "gpu_kernel_impl", "gpu_kernel_impl_nocast", "BinaryFunctor"),
        *("AUnaryFunctor", "BUnaryFunctor", "OpaqueType", "TrivialOffsetCalculator", "OffsetCalculator"),
    ]
)
_PLAIN = frozenset(
    [
        *("bool", "char", "const", "double", "false", "float", "int", "lambda", "long", "operator", "short"),
        *("signed", "true", "unsigned"),
    ]
)
# Before the name of each derivative that autograd's engine computes.
_ENGINE = "autograd::engine::evaluate_function: "
_LIBRARIES = ("std::", "cuda::", "c10::", "at::native::memory::")


def short_kernel(name: str) -> str:
    """`reduce_kernel<MeanOps>` for what takes three hundred signs in full; other names stay as they are.

    An operator of autograd's engine is the derivative that it computes: `AddmmBackward0`.
    """
    name = name.removeprefix(_ENGINE).removeprefix("torch::autograd::")
    if "<" not in name or not name.startswith(("void ", "at::", "cutlass::")):
        return name
    text = name.removeprefix("void ").replace("(anonymous namespace)::", "")
    while (plainer := _ARGUMENTS.sub("", text)) != text:
        text = plainer
    function, _, templates = text.partition("<")
    applied = (
        one.rpartition("::")[2]
        for one in _NAME.findall(templates)
        if not one.startswith(_LIBRARIES) and one not in _PLAIN
    )
    inner = next((one for one in applied if one not in _WRAPPERS and not one.endswith("_t")), None)
    function = function.rpartition("::")[2].strip()
    return f"{function}<{inner}>" if inner else function
