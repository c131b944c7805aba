"""Other values for special state: the same in every process, and apart where they were alike."""

from typing import Any

import pytest
import torch

from trackside.workload.bending import bend, can_bend


def bent(
    kind: str, tensor: torch.Tensor, path: str = "w", seed: int = 5, signed: bool = True
) -> torch.Tensor:
    made = tensor.clone()
    bend({path: made}, {path: kind}, seed, signed)
    return made


def test_two_processes_get_the_same_values_by_seed_and_path_whatever_their_generators_have_drawn() -> None:
    first = bent("ones", torch.ones(64))
    torch.rand(3)
    assert torch.equal(bent("ones", torch.ones(64)), first)
    assert not torch.equal(bent("ones", torch.ones(64), seed=6), first)
    assert not torch.equal(bent("ones", torch.ones(64), path="v"), first)


def test_nothing_is_drawn_from_the_generator_of_the_process() -> None:
    torch.manual_seed(1)
    wanted = torch.rand(4)
    torch.manual_seed(1)
    bent("zeros", torch.zeros(64))
    assert torch.equal(torch.rand(4), wanted)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64]
)
def test_every_element_moves_so_far_that_sixteen_bits_show_it(dtype: torch.dtype) -> None:
    for kind, value in (("zeros", 0.0), ("ones", 1.0), ("copies", 0.7)):
        moved = (bent(kind, torch.full((500,), value, dtype=dtype)).cfloat().real - value).abs()
        assert float(moved.min()) > 0.05
        assert float(moved.max()) < 0.51


def test_zeros_move_either_way_and_below_zero_only_where_that_is_asked_for() -> None:
    assert {-1, 1} == set(bent("zeros", torch.zeros(64)).sign().int().tolist())
    assert bool((bent("zeros", torch.zeros(64), signed=False) > 0).all())


@pytest.mark.parametrize("kind", ["ones", "copies"])
def test_what_is_above_zero_stays_there(kind: str) -> None:
    assert bool((bent(kind, torch.ones(5000)) > 0.4).all())


def test_copies_come_apart() -> None:
    one, other = torch.randn(2, 3), torch.randn(2, 3)
    other.copy_(one)
    bend({"a": one, "b": other}, {"a": "copies", "b": "copies"}, 5, True)
    assert not bool((one == other).any())


def test_a_wide_matrix_moves_its_products_no_further_than_a_narrow_one() -> None:
    for n in (16, 1024):
        x = torch.randn(n, generator=torch.Generator().manual_seed(n))
        moved = bent("identity", torch.eye(n)) @ x - x
        assert 0.15 < float(moved.std() / x.std()) < 0.6


def test_a_module_s_parameter_and_a_numpy_array_are_moved_in_place() -> None:
    parameter = torch.nn.Parameter(torch.zeros(4))
    array = torch.ones(4).numpy()
    bend({"p": parameter, "a": torch.from_numpy(array)}, {"p": "zeros", "a": "ones"}, 5, True)
    assert bool((parameter != 0).all())
    assert (array != 1).all()


def test_paths_that_a_process_does_not_have_are_left_out() -> None:
    bend({}, {"gone": "ones"}, 5, True)


def test_more_elements_than_there_is_noise_for_get_it_again_shifted(monkeypatch: Any) -> None:
    monkeypatch.setattr("trackside.workload.bending._PERIOD", 7)
    moved = bent("ones", torch.ones(4, 5))
    assert moved.shape == (4, 5)
    assert not torch.equal(moved[0], moved[1])
    assert torch.equal(moved.flatten()[7:14], moved.flatten()[:7])


@pytest.mark.parametrize(
    ("tensor", "wanted"),
    [
        (torch.ones(4), True),
        (torch.zeros(1, 4).expand(1, 4), True),
        (torch.zeros(4).expand(3, 4), False),
        (torch.ones(4, dtype=torch.int32), False),
        (torch.ones(4, dtype=torch.bool), False),
        (torch.ones(4, dtype=torch.complex64), True),
    ],
)
def test_floats_can_be_bent_where_each_has_memory_of_its_own(tensor: torch.Tensor, wanted: bool) -> None:
    assert can_bend(tensor) is wanted


def test_values_of_any_kind_move_each_by_itself_zeros_and_saturated_ones_too() -> None:
    packed = torch.cat((torch.randn(200), torch.zeros(200)))
    assert bool((bent("any", packed)[200:] != 0).all())
    gate = bent("any", torch.full((200,), 20.0))
    assert len(gate.unique()) > 150
    assert float(gate.abs().max()) < 10


def test_values_of_any_kind_are_as_large_as_before_so_that_deep_nets_still_answer() -> None:
    for scale in (1e-4, 0.03, 1.0):
        weight = scale * torch.randn(300, 300)
        assert 0.95 < float(bent("any", weight).norm() / weight.norm()) < 1.07


def test_positive_values_of_any_kind_stay_so_where_that_is_asked_for() -> None:
    assert bool((bent("any", torch.rand(5000), signed=False) > 0).all())
    assert bool((bent("any", torch.rand(5000)) < 0).any())


def test_one_zero_of_any_kind_moves_and_what_is_not_finite_stays() -> None:
    assert float(bent("any", torch.zeros(()))) != 0
    mask = bent("any", torch.tensor([0.0, float("-inf"), 1.0]))
    assert mask.isinf().tolist() == [False, True, False]
    assert mask[1] < 0


def test_a_large_tensor_is_moved_piece_by_piece_to_the_same_values(monkeypatch: Any) -> None:
    monkeypatch.setattr("trackside.workload.bending._PERIOD", 7)
    tall = torch.arange(1.0, 41.0).reshape(20, 2)
    moved = bent("copies", tall) / tall
    assert torch.allclose(moved.flatten()[7:14], moved.flatten()[:7])
    assert torch.equal(bent("any", tall.T.contiguous().T), bent("any", tall))
