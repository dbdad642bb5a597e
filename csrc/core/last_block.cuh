// Grid-wide hand-over without a second launch: the block that arrives last sees what all others
// wrote.
#pragma once

#include <cstdint>

namespace syncfree {

// Every thread of every block calls it once, after the block wrote its results. True in all threads
// of exactly one block, whose reads of those results are then safe. The ticket wraps to zero on the
// last arrival, so it needs no memset and serves the next launch.
__device__ inline bool is_last_block(std::uint32_t* ticket, std::uint32_t blocks) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicInc(ticket, blocks - 1) == blocks - 1;
  __syncthreads();
  if (last) __threadfence();
  return last;
}

}  // namespace syncfree
