// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Line: one line of text for people, foreign words escaped and cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace otel_bridge {

namespace internal {

// One line of text in fixed memory, for people.
class Line {
 public:
  void clear() { size_ = 0; text_[0] = '\0'; }

  const char* c_str() const { return text_; }

  Line& operator<<(std::string_view words) {
    for (char c : words) put(c);
    return *this;
  }

  Line& operator<<(uint64_t number) {
    char digits[24];
    const int count = std::snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(number));
    return *this << std::string_view(digits, static_cast<size_t>(count));
  }

  // A peer's words, in quotes: at most 120 bytes of them, and only printable ASCII as it is.
  Line& quote(std::string_view foreign) {
    put('\'');
    for (size_t i = 0; i < foreign.size() && i < kQuoted; ++i) {
      const unsigned char c = static_cast<unsigned char>(foreign[i]);
      if (c >= 0x20 && c < 0x7f && c != '\\') {
        put(static_cast<char>(c));
      } else {
        constexpr char kHex[] = "0123456789abcdef";
        *this << std::string_view("\\x");
        put(kHex[c >> 4]);
        put(kHex[c & 15]);
      }
    }
    put('\'');
    return foreign.size() > kQuoted ? *this << std::string_view("...") : *this;
  }

 private:
  static constexpr size_t kQuoted = 120;

  void put(char c) {
    if (size_ + 1 < sizeof text_) {
      text_[size_++] = c;
      text_[size_] = '\0';
    }
  }

  char text_[640] = "";
  size_t size_ = 0;
};

}  // namespace internal

}  // namespace otel_bridge
