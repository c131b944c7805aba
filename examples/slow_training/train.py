"""A training loop with four things wrong with it, for `trackside profile` to find.

On a GPU where there is one, else on the CPU.
"""

import torch
from torch import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, WIDTH, CLASSES = 128, 64, 10


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(WIDTH, WIDTH)
        self.mixing = nn.Parameter(torch.randn(WIDTH, WIDTH) / WIDTH**0.5)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.encoder(x).relu()
        # One small product for every row, where one product does it for all.
        x = torch.stack([row @ self.mixing for row in x])
        return self.head(torch.tanh(x))


def main(steps: int = 120) -> None:
    torch.manual_seed(0)
    model = Classifier().to(DEVICE)
    # One tensor after the other, where one call updates all.
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    examples = [[float(n % 7) for n in range(WIDTH)] for _ in range(ROWS)]
    total = 0.0
    for _ in range(steps):
        # Numbers of Python's become a tensor anew in every step.
        x = torch.tensor(examples, device=DEVICE)
        y = torch.randint(0, CLASSES, (ROWS,), device=DEVICE)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        # The host waits for the device to hand over one number.
        total += loss.item()
    print(f"mean loss {total / steps:.3f}")


if __name__ == "__main__":
    main()
