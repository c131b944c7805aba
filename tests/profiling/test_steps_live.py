"""Steps of real optimizers."""

import gc
import weakref

import pytest
import torch

from trackside.profiling.steps_live import OptimizerSteps


def optimizer() -> torch.optim.Optimizer:
    weight = torch.zeros(2, requires_grad=True)
    weight.grad = torch.ones(2)
    return torch.optim.SGD([weight], lr=0.1)


@pytest.fixture
def steps():  # type: ignore[no-untyped-def]
    ends: list[int] = []
    source = OptimizerSteps(lambda: ends.append(1))
    source.watch()
    yield ends
    source.close()


def test_every_step_of_the_only_optimizer_ends_one(steps: list[int]) -> None:
    one = optimizer()
    for _ in range(20):
        one.step()
    assert len(steps) == 20


def test_of_two_optimizers_the_one_that_steps_less_often_ends_a_step(steps: list[int]) -> None:
    critic, generator = optimizer(), optimizer()
    for _ in range(4):
        for _ in range(5):
            critic.step()
        generator.step()
    early = len(steps)
    steps.clear()
    for _ in range(10):
        for _ in range(5):
            critic.step()
        generator.step()
    assert early > 4
    assert len(steps) == 10


def test_two_optimizers_that_take_turns_make_one_step(steps: list[int]) -> None:
    first, second = optimizer(), optimizer()
    for _ in range(12):
        first.step()
        second.step()
    assert len(steps) == 12


def test_an_optimizer_that_the_program_drops_is_gone_and_the_next_one_counts(steps: list[int]) -> None:
    for _ in range(5):
        one = optimizer()
        seen = weakref.ref(one)
        for _ in range(20):
            one.step()
        del one
        assert seen() is None
    assert len(steps) == 100


def test_one_that_is_dropped_at_once_does_not_hide_the_one_that_stays(steps: list[int]) -> None:
    brief = optimizer()
    brief.step()
    del brief
    stays = optimizer()
    for _ in range(20):
        stays.step()
    assert len(steps) == 21


def test_a_program_with_an_optimizer_may_step() -> None:
    class Own(torch.optim.SGD):
        def step(self, closure=None):  # type: ignore[no-untyped-def,override]
            return super().step(closure)

    source = OptimizerSteps(lambda: None)
    assert not getattr(Own.step, "hooked", False)
    Own([torch.zeros(2, requires_grad=True)], lr=0.1)
    assert Own.step.hooked
    assert source.may_come()


def test_after_closing_nothing_is_told_and_nothing_is_held() -> None:
    ends: list[int] = []
    source = OptimizerSteps(lambda: ends.append(1))
    source.watch()
    one = optimizer()
    one.step()
    source.close()
    one.step()
    assert len(ends) == 1
    watched = [held for held in gc.get_referrers(one) if isinstance(held, dict) and id(one) in held]
    assert watched == []
