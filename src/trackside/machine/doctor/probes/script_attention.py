"""Probes of attention in a script: by hand, or with masks, weights and copies that are not needed."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, warns
from trackside.machine.doctor.script import Argument, Call, Function
from trackside.machine.doctor.torch_script import TorchScript, Verdict, script_probe, weigh

_SDPA = "torch.nn.functional.scaled_dot_product_attention"
_NO_SDPA = "the script does not call scaled_dot_product_attention"
_PRODUCTS = frozenset({"matmul", "bmm", "einsum", "baddbmm"})
_TURNS = frozenset({"transpose", "T", "mT", "permute", "swapaxes", "einsum"})
_FUSED = frozenset(
    {"scaled_dot_product_attention", "flash_attn_func", "flash_attn_varlen_func", "flex_attention"}
)
# What may be done to scores, and to weights, without leaving what the fused kernels do.
_BEFORE = frozenset(
    [
        "masked_fill",
        "masked_fill_",
        "where",
        "float",
        "to",
        "type_as",
        "sqrt",
        "size",
        "float",
        "finfo",
        "view",
        "reshape",
        "unsqueeze",
        "add",
        "add_",
        "mul",
        "mul_",
        "div",
        "div_",
        "triu",
        "tril",
        "ones",
        "zeros",
        "full",
        "bool",
        "len",
        "expand",
    ]
)
_AFTER = frozenset({"to", "type_as", "float", "half", "masked_fill", "nan_to_num"})
# Elements: the kernels load heads in pieces of 16 bytes, and none takes a wider head.
_HEAD_STEP, _WIDEST_HEAD = 8, 256


def _mentions(node: ast.AST, words: frozenset[str]) -> bool:
    return any(
        (isinstance(n, ast.Attribute) and n.attr in words) or (isinstance(n, ast.Name) and n.id in words)
        for n in ast.walk(node)
    )


def _is_product(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return True
    func = node.func if isinstance(node, ast.Call) else None
    called = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return called in _PRODUCTS


def _loads(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


@script_probe("attention.use-sdpa", "perhaps")
def use_sdpa(torch: TorchScript) -> Outcome:
    script = torch.script
    wanted = "scaled_dot_product_attention, or attn_implementation='sdpa'"
    eager = [c for c in script.calls if script.read(c.expression("attn_implementation")) == "eager"]
    if eager:
        return warns(
            "attn_implementation='eager'", wanted, ["attn_implementation='sdpa'"], [c.place for c in eager]
        )
    lines = [line for f in torch.forwards + _plain_functions(torch) if (line := _attention_by_hand(f))]
    if lines:
        places = [f"{script.path}:{line}" for line in sorted(set(lines))]
        return warns(
            "softmax(q @ k) @ v is written out",
            wanted,
            ["F.scaled_dot_product_attention(q, k, v, is_causal=True)"],
            places,
        )
    if script.exactly(_SDPA) or script.named("flash_attn_func", "flex_attention") or "sdpa" in torch.mentions:
        return passes("attention is called as one function", wanted)
    return not_applicable("no attention is seen in the script")


def _plain_functions(torch: TorchScript) -> list[Function]:
    return [n for n in torch.script.nodes if isinstance(n, ast.FunctionDef) and n not in torch.forwards]


def _attention_by_hand(function: Function) -> int | None:
    """The line of a softmax over q times a turned k, if its result is multiplied with v and nothing else."""
    if _mentions(function, _FUSED):
        # Written out only for where the fused function is missing.
        return None
    scores: set[str] = set()
    weights: dict[str, int] = {}
    for statement in _statements(function):
        value = getattr(statement, "value", None)
        if not isinstance(value, ast.expr):
            continue
        targets = [
            n.id for t in getattr(statement, "targets", []) for n in ast.walk(t) if isinstance(n, ast.Name)
        ]
        softmax = _softmax_over(value, scores)
        products = [n for n in ast.walk(value) if _is_product(n)]
        used = [weights[name] for n in products for name in sorted(_loads(n) & weights.keys())]
        if isinstance(statement, ast.Return) and _returns(value, weights.keys()):
            # The caller wants the weights themselves, which the fused kernels never write.
            return None
        if used:
            return None if _returned_later(function, weights) else used[0]
        if softmax and any(softmax in list(ast.walk(n)) for n in products):
            return softmax.lineno
        old_scores, old_weights = _loads(value) & scores, sorted(_loads(value) & weights.keys())
        scores.difference_update(targets)
        lines = [weights[name] for name in old_weights]
        for name in targets:
            weights.pop(name, None)
        if softmax:
            weights.update(dict.fromkeys(targets, softmax.lineno))
        elif lines:
            if _only_calls(value, _AFTER):
                weights.update(dict.fromkeys(targets, lines[0]))
        elif any(_is_scores(n) for n in products) or (old_scores and _only_calls(value, _BEFORE)):
            scores.update(targets)
    return None


def _statements(function: Function) -> list[ast.stmt]:
    """Its simple statements in the order of the source."""
    blocks = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.FunctionDef, ast.ClassDef)
    found = [n for n in ast.walk(function) if isinstance(n, ast.stmt) and not isinstance(n, blocks)]
    return sorted(found, key=lambda n: n.lineno)


def _called(node: ast.Call) -> str:
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _only_calls(value: ast.expr, allowed: frozenset[str]) -> bool:
    """Whether nothing is called but what the fused kernels can do too: masks, scales, dropout."""
    names = [_called(n) for n in ast.walk(value) if isinstance(n, ast.Call)]
    return all(name in allowed or "drop" in name for name in names)


def _is_scores(node: ast.AST) -> bool:
    """`q @ k.transpose(-2, -1)`: the second operand is turned, and only that one."""
    if isinstance(node, ast.BinOp):
        first, second = node.left, node.right
    elif isinstance(node, ast.Call) and _called(node) == "einsum":
        return True
    elif isinstance(node, ast.Call) and len(node.args) == 2:
        first, second = node.args
    else:
        return False
    if _mentions(node, frozenset({"normalize"})):
        return False
    return _mentions(second, _TURNS) and not _mentions(first, _TURNS)


def _softmax_over(value: ast.expr, scores: set[str]) -> ast.Call | None:
    for node in ast.walk(value):
        if isinstance(node, ast.Call) and _called(node) == "softmax":
            inside = any(_is_product(n) and _is_scores(n) for n in ast.walk(node))
            if (inside or _loads(node) & scores) and _only_calls(
                node, _BEFORE | _PRODUCTS | _TURNS | {"softmax"}
            ):
                return node
    return None


def _returns(value: ast.expr, names: Iterable[str]) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return any(isinstance(part, ast.Name) and part.id in set(names) for part in parts)


def _returned_later(function: Function, weights: dict[str, int]) -> bool:
    returns = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    return any(_returns(value, weights) for value in returns)


def _mask(torch: TorchScript, call: Call) -> ast.AST | Argument:
    """What stands behind attn_mask, without a slice that takes as many queries as keys."""
    given = call.expression("attn_mask", 3)
    if isinstance(given, Argument):
        return given
    node: ast.AST = given
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(parts) < 2 or ast.dump(parts[-1]) != ast.dump(parts[-2]):
            return Argument.UNREADABLE
        node = node.value
    buffers = {
        f"self.{c.node.args[0].value!s}": c.node.args[1]
        for c in torch.script.calls
        if c.name == "self.register_buffer"
        and len(c.node.args) > 1
        and isinstance(c.node.args[0], ast.Constant)
    }
    name = torch.script.name_of(node) or ""
    return buffers.get(name) or torch.script.only_value(node)


@script_probe("attention.causal-flag", "perhaps")
def causal_flag(torch: TorchScript) -> Outcome:
    script = torch.script
    calls = script.exactly(_SDPA)
    if not calls:
        return not_applicable(_NO_SDPA)

    def look(call: Call) -> Verdict:
        mask = _mask(torch, call)
        if isinstance(mask, Argument):
            return None if mask is Argument.ABSENT else Argument.UNREADABLE
        if isinstance(mask, ast.Constant) and mask.value is None:
            return None
        combined = any(isinstance(n, ast.BinOp | ast.BoolOp) for n in ast.walk(mask))
        triangle = _mentions(mask, frozenset({"tril", "triu"}))
        if triangle and not combined:
            return "a triangular mask is passed as attn_mask"
        return Argument.UNREADABLE

    return weigh(
        calls,
        look,
        "no triangular mask is passed",
        "is_causal=True",
        ["F.scaled_dot_product_attention(q, k, v, is_causal=True)"],
    )


@script_probe("attention.dense-mask", "perhaps")
def dense_mask(torch: TorchScript) -> Outcome:
    script = torch.script
    calls = script.exactly(_SDPA)
    if not calls:
        return not_applicable(_NO_SDPA)

    def look(call: Call) -> Verdict:
        mask = _mask(torch, call)
        if isinstance(mask, Argument):
            return None if mask is Argument.ABSENT else Argument.UNREADABLE
        if isinstance(mask, ast.Constant) and mask.value is None:
            return None
        if isinstance(mask, ast.Call) and script.name_of(mask.func) in ("torch.ones", "torch.ones_like"):
            return "a mask of ones, which hides nothing"
        return Argument.UNREADABLE

    return weigh(
        calls, look, "no mask is passed", "attn_mask=None where nothing is masked", ["leave attn_mask out"]
    )


@script_probe("attention.dropout", "perhaps")
def dropout(torch: TorchScript) -> Outcome:
    script = torch.script
    calls = script.exactly(_SDPA)
    if not calls:
        return not_applicable(_NO_SDPA)

    def look(call: Call) -> Verdict:
        given = call.expression("dropout_p", 4)
        if given is Argument.ABSENT:
            return None
        if isinstance(given, ast.AST) and _mentions(script.only_value(given), frozenset({"training"})):
            return None
        value = script.read(given)
        if isinstance(value, int | float):
            return f"dropout_p={value} also outside training" if value else None
        return Argument.UNREADABLE

    fix = ["dropout_p=self.dropout if self.training else 0.0"]
    return weigh(
        calls, look, "no dropout outside training", "dropout_p that depends on self.training", fix, fails
    )


@script_probe("attention.gqa", "perhaps")
def grouped_heads(torch: TorchScript) -> Outcome:
    script = torch.script
    calls = script.exactly(_SDPA)
    if not calls:
        return not_applicable(_NO_SDPA)

    def look(call: Call) -> Verdict:
        function = script.function_around(call.node)
        names = {n.id for n in call.node.args[1:3] if isinstance(n, ast.Name)}
        for node in ast.walk(function) if function else []:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                made = (script.name_of(node.value.func) or "").rpartition(".")[2]
                stored = {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                if (
                    made in ("repeat_interleave", "repeat_kv")
                    and stored & names
                    and node.lineno < call.node.lineno
                ):
                    return f"{made} copies key and value heads before the call"
        return None

    return weigh(
        calls,
        look,
        "key and value heads are not copied",
        "enable_gqa=True with fewer key and value heads",
        ["F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)"],
    )


@script_probe("attention.need-weights", "perhaps")
def need_weights(torch: TorchScript) -> Outcome:
    script = torch.script
    layers = {
        name for c in script.exactly("torch.nn.MultiheadAttention") for name in script.names_of_result(c.node)
    }
    calls = [c for c in script.calls if c.name in layers]
    if not calls:
        return not_applicable("no nn.MultiheadAttention is called in the script")

    def look(call: Call) -> Verdict:
        need = script.read(call.expression("need_weights", 4))
        if need is False:
            return None
        if need is Argument.UNREADABLE:
            return need
        return None if _weights_are_used(torch, call) else "attention weights are computed and thrown away"

    return weigh(calls, look, "weights are computed only where they are used", "need_weights=False")


def _weights_are_used(torch: TorchScript, call: Call) -> bool:
    """Whether the second result gets a name that is read, or the pair goes elsewhere."""
    parent = torch.script.parents.get(call.node)
    if isinstance(parent, ast.Subscript):
        return torch.script.read(parent.slice) != 0
    if (
        isinstance(parent, ast.Assign)
        and isinstance(parent.targets[0], ast.Tuple)
        and len(parent.targets[0].elts) == 2
    ):
        second = parent.targets[0].elts[1]
        function = torch.script.function_around(call.node)
        return not isinstance(second, ast.Name) or second.id in _loads(function or torch.script.tree)
    return True


@script_probe("attention.flex", "perhaps")
def flex(torch: TorchScript) -> Outcome:
    script = torch.script
    name = "torch.nn.attention.flex_attention.flex_attention"
    calls = script.exactly(name)
    compiles = any(
        c.name == "torch.compile" and c.node.args and script.name_of(c.node.args[0]) == name
        for c in script.calls
    )
    if not calls and not compiles:
        return not_applicable("the script does not call flex_attention")
    wanted = "flex_attention under torch.compile, and the block mask made once"
    masks = [
        c
        for c in script.exactly("torch.nn.attention.flex_attention.create_block_mask")
        if script.function_around(c.node) in torch.forwards
    ]
    if masks:
        return warns(
            "create_block_mask in forward: once in each layer", wanted, places=[c.place for c in masks]
        )
    if torch.compiles:
        return passes("flex_attention is compiled", wanted)
    return warns(
        "flex_attention without torch.compile computes all scores",
        wanted,
        ["flex_attention = torch.compile(flex_attention)"],
        [c.place for c in calls],
    )


@script_probe("attention.head-dim", "perhaps")
def head_dim(torch: TorchScript) -> Outcome:
    script = torch.script
    layers = script.exactly(
        "torch.nn.MultiheadAttention", "torch.nn.TransformerEncoderLayer", "torch.nn.TransformerDecoderLayer"
    )
    if not layers:
        return not_applicable("no attention layer of torch.nn in the script")

    def look(call: Call) -> Verdict:
        names = ("embed_dim", "num_heads") if call.method == "MultiheadAttention" else ("d_model", "nhead")
        width, heads = (script.read(call.expression(n, i)) for i, n in enumerate(names))
        if not isinstance(width, int) or not isinstance(heads, int) or not heads:
            return Argument.UNREADABLE
        size = width // heads
        return f"heads of {size} elements" if size % _HEAD_STEP or size > _WIDEST_HEAD else None

    return weigh(
        layers,
        look,
        f"heads of a multiple of {_HEAD_STEP} elements",
        f"a multiple of {_HEAD_STEP}, better 64 or 128, at most {_WIDEST_HEAD}",
    )


@script_probe("attention.backend", "perhaps")
def backend(torch: TorchScript) -> Outcome:
    script = torch.script
    wanted = "the flash or cuDNN backend is not switched off"
    bad: list[tuple[str, str]] = []
    for call in script.exactly("torch.nn.attention.sdpa_kernel"):
        only = [script.name_of(n) for n in call.node.args[:1]]
        if only == ["torch.nn.attention.SDPBackend.MATH"]:
            bad.append(("only the math backend is allowed", call.place))
    for call in script.exactly("torch.backends.cuda.enable_flash_sdp"):
        if script.read(call.expression("enabled", 0)) is False and not script.is_conditional(call.node):
            bad.append(("the flash backend is switched off", call.place))
    if bad:
        return warns(", ".join(dict.fromkeys(t for t, _ in bad)), wanted, places=[p for _, p in bad])
    if not script.exactly(_SDPA) and not script.exactly("torch.nn.attention.sdpa_kernel"):
        return not_applicable(_NO_SDPA)
    return passes("no fast backend is switched off in the script", wanted)


@script_probe("attention.qkv-projection", "perhaps")
def qkv_projection(torch: TorchScript) -> Outcome:
    script = torch.script
    families = (
        ("q_proj", "k_proj", "v_proj"),
        ("query", "key", "value"),
        ("wq", "wk", "wv"),
        ("to_q", "to_k", "to_v"),
    )
    linear = {name for c in script.exactly("torch.nn.Linear") for name in script.names_of_result(c.node)}
    places, seen = [], "qkv" in torch.mentions
    for function in torch.forwards:
        if _mentions(function, frozenset({"qkv"})):
            # Three products are the other choice of a layer that has both.
            seen = True
            continue
        inside = set(ast.walk(function))
        given = {
            c.name: (ast.dump(c.node.args[0]), c.place)
            for c in script.calls
            if c.node in inside and c.name in linear and len(c.node.args) == 1
        }
        for family in families:
            rows = [given.get(f"self.{name}") for name in family]
            found = [row for row in rows if row is not None]
            if len(found) == len(family):
                seen = True
                if len({row[0] for row in found}) == 1:
                    places += [row[1] for row in found]
    wanted = "one product for queries, keys and values"
    if places:
        return warns("three products over the same input", wanted, places=places)
    if not seen:
        return not_applicable("no projections to queries, keys and values are seen in the script")
    return passes("queries, keys and values are not three products of one input", wanted)
