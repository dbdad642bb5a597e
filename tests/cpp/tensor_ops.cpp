// The functions of syncfree::torch as ops of torch, so that the tests can compare them with
// Python's.
#include <syncfree/torch.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace {

using at::Tensor;
using syncfree::Range;
using syncfree::Reduction;

// None, one number, or an interval.
Range range_of(const std::vector<double>& range) {
  if (range.empty()) return Range::from_data();
  return range.size() == 1 ? Range(range[0]) : Range::interval(range[0], range[1]);
}

template <class T, class Given>
syncfree::PerAxis<T> per_axis(const std::vector<Given>& given) {
  const auto at = [&](std::size_t i) { return static_cast<T>(given[i]); };
  if (given.size() == 1) return at(0);
  if (given.size() == 2) return {at(0), at(1)};
  return {at(0), at(1), at(2)};
}

syncfree::SsimOptions ssim_options(bool gaussian, const std::vector<double>& sigma,
                                   const std::vector<std::int64_t>& kernel_size,
                                   std::int64_t reduction, bool valid) {
  syncfree::SsimOptions options;
  options.window = {gaussian, per_axis<double>(sigma), per_axis<int>(kernel_size), valid};
  options.reduction = static_cast<Reduction>(reduction);
  return options;
}

Tensor psnr(const Tensor& preds, const Tensor& target, std::vector<double> range,
            std::vector<std::int64_t> dim, std::int64_t reduction, double base) {
  return syncfree::psnr(preds, target, range_of(range),
                        {.dim = dim, .reduction = static_cast<Reduction>(reduction), .base = base});
}

Tensor ssim(const Tensor& preds, const Tensor& target, std::vector<double> range, bool gaussian,
            std::vector<double> sigma, std::vector<std::int64_t> kernel_size,
            std::int64_t reduction, bool valid) {
  return syncfree::ssim(preds, target, range_of(range),
                        ssim_options(gaussian, sigma, kernel_size, reduction, valid));
}

std::tuple<Tensor, Tensor> ssim_with_map(const Tensor& preds, const Tensor& target,
                                         std::vector<double> range, bool gaussian,
                                         std::vector<double> sigma,
                                         std::vector<std::int64_t> kernel_size,
                                         std::int64_t reduction, bool valid) {
  return syncfree::ssim_with_map(preds, target, range_of(range),
                                 ssim_options(gaussian, sigma, kernel_size, reduction, valid));
}

Tensor ms_ssim(const Tensor& preds, const Tensor& target, std::vector<double> range,
               std::vector<double> betas, std::int64_t normalize, std::int64_t reduction) {
  return syncfree::ms_ssim(preds, target, range_of(range),
                           {.betas = betas,
                            .normalize = static_cast<syncfree::Normalize>(normalize),
                            .reduction = static_cast<Reduction>(reduction)});
}

std::tuple<Tensor, Tensor, Tensor> image_quality(const Tensor& preds, const Tensor& target,
                                                 std::vector<double> range,
                                                 std::int64_t reduction) {
  const auto [psnr, ssim, mae] = syncfree::image_quality(
      preds, target, range_of(range), {.reduction = static_cast<Reduction>(reduction)});
  return {psnr, ssim, mae};
}

syncfree::LabelOptions label_options(bool samplewise, std::optional<std::int64_t> ignore_index,
                                     const std::optional<Tensor>& bad) {
  syncfree::LabelOptions labels;
  labels.samplewise = samplewise;
  labels.ignore_index = ignore_index;
  if (bad) labels.bad_labels = bad->mutable_data_ptr<std::int64_t>();
  return labels;
}

Tensor multiclass(const Tensor& preds, const Tensor& target, std::int64_t num_classes,
                  std::int64_t average, std::int64_t top_k, bool samplewise,
                  std::optional<std::int64_t> ignore_index, std::optional<Tensor> bad) {
  return syncfree::multiclass_accuracy(preds, target, num_classes,
                                       {.average = static_cast<syncfree::Average>(average),
                                        .top_k = static_cast<int>(top_k),
                                        .labels = label_options(samplewise, ignore_index, bad)});
}

