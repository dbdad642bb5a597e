// Wrong input of every kind gives its documented status and a sentence; right input its value.
// Prints what differs from that, and how many checks there were.
#include <syncfree/syncfree.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "checks.h"

namespace {

using namespace syncfree;

// Two images of 2 x 3 x 32 x 32, the second one off by 0.1.
struct Pair {
  std::vector<float> a = std::vector<float>(2 * 3 * 32 * 32), b = a;
  float value[2] = {-1, -1};

  Pair() {
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = static_cast<float>(i % 97) / 200;
      b[i] = a[i] + 0.1f;
    }
  }
  ConstTensorView preds() const { return view(a.data(), {2, 3, 32, 32}); }
  ConstTensorView target() const { return view(b.data(), {2, 3, 32, 32}); }
  TensorView scalar() { return view(value, {}); }
  TensorView each() { return view(value, {2}); }
};

void views() {
  Pair p;
  float* const x = p.a.data();
  const TensorView out = p.scalar();
  const auto run = [&](const ConstTensorView& a, const ConstTensorView& b, const TensorView& v) {
    return psnr(a, b, 1.0, v);
  };
  expect("null memory", run(view(static_cast<float*>(nullptr), {3}), view(x, {3}), out),
         StatusCode::kInvalidArgument, "preds");
  expect("misaligned",
         run(view(reinterpret_cast<char*>(x) + 1, DType::kFloat32, {3}), view(x, {3}), out),
         StatusCode::kInvalidArgument, "aligned");
  expect("negative size", run(view(x, {-1}), view(x, {-1}), out), StatusCode::kWrongShape);
  const std::int64_t huge = std::int64_t{1} << 62;
  expect("too many elements", run(view(x, {huge, 4}), view(x, {huge, 4}), out),
         StatusCode::kWrongShape, "2^63");
  expect("too many dimensions", run(view(x, {1, 1, 1, 1, 1, 1, 1, 1, 1}), view(x, {1}), out),
         StatusCode::kWrongShape, "8");
  expect("a size without a stride", run(strided_view(x, {2, 2}, {1}), view(x, {2, 2}), out),
         StatusCode::kWrongShape);
  expect("no such dtype", run(view(x, static_cast<DType>(10), {1}), view(x, {1}), out),
         StatusCode::kWrongDtype);
  expect("no such device", run(view(x, {1}, {static_cast<Device::Type>(7), 0}), view(x, {1}), out),
         StatusCode::kWrongDevice);
  expect("shapes differ", run(view(x, {2, 3}), view(x, {3, 2}), out), StatusCode::kWrongShape,
         "[2, 3] and [3, 2]");
  expect("ranks differ", run(view(x, {2, 3}), view(x, {2, 3, 1}), out), StatusCode::kWrongShape);
  expect("devices differ", run(view(x, {3}), view(x, {3}, Device::cuda()), out),
         StatusCode::kWrongDevice, "target");
  expect("no result", run(view(x, {3}), view(x, {3}), {}), StatusCode::kInvalidArgument,
         "Expected `value`, but got no view");
  expect("an operand of nothing", run(TensorView(), view(x, {3}), out),
         StatusCode::kInvalidArgument, "Expected `preds`, but got no view");
  std::int64_t whole = 0;
  expect("integer result", run(view(x, {3}), view(x, {3}), view(&whole, {})),
         StatusCode::kWrongDtype, "int64");
  expect("result too large", run(view(x, {3}), view(x, {3}), p.each()), StatusCode::kWrongShape,
         "ask for more than one number: `reduction`");
  float many[4];
  const std::int64_t size = 2, stride = 2;
  expect("result with gaps",
         psnr(view(x, {2, 3}), view(x, {2, 3}), 1.0,
              TensorView(many, DType::kFloat32, &size, &stride, 1, Device::cpu()),
              {1, Reduction::kNone}),
         StatusCode::kWrongShape, "dense");
  check("nothing was written", p.value[0] == -1);
}

