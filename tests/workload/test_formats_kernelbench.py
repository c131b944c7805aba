"""KernelBench files: constant parameters and statistics vary with the seed, alike in Model and ModelNew."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from trackside.records.errors import TracksideError
from trackside.workload.formats import adopt_parameters, describe, load, parameter_digest
from trackside.workload.formats.kernelbench import InitNoise, construct

pytestmark = pytest.mark.usefixtures("own_imports")

BASE = "23_Linear_LayerNorm_Scale.py"


def built(model, *args, seed: int = 5, **kwargs):
    return construct(model, args, kwargs, InitNoise(seed), "cpu")


class Constants(nn.Module):
    """One of each kind of parameter that could be mistaken for another."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.batch = nn.BatchNorm1d(6)
        self.random = nn.Linear(6, 6)
        self.direct = nn.Parameter(torch.ones(6))
        self.small = nn.Parameter(torch.full((5,), 1e-5))
        self.computed = nn.Parameter(torch.ones(3) * 4)
        self.later = nn.Parameter(torch.empty(7))
        self.later.data.zero_()
        self.scalar_one = nn.Parameter(torch.tensor(1.0))
        self.scalar_two = nn.Parameter(torch.tensor(2.0))
        self.frozen = nn.Parameter(torch.ones(6), requires_grad=False)
        self.counts = nn.Parameter(torch.ones(6, dtype=torch.int64), requires_grad=False)
        self.register_buffer("mask", torch.ones(6))
        nn.init.ones_(self.mask)


def test_constant_parameters_get_values_around_the_constant() -> None:
    module = built(Constants)
    for parameter, centre in [
        (module.norm.weight, 1.0),
        (module.batch.weight, 1.0),
        (module.direct, 1.0),
        (module.scalar_one, 1.0),
        (module.computed, 4.0),
        (module.small, 1e-5),
    ]:
        assert bool((parameter != centre).all())
        assert bool(((parameter >= 0.5 * centre) & (parameter <= 1.5 * centre)).all())
    for parameter in (module.norm.bias, module.batch.bias, module.later):
        assert bool((parameter != 0).all())
        assert bool((parameter.abs() <= 0.5).all())
    assert float(module.norm.weight.std()) > 0.05


def test_buffers_frozen_parameters_and_other_scalars_stay() -> None:
    module = built(Constants)
    assert int(module.batch.num_batches_tracked) == 0
    assert torch.equal(module.mask, torch.ones(6))
    assert torch.equal(module.frozen, torch.ones(6))
    assert float(module.scalar_two) == 2.0


def test_parameters_alike_in_constant_and_size_still_differ_from_each_other() -> None:
    module = built(Constants)
    alike = [module.norm.weight, module.batch.weight, module.direct]
    assert all(not torch.equal(a, b) for a in alike for b in alike if a is not b)


def test_the_noise_follows_the_seed_and_nothing_else() -> None:
    first, again, other = built(Constants), built(Constants), built(Constants, seed=6)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    assert not torch.equal(first.norm.weight, other.norm.weight)


def test_random_initialisation_is_what_the_seed_alone_gives() -> None:
    module = built(Constants)
    torch.manual_seed(5)
    assert torch.equal(module.random.weight, Constants().random.weight)


def test_torch_is_left_as_it_was() -> None:
    def patched():
        return (
            nn.Module.register_parameter,
            nn.Module.register_buffer,
            _NormBase.reset_running_stats,
            nn.init._no_grad_fill_,
            nn.init._no_grad_zero_,
        )

    before = patched()
    built(Constants)
    with pytest.raises(ZeroDivisionError), InitNoise(1):
        raise ZeroDivisionError
    assert before == patched()
    assert torch.equal(nn.LayerNorm(3).weight, torch.ones(3))
    assert torch.equal(nn.BatchNorm1d(3).running_var, torch.ones(3))
    assert torch._C._len_torch_function_stack() == 0


def test_layernorm_and_plain_parameters_in_its_place_get_the_same_values() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.g = nn.Parameter(torch.ones(8, 1))
            self.b = nn.Parameter(torch.Tensor(8))
            nn.init.zeros_(self.b)

    norm, plain = built(nn.LayerNorm, 8), built(Plain)
    assert torch.equal(norm.weight, plain.g.view(-1))
    assert torch.equal(norm.bias, plain.b)


