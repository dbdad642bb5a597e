// Requests of the C interface as a C program fills them in: zeros where it has nothing to say. What
// is not used is not checked, and a message names the numbers and types that it is about.
#include <syncfree/syncfree.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "checks.h"

namespace {

using namespace syncfree;

constexpr auto kInvalid = StatusCode::kInvalidArgument;

// 16 x 16 x 16 pixels that repeat after `period`.
std::vector<float> pixels(std::size_t period) {
  std::vector<float> all(16 * 16 * 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i % period) / 97;
  return all;
}

// Two images, or two volumes, and the value of the last call.
struct Request {
  explicit Request(const std::vector<std::int64_t>& sizes) : sizes(sizes) {
    for (std::size_t i = 0; i < a.size(); ++i) b[i] = 0.75f * a[i] + 0.25f * b[i];
  }

  Status ssim(const syncfree_ssim_options& options) {
    const auto images = ConstTensorView(a.data(), DType::kFloat32, sizes.data(), nullptr,
                                        sizes.size(), Device::cpu());
    const auto others = ConstTensorView(b.data(), DType::kFloat32, sizes.data(), nullptr,
                                        sizes.size(), Device::cpu());
    const TensorView out = view(&value, {});
    return detail::status_of(
        syncfree_ssim(images.get(), others.get(), out.get(), nullptr, nullptr, &options, nullptr));
  }

