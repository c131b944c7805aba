"""Keys and values that grow in an object and in what a function hands back. `problem:` names the rule."""

import torch

torch.manual_seed(0)
project = torch.nn.Linear(256, 512)


class Cache:
    def __init__(self):
        self.keys = torch.empty(0, 256)

    def add(self, new):
        self.keys = torch.cat([self.keys, new])  # problem: cat-in-loop
        return self.keys


def longer(values, new):
    values = torch.cat((values, new), dim=0)  # problem: cat-in-loop
    return values


with torch.inference_mode():
    for _ in range(12):
        cache, values, state = Cache(), torch.empty(0, 256), torch.zeros(1, 256)
        for _ in range(1500):
            key, value = project(state).chunk(2, dim=1)
            keys = cache.add(key)
            values = longer(values, value)
            state = torch.softmax(state @ keys.T, dim=1) @ values
