// The parameters of the CUDA kernels of SSIM, and the launchers that ssim_cuda.cu chooses from.
//
// Terms: a plane is one channel of one image. A strip is a group of neighboring columns of a plane,
// down which one warp walks row by row (ssim_strip.cuh); a patch is a rectangle of outputs that one
// block computes at once (ssim_patch.cuh); a tile is its counterpart on the general path
// (ssim_general.cuh). A unit is the part of a plane whose sums are reduced together: some rows of a
// strip, a patch, or a tile.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "core/counted_sum.cuh"
#include "core/dtype.h"
#include "core/reduction.h"
#include "ssim/ssim.h"
#include "ssim/ssim_math.h"

namespace syncfree::ssim {

// Strides in elements, in the order (B, C, D, H, W).
struct Image {
  const void* data;
  DType dtype;
  std::int64_t stride[5];
};

struct Geometry {
  std::int64_t channels;
  std::int64_t size[3];  // depth, height, width of the images
  std::int64_t map[3];   // the same of the map
  std::int64_t crop[3];  // positions at both ends of each axis that the contrast mean leaves out
};

// What is summed over each unit. Units are cut by the image size alone, so no grid, batch or layout
// changes the bits of a result. A unit's sum goes to the slot of the unit, and slots are added up
// in order; or it is added in fixed point to a 64-bit word (core/counted_sum.cuh), whose integers
// give the same bits in any order.
enum Quantity { kDeficit, kContrastDeficit, kSquaredError, kAbsoluteError, kQuantities };

// The deficits are bounded. On the fast paths they have words, unless there are too many units for
// one (CountedSums::kMostTerms).
inline constexpr int kMeans = 2;  // the first two quantities

// Units are numbered image by image. `slots[q]` is null if nobody asked for quantity q, or if it
// has words. A reduced value of a batch with few units has a single word. Otherwise each image has
// a word, and if the value is reduced `batch_sum` holds the word of the batch.
struct Results {
  void* value;
  void* contrast;
  double* squared_error;
  double* absolute_error;
  DType dtype;  // of `contrast` and the map
  DType value_dtype;
  Reduction reduction;
  RunningMean running;

  std::int64_t images;
  std::int64_t units_per_image;
  double map_elements;  // of one image
  double contrast_elements;

  CountedSums sums[kMeans];
  CountedSums batch_sum;
  double* slots[kQuantities];
  double* image_values;          // scratch of the reduction over images
  std::uint32_t* image_tickets;  // units that have arrived, per image; zero between launches
  std::uint32_t* batch_ticket;
};

template <class Acc>
struct Job {
  Image preds;
  Image target;
  Geometry geometry;
  Clamp<Acc> clamp;
  Constants<Acc> constants;
  const Constants<Acc>* constants_in_memory;  // not null when the data range is found on the device
  void* map;
  Acc* pooled_preds;  // both null, or neither
  Acc* pooled_target;
  Results results;

  bool has_errors() const {
    return results.slots[kSquaredError] != nullptr || results.slots[kAbsoluteError] != nullptr;
  }
  // Whether strips must leave the border out, clamp, or compute the contrast.
  bool has_more() const {
    return leaves_border_out() || clamp.enabled || results.contrast != nullptr;
  }

