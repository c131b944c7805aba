"""Probes of a script's data path: loaders, copies to the GPU, tokenising and reading for each sample."""

from __future__ import annotations

import ast

from trackside.machine.doctor.probe import Outcome, fails, not_applicable, passes, unknown, warns
from trackside.machine.doctor.script import Argument, Call
from trackside.machine.doctor.torch_script import TorchScript, Verdict, script_probe, weigh

# Of DataLoader's parameters: dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, …
_DATASET, _NUM_WORKERS, _COLLATE, _PIN_MEMORY = 0, 5, 6, 7
# What PyTorch takes where prefetch_factor is not given and there are workers.
_DEFAULT_PREFETCH = 2
_NO_LOADER = "no DataLoader in the script"
_CPU_COUNTS = frozenset({"os.cpu_count", "multiprocessing.cpu_count", "torch.multiprocessing.cpu_count"})
_POOLS = frozenset({"Pool", "ProcessPoolExecutor", "ThreadPoolExecutor", "set_num_threads", "DataLoader"})


def _calls(torch: TorchScript) -> list[Call]:
    return [loader.call for loader in torch.loaders]


def _workers(torch: TorchScript, call: Call) -> object:
    """Literal number of workers, 0 where none is given, or an `Argument`."""
    value = torch.script.read(call.expression("num_workers", _NUM_WORKERS))
    return 0 if value is Argument.ABSENT else value


def _is_in_memory(torch: TorchScript, call: Call) -> bool:
    """A TensorDataset: slicing it takes no worker."""
    dataset = call.expression("dataset", _DATASET)
    if isinstance(dataset, Argument):
        return False
    value = torch.script.only_value(dataset)
    name = torch.script.name_of(value.func) if isinstance(value, ast.Call) else ""
    return (name or "").endswith("TensorDataset")


@script_probe("storage.num-workers")
def num_workers(torch: TorchScript) -> Outcome:
    if not torch.loaders:
        return not_applicable(_NO_LOADER)
    loaders = [call for call in _calls(torch) if not _is_in_memory(torch, call)]
    if not loaders:
        return not_applicable("its loaders slice tensors in memory")

    def look(call: Call) -> Verdict:
        workers = _workers(torch, call)
        if workers is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return "num_workers is 0: batches are made in the training process" if workers == 0 else None

    return weigh(loaders, look, "every loader has workers", "num_workers above 0")


@script_probe("storage.persistent-workers", "anywhere")
def persistent_workers(torch: TorchScript) -> Outcome:
    if not torch.loaders:
        return not_applicable(_NO_LOADER)
    loaders = [one for one in torch.loaders if _workers(torch, one.call) != 0]
    if not loaders:
        return not_applicable("no loader has worker processes")
    by_call = {id(one.call): one for one in loaders}

    def look(call: Call) -> Verdict:
        persistent = torch.script.read(call.expression("persistent_workers"))
        if persistent is True:
            return None
        if persistent is Argument.UNREADABLE or _workers(torch, call) is Argument.UNREADABLE:
            return Argument.UNREADABLE
        used = torch.uses(by_call[id(call)])
        if not used:
            return Argument.UNREADABLE
        again = any(torch.script.loops_around(node) for node in used)
        return "workers are started anew in each epoch (persistent_workers is not set)" if again else None

    return weigh(
        [one.call for one in loaders],
        look,
        "workers live as long as they are needed",
        "persistent_workers=True where a loader is iterated more than once",
    )


@script_probe("storage.prefetch-depth", "anywhere")
def prefetch_depth(torch: TorchScript) -> Outcome:
    if not torch.loaders:
        return not_applicable(_NO_LOADER)
    loaders = [call for call in _calls(torch) if _workers(torch, call) != 0]
    if not loaders:
        return not_applicable("no loader has worker processes")

    def look(call: Call) -> Verdict:
        depth = torch.script.read(call.expression("prefetch_factor"))
        if depth is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return "prefetch_factor=1: one slow sample empties the queue" if depth == 1 else None

    return weigh(
        loaders,
        look,
        f"at least {_DEFAULT_PREFETCH} batches ahead in each worker",
        f"prefetch_factor of {_DEFAULT_PREFETCH} (the default) or more",
        ["prefetch_factor=4"],
    )


