// The vector kernels of SSIM, built once for each instruction set through core/for_each_isa.h.
namespace ssim_cpu {
namespace {

using namespace ::syncfree::ssim;

// Used by the headers below.
#include "ssim/ssim_cpu_vectors.h"

#include "ssim/ssim_cpu_rows.h"

#include "ssim/ssim_cpu_pool.h"

#include "ssim/ssim_cpu_general.h"
#include "ssim/ssim_cpu_stream.h"

}  // namespace

const Kernels& kernels() {
  static constexpr Kernels table = {stream_units, general_units};
  return table;
}

}  // namespace ssim_cpu
