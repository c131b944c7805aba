"""Launches a right kernel with a grid beyond the limit, ignores the error and returns fresh memory."""

import ctypes

import torch

_PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry silu(.param .u64 px, .param .u64 py, .param .u32 pn)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<8>;
    mov.u32 %r1, %ctaid.y;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [pn];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra done;
    ld.param.u64 %rd1, [px];
    ld.param.u64 %rd2, [py];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r4, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6];
    mul.f32 %f2, %f1, 0fBFB8AA3B;
    ex2.approx.f32 %f3, %f2;
    add.f32 %f4, %f3, 0f3F800000;
    div.rn.f32 %f5, %f1, %f4;
    st.global.f32 [%rd7], %f5;
done:
    ret;
}
"""
_THREADS = 32  # 4 Mi values need 131,072 blocks along y, where the limit is 65,535
_loaded = {}


def run(x):
    if not _loaded:
        driver = ctypes.CDLL("libcuda.so.1")
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        driver.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(_PTX))
        driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"silu")
        _loaded.update(driver=driver, module=module, kernel=kernel)
    out = torch.empty_like(x)
    values = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_uint(x.numel()))
    arguments = (ctypes.c_void_p * 3)(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
    blocks = (x.numel() + _THREADS - 1) // _THREADS
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    _loaded["driver"].cuLaunchKernel(
        _loaded["kernel"], 1, blocks, 1, _THREADS, 1, 1, 0, stream, arguments, None
    )
    return out
