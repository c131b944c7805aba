"""Names of kernels that an H200 wrote into traces, as they are shown."""

import pytest

from trackside.report.kernel_names import short_kernel

REDUCE = (
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, {}, unsigned int, float, 4, 4> >"
    "(at::native::ReduceOp<float, {}, unsigned int, float, 4, 4>)"
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"),
        ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", "AccumulateGrad"),
        (
            REDUCE.replace("{}", "at::native::MeanOps<float, float, float, float>"),
            "reduce_kernel<MeanOps>",
        ),
        (
            REDUCE.replace(
                "{}",
                "at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>"
                "::operator()(at::TensorIterator&)::{lambda(float, float)#1}>",
            ),
            "reduce_kernel<sum_functor>",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::"
            "BinaryFunctor<float, float, float, at::native::binary_internal::DivFunctor<float> > >"
            "(at::TensorIteratorBase&, at::native::BinaryFunctor<float> const&)::{lambda(int)#1}>(int)",
            "elementwise_kernel<DivFunctor>",
        ),
        (
            "void at::native::vectorized_elementwise_kernel<8, at::native::(anonymous namespace)::"
            "launch_clamp_scalar(at::TensorIteratorBase&, c10::Scalar, at::native::detail::ClampLimits)"
            "::{lambda()#1}::operator()() const::{lambda()#9}, std::array<char*, 2ul> >(int)",
            "vectorized_elementwise_kernel<launch_clamp_scalar>",
        ),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy_vectorized<at::native::"
            "(anonymous namespace)::OpaqueType<4u>, unsigned int, 1, 128, 1, 16, 4>(char*)",
            "CatArrayBatchedCopy_vectorized",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4>(Params)",
            "Kernel2<cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align4>",
        ),
        *(
            (name, name)
            for name in (
                "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3",
                "Memcpy HtoD (Pageable -> Device)",
                "aten::matmul",
                "triton_poi_fused_add_0",
                "",
            )
        ),
    ],
)
def test_a_kernel_is_named_by_what_it_does(name: str, shown: str) -> None:
    assert short_kernel(name) == shown


@pytest.mark.parametrize("name", ["void <", "void <((((", "void " + "a<" * 5000, "void f<" + "(" * 5000])
def test_names_that_are_none_break_nothing(name: str) -> None:
    assert isinstance(short_kernel(name), str)
