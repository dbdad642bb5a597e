// The error message for bad labels.
#pragma once

#include <sstream>
#include <string>

#include "core/error_record.h"

namespace syncfree {

// `where` is empty or like " on cuda:0"; `more` further labels were bad in later calls.
inline std::string error_text(const ErrorRecord& record, const std::string& where = {},
                              unsigned long long more = 0) {
  std::ostringstream text;
  text << "Detected the following values in `"
       << (record.kind == ErrorKind::kPredsOutOfRange ? "preds" : "target") << '`' << where << ": ";
  // A floating tensor can hold values that are no class index.
  if (record.is_integer)
    text << record.first_value;
  else
    text << "a value that is no whole number";
  text << " at flat index " << record.first_index;
  if (record.count > 1) text << ", the first of " << record.count;
  text << ", but expected only ";
  if (record.classes == 2)
    text << "the following values [0, 1]";
  else
    text << "labels in the range [0, " << record.classes - 1 << ']';
  // `ignore_index` is for targets: where a target is ignored, its prediction is not looked at.
  if (record.has_ignore_index && record.kind == ErrorKind::kTargetOutOfRange)
    text << " or ignore_index=" << record.ignore_index;
  text << '.';
  if (!record.is_integer && record.kind == ErrorKind::kPredsOutOfRange)
    text << " `preds` of the shape of `target` are labels; scores of classes have shape (N, C, "
            "...).";
  if (record.is_integer && !record.has_ignore_index &&
      record.kind == ErrorKind::kTargetOutOfRange) {
    // Common marks of elements to leave out: losses use -100, others -1, and label images 255.
    if (record.first_value < 0 || record.first_value == 255) {
      text << " Pass `ignore_index=" << record.first_value << "` to leave such elements out";
      // Masks of 0 and 255 and labels of -1 and 1 are classes under other names.
      if (record.classes == 2)
        text << ", or map the labels to 0 and 1 if " << record.first_value << " is one of the two";
      text << '.';
    } else if (record.first_value == record.classes)
      text << " Labels begin at 0: if these begin at 1, subtract 1.";
  }
  if (more > 0) text << " Later calls met " << more << " more.";
  return text.str();
}

}  // namespace syncfree
