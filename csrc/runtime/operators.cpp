#include "runtime/operators.h"

#include <pthread.h>

#include <atomic>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "runtime/forward_lines.h"
#include "runtime/intern_table.h"

namespace syncfree::runtime {
namespace {

// An operator that has begun and not ended.
struct OpenOperator {
  const void* id;
  bool is_node;
  std::int64_t sequence;
  std::uint64_t thread;  // for a node, the thread that made it
  OperatorName name;     // copied: torch's may be gone if the operator ends in another thread
};

struct OperatorThread {
  std::atomic<bool> is_used = false;
  std::uint32_t session = 0;
  std::size_t depth = 0;
  std::array<OpenOperator, 48> open;
  // Kept when the thread ends: the nodes that it made may run later, in another thread.
  InternTable<CapturedFrame, 1 << ForwardLines::kNumberBits> lines;
};

class Operators {
 public:
  Operators() {
    // As in ThreadLogs: a thread_local would allocate when a callback of the driver first reads it.
    const auto end = [](void* thread) {
      static_cast<OperatorThread*>(thread)->is_used.store(false, std::memory_order_release);
    };
    if (pthread_key_create(&key_, end) != 0)
      throw std::runtime_error("no thread-specific key is left for the sync detector");
  }

  void restart(std::vector<PathBeginning> machinery) {
    const auto* before = machinery_.load();
    // The former list is not freed: an operator that ends at this moment may read it.
    if (before == nullptr || *before != machinery)
      machinery_.store(new std::vector<PathBeginning>(std::move(machinery)));
    session_.fetch_add(1);
    forward_lines_.clear();
  }

  void begin(const void* id, const char* name, bool is_node, std::int64_t sequence,
             std::uint64_t number) {
    OperatorThread* thread = claimed();
    if (thread == nullptr) return;
    const std::uint32_t session = session_.load(std::memory_order_relaxed);
    if (thread->session != session) {
      thread->session = session;
      thread->depth = 0;
      // Cleared only if it must be: another thread may be reading a line for the session before.
      if (thread->lines.is_half_full()) thread->lines.clear();
    }
    if (thread->depth == thread->open.size()) return;
    OpenOperator& op = thread->open[thread->depth++];
    op.id = id;
    op.is_node = is_node;
    op.sequence = sequence;
    op.thread = number;
    op.name.size = strnlen(name, sizeof(op.name.bytes));
    std::memcpy(op.name.bytes, name, op.name.size);
  }

  void end(const void* id, std::uint64_t number, std::uint64_t sequence) {
    OperatorThread* thread = current();
    if (thread == nullptr || thread->session != session_.load(std::memory_order_relaxed)) return;
    // An operator that began in another thread, or nested too deep, is not there.
    std::size_t depth = thread->depth;
    while (depth > 0 && thread->open[depth - 1].id != id) --depth;
    if (depth == 0) return;
    thread->depth = depth - 1;
    note_nodes(*thread, thread->open[depth - 1], number, sequence);
  }

  RunningOperators running() const {
    RunningOperators running;
    const OperatorThread* thread = current();
    if (thread == nullptr || thread->session != session_.load(std::memory_order_relaxed))
      return running;
    for (std::size_t i = thread->depth; i > 0 && running.count < RunningOperators::kMost; --i)
      running.name[running.count++] = &thread->open[i - 1].name;
    LinePlace place;
    if (const OpenOperator* node = running_node(*thread)) {
      running.is_backward = true;
      if (forward_lines_.find(node->thread, static_cast<std::uint64_t>(node->sequence), place))
        running.forward = &threads_[place.table].lines[place.number];
    }
    return running;
  }

 private:
  OperatorThread* current() const {
    return static_cast<OperatorThread*>(pthread_getspecific(key_));
  }

  OperatorThread* claimed() {
    if (OperatorThread* thread = current()) return thread;
    for (OperatorThread& each : threads_) {
      bool is_used = false;
      if (each.is_used.load(std::memory_order_relaxed)) continue;
      if (!each.is_used.compare_exchange_strong(is_used, true, std::memory_order_acq_rel)) continue;
      each.depth = 0;
      if (pthread_setspecific(key_, &each) == 0) return &each;
      each.is_used.store(false, std::memory_order_release);
      return nullptr;
    }
    return nullptr;
  }

