// As much of the CUDA runtime as csrc/core/device_info.cu, kept_workspace.cu, their users and
// csrc/ops/cuda_error_record.cpp ask for; the programs of their tests answer.
#pragma once

#include <cstddef>

#define __global__ inline

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation = 2, cudaErrorNotSupported = 801 };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrComputeCapabilityMinor,
  cudaDevAttrMaxSharedMemoryPerBlockOptin
};
struct cudaFuncAttributes {
  int ptxVersion;
};

cudaError_t cudaGetDevice(int* device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)());
cudaError_t cudaGetLastError();

using cudaStream_t = void*;
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id);
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream);

enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone };
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status);
cudaError_t cudaSetDevice(int device);
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);

enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode);

inline constexpr unsigned int cudaHostAllocPortable = 1, cudaHostAllocMapped = 2;
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned int flags);
