// An inference loop that measures the quality of its model and where its time goes: PSNR and SSIM
// of every batch, summed on the device, and events around the steps, all read after the loop.
// Then it measures what a batch costs after a pause, and why.
//
//   evaluate [cpu | cuda] [sweep.json, for `syncfree bench idle-gap sweep.json --plot sweep.svg`]
#include <syncfree/torch.h>
#include <torch/nn/modules/conv.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace {

// In place of your model: a 3 x 3 binomial filter, which removes most of white noise.
struct DenoiserImpl : torch::nn::Module {
  DenoiserImpl() {
    const auto options =
        torch::nn::Conv2dOptions(3, 3, 3).groups(3).bias(false).padding(1).padding_mode(
            torch::kReflect);
    filter = register_module("filter", torch::nn::Conv2d(options));
    const torch::Tensor taps = torch::tensor({0.25f, 0.5f, 0.25f});
    filter->weight.set_data(torch::outer(taps, taps).expand({3, 1, 3, 3}).contiguous());
  }

  torch::Tensor forward(const torch::Tensor& images) { return filter->forward(images); }

  torch::nn::Conv2d filter = nullptr;
};
TORCH_MODULE(Denoiser);

// Smooth pictures, with another phase in every batch.
torch::Tensor clean_batch(int step, torch::Device device) {
  const torch::Tensor along = torch::linspace(0, 6, 96, torch::TensorOptions().device(device));
  const torch::Tensor picture = torch::sin(along.unsqueeze(1) + step) * torch::cos(along);
  return (0.5 + 0.4 * picture).expand({8, 3, 96, 96}).contiguous();
}

}  // namespace

int main(int argc, char** argv) {
  const torch::Device device(argc > 1 ? argv[1] : "cpu");
  const torch::InferenceMode no_gradients;
  torch::manual_seed(1);
  Denoiser model;
  model->to(device);
  model->eval();

  constexpr int kBatches = 10;
  using Where = syncfree::Device::Type;
  syncfree::Status status;
  syncfree::EventTimer timer(device.is_cuda() ? Where::kCuda : Where::kCpu, status);
  syncfree::check(status);
  torch::Tensor sums = torch::zeros({4}, torch::TensorOptions().device(device));
  for (int step = 0; step < kBatches; ++step) {
    const torch::Tensor clean = clean_batch(step, device);
    const torch::Tensor noisy = clean + 0.1 * torch::randn_like(clean);
    auto forward = syncfree::region_on(timer, "forward", noisy);
    const torch::Tensor restored = model->forward(noisy);
    syncfree::check(forward.end());
    const auto metrics = syncfree::region_on(timer, "metrics", noisy);
    // Each is one pass over the images. Nothing here waits for the device.
    const auto before = syncfree::image_quality(noisy, clean, 1.0);
    const auto after = syncfree::image_quality(restored, clean, 1.0);
    sums += torch::stack({before.psnr, before.ssim, after.psnr, after.ssim});
  }
  const torch::Tensor means = (sums / kBatches).cpu();  // the one wait of the program
  const float* mean = means.const_data_ptr<float>();
  std::printf("noisy    %.2f dB, SSIM %.4f\nrestored %.2f dB, SSIM %.4f on %s\n", mean[0], mean[1],
              mean[2], mean[3], device.str().c_str());
  for (const syncfree::RegionSummary& region : timer.summary())
    std::printf("%s, %ld times: %s\n", region.name.c_str(), static_cast<long>(region.count),
                region.verdict().c_str());

  const torch::Tensor clean = clean_batch(0, device);
  const torch::Tensor noisy = clean + 0.1 * torch::randn_like(clean);
  const auto batch = [&] { return syncfree::image_quality(model->forward(noisy), clean, 1.0); };
  const syncfree::IdleGap sweep =
      syncfree::idle_gap_on(noisy, batch, {.gaps = {0, 0.01, 0.1}, .name = "batch"});
  std::printf("%s\n", sweep.text().c_str());
  if (argc > 2) {
    std::ofstream file(argv[2]);
    file << sweep.json() << std::flush;
    if (!file) {
      std::fprintf(stderr, "cannot write %s\n", argv[2]);
      return 1;
    }
  }
  return 0;
}
