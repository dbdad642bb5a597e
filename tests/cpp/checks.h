// Counts what holds and prints what does not.
#pragma once

#include <syncfree/status.h>

#include <cmath>
#include <cstdio>
#include <string>

inline int checks = 0, failures = 0;

inline void check(const char* what, bool holds) {
  ++checks;
  if (holds) return;
  ++failures;
  std::printf("FAILED %s\n", what);
}

inline bool near(double found, double truth) {
  return std::abs(found - truth) < 1e-3 * std::abs(truth);
}

inline bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// The code, a word of the message, and a message that is a sentence where there is one.
inline void expect(const char* what, const syncfree::Status& status, syncfree::StatusCode code,
                   const char* word = "") {
  const std::string& text = status.message();
  const bool said =
      code == syncfree::StatusCode::kOk ? text.empty() : !text.empty() && text.back() == '.';
  check(what, status.code() == code && said && has(text, word));
  if (status.code() != code || !said || !has(text, word))
    std::printf("  got code %d: %s\n", static_cast<int>(status.code()), text.c_str());
}

// The program's exit status.
inline int report() {
  std::printf("%d checks, %d failed\n", checks, failures);
  return failures == 0 ? 0 : 1;
}