void options() {
  Pair p;
  const auto run_psnr = [&](const Range& range, const PsnrOptions& options) {
    return psnr(p.preds(), p.target(), range, p.scalar(), options);
  };
  const auto run_ssim = [&](const Range& range, const SsimOptions& options) {
    return ssim(p.preds(), p.target(), range, p.scalar(), options);
  };
  const auto invalid = StatusCode::kInvalidArgument;
  expect("range 0", run_psnr(0.0, {}), invalid, "positive");
  expect("range NaN", run_psnr(std::nan(""), {}), invalid);
  expect("interval reversed", run_psnr(Range::interval(1, 0), {}), invalid, "low < high");
  expect("psnr from data", run_psnr(Range::from_data(), {}), invalid);
  expect("base 1", run_psnr(1.0, {0, Reduction::kMean, 1.0}), invalid, "base");
  expect("kept too large", run_psnr(1.0, {5}), invalid, "kept");
  expect("kept negative", run_psnr(1.0, {-1}), invalid, "kept");
  expect("no such reduction", run_psnr(1.0, {0, static_cast<Reduction>(3)}), invalid);

  SsimOptions even, wide, flat;
  even.window.kernel_size = 4;
  even.window.gaussian = false;
  flat.window.sigma = 0.0;
  wide.window.sigma = 10.0;
  expect("even kernel", run_ssim(1.0, even), invalid, "kernel_size");
  expect("sigma 0", run_ssim(1.0, flat), invalid, "sigma");
  expect("window too wide", run_ssim(1.0, wide), StatusCode::kWrongShape);
  SsimOptions narrow;
  narrow.window.sigma = 0.1;
  const ConstTensorView no_width = view(p.a.data(), {1, 1, 6, 6, 0});
  expect("volume without width", ssim(no_width, no_width, 1.0, p.scalar(), narrow),
         StatusCode::kWrongShape);
  std::int64_t labels[6] = {};
  const auto whole = view(labels, {1, 1, 2, 3});
  expect("integer images", ssim(whole, whole, 1.0, p.scalar()), StatusCode::kWrongDtype);
  const auto matrix = view(p.a.data(), {32, 32});
  expect("one image", ssim(matrix, matrix, 1.0, p.scalar()), StatusCode::kWrongShape,
         "(B, C, H, W)");
  expect("map of another size",
         ssim(p.preds(), p.target(), 1.0, p.scalar(), {}, {}, {view(p.value, {2}), {}}),
         StatusCode::kWrongShape, "map");
  double contrast[2];
  expect("contrast of another dtype",
         ssim(p.preds(), p.target(), 1.0, p.scalar(), {}, {}, {{}, view(contrast, {2})}),
         StatusCode::kWrongDtype, "contrast");

  const auto run_ms = [&](const MsSsimOptions& options) {
    return ms_ssim(p.preds(), p.target(), 1.0, p.scalar(), options);
  };
  expect("too small for five scales", run_ms({}), StatusCode::kWrongShape, "176");
  MsSsimOptions none, many, valid;
  none.betas.clear();
  many.betas.assign(33, 0.1);
  valid.betas = {1.0};
  valid.window.valid = true;
  expect("no scales", run_ms(none), invalid);
  expect("33 scales", run_ms(many), invalid);
  expect("valid window", run_ms(valid), invalid);

  SsimOptions sum;
  sum.reduction = Reduction::kSum;
  expect("sum of qualities",
         image_quality(p.preds(), p.target(), 1.0, {p.scalar(), p.scalar(), p.scalar()}, sum),
         invalid);
  expect("null options",
         detail::status_of(
             syncfree_psnr(p.preds().get(), p.target().get(), p.scalar().get(), nullptr, nullptr)),
         invalid, "options");
  expect("null operand",
         detail::status_of(syncfree_ssim(nullptr, p.target().get(), p.scalar().get(), nullptr,
                                         nullptr, nullptr, nullptr)),
         invalid, "preds");
}

void labels() {
  const float scores[6] = {0.1f, 0.7f, 0.2f, 0.5f, 0.3f, 0.2f};
  std::int64_t target[2] = {1, 0}, bad[2] = {1, 3}, count = 5;
  float value = -1, each[3];
  const auto preds = view(scores, {2, 3});
  const auto run = [&](const std::int64_t* labels, std::int64_t classes,
                       const MulticlassOptions& options = {}) {
    return multiclass_accuracy(preds, view(labels, {2}), classes, view(&value, {}), options);
  };
  expect("right labels", run(target, 3), StatusCode::kOk);
  check("all correct", value == 1);
  MulticlassOptions counted;
  counted.labels.bad_labels = &count;
  expect("bad label", run(bad, 3, counted), StatusCode::kBadLabel, "3 at flat index 1");
  check("bad label gives NaN", std::isnan(value));
  check("bad labels are counted", count == 6);
  MulticlassOptions lenient;
  lenient.labels.validate = false;
  expect("not validated", run(bad, 3, lenient), StatusCode::kOk);
  check("counts as wrong", value == 0.5f);
  expect("other number of classes", run(target, 4), StatusCode::kWrongShape);
  expect("unknown classes, macro", run(target, 0, {Average::kMacro}), StatusCode::kInvalidArgument,
         "num_classes");
  expect("top_k above the classes", run(target, 3, {Average::kMicro, 4}),
         StatusCode::kInvalidArgument, "top_k");
  expect("value of one for three",
         multiclass_accuracy(preds, view(target, {2}), 3, view(&value, {1}), {Average::kNone}),
         StatusCode::kWrongShape);
  expect("value for each",
         multiclass_accuracy(preds, view(target, {2}), 3, view(each, {3}), {Average::kNone}),
         StatusCode::kOk);
  check("third class is absent", each[0] == 1 && each[1] == 1 && each[2] == 0);
  double wide;
  expect("float64 value", multiclass_accuracy(preds, view(target, {2}), 3, view(&wide, {})),
         StatusCode::kWrongDtype, "float32");
  expect("threshold 2",
         binary_accuracy(view(scores, {2}), view(target, {2}), view(&value, {}), {2.0}),
         StatusCode::kInvalidArgument, "threshold");
  expect("labels on the first axis",
         multilabel_accuracy(view(scores, {2}), view(target, {2}), 2, view(&value, {})),
         StatusCode::kWrongShape);
}

