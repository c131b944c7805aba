import torch
from task import input_t, output_t
from utils import verbose_allclose


def generate_input(rows: list[int], columns: int, nomask: bool, seed: int, case: str = "dense") -> input_t:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    gen = torch.Generator(device=device)
    gen.manual_seed(seed)
    groups = [torch.randn(n, columns, device=device, generator=gen) for n in rows]
    # Drawn from the global generator, as some tasks do.
    weights = {
        "columns": torch.randn(columns, device=device),
        "mask": None if nomask else torch.ones(columns),
    }
    return groups, weights, {"columns": columns, "case": case}


def ref_kernel(data: input_t) -> output_t:
    groups, weights, _ = data
    return [group.sum(0) * weights["columns"] for group in groups]


def check_implementation(data, output):
    pairs = zip(output, ref_kernel(data), strict=True)
    reasons = [line for received, expected in pairs for line in verbose_allclose(received, expected)]
    return "mismatch: " + " ".join(reasons) if reasons else ""