@script_probe("storage.pinned-batches")
def pinned_batches(torch: TorchScript) -> Outcome:
    if not torch.loaders:
        return not_applicable(_NO_LOADER)
    if not any(torch.to_device(call) for call in torch.script.calls):
        return unknown("no copy of a batch to the GPU is seen in the script")

    def look(call: Call) -> Verdict:
        pinned = torch.script.read(call.expression("pin_memory", _PIN_MEMORY))
        # The tensors of a TensorDataset, and what a collate_fn of one's own makes, may be on the GPU already.
        own = call.expression("collate_fn", _COLLATE) is not Argument.ABSENT
        if pinned is Argument.UNREADABLE or (pinned is not True and (own or _is_in_memory(torch, call))):
            return Argument.UNREADABLE
        return None if pinned is True else "pin_memory is not set"

    return weigh(
        _calls(torch),
        look,
        "every loader pins its batches",
        "pin_memory=True",
        unclear="may pin its batches, or have them on the GPU already: that cannot be read here",
    )


@script_probe("pytorch.non-blocking-copies")
def non_blocking_copies(torch: TorchScript) -> Outcome:
    wanted = "non_blocking=True towards the GPU, and none before a read on the CPU"
    early = [c for c in torch.script.calls if c.method in ("numpy", "item", "tolist") and _is_late(torch, c)]
    if early:
        places = [call.place for call in early]
        return fails(f".{early[0].method}() reads a copy that may not have arrived", wanted, places=places)
    if not torch.loaders:
        return not_applicable(_NO_LOADER)
    if not all(_is_pinned(torch, call) for call in _calls(torch)):
        return not_applicable("batches are not in pinned memory, where the copy waits anyway")
    copies = [call for call in torch.script.calls if torch.to_device(call) and _is_of_batch(torch, call)]
    if not copies:
        return unknown("no copy of a batch to the GPU is seen in a loop over a loader")

    def look(call: Call) -> Verdict:
        given = torch.script.read(call.expression("non_blocking", 1 if call.method == "cuda" else 2))
        if given is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return None if given is True else f".{call.method}() of a pinned batch waits for the copy"

    return weigh(copies, look, "batches are copied without waiting", wanted)


def _is_late(torch: TorchScript, call: Call) -> bool:
    """`x.to("cpu", non_blocking=True).numpy()`."""
    inner = call.node.func.value if isinstance(call.node.func, ast.Attribute) else None
    copies = [c for c in torch.script.calls if c.node is inner and c.method == "to"]
    return any(c.value("non_blocking") is True and not torch.to_device(c) for c in copies)


def _is_pinned(torch: TorchScript, call: Call) -> bool:
    return torch.script.read(call.expression("pin_memory", _PIN_MEMORY)) is True


def _is_of_batch(torch: TorchScript, call: Call) -> bool:
    for loop in torch.script.loops_around(call.node):
        if loop in torch.batch_loops and isinstance(loop, ast.For | ast.AsyncFor):
            targets = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            for node in ast.walk(loop):
                # {k: v.to(device) for k, v in batch.items()}
                if isinstance(node, ast.comprehension):
                    names = {n.id for n in ast.walk(node.iter) if isinstance(n, ast.Name)}
                    if names & targets:
                        targets |= {n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)}
            return call.root in targets and "(" not in call.receiver
    return False


@script_probe("pytorch.staging-buffers")
def staging_buffers(torch: TorchScript) -> Outcome:
    pins = [call for call in torch.script.calls if call.method == "pin_memory"]
    bad = [
        call
        for call in pins
        if torch.in_every_step(call.node)
        or any(loop in torch.batch_loops for loop in torch.script.loops_around(call.node))
    ]
    wanted = "buffers that are pinned once, before the loop"
    if bad:
        return warns("pin_memory() for each batch", wanted, places=[call.place for call in bad])
    if not torch.steps and not torch.batch_loops:
        return not_applicable("no loop over batches is seen in the script")
    return passes("nothing is pinned in the loop", wanted)


_MAKERS = frozenset(
    ["zeros", "ones", "rand", "randn", "full", "arange", "empty", "eye", "linspace", "randint", "randperm"]
)


@script_probe("pytorch.create-on-device")
def create_on_device(torch: TorchScript) -> Outcome:
    script = torch.script
    bad = []
    for call in script.calls:
        package, _, maker = call.receiver.rpartition(".")
        if package != "torch" or maker[:-2] not in _MAKERS or not torch.to_device(call):
            continue
        made = next(c for c in script.calls if c.node is getattr(call.node.func, "value", None))
        # A generator on the CPU gives the same numbers on every machine: on purpose.
        if made.has("device") or made.has("generator") or made.has("pin_memory"):
            continue
        function = script.function_around(call.node)
        if call.loops or function in torch.forwards or torch.step_around(call.node):
            bad.append((call, maker[:-2]))
    wanted = "device= where the tensor is made"
    if bad:
        makers = ", ".join(dict.fromkeys(f"torch.{maker}" for _, maker in bad))
        fix = [f"torch.{maker}(..., device=device)" for maker in dict.fromkeys(m for _, m in bad)]
        return warns(f"{makers} on the CPU, then copied", wanted, fix, [call.place for call, _ in bad])
    return passes("no tensor is made on the CPU and moved in a loop or in forward", wanted)