  // Strips and patches compute the outputs of the padded image in any case. Without padding they
  // leave the outputs at the border out of the sums.
  SYNCFREE_HD bool leaves_border_out() const { return geometry.crop[1] == 0; }
};

// Windows of the fast paths: 11 x 11 Gaussian of sigma 1.5, or 7 x 7 uniform, over 2-D images of
// the same type, computed in float.
enum class StripWindow { kNone, kGaussian, kUniform };

StripWindow strip_window(const Problem& problem);  // kNone: take the general path

struct StripUnits {
  std::int64_t strips;    // across a plane
  std::int64_t of_strip;  // units down a strip
  int rows;               // of a unit
};

// For the current device.
StripUnits strip_units(StripWindow window, const Geometry& geometry);
double tap_sum_of(StripWindow window);     // for patches, and for walks of gradients
double strip_tap_sum(StripWindow window);  // for strips on the current device
cudaError_t launch_strips(const Job<float>& job, const StripUnits& units, StripWindow window,
                          cudaStream_t stream);
cudaError_t launch_strips_of_scale(const Job<float>& job, const StripUnits& units,
                                   cudaStream_t stream);  // with pooling

// Ring strips (ssim_ring.cuh): the same for the Gaussian where a multiprocessor has shared memory
// for rows that wait. Only code for compute capability 9.0 to 10.3 has them; code for 8.0 also runs
// on 8.6 and 8.9, which have 100 KiB. For each architecture only one of the two kinds of strips is
// compiled for the Gaussian. Kernels of the other kind are only a trap, and nobody launches them.
SYNCFREE_HD constexpr bool has_ring_strips(int architecture) {
  return architecture >= 90 && architecture < 110;
}
#ifdef __CUDA_ARCH__
inline constexpr bool kCompilesStrips = !has_ring_strips(__CUDA_ARCH__ / 10);
inline constexpr bool kCompilesRingStrips = !kCompilesStrips;
#else
inline constexpr bool kCompilesStrips = true, kCompilesRingStrips = true;
#endif
bool takes_ring_strips(StripWindow window);
cudaError_t launch_ring_strips(const Job<float>& job, const StripUnits& units, cudaStream_t stream);
cudaError_t launch_ring_strips_of_scale(const Job<float>& job, const StripUnits& units,
                                        cudaStream_t stream);

// Uniform strips (ssim_uniform.cuh): the uniform window where a multiprocessor has shared memory
// for the pixels of twelve warps, and where strips of their width cover the image without reading
// many more columns.
SYNCFREE_HD constexpr bool has_uniform_strips(int architecture) {
  return architecture == 80 || (architecture >= 90 && architecture < 110);
}
#ifdef __CUDA_ARCH__
inline constexpr bool kCompilesUniformStrips = has_uniform_strips(__CUDA_ARCH__ / 10);
#else
inline constexpr bool kCompilesUniformStrips = true;
#endif
bool takes_uniform_strips(StripWindow window, const Geometry& geometry);
bool has_near_columns(const Image& image);  // less than 2 GiB apart, for uniform strips
cudaError_t launch_uniform_strips(const Job<float>& job, const StripUnits& units,
                                  cudaStream_t stream);

// Patches (ssim_patch.cuh): the problems of strips where images are too small for strips, or where
// a map is wanted.

// Pixels in all channels of one image. With more, strips take less time for a batch that fills the
// GPU.
inline constexpr std::int64_t kMostPatchPixels = (1 << 18) - 1;
SYNCFREE_HD bool fits_patches(const Geometry& geometry) {
  return geometry.channels * geometry.size[1] * geometry.size[2] <= kMostPatchPixels;
}
bool has_near_rows(const Image& preds, const Image& target);  // less than 4 GiB apart, for patches
std::int64_t patches_per_image(const Geometry& geometry);
cudaError_t launch_patches(const Job<float>& job, StripWindow window, cudaStream_t stream);
cudaError_t launch_patches_of_scales(const Job<float>* jobs, int count, cudaStream_t stream);

// The general path: any window, 2-D and 3-D, any types.
struct Window {
  Axis axes[3];
  double tap_scale[3];  // one over the sum of the raw taps
};

// The most taps of the three axes together that go to shared memory; more are kept in scratch.
inline constexpr int kSharedTaps = 2048;

template <class Acc>
std::int64_t general_units_per_image(const Geometry& geometry, const Window& window);
template <class Acc>
cudaError_t launch_general(const Job<Acc>& job, const Window& window, Acc* tap_memory,
                           cudaStream_t stream);

// DataRange::kData: finds the range and writes the constants that follow from it.
inline constexpr int kRangeBlocks = 1024;

std::size_t range_scratch_size();
template <class Acc>
cudaError_t launch_range(const Problem& problem, double tap_sum, void* scratch,
                         std::uint32_t* ticket, Constants<Acc>* constants, cudaStream_t stream);

}  // namespace syncfree::ssim
