"""What a script's syntax tells, and the alarms that probes of scripts must not raise."""

import ast
import json
from pathlib import Path

import pytest

from trackside.machine.doctor.probe import Outcome, examine, probes
from trackside.machine.doctor.script import Argument, Call, Script, read_script
from trackside.machine.doctor.system import System
from trackside.machine.doctor.torch_script import TorchScript
from trackside.records.errors import TracksideError

SCRIPT_PROBES = [one for one in probes() if one.about == "script"]


def script_of(text: str) -> Script:
    return Script(Path("train.py"), ast.parse(text))


def call_of(text: str, name: str) -> Call:
    (call,) = [c for c in script_of(text).calls if c.name == name]
    return call


def outcomes(text: str) -> dict[str, Outcome]:
    findings = examine(System(Path("/nowhere"), script=script_of(text)), SCRIPT_PROBES)
    return {finding.item.id: finding.outcome for finding in findings}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("from torch.utils.data import DataLoader as DL\nDL([])", "torch.utils.data.DataLoader"),
        ("import torch.nn.functional as F\nF.softmax(x)", "torch.nn.functional.softmax"),
        ("import torch\ntorch.zeros(3).cuda()", "torch.zeros().cuda"),
        ("batch['x'].to(device)", "batch[].to"),
        ("(q @ k).softmax(-1)", "?.softmax"),
    ],
)
def test_a_call_is_named_by_what_its_imports_stand_for(text: str, name: str) -> None:
    assert name in [call.name for call in script_of(text).calls]


def test_a_star_import_is_looked_through() -> None:
    script = script_of("from torch.utils.data import *\nDataLoader([])\nother.DataLoader([])")
    assert [call.place for call in script.exactly("torch.utils.data.DataLoader")] == ["train.py:2"]


def test_what_a_loop_runs_over_is_not_in_the_loop() -> None:
    script = script_of("for x in first():\n    second()\nwhile third():\n    pass\nelse:\n    fourth()\n")
    assert {call.name: call.loops for call in script.calls} == {
        "first": 0,
        "second": 1,
        "third": 1,
        "fourth": 0,
    }


def test_a_function_in_a_loop_begins_anew() -> None:
    assert call_of("for x in y:\n    def inner():\n        work()\n", "work").loops == 0


@pytest.mark.parametrize(
    ("body", "conditional"),
    [
        ("work()", False),
        ("if x % 50 == 0: work()", True),
        ("if work(): pass", False),
        ("y = work() if x else 0", True),
        ("x and work()", True),
        ("work() and x", False),
        ("if x % 50: continue\n    work()", True),
        ("if x > 9: break\n    work()", False),
        ("try: pass\n    except ValueError: work()", True),
        ("try: pass\n    finally: work()", False),
    ],
)
def test_a_condition_between_a_call_and_its_loop_is_seen(body: str, conditional: bool) -> None:
    script = script_of(f"for x in y:\n    {body}\n")
    (call,) = script.named("work")
    assert script.is_conditional(call.node, script.loops_around(call.node)[0]) is conditional


def test_the_main_guard_is_no_condition() -> None:
    script = script_of("if __name__ == '__main__':\n    work()\n")
    assert not script.is_conditional(script.calls[0].node)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f(1, b=2)", 2),
        ("f(1, 2)", 2),
        ("f(1)", Argument.ABSENT),
        ("f(1, **options)", Argument.UNREADABLE),
        ("f(*everything)", Argument.UNREADABLE),
        ("f(b=args.b)", Argument.UNREADABLE),
        ("B = 2\nf(b=B)", 2),
        ("B = 2\nB = 3\nf(b=B)", Argument.UNREADABLE),
        ("B = 2\ndef g(B): pass\nf(b=B)", Argument.UNREADABLE),
        ("A, B = 1, 2\nf(b=B)", 2),
    ],
)
def test_an_argument_is_read_or_said_to_be_unreadable(text: str, value: object) -> None:
    script = script_of(text)
    (call,) = script.exactly("f")
    assert script.read(call.expression("b", 1)) == value


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = f()", ["a"]),
        ("self.a = b = f()", ["self.a", "b"]),
        ("x, a = 1, f()", ["a"]),
        ("g(f())", []),
        ("if (a := f()): pass", ["a"]),
    ],
)
def test_a_result_is_known_by_its_names(text: str, names: list[str]) -> None:
    script = script_of(text)
    (call,) = script.exactly("f")
    assert script.names_of_result(call.node) == names


def test_a_decorator_and_a_with_block_are_contexts() -> None:
    text = "import torch\n@torch.no_grad()\ndef a(): f()\ndef b():\n    with torch.no_grad(): f()\n    f()\n"
    script = script_of(text)
    assert [script.is_under(c.node, "torch.no_grad") for c in script.exactly("f")] == [True, True, False]


