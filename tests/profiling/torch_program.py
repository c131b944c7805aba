import torch


def step(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = a @ b
    d = torch.relu(c)
    e = scaled(d, c)
    total = sum(part.exp().mean() for part in e.chunk(4))
    for _ in range(3):
        d = (
            d.tanh()
            + e.sigmoid()
        )  # fmt: skip
    return helper_of_two(d, total)


def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x * y


def helper_of_two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first, second = x.sum(), y.sqrt()
    return first - second


def long_step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """About a hundred lines a step."""
    for _ in range(6):
        x = layers(x, w)
    return x


def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    for _ in range(4):
        x = x @ w
        x = torch.relu(x)
        x = x / 13.0
    return x
