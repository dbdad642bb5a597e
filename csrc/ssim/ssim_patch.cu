// Patches: which images they take, how these are cut, and the launch.
#include "ssim/ssim_patch.cuh"

#include <algorithm>

#include "ssim/pixel_types.h"

namespace syncfree::ssim {
namespace {

static_assert(sizeof(PatchJobs) <= 4096, "more than the parameters of a kernel may have");

int pieces(std::int64_t size, int piece) {
  return static_cast<int>((size + piece - 1) / piece);
}

std::uint64_t row_bytes(const Image& image) {
  return static_cast<std::uint64_t>(image.stride[3] * size_of(image.dtype));
}

std::int64_t units_of(const Job<float>& job) {
  return job.results.images * job.results.units_per_image;
}

Patches make_patches(const Job<float>& job) {
  const std::int64_t* size = job.geometry.size;
  const auto divider = [](std::int64_t by) { return FastDivider(static_cast<unsigned>(by)); };
  return {
      divider(job.results.units_per_image),
      divider(pieces(size[2], kPatchColumns)),
      divider(pieces(size[1], kPatchRows)),
      {static_cast<unsigned>(row_bytes(job.preds)), static_cast<unsigned>(row_bytes(job.target))}};
}

template <PatchTask kTask, class Taps>
cudaError_t start(const Job<float>& job, cudaStream_t stream) {
  if (units_of(job) > INT32_MAX) return cudaErrorInvalidConfiguration;
  return dispatch_pixels(job.preds.dtype, [&]<class T>(TypeTag<T>) {
    return launch_early(patch_kernel<T, kTask, Taps>, static_cast<unsigned>(units_of(job)),
                        kPatchThreads, 0, stream, job, make_patches(job));
  });
}

}  // namespace

bool has_near_rows(const Image& preds, const Image& target) {
  return std::max(row_bytes(preds), row_bytes(target)) <= UINT32_MAX;
}

std::int64_t patches_per_image(const Geometry& geometry) {
  return geometry.channels * pieces(geometry.size[2], kPatchColumns) *
         pieces(geometry.size[1], kPatchRows);
}

cudaError_t launch_patches(const Job<float>& job, StripWindow window, cudaStream_t stream) {
  const Results& r = job.results;
  const bool of_value = r.sums[kDeficit].words != nullptr;
  const bool of_contrast = r.sums[kContrastDeficit].words != nullptr;
  bool one_mean = of_value != of_contrast && job.map == nullptr;
  for (const double* slots : r.slots) one_mean = one_mean && slots == nullptr;
  if (window == StripWindow::kUniform)
    return one_mean ? start<PatchTask::kOneMean, UniformWindow>(job, stream)
                    : start<PatchTask::kAnything, UniformWindow>(job, stream);
  if (!one_mean) return start<PatchTask::kAnything, GaussianWindow>(job, stream);
  return job.clamp.enabled || of_contrast ? start<PatchTask::kOneMean, GaussianWindow>(job, stream)
                                          : start<PatchTask::kValue, GaussianWindow>(job, stream);
}

// For jobs with one mean per image and few units: all of their sums have words.
cudaError_t launch_patches_of_scales(const Job<float>* jobs, int count, cudaStream_t stream) {
  PatchJobs all;
  std::int64_t units = 0;
  for (int i = 0; i < count; ++i) {
    all.jobs[i] = jobs[i];
    all.patches[i] = make_patches(jobs[i]);
    units += units_of(jobs[i]);
    if (units > INT32_MAX) return cudaErrorInvalidConfiguration;
    all.end[i] = static_cast<unsigned>(units);
  }
  return dispatch_pixels(jobs[0].preds.dtype, [&]<class T>(TypeTag<T>) {
    return launch_early(joint_patch_kernel<T>, static_cast<unsigned>(units), kPatchThreads, 0,
                        stream, all);
  });
}

}  // namespace syncfree::ssim
