"""The same as means of float32."""


def run(x, y):
    return (x.argmax(1) == y).float().mean().item(), x[:, 0].square().mean().item()
