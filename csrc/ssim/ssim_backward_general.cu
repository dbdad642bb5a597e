// General path of the gradient: how images are cut into boxes, and the launches.
//
// The passes alternate between two buffers of bounded size: each box recomputes all windows that
// cover its pixels.
#include "ssim/ssim_backward_general.cuh"

#include <algorithm>

namespace syncfree::ssim {
namespace {

// The most values of all four moments in one buffer, unless the window is so large that even the
// smallest box needs more.
constexpr std::int64_t kMostValues = std::int64_t{1} << 22;

struct Cut {
  std::int64_t planes;
  std::int64_t pixels[3];
};

Box make_box(const BackwardJob<double>& job, const Cut& cut, std::int64_t plane,
             const std::int64_t (&begin)[3]) {
  Box box;
  box.first_plane = plane;
  box.planes = std::min(cut.planes, job.planes - plane);
  for (int axis = 0; axis < 3; ++axis) {
    const BackwardAxis& a = job.axes[axis];
    box.pixels[axis] = {begin[axis], std::min(a.size, begin[axis] + cut.pixels[axis])};
    box.windows[axis] = a.windows_over(box.pixels[axis]);
    box.covered[axis] = a.covered_by(box.windows[axis]);
  }
  return box;
}

// Values of all moments of one plane in the largest box.
std::int64_t most_values(const BackwardAxis (&axes)[3], const Cut& cut) {
  std::int64_t windows[3] = {}, covered[3] = {};
  for (int axis = 0; axis < 3; ++axis)
    for (std::int64_t begin = 0; begin < axes[axis].size; begin += cut.pixels[axis]) {
      const Span pixels{begin, std::min(axes[axis].size, begin + cut.pixels[axis])};
      const Span over = axes[axis].windows_over(pixels);
      windows[axis] = std::max(windows[axis], over.size());
      covered[axis] = std::max(covered[axis], axes[axis].covered_by(over).size());
    }
  return kMoments * covered[0] * covered[1] * windows[2];
}

// Halves the axis that is longest relative to its window, until a box fits into a buffer or no axis
// is long enough for that to pay.
Cut make_cut(const BackwardAxis (&axes)[3], std::int64_t planes) {
  Cut cut{1, {axes[0].size, axes[1].size, axes[2].size}};
  while (most_values(axes, cut) > kMostValues) {
    int longest = -1;
    std::int64_t ratio = 2;
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t r = cut.pixels[axis] / std::max(axes[axis].taps, 8);
      if (r > ratio) {
        ratio = r;
        longest = axis;
      }
    }
    if (longest < 0) break;
    cut.pixels[longest] = (cut.pixels[longest] + 1) / 2;
  }
  cut.planes = std::clamp<std::int64_t>(kMostValues / most_values(axes, cut), 1, planes);
  return cut;
}

unsigned blocks_for(std::int64_t count) {
  return static_cast<unsigned>(
      std::clamp<std::int64_t>((count + kPassThreads - 1) / kPassThreads, 1, INT32_MAX));
}

class BoxPasses {
 public:
  BoxPasses(const BackwardJob<double>& job, const Taps& taps, double* first, double* second,
            cudaStream_t stream)
      : job_(job), taps_(taps), in_(second), out_(first), stream_(stream) {}

  void run(const Box& box) {
    const auto& [depth, height, width] = box.windows;
    const std::int64_t outer = kMoments * box.planes;
    const std::int64_t slices = box.covered[0].size(), rows = box.covered[1].size();
    const bool flat = job_.axes[0].is_trivial();
    filter_width_kernel<<<blocks_for(box.planes * slices * rows * width.size()), kPassThreads, 0,
                          stream_>>>(job_, box, taps_, out_);
    swap();
    filter_axis(1, outer * slices, rows, height.size(), width.size());
    if (!flat) filter_axis(0, outer, slices, depth.size(), height.size() * width.size());
    differentiate_kernel<<<blocks_for(box.planes * depth.size() * height.size() * width.size()),
                           kPassThreads, 0, stream_>>>(job_, box, in_);
    if (!flat) back_axis(0, box, outer, height.size() * width.size());
    back_axis(1, box, outer * box.pixels[0].size(), width.size());
    finish_kernel<<<blocks_for(box.planes * box.pixels[0].size() * box.pixels[1].size() *
                               box.pixels[2].size()),
                    kPassThreads, 0, stream_>>>(job_, box, taps_, in_);
  }

 private:
  void filter_axis(int axis, std::int64_t outer, std::int64_t covered, std::int64_t windows,
                   std::int64_t inner) {
    filter_axis_kernel<<<blocks_for(outer * windows * inner), kPassThreads, 0, stream_>>>(
        in_, taps_.of[axis], job_.axes[axis].taps, outer, covered, windows, inner, out_);
    swap();
  }

  void back_axis(int axis, const Box& box, std::int64_t outer, std::int64_t inner) {
    back_axis_kernel<<<blocks_for(outer * box.pixels[axis].size() * inner), kPassThreads, 0,
                       stream_>>>(in_, taps_.of[axis], job_.axes[axis], box.windows[axis],
                                  box.pixels[axis], outer, inner, out_);
    swap();
  }

  void swap() { std::swap(in_, out_); }

  const BackwardJob<double>& job_;
  const Taps& taps_;
  double* in_;
  double* out_;
  cudaStream_t stream_;
};

std::int64_t total_taps(const Problem& problem) {
  return problem.axes[0].taps + problem.axes[1].taps + problem.axes[2].taps;
}

}  // namespace

std::size_t backward_general_scratch(const BackwardProblem& problem) {
  const Problem& images = problem.forward;
  const BackwardAxis axes[3] = {backward_axis(images, 0), backward_axis(images, 1),
                                backward_axis(images, 2)};
  const Cut cut = make_cut(axes, images.preds.size[0] * images.preds.size[1]);
  const std::int64_t values = cut.planes * most_values(axes, cut);
  return static_cast<std::size_t>(2 * values + total_taps(images)) * sizeof(double);
}

cudaError_t launch_backward_general(const BackwardProblem& problem, const BackwardJob<double>& job,
                                    void* scratch, cudaStream_t stream) {
  Window window;
  Taps taps;
  double* memory = static_cast<double*>(scratch);
  double* const all_taps = memory;
  for (int axis = 0; axis < 3; ++axis) {
    window.axes[axis] = problem.forward.axes[axis];
    window.tap_scale[axis] = 1.0 / raw_tap_sum(window.axes[axis]);
    taps.of[axis] = memory;
    memory += window.axes[axis].taps;
  }
  taps_kernel<<<1, kPassThreads, 0, stream>>>(window, all_taps);
  const Cut cut = make_cut(job.axes, job.planes);
  double* const second = memory + cut.planes * most_values(job.axes, cut);
  std::int64_t begin[3];
  for (std::int64_t plane = 0; plane < job.planes; plane += cut.planes)
    for (begin[0] = 0; begin[0] < job.axes[0].size; begin[0] += cut.pixels[0])
      for (begin[1] = 0; begin[1] < job.axes[1].size; begin[1] += cut.pixels[1])
        for (begin[2] = 0; begin[2] < job.axes[2].size; begin[2] += cut.pixels[2])
          BoxPasses(job, taps, memory, second, stream).run(make_box(job, cut, plane, begin));
  return cudaGetLastError();
}

}  // namespace syncfree::ssim