void scratch() {
  std::vector<float> a(192 * 192, 0.25f), b(192 * 192, 0.5f);
  const auto preds = view(a.data(), {1, 1, 192, 192}), target = view(b.data(), {1, 1, 192, 192});
  const ConstTensorView x = preds, y = target;
  float own = 0, given = 0;
  expect("own scratch", ms_ssim(x, y, 1.0, view(&own, {})), StatusCode::kOk);
  std::size_t bytes = 0;
  expect("measured", ms_ssim(x, y, 1.0, view(&given, {}), {}, measured(bytes)), StatusCode::kOk);
  check("only measured", given == 0 && bytes > 0);
  std::vector<char> memory(bytes + 1);
  Launch launch;
  launch.scratch = memory.data() + 1;  // of any alignment
  launch.scratch_bytes = bytes;
  expect("given scratch", ms_ssim(x, y, 1.0, view(&given, {}), {}, launch), StatusCode::kOk);
  check("same bits", std::memcmp(&own, &given, sizeof(float)) == 0);
  launch.scratch_bytes = bytes / 2;
  expect("too little scratch", ms_ssim(x, y, 1.0, view(&given, {}), {}, launch),
         StatusCode::kNeedsScratch, "scratch_needed");
}

void threads() {
  Pair p;
  float serial = 0, parallel = 0;
  expect("serial", ssim(p.preds(), p.target(), 1.0, view(&serial, {})), StatusCode::kOk);
  Launch launch;
  launch.parallel_for = [](std::int64_t begin, std::int64_t end, std::int64_t,
                           void (*body)(std::int64_t, std::int64_t, void*), void* context) {
    std::vector<std::thread> pool;
    for (std::int64_t i = begin; i < end; ++i) pool.emplace_back(body, i, i + 1, context);
    for (std::thread& thread : pool) thread.join();
  };
  expect("threads", ssim(p.preds(), p.target(), 1.0, view(&parallel, {}), {}, launch),
         StatusCode::kOk);
  check("same bits on threads", std::memcmp(&serial, &parallel, sizeof(float)) == 0);
  launch.parallel_for = [](std::int64_t, std::int64_t, std::int64_t,
                           void (*)(std::int64_t, std::int64_t, void*),
                           void*) { throw std::runtime_error("The pool is closed."); };
  expect("a pool that throws", ssim(p.preds(), p.target(), 1.0, view(&parallel, {}), {}, launch),
         StatusCode::kInternalError, "pool is closed");
  // Messages belong to their thread.
  expect("here", psnr(p.preds(), p.target(), -1.0, p.scalar()), StatusCode::kInvalidArgument);
  std::thread([] { check("no message elsewhere", *syncfree_last_message() == '\0'); }).join();
}

