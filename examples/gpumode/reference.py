"""The task's authority on inputs and on the right answer."""

import torch


def generate_input(rows, columns, seed):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    g = torch.Generator(device).manual_seed(seed)
    return torch.randn(rows, columns, generator=g, device=device)


def ref_kernel(data):
    total = torch.zeros_like(data[:, 0])
    columns = []
    for column in data.unbind(1):
        total = total + column
        columns.append(total)
    return torch.stack(columns, dim=1)


def check_implementation(data, output):
    right = torch.allclose(output, ref_kernel(data), rtol=1e-4, atol=1e-4)
    return right, "" if right else "not the cumulative sum"