@script_probe("pytorch.cpu-indices")
def constants_in_the_step(torch: TorchScript) -> Outcome:
    script = torch.script
    bad = []
    for call in script.exactly("torch.tensor", "torch.as_tensor"):
        outer = script.parents.get(script.parents.get(call.node, call.node))
        moved = [c for c in script.calls if c.node is outer and torch.to_device(c)]
        device = call.expression("device")
        there = (not isinstance(device, Argument) and not torch.is_cpu(device)) or moved
        if not there or not call.node.args or _is_open(call.node.args[0]):
            continue
        if script.function_around(call.node) in torch.forwards or torch.in_every_step(call.node):
            bad.append(call)
    wanted = "constants that are put on the GPU once, as buffers"
    if bad:
        return warns(
            "a constant is copied to the GPU in each step", wanted, places=[call.place for call in bad]
        )
    if not torch.forwards and not torch.steps:
        return not_applicable("no forward and no training step is seen in the script")
    return passes("no constant is copied in forward or in the step", wanted)


def _is_open(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return True
    return False


@script_probe("storage.mapped-tokens", "anywhere")
def tokenising(torch: TorchScript) -> Outcome:
    script = torch.script
    collators = {
        script.name_of(k.value) for c in _calls(torch) for k in c.node.keywords if k.arg == "collate_fn"
    }
    bad = []
    readers = 0
    for node in script.nodes:
        if isinstance(node, ast.FunctionDef) and (node.name == "__getitem__" or node.name in collators):
            readers += 1
            inside = set(ast.walk(node))
            bad += [c for c in script.calls if c.node in inside and _tokenises(c)]
    if not readers:
        return not_applicable("no __getitem__ and no collate_fn in the script")

    def look(call: Call) -> Verdict:
        return (
            "json.loads for each sample"
            if call.name == "json.loads"
            else "the tokenizer runs for each sample"
        )

    return weigh(
        bad, look, "samples are not tokenised when they are read", "token ids that are made once and mapped"
    )


def _tokenises(call: Call) -> bool:
    names = call.name.split(".")
    if call.name == "json.loads":
        return True
    if names[-1] in ("tokenizer", "tokeniser", "encode", "encode_plus", "batch_encode_plus", "__call__"):
        return any(name in ("tokenizer", "tokeniser") for name in names)
    return False


@script_probe("storage.shuffled-datasets", "anywhere")
def shuffled_datasets(torch: TorchScript) -> Outcome:
    script = torch.script
    sources = script.exactly("datasets.load_dataset", "datasets.load_from_disk")
    if not sources:
        return not_applicable("no Hugging Face dataset in the script")
    names = {name for call in sources for name in script.names_of_result(call.node)}
    heads = tuple(f"{call.name}()" for call in sources)
    streams = any(script.read(c.expression("streaming")) is not Argument.ABSENT for c in sources)
    shuffles = [
        c
        for c in script.calls
        if c.method == "shuffle"
        and (c.root in names or c.name.startswith(heads))
        and ".to_iterable" not in c.name
    ]

    def look(call: Call) -> Verdict:
        if streams:
            return Argument.UNREADABLE
        # A few rows of a shuffled set are cheap to look up.
        rewritten = {"flatten_indices", "to_iterable_dataset", "select", "train_test_split"} & torch.mentions
        return None if rewritten else "shuffle() makes every later read a random one"

    return weigh(
        shuffles,
        look,
        "no dataset is read through a shuffled index",
        "flatten_indices() after shuffle(), or an iterable dataset with a shuffle buffer",
    )


@script_probe("storage.parquet", "anywhere")
def parquet(torch: TorchScript) -> Outcome:
    script = torch.script
    reads = script.exactly("pandas.read_parquet", "pyarrow.parquet.read_table", "polars.read_parquet")
    if not reads:
        return not_applicable("the script reads no Parquet file")

    def look(call: Call) -> Verdict:
        function = script.function_around(call.node)
        for_each = call.loops > 0 or (function is not None and function.name == "__getitem__")
        if not for_each or call.expression("columns") is not Argument.ABSENT:
            return None
        return f"{call.method} reads all columns each time"

    return weigh(
        reads,
        look,
        "columns are named, or the file is read once",
        "columns=[...] where files are read again and again",
    )


@script_probe("storage.object-ranges", "anywhere")
def object_ranges(torch: TorchScript) -> Outcome:
    script = torch.script
    if not script.packages & {"boto3", "botocore"}:
        return not_applicable("the script does not read from S3 by itself")

    def look(call: Call) -> Verdict:
        function = script.function_around(call.node)
        for_each = call.loops > 0 or (function is not None and function.name == "__getitem__")
        return "objects are read one after the other, each with one request" if for_each else None

    reads = [c for c in script.calls if c.method == "read" and c.receiver.endswith("get_object()[]")]
    return weigh(reads, look, "no object is read whole in a loop", "many range requests at a time")


@script_probe("storage.safetensors", "anywhere")
def safetensors(torch: TorchScript) -> Outcome:
    loads = [c for c in torch.script.calls if c.method == "from_pretrained" and c.has("use_safetensors")]
    if not loads:
        reads = torch.script.exactly("safetensors.torch.load_file", "safetensors.safe_open")
        if reads:
            return passes("weights are read as safetensors")
        return not_applicable("the script does not choose a format of weights")

    def look(call: Call) -> Verdict:
        chosen = torch.script.read(call.expression("use_safetensors"))
        if chosen is Argument.UNREADABLE:
            return Argument.UNREADABLE
        return "use_safetensors=False: weights are unpickled" if chosen is False else None

    return weigh(loads, look, "weights are read as safetensors", "use_safetensors=True")


@script_probe("memory.load-mmap", "anywhere")
def load_mmap(torch: TorchScript) -> Outcome:
    script = torch.script
    loads = script.exactly("torch.load")
    if not loads:
        return not_applicable("the script has no torch.load")
    ranks = bool({"init_process_group", "DistributedDataParallel", "fully_shard"} & torch.mentions)

    def look(call: Call) -> Verdict:
        mapped = script.read(call.expression("mmap"))
        if mapped is True:
            return None
        device = call.expression("map_location", 1)
        if mapped is Argument.UNREADABLE or device is Argument.UNREADABLE:
            return Argument.UNREADABLE
        if device is Argument.ABSENT:
            return "torch.load without map_location and mmap: back to the GPU it was saved from"
        return "torch.load without mmap: one copy in each rank" if ranks else None

    return weigh(
        loads,
        look,
        "files are mapped, or loaded once to a chosen device",
        "mmap=True and a map_location",
        ["torch.load(path, mmap=True, map_location='cpu', weights_only=True)"],
    )


@script_probe("cpu-numa.visible-cpus", "anywhere")
def visible_cpus(torch: TorchScript) -> Outcome:
    script = torch.script
    users = [c for c in script.calls if c.method in _POOLS]
    if not users:
        return not_applicable("the script starts no workers and sets no threads")
    bad = []
    for call in users:
        for given in [*call.node.args, *(k.value for k in call.node.keywords)]:
            value = script.only_value(given)
            calls = {script.name_of(n.func) for n in ast.walk(value) if isinstance(n, ast.Call)}
            if calls & _CPU_COUNTS and not calls & {"min"}:
                bad.append(call)
    wanted = "a number from the CPUs that the job may use: len(os.sched_getaffinity(0))"
    if bad:
        methods = ", ".join(dict.fromkeys(call.method for call in bad))
        return warns(f"{methods} takes the CPUs of the whole host", wanted, places=[c.place for c in bad])
    return passes("no number of workers is taken from the host's CPUs", wanted)


@script_probe("cpu-numa.worker-library-threads", "anywhere")
def library_threads(torch: TorchScript) -> Outcome:
    script = torch.script
    reading = [
        c
        for c in script.calls
        if c.name.startswith("cv2.")
        and (function := script.function_around(c.node)) is not None
        and function.name == "__getitem__"
    ]
    workers = [_workers(torch, call) for call in _calls(torch)]
    if not reading or not workers or set(workers) == {0}:
        return not_applicable("no OpenCV in the workers of a loader")
    if Argument.UNREADABLE in workers:
        return unknown("num_workers is decided elsewhere")
    threads = script.exactly("cv2.setNumThreads")
    wanted = "cv2.setNumThreads(0) in the workers"
    if threads:
        return passes("cv2.setNumThreads is called", wanted)
    return warns("OpenCV keeps one thread a core in each worker", wanted, places=[c.place for c in reading])