def test_a_file_that_is_no_python_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text("x = 1\nprint 'x'\n")
    with pytest.raises(TracksideError, match=r"old\.py line 2 is no Python"):
        read_script(path)
    with pytest.raises(TracksideError, match="cannot read"):
        read_script(tmp_path / "missing.py")


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("model.to('cuda')", True),
        ("model.to(f'cuda:{rank}')", True),
        ("x.cuda()", True),
        ("from accelerate import Accelerator", True),
        ("AutoModel.from_pretrained('m', device_map='auto')", True),
        ("model.to(args.device)", None),
        ("device = torch.device('cpu')\nmodel.to(device)", False),
        ("print(torch.cuda.is_available())", False),
        ("x.to(torch.float16)", False),
        ("def f(x):\n    return x", None),
    ],
)
def test_whether_a_script_uses_a_gpu(text: str, gpu: bool | None) -> None:
    assert TorchScript(script_of(f"import torch\n{text}")).gpu is gpu


def test_a_script_without_pytorch_concerns_no_probe() -> None:
    found = outcomes("import numpy as np\nfor x in range(3):\n    print(np.ones(x).item())\n")
    assert {outcome.status for outcome in found.values()} == {"not_applicable"}


def test_a_training_loop_on_the_cpu_raises_no_alarm_of_gpus() -> None:
    text = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(10, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x in DataLoader(list(range(10))):
        loss = model(x.float()).sum()
        loss.backward()
        print(loss.item())
        optimizer.step()
"""
    assert {o.status for o in outcomes(text).values()} <= {"not_applicable", "pass", "unknown"}


GOOD_SCRIPT = """
import os, sys, time
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, 12, d // 12).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(b, t, d))
class Net(nn.Module):
    def __init__(self, d=768):
        super().__init__()
        self.blocks = nn.ModuleList(Block(d) for _ in range(12))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    total = torch.zeros((), device=device)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        total += F.mse_loss(model(x), y)
    model.train()
    return total.item() / len(loader)
def main():
    torch.set_float32_matmul_precision("high")
    if "--debug" in sys.argv:
        torch.autograd.set_detect_anomaly(True)
    torch.distributed.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", rank)
    model = Net().to(device)
    compiled = torch.compile(DDP(model, device_ids=[rank], gradient_as_bucket_view=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    data = make_data()
    sampler = DistributedSampler(data)
    options = dict(num_workers=8, pin_memory=True, persistent_workers=True)
    loader = DataLoader(data, batch_size=8, sampler=sampler, **options)
    running = torch.zeros((), device=device)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        start = time.perf_counter()
        for step, (x, y) in enumerate(loader):
            x = x.to(device, non_blocking=True)
            y = y.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.mse_loss(compiled(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            running += loss.detach()
            if step % 50 == 0:
                print(step, len(loader), running.item() / 50)
                running.zero_()
            if step % 1000 == 0 and rank == 0:
                torch.save(model.state_dict(), "model.pt")
        print(time.perf_counter() - start, evaluate(model, loader, device))
if __name__ == "__main__":
    main()
"""


def test_a_script_that_does_everything_right_raises_no_alarm() -> None:
    alarms = {name: o.found for name, o in outcomes(GOOD_SCRIPT).items() if o.status in ("warn", "fail")}
    assert alarms == {}


# Each: what tempts a probe to an alarm, and what it says instead.
@pytest.mark.parametrize(
    ("item", "status", "text"),
    [
        ("storage.num-workers", "unknown", "DataLoader(files, **options)"),
        ("storage.num-workers", "unknown", "DataLoader(files, num_workers=args.workers)"),
        ("storage.num-workers", "not_applicable", "DataLoader(TensorDataset(x, y), 8)"),
        ("storage.num-workers", "not_applicable", "from mine import DataLoader\nDataLoader(files)"),
        ("storage.pinned-batches", "unknown", "DataLoader(files, pin_memory=device == 'cuda')"),
        (
            "storage.persistent-workers",
            "pass",
            "loader = DataLoader(files, num_workers=2)\nfor i, x in enumerate(loader): print(len(loader))",
        ),
        ("pytorch.non-blocking-copies", "not_applicable", "for x in DataLoader(files): x = x.cuda()"),
        ("training.fused-optimizer", "unknown", "torch.optim.AdamW(params, **extra)"),
        ("training.fused-optimizer", "not_applicable", "torch.optim.LBFGS(params)"),
        ("training.zero-grad", "unknown", "loss.backward()\noptimizer.zero_grad(set_to_none=flag)"),
        (
            "training.zero-grad",
            "not_applicable",
            "g = torch.cuda.CUDAGraph()\nloss.backward()\noptimizer.zero_grad(set_to_none=False)",
        ),
        (
            "training.logging-sync",
            "pass",
            "for i, (x, n) in enumerate(loader):\n    n.item()\n    loss.backward()\nprint(loss.item())",
        ),
        ("training.determinism", "unknown", "torch.use_deterministic_algorithms(args.strict)"),
        (
            "memory.graph-references",
            "pass",
            "for x in y:\n    loss = 0\n    loss += f(x)\n    loss.backward()",
        ),
        (
            "memory.empty-cache",
            "pass",
            "for n in names:\n    m = A.from_pretrained(n)\n    m.generate(x)\n    torch.cuda.empty_cache()",
        ),
        ("precision.tf32-matmul", "not_applicable", "nn.Linear(8, 8)\nwith torch.autocast('cuda'): pass"),
        ("precision.tf32-matmul", "unknown", "torch.set_float32_matmul_precision('highest')"),
        (
            "precision.fp16-loss-scaling",
            "unknown",
            "with torch.autocast('cuda', dtype=kind): loss = f()\nloss.backward()",
        ),
        (
            "precision.fp16-loss-scaling",
            "not_applicable",
            "with torch.autocast('cuda', dtype=torch.bfloat16): loss = f()\nloss.backward()",
        ),
        ("precision.bf16-autocast", "unknown", "from accelerate import Accelerator\nloss.backward()"),
        (
            "attention.causal-flag",
            "unknown",
            "m = torch.tril(torch.ones(3, 3)) * pad\nF.scaled_dot_product_attention(q, k, v, attn_mask=m)",
        ),
        ("attention.dropout", "unknown", "F.scaled_dot_product_attention(q, k, v, dropout_p=self.p)"),
        (
            "attention.use-sdpa",
            "pass",
            "def attend(q, k, v):\n    if fast: return F.scaled_dot_product_attention(q, k, v)\n"
            "    return torch.softmax(q @ k.mT, -1) @ v",
        ),
        (
            "attention.use-sdpa",
            "not_applicable",
            "def talk(q, k, v):\n    a = q @ k.mT\n    a = mix(a)\n    a = a.softmax(-1)\n    return a @ v",
        ),
        (
            "attention.use-sdpa",
            "not_applicable",
            "def channels(q, k, v):\n    a = (q.mT @ k).softmax(-1)\n    return a @ v.mT",
        ),
        (
            "training.packing",
            "unknown",
            "loss.backward()\nif tpu: tokenizer.pad(rows, padding='max_length')",
        ),
        (
            "pytorch.inference-mode",
            "not_applicable",
            "class Net(Base):\n    def head(self, x):\n        self.last.eval()\n        return self.last(x)",
        ),
        ("pytorch.channels-last", "not_applicable", "net = torch.compile(nn.Conv2d(3, 8, 3).half())"),
        (
            "training.clip-foreach",
            "pass",
            "if npu: clip_grad_norm_(p, 1.0, foreach=False)\nelse: clip_grad_norm_(p, 1.0)",
        ),
        (
            "pytorch.inference-mode",
            "pass",
            "net.eval()\n@smart_inference_mode()\ndef answer(x): return net(x)",
        ),
        ("distributed.ddp-gradient-views", "unknown", "nn.parallel.DistributedDataParallel(m, **ddp)"),
        ("measurement.synchronise", "not_applicable", "t = time.time()\nload()\nprint(time.time() - t)"),
        (
            "measurement.synchronise",
            "pass",
            "t = time.time()\nnet.train()\nnet(x)\nd.item()\ns = time.time() - t",
        ),
        (
            "pytorch.inference-mode",
            "unknown",
            "net.eval()\nx.requires_grad = True\ntorch.autograd.grad(net(x).sum(), x)",
        ),
    ],
)
def test_what_is_not_known_raises_no_alarm(item: str, status: str, text: str) -> None:
    head = """import time
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.ones(3).cuda()
"""
    outcome = outcomes(head + text)[item]
    assert outcome.status == status, outcome


@pytest.mark.parametrize(("version", "status"), [("4.57.1", "warn"), ("5.2.0", "pass")])
def test_weights_of_newer_transformers_keep_their_type(tmp_path: Path, version: str, status: str) -> None:
    (tmp_path / "python.json").write_text(json.dumps({"packages": {"transformers": version}}))
    text = "from transformers import AutoModel\nmodel = AutoModel.from_pretrained('some/model').cuda()"
    (one,) = [p for p in SCRIPT_PROBES if p.item == "precision.inference-weights"]
    (finding,) = examine(System(tmp_path, script=script_of(text)), [one])
    assert finding.outcome.status == status


def test_no_probe_fails_on_odd_but_valid_python() -> None:
    text = """
import torch
from torch import *
from . import local
torch.nn.Linear()(*a, **b)[0]().cuda()
(lambda: 0)().to(*x)
async def f():
    async for x in y:
        async with z as (p, *q):
            (await x).backward()
match x:
    case {"a": b, **rest}:
        [b, *rest] = rest
DataLoader = torch.utils.data.DataLoader
DataLoader()
torch.utils.data.DataLoader()
torch.optim.SGD()
torch.load()
torch.autocast()
nn.functional.scaled_dot_product_attention()
x: int
global_value = other = x.y[0].z = torch.compile()
del x, global_value
"""
    odd = {k: o.found for k, o in outcomes(text).items() if "could not read what it found" in o.found}
    assert odd == {}
