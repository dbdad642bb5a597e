// The tasks for which strip kernels are compiled.
#pragma once

namespace syncfree::ssim {

// Registers are scarce, so each task does no more than it must.
enum class StripTask {
  kValue,         // SSIM alone
  kErrors,        // SSIM, and the sums of squared and absolute errors
  kScale,         // of a pyramid: contrast alone, and the images of the next scale
  kClampedScale,  // the same with a clamp
  kAnything,      // whatever the job asks for, except maps and the images of the next scale
};

template <StripTask kTask>
inline constexpr bool kIsScale = kTask == StripTask::kScale || kTask == StripTask::kClampedScale;

template <StripTask kTask>
inline constexpr bool kClamps = kTask == StripTask::kAnything || kTask == StripTask::kClampedScale;

template <StripTask kTask>
inline constexpr bool kAddsErrors = kTask == StripTask::kAnything || kTask == StripTask::kErrors;

}  // namespace syncfree::ssim
