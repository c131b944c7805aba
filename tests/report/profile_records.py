"""Records of `profile` to render: a CPU program, an empty, a failed, a hostile and a large one."""

from __future__ import annotations

import random

from tests.report.training_record import gpu_training

from trackside.records.profile import ProfileRecord

__all__ = ["HOSTILE", "cpu_program", "failed", "gpu_training", "hostile", "large", "nothing", "ranks"]

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg/onload=alert(3)>",
    "\u202egnp.exe\u2066 bidi",
    "control \x00\x07\x1b[31m\u2028\u2029 ends",
    "javascript:alert(4)",
    "k" * 10_000,
    "a very long name with blanks " * 300,
    "&lt;b&gt; &amp; ]]> <!-- -->",
    "__proto__",
    "constructor",
    "emoji 🏎️ and 漢字 and \U0010ffff",
)


def ranks(count: int = 8, late: int = 3) -> ProfileRecord:
    """A training run of several ranks, one of which works longer; the last was killed."""
    step = 212.0
    rows = []
    for number in range(count):
        work = 180.0 if number == late else 110.0 + number
        parts = {"compute": work - 10, "communication": step - work, "copy": 0, "host": 10, "idle": 0}
        rows.append(
            {
                "rank": number,
                "host": f"node-{number // 4}",
                "device": "NVIDIA H200",
                "step_ms": step,
                "spread": 0.02,
                "steps": 10,
                "breakdown_ms": parts,
                "waiting_ms": 180.0 - work,
                "peak_bytes": 40_000_000_000 + number,
                "program": {"exit_code": 0, "signal": None, "seconds": 70.0},
            }
        )
    rows[-1] |= {
        "step_ms": None,
        "breakdown_ms": None,
        "waiting_ms": None,
        "peak_bytes": None,
        "program": None,
    }
    return ProfileRecord.model_validate(gpu_training().to_dict() | {"ranks": rows})


def cpu_program() -> ProfileRecord:
    """A program without a device: operators, no counters, no second direction."""
    source = [
        "import torch",
        "",
        "weights = torch.randn(512, 512)",
        "",
        "for step in range(100):",
        "    x = torch.randn(64, 512)",
        "    for row in x:",
        "        y = torch.tanh(weights @ row)",
    ]
    return ProfileRecord.model_validate(
        {
            "command": ["python", "loop.py"],
            "verdict": "A step takes 9.4 ms, and 71 % of it is spent on 64 small products in loop.py:8; "
            "one product of the whole batch would save about 62 % of the step.",
            "device": "cpu",
            "step_ms": 9.4,
            "step_spread": 0.06,
            "steps": 20,
            "steps_found_by": "the longest loop of the program",
            "windows": [{"window": "A", "steps": 40, "step_ms": 9.4, "spread": 0.06, "slowdown": None}],
            "breakdown_ms": {"compute": 6.7, "communication": 0, "copy": 0, "host": 2.7, "idle": 0},
            "attributed_share": 0.99,
            "program": {"exit_code": 0, "signal": None, "seconds": 2.2},
            "lines": [
                {
                    "file": "loop.py",
                    "line": line,
                    "text": source[line - 1],
                    "function": "<module>",
                    "device_ms": 0.0,
                    "backward_ms": 0.0,
                    "cpu_ms": ms,
                    "share": ms / 9.4,
                    "calls": calls,
                }
                for line, ms, calls in ((8, 8.1, 64), (6, 0.9, 1), (7, 0.4, 65))
            ],
            "kernels": [
                {
                    "id": "k1",
                    "name": "aten::mv",
                    "calls": 64,
                    "total_ms": 5.6,
                    "share": 0.6,
                    "median_us": 87.0,
                    "bound": "memory",
                    "lines": ["loop.py:8"],
                },
                {
                    "id": "k2",
                    "name": "aten::tanh",
                    "calls": 64,
                    "total_ms": 1.1,
                    "share": 0.12,
                    "median_us": 17.0,
                    "bound": "host",
                    "lines": ["loop.py:8"],
                },
            ],
            "findings": [
                {
                    "id": "loop-over-slices",
                    "title": "A Python loop multiplies the rows of a batch one by one",
                    "file": "loop.py",
                    "line": 8,
                    "gain": {"low": 0.55, "mid": 0.62, "high": 0.68},
                    "confidence": "high",
                    "evidence": [
                        "aten::mv runs 64 times in a step, 87 µs each; one aten::mm of all rows takes 0.3 ms."
                    ],
                    "fix": "y = torch.tanh(x @ weights.T)",
                    "item": "vectorise",
                    "prove": "trackside compare loop.py batched.py",
                }
            ],
            "together": {"low": 0.55, "mid": 0.62, "high": 0.68},
            "timeline": [
                {
                    "name": "main thread",
                    "device": False,
                    "spans": [(i * 140.0, 87.0, "compute", "aten::mv") for i in range(64)],
                }
            ],
            "memory": [
                {
                    "device": "cpu",
                    "peak_bytes": 9_200_000,
                    "peak_ms": 3.1,
                    "reserved_bytes": None,
                    "series": [(0.0, 4_200_000), (1.2, 8_400_000), (3.1, 9_200_000), (8.8, 4_400_000)],
                    "step_ends_ms": [4.7, 9.4],
                    "growth_bytes": 200_000,
                    "growth_lines": [{"file": "loop.py", "line": 6, "text": source[5], "bytes": 200_000}],
                    "lines": [
                        {"file": "loop.py", "line": 8, "text": source[7], "bytes": 5_000_000},
                        {"file": "loop.py", "line": 6, "text": source[5], "bytes": 200_000},
                    ],
                    "held": [{"what": "parameters", "bytes": 4_000_000}],
                },
                {
                    "device": "process",
                    "peak_bytes": 571_000_000,
                    "reserved_bytes": None,
                    "total_bytes": 25_300_000_000,
                    "series": [],
                },
            ],
            "ceilings": {"cpu.memory.read": 2.1e10, "cpu.gemm.fp32": 1.9e11},
            "environment": {"python": "3.12.8", "torch": "2.13.0"},
            "sources": {"loop.py": source},
            "started": "2026-11-16T14:22:05+00:00",
            "seconds": 2.6,
            "version": "0.1.0",
        }
    )


