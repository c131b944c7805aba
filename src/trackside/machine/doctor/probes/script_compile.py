"""Probes of torch.compile in a script: what breaks its graphs, and what makes it compile again."""

from __future__ import annotations

import ast

from trackside.machine.doctor.probe import Outcome, not_applicable, passes, unknown, warns
from trackside.machine.doctor.torch_script import TorchScript, script_probe

# The compiler has it as 8; a few times that may be known variants, hundreds are a leak that is kept quiet.
_MOST_RECOMPILATIONS = 64
_BREAKS = frozenset(
    {"print", "input", "open", "breakpoint", "time.time", "time.perf_counter", "pdb.set_trace"}
)
_REDUCTIONS = frozenset({"sum", "any", "all", "max", "min", "mean", "norm"})
_NO_COMPILE = "the script does not call torch.compile"
_ELSEWHERE = "what torch.compile is given is defined elsewhere"


@script_probe("compilation.graph-breaks")
def graph_breaks(torch: TorchScript) -> Outcome:
    script = torch.script
    wanted = "compiled functions without print, files and clocks; fullgraph=True proves it"
    quiet = [place for name, _, place in script.assigned if name == "torch._dynamo.config.suppress_errors"]
    if not torch.compiles:
        return not_applicable(_NO_COMPILE)
    if quiet:
        return warns("suppress_errors hides what the compiler could not compile", wanted, places=quiet)
    bad = [
        c
        for c in script.calls
        if (c.name in _BREAKS or c.name.startswith(("logging.", "logger.")))
        and script.function_around(c.node) in torch.compiled
        and not script.is_conditional(c.node)
    ]
    if bad:
        names = ", ".join(dict.fromkeys(f"{c.name}()" for c in bad))
        return warns(f"{names} in a compiled function", wanted, places=[c.place for c in bad])
    return (
        passes("nothing in the compiled functions breaks the graph for certain", wanted)
        if torch.compiled
        else unknown(_ELSEWHERE)
    )


@script_probe("compilation.item-in-compiled-code")
def item_in_compiled_code(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.compiles:
        return not_applicable(_NO_COMPILE)
    if not torch.compiled:
        return unknown(_ELSEWHERE)
    captured = "capture_scalar_outputs" in torch.mentions
    bad: list[tuple[str, str]] = []
    for call in script.calls:
        if script.function_around(call.node) not in torch.compiled or "." not in call.name:
            continue
        if call.method in ("item", "tolist") and not captured:
            bad.append((f".{call.method}()", call.place))
        elif (
            call.method in _REDUCTIONS
            and not call.name.startswith(("math.", "numpy."))
            and _decides(torch, call.node)
        ):
            bad.append((f"a branch on .{call.method}()", call.place))
    wanted = "no value of a tensor is read inside compiled functions"
    if bad:
        return warns(
            f"{', '.join(dict.fromkeys(t for t, _ in bad))} in a compiled function",
            wanted,
            places=[p for _, p in bad],
        )
    return passes("no value of a tensor is read in the compiled functions", wanted)


def _decides(torch: TorchScript, node: ast.AST) -> bool:
    """Whether an `if`, `while` or a conditional expression asks for it."""
    for parent, part in torch.script.above(node):
        if isinstance(parent, ast.If | ast.While | ast.IfExp):
            return part is parent.test
        if not isinstance(parent, ast.Compare | ast.UnaryOp | ast.BoolOp):
            return False
    return False


@script_probe("compilation.recompile-limit")
def recompile_limit(torch: TorchScript) -> Outcome:
    if not torch.compiles:
        return not_applicable(_NO_COMPILE)
    names = ("torch._dynamo.config.recompile_limit", "torch._dynamo.config.cache_size_limit")
    wanted = f"at most {_MOST_RECOMPILATIONS} variants of a function (8 by default)"
    limits = [(torch.script.read(v), place) for n, v, place in torch.script.assigned if n in names]
    bad = [(n, place) for n, place in limits if isinstance(n, int) and n > _MOST_RECOMPILATIONS]
    if bad:
        return warns(
            f"the limit is raised to {bad[0][0]:,}",
            wanted,
            ["TORCH_LOGS=recompiles python script.py  # and remove the cause"],
            [p for _, p in bad],
        )
    if any(not isinstance(n, int) for n, _ in limits):
        return unknown("the recompilation limit is decided elsewhere")
    return passes("the limit is not raised beyond use", wanted)


@script_probe("compilation.scalars-as-tensors")
def scalars_as_tensors(torch: TorchScript) -> Outcome:
    script = torch.script
    names = {n for o in torch.optimizers for n in script.names_of_result(o.node)}
    steps = [
        c
        for c in script.calls
        if c.method == "step" and c.receiver in names and script.function_around(c.node) in torch.compiled
    ]
    whole = [
        c
        for c in script.calls
        if c.name == "torch.compile"
        and c.node.args
        and (script.name_of(c.node.args[0]) or "").removesuffix(".step") in names
    ]
    schedules = [c for c in script.calls if c.name.startswith("torch.optim.lr_scheduler.")]
    if not (steps or whole) or not schedules:
        return not_applicable("no compiled optimizer step with a schedule in the script")
    wanted = "lr=torch.tensor(...), so that a new learning rate is no new program"
    bad = [o for o in torch.optimizers if isinstance(script.read(o.expression("lr", 1)), int | float)]
    if bad:
        return warns(
            "the learning rate is a Python number: each new value compiles again",
            wanted,
            places=[c.place for c in bad],
        )
    if all(
        isinstance(n := o.expression("lr", 1), ast.Call) and script.name_of(n.func) == "torch.tensor"
        for o in torch.optimizers
    ):
        return passes("the learning rate is a tensor", wanted)
    return unknown("the learning rate is decided elsewhere")
