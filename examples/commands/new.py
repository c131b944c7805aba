"""The same, sorted by x first, so that few pairs need a look. Usage: new.py SEED"""

import sys
from math import dist
from random import Random

random = Random(int(sys.argv[1]))
points = sorted((random.random(), random.random()) for _ in range(800))
nearest = 2.0
for i, p in enumerate(points):
    for q in reversed(points[:i]):
        if p[0] - q[0] >= nearest:
            break
        nearest = min(nearest, dist(p, q))
print(f"nearest pair: {nearest:.9f}")
