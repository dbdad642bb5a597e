// As much of the CUDA runtime as csrc/core/device_info.cu asks for; tests/device_info.cpp answers.
#pragma once

#define __global__ inline

enum cudaError_t { cudaSuccess, cudaErrorMemoryAllocation = 2 };
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