void values() {
  Pair p;
  expect("psnr", psnr(p.preds(), p.target(), 1.0, p.scalar()), StatusCode::kOk);
  check("20 dB", std::abs(p.value[0] - 20) < 1e-4);
  expect("in other units",
         psnr(p.preds(), p.target(), 1.0, p.scalar(), {0, Reduction::kMean, 100.0}),
         StatusCode::kOk);
  check("10 of base 100", std::abs(p.value[0] - 10) < 1e-4);
  expect("one an image", ssim(p.preds(), p.preds(), 1.0, p.each(), {{}, Reduction::kNone}),
         StatusCode::kOk);
  check("identical", p.value[0] == 1 && p.value[1] == 1);
  // Backwards in memory, on both sides: the same pairs.
  const float* last = p.a.data() + p.a.size() - 1;
  const float* last_target = p.b.data() + p.b.size() - 1;
  const auto size = static_cast<std::int64_t>(p.a.size());
  expect("negative strides",
         psnr(strided_view(last, {size}, {-1}), strided_view(last_target, {size}, {-1}), 1.0,
              p.scalar()),
         StatusCode::kOk);
  check("still 20 dB", std::abs(p.value[0] - 20) < 1e-4);
  const ConstTensorView empty = view(p.a.data(), {0, 3, 32, 32});
  expect("empty batch", psnr(empty, empty, 1.0, p.scalar()), StatusCode::kOk);
  check("NaN of nothing", std::isnan(p.value[0]));
  const ConstTensorView no_channels = view(p.a.data(), {2, 0, 32, 32});
  expect("map of no channels",
         ssim(no_channels, no_channels, 1.0, p.scalar(), {}, {},
              {view(p.b.data(), {2, 0, 32, 32}), {}}),
         StatusCode::kOk);
}

void timer() {
  Status status;
  EventTimer timer(Device::Type::kCpu, {4, 8}, status);
  expect("a timer", status, StatusCode::kOk);
  for (int i = 0; i < 10; ++i) {
    const auto outer = timer.region("outer");
    auto inner = timer.region("inner");
    expect("end", inner.end(), StatusCode::kOk);
    expect("a second end is none", inner.end(), StatusCode::kOk);
  }
  expect("wait", timer.wait(), StatusCode::kOk);
  const std::vector<RegionSummary> all = timer.summary();
  check("names in order", all.size() == 2 && all[0].name == "outer" && all[1].name == "inner");
  check("all are counted", all[0].count == 10 && all[1].count == 10 && timer.untimed() == 0);
  check("the outer one is longer",
        all[0].total_us >= all[1].total_us && all[1].least_us >= 0 && all[0].host_clock);
  check("verdict", all[0].verdict().rfind("host time: ", 0) == 0);
  EventTimer none(Device::Type::kCpu, {0, 8}, status);
  expect("no regions", status, StatusCode::kInvalidArgument, "regions_in_flight");
  RegionSummary summary;
  summary.median_us = 100;
  summary.gap_median_us = 60;
  summary.host_median_us = 95;
  check("idle gap", summary.verdict().find("idle or untimed for 60 us") != std::string::npos);
  summary.gap_median_us = 40;
  check("GPU-bound", summary.verdict() == "GPU-bound: 100 us");
  summary.launch_bound_share = 0.6;
  check("launch-bound", summary.verdict().rfind("launch-bound: host enqueue 95 us", 0) == 0);
}

// By a driver whose time stands still (tests/fake_libcuda.cpp), where SYNCFREE_LIBCUDA names it.
void timer_on_cuda() {
  Status status;
  EventTimer timer(Device::Type::kCuda, {64, 64}, status);
  if (!status.ok()) {
    expect("no driver", status, StatusCode::kCudaError);
    return;
  }
  const auto stream = reinterpret_cast<Stream>(0x55);
  for (int i = 0; i < 3; ++i) const auto region = timer.region("step", stream);
  expect("wait on CUDA", timer.wait(), StatusCode::kOk);
  const std::vector<RegionSummary> all = timer.summary();
  check("three steps", all.size() == 1 && all[0].count == 3 && !all[0].host_clock);
  std::printf("timed on CUDA\n");
}

void cuda_views() {
  Pair p;
  const auto there = view(p.a.data(), {4}, Device::cuda(0));
  const auto out = view(p.value, {}, Device::cuda(0));
  if (!has_cuda()) {
    expect("CUDA tensors without CUDA", psnr(there, there, 1.0, out), StatusCode::kWithoutCuda,
           "-DSYNCFREE_CUDA=ON");
    return;
  }
  const auto nowhere = view(p.a.data(), {4}, Device::cuda(1000));
  const auto nowhere_out = view(p.value, {}, Device::cuda(1000));
  expect("no such GPU, or no driver", psnr(nowhere, nowhere, 1.0, nowhere_out),
         StatusCode::kCudaError, "CUDA");
  const auto negative = view(p.a.data(), {4}, Device::cuda(-1));
  expect("negative index", psnr(negative, negative, 1.0, view(p.value, {}, Device::cuda(-1))),
         StatusCode::kWrongDevice);
}

}  // namespace

int main() {
  check("version", std::strcmp(version(), SYNCFREE_VERSION) == 0);
  views();
  options();
  labels();
  scratch();
  threads();
  values();
  cuda_views();
  timer();
  if (std::getenv("CHECK_CUDA_TIMER") != nullptr) timer_on_cuda();
  return report();
}
