// CUPTI's callback interface, from a library that is loaded at run time: no header, no link.
//
// Ids of functions differ between releases of CUDA, so none is written here: names are looked up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace syncfree::runtime {

// CUpti_CallbackDomain
enum class CuptiDomain : int { kDriver = 1, kRuntime = 2 };

// CUpti_CallbackData
struct CuptiCall {
  int site;  // CUpti_ApiCallbackSite
  const char* function_name;
  const void* arguments;
  void* result;  // CUresult or cudaError_t, valid at the exit
  const char* symbol_name;
  void* context;
  std::uint32_t context_uid;
  std::uint64_t* correlation_data;
  std::uint32_t correlation_id;
};

inline constexpr int kCuptiEnter = 0;  // CUPTI_API_ENTER; 1 is CUPTI_API_EXIT

// CUpti_CallbackFunc
using CuptiCallback = void (*)(void* user, CuptiDomain domain, std::uint32_t id, const void* data);

inline constexpr int kCuptiSuccess = 0;
inline constexpr int kCuptiTaken = 39;  // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED

class Cupti {
 public:
  // `library` is a handle of dlopen. Throws std::runtime_error if a function is missing.
  explicit Cupti(void* library);

  // The names of all functions of a domain, by id.
  std::vector<std::string> names(CuptiDomain domain) const;

  // Returns a CUPTI result. `holder` gets the name of another subscriber, if there is one that
  // CUPTI can name.
  int subscribe(CuptiCallback callback, void* user, std::string& holder);
  int enable(CuptiDomain domain, std::uint32_t id, bool on);
  void unsubscribe();

  // CUPTI's own name for a result, for example "CUPTI_ERROR_NOT_INITIALIZED".
  std::string word(int result) const;

 private:
  // CUpti_SubscriberParams
  struct SubscriberNames {
    std::size_t size;
    const char* name;
    char* old_name;
    std::size_t old_size;
  };

  int (*name_)(CuptiDomain, std::uint32_t, const char**) = nullptr;
  int (*subscribe_)(void**, CuptiCallback, void*) = nullptr;
  int (*subscribe_v2_)(void**, CuptiCallback, void*,
                       SubscriberNames*) = nullptr;  // since CUDA 13.0
  int (*unsubscribe_)(void*) = nullptr;
  int (*enable_)(std::uint32_t, void*, CuptiDomain, std::uint32_t) = nullptr;
  int (*word_)(int, const char**) = nullptr;
  void* subscriber_ = nullptr;
};

}  // namespace syncfree::runtime
