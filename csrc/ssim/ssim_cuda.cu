// SSIM on CUDA: which path a problem takes, its memory, and the launch.
#include <algorithm>
#include <cstddef>
#include <limits>

#include "ssim/ssim_finish.cuh"
#include "ssim/ssim_job.cuh"

namespace syncfree::ssim {
namespace {

// Hands out pieces of a workspace, or only adds up their sizes if there is no memory.
class Arena {
 public:
  explicit Arena(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  template <class T>
  T* take(std::int64_t count) {
    T* piece = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + size_);
    constexpr std::size_t kAlignment = 16;
    size_ +=
        (static_cast<std::size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return piece;
  }
  std::size_t size() const { return size_; }

 private:
  std::byte* memory_;
  std::size_t size_ = 0;
};

bool in_double(const Problem& problem) {
  return problem.preds.dtype == DType::kFloat64;
}

Geometry make_geometry(const Problem& problem) {
  Geometry g;
  g.channels = problem.preds.size[1];
  for (int axis = 0; axis < 3; ++axis) {
    g.size[axis] = problem.preds.size[2 + axis];
    g.map[axis] = std::max<std::int64_t>(map_size(problem.axes[axis], g.size[axis]), 0);
    g.crop[axis] = problem.axes[axis].pad;
  }
  return g;
}

Image make_image(const TensorView& view) {
  Image image{view.data, view.dtype, {}};
  std::copy_n(view.stride, 5, image.stride);
  return image;
}

Window make_window(const Problem& problem) {
  Window window;
  for (int axis = 0; axis < 3; ++axis) {
    window.axes[axis] = problem.axes[axis];
    window.tap_scale[axis] = 1.0 / raw_tap_sum(problem.axes[axis]);
  }
  return window;
}

// Of the fast paths only strips write the images of the next scale. A map is computed in patches
// whatever the size, as it promises for each pixel what a value promises for the mean: patches have
// a pivot inside every window and are within 1e-6, where single windows of a strip are off by 1e-4.
bool takes_patches(const Problem& problem, StripWindow strips, const Geometry& geometry) {
  return strips != StripWindow::kNone && problem.pooled_preds == nullptr &&
         (problem.map != nullptr || fits_patches(geometry));
}

// Everything about one launch. Without a workspace, the same allocations tell how much memory the
// launch needs.
template <class Acc>
struct Plan {
  Job<Acc> job;
  Window window;  // for the general path only
  StripWindow strips = StripWindow::kNone;
  StripUnits units = {};
  bool in_patches = false;
  double tap_sum = 1.0;
  Acc* tap_memory = nullptr;
  void* range_scratch = nullptr;
  std::uint32_t* range_ticket = nullptr;
  Constants<Acc>* constants = nullptr;
  WorkspaceSize size;

  Plan(const Problem& problem, const Workspace& workspace) {
    job.preds = make_image(problem.preds);
    job.target = make_image(problem.target);
    job.geometry = make_geometry(problem);
    job.clamp = make_clamp<Acc>(problem.range, problem.preds.dtype, problem.target.dtype);
    if (!job.clamp.enabled) {
      job.clamp.low = -std::numeric_limits<Acc>::infinity();
      job.clamp.high = std::numeric_limits<Acc>::infinity();
    }
    job.map = problem.map;
    job.pooled_preds = static_cast<Acc*>(problem.pooled_preds);
    job.pooled_target = static_cast<Acc*>(problem.pooled_target);
    const Geometry& g = job.geometry;
    Results& r = job.results;
    r.value = problem.value;
    r.contrast = problem.contrast;
    r.squared_error = problem.squared_error;
    r.absolute_error = problem.absolute_error;
    r.dtype = problem.result_dtype;
    r.value_dtype = problem.value_dtype();
    r.running = problem.running;
    r.reduction = problem.value != nullptr ? problem.reduction : Reduction::kNone;
    r.images = problem.preds.size[0];
    if constexpr (std::is_same_v<Acc, float>) {
      strips = strip_window(problem);
      in_patches = takes_patches(problem, strips, g);
      if (in_patches && !has_near_rows(job.preds, job.target)) {
        strips = StripWindow::kNone;
        in_patches = false;
      }
      if (takes_uniform_strips(strips, g) && !in_patches &&
          !(has_near_columns(job.preds) && has_near_columns(job.target)))
        strips = StripWindow::kNone;
      if (in_patches) {
        r.units_per_image = patches_per_image(g);
      } else if (strips != StripWindow::kNone) {
        units = strip_units(strips, g);
        r.units_per_image = g.channels * units.strips * units.of_strip;
      }
      if (strips != StripWindow::kNone)
        tap_sum = in_patches ? tap_sum_of(strips) : strip_tap_sum(strips);
    }
    if (strips == StripWindow::kNone) {
      window = make_window(problem);
      r.units_per_image = general_units_per_image<Acc>(g, window);
    }
    r.map_elements = r.contrast_elements = static_cast<double>(g.channels);
    for (int axis = 0; axis < 3; ++axis) {
      r.map_elements *= static_cast<double>(g.map[axis]);
      r.contrast_elements *=
          static_cast<double>(std::max<std::int64_t>(g.map[axis] - 2 * g.crop[axis], 0));
    }
    allocate(problem, workspace);
  }