def nothing() -> ProfileRecord:
    """A program that ended well without a step."""
    return ProfileRecord.model_validate(
        {
            "command": ["python", "short.py"],
            "verdict": "The program ended before its first step, so there is nothing to say about its time.",
            "device": "cpu",
            "step_ms": None,
            "step_spread": None,
            "steps": 0,
            "steps_found_by": "nothing",
            "windows": [],
            "breakdown_ms": None,
            "attributed_share": None,
            "program": {"exit_code": 0, "signal": None, "seconds": 0.4},
            "started": "2026-11-16T14:22:05+00:00",
            "seconds": 0.6,
            "version": "0.1.0",
        }
    )


def failed() -> ProfileRecord:
    """A program that a signal ended."""
    return nothing().model_copy(
        update={
            "status": "failed",
            "verdict": "The program was ended by SIGKILL after 12 s, before its first step.",
            "program": nothing().program.model_copy(
                update={"exit_code": None, "signal": "SIGKILL", "seconds": 12.0}
            ),
        }
    )


def hostile() -> ProfileRecord:
    """Every text in it was written by somebody who wants to break the page."""
    base = gpu_training().to_dict()
    place = 0

    def evil() -> str:
        nonlocal place
        place += 1
        return HOSTILE[place % len(HOSTILE)]

    base["command"] = list(HOSTILE)
    base["verdict"] = " ".join(HOSTILE[:6])
    base["device"], base["steps_found_by"], base["run_id"] = HOSTILE[1], HOSTILE[0], HOSTILE[1]
    base["started"] = base["version"] = HOSTILE[0]
    for finding in base["findings"]:
        finding |= {key: evil() for key in ("id", "title", "file", "fix", "diff", "item", "prove")}
        finding["evidence"] = list(HOSTILE)
        finding["kernels"] = list(HOSTILE)
    for kernel in base["kernels"]:
        kernel |= {"id": evil(), "name": evil(), "lines": list(HOSTILE)}
        kernel["counters"] = dict.fromkeys(HOSTILE, 1.5)
        kernel["launch"] = {name: name for name in HOSTILE}
    for line in base["lines"]:
        line |= {"file": evil(), "text": evil(), "function": evil()}
    for module in base["modules"]:
        module |= {"path": ".".join([evil(), evil()]), "type": evil()}
    for lane in base["timeline"]:
        lane["name"] = evil()
        lane["spans"] = [(start, length, evil(), evil()) for start, length, _, _ in lane["spans"][:200]]
    base["sources"] = {name: list(HOSTILE) for name in HOSTILE}
    base["environment"] = {name: {name: [name, {name: name}]} for name in HOSTILE}
    base["telemetry"] = base["environment"] | {
        "series": {name: {"unit": name, "points": [1, 2]} for name in HOSTILE}
    }
    base["options"] = base["environment"]
    base["ceilings"] = dict.fromkeys(HOSTILE, 1e12) | base["ceilings"]
    base["critical_path"] = dict.fromkeys(HOSTILE, 0.1)
    base["trust"] = [{"what": name, "effect": name, "remedy": name} for name in HOSTILE]
    base["memory"][0] |= {
        "device": HOSTILE[0],
        "lines": [{"file": name, "line": 7, "text": name, "bytes": 10**9} for name in HOSTILE],
        "held": [{"what": name, "bytes": 10**8} for name in HOSTILE],
    }
    base["ranks"] = ranks().to_dict()["ranks"]
    for rank in base["ranks"]:
        rank |= {"host": evil(), "device": evil()}
        rank["program"] = {"exit_code": None, "signal": evil(), "seconds": 1.0}
    return ProfileRecord.from_dict(base)


