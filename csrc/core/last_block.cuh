// Grid-wide hand-over without a second launch: the block that arrives last sees what all others
// wrote.
#pragma once

#include <cuda/atomic>

#include <cstdint>

namespace syncfree {

// Adds `count` to a ticket, whose owners bring it to `total` in all. True for the one that does,
// which then sees what the others had seen before they arrived; the ticket is zero again for the
// next launch.
//
// Release and acquire are the one thread's, and hold for all that a barrier orders before and
// behind it. Two __threadfence() in every thread say the same, but they are sequentially
// consistent, each a round trip to L2.
__device__ inline bool is_last_arrival(std::uint32_t* ticket, std::uint32_t count,
                                       std::uint32_t total) {
  const cuda::atomic_ref<std::uint32_t, cuda::thread_scope_device> arrived(*ticket);
  const bool last = arrived.fetch_add(count, cuda::memory_order_acq_rel) + count == total;
  if (last) *ticket = 0;
  return last;
}

// Every thread of every block calls it once, after the block wrote its results. True in all threads
// of exactly one block, whose reads of those results are then safe.
__device__ inline bool is_last_block(std::uint32_t* ticket, std::uint32_t blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) last = is_last_arrival(ticket, 1, blocks);
  __syncthreads();
  return last;
}

}  // namespace syncfree
