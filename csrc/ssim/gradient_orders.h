// In which order a row of windows and of gradients is added up: no operation more or less, but what
// the compiler makes of it differs, and registers are short. Found by search, as
// ssim_ring_orders.h.
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
  bool asks_before_store;  // for the next plane's terms
  bool asks_early;         // for the first plane's: while windows are added up
};

// With errors or without, orders of taps are the same: they decide the last bits.
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
