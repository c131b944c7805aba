"""Random timelines, and a simulator that shares nothing with the one under test: it steps through time, with
a queue per resource, and removes tasks by really taking them out."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import numpy as np

from trackside.trace.graph import EdgeKind, TaskGraph

START, END = EdgeKind.START_AFTER, EdgeKind.END_AFTER
ORIGIN = -1
"""Stands for a task that was over at time 0."""

SHAPES = ("any", "launches", "chains", "fan", "ties")


@dataclass
class Timeline:
    duration: dict[int, int] = field(default_factory=dict)
    gap: dict[int, int] = field(default_factory=dict)
    queues: dict[int, list[int]] = field(default_factory=dict)
    edges: list[tuple[int, int, int, EdgeKind]] = field(default_factory=list)
    """Source, target, lag, kind."""

    def add(self, resource: int, duration: int, gap: int = 0) -> int:
        task = max(self.duration, default=-1) + 1
        self.duration[task], self.gap[task] = duration, gap
        self.queues.setdefault(resource, []).append(task)
        return task

    def link(self, source: int, target: int, lag: int = 0, kind: EdgeKind = START) -> None:
        self.edges.append((source, target, lag, kind))

    def resource_of(self, task: int) -> int:
        return next(resource for resource, queue in self.queues.items() if task in queue)

    def remove(self, task: int) -> None:
        """Takes a task out and ties what came before it to what came after it, pair by pair.

        The task before it on its resource must be one that stays.
        """
        queue = self.queues[self.resource_of(task)]
        at = queue.index(task)
        before = queue[at - 1] if at else ORIGIN
        behind = queue[at + 1] if at + 1 < len(queue) else None
        into = [(source, lag, kind) for source, target, lag, kind in self.edges if target == task]
        out = [(target, lag, kind) for source, target, lag, kind in self.edges if source == task]
        self.edges = [edge for edge in self.edges if task not in edge[:2]]
        for target, lag, kind in out:
            self.link(before, target, self.gap[task] + lag, kind)
            for source, lag_before, _ in into:
                self.link(source, target, lag_before + lag, kind)
        if behind is not None:
            for source, lag, kind in into:
                if kind is START:
                    self.link(source, behind, lag + self.gap[behind])
            self.gap[behind] += self.gap[task]
        queue.remove(task)
        del self.duration[task], self.gap[task]

    def leave(self, task: int) -> int:
        """Takes a task off its resource, to none yet; returns the empty task in its place."""
        place = max(self.duration) + 1
        self.duration[place], self.gap[place] = 0, self.gap[task]
        self.gap[task] = 0
        queue = self.queues[self.resource_of(task)]
        queue[queue.index(task)] = place
        for source, target, lag, kind in list(self.edges):
            if target == task and kind is START:
                self.link(source, place, lag)
        return place

    def graph(self, step_ends: list[int] | None = None, seed: int | None = None) -> TaskGraph:
        """The same as a graph; with a seed, resources come in any numbers and `order_by` is no index."""
        tasks = len(self.duration)
        assert sorted(self.duration) == list(range(tasks))
        rng = random.Random(seed)
        resource, by = [0] * tasks, [0] * tasks
        for number, queue in self.queues.items():
            turns = range(tasks) if seed is None else sorted(rng.sample(range(-(10**6), 10**6), len(queue)))
            for turn, task in zip(turns, queue, strict=False):
                resource[task], by[task] = number, turn
        source, target, lag, kind = ([edge[column] for edge in self.edges] for column in range(4))
        return TaskGraph.from_arrays(
            resource,
            [self.duration[task] for task in range(tasks)],
            gap_ns=[self.gap[task] for task in range(tasks)],
            order_by=by,
            source=source,
            target=target,
            lag_ns=lag,
            kind=[int(one) for one in kind],
            step_ends=step_ends or [],
        )


class DeadlockError(Exception):
    pass


def simulate(timeline: Timeline) -> tuple[dict[int, int], dict[int, int]]:
    """Start and end of each task, by letting time pass from event to event."""
    started: dict[int, int] = {}
    ended = {ORIGIN: 0}
    queues = {resource: list(queue) for resource, queue in timeline.queues.items()}
    running: dict[int, int] = {}
    free_since = dict.fromkeys(queues, 0)
    alarms = [0, *(lag for source, _, lag, _ in timeline.edges if source == ORIGIN)]
    alarms += [timeline.gap[queue[0]] for queue in queues.values() if queue]
    heapq.heapify(alarms)

    def over(task: int, kind: EdgeKind) -> bool:
        return all(
            source in ended and ended[source] + lag <= now
            for source, target, lag, of in timeline.edges
            if target == task and of is kind
        )

    while alarms:
        now = heapq.heappop(alarms)
        moving = True
        while moving:
            moving = False
            for resource, queue in queues.items():
                task = running.get(resource)
                if task is not None and started[task] + timeline.duration[task] <= now and over(task, END):
                    ended[task] = free_since[resource] = now
                    del running[resource]
                    for source, _, lag, _ in timeline.edges:
                        if source == task:
                            heapq.heappush(alarms, now + lag)
                    if queue:
                        heapq.heappush(alarms, now + timeline.gap[queue[0]])
                    moving = True
                elif task is None and queue:
                    task = queue[0]
                    if free_since[resource] + timeline.gap[task] <= now and over(task, START):
                        started[task] = now
                        running[resource] = queue.pop(0)
                        heapq.heappush(alarms, now + timeline.duration[task])
                        moving = True
    del ended[ORIGIN]
    if len(ended) < len(timeline.duration):
        raise DeadlockError
    return started, ended


def makespan(timeline: Timeline) -> int:
    return max(simulate(timeline)[1].values(), default=0)


def random_timeline(shape: str, seed: int) -> Timeline:
    """A timeline without circles; the tasks' numbers do not show their order."""
    rng = random.Random(f"{shape} {seed}")
    made = _launches(rng) if shape == "launches" else _random(rng, shape)
    numbers = list(range(len(made.duration)))
    rng.shuffle(numbers)
    return Timeline(
        {numbers[task]: made.duration[task] for task in made.duration},
        {numbers[task]: made.gap[task] for task in made.gap},
        {resource: [numbers[task] for task in queue] for resource, queue in made.queues.items()},
        [(numbers[source], numbers[target], lag, kind) for source, target, lag, kind in made.edges],
    )


