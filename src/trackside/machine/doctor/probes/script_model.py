"""Probes of how a script builds and calls its model: layout, layers, shapes, loops, streams, engines."""

from __future__ import annotations

import ast

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, unknown, warns
from trackside.machine.doctor.script import Argument, Call
from trackside.machine.doctor.torch_script import TorchScript, Verdict, script_probe, weigh

_CONVOLUTIONS = ("torch.nn.Conv2d", "torch.nn.ConvTranspose2d")
_CONVOLUTIONAL = (
    "resnet",
    "resnext",
    "wide_resnet",
    "densenet",
    "efficientnet",
    "mobilenet",
    "regnet",
    "vgg",
    "convnext",
)
_FIXED_SIZE = ("RandomResizedCrop", "CenterCrop", "RandomCrop")
_SHAPED = frozenset({"torch.nonzero", "torch.masked_select", "torch.unique", "torch.argwhere"})
# Elements: below this a badly aligned product is too small to matter.
_LARGE_LAYER, _ALIGNED = 1_000, 8


def _convolutions(torch: TorchScript) -> list[Call]:
    models = [
        c
        for c in torch.script.calls
        if c.name.startswith("torchvision.models.") and c.method.startswith(_CONVOLUTIONAL)
    ]
    return torch.script.exactly(*_CONVOLUTIONS) + models


@script_probe("pytorch.channels-last")
def channels_last(torch: TorchScript) -> Outcome:
    convolutions = _convolutions(torch)
    if not convolutions:
        return not_applicable("no two-dimensional convolutions are seen in the script")
    if not torch.sixteen_bit:
        return not_applicable("convolutions do not run in 16 bits")
    if torch.compiles:
        return not_applicable("torch.compile chooses the layout of convolutions")
    wanted = "model and input in torch.channels_last"
    if "channels_last" in torch.mentions:
        return passes("channels_last is used", wanted)
    return warns("16-bit convolutions in NCHW layout", wanted, places=[convolutions[0].place])


@script_probe("pytorch.cudnn-benchmark")
def cudnn_benchmark(torch: TorchScript) -> Outcome:
    script = torch.script
    convolutions = _convolutions(torch)
    if not convolutions:
        return not_applicable("no two-dimensional convolutions are seen in the script")
    wanted = "torch.backends.cudnn.benchmark = True where sizes repeat"
    settings = [script.read(v) for n, v, _ in script.assigned if n == "torch.backends.cudnn.benchmark"]
    if settings == [True] * len(settings) and settings:
        return passes("cudnn.benchmark is on", wanted)
    fixed = script.named(*_FIXED_SIZE)
    if settings or not fixed:
        return unknown("cudnn.benchmark is off, and whether image sizes repeat is not seen in the script")
    if "max-autotune" in torch.mentions:
        return not_applicable("torch.compile times convolutions itself")
    return warns(
        "cudnn.benchmark is off (default) with images of one size",
        wanted,
        ["torch.backends.cudnn.benchmark = True"],
        [fixed[0].place],
    )


@script_probe("kernels.tensor-core-alignment", "perhaps")
def alignment(torch: TorchScript) -> Outcome:
    script = torch.script
    layers = script.exactly("torch.nn.Linear")
    if not layers:
        return not_applicable("no nn.Linear in the script")

    def look(call: Call) -> Verdict:
        sizes = [script.read(call.expression(n, i)) for i, n in enumerate(("in_features", "out_features"))]
        odd = [n for n in sizes if isinstance(n, int) and n >= _LARGE_LAYER and n % _ALIGNED]
        if odd:
            return f"{odd[0]:,} features are no multiple of {_ALIGNED}"
        return None if all(isinstance(n, int) for n in sizes) else Argument.UNREADABLE

    return weigh(
        layers,
        look,
        f"large layers are multiples of {_ALIGNED}",
        f"sizes that are multiples of {_ALIGNED}, better of 64",
        ["pad the size up to a multiple of 64: -(-n // 64) * 64"],
    )


