// Where a call runs, and with what memory and threads.
#pragma once

#include <cstddef>

#include "syncfree/c_api.h"

namespace syncfree {

using Stream = syncfree_stream;  // cudaStream_t
using ParallelFor = syncfree_parallel_for;

// Everything has a default. On CUDA the call queues its work on `stream` and returns; what it reads
// and writes must live until the stream gets there. The device is that of the operands; the current
// device does not change.
//
// Scratch is memory that a call needs besides operands and results. If none is given, the library
// keeps up to 8 MiB for each stream, and takes more than that from the device's stream-ordered pool
// for the time of one call. While a stream captures a graph it can do neither, and a call that
// needs memory returns kNeedsScratch: give it some that lives as long as the graph. `measured`
// tells how much a call wants.
struct Launch {
  Stream stream = nullptr;
  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;
  ParallelFor parallel_for = nullptr;  // CPU threads; none: the calling thread
  std::size_t* scratch_needed = nullptr;

  syncfree_launch to_c() const {
    return {stream, scratch, scratch_bytes, scratch_needed, parallel_for};
  }
};

// A call with this launch runs nothing and writes to `bytes` how much scratch memory it would want:
//
//   std::size_t bytes = 0;
//   Status status = psnr(preds, target, 1.0, value, {}, measured(bytes));
inline Launch measured(std::size_t& bytes) {
  Launch launch;
  launch.scratch_needed = &bytes;
  return launch;
}

}  // namespace syncfree
