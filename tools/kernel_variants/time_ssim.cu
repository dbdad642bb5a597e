// Times SSIM and its gradient on the GPU alone: `time_ssim [--once] CASE...`, by default all cases.
// For each it prints the median and the least time in microseconds, and the value (for gradients,
// that of a pixel in the middle), which reveals a variant that computes something else. With
// `--once` each is launched a single time, for a sanitizer.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ssim/ssim_backward.h"

namespace {

using namespace syncfree;

int repeats = 41, warm_ups = 3;
constexpr long long kSpinCycles = 500'000;  // longer than the host takes to enqueue the launches

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(1);
}

__device__ float noise_of(unsigned x) {  // in the unit interval (PCG hash)
  x = x * 747796405u + 2891336453u;
  x = ((x >> ((x >> 28) + 4)) ^ x) * 277803737u;
  return static_cast<float>((x >> 22 ^ x) >> 8) * 0x1p-24f;
}

// Noise everywhere, or rectangles of 56 x 40 with levels of their own, half of them with a texture.
__global__ void fill(float* preds, float* target, unsigned count, int height, int width,
                     bool blocks) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const unsigned column = i % width, row = i / width % height, plane = i / width / height;
    const unsigned tile = (plane * 1000 + row / 40) * 1000 + column / 56;
    const float texture = noise_of(tile + 77u) < 0.5f ? 0.1f * (noise_of(i) - 0.5f) : 0.0f;
    const float x = blocks ? noise_of(tile) + texture : noise_of(i);
    const float y = x + 0.1f * (noise_of(i ^ 0x5bd1e995u) - 0.5f);
    preds[i] = __saturatef(x);
    target[i] = __saturatef(y);
  }
}

__global__ void spin(long long cycles) {
  const long long end = clock64() + cycles;
  while (clock64() < end) {
  }
}

struct Batch {
  TensorView preds;
  TensorView target;

  Batch(std::int64_t images, int height, int width, bool blocks) {
    const std::int64_t count = images * 3 * height * width;
    for (TensorView* view : {&preds, &target}) {
      void* data;
      check(cudaMalloc(&data, count * sizeof(float)));
      view->data = data;
      view->rank = 5;
      const std::int64_t sizes[] = {images, 3, 1, height, width};
      for (std::int64_t axis = 4, stride = 1; axis >= 0; stride *= sizes[axis--]) {
        view->size[axis] = sizes[axis];
        view->stride[axis] = stride;
      }
    }
    fill<<<4096, 256>>>(pixels(preds), pixels(target), static_cast<unsigned>(count), height, width,
                        blocks);
    check(cudaGetLastError());
  }
  ~Batch() {
    cudaFree(pixels(preds));
    cudaFree(pixels(target));
  }

  static float* pixels(const TensorView& view) {
    return static_cast<float*>(const_cast<void*>(view.data));
  }
};

ssim::Problem problem_of(const Batch& batch, bool uniform) {
  ssim::Problem problem;
  problem.preds = batch.preds;
  problem.target = batch.target;
  for (int axis : {1, 2})
    problem.axes[axis] = uniform ? ssim::Axis{7, 3, 0.0} : ssim::Axis{11, 5, 1.5};
  return problem;
}

// Memory of one launch, kept for all repeats.
struct Memory {
  Workspace workspace;

  explicit Memory(const WorkspaceSize& size) {
    check(cudaMalloc(&workspace.zeroed, size.zeroed + kWorkspaceAlignment));
    check(cudaMalloc(&workspace.scratch, size.scratch + kWorkspaceAlignment));
    check(cudaMemset(workspace.zeroed, 0, size.zeroed + kWorkspaceAlignment));
  }
  ~Memory() {
    cudaFree(workspace.zeroed);
    cudaFree(workspace.scratch);
  }
};

// For each repeat an event pair behind a spin, so that the time contains no launch.
void time_case(const std::string& name, const std::function<void()>& launch, const float* result) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> taken;
  for (int i = 0; i < repeats + warm_ups; ++i) {
    spin<<<1, 1>>>(kSpinCycles);
    check(cudaEventRecord(begin));
    launch();
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float milliseconds;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    if (i >= warm_ups) taken.push_back(milliseconds * 1e3f);
  }
  std::sort(taken.begin(), taken.end());
  float value;
  check(cudaMemcpy(&value, result, sizeof value, cudaMemcpyDeviceToHost));
  std::printf("%-40s %10.2f %10.2f %14.8g\n", name.c_str(), taken[repeats / 2], taken[0], value);
  std::fflush(stdout);
}

enum class Beside { kNothing, kErrors };

// The contrast of a pyramid's first scale, and the images of the next one.
void time_scale(const std::string& name, const Batch& batch) {
  const std::int64_t images = batch.preds.size[0];
  float *contrast, *pooled[2];
  check(cudaMalloc(&contrast, images * sizeof *contrast));
  for (float*& each : pooled) check(cudaMalloc(&each, batch.preds.numel() / 4 * sizeof *each));
  ssim::Problem problem = problem_of(batch, false);
  problem.contrast = contrast;
  problem.pooled_preds = pooled[0];
  problem.pooled_target = pooled[1];
  const Memory memory(ssim::workspace_size(problem));
  time_case(name, [&] { check(ssim::launch(problem, memory.workspace, nullptr)); }, contrast);
  cudaFree(contrast);
  for (float* each : pooled) cudaFree(each);
}