@script_probe("pytorch.data-dependent-shapes", "perhaps")
def data_dependent_shapes(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.forwards and not torch.steps:
        return not_applicable("no forward and no training step is seen in the script")
    bad: list[tuple[int, str, str]] = []

    def is_hot(node: ast.AST) -> bool:
        if script.function_around(node) in torch.forwards:
            return not script.is_conditional(node)
        return torch.in_every_step(node)

    for call in script.calls:
        single = call.name == "torch.where" and len(call.node.args) == 1 and not call.node.keywords
        method = "." in call.name and not call.name.startswith(("numpy.", "torch.", "pandas."))
        shaped = call.name in _SHAPED or single or (method and call.method in ("nonzero", "masked_select"))
        if shaped and is_hot(call.node):
            bad.append((call.node.lineno, f"{call.method}()", call.place))
    for node in script.nodes:
        by_condition = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Compare)
        read = by_condition and isinstance(node.ctx, ast.Load)  # type: ignore[attr-defined]
        # Outside of forward it may be a table of pandas.
        if read and script.function_around(node) in torch.forwards and is_hot(node):
            bad.append((getattr(node, "lineno", 0), "an index by a condition", script.place(node)))
    wanted = "fixed shapes: masks, torch.where with three arguments, nonzero_static"
    if bad:
        bad.sort()
        texts = ", ".join(dict.fromkeys(text for _, text, _ in bad))
        return warns(
            f"{texts}: the host waits for the size", wanted, places=list(dict.fromkeys(p for *_, p in bad))
        )
    return passes("no shape in forward or in the step depends on data", wanted)


@script_probe("pytorch.python-loops", "perhaps")
def python_loops(torch: TorchScript) -> Outcome:
    script = torch.script
    if not torch.forwards:
        return not_applicable("no forward is seen in the script")
    bad = []
    for function in torch.forwards:
        sizes = _batch_sizes(torch, function)
        for loop in ast.walk(function):
            if (
                not isinstance(loop, ast.For)
                or not isinstance(loop.iter, ast.Call)
                or not isinstance(loop.target, ast.Name)
            ):
                continue
            if script.name_of(loop.iter.func) != "range" or len(loop.iter.args) != 1:
                continue
            stop = loop.iter.args[0]
            over_batch = _is_first_size(torch, stop) or (isinstance(stop, ast.Name) and stop.id in sizes)
            indexed = any(
                isinstance(n, ast.Subscript)
                and any(isinstance(m, ast.Name) and m.id == loop.target.id for m in ast.walk(n.slice))
                for n in ast.walk(loop)
            )
            if over_batch and indexed and not _carries(loop) and not _is_ragged(torch, loop):
                bad.append(loop)
    wanted = "one operation over the whole batch"
    if bad:
        return warns(
            "a Python loop over the elements of a batch", wanted, places=[script.place(n) for n in bad]
        )
    return passes("no loop over the elements of a batch in forward", wanted)


def _is_first_size(torch: TorchScript, node: ast.AST) -> bool:
    """`x.shape[0]`, `x.size(0)`."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute):
        return node.value.attr == "shape" and torch.script.read(node.slice) == 0
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        return node.func.attr == "size" and torch.script.read(node.args[0]) == 0
    return False


def _batch_sizes(torch: TorchScript, function: ast.AST) -> set[str]:
    """Names of the first size: `b = x.shape[0]`, `b, t, c = x.shape`."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Name) and _is_first_size(torch, value):
                found.add(target.id)
            whole = isinstance(value, ast.Attribute) and value.attr == "shape"
            if isinstance(target, ast.Tuple) and isinstance(target.elts[0], ast.Name) and whole:
                found.add(target.elts[0].id)
    return found


def _carries(loop: ast.For) -> bool:
    """Whether one pass needs what the one before it made, as in a recurrent network."""
    written: set[str] = set()
    early: set[str] = set()
    for statement in loop.body:
        early |= {
            n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
        } - written
        written |= {
            n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        if isinstance(statement, ast.AugAssign):
            early |= {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)}
    return bool(early & written)


def _is_ragged(torch: TorchScript, loop: ast.For) -> bool:
    """Whether the elements differ in size, as `x[i, : lengths[i]]` shows: no one operation does that."""
    cuts = [n for n in ast.walk(loop) if isinstance(n, ast.Slice) and (n.lower or n.upper)]
    inside = set(ast.walk(loop))
    return bool(cuts) or any(c.node in inside and c.method.endswith("nms") for c in torch.script.calls)


