// The vector kernels of SSIM, built once for each instruction set through core/for_each_isa.h.
namespace ssim_cpu {
namespace {

using namespace ::syncfree::ssim;

#include "ssim/ssim_cpu_rows.h"  // used by the others, so it stays in front

#include "ssim/ssim_cpu_extremes.h"
#include "ssim/ssim_cpu_general.h"
#include "ssim/ssim_cpu_stream.h"

}  // namespace

const Kernels& kernels() {
  static constexpr Kernels table = {stream_units, general_units, extremes_of_rows};
  return table;
}

}  // namespace ssim_cpu
