"""Probes of the number formats that a script chooses: autocast, TF32, weights, what slips to float64."""

from __future__ import annotations

import ast

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, probe, unknown, warns
from trackside.machine.doctor.script import Argument, Call
from trackside.machine.doctor.system import System, Unreadable
from trackside.machine.doctor.torch_script import TorchScript, Verdict, concerned, script_probe, weigh

_AUTOCASTS = (
    "torch.autocast",
    "torch.amp.autocast",
    "torch.cuda.amp.autocast",
    "torch.autocast_mode.autocast",
)
_SCALERS = ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler", "torch.amp.grad_scaler.GradScaler")
# These choose the precision in a configuration or an argument of their own.
_FRAMEWORKS = frozenset({"accelerate", "deepspeed", "lightning", "pytorch_lightning", "transformer_engine"})
_MATRIX = frozenset(
    {"Linear", "Conv2d", "Conv1d", "Conv3d", "MultiheadAttention", "TransformerEncoderLayer", "LSTM"}
)
_OLD_TF32 = ("torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32")
# NumPy's functions that give float64 unless they are asked for something else.
_DOUBLES = frozenset(
    f"numpy.{name}"
    for name in [
        "random.rand",
        "random.randn",
        "random.random",
        "random.normal",
        "random.uniform",
        "zeros",
        "ones",
        "linspace",
        "eye",
    ]
)

# Major version of transformers since which from_pretrained has dtype="auto".
_STORED_TYPE_SINCE = 5
_CASTS = frozenset(
    {"float", "half", "bfloat16", "type", "type_as", "int", "long", "short", "bool", "byte", "double"}
)


def _has_matrix_products(torch: TorchScript) -> bool:
    products = any(isinstance(n, ast.MatMult) for n in torch.script.nodes)
    return products or bool(_MATRIX & torch.mentions) or bool(torch.models)


@script_probe("precision.tf32-matmul")
def tf32_matmul(torch: TorchScript) -> Outcome:
    script = torch.script
    wanted = "torch.set_float32_matmul_precision('high')"
    values: list[object] = [
        script.read(call.expression("precision", 0))
        for call in script.exactly("torch.set_float32_matmul_precision")
    ]
    for name, value, _ in script.assigned:
        if name == _OLD_TF32[0] or (name.startswith("torch.backends.") and name.endswith("fp32_precision")):
            values.append(script.read(value))
    if any(value in ("high", "medium", "tf32", True) for value in values):
        return passes("TF32 is allowed", wanted)
    if values:
        return unknown("TF32 is set in the script, but not to a value that allows it for certain")
    if torch.sixteen_bit or script.packages & _FRAMEWORKS:
        return not_applicable("products run in 16 bits, or a framework chooses their precision")
    if not _has_matrix_products(torch):
        return not_applicable("no matrix products are seen in the script")
    if torch.defines_only:
        return unknown("the file runs nothing by itself: TF32 is set where the program starts")
    line = next(
        (n for n in script.tree.body if isinstance(n, ast.Import | ast.ImportFrom)), script.tree.body[0]
    )
    return warns(
        "float32 products in full precision (TF32 is off by default)",
        wanted,
        [f"{wanted}  # after the imports, line {line.lineno}"],
    )


@script_probe("precision.tf32-one-api")
def tf32_one_api(torch: TorchScript) -> Outcome:
    old = [place for name, _, place in torch.script.assigned if name in _OLD_TF32]
    new = [
        place
        for name, _, place in torch.script.assigned
        if name.startswith("torch.backends.") and name.endswith("fp32_precision")
    ]
    wanted = "either allow_tf32 or fp32_precision, not both"
    if old and new:
        return warns(
            "allow_tf32 beside fp32_precision", wanted, ["replace allow_tf32 by fp32_precision = 'tf32'"], old
        )
    if old or new:
        return passes("one of the two interfaces is used", wanted)
    return not_applicable("the script sets neither allow_tf32 nor fp32_precision")


