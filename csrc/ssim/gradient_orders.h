// The order of the additions for one row of windows and of gradients. All orders have the same
// operations, but the compiler makes different code of them, and registers are scarce. Found by
// search, as those of ssim_ring_orders.h.
#pragma once

#include "ssim/ssim_backward_job.cuh"
#include "ssim/ssim_ring_orders.h"

namespace syncfree::ssim {

struct TermStep {
  TermPlane plane;
  TapOrder taps;
};

struct GradientOrders {
  RingStep d;
  RingStep s;
  TermStep terms[kTermPlanes];
  // Whether the next plane's terms are loaded before this plane's sums along the row are stored.
  bool asks_before_store;
  // Whether the first plane's terms are loaded while the windows are still added up.
  bool asks_early;
};

// With errors or without, the orders of taps are the same, since they decide the last bits of the
// gradients. (tools/kernel_variants/search_orders.py finds the orders by this comment's beginning.)
template <bool kErrors>
inline constexpr GradientOrders kGradientOrders{
    {TapOrder::kSeventhFirst, TapOrder::kAscending, AskAhead::kAtOnce},
    {TapOrder::kEndsFirst, TapOrder::kDescending, AskAhead::kAtOnce},
    {{kLevelS, TapOrder::kDescending},
     {kSlopeS, TapOrder::kAscending},
     {kLevelD, TapOrder::kFifthFirst},
     {kSlopeD, TapOrder::kEndsFirst}},
    true,
    true};
template <>
inline constexpr GradientOrders kGradientOrders<true>{
    {TapOrder::kSeventhFirst, TapOrder::kAscending, AskAhead::kBeforeSums},
    {TapOrder::kEndsFirst, TapOrder::kDescending, AskAhead::kAtOnce},
    {{kLevelS, TapOrder::kDescending},
     {kSlopeS, TapOrder::kAscending},
     {kLevelD, TapOrder::kFifthFirst},
     {kSlopeD, TapOrder::kEndsFirst}},
    true,
    false};

}  // namespace syncfree::ssim
