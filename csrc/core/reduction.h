// How per-image values become the result.
#pragma once

namespace syncfree {

enum class Reduction : int { kNone = 0, kMean = 1, kSum = 2 };

}  // namespace syncfree
