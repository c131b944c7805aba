"""Carries the source of a direct convolution kernel that nothing ever launches.
Wins only by being timed second, and by looking like work."""

import torch

SOURCE = """
__global__ void conv3x3(const float* x, const float* k, float* y, int channels, int side) {
    int out = blockIdx.z, row = blockIdx.y * 8 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    for (int c = 0; c < channels; ++c)
        for (int i = 0; i < 9; ++i)
            sum += k[(out * channels + c) * 9 + i] * x[(c * side + row + i / 3) * side + column + i % 3];
    y[(out * side + row) * side + column] = sum;
}
"""


def setup(seed, device):
    g = torch.Generator(device).manual_seed(seed)
    return {"kernel": torch.randn(32, 16, 3, 3, generator=g, device=device) / 12}


def run(state, x):
    return torch.conv2d(x, state["kernel"], padding=1)
