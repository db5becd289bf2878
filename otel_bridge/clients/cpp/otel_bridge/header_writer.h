// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Header writer: header fields of HTTP/2 (RFC 7541), written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string_view>

namespace otel_bridge {

namespace internal {

/// A block of header fields, written: literals that no table keeps.
class HeaderWriter {
 public:
  HeaderWriter(uint8_t* out, size_t room) : out_(out), room_(room) {}

  size_t size() const { return size_; }
  bool whole() const { return whole_; }

  void indexed(uint8_t index) { put(0x80 | index); }

  /// A field whose name is that of an entry of the static table (at most 61). `secret`: no intermediary may index it.
  void named(uint8_t index, std::string_view value, bool secret = false) {
    integer(secret ? 0x10 : 0, 15, index);
    text(value);
  }

  void field(std::string_view name, std::string_view value) {
    put(0);
    text(name);
    text(value);
  }

 private:
  void put(unsigned byte) {
    whole_ = whole_ && size_ < room_;
    if (whole_) out_[size_++] = static_cast<uint8_t>(byte);
  }

  void integer(unsigned high_bits, unsigned mask, size_t value) {
    if (value < mask) return put(high_bits | static_cast<unsigned>(value));
    put(high_bits | mask);
    for (value -= mask; value >= 128; value >>= 7) put(0x80 | static_cast<unsigned>(value & 0x7f));
    put(static_cast<unsigned>(value));
  }

  void text(std::string_view text) {
    integer(0, 127, text.size());
    for (char c : text) put(static_cast<uint8_t>(c));
  }

  uint8_t* out_;
  size_t room_;
  size_t size_ = 0;
  bool whole_ = true;
};

/// Decimal digits.
struct Decimal {
  Decimal(uint64_t number, const char* unit) {
    size = static_cast<size_t>(std::snprintf(text, sizeof text, "%llu%s", static_cast<unsigned long long>(number), unit));
  }
  std::string_view view() const { return std::string_view(text, size); }

  char text[24];
  size_t size;
};

}  // namespace internal

}  // namespace otel_bridge