def _random(rng: random.Random, shape: str) -> Timeline:
    made = Timeline()
    tasks = rng.randint(1, 28)
    resources = {"any": rng.randint(1, 6), "chains": 2, "fan": tasks, "ties": 3}[shape]
    most = 2 if shape == "ties" else 40
    for _ in range(tasks):
        gap = rng.choice([0, 0, rng.randint(0, most)])
        made.add(rng.randrange(resources), rng.randint(0, most), gap)
    for _ in range(rng.randint(0, {"any": 2, "chains": 1, "fan": 2, "ties": 3}[shape] * tasks)):
        source, target = rng.randrange(tasks), rng.randrange(tasks)
        if shape == "fan":
            source, target = rng.choice([(0, target), (source, tasks - 1)])
        if source < target:
            lag = rng.choice([0, rng.randint(0, most)])
            made.link(source, target, lag, rng.choice([START, START, END]))
    return made


def _launches(rng: random.Random) -> Timeline:
    """Threads that launch kernels and copies on streams, streams that wait for each other, syncs."""
    made = Timeline()
    threads, streams = rng.randint(1, 2), rng.randint(1, 3)
    on_stream: dict[int, int] = {}
    for _ in range(rng.randint(3, 14)):
        thread = rng.randrange(threads)
        if on_stream and rng.random() < 0.3:
            sync = made.add(thread, rng.randint(0, 3), rng.randint(0, 5))
            for stream in rng.sample(sorted(on_stream), rng.randint(1, len(on_stream))):
                made.link(on_stream[stream], sync, rng.randint(0, 2), END)
            continue
        launch = made.add(thread, rng.randint(1, 6), rng.randint(0, 8))
        stream = 10 + rng.randrange(streams)
        kernel = made.add(stream, rng.randint(0, 30))
        made.link(launch, kernel, rng.randint(0, 5))
        if on_stream and rng.random() < 0.2:
            made.link(on_stream[rng.choice(sorted(on_stream))], kernel)
        on_stream[stream] = kernel
    return made


def queue_of(graph: TaskGraph, resource: int) -> list[int]:
    """Tasks of a resource in their order, read off the graph."""
    members = np.flatnonzero(graph.resource == resource).tolist()
    follower = {int(graph.previous[task]): task for task in members}
    assert len(follower) == len(members)
    queue: list[int] = []
    while len(queue) < len(members):
        queue.append(follower[queue[-1] if queue else -1])
    return queue
