"""The repaired twin of cache_broken.py."""

import torch

torch.manual_seed(0)
project = torch.nn.Linear(256, 512)


class Cache:
    def __init__(self):
        self.kept = torch.empty(1500, 256)
        self.length = 0

    def add(self, new):
        self.kept[self.length] = new[0]
        self.length += 1
        return self.kept[: self.length]


with torch.inference_mode():
    for _ in range(30):
        cache, values, state = Cache(), Cache(), torch.zeros(1, 256)
        for _ in range(1500):
            key, value = project(state).chunk(2, dim=1)
            keys = cache.add(key)
            state = torch.softmax(state @ keys.T, dim=1) @ values.add(value)
