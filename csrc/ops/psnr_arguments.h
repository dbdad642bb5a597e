// Arguments of the ops of PSNR. In the operands the dimensions that are kept come first, and those
// that are summed over (`dim`) behind them.
#pragma once

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

#include "ops/any_rank.h"
#include "ops/torch_abi.h"
#include "psnr/psnr.h"

namespace syncfree::ops {

// Which dimensions `dim` reduces; none means all. Each may be in [-rank, rank) and appear once;
// errors are those of torch.sum.
inline std::vector<bool> reduced_dims(const Tensor& tensor,
                                      const std::optional<std::vector<std::int64_t>>& dim) {
  const std::int64_t rank = tensor.dim();
  const bool all = !dim.has_value() || dim->empty();
  std::vector<bool> reduced(static_cast<std::size_t>(rank), all);
  if (all) return reduced;
  for (const std::int64_t d : *dim) {
    if (rank == 0)
      fail<std::out_of_range>("Dimension specified as ", d, " but tensor has no dimensions");
    if (d < -rank || d >= rank)
      fail<std::out_of_range>("Dimension out of range (expected to be in range of [", -rank, ", ",
                              rank - 1, "], but got ", d, ")");
    const std::int64_t position = d < 0 ? d + rank : d;
    auto&& slot = reduced[static_cast<std::size_t>(position)];
    if (slot) fail_runtime("dim ", position, " appears multiple times in the list of dims");
    slot = true;
  }
  return reduced;
}

// The view with the kept dimensions first; within each group the order stays.
template <class View>
View kept_first(const View& view, const std::vector<bool>& reduced) {
  View out = view;
  int position = 0;
  for (const bool pass : {false, true})
    for (int d = 0; d < view.rank; ++d) {
      if (reduced[static_cast<std::size_t>(d)] != pass) continue;
      out.size[position] = view.size[d];
      out.stride[position++] = view.stride[d];
    }
  return out;
}

inline Operands operands_of(const Tensor& preds, const Tensor& target,
                            const std::vector<bool>& reduced) {
  const int kept = static_cast<int>(std::count(reduced.begin(), reduced.end(), false));
  if (preds.dim() <= kMaxRank)
    return {kept_first(view_of(preds), reduced), kept_first(view_of(target), reduced), kept, {}};
  return merged(preds, kept_first(wide_view_of(preds), reduced), target,
                kept_first(wide_view_of(target), reduced), kept);
}

inline std::vector<std::int64_t> sizes_where(const Tensor& tensor, const std::vector<bool>& reduced,
                                             bool wanted) {
  std::vector<std::int64_t> sizes;
  for (std::size_t d = 0; d < reduced.size(); ++d)
    if (reduced[d] == wanted) sizes.push_back(tensor.sizes()[d]);
  return sizes;
}

inline std::vector<std::int64_t> kept_sizes(const Tensor& tensor,
                                            const std::vector<bool>& reduced) {
  return sizes_where(tensor, reduced, false);
}

inline std::vector<std::int64_t> reduced_sizes(const Tensor& tensor,
                                               const std::vector<bool>& reduced) {
  return sizes_where(tensor, reduced, true);
}

// A number, or an interval to which both operands are clamped.
inline DataRange range_of(double data_range, const std::optional<std::vector<double>>& interval) {
  if (!interval.has_value()) return {.value = data_range};
  if (interval->size() != 2) fail_value("Expected `interval` to be (low, high).");
  return {DataRange::Source::kInterval, data_range, (*interval)[0], (*interval)[1]};
}

inline syncfree::psnr::Problem make_problem(const Tensor& preds, const Operands& operands,
                                            const std::vector<bool>& reduced,
                                            const DataRange& range, double base) {
  syncfree::psnr::Problem problem;
  problem.preds = operands.first;
  problem.target = operands.second;
  problem.kept = operands.leading;
  const std::vector<std::int64_t> summed = reduced_sizes(preds, reduced);
  problem.plane = syncfree::psnr::plane_elements(summed.data(), static_cast<int>(summed.size()));
  problem.range = range;
  problem.base = base;
  return problem;
}

}  // namespace syncfree::ops