  bool is_reduced(int mean) const {
    return mean == kDeficit && job.results.reduction != Reduction::kNone;
  }

  bool fits_counted_sums(int mean) const {
    const Results& r = job.results;
    return strips != StripWindow::kNone && r.images > 0 && r.units_per_image > 0 &&
           r.units_per_image <= CountedSums::kMostTerms &&
           (!is_reduced(mean) || r.images <= CountedSums::kMostTerms);
  }

  void take_counted_sums(int mean, Arena& zeroed) {
    Results& r = job.results;
    const double most = 2.0 * (mean == kDeficit ? r.map_elements : r.contrast_elements);
    const std::int64_t unit_count = r.images * r.units_per_image;
    const double most_of_batch = most * static_cast<double>(r.images);
    if (is_reduced(mean) && unit_count <= CountedSums::kMostTerms) {
      r.sums[mean] = CountedSums(zeroed.take<std::uint64_t>(1), unit_count, most_of_batch);
      return;
    }
    r.sums[mean] = CountedSums(zeroed.take<std::uint64_t>(r.images), r.units_per_image, most);
    if (is_reduced(mean))
      r.batch_sum = CountedSums(zeroed.take<std::uint64_t>(1), r.images, most_of_batch);
  }

  void allocate(const Problem& problem, const Workspace& workspace) {
    Results& r = job.results;
    Arena zeroed(workspace.zeroed), scratch(workspace.scratch);
    r.batch_ticket = zeroed.take<std::uint32_t>(1);
    range_ticket = zeroed.take<std::uint32_t>(1);
    const std::int64_t unit_count = r.images * r.units_per_image;
    const bool wanted[kQuantities] = {r.value != nullptr, r.contrast != nullptr,
                                      r.squared_error != nullptr, r.absolute_error != nullptr};
    bool has_slots = false;
    for (int q = 0; q < kQuantities; ++q) {
      r.slots[q] = nullptr;
      if (!wanted[q]) continue;
      if (q < kMeans && fits_counted_sums(q)) {
        take_counted_sums(q, zeroed);
      } else {
        r.slots[q] = scratch.take<double>(unit_count);
        has_slots = true;
      }
    }
    r.image_tickets = zeroed.take<std::uint32_t>(has_slots ? r.images : 0);
    r.image_values = scratch.take<double>(has_slots ? r.images : 0);
    if (strips == StripWindow::kNone) {
      const std::int64_t taps = window.axes[0].taps + window.axes[1].taps + window.axes[2].taps;
      tap_memory = scratch.take<Acc>(taps > kSharedTaps ? taps : 0);
    }
    job.constants_in_memory = nullptr;
    if (problem.range.source == DataRange::Source::kData) {
      constants = scratch.take<Constants<Acc>>(1);
      range_scratch = scratch.take<std::byte>(static_cast<std::int64_t>(range_scratch_size()));
      job.constants_in_memory = constants;
    } else {
      job.constants = make_constants<Acc>(problem.range.width(), problem.k1, problem.k2, tap_sum);
    }
    size = {zeroed.size(), scratch.size()};
  }
};

// Finishes batches that have no units, and so none that completes an image: no images or no
// channels.
__global__ void finish_empty_kernel(const __grid_constant__ Results results) {
  double value = 0.0;
  for (std::int64_t image = 0; image < results.images; ++image)
    value = finish_image(results, image);
  __syncwarp();
  __threadfence();
  if (results.reduction == Reduction::kNone) return;
  finish_batch(results,
               results.images == 1 ? value : sum_in_order(results.image_values, results.images));
}

template <class Acc>
cudaError_t launch_as(const Problem& problem, const Workspace& workspace, cudaStream_t stream) {
  const Plan<Acc> plan(problem, workspace);
  const Results& results = plan.job.results;
  if (results.images * results.units_per_image == 0) {
    finish_empty_kernel<<<1, 32, 0, stream>>>(results);
    return cudaGetLastError();
  }
  if (plan.constants != nullptr) {
    const cudaError_t error = launch_range(problem, plan.tap_sum, plan.range_scratch,
                                           plan.range_ticket, plan.constants, stream);
    if (error != cudaSuccess) return error;
  }
  if constexpr (std::is_same_v<Acc, float>) {
    if (plan.in_patches) return launch_patches(plan.job, plan.strips, stream);
    if (plan.strips != StripWindow::kNone)
      return problem.pooled_preds != nullptr
                 ? launch_strips_of_scale(plan.job, plan.units, stream)
                 : launch_strips(plan.job, plan.units, plan.strips, stream);
  }
  return launch_general(plan.job, plan.window, plan.tap_memory, stream);
}

// The workspaces of joint problems, one after the other.
class JointWorkspace {
 public:
  explicit JointWorkspace(const Workspace& workspace) : memory_(workspace) {}

