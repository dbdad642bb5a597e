#include "runtime/cupti.h"

#include <dlfcn.h>

#include <stdexcept>

namespace syncfree::runtime {
namespace {

template <typename Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
}

template <typename Function>
void require(void* library, const char* name, Function*& function) {
  find(library, name, function);
  if (function == nullptr)
    throw std::runtime_error("this libcupti has no function " + std::string(name));
}

}  // namespace

Cupti::Cupti(void* library) {
  require(library, "cuptiGetCallbackName", name_);
  require(library, "cuptiSubscribe", subscribe_);
  require(library, "cuptiUnsubscribe", unsubscribe_);
  require(library, "cuptiEnableCallback", enable_);
  find(library, "cuptiSubscribe_v2", subscribe_v2_);
  find(library, "cuptiGetResultString", word_);
}

std::vector<std::string> Cupti::names(CuptiDomain domain) const {
  constexpr std::uint32_t kMost = 4096;  // far above any release; stops if a library never fails
  std::vector<std::string> names;
  for (std::uint32_t id = 0; id < kMost; ++id) {
    const char* name = nullptr;
    const int result = name_(domain, id, &name);
    // Id 0 stands for no function and has a name in some releases only.
    if (result != kCuptiSuccess && id > 0) break;
    names.emplace_back(result == kCuptiSuccess && name != nullptr ? name : "");
  }
  return names;
}

int Cupti::subscribe(CuptiCallback callback, void* user, std::string& holder) {
  if (subscribe_v2_ != nullptr) {
    char old_name[128] = "";
    SubscriberNames names{sizeof(SubscriberNames), "syncfree", old_name, sizeof(old_name)};
    const int result = subscribe_v2_(&subscriber_, callback, user, &names);
    old_name[sizeof(old_name) - 1] = '\0';
    if (result == kCuptiTaken) holder = old_name;
    if (result == kCuptiSuccess || result == kCuptiTaken) return result;
  }
  const int result = subscribe_(&subscriber_, callback, user);
  if (result != kCuptiSuccess) subscriber_ = nullptr;
  return result;
}

int Cupti::enable(CuptiDomain domain, std::uint32_t id, bool on) {
  return enable_(on ? 1 : 0, subscriber_, domain, id);
}

void Cupti::unsubscribe() {
  if (subscriber_ != nullptr) unsubscribe_(subscriber_);
  subscriber_ = nullptr;
}

std::string Cupti::word(int result) const {
  const char* text = nullptr;
  if (word_ != nullptr && word_(result, &text) == kCuptiSuccess && text != nullptr) return text;
  return "CUPTI error";
}

}  // namespace syncfree::runtime
