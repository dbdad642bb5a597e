// Small images: which they are, how they are cut, and the launch.
#include "ssim/ssim_patch.cuh"

#include <algorithm>

#include "ssim/pixel_types.h"

namespace syncfree::ssim {
namespace {

// Of all channels of one image. Beyond, strips take less time for a batch that fills the GPU.
constexpr std::int64_t kMostPixels = (1 << 18) - 1;

static_assert(sizeof(PatchJobs) <= 4096, "more than the parameters of a kernel may have");

int pieces(std::int64_t size, int piece) {
  return static_cast<int>((size + piece - 1) / piece);
}

std::uint64_t row_bytes(const Image& image) {
  return static_cast<std::uint64_t>(image.stride[3] * size_of(image.dtype));
}

Patches make_patches(const Job<float>& job) {
  const std::int64_t* size = job.geometry.size;
  return {pieces(size[2], kPatchColumns),
          pieces(size[1], kPatchRows),
          {row_bytes(job.preds), row_bytes(job.target)}};
}

unsigned blocks_for(std::int64_t units) {
  return static_cast<unsigned>(std::min<std::int64_t>(units, INT32_MAX));
}

template <PatchTask kTask, class Taps>
cudaError_t start(const Job<float>& job, cudaStream_t stream) {
  const unsigned blocks = blocks_for(job.results.images * job.results.units_per_image);
  return dispatch_pixels(job.preds.dtype, [&]<class T>(TypeTag<T>) {
    return launch_early(patch_kernel<T, kTask, Taps>, blocks, kPatchThreads, 0, stream, job,
                        make_patches(job));
  });
}

}  // namespace

bool fits_patches(const Geometry& geometry) {
  return geometry.channels * geometry.size[1] * geometry.size[2] <= kMostPixels;
}

std::int64_t patches_per_image(const Geometry& geometry) {
  return geometry.channels * pieces(geometry.size[2], kPatchColumns) *
         pieces(geometry.size[1], kPatchRows);
}

cudaError_t launch_patches(const Job<float>& job, StripWindow window, cudaStream_t stream) {
  double* const* slots = job.results.slots;
  const bool has_more = slots[kContrastDeficit] != nullptr || slots[kSquaredError] != nullptr ||
                        slots[kAbsoluteError] != nullptr || job.map != nullptr || job.clamp.enabled;
  if (window == StripWindow::kUniform)
    return start<PatchTask::kAnything, UniformWindow>(job, stream);
  return has_more ? start<PatchTask::kAnything, GaussianWindow>(job, stream)
                  : start<PatchTask::kValue, GaussianWindow>(job, stream);
}

cudaError_t launch_patches_of_scales(const Job<float>* jobs, int count, cudaStream_t stream) {
  PatchJobs all;
  all.count = count;
  std::int64_t units = 0;
  for (int i = 0; i < count; ++i) {
    all.jobs[i] = jobs[i];
    all.patches[i] = make_patches(jobs[i]);
    units += jobs[i].results.images * jobs[i].results.units_per_image;
    all.end[i] = units;
  }
  return dispatch_pixels(jobs[0].preds.dtype, [&]<class T>(TypeTag<T>) {
    return launch_early(joint_patch_kernel<T>, blocks_for(units), kPatchThreads, 0, stream, all);
  });
}

}  // namespace syncfree::ssim