@script_probe("pytorch.inference-mode", "anywhere")
def inference_mode(torch: TorchScript) -> Outcome:
    script = torch.script
    if torch.trains or torch.optimizers or script.named("Trainer", "SFTTrainer", "fit"):
        return not_applicable("the script trains")
    if {"set_grad_enabled", "requires_grad_", "requires_grad", "grad"} & torch.mentions:
        return unknown("the script deals with gradients in another way")
    # Inside of a class with a base, `self.head(x)` is most often a part of a model.
    classes = [n for n in script.nodes if isinstance(n, ast.ClassDef) and n.bases]
    inner = {id(n) for one in classes for n in ast.walk(one)}
    runs = [c for c in script.calls if c.name in torch.models and id(c.node) not in inner]
    if not runs:
        return not_applicable("no call of a model is seen in the script")
    wanted = "model.eval() and torch.inference_mode() around the calls"
    bad = [c for c in runs if not torch.without_grad(c.node)]
    if bad:
        return warns(
            "the model is called with autograd on",
            wanted,
            ["with torch.inference_mode(): out = model(x)"],
            [c.place for c in bad],
        )
    loaded = [
        c for c in script.calls if c.method == "load_state_dict" and c.receiver in {r.name for r in runs}
    ]
    evaluates = any(c.method == "eval" and "." in c.name for c in script.calls)
    switched = any(
        c.method == "train" and script.read(c.expression("mode", 0)) is False for c in script.calls
    )
    if loaded and not evaluates and not switched:
        return fails(
            "the model is in training mode (eval() is never called)",
            wanted,
            ["model.eval()"],
            [runs[0].place],
        )
    return passes("models are called without autograd", wanted)


@script_probe("pytorch.streams")
def streams(torch: TorchScript) -> Outcome:
    script = torch.script
    sides = script.exactly("torch.cuda.stream")
    if not sides:
        return not_applicable("the script uses no stream of its own")
    wanted = "wait_stream() before the other stream's results are used"
    orders = {"wait_stream", "wait_event", "synchronize", "record_event", "query"} & torch.mentions
    if orders:
        return passes(f"streams are ordered ({', '.join(sorted(orders))})", wanted)
    return fails("work on another stream, and nothing waits for it", wanted, places=[c.place for c in sides])


@script_probe("serving.cuda-graph-sizes")
def engine_graphs(torch: TorchScript) -> Outcome:
    engines = torch.script.exactly("vllm.LLM", "vllm.EngineArgs", "vllm.AsyncEngineArgs")
    if not engines:
        return not_applicable("the script starts no vLLM engine")

    def look(call: Call) -> Verdict:
        eager = torch.script.read(call.expression("enforce_eager"))
        if eager is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return "enforce_eager=True: no CUDA graphs" if eager is True else None

    return weigh(
        engines,
        look,
        "CUDA graphs are on",
        "enforce_eager=False (the default)",
        ["remove enforce_eager=True"],
    )


@script_probe("kv-cache.prefix-caching")
def prefix_caching(torch: TorchScript) -> Outcome:
    engines = torch.script.exactly("vllm.LLM", "vllm.EngineArgs", "vllm.AsyncEngineArgs")
    if not engines:
        return not_applicable("the script starts no vLLM engine")

    def look(call: Call) -> Verdict:
        caching = torch.script.read(call.expression("enable_prefix_caching"))
        if caching is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return "enable_prefix_caching=False" if caching is False else None

    return weigh(
        engines,
        look,
        "prefix caching is on",
        "enable_prefix_caching=True (the default)",
        ["remove enable_prefix_caching=False"],
    )


@script_probe("serving.offline-batches")
def offline_batches(torch: TorchScript) -> Outcome:
    script = torch.script
    names = {n for c in script.exactly("vllm.LLM") for n in script.names_of_result(c.node)}
    calls = [c for c in script.calls if c.method in ("generate", "chat") and c.receiver in names]
    if not calls:
        return not_applicable("the script generates nothing with vLLM's offline engine")

    def look(call: Call) -> Verdict:
        prompts = call.expression("prompts", 0)
        one = (isinstance(prompts, ast.List) and len(prompts.elts) == 1) or isinstance(prompts, ast.JoinedStr)
        loops = [loop for loop in script.loops_around(call.node) if isinstance(loop, ast.For)]
        return "one prompt at a time: the engine cannot batch" if one and loops else None

    return weigh(
        calls,
        look,
        "prompts are not sent one by one",
        "all prompts in one call of generate",
        ["outputs = llm.generate(prompts, params)"],
    )
