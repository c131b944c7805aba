"""The smallest distance between points, pair by pair. Usage: old.py SEED"""

import sys
from math import dist
from random import Random

random = Random(int(sys.argv[1]))
points = [(random.random(), random.random()) for _ in range(800)]
nearest = min(dist(p, q) for i, p in enumerate(points) for q in points[:i])
print(f"nearest pair: {nearest:.9f}")