  Workspace next() const {
    return {advanced(memory_.zeroed, size_.zeroed), advanced(memory_.scratch, size_.scratch)};
  }
  void take(const WorkspaceSize& size) {
    size_.zeroed += size.aligned().zeroed;
    size_.scratch += size.aligned().scratch;
  }
  WorkspaceSize size() const { return size_; }

 private:
  static void* advanced(void* memory, std::size_t bytes) {
    return memory == nullptr ? nullptr : static_cast<std::byte*>(memory) + bytes;
  }

  Workspace memory_;
  WorkspaceSize size_;
};

}  // namespace

bool can_join(const Problem& problem) {
  return strip_window(problem) == StripWindow::kGaussian && problem.pooled_preds == nullptr &&
         fits_patches(make_geometry(problem)) &&
         has_near_rows(make_image(problem.preds), make_image(problem.target)) &&
         problem.preds.size[0] * problem.preds.size[1] > 0;
}

WorkspaceSize joint_workspace_size(const Problem* problems, int count) {
  JointWorkspace workspaces({});
  for (int i = 0; i < count; ++i) workspaces.take(workspace_size(problems[i]));
  return workspaces.size();
}

cudaError_t launch_jointly(const Problem* problems, int count, const Workspace& workspace,
                           cudaStream_t stream) {
  Job<float> jobs[kMostJointScales];
  JointWorkspace workspaces(workspace);
  for (int i = 0; i < count; ++i) {
    const Plan<float> plan(problems[i], workspaces.next());
    workspaces.take(plan.size);
    jobs[i] = plan.job;
    if (plan.constants == nullptr) continue;
    const cudaError_t error = launch_range(problems[i], plan.tap_sum, plan.range_scratch,
                                           plan.range_ticket, plan.constants, stream);
    if (error != cudaSuccess) return error;
  }
  return launch_patches_of_scales(jobs, count, stream);
}

WorkspaceSize workspace_size(const Problem& problem) {
  return in_double(problem) ? Plan<double>(problem, {}).size : Plan<float>(problem, {}).size;
}

cudaError_t launch(const Problem& problem, const Workspace& workspace, cudaStream_t stream) {
  return in_double(problem) ? launch_as<double>(problem, workspace, stream)
                            : launch_as<float>(problem, workspace, stream);
}

}  // namespace syncfree::ssim