Tensor binary(const Tensor& preds, const Tensor& target, double threshold, bool samplewise,
              std::optional<std::int64_t> ignore_index) {
  return syncfree::binary_accuracy(
      preds, target,
      {.threshold = threshold, .labels = label_options(samplewise, ignore_index, {})});
}

Tensor multilabel(const Tensor& preds, const Tensor& target, std::int64_t num_labels,
                  std::int64_t average, double threshold, bool samplewise,
                  std::optional<std::int64_t> ignore_index) {
  return syncfree::multilabel_accuracy(preds, target, num_labels,
                                       {.average = static_cast<syncfree::Average>(average),
                                        .threshold = threshold,
                                        .labels = label_options(samplewise, ignore_index, {})});
}

// The call that a program makes by itself: its own result and scratch memory (none: the library's)
// on the current stream. Returns the status and how much scratch memory the call wants.
std::tuple<std::int64_t, std::string, std::int64_t> core_ssim(const Tensor& preds,
                                                              const Tensor& target,
                                                              const Tensor& value,
                                                              std::optional<Tensor> scratch) {
  std::size_t bytes = 0;
  const auto call = [&](const syncfree::Launch& launch) {
    return syncfree::ssim(syncfree::view(preds), syncfree::view(target), 1.0,
                          syncfree::result_view(value), {}, launch);
  };
  syncfree::check(call(syncfree::measured(bytes)));
  syncfree::Launch launch = syncfree::detail::launch_on(preds);
  if (scratch) {
    launch.scratch = scratch->mutable_data_ptr();
    launch.scratch_bytes = scratch->nbytes();
  }
  const syncfree::Status status = call(launch);
  return {static_cast<std::int64_t>(status.code()), status.message(),
          static_cast<std::int64_t>(bytes)};
}

// Images whose rows are told from the last in memory to the first, as bottom-up bitmaps are read.
syncfree::ConstTensorView bottom_up(const Tensor& images) {
  std::vector<std::int64_t> strides = images.strides().vec();
  const auto* last = static_cast<const std::byte*>(images.const_data_ptr()) +
                     (images.size(2) - 1) * strides[2] * images.element_size();
  strides[2] = -strides[2];
  return {last,           syncfree::detail::dtype_of(images), images.sizes().data(), strides.data(),
          strides.size(), syncfree::detail::device_of(images)};
}

Tensor bottom_up_ssim(const Tensor& preds, const Tensor& target, double range) {
  const Tensor value = at::empty({}, preds.options().dtype(at::kFloat));
  syncfree::check(syncfree::ssim(bottom_up(preds), bottom_up(target), range,
                                 syncfree::result_view(value), {},
                                 syncfree::detail::launch_on(preds)));
  return value;
}

// The summary's count of a region on `x`, by a timer of CUDA or of the CPU.
std::int64_t count_of_region(const Tensor& x, bool cuda) {
  using Type = syncfree::Device::Type;
  syncfree::Status status;
  syncfree::EventTimer timer(cuda ? Type::kCuda : Type::kCpu, status);
  syncfree::check(syncfree::region_on(timer, "step", x).end());
  syncfree::check(timer.wait());
  return timer.summary().at(0).count;
}

// JSON and text of a sweep over calls that halve `x`, and that wait for it if asked to.
std::tuple<std::string, std::string> idle_gap(const Tensor& x, bool waits, std::vector<double> gaps,
                                              std::int64_t repeats) {
  const auto body = [&] {
    x.mul_(0.5);
    if (waits) x.cpu();
  };
  const syncfree::IdleGap sweep = syncfree::idle_gap_on(
      x, body, {.gaps = gaps, .repeats = static_cast<int>(repeats), .name = "halve"});
  return {sweep.json(), sweep.text()};
}

}  // namespace

TORCH_LIBRARY(syncfree_cpp_tests, library) {
  library.def("psnr", &psnr);
  library.def("ssim", &ssim);
  library.def("ssim_with_map", &ssim_with_map);
  library.def("ms_ssim", &ms_ssim);
  library.def("image_quality", &image_quality);
  library.def("multiclass", &multiclass);
  library.def("binary", &binary);
  library.def("multilabel", &multilabel);
  library.def("core_ssim", &core_ssim);
  library.def("bottom_up_ssim", &bottom_up_ssim);
  library.def("count_of_region", &count_of_region);
  library.def("idle_gap", &idle_gap);
}