def large(kernels: int = 3000, files: int = 20, file_lines: int = 2000, spans: int = 20_000) -> ProfileRecord:
    """A big program: what the page has to open without delay."""
    base = gpu_training().to_dict()
    generator = random.Random(7)
    kinds = ("memory", "compute", "latency", "launch", "unknown")
    weights = [1 / (rank + 3) for rank in range(kernels)]
    whole = sum(weights)
    base["kernels"] = [
        {
            **base["kernels"][rank % 9],
            "id": f"k{rank + 1}",
            "name": f"void at::native::kernel_{rank:04d}<4, float, at::native::Functor_{rank % 97}>(int)",
            "total_ms": 165 * weight / whole,
            "share": weight / whole,
            "calls": float(generator.randint(1, 300)),
            "median_us": generator.uniform(2, 400),
            "bound": kinds[rank % 5],
            "lines": [f"package/module_{rank % files:02d}.py:{generator.randint(1, file_lines)}"],
            "counters": {},
        }
        for rank, weight in enumerate(weights)
    ]
    base["sources"] = {
        f"package/module_{number:02d}.py": [
            f"    value_{line} = self.layer_{line % 40}(value_{line - 1}, scale={generator.random():.4f})"
            for line in range(1, file_lines + 1)
        ]
        for number in range(files)
    }
    base["lines"] = [
        {
            "file": file,
            "line": line,
            "text": text[line - 1],
            "function": f"Layer{line % 7}.forward",
            "device_ms": (amount := generator.expovariate(10)),
            "backward_ms": 2 * amount,
            "cpu_ms": amount / 3,
            "share": amount * 3 / 165,
            "calls": 4.0,
        }
        for file, text in base["sources"].items()
        for line in sorted(generator.sample(range(1, file_lines + 1), 30))
    ]
    for finding in base["findings"]:
        finding |= {"file": "package/module_03.py", "line": base["lines"][95]["line"]}
    each = spans // 4
    base["timeline"] = [
        {
            "name": f"stream {lane}",
            "device": lane > 0,
            "spans": [
                (
                    i * 40.0 + lane,
                    35.0 * generator.random() + 1,
                    "compute",
                    base["kernels"][generator.randrange(kernels)]["name"],
                )
                for i in range(each)
            ],
        }
        for lane in range(4)
    ]
    return ProfileRecord.from_dict(base)
