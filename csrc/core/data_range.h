// The three ways in which the range of image values is given.
#pragma once

namespace syncfree {

struct DataRange {
  enum class Source {
    kValue,     // `value`
    kInterval,  // both images are clamped to [low, high]; the range is high - low
    kData,  // the larger of the two tensors' max - min over the whole batch, found on the device
  };

  Source source = Source::kValue;
  double value = 1.0;
  double low = 0.0;
  double high = 0.0;

  // Not for kData.
  double width() const { return source == Source::kInterval ? high - low : value; }
};

}  // namespace syncfree