  std::vector<std::int64_t> sizes;
  std::vector<float> a = pixels(97), b = pixels(89);
  float value = -1;
};

syncfree_ssim_options gaussian(double sigma) {
  syncfree_ssim_options options{};
  options.range.value = 1;
  options.k1 = 0.01;
  options.k2 = 0.03;
  options.reduction = SYNCFREE_MEAN;
  options.window.gaussian = 1;
  for (double& each : options.window.sigma) each = sigma;
  return options;
}

syncfree_ssim_options uniform(int size) {
  syncfree_ssim_options options = gaussian(0);
  options.window.gaussian = 0;
  for (int& each : options.window.kernel_size) each = size;
  return options;
}

void windows() {
  Request flat({1, 1, 16, 16}), volume({1, 1, 16, 16, 16});
  for (Request* each : {&flat, &volume}) {
    syncfree_ssim_options options = uniform(7);
    expect("uniform, without a sigma", each->ssim(options), StatusCode::kOk);
    const float value = each->value;
    for (double& sigma : options.window.sigma) sigma = 1.5;
    expect("uniform, with a sigma", each->ssim(options), StatusCode::kOk);
    check("which is not used", each->value == value && value > 0 && value < 1);
    options.window.kernel_size[1] = 0;
    expect("no kernel", each->ssim(options), kInvalid, "`kernel_size` to be odd and positive");
  }

  syncfree_ssim_options options = gaussian(1.5);
  expect("Gaussian, without a kernel", flat.ssim(options), StatusCode::kOk);
  const float value = flat.value;
  for (int& each : options.window.kernel_size) each = 11;
  expect("Gaussian, with a kernel", flat.ssim(options), StatusCode::kOk);
  check("which is not used either", flat.value == value && value > 0 && value < 1);

  // The last axis of a volume is padded by it.
  options.window.kernel_size[0] = options.window.kernel_size[1] = 0;
  expect("its width has one", volume.ssim(options), StatusCode::kOk);
  options.window.kernel_size[2] = 0;
  expect("its width has none", volume.ssim(options), kInvalid, "got 0 for spatial axis 2");
  options.window.valid = 1;
  expect("nothing is padded", volume.ssim(options), StatusCode::kOk);

  for (const double sigma : {0.0, -1.0, std::nan(""), 1e6, 1e7, HUGE_VAL})
    expect("sigma", flat.ssim(gaussian(sigma)), kInvalid, "to be positive and less than 1e6");
}

void ms_ssim_windows() {
  const float pixel = 0;
  const ConstTensorView images = view(&pixel, {0, 1, 64, 64});
  float value = -1;
  const TensorView out = view(&value, {});
  syncfree_ms_ssim_options options{};
  options.range.value = 1;
  options.reduction = SYNCFREE_SUM;
  options.window = gaussian(1.5).window;
  options.betas[0] = 1;
  options.scales = 1;
  const auto run = [&] {
    return detail::status_of(
        syncfree_ms_ssim(images.get(), images.get(), out.get(), &options, nullptr));
  };
  for (const int axis : {0, 1}) {
    options.window.kernel_size[0] = options.window.kernel_size[1] = 11;
    expect("the least size is by it", run(), StatusCode::kOk);
    options.window.kernel_size[axis] = 0;
    expect("so it must be there", run(), kInvalid, "`kernel_size` to be odd and positive");
  }
}

void image_dtypes() {
  const std::int32_t whole[4] = {};
  const bool flags[4] = {};
  const float real[4] = {};
  float value = -1;
  const auto image = view(real, {1, 1, 2, 2});
  expect("integers", ssim(view(whole, {1, 1, 2, 2}), image, 1.0, view(&value, {})),
         StatusCode::kWrongDtype,
         "`preds` to be images of a floating dtype or uint8, but got int32");
  expect("flags", ssim(image, view(flags, {1, 1, 2, 2}), 1.0, view(&value, {})),
         StatusCode::kWrongDtype,
         "`target` to be images of a floating dtype or uint8, but got bool");
}

Status accuracy(const syncfree_accuracy_options& options, const ConstTensorView& preds,
                const ConstTensorView& target, float& value) {
  const TensorView out = view(&value, {});
  return detail::status_of(
      syncfree_accuracy(preds.get(), target.get(), out.get(), nullptr, &options, nullptr));
}

void accuracies() {
  const float scores[4] = {0.2f, 0.9f, 0.4f, 0.6f};
  const std::int64_t flags[4] = {0, 1, 1, 1}, classes[2] = {1, 0};
  const auto flat = view(scores, {4}), rows = view(scores, {2, 2});
  const auto flat_target = view(flags, {4}), row_target = view(flags, {2, 2});
  float value = -1;

  syncfree_accuracy_options binary{};
  expect("binary", accuracy(binary, flat, flat_target, value), StatusCode::kOk);
  check("with a threshold of 0 all are ones", value == 0.75f);
  binary.threshold = 0.5;
  expect("binary at one half", accuracy(binary, flat, flat_target, value), StatusCode::kOk);
  check("three of four", value == 0.75f);
  for (const double threshold : {-0.5, 1.5, std::nan("")}) {
    binary.threshold = threshold;
    expect("threshold", accuracy(binary, flat, flat_target, value), kInvalid, "threshold");
  }

  syncfree_accuracy_options multilabel{};
  multilabel.task = SYNCFREE_MULTILABEL;
  multilabel.num_classes = 2;
  expect("multilabel", accuracy(multilabel, rows, row_target, value), StatusCode::kOk);
  multilabel.threshold = 2;
  expect("its threshold", accuracy(multilabel, rows, row_target, value), kInvalid, "threshold");

  syncfree_accuracy_options multiclass{};
  multiclass.task = SYNCFREE_MULTICLASS;
  multiclass.num_classes = 2;
  multiclass.top_k = 1;
  for (const double threshold : {0.0, 2.0, std::nan("")}) {
    multiclass.threshold = threshold;
    expect("no threshold", accuracy(multiclass, rows, view(classes, {2}), value), StatusCode::kOk);
    check("one of two", value == 0.5f);
  }
  for (const std::int32_t top_k : {0, 3}) {
    multiclass.top_k = top_k;
    expect("top_k", accuracy(multiclass, rows, view(classes, {2}), value), kInvalid, "top_k");
  }
}

// Products of sizes must not overflow, not even before a 0 comes.
void sizes() {
  const float number = 0;
  float value = -1;
  const std::int64_t huge = std::int64_t{1} << 40;
  for (const auto& shape :
       {std::vector<std::int64_t>{huge, huge, 0}, {huge, 0, huge}, {0, huge, huge}}) {
    const ConstTensorView none(&number, DType::kFloat32, shape.data(), nullptr, 3, Device::cpu());
    expect("sizes around a 0", psnr(none, none, 1.0, view(&value, {})), StatusCode::kWrongShape,
           "2^63, but got [");
    const TensorView each(&value, DType::kFloat32, shape.data(), nullptr, 3, Device::cpu());
    expect("of a result", psnr(none, none, 1.0, each, {3, Reduction::kNone}),
           StatusCode::kWrongShape, "2^63, but got [");
  }
  const auto none = view(&number, {huge, 0, std::int64_t{1} << 20});
  expect("a product below", psnr(none, none, 1.0, view(&value, {})), StatusCode::kOk);
  check("of nothing", std::isnan(value));
}

}  // namespace

int main() {
  windows();
  ms_ssim_windows();
  image_dtypes();
  accuracies();
  sizes();
  return report();
}