@script_probe("precision.bf16-autocast")
def bf16_autocast(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.trains:
        return not_applicable("the script has no training step")
    wanted = "torch.autocast('cuda', dtype=torch.bfloat16) around forward and loss"
    inside = [c for c in script.calls if c.method == "backward" and script.is_under(c.node, *_AUTOCASTS)]
    if inside:
        return warns(
            "backward() runs under autocast",
            wanted,
            ["move loss.backward() out of the with block"],
            [c.place for c in inside],
        )
    if script.exactly(*_AUTOCASTS):
        return passes("forward runs under autocast", wanted)
    if script.packages & _FRAMEWORKS or script.named("Trainer", "TrainingArguments"):
        return unknown("a framework chooses the precision")
    if torch.sixteen_bit:
        return unknown("16-bit types are used without autocast")
    if not _has_matrix_products(torch):
        return not_applicable("no matrix products are seen in the script")
    backward = [c for c in script.calls if c.method == "backward"]
    return warns("forward and backward run in float32", wanted, places=[c.place for c in backward])


@script_probe("precision.fp16-loss-scaling")
def fp16_loss_scaling(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.trains:
        return not_applicable("the script has no training step")
    if script.packages & _FRAMEWORKS:
        return not_applicable("a framework scales the loss")
    casts = [c for c in script.exactly(*_AUTOCASTS) if _is_cuda_cast(torch, c)]
    kinds = {id(c): _dtype(torch, c) for c in casts}
    half = [c for c in casts if kinds[id(c)] == "float16"]
    scalers = script.exactly(*_SCALERS)
    wanted = "a GradScaler, and unscale_() before clipping"
    clips = [
        c
        for c in script.calls
        if c.method in ("clip_grad_norm_", "clip_grad_value_") and torch.step_around(c.node)
    ]
    if scalers and clips and "unscale_" not in torch.mentions:
        off = [script.read(c.expression("enabled")) for c in scalers]
        if off == [Argument.ABSENT] * len(off) or off == [True] * len(off):
            return fails(
                "gradients are clipped while they are still scaled",
                wanted,
                ["scaler.unscale_(optimizer)  # before clipping"],
                [c.place for c in clips],
            )
    if not half:
        if Argument.UNREADABLE in kinds.values():
            return unknown("autocast's type is decided elsewhere")
        return not_applicable("no float16 autocast in the script")
    if scalers:
        return passes("the loss is scaled", wanted)
    return warns(
        "float16 autocast without a GradScaler: small gradients become 0",
        wanted,
        ["or dtype=torch.bfloat16, which needs no scaling"],
        [c.place for c in half],
    )


def _is_cuda_cast(torch: TorchScript, call: Call) -> bool:
    if call.name == "torch.cuda.amp.autocast":
        return True
    device = torch.script.read(call.expression("device_type", 0))
    return device in ("cuda", Argument.UNREADABLE)


def _dtype(torch: TorchScript, call: Call) -> str | Argument:
    """An autocast's type; float16 where none is given, as on CUDA by default."""
    if {"set_autocast_gpu_dtype", "set_autocast_dtype"} & torch.mentions:
        return Argument.UNREADABLE
    old = call.name == "torch.cuda.amp.autocast"
    enabled = torch.script.read(call.expression("enabled", 0 if old else 2))
    given = call.expression("dtype", 1)
    if enabled not in (Argument.ABSENT, True) or given is Argument.UNREADABLE:
        return Argument.UNREADABLE
    if isinstance(given, Argument):
        on_cuda = old or torch.script.read(call.expression("device_type", 0)) == "cuda"
        return "float16" if on_cuda else Argument.UNREADABLE
    name = torch.script.name_of(torch.script.only_value(given))
    if name in ("torch.float16", "torch.half"):
        return "float16"
    return "bfloat16" if name == "torch.bfloat16" else Argument.UNREADABLE


@script_probe("precision.float64", "anywhere")
def float64(torch: TorchScript) -> Outcome:
    script = torch.script
    wanted = "float32 before it becomes a tensor: torch.as_tensor(a, dtype=torch.float32)"
    if {"set_default_dtype", "set_default_tensor_type"} & torch.mentions:
        return unknown("the script sets its own default type")
    bad = []
    for call in script.exactly("torch.from_numpy", "torch.tensor", "torch.as_tensor"):
        made = script.only_value(call.node.args[0]) if call.node.args else None
        double = (
            isinstance(made, ast.Call)
            and script.name_of(made.func) in _DOUBLES
            and not any(k.arg in ("dtype", None) for k in made.keywords)
        )
        if double and not call.has("dtype") and not _is_cast(torch, call):
            bad.append(call)
    if bad:
        return warns("NumPy's float64 becomes a tensor", wanted, places=[c.place for c in bad])
    if not script.packages & {"numpy"}:
        return not_applicable("the script does not use NumPy")
    return passes("no float64 from NumPy is seen to become a tensor", wanted)


def _is_cast(torch: TorchScript, call: Call) -> bool:
    """Whether the tensor is made float at once, or may be later under its name."""
    outer = torch.script.parents.get(call.node)
    while isinstance(outer, ast.Attribute):
        if outer.attr in _CASTS:
            return True
        called = torch.script.parents.get(outer)
        if not isinstance(called, ast.Call):
            return False
        given = [*called.args, *(k.value for k in called.keywords)]
        if outer.attr == "to" and (
            any(torch.is_dtype(a) for a in given) or any(k.arg is None for k in called.keywords)
        ):
            return True
        outer = torch.script.parents.get(called)
        call_names = torch.script.names_of_result(called)
        if call_names:
            return _is_cast_later(torch, call_names)
    return _is_cast_later(torch, torch.script.names_of_result(call.node))


def _is_cast_later(torch: TorchScript, names: list[str]) -> bool:
    for call in torch.script.calls:
        if call.receiver in names and (
            call.method in _CASTS or (call.method == "to" and any(torch.is_dtype(a) for a in call.node.args))
        ):
            return True
    return False


@probe("precision.inference-weights", about="script")
def inference_weights(system: System) -> Outcome:
    torch = concerned(system, "gpu")
    if isinstance(torch, Outcome):
        return torch
    script = torch.script
    kept = _keeps_stored_type(system)
    if torch.trains or script.named("Trainer", "SFTTrainer"):
        return not_applicable("the script trains")
    loads = [
        c
        for c in script.calls
        if c.method == "from_pretrained"
        and c.name.startswith(("transformers.", "diffusers."))
        and any(word in c.receiver for word in ("Model", "Pipeline", "For"))
    ]
    if not loads:
        return not_applicable("the script loads no pretrained model")
    chosen = ("dtype", "torch_dtype", "quantization_config", "load_in_8bit", "load_in_4bit")
    cast = {"half", "bfloat16", "float16", "quantize_"} & torch.mentions

    def look(call: Call) -> Verdict:
        if any(call.expression(name) is Argument.UNREADABLE for name in chosen):
            return Argument.UNREADABLE
        given = [call.expression(name) for name in chosen if call.expression(name) is not Argument.ABSENT]
        names = [script.name_of(node) for node in given if isinstance(node, ast.AST)]
        if any(name in ("torch.float32", "torch.float") for name in names):
            return "weights are loaded as float32"
        if given or cast or (kept and call.name.startswith("transformers.")):
            return None
        return "no dtype is given: float32, but for transformers from version 5 on"

    return weigh(
        loads,
        look,
        "the type of the weights is chosen",
        "dtype=torch.bfloat16 (torch_dtype= before transformers 4.56)",
    )


def _keeps_stored_type(system: System) -> bool:
    """Whether the transformers that is installed here loads weights in the type in which they are stored."""
    try:
        version = system.packages.get("transformers", "0")
    except Unreadable:
        return False
    major = version.partition(".")[0]
    return major.isdigit() and int(major) >= _STORED_TYPE_SINCE


@script_probe("precision.bf16-weights")
def bf16_weights(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.trains or not torch.optimizers:
        return not_applicable("the script has no training step with an optimizer of torch.optim")
    if (
        script.packages & {"peft", "torchao", "bitsandbytes"}
        or {"MixedPrecisionPolicy", "MixedPrecision"} & torch.mentions
    ):
        return not_applicable("adapters, a sharding policy or another optimizer keep float32")
    casts = [c for c in script.calls if c.receiver in torch.models and _is_bf16(torch, c)]
    trained = {
        (script.name_of(n) or "").removesuffix(".parameters")
        for o in torch.optimizers
        for n in ast.walk(o.node)
        if isinstance(n, ast.Attribute) and n.attr == "parameters"
    }
    bad = [c for c in casts if c.receiver in trained]
    wanted = "float32 weights with bfloat16 autocast"
    if bad:
        return warns(
            "bfloat16 weights are updated with plain rounding",
            wanted,
            ["remove the cast, and use torch.autocast('cuda', dtype=torch.bfloat16)"],
            [c.place for c in bad],
        )
    return passes("the trained weights are not cast to bfloat16", wanted)


def _is_bf16(torch: TorchScript, call: Call) -> bool:
    if call.method == "bfloat16":
        return True
    given = [*call.node.args, *(k.value for k in call.node.keywords)]
    return call.method == "to" and any(torch.script.name_of(n) == "torch.bfloat16" for n in given)


@script_probe("precision.fp16-accumulate")
def fp16_accumulate(torch: TorchScript) -> Outcome:
    name = "torch.backends.cuda.matmul.allow_fp16_accumulation"
    found = [(torch.script.read(v), place) for n, v, place in torch.script.assigned if n == name]
    wanted = "off in training: sums of float16 products in float32"
    on = [place for value, place in found if value is True]
    if on and torch.trains:
        return warns("float16 accumulation in a script that trains", wanted, [f"{name} = False"], on)
    if on or any(value is Argument.UNREADABLE for value, _ in found):
        return unknown("whether float16 accumulation pays depends on the card")
    return passes("float16 products are summed in float32", wanted)
