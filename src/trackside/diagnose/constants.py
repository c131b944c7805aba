"""What of a program's source is computed from numbers and sizes alone: it could be computed once."""

from __future__ import annotations

import ast

from trackside.diagnose.source import Source
from trackside.profiling.line_stacks import Line

__all__ = ["FACTORIES", "table_of"]

FACTORIES = {
    "arange": "aten::arange",
    "eye": "aten::eye",
    "linspace": "aten::linspace",
    "logspace": "aten::logspace",
    "tril": "aten::tril",
    "triu": "aten::triu",
    "hann_window": "aten::hann_window",
    "tril_indices": "aten::tril_indices",
    "triu_indices": "aten::triu_indices",
}
# Names that an expression may go through: two that stand for each other would never end.
_MOST_NAMES = 8
# Of what was made from constants these make another constant.
_PURE_METHODS = frozenset(
    {"float", "double", "long", "to", "view", "reshape", "unsqueeze", "expand", "transpose", "t", "flatten"}
    | {"repeat", "repeat_interleave", "sin", "cos", "exp", "log", "pow", "square", "sqrt", "contiguous"}
)


def table_of(source: Source, line: Line) -> ast.AST | None:
    """The function in which a line gives a name what is computed from constants only, if it does."""
    statement = source.statement(line.line)
    if not isinstance(statement, ast.Assign) or not all(isinstance(n, ast.Name) for n in statement.targets):
        return None
    function = source.script.function_around(statement)
    if function is None or not _from_constants(source, function, statement.value):
        return None
    # What is written into later, or given other values, has to be made anew.
    names = [one.id for one in statement.targets if isinstance(one, ast.Name)]
    if not all(_given(function, name) is statement.value for name in names):
        return None
    return function if _has_factory(source, function, statement.value) else None


def _has_factory(source: Source, function: ast.AST, node: ast.expr) -> bool:
    """Whether a range or the like is made in a constant expression, or in what its names were given."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call):
            name = source.script.name_of(inner.func) or ""
            if name.startswith("torch.") and name.removeprefix("torch.") in FACTORIES:
                return True
        elif isinstance(inner, ast.Name):
            given = _given(function, inner.id)
            if given is not None and _has_factory(source, function, given):
                return True
    return False


def _given(function: ast.AST, name: str) -> ast.expr | None:
    """What a function gives a name, where it does so once and changes it in no other way."""
    if any(_changes(node, name) for node in ast.walk(function)):
        return None
    stores = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store | ast.Del)
    ]
    plain = [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and any(one in stores for one in node.targets)
    ]
    return plain[0] if len(stores) == len(plain) == 1 else None


def _changes(node: ast.AST, name: str) -> bool:
    """Whether something writes into what a name stands for."""
    if isinstance(node, ast.Call):
        target: ast.AST = node.func
        if not isinstance(target, ast.Attribute) or not target.attr.endswith("_"):
            return False
    elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        target = node
    else:
        return False
    while isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return isinstance(target, ast.Name) and target.id == name


def _from_constants(source: Source, function: ast.AST, node: ast.expr, names: int = _MOST_NAMES) -> bool:
    """Whether an expression holds numbers, sizes and pure calls of torch only, and names of such."""
    if names == 0:
        return False
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Attribute):
        # Where a tensor lies, what it is of and how long it is; the operators' inputs tell that it stays so.
        named = source.script.name_of(node) or ""
        return node.attr in ("device", "dtype", "shape") or named.startswith(("torch.", "math."))
    if isinstance(node, ast.Name):
        given = _given(function, node.id)
        return given is not None and given is not node and _from_constants(source, function, given, names - 1)
    if isinstance(node, ast.Call):
        name = source.script.name_of(node.func) or ""
        inside = [*node.args, *(word.value for word in node.keywords)]
        if name.startswith("torch."):
            # What draws numbers gives others each time.
            if any(part in name for part in ("rand", "normal", "multinomial", "bernoulli", "nn.")):
                return False
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "size":
            return True
        elif isinstance(node.func, ast.Attribute) and node.func.attr in _PURE_METHODS:
            inside.append(node.func.value)
        elif name not in ("len", "int", "float", "range") and not name.startswith("math."):
            return False
        return all(_from_constants(source, function, one, names) for one in inside)
    if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Tuple | ast.List | ast.Subscript | ast.Slice):
        return all(
            _from_constants(source, function, one, names)
            for one in ast.iter_child_nodes(node)
            if isinstance(one, ast.expr)
        )
    return False
