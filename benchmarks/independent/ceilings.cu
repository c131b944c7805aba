// The same speeds as `trackside ceilings` measures on a GPU, by other means: kernels and cuBLAS calls of its own.
// Shares no code with it. Build: nvcc -O3 -std=c++17 -arch=native ceilings.cu -lcublas -lcurand -o ceilings
// Prints one line of JSON for each: {"name": …, "value": …, "n": …}, in B/s or FLOP/s, the median of n.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <utility>
#include <vector>

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <curand.h>

#define CHECK(call)                                                                               \
    do {                                                                                          \
        const int status = static_cast<int>(call);                                                \
        if (status != 0) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__, #call, status);     \
            std::exit(1);                                                                         \
        }                                                                                         \
    } while (0)

namespace {

constexpr size_t kMemory = size_t{4} << 30;
constexpr size_t kHostCopy = size_t{256} << 20;
constexpr int kMatrix = 8192;
constexpr double kSeconds = 1.0;
constexpr int kThreads = 512;

// A block takes tiles of kDeep vectors for each thread, from its own number on in steps of the grid.
// The sum is stored only if it is an impossible value.
template <int kDeep>
__global__ void read_all(const float4* __restrict__ from, float4*, size_t tiles, float* never) {
    float sum = 0.f;
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const float4* at = from + tile * kDeep * blockDim.x + threadIdx.x;
        float4 part[kDeep];
#pragma unroll
        for (int k = 0; k < kDeep; ++k) part[k] = __ldcs(at + k * blockDim.x);
#pragma unroll
        for (int k = 0; k < kDeep; ++k) sum += part[k].x + part[k].y + part[k].z + part[k].w;
    }
    if (sum == 1.2345678e30f) *never = sum;
}

template <int kDeep>
__global__ void write_all(const float4* __restrict__, float4* to, size_t tiles, float*) {
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        float4* at = to + tile * kDeep * blockDim.x + threadIdx.x;
#pragma unroll
        for (int k = 0; k < kDeep; ++k) at[k * blockDim.x] = make_float4(1.5f, 2.5f, 3.5f, 4.5f);
    }
}

template <int kDeep>
__global__ void copy_all(const float4* __restrict__ from, float4* to, size_t tiles, float*) {
    for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const size_t at = tile * kDeep * blockDim.x + threadIdx.x;
        float4 part[kDeep];
#pragma unroll
        for (int k = 0; k < kDeep; ++k) part[k] = from[at + k * blockDim.x];
#pragma unroll
        for (int k = 0; k < kDeep; ++k) to[at + k * blockDim.x] = part[k];
    }
}

using Kernel = void (*)(const float4*, float4*, size_t, float*);

template <typename T>
__global__ void narrow(const float* from, T* to, size_t count) {
    const size_t step = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) to[i] = T(from[i]);
}

float milliseconds_of(int times, const std::function<void()>& once) {
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    once();
    CHECK(cudaEventRecord(start));
    for (int i = 0; i < times; ++i) once();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = 0.f;
    CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    return milliseconds / times;
}

// Rates of repetitions for about a second, two before them not counted; their median is printed.
void report(const char* name, double amount, const std::function<void()>& once) {
    std::vector<double> rates;
    const auto began = std::chrono::steady_clock::now();
    for (int turn = 0;; ++turn) {
        const float milliseconds = milliseconds_of(4, once);
        if (turn >= 2) rates.push_back(amount / (milliseconds * 1e-3));
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
        if (rates.size() >= 5 && spent.count() > kSeconds) break;
    }
    CHECK(cudaGetLastError());
    std::sort(rates.begin(), rates.end());
    std::printf("{\"name\": \"%s\", \"value\": %.6g, \"n\": %zu}\n", name, rates[rates.size() / 2], rates.size());
    std::fflush(stdout);
}

// The fastest of a few shapes of a launch, and of the driver's own way where there is one.
void report_fastest(const char* name, double amount, const std::vector<std::pair<int, Kernel>>& kernels,
                    const float4* from, float4* to, float* never, int processors,
                    const std::function<void()>& own) {
    const size_t count = kMemory / sizeof(float4);
    std::vector<std::function<void()>> ways;
    for (const auto& [deep, kernel] : kernels) {
        for (const int threads : {128, 256, 512, 1024}) {
            const size_t tiles = count / (size_t(deep) * threads);
            for (const size_t blocks : {size_t(processors) * 4, size_t(processors) * 16, tiles}) {
                const Kernel chosen = kernel;
                ways.push_back([=] { chosen<<<blocks, threads>>>(from, to, tiles, never); });
            }
        }
    }
    if (own) ways.push_back(own);
    size_t best = 0;
    float least = 1e30f;
    for (size_t i = 0; i < ways.size(); ++i) {
        const float taken = milliseconds_of(4, ways[i]);
        if (taken < least) best = i, least = taken;
    }
    CHECK(cudaGetLastError());
    report(name, amount, ways[best]);
}

