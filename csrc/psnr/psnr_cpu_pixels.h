// Sums of the runs of images with interleaved channels (channels-last). All channels of a pixel are
// read at once; run by run, each cache line would be fetched once per channel. A run holds the same
// elements in every layout: its sum has the same bits. A window is a run's length of pixels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/parallel.h"
#include "psnr/psnr_cpu_sum.h"

namespace syncfree::psnr {

inline constexpr int kMostChannels = 4;
inline constexpr std::int64_t kFewestRunsOfPlane = 4;

// Whether the last two dimensions are channels and pixels: interleaved in at least one of the
// operands, planes in the other.
inline bool has_pixels(const Operands& o) {
  const int last = o.preds.rank - 1;
  if (last - 1 < o.kept || o.preds.dtype != o.target.dtype) return false;
  const std::int64_t channels = o.preds.size[last - 1];
  if (channels < 2 || channels > kMostChannels || o.preds.size[last] < kFewestRunsOfPlane * kRun)
    return false;
  const auto are_side_by_side = [&](const TensorView& view) {
    return view.stride[last] == channels && view.stride[last - 1] == 1;
  };
  const auto are_planes = [&](const TensorView& view) { return view.stride[last] == 1; };
  const bool preds = are_side_by_side(o.preds), target = are_side_by_side(o.target);
  return (preds || target) && (preds || are_planes(o.preds)) && (target || are_planes(o.target));
}

// Sums the runs that begin in some windows of an image, window by window.
template <class T>
class PixelRuns {
 public:
  // `sums`: those of all runs of all results, one result after another.
  PixelRuns(const SquaredErrors& errors, double* sums)
      : errors_(errors),
        o_(errors.operands()),
        channels_(o_.preds.size[o_.preds.rank - 2]),
        pixels_(o_.preds.size[o_.preds.rank - 1]),
        images_of_result_(o_.reduced / (channels_ * pixels_)),
        sums_(sums) {}

  std::int64_t images() const { return o_.results * images_of_result_; }
  std::int64_t windows() const { return (pixels_ + kRun - 1) / kRun; }

  void sum(std::int64_t image, std::int64_t first_window, std::int64_t end_window) {
    Planes preds(o_.preds, image), target(o_.target, image);
    const std::int64_t first_plane = image % images_of_result_ * channels_;
    std::int64_t start[kMostChannels];  // pixel where a plane's first run begins
    bool fits = true;                   // windows and runs begin together
    for (std::int64_t c = 0; c < channels_; ++c) {
      start[c] = (kRun - (first_plane + c) * pixels_ % kRun) % kRun;
      fits = fits && start[c] == 0;
    }
    for (std::int64_t window = first_window; window < end_window; ++window) {
      const std::int64_t pixel = window * kRun;
      for (Planes* planes : {&preds, &target}) planes->show(pixel, fits, window == first_window);
      for (std::int64_t c = 0; c < channels_; ++c) {
        const std::int64_t left = pixels_ - pixel - start[c];
        if (left <= 0) continue;
        const std::int64_t result = image / images_of_result_;
        const std::int64_t begin = (first_plane + c) * pixels_ + pixel + start[c];
        const std::int64_t end = std::min(begin + kRun, o_.reduced);
        const bool ends_here = end - begin <= left;  // and does not continue in the next plane
        sums_[result * errors_.runs() + begin / kRun] =
            ends_here
                ? errors_.of_buffers(preds.at(c) + start[c], target.at(c) + start[c], end - begin)
                : errors_.of_elements(result, begin, end);
      }
    }
  }

 private:
  // One operand's planes of an image, read in place or split from pixels into a buffer: a window
  // and, if runs go beyond it, the next one.
  class Planes {
   public:
    Planes(const TensorView& view, std::int64_t image)
        : data_(static_cast<const T*>(view.data)),
          channels_(view.size[view.rank - 2]),
          pixels_(view.size[view.rank - 1]),
          plane_stride_(view.stride[view.rank - 2]),
          is_split_(view.stride[view.rank - 1] != 1) {
      for (int d = view.rank - 3; d >= 0; --d) {
        data_ += image % view.size[d] * view.stride[d];
        image /= view.size[d];
      }
      if (is_split_) split_.reset(new T[2 * kRun * channels_]);
    }

    void show(std::int64_t pixel, bool window_alone, bool is_first) {
      if (!is_split_) {
        shown_ = data_ + pixel;
      } else if (window_alone || is_first) {
        split(pixel, 0, window_alone ? kRun : 2 * kRun);
      } else {
        for (std::int64_t c = 0; c < channels_; ++c)
          std::copy_n(&split_[c * 2 * kRun + kRun], kRun, &split_[c * 2 * kRun]);
        split(pixel + kRun, kRun, kRun);
      }
    }

    const T* at(std::int64_t channel) const {
      return is_split_ ? &split_[channel * 2 * kRun] : shown_ + channel * plane_stride_;
    }

   private:
    void split(std::int64_t pixel, std::int64_t to, std::int64_t most) {
      const std::int64_t count = std::min(most, pixels_ - pixel);
      if (count <= 0) return;
      const T* from = data_ + pixel * channels_;
      T* planes = &split_[to];
      switch (channels_) {
        case 2:
          return split_pixels<2>(from, count, planes);
        case 3:
          return split_pixels<3>(from, count, planes);
        default:
          return split_pixels<4>(from, count, planes);
      }
    }

    template <int kChannels>
    static void split_pixels(const T* from, std::int64_t count, T* planes) {
      static const auto split = select_isa(&baseline::psnr_split_pixels<T, kChannels>,
                                           &avx2::psnr_split_pixels<T, kChannels>,
                                           &avx512::psnr_split_pixels<T, kChannels>);
      split(from, count, planes, 2 * kRun);
    }

    const T* data_;
    const std::int64_t channels_, pixels_, plane_stride_;
    const bool is_split_;
    std::unique_ptr<T[]> split_;
    const T* shown_ = nullptr;
  };

  const SquaredErrors& errors_;
  const Operands& o_;
  const std::int64_t channels_, pixels_, images_of_result_;
  double* const sums_;
};

// The sums of all runs of all results; empty where there are no pixels to split.
inline std::vector<double> sums_of_pixels(const SquaredErrors& errors, ParallelFor parallel_for) {
  constexpr std::int64_t kWindows = 16;  // that a thread takes together
  std::vector<double> sums;
  if (!has_pixels(errors.operands())) return sums;
  errors.with_own_type([&]<class T>(TypeTag<T>) {
    sums.resize(static_cast<std::size_t>(errors.results() * errors.runs()));
    PixelRuns<T> pixels(errors, sums.data());
    const std::int64_t pieces = (pixels.windows() + kWindows - 1) / kWindows;
    parallel_ranges(parallel_for, 0, pixels.images() * pieces, 1,
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t first = i % pieces * kWindows;
                        pixels.sum(i / pieces, first, std::min(first + kWindows, pixels.windows()));
                      }
                    });
  });
  return sums;
}

}  // namespace syncfree::psnr
