// PSNR and SSIM of images in plain memory, on the CPU or on a CUDA stream, where the program waits
// once, at its end.
#include <syncfree/syncfree.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#if defined(WITH_CUDA)
#include <cuda_runtime.h>
#endif

namespace {

constexpr int kBatch = 4, kChannels = 3, kHeight = 128, kWidth = 192;
constexpr int kElements = kBatch * kChannels * kHeight * kWidth;

struct Quality {
  float psnr[kBatch];  // decibels
  float ssim[kBatch];
};

// Stripes, and the same stripes with an error that grows from image to image.
void make_images(std::vector<float>& clean, std::vector<float>& noisy) {
  for (int i = 0; i < kElements; ++i) {
    const int image = i / (kElements / kBatch);
    clean[i] = 0.5f + 0.4f * std::sin(0.05f * static_cast<float>(i % (kWidth + 1)));
    noisy[i] = clean[i] + 0.003f * static_cast<float>((image + 1) * (i * 5 % 13 - 6));
  }
}

void require(const syncfree::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.message().c_str());
  std::exit(1);
}

// One call per metric; `out` is on the images' device and gets a value for each image.
void measure(const float* noisy, const float* clean, Quality* out, syncfree::Device device,
             const syncfree::Launch& launch) {
  const auto images = [&](const float* data) {
    return syncfree::view(data, {kBatch, kChannels, kHeight, kWidth}, device);
  };
  require(syncfree::psnr(images(noisy), images(clean), 1.0,
                         syncfree::view(out->psnr, {kBatch}, device),
                         {.kept = 1, .reduction = syncfree::Reduction::kNone}, launch));
  require(syncfree::ssim(images(noisy), images(clean), 1.0,
                         syncfree::view(out->ssim, {kBatch}, device),
                         {.reduction = syncfree::Reduction::kNone}, launch));
}

void print(const char* where, const Quality& quality) {
  for (int i = 0; i < kBatch; ++i)
    std::printf("%s: image %d has %.2f dB, SSIM %.4f\n", where, i, quality.psnr[i],
                quality.ssim[i]);
}

#if defined(WITH_CUDA)

void require(cudaError_t status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(status));
  std::exit(1);
}

Quality measure_on_cuda(const std::vector<float>& noisy, const std::vector<float>& clean) {
  constexpr std::size_t kBytes = kElements * sizeof(float);
  cudaStream_t stream = nullptr;
  float *device_noisy = nullptr, *device_clean = nullptr;
  Quality *device_quality = nullptr, *quality = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  require(cudaMallocAsync(&device_noisy, kBytes, stream));
  require(cudaMallocAsync(&device_clean, kBytes, stream));
  require(cudaMallocAsync(&device_quality, sizeof(Quality), stream));
  require(cudaMallocHost(&quality, sizeof(Quality)));

  require(cudaMemcpyAsync(device_noisy, noisy.data(), kBytes, cudaMemcpyDefault, stream));
  require(cudaMemcpyAsync(device_clean, clean.data(), kBytes, cudaMemcpyDefault, stream));
  measure(device_noisy, device_clean, device_quality, syncfree::Device::cuda(0),
          {.stream = stream});
  require(cudaMemcpyAsync(quality, device_quality, sizeof(Quality), cudaMemcpyDefault, stream));
  require(cudaFreeAsync(device_noisy, stream));
  require(cudaFreeAsync(device_clean, stream));
  require(cudaFreeAsync(device_quality, stream));
  require(cudaStreamSynchronize(stream));  // the one wait

  const Quality result = *quality;
  require(cudaFreeHost(quality));
  require(cudaStreamDestroy(stream));
  return result;
}

#endif

}  // namespace

int main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "cpu";
  std::vector<float> clean(kElements), noisy(kElements);
  make_images(clean, noisy);
  if (device == "cpu") {
    Quality quality;
    measure(noisy.data(), clean.data(), &quality, syncfree::Device::cpu(), {});
    print("cpu", quality);
    return 0;
  }
#if defined(WITH_CUDA)
  if (device == "cuda") {
    print("cuda", measure_on_cuda(noisy, clean));
    return 0;
  }
#endif
  std::fprintf(stderr, "usage: plain [cpu|cuda]; cuda in builds that have it\n");
  return 2;
}