void memory(int processors, curandGenerator_t random) {
    float *source, *target, *never;
    CHECK(cudaMalloc(&source, kMemory));
    CHECK(cudaMalloc(&target, kMemory));
    CHECK(cudaMalloc(&never, sizeof(float)));
    CHECK(curandGenerateNormal(random, source, kMemory / sizeof(float), 0.f, 1.f));
    auto* from = reinterpret_cast<float4*>(source);
    auto* to = reinterpret_cast<float4*>(target);
    report_fastest("gpu.memory.read", kMemory,
                   {{1, read_all<1>}, {2, read_all<2>}, {4, read_all<4>}, {8, read_all<8>}}, from, to, never,
                   processors, nullptr);
    report_fastest("gpu.memory.write", kMemory, {{1, write_all<1>}, {2, write_all<2>}, {4, write_all<4>}}, from,
                   to, never, processors, [&] { CHECK(cudaMemsetAsync(target, 0x3f, kMemory)); });
    report_fastest("gpu.memory.copy", 2.0 * kMemory, {{1, copy_all<1>}, {2, copy_all<2>}, {4, copy_all<4>}}, from,
                   to, never, processors,
                   [&] { CHECK(cudaMemcpyAsync(target, source, kMemory, cudaMemcpyDeviceToDevice)); });
    CHECK(cudaFree(source));
    CHECK(cudaFree(target));
    CHECK(cudaFree(never));
}

template <typename T>
void product(const char* name, cudaDataType type, cublasComputeType_t compute, cublasHandle_t blas,
             curandGenerator_t random, int blocks) {
    const size_t count = size_t{kMatrix} * kMatrix;
    float* wide;
    T *a, *b, *c;
    CHECK(cudaMalloc(&wide, count * sizeof(float)));
    CHECK(cudaMalloc(&a, count * sizeof(T)));
    CHECK(cudaMalloc(&b, count * sizeof(T)));
    CHECK(cudaMalloc(&c, count * sizeof(T)));
    for (T* filled : {a, b}) {
        CHECK(curandGenerateNormal(random, wide, count, 0.f, 1.f));
        narrow<T><<<blocks, kThreads>>>(wide, filled, count);
    }
    const float one = 1.f, zero = 0.f;
    report(name, 2.0 * kMatrix * kMatrix * double{kMatrix}, [&] {
        CHECK(cublasGemmEx(blas, CUBLAS_OP_N, CUBLAS_OP_N, kMatrix, kMatrix, kMatrix, &one, a, type, kMatrix, b,
                           type, kMatrix, &zero, c, type, kMatrix, compute, CUBLAS_GEMM_DEFAULT));
    });
    for (void* held : {static_cast<void*>(wide), static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c)}) {
        CHECK(cudaFree(held));
    }
}

void host_copies() {
    void *host, *device;
    CHECK(cudaMallocHost(&host, kHostCopy));
    CHECK(cudaMalloc(&device, kHostCopy));
    for (size_t i = 0; i < kHostCopy / 4; ++i) static_cast<unsigned*>(host)[i] = static_cast<unsigned>(i * 2654435761u);
    report("gpu.copy.host-to-device.pinned", kHostCopy,
           [&] { CHECK(cudaMemcpyAsync(device, host, kHostCopy, cudaMemcpyHostToDevice)); });
    report("gpu.copy.device-to-host.pinned", kHostCopy,
           [&] { CHECK(cudaMemcpyAsync(host, device, kHostCopy, cudaMemcpyDeviceToHost)); });
    CHECK(cudaFreeHost(host));
    CHECK(cudaFree(device));
}

}  // namespace

int main() {
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    const int blocks = properties.multiProcessorCount * 4;
    curandGenerator_t random;
    CHECK(curandCreateGenerator(&random, CURAND_RNG_PSEUDO_DEFAULT));
    CHECK(curandSetPseudoRandomGeneratorSeed(random, 2026));
    cublasHandle_t blas;
    CHECK(cublasCreate(&blas));
    memory(properties.multiProcessorCount, random);
    product<float>("gpu.gemm.fp32", CUDA_R_32F, CUBLAS_COMPUTE_32F, blas, random, blocks);
    product<float>("gpu.gemm.tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, blas, random, blocks);
    product<__nv_bfloat16>("gpu.gemm.bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, blas, random, blocks);
    product<__half>("gpu.gemm.fp16", CUDA_R_16F, CUBLAS_COMPUTE_32F, blas, random, blocks);
    host_copies();
    CHECK(cublasDestroy(blas));
    CHECK(curandDestroyGenerator(random));
    return 0;
}
