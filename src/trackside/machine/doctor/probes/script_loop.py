"""Probes of a script's training step: waits, gradients, what is done in every step and need not be."""

from __future__ import annotations

import ast

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, unknown, warns
from trackside.machine.doctor.script import Argument, Call, Function
from trackside.machine.doctor.torch_script import TorchScript, Verdict, script_probe, weigh

_NO_STEP = "no training step is seen in the script"
_NAN = frozenset({"isnan", "isfinite", "isinf"})
_READS = frozenset({"item", "tolist", "cpu"})
# Optimizers of torch.optim with a fused implementation on CUDA.
_FUSED = ("torch.optim.Adam", "torch.optim.AdamW", "torch.optim.SGD")
_SAVES = frozenset({"save_pretrained", "save_checkpoint", "save_state"})
# Rows of an embedding table: no vocabulary of a language model has so many, tables of users and goods do.
_HUGE_TABLE = 10_000_000


def _chain(call: Call) -> set[str]:
    """Methods and functions in a chain of calls: `torch.isnan(x).any().item` → isnan, any, item."""
    return {part.rstrip("()[]") for part in call.name.split(".")}


def _is_nan_test(call: Call) -> bool:
    return bool(_chain(call) & _NAN)


@script_probe("training.logging-sync")
def logging_sync(torch: TorchScript) -> Outcome:
    if not torch.steps:
        return not_applicable(_NO_STEP)
    bad = [call for call in torch.script.calls if _reads_in_step(torch, call)]

    def look(call: Call) -> Verdict:
        if call.method in _READS:
            return f".{call.method}() in every step"
        return f"{call.name}() of the loss in every step"

    return weigh(
        bad,
        look,
        "values are read on the host only in some steps",
        "the loss is kept on the GPU and read every n steps",
        ["running += loss.detach()", "if step % 50 == 0: print((running / 50).item()); running.zero_()"],
    )


def _reads_in_step(torch: TorchScript, call: Call) -> bool:
    if call.method in _READS and "." in call.name:
        step = torch.step_around(call.node)
        targets = step.target if isinstance(step, ast.For | ast.AsyncFor) else None
        # What comes from the loader is on the CPU; norms and NaN tests have probes of their own.
        batch = {n.id for n in ast.walk(targets) if isinstance(n, ast.Name)} if targets else set()
        if (
            call.root in batch
            or call.root == "numpy"
            or _is_nan_test(call)
            or "norm" in _chain(call)
            or call.node.args
        ):
            return False
        return torch.in_every_step(call.node)
    if call.name in ("float", "print"):
        return torch.in_every_step(call.node) and any(_is_loss(torch, arg) for arg in call.node.args)
    return False


