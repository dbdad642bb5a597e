// The order in which a pair of rows is added up. All orders have the same operations, but the
// compiler makes different code of them, and registers are scarce. Chosen by
// tools/kernel_variants/search_orders.py.
#pragma once

#include "core/dtype.h"
#include "ssim/ssim_strip_task.h"

namespace syncfree::ssim {

enum class TapOrder {
  kAscending,
  kDescending,
  kMiddleFirst,
  kEndsFirst,
  kFifthFirst,
  kSeventhFirst
};

// The i-th of the inner taps 1 to 9.
SYNCFREE_HD constexpr int inner_tap(TapOrder order, int i) {
  switch (order) {
    case TapOrder::kAscending:
      return 1 + i;
    case TapOrder::kDescending:
      return 9 - i;
    case TapOrder::kMiddleFirst:
      return i % 2 == 0 ? 5 + (i + 1) / 2 : 5 - (i + 1) / 2;
    case TapOrder::kEndsFirst:
      return i % 2 == 0 ? 1 + (i + 1) / 2 : 10 - (i + 1) / 2;
    case TapOrder::kFifthFirst:
      return (i + 4) % 9 + 1;
    case TapOrder::kSeventhFirst:
      return (i + 6) % 9 + 1;
  }
  return 0;
}

// When a step issues the loads from shared memory that the next step needs.
enum class AskAhead { kAtOnce, kBeforeSums, kAfterSums, kBeforeSquares, kAfterSquares };

// A step: one row of s or d.
struct RingStep {
  TapOrder sums;
  TapOrder squares;
  AskAhead ask;
};

// When the outputs that the first row completes are computed.
enum class FirstOutputs { kWithItsSums, kWithTheSecondRow, kLast };

struct RingOrders {
  RingStep first_d;
  RingStep first_s;
  RingStep second_d;
  RingStep second_s;
  FirstOutputs first_outputs;
};

// Orders of taps are the same for all tasks, since they decide the last bits of a value.
template <AskAhead kFirstD, AskAhead kFirstS, AskAhead kSecondD, AskAhead kSecondS,
          FirstOutputs kFirstOutputs>
inline constexpr RingOrders kOrdersThatAsk{
    {TapOrder::kMiddleFirst, TapOrder::kDescending, kFirstD},
    {TapOrder::kMiddleFirst, TapOrder::kDescending, kFirstS},
    {TapOrder::kFifthFirst, TapOrder::kFifthFirst, kSecondD},
    {TapOrder::kFifthFirst, TapOrder::kMiddleFirst, kSecondS},
    kFirstOutputs};

template <StripTask kTask>
inline constexpr RingOrders kRingOrders =
    kOrdersThatAsk<AskAhead::kBeforeSums, AskAhead::kAfterSquares, AskAhead::kBeforeSums,
                   AskAhead::kBeforeSums, FirstOutputs::kWithTheSecondRow>;
template <>
inline constexpr RingOrders kRingOrders<StripTask::kScale> =
    kOrdersThatAsk<AskAhead::kAtOnce, AskAhead::kBeforeSums, AskAhead::kAfterSums,
                   AskAhead::kAfterSums, FirstOutputs::kWithTheSecondRow>;
template <>
inline constexpr RingOrders kRingOrders<StripTask::kClampedScale> = kRingOrders<StripTask::kScale>;

}  // namespace syncfree::ssim
