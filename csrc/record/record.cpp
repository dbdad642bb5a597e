// Lets torch tell the runtime which operators run, by callbacks of at::RecordFunction that call the
// functions of a listener.
//
// at::RecordFunction is C++, which torch keeps compatible within one minor version at most, and the
// stable ABI has no counterpart. So this code is a library of its own, which serves the version of
// torch that it was built against, has that version in its name, and does nothing but translate.
#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <atomic>

#include "runtime/op_listener.h"

namespace {

using syncfree::runtime::OpListener;

std::atomic<const OpListener*> listener = nullptr;
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& op) {
  if (op.isAsync()) return nullptr;  // another thread decides when it ends
  const bool is_node = op.scope() == at::RecordScope::BACKWARD_FUNCTION;
  listener.load()->begin(&op, op.name(), is_node, op.seqNr(), op.forwardThreadId());
  return nullptr;
}

void end(const at::RecordFunction& op, at::ObserverContext*) {
  listener.load()->end(&op, op.threadId(), at::sequence_number::peek());
}

void stop() {
  if (handle == at::INVALID_CALLBACK_HANDLE) return;
  at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace

#define SYNCFREE_EXPORT extern "C" __attribute__((visibility("default")))

// Must not be called by two threads at once. Other threads may run operators meanwhile: torch
// guards its list of callbacks with a lock and a version, since its own profiler can be switched on
// from outside. Takes the place of a listener that was not stopped.
SYNCFREE_EXPORT void syncfree_record_start(const OpListener* to) {
  stop();
  listener.store(to);
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(begin, end)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

// Operators that are running now still report their end.
SYNCFREE_EXPORT void syncfree_record_stop() {
  stop();
}