void time_value(const std::string& name, const Batch& batch, bool uniform,
                Beside beside = Beside::kNothing) {
  float* value;
  double* errors;
  const std::int64_t images = batch.preds.size[0];
  check(cudaMalloc(&value, sizeof *value));
  check(cudaMalloc(&errors, 2 * images * sizeof *errors));
  ssim::Problem problem = problem_of(batch, uniform);
  problem.value = value;
  if (beside == Beside::kErrors) {
    problem.squared_error = errors;
    problem.absolute_error = errors + images;
  }
  const Memory memory(ssim::workspace_size(problem));
  time_case(name, [&] { check(ssim::launch(problem, memory.workspace, nullptr)); }, value);
  cudaFree(value);
  cudaFree(errors);
}

// With `loss`, the same pass also computes the loss.
void time_gradients(const std::string& name, const Batch& batch, bool errors, bool loss) {
  ssim::BackwardProblem problem;
  problem.forward = problem_of(batch, false);
  // Arriving gradients of the mean over all pixels, and of the sum over each image.
  const float weights[] = {static_cast<float>(batch.preds.numel()), 0.25f};
  float* arriving;
  check(cudaMalloc(&arriving, sizeof weights));
  check(cudaMemcpy(arriving, weights, sizeof weights, cudaMemcpyHostToDevice));
  float* value;
  check(cudaMalloc(&value, sizeof *value));
  if (loss) {
    problem.loss_weight = errors ? 0.2 : 1.0;
    problem.loss = value;
  } else {
    problem.grad_value.data = arriving;
  }
  if (errors && !loss) {
    problem.grad_absolute_error.data = arriving + 1;
    problem.grad_absolute_error.rank = 1;
    problem.grad_absolute_error.size[0] = batch.preds.size[0];
  }
  for (ssim::Gradient* gradient : {&problem.preds, &problem.target}) {
    gradient->layout = batch.preds;
    check(cudaMalloc(&gradient->data, batch.preds.numel() * sizeof(float)));
  }
  const Memory memory(ssim::workspace_size(problem));
  const std::int64_t middle = (batch.preds.size[3] * batch.preds.size[4] + batch.preds.size[4]) / 2;
  const float* pixel = static_cast<float*>(problem.preds.data) + middle;
  time_case(name, [&] { check(ssim::launch(problem, memory.workspace, nullptr)); }, pixel);
  for (ssim::Gradient* gradient : {&problem.preds, &problem.target}) cudaFree(gradient->data);
  cudaFree(arriving);
  cudaFree(value);
}

void time_all(int images, int height, int width) {
  const Batch batch(images, height, width, false);
  const std::string shape =
      std::to_string(images) + "x3x" + std::to_string(height) + "x" + std::to_string(width);
  time_value("value " + shape, batch, false);
  time_gradients("gradients " + shape, batch, false, false);
  time_gradients("loss " + shape, batch, false, true);
}

}  // namespace

int main(int count, char** names) {
  const std::vector<std::string> cases{"value",     "errors", "scale",   "uniform", "small",
                                       "gradients", "loss",   "patches", "frames"};
  std::vector<std::string> given(names + 1, names + count);
  if (!given.empty() && given.front() == "--once") {
    repeats = 1;
    warm_ups = 0;
    given.erase(given.begin());
  }
  const auto is_in = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const std::string& name : given) {
    if (is_in(cases, name)) continue;
    std::fprintf(stderr, "no case is called %s\n", name.c_str());
    return 2;
  }
  const auto wanted = [&](const char* name) { return given.empty() || is_in(given, name); };
  if (wanted("patches"))
    for (const auto& [images, size] : {std::pair{1, 256},
                                       {2, 256},
                                       {4, 256},
                                       {8, 256},
                                       {16, 256},
                                       {32, 256},
                                       {64, 256},
                                       {16, 128},
                                       {64, 128},
                                       {16, 192},
                                       {32, 192},
                                       {16, 224},
                                       {16, 320},
                                       {1, 384},
                                       {8, 384},
                                       {1, 512},
                                       {2, 512},
                                       {4, 512},
                                       {16, 512}})
      time_all(images, size, size);
  if (wanted("frames"))
    for (const auto& [images, height, width] : {std::tuple{1, 480, 640},
                                                {4, 480, 640},
                                                {16, 480, 640},
                                                {1, 512, 768},
                                                {4, 512, 768},
                                                {1, 720, 1280},
                                                {4, 720, 1280},
                                                {1, 1080, 1920},
                                                {4, 1080, 1920},
                                                {1, 2160, 3840}})
      time_all(images, height, width);
  for (bool blocks : {false, true}) {
    const std::string suffix = blocks ? " blocks" : " noise";
    if (wanted("value") || wanted("errors") || wanted("scale") || wanted("uniform")) {
      const Batch large(32, 1080, 1920, blocks);
      if (wanted("value")) time_value("value 32x3x1080x1920" + suffix, large, false);
      if (wanted("errors"))
        time_value("errors 32x3x1080x1920" + suffix, large, false, Beside::kErrors);
      if (wanted("scale")) time_scale("scale 32x3x1080x1920" + suffix, large);
      if (wanted("uniform")) time_value("uniform 32x3x1080x1920" + suffix, large, true);
    }
    if (wanted("value"))
      time_value("value 8x3x1080x1920" + suffix, Batch(8, 1080, 1920, blocks), false);
    if (wanted("small"))
      time_value("value 16x3x256x256" + suffix, Batch(16, 256, 256, blocks), false);
    for (bool loss : {false, true}) {
      const std::string name = loss ? "loss" : "gradients";
      if (!wanted(name.c_str())) continue;
      const Batch batch(8, 1080, 1920, blocks);
      time_gradients(name + " 8x3x1080x1920" + suffix, batch, false, loss);
      time_gradients("the same, with errors" + suffix + (loss ? " in the loss" : ""), batch, true,
                     loss);
    }
  }
}