  // The innermost node that runs in a thread, if it has a number: accumulating gradients has none.
  static const OpenOperator* running_node(const OperatorThread& thread) {
    for (std::size_t i = thread.depth; i > 0; --i)
      if (const OpenOperator& each = thread.open[i - 1]; each.is_node)
        return each.sequence < 0 ? nullptr : &each;
    return nullptr;
  }

  // Whether an operator around this one makes nodes at the same line, and notes them when it ends.
  static bool is_inside_of_noted(const OperatorThread& thread) {
    for (std::size_t i = thread.depth; i > 0 && !thread.open[i - 1].is_node; --i)
      if (thread.open[i - 1].sequence >= 0) return true;
    return false;
  }

  // The line is looked up when an operator ends: only then is it known whether the operator made a
  // node, and most do not.
  void note_nodes(OperatorThread& thread, const OpenOperator& op, std::uint64_t number,
                  std::uint64_t next) {
    if (op.is_node || op.sequence < 0) return;
    auto sequence = static_cast<std::uint64_t>(op.sequence);
    if (sequence >= next || is_inside_of_noted(thread)) return;
    LinePlace place;
    if (!find_line(thread, place)) return;
    if (next - sequence > ForwardLines::kNodes) sequence = next - ForwardLines::kNodes;
    for (; sequence < next; ++sequence) forward_lines_.put(number, sequence, place);
  }

  bool find_line(OperatorThread& thread, LinePlace& place) {
    CapturedFrame frame;
    if (program_frame(frame)) {
      place.table = static_cast<std::uint32_t>(&thread - threads_.data());
      place.number = thread.lines.intern(frame);
      return place.number != kNoRoom;
    }
    // In a thread without Python frames, a running node made this one, for the gradient of a
    // gradient: it gets that node's line.
    const OpenOperator* node = running_node(thread);
    return node != nullptr &&
           forward_lines_.find(node->thread, static_cast<std::uint64_t>(node->sequence), place);
  }

  // The innermost frame outside of the machinery.
  bool program_frame(CapturedFrame& frame) const {
    constexpr std::size_t kMost = 64;
    struct Search {
      const std::vector<PathBeginning>& machinery;
      CapturedFrame& frame;
      bool found;
    } search{*machinery_.load(), frame, false};
    walk_python_stack(
        [](void* context, const PythonFrame& each) {
          auto& search = *static_cast<Search*>(context);
          const PythonText file = each.file();
          for (const PathBeginning& beginning : search.machinery)
            if (begins_with(file, beginning)) return true;
          copy(each, search.frame);
          search.found = true;
          return false;
        },
        &search, kMost);
    return search.found;
  }

  // Python stores every code point of a path with the width of the widest one. Here the folder
  // decides, as names in it are ASCII.
  static bool begins_with(const PythonText& text, const PathBeginning& beginning) {
    return text.width == beginning.width && text.length * text.width >= beginning.bytes.size() &&
           std::memcmp(text.data, beginning.bytes.data(), beginning.bytes.size()) == 0;
  }

  pthread_key_t key_;
  std::atomic<std::uint32_t> session_ = 0;
  std::atomic<const std::vector<PathBeginning>*> machinery_ = nullptr;
  mutable ForwardLines forward_lines_;
  std::array<OperatorThread, 1 << ForwardLines::kTableBits> threads_;
};

// Made by the first listener and never freed, as operators may end late.
std::atomic<Operators*> operators = nullptr;

void begin(const void* id, const char* name, bool is_node, std::int64_t sequence,
           std::uint64_t thread) {
  operators.load(std::memory_order_relaxed)->begin(id, name, is_node, sequence, thread);
}

void end(const void* id, std::uint64_t thread, std::uint64_t sequence) {
  operators.load(std::memory_order_relaxed)->end(id, thread, sequence);
}

constexpr OpListener kListener{begin, end};

}  // namespace

const OpListener& listen_to_operators(std::vector<PathBeginning> machinery) {
  static Operators* const made = new Operators;
  operators.store(made);
  made->restart(std::move(machinery));
  return kListener;
}

RunningOperators running_operators() {
  const Operators* known = operators.load(std::memory_order_acquire);
  return known == nullptr ? RunningOperators{} : known->running();
}

}  // namespace syncfree::runtime
