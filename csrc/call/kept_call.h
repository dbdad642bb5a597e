// What an autograd node keeps of a call for its backward pass, besides tensors.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include "operator.h"

namespace syncfree::call {

// Keeps a value, `first`, and the options of an operator.
void keep_call(torch::autograd::AutogradContext* context, c10::IValue first, const Stack& options);

class KeptCall {
 public:
  explicit KeptCall(torch::autograd::AutogradContext* context);

  c10::IValue first() const { return list_.get(0); }
  // The options, which are the last parameters of `op`.
  void push_options(const Operator& op, Stack& stack) const;

 private:
  c10::List<c10::IValue> list_;
};

}  // namespace syncfree::call
