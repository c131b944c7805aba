"""Which of a call's errors other roundings explain: jumps over ties one by one, and sums that cancel."""

from collections.abc import Iterator, Sequence

import torch

from trackside.comparison import rounding
from trackside.comparison.oracle import Answer

SIZE, ALLOWED = 4096, 1e-9


def draws(at: torch.Tensor, move: torch.Tensor, every: float, count: int = 256) -> Iterator[Answer]:
    """The answer, then others in which that share of the elements has moved, normally distributed."""
    g = torch.Generator().manual_seed(2)
    yield {"out": at}
    for _ in range(count):
        moved = torch.rand(at.shape, generator=g) < every
        yield {"out": at + torch.where(moved, move * torch.randn(at.shape, generator=g).double(), 0.0)}


def left(
    found: torch.Tensor, oracle: torch.Tensor, rounded: Iterator[Answer], beside: Sequence[torch.Tensor] = ()
) -> int:
    """How many elements nothing explains."""
    bins = {str(number): ALLOWED for number in range(540)}
    others = iter([{"out": one} for one in beside])
    result = rounding.unexplained("out", found, oracle, oracle, bins, rounded, others)
    assert not result["late"]
    return int(result["unexplained"])


def test_an_error_of_five_sigmas_is_explained_where_every_rounding_moves_the_sum() -> None:
    oracle = torch.randn(SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sigma = torch.full_like(oracle, 1e-6)
    assert not left(oracle + 5e-6, oracle, draws(oracle, sigma, 1.0))


def test_an_error_of_twenty_sigmas_is_not() -> None:
    oracle = torch.randn(SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    sigma = torch.full_like(oracle, 1e-6)
    assert left(oracle + 20e-6, oracle, draws(oracle, sigma, 1.0)) > 0.99 * SIZE


def test_a_value_at_a_tie_may_go_over_it_and_no_further() -> None:
    oracle = torch.ones(SIZE, dtype=torch.float64)
    step = torch.Generator().manual_seed(3)

    def over_the_tie() -> Iterator[Answer]:
        yield {"out": oracle}
        for _ in range(128):
            yield {"out": oracle + torch.randint(2, (SIZE,), generator=step).double()}

    assert not left(oracle + 1, oracle, over_the_tie())
    assert left(oracle + 3, oracle, over_the_tie()) == SIZE


def test_what_the_oracle_gives_on_inputs_rounded_otherwise_is_explained_and_nothing_near_it() -> None:
    oracle = torch.randn(SIZE, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    # Of two equal scores the other one's row, which no other rounding shows.
    row = torch.arange(SIZE) < 8
    found, still = torch.where(row, oracle + 1, oracle), torch.zeros_like(oracle)
    assert left(found, oracle, draws(oracle, still, 0.0)) == 8
    assert not left(found, oracle, draws(oracle, still, 0.0), [oracle, found])
    assert left(found + 1e-6 * row, oracle, draws(oracle, still, 0.0), [oracle, found]) == 8
