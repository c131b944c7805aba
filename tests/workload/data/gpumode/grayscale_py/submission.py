import torch
from task import input_t, output_t


def custom_kernel(data: input_t) -> output_t:
    rgb, output = data
    weights = torch.tensor([0.2989, 0.5870, 0.1140], device=rgb.device, dtype=rgb.dtype)
    return torch.matmul(rgb, weights, out=output)
