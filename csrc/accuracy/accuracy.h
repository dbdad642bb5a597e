// Accuracy from logits, probabilities or labels: what is counted, and the CPU and CUDA launchers.
//
// An element is one target with its scores or its predicted label. Elements form groups that are
// counted apart, such as samples. A slot holds the counters of one class or label of a group, or of
// all of them together.
#pragma once

#include <cstdint>

#include "core/error_record.h"
#include "core/parallel.h"
#include "core/tensor_view.h"
#include "core/workspace.h"

#if defined(SYNCFREE_WITH_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace syncfree::accuracy {

enum class Task : int { kBinary, kMulticlass, kMultilabel };
enum class Average : int { kMicro, kMacro, kWeighted, kNone };

// The four numbers that TorchMetrics counts for a class, for a label, or for all elements together.
enum CountKind : int { kTp, kFp, kTn, kFn };
inline constexpr int kCountKinds = 4;

// Where the counts go. Those of a batch are added to what is there, those of samples overwrite it.
struct CountsView {
  std::int64_t* data[kCountKinds] = {};   // all or none
  std::int64_t stride[kCountKinds] = {};  // from class to class; samples are dense
  std::int64_t* bad = nullptr;            // one number, to which bad labels are added

  SYNCFREE_HD bool wanted() const { return data[kTp] != nullptr; }
};

// Several k answered in one pass, in ascending order.
struct TopKList {
  static constexpr int kMost = 32;

  int count = 0;  // 0: a single k
  int k[kMost] = {};
  unsigned char place[kMost] = {};  // where this k's values go in the result

  // How many of the k a target with `ahead` classes ahead of it misses: always the smallest ones.
  SYNCFREE_HD int misses(std::int64_t ahead) const {
    int misses = 0;
    for (int i = 0; i < count; ++i) misses += k[i] <= ahead;
    return misses;
  }
};

struct Problem {
  Task task = Task::kMulticlass;
  Average average = Average::kMicro;
  bool samplewise = false;

  // Multiclass scores: preds (N, C, S), target (N, S). Multiclass labels: both (N, S), and
  // `preds_are_labels`. Binary: both (N, S). Multilabel: both (N, L, S). S is the product of all
  // further dimensions, 1 if there are none; where they can't be merged into one stride the view
  // keeps them.
  TensorView preds;
  TensorView target;
  bool preds_are_labels = false;

  std::int64_t num_classes = 0;  // or labels; 0 with micro average: unknown, no range is checked
  int top_k = 1;                 // the greatest of `top_ks`
  TopKList top_ks;               // for scores, and only where no counts are wanted
  double threshold = 0.5;        // binary and multilabel scores; compared in the scores' own type
  bool has_ignore_index = false;
  std::int64_t ignore_index = 0;

  // A bad label (class outside [0, C), binary value other than 0 and 1) is reported and left out;
  // the result is then NaN. Without validation a pooled micro average counts it as wrong, and
  // everything else leaves it out.
  bool validate = true;

  // Float32: one element, or one per class (kNone), per sample (samplewise), or (N, classes). Null
  // if not wanted. With `top_ks` as many for each k, one k after another.
  float* value = nullptr;
  // Each of the four is one number, or one per class or label; samplewise (N), or (N, classes).
  CountsView counts;

  std::int64_t call = 0;  // the caller's number of this call, for the error record
};

// `error->count` is the number of bad labels; if not zero, counts of a batch stay as they were.
void run(const Problem& problem, ParallelFor parallel_for, ErrorRecord* error);

#if defined(SYNCFREE_WITH_CUDA)
WorkspaceSize workspace_size(const Problem& problem);
// `error` is mapped host memory, or null without validation.
cudaError_t launch(const Problem& problem, const Workspace& workspace, ErrorSlot* error,
                   cudaStream_t stream);
#endif

}  // namespace syncfree::accuracy
