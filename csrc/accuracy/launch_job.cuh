// Launches a counting kernel.
#pragma once

#include "accuracy/count_job.cuh"
#include "core/early_launch.cuh"

namespace syncfree::accuracy {

// Launches early: the kernel must wait for the one ahead; a BlockTally does that.
inline cudaError_t launch_job(void (*kernel)(CountJob), unsigned int threads,
                              std::size_t shared_bytes, cudaStream_t stream, const CountJob& job) {
  return launch_early(kernel, job.blocks, threads, shared_bytes, stream, job);
}

}  // namespace syncfree::accuracy