def _is_loss(torch: TorchScript, node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(_is_loss(torch, v.value) for v in node.values if isinstance(v, ast.FormattedValue))
    return isinstance(node, ast.Name) and node.id in torch.losses


@script_probe("pytorch.hidden-syncs")
def hidden_syncs(torch: TorchScript) -> Outcome:
    script = torch.script
    bad: list[tuple[str, str]] = []
    timed = {"time", "perf_counter", "perf_counter_ns", "monotonic", "time_ns"}
    for call in script.calls:
        function = script.function_around(call.node)
        if call.name == "torch.cuda.synchronize" and torch.in_every_step(call.node):
            step = torch.step_around(call.node)
            inside = set(ast.walk(step)) if step else set()
            if not any(c.node in inside and c.method in timed for c in script.calls):
                bad.append(("torch.cuda.synchronize() in every step", call.place))
        elif function in torch.forwards and function not in torch.compiled:
            if (
                call.method in ("item", "tolist")
                and "." in call.name
                and not script.is_conditional(call.node)
            ):
                bad.append((f".{call.method}() in forward", call.place))
            elif call.method in ("any", "all") and "." in call.name and _is_tested(torch, call):
                bad.append((f"a branch on .{call.method}() in forward", call.place))
    wanted = "nothing in forward or in the step that waits for the GPU"
    if bad:
        return warns(", ".join(dict.fromkeys(t for t, _ in bad)), wanted, places=[place for _, place in bad])
    if not torch.steps and not torch.forwards:
        return not_applicable("no forward and no training step is seen in the script")
    return passes("no wait is seen in forward or in the step", wanted)


def _is_tested(torch: TorchScript, call: Call) -> bool:
    """Whether an `if`, `while` or `assert` asks for a call's result."""
    if _is_nan_test(call):
        return False
    for parent, part in torch.script.above(call.node):
        if isinstance(parent, ast.If | ast.While | ast.Assert | ast.IfExp):
            return part is parent.test
        if not isinstance(parent, ast.UnaryOp | ast.BoolOp | ast.Compare):
            return False
    return False


@script_probe("training.nan-check")
def nan_check(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.steps:
        return not_applicable(_NO_STEP)
    bad = []
    for call in script.calls:
        if (
            call.method in _NAN
            and not call.name.startswith(("math.", "numpy."))
            and torch.in_every_step(call.node)
        ):
            for parent, part in script.above(call.node):
                tested = (
                    isinstance(parent, ast.If | ast.While | ast.Assert | ast.IfExp) and part is parent.test
                )
                read = isinstance(parent, ast.Attribute) and parent.attr == "item"
                if tested or read:
                    bad.append(call)
                if tested or read or isinstance(parent, ast.stmt):
                    break
    wanted = "a flag on the GPU that is read every n steps"
    if bad:
        return warns(
            "a test for NaN makes the host wait in every step", wanted, places=[c.place for c in bad]
        )
    return passes("no test for NaN waits in every step", wanted)


@script_probe("training.zero-grad")
def zero_grad(torch: TorchScript) -> Outcome:
    if not torch.trains:
        return not_applicable(_NO_STEP)
    if {"CUDAGraph", "make_graphed_callables"} & torch.mentions:
        return not_applicable("CUDA graphs need gradients that stay where they are")
    calls = [
        c
        for c in torch.script.calls
        if c.method == "zero_grad" or c.receiver.endswith((".grad", ".grad.data"))
    ]

    def look(call: Call) -> Verdict:
        if call.method == "zero_":
            return "gradients are overwritten with zeros (.grad.zero_())"
        if call.method != "zero_grad":
            return None
        to_none = torch.script.read(call.expression("set_to_none", 0))
        if to_none is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return "zero_grad(set_to_none=False)" if to_none is False else None

    return weigh(
        calls,
        look,
        "gradients are dropped, not overwritten",
        "optimizer.zero_grad()",
        ["optimizer.zero_grad()"],
    )


@script_probe("training.fused-optimizer")
def fused_optimizer(torch: TorchScript) -> Outcome:
    script = torch.script
    made = script.exactly(*_FUSED)
    chosen = [c for c in script.named("TrainingArguments", "SFTConfig") if c.has("optim")]
    if not made and not chosen:
        return not_applicable("no Adam, AdamW or SGD of torch.optim in the script")
    wrapped = [
        c
        for c in script.calls
        if c.name == "torch.compile" and c.node.args and str(script.name_of(c.node.args[0])).endswith(".step")
    ]

    def look(call: Call) -> Verdict:
        if call in chosen:
            name = script.read(call.expression("optim"))
            return "optim='adamw_torch' is not fused" if name == "adamw_torch" else None
        fused = script.read(call.expression("fused"))
        if fused is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return None if fused is True or wrapped else f"{call.method} without fused=True"

    kinds = dict.fromkeys(call.method for call in made)
    fix = [f"torch.optim.{kind}(..., fused=True)" for kind in kinds]
    return weigh([*made, *chosen], look, "the optimizer is fused", "fused=True", fix)


@script_probe("training.clip-foreach")
def clip(torch: TorchScript) -> Outcome:
    script = torch.script
    clips = [c for c in script.calls if c.method == "clip_grad_norm_"]
    norms = [
        c
        for c in script.calls
        if c.name.endswith(".grad.norm().item") or c.name.endswith("grad.data.norm().item")
    ]
    if not clips and not norms:
        return not_applicable("the script does not clip gradients")
    # Beside a call with the default it is the way out for another device.
    slow = [c for c in clips if script.read(c.expression("foreach", 4)) is False]

    def look(call: Call) -> Verdict:
        if call.method == "item":
            return (
                "the norm of each gradient is read on the host"
                if call.loops and torch.step_around(call.node)
                else None
            )
        foreach, finite = (
            script.read(call.expression(n, p)) for n, p in (("foreach", 4), ("error_if_nonfinite", 3))
        )
        if foreach is False and len(slow) == len(clips):
            return "clip_grad_norm_(foreach=False): a few kernels for each parameter"
        if finite is True:
            return "error_if_nonfinite=True waits for the norm in every step"
        return Argument.UNREADABLE if Argument.UNREADABLE in (foreach, finite) else None

    return weigh(
        [*clips, *norms],
        look,
        "clipping stays on the GPU",
        "clip_grad_norm_ with its defaults, and the norm kept as a tensor",
        ["norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"],
    )


@script_probe("memory.graph-references")
def graph_references(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.steps:
        return not_applicable(_NO_STEP)
    bad: list[ast.AST] = []
    for node in script.nodes:
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add)
            and isinstance(node.target, ast.Name)
        ):
            if _holds_loss(torch, node.value) and _outlives(torch, node.target.id, node):
                bad.append(node)
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            name = node.targets[0].id
            again = isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add)
            itself = again and isinstance(node.value.left, ast.Name) and node.value.left.id == name  # type: ignore[attr-defined]
            if itself and _holds_loss(torch, node.value.right) and _outlives(torch, name, node):  # type: ignore[attr-defined]
                bad.append(node)
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append"
        ):
            held = isinstance(node.func.value, ast.Name) and node.args and _holds_loss(torch, node.args[0])
            if held and _outlives(torch, node.func.value.id, node):  # type: ignore[attr-defined]
                bad.append(node)
    wanted = "loss.detach() where it is kept beyond the step"
    if bad:
        bad.sort(key=lambda node: getattr(node, "lineno", 0))
        return warns(
            "the loss is kept with its graph",
            wanted,
            ["total += loss.detach()"],
            [script.place(n) for n in bad],
        )
    return passes("no loss is kept with its graph", wanted)