def test_initialising_a_second_time_changes_nothing() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LayerNorm(8), nn.LayerNorm(8)
            self.apply(lambda m: nn.init.constant_(m.weight, 1.0) if isinstance(m, nn.LayerNorm) else None)

    class Once(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.LayerNorm(8), nn.LayerNorm(8)

    assert parameter_digest(built(Twice))["digest"] == parameter_digest(built(Once))["digest"]


def test_memory_that_happens_to_be_zero_takes_no_part_in_the_order() -> None:
    # Made out here, so that in the constructor it looks like what `torch.Tensor(8)` often returns.
    room = torch.zeros(8)

    class Uninitialised(nn.Module):
        def __init__(self, memory: torch.Tensor) -> None:
            super().__init__()
            self.w = nn.Parameter(memory)
            nn.init.normal_(self.w)
            self.norm = nn.LayerNorm(8)

    zeros, garbage = built(Uninitialised, room), built(Uninitialised, torch.arange(8.0))
    assert torch.equal(zeros.w, garbage.w)
    assert torch.equal(zeros.norm.bias, garbage.norm.bias)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.InstanceNorm1d, nn.SyncBatchNorm])
def test_running_statistics_get_values_around_zero_and_one(norm) -> None:
    module = built(norm, 8, track_running_stats=True)
    assert bool(((module.running_mean != 0) & (module.running_mean.abs() <= 0.5)).all())
    assert bool(((module.running_var != 1) & ((module.running_var - 1).abs() <= 0.5)).all())
    assert int(module.num_batches_tracked) == 0


