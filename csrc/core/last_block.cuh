// Last-block reduction, without a second launch: the last block to arrive sees what all others
// wrote.
#pragma once

#include <cuda/atomic>

#include <cstdint>

namespace syncfree {

// Adds `count` to a ticket that all arrivals together bring to `total`. Returns true for the
// arrival that completes it, which then sees what the others had seen before they arrived; the
// ticket is zero again for the next launch.
//
// One thread's release and acquire suffice: they cover what barriers of its block order before and
// after them. Two __threadfence() in every thread would do the same, but these are sequentially
// consistent, and each is a round trip to L2.
__device__ inline bool is_last_arrival(std::uint32_t* ticket, std::uint32_t count,
                                       std::uint32_t total) {
  const cuda::atomic_ref<std::uint32_t, cuda::thread_scope_device> arrived(*ticket);
  const bool last = arrived.fetch_add(count, cuda::memory_order_acq_rel) + count == total;
  if (last) *ticket = 0;
  return last;
}

// Every thread of every block calls it once, after the block has written its results. Returns true
// in all threads of exactly one block, which may then read the results of all others.
__device__ inline bool is_last_block(std::uint32_t* ticket, std::uint32_t blocks) {
  __shared__ bool last;
  __syncthreads();
  if (threadIdx.x == 0) last = is_last_arrival(ticket, 1, blocks);
  __syncthreads();
  return last;
}

}  // namespace syncfree
