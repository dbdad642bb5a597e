#include "runtime/device_code.h"

#include <limits>

namespace syncfree::runtime::cuda {
namespace {

// sm_75 is the oldest target that CUDA 13 accepts; newer GPUs run it by just-in-time compilation.
constexpr const char* kSource = R"(
.version 6.4
.target sm_75
.address_size 64

// Bounded by time, so that whatever waits behind it goes on in the end.
.visible .entry syncfree_spin(.param .u64 nanoseconds)
{
  .reg .b64 %limit, %begin, %now, %passed;
  .reg .pred %more;
  ld.param.u64 %limit, [nanoseconds];
  mov.u64 %begin, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %begin;
  setp.lt.u64 %more, %passed, %limit;
  @%more bra again;
  ret;
}

.visible .entry syncfree_stamp(.param .u64 out, .param .u32 serial)
{
  .reg .b64 %out, %time, %cycles;
  .reg .b32 %sm, %serial;
  ld.param.u64 %out, [out];
  ld.param.u32 %serial, [serial];
  mov.u64 %time, %globaltimer;
  mov.u64 %cycles, %clock64;
  mov.u32 %sm, %smid;
  st.global.u64 [%out], %time;
  st.global.u64 [%out+8], %cycles;
  st.global.u32 [%out+16], %sm;
  // The host polls this word: it must not become visible before the others.
  st.release.sys.global.u32 [%out+20], %serial;
  ret;
}
)";

}  // namespace

double effective_mhz(const Stamp& first, const Stamp& second) {
  const std::uint64_t nanoseconds = second.nanoseconds - first.nanoseconds;
  if (first.sm != second.sm || second.nanoseconds < first.nanoseconds ||
      nanoseconds < kLeastNanosecondsForMhz)
    return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(second.cycles - first.cycles) / static_cast<double>(nanoseconds) * 1e3;
}

DeviceCode::DeviceCode(const Driver& driver) : driver_(driver) {
  Module module = nullptr;
  driver.check(driver.module_load(&module, kSource), "cuModuleLoadData");
  driver.check(driver.module_get_function(&spin_, module, "syncfree_spin"), "cuModuleGetFunction");
  driver.check(driver.module_get_function(&stamp_, module, "syncfree_stamp"),
               "cuModuleGetFunction");
}

void DeviceCode::spin(Stream stream, std::uint64_t nanoseconds) const {
  void* arguments[] = {&nanoseconds};
  driver_.check(driver_.launch(spin_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
                "cuLaunchKernel");
}

void DeviceCode::stamp(Stream stream, DevicePointer out, std::uint32_t serial) const {
  void* arguments[] = {&out, &serial};
  driver_.check(driver_.launch(stamp_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr),
                "cuLaunchKernel");
}

}  // namespace syncfree::runtime::cuda