class OwnNorm(nn.Module):
    """Batch norm as people write it themselves, after the names of torch's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("running_var", torch.ones(1, width))
        self.register_buffer("running_mean", torch.empty(width))
        self.running_mean.zero_()


def test_a_norm_with_the_usual_names_gets_the_statistics_of_torch_s() -> None:
    theirs, ours = (
        built(lambda: nn.Sequential(nn.BatchNorm1d(8), nn.BatchNorm1d(8))),
        built(lambda: nn.Sequential(OwnNorm(8), OwnNorm(8))),
    )
    for norm, own in zip(theirs, ours, strict=True):
        assert torch.equal(norm.running_mean, own.running_mean)
        assert torch.equal(norm.running_var, own.running_var.view(-1))
    assert not torch.equal(theirs[0].running_mean, theirs[1].running_mean)


def test_resetting_statistics_a_second_time_changes_nothing() -> None:
    def reset() -> nn.Module:
        norm = nn.BatchNorm1d(8)
        norm.reset_running_stats()
        return norm

    once, twice = built(nn.BatchNorm1d, 8), built(reset)
    assert torch.equal(once.running_mean, twice.running_mean)
    assert torch.equal(once.running_var, twice.running_var)


def test_statistics_that_were_chosen_stay() -> None:
    def chosen() -> nn.Module:
        norm = nn.BatchNorm1d(8)
        norm.running_mean.fill_(3)
        norm.running_var.zero_()
        return norm

    module = built(chosen)
    assert torch.equal(module.running_mean, torch.full((8,), 3.0))
    assert torch.equal(module.running_var, torch.zeros(8))


def given(model, statistics, seed: int = 5):
    """A candidate's module after it was given what it lacks of the baseline's statistics."""
    noise = InitNoise(seed)
    module = construct(model, (), {}, noise, "cpu")
    noise.give_statistics(module, statistics)
    return module


def test_statistics_under_other_names_are_given_in_order_where_the_constructor_made_none() -> None:
    noise = InitNoise(5)
    theirs = construct(lambda: nn.Sequential(nn.BatchNorm1d(8), nn.BatchNorm1d(8)), (), {}, noise, "cpu")
    assert sorted(noise.statistics) == [("running_mean", 8, 2), ("running_var", 8, 2)]

    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in ("variance_a", "variance_b"):
                self.register_buffer(name, torch.ones(1, 8))
            for name in ("scratch", "mean_a", "mean_b", "further"):
                self.register_buffer(name, torch.zeros(8))
            self.register_buffer("means_of_groups", torch.zeros(4))

    ours = given(Renamed, noise.statistics)
    for norm, mean, variance in (
        (theirs[0], ours.mean_a, ours.variance_a),
        (theirs[1], ours.mean_b, ours.variance_b),
    ):
        assert torch.equal(norm.running_mean, mean)
        assert torch.equal(norm.running_var, variance.view(-1))
    for left in (ours.scratch, ours.further, ours.means_of_groups):
        assert not bool(left.any())


def test_weights_that_the_constructor_dropped_are_freed() -> None:
    dropped = []

    class Packed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            norm = nn.BatchNorm1d(8)
            dropped.extend(weakref.ref(t) for t in (norm.weight, norm.running_mean))

    noise = InitNoise(5)
    construct(Packed, (), {}, noise, "cpu")
    gc.collect()
    assert [reference() for reference in dropped] == [None, None]


def test_a_candidate_that_folds_a_norm_of_its_own_is_given_nothing_more() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            norm = nn.BatchNorm1d(8)
            self.register_buffer("folded", norm.running_mean * torch.rsqrt(norm.running_var))
            self.register_buffer("mean", torch.zeros(8))

    noise = InitNoise(5)
    theirs = construct(nn.BatchNorm1d, (8,), {}, noise, "cpu")
    ours = given(Folded, noise.statistics)
    assert torch.equal(ours.folded, theirs.running_mean * torch.rsqrt(theirs.running_var))
    assert not bool(ours.mean.any())


def test_a_renamed_and_packed_candidate_matches_the_model(data: Path) -> None:
    folder = data / "kernelbench"
    baseline = load(folder / BASE, "baseline")
    candidate = load(folder / "23_renamed.py", "candidate", "kernelbench")
    assert baseline.init_inputs is not None
    assert baseline.inputs is not None
    candidate.init_args = baseline.init_inputs(11, "cpu")
    model, new = baseline.setup(11, "cpu"), candidate.setup(11, "cpu")
    args = baseline.inputs(4, "cpu", None)
    torch.testing.assert_close(candidate.call(new, args), baseline.call(model, args), rtol=1e-4, atol=1e-5)
    assert parameter_digest(new)["digest"] == parameter_digest(model)["digest"]
    assert not adopt_parameters(new, model.state_dict())


def test_a_candidate_that_drops_the_affine_part_is_visibly_wrong(data: Path, tmp_path: Path) -> None:
    source = (data / "kernelbench" / BASE).read_text().replace("class Model(", "class ModelNew(")
    path = tmp_path / "dropped.py"
    path.write_text(
        source.replace(
            "self.norm2(torch.relu(x)) * self.scale", "nn.functional.layer_norm(torch.relu(x), (20,))"
        )
    )
    baseline = load(data / "kernelbench" / BASE, "baseline")
    candidate = load(path, "candidate", "kernelbench")
    assert baseline.inputs is not None
    args = baseline.inputs(4, "cpu", None)
    right, wrong = (
        baseline.call(baseline.setup(1, "cpu"), args),
        candidate.call(candidate.setup(1, "cpu"), args),
    )
    assert float((right - wrong).norm() / right.norm()) > 0.2


def test_a_candidate_without_init_inputs_takes_the_baselines(data: Path) -> None:
    folder = data / "kernelbench"
    candidate = load(folder / "23_renamed.py", "candidate", "kernelbench", baseline_path=folder / BASE)
    assert tuple(candidate.setup(1, "cpu").packed.shape) == (12, 20)
    lonely = load(folder / "23_renamed.py", "candidate", "kernelbench")
    with pytest.raises(TracksideError, match="without `get_init_inputs`") as caught:
        lonely.setup(1, "cpu")
    assert caught.value.kind == "workload"


def test_a_file_with_both_gives_the_model_as_baseline_and_modelnew_as_candidate(tmp_path: Path) -> None:
    path = tmp_path / "both.py"
    path.write_text("class Model: ...\nclass ModelNew: ...\ndef get_inputs(): return []")
    assert describe(path, "baseline").entry == "Model"
    assert describe(path, "candidate", "kernelbench").entry == "ModelNew"
    only = tmp_path / "only.py"
    only.write_text("class Model: ...")
    assert describe(only, "candidate", "kernelbench").entry == "Model"


def write_model(path: Path, init: str, get_init: str, get_inputs: str = "[torch.rand(2)]") -> Path:
    path.write_text(
        "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
        f"    def __init__(self{init}):\n        super().__init__()\n        self.given = locals()\n"
        "    def forward(self, x): return x\n"
        f"def get_inputs(): return {get_inputs}\ndef get_init_inputs(): return {get_init}\n"
    )
    return path


@pytest.mark.parametrize(
    ("init", "get_init", "expected"),
    [
        ("", "[]", {}),
        ("", "[[], {}]", {}),
        (", a, b", "[3, (4, 5)]", {"a": 3, "b": (4, 5)}),
        (", a, b=2", "[[7], {'b': 8}]", {"a": 7, "b": 8}),
        (", sizes, extras", "[[1, 2], {'k': 1}]", {"sizes": [1, 2], "extras": {"k": 1}}),
    ],
)
def test_constructor_arguments_come_in_both_published_forms(tmp_path: Path, init, get_init, expected) -> None:
    state = load(write_model(tmp_path / "m.py", init, get_init), "baseline").setup(0, "cpu")
    assert {name: state.given[name] for name in expected} == expected


def test_a_file_that_names_cuda_runs_on_a_cpu(tmp_path: Path) -> None:
    path = write_model(
        tmp_path / "m.py",
        ", t",
        "[torch.ones(2, device='cuda')]",
        "[torch.rand(2, device='cuda:0').cuda(), 3]",
    )
    baseline = load(path, "baseline")
    assert baseline.inputs is not None
    tensor, number = baseline.inputs(0, "cpu", None)
    assert (tensor.device.type, number) == ("cpu", 3)
    assert baseline.setup(0, "cpu").given["t"].device.type == "cpu"


def test_the_module_is_frozen_and_stays_in_training_mode() -> None:
    module = built(nn.BatchNorm1d, 4)
    assert module.training
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_the_digest_sees_values_and_not_names_shapes_order_or_padding() -> None:
    torch.manual_seed(0)
    first = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(4, 2)})
    second = nn.Module()
    second.rest = nn.Parameter(
        torch.cat([first["b"].bias, first["a"].bias, torch.zeros(5)]).view(1, -1).detach()
    )
    second.wb = nn.Parameter(first["b"].weight.detach().double())
    second.wa = nn.Parameter(first["a"].weight.detach().t().contiguous())
    ours, theirs = parameter_digest(first), parameter_digest(second)
    assert ours["digest"] == theirs["digest"]
    assert (ours["elements"], theirs["elements"]) == (26, 31)
    assert ours["shapes"]["a.weight"] == [4, 3]
    with torch.no_grad():
        second.wa[0, 0] += 1e-6
    assert parameter_digest(second)["digest"] != ours["digest"]


def test_the_digest_counts_how_often_a_value_occurs() -> None:
    def digest(*values: float) -> str:
        module = nn.Module()
        module.p = nn.Parameter(torch.tensor(values, dtype=torch.float32))
        result: str = parameter_digest(module)["digest"]
        return result

    assert len({digest(1, 1, 2), digest(1, 2, 2), digest(1, 2), digest(2, 1, 1), digest(-1, -1, 2)}) == 4


def test_parameters_are_adopted_when_names_and_shapes_match() -> None:
    theirs, ours = (
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)),
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)),
    )
    theirs[1].running_mean.fill_(3)
    assert adopt_parameters(ours, theirs.state_dict())
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name


@pytest.mark.parametrize(
    "other",
    [
        lambda: nn.Sequential(nn.Linear(3, 5)),
        lambda: nn.Sequential(nn.Linear(3, 4, bias=False)),
        lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)),
        lambda: nn.Linear(3, 4),
    ],
)
def test_nothing_is_adopted_when_one_name_or_shape_differs(other) -> None:
    ours = nn.Sequential(nn.Linear(3, 4))
    before = ours[0].weight.detach().clone()
    assert not adopt_parameters(ours, other().state_dict())
    assert torch.equal(ours[0].weight, before)


def test_equal_values_are_not_written_again() -> None:
    ours = nn.Linear(3, 4)
    version = ours.weight._version
    assert adopt_parameters(ours, {name: value.clone() for name, value in ours.state_dict().items()})
    assert ours.weight._version == version


@pytest.mark.gpu
def test_on_a_gpu_inputs_are_drawn_there_and_both_models_agree(data: Path, tmp_path: Path) -> None:
    folder = data / "kernelbench"
    baseline = load(folder / BASE, "baseline")
    candidate = load(folder / "23_renamed.py", "candidate", "kernelbench", baseline_path=folder / BASE)
    assert baseline.inputs is not None
    args = baseline.inputs(4, "cuda:0", None)
    assert str(args[0].device) == "cuda:0"
    assert torch.equal(args[0], baseline.inputs(4, "cuda:0", None)[0])
    model, new = baseline.setup(11, "cuda:0"), candidate.setup(11, "cuda:0")
    torch.testing.assert_close(candidate.call(new, args), baseline.call(model, args), rtol=1e-4, atol=1e-4)
    assert parameter_digest(new)["digest"] == parameter_digest(model)["digest"]
    # A generator on the host cannot fill a tensor on the device: drawn on the host, then moved.
    host = write_model(tmp_path / "host.py", "", "[]", "[torch.rand(2, generator=torch.Generator())]")
    inputs = load(host, "baseline").inputs
    assert inputs is not None
    assert str(inputs(1, "cuda:0", None)[0].device) == "cuda:0"