def _holds_loss(torch: TorchScript, node: ast.AST) -> bool:
    """The loss itself, or it times or over a number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        return _holds_loss(torch, node.left) or _holds_loss(torch, node.right)
    return isinstance(node, ast.Name) and node.id in torch.losses


def _outlives(torch: TorchScript, name: str, node: ast.AST) -> bool:
    """Whether a variable that grows in a step is neither what backward is called on, nor made anew in it."""
    step = torch.step_around(node)
    if step is None or name in torch.losses:
        return False
    # Made anew anywhere in the loop that runs over the steps: it holds one step at most.
    return not any(
        isinstance(n, ast.Assign)
        and n is not node
        and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)
        for n in ast.walk(step)
    )


@script_probe("training.accumulation")
def accumulation(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.accumulating:
        return not_applicable("the script does not accumulate gradients")
    loops = {torch.step_around(call.node) for call in torch.accumulating}
    bad = [
        call
        for call in script.calls
        if call.method == "zero_grad"
        and torch.step_around(call.node) in loops
        and torch.in_every_step(call.node)
    ]
    wanted = "zero_grad() only together with optimizer.step()"
    if bad:
        return fails(
            "zero_grad() after every micro-batch throws the accumulated gradients away",
            wanted,
            ["if (i + 1) % n == 0: optimizer.step(); optimizer.zero_grad()"],
            [call.place for call in bad],
        )
    return passes("gradients are dropped once in a window", wanted)


@script_probe("memory.empty-cache")
def empty_cache(torch: TorchScript) -> Outcome:
    script = torch.script
    generates = {
        loops[0] for c in script.calls if c.method == "generate" and (loops := script.loops_around(c.node))
    }
    # Between two models, memory is given back for good reason.
    generates -= {loop for loop in generates if any(_loads_a_model(torch, node) for node in ast.walk(loop))}
    bad = []
    for call in script.exactly("torch.cuda.empty_cache"):
        hot = [lo for lo in script.loops_around(call.node) if lo in torch.batch_loops or lo in generates]
        if torch.in_every_step(call.node) or (hot and not script.is_conditional(call.node, hot[0])):
            bad.append(call)
    wanted = "no torch.cuda.empty_cache() in loops over batches"
    if bad:
        return warns(
            "empty_cache() for every batch",
            wanted,
            ["remove torch.cuda.empty_cache()"],
            [c.place for c in bad],
        )
    return passes("the cache is not emptied in a loop over batches", wanted)


def _loads_a_model(torch: TorchScript, node: ast.AST) -> bool:
    if isinstance(node, ast.Delete):
        return True
    name = torch.script.name_of(node.func) if isinstance(node, ast.Call) else None
    return (name or "").endswith((".from_pretrained", ".load_state_dict", "torch.load"))


@script_probe("pytorch.garbage-collector", "anywhere")
def garbage_collector(torch: TorchScript) -> Outcome:
    if not torch.steps:
        return not_applicable(_NO_STEP)
    bad = [c for c in torch.script.exactly("gc.collect") if torch.in_every_step(c.node)]
    wanted = "gc.collect() every n steps at most, at the same step on all ranks"
    if bad:
        return warns("gc.collect() in every step", wanted, places=[c.place for c in bad])
    return passes("no collection in every step", wanted)


@script_probe("training.checkpoint-cadence")
def checkpoint_cadence(torch: TorchScript) -> Outcome:
    if not torch.steps:
        return not_applicable(_NO_STEP)
    bad = [
        c
        for c in torch.script.calls
        if (c.name in ("torch.save", "torch.distributed.checkpoint.save") or c.method in _SAVES)
        and torch.in_every_step(c.node)
        and any(loop in torch.batch_loops for loop in torch.script.loops_around(c.node))
    ]
    wanted = "a checkpoint every n steps or minutes"
    if bad:
        return warns("a checkpoint is written in every step", wanted, places=[c.place for c in bad])
    return passes("no checkpoint in every step", wanted)


@script_probe("pytorch.anomaly-mode", "anywhere")
def anomaly_mode(torch: TorchScript) -> Outcome:
    script = torch.script
    names = ("torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly")
    calls = [c for c in script.exactly(*names) if not script.is_conditional(c.node)]
    calls += [c for c in script.named("Trainer") if c.has("detect_anomaly")]

    def look(call: Call) -> Verdict:
        if call.method == "detect_anomaly":
            return "autograd.detect_anomaly()"
        position = 0 if call.method == "set_detect_anomaly" else None
        mode = script.read(call.expression("mode" if position == 0 else "detect_anomaly", position))
        if mode is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return f"{call.method}: anomaly detection is on" if mode is True else None

    return weigh(
        calls,
        look,
        "anomaly detection is off, or only under a condition",
        "off outside of debugging",
        ["torch.autograd.set_detect_anomaly(False)"],
        fails,
    )


@script_probe("training.determinism")
def determinism(torch: TorchScript) -> Outcome:
    script = torch.script
    bad: list[tuple[str, str]] = []
    unread = []
    for call in script.calls:
        keyword = {"Trainer": "deterministic", "TrainingArguments": "full_determinism"}.get(call.method)
        if call.name == "torch.use_deterministic_algorithms":
            mode = script.read(call.expression("mode", 0))
        elif keyword and call.has(keyword):
            mode = script.read(call.expression(keyword))
        else:
            continue
        if mode is Argument.UNREADABLE or script.is_conditional(call.node):
            unread.append(call.place)
        elif mode is True:
            bad.append((call.method if not keyword else f"{keyword}=True", call.place))
    for node in script.nodes:
        if (
            isinstance(node, ast.Assign)
            and script.name_of(node.targets[0]) == "torch.backends.cudnn.deterministic"
        ):
            mode = script.read(node.value)
            if mode is Argument.UNREADABLE or script.is_conditional(node):
                unread.append(script.place(node))
            elif mode is True:
                bad.append(("cudnn.deterministic = True", script.place(node)))
    wanted = "deterministic algorithms only while debugging"
    if bad:
        return warns(", ".join(dict.fromkeys(t for t, _ in bad)), wanted, places=[place for _, place in bad])
    if unread:
        return unknown(f"{unread[0]}: decided elsewhere")
    return passes("the script does not ask for determinism", wanted)


@script_probe("training.evaluation")
def evaluation(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.trains:
        return not_applicable("the script does not train")
    if script.exactly("torch.set_grad_enabled", "torch.autograd.set_grad_enabled"):
        return unknown("gradients are switched by torch.set_grad_enabled")
    places, seen = [], False
    for node in script.nodes:
        if not isinstance(node, ast.FunctionDef) or not _is_evaluation(torch, node):
            continue
        inside = set(ast.walk(node))
        runs = [c for c in script.calls if c.node in inside and c.name in torch.models]
        if not runs or any(c.node in inside and c.method == "backward" for c in script.calls):
            continue
        seen = True
        places += [c.place for c in runs if not torch.without_grad(c.node)]
    wanted = "@torch.inference_mode() or torch.no_grad() around evaluation"
    if places:
        return warns("the model is evaluated with autograd on", wanted, ["@torch.inference_mode()"], places)
    if not seen:
        return not_applicable("no function that evaluates is seen in the script")
    return passes("evaluation runs without autograd", wanted)


def _is_evaluation(torch: TorchScript, function: Function) -> bool:
    owner = torch.script.class_around(function)
    if owner is not None and owner.bases:
        # Lightning and other base classes switch gradients off around validation_step.
        return False
    return function.name.startswith(("eval", "valid", "test_model", "test_epoch")) or function.name == "test"


@script_probe("training.ema-foreach")
def ema(torch: TorchScript) -> Outcome:
    script = torch.script
    wanted = "torch._foreach_lerp_ over all parameters, or AveragedModel with get_ema_multi_avg_fn"
    places, seen = [], "_foreach_lerp_" in torch.mentions or "get_ema_multi_avg_fn" in torch.mentions
    for node in script.nodes:
        if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
            continue
        pairs = [script.name_of(a.func) or "" for a in node.iter.args if isinstance(a, ast.Call)]
        if script.name_of(node.iter.func) != "zip" or len(pairs) != 2:
            continue
        if not all(name.endswith((".parameters", ".buffers")) for name in pairs):
            continue
        inside = set(ast.walk(node))
        places += [
            c.place
            for c in script.calls
            if c.node in inside
            and (c.method == "lerp_" or (c.method == "add_" and c.receiver.endswith(".mul_()")))
        ]
    if places:
        return warns("averaged weights are updated one parameter at a time", wanted, places=places)
    if not seen:
        return not_applicable("no averaged weights are seen in the script")
    return passes("averaged weights are updated in groups", wanted)


@script_probe("training.sparse-embeddings")
def sparse_embeddings(torch: TorchScript) -> Outcome:
    script = torch.script
    tables = script.exactly("torch.nn.Embedding", "torch.nn.EmbeddingBag")
    rows = {id(c): script.read(c.expression("num_embeddings", 0)) for c in tables}
    huge = [c for c in tables if isinstance(n := rows[id(c)], int) and n >= _HUGE_TABLE]
    if not huge or not torch.trains:
        return not_applicable(f"no embedding table of {_HUGE_TABLE:,} rows or more is trained in the script")

    def look(call: Call) -> Verdict:
        sparse = script.read(call.expression("sparse"))
        if sparse is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return None if sparse is True else f"{rows[id(call)]:,} rows with dense gradients"

    return weigh(huge, look, "huge tables have sparse gradients", "sparse=True and a sparse optimizer")


@script_probe("training.packing")
def packing(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.trains and not script.named("Trainer", "SFTTrainer"):
        return not_applicable("the script does not train")
    packs = {"DataCollatorWithFlattening", "packing", "cu_seqlens", "varlen_attn", "flash_attn_varlen_func"}
    wanted = "samples packed into full sequences, or at least padded to the longest of the batch"
    padded = [
        c
        for c in script.calls
        if script.read(c.expression("padding")) == "max_length" and not script.is_conditional(c.node)
    ]
    if packs & torch.mentions and not padded:
        return passes("samples are packed", wanted)
    if not padded:
        return unknown("how samples are put together is not seen in the script")
    return warns("every sample is padded to the maximum length", wanted, places=[c.place for c in padded])
