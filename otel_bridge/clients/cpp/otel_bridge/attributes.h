// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Attributes, by OpenTelemetry's names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "protobuf.h"

namespace otel_bridge {

/// A value of an attribute. Text is copied when the attribute is set.
class Value {
 public:
  static Value text(const char* value) { return {1, value == nullptr ? "" : value, 0}; }
  static Value integer(int64_t value) { return {2, nullptr, internal::zigzag(value)}; }
  static Value number(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return {3, nullptr, bits};
  }
  static Value flag(bool value) { return {4, nullptr, value ? 1U : 0U}; }

  size_t encoded_size() const {
    return field_ == 1 ? internal::field_size(std::strlen(text_)) : 1 + (field_ == 3 ? 8 : internal::varint_size(bits_));
  }

  void encode(internal::Writer& out) const {
    if (field_ == 1) {
      out.bytes(1, text_, std::strlen(text_));
    } else if (field_ == 3) {
      out.byte(internal::tag(3, internal::kFixed64));
      for (unsigned shift = 0; shift < 64; shift += 8) {
        out.byte(static_cast<uint8_t>(bits_ >> shift));
      }
    } else {
      out.number(field_, bits_);
    }
  }

 private:
  Value(unsigned field, const char* text, uint64_t bits) : field_(field), text_(text), bits_(bits) {}

  unsigned field_;
  const char* text_;
  uint64_t bits_;
};

namespace internal {

inline size_t attribute_size(const char* key, const Value& value) {
  return field_size(std::strlen(key)) + field_size(value.encoded_size());
}

inline void write_attribute(Writer& out, unsigned field, const char* key, const Value& value) {
  out.head(field, attribute_size(key, value));
  out.bytes(1, key, std::strlen(key));
  out.head(2, value.encoded_size());
  value.encode(out);
}

}  // namespace internal

/// The attributes of a stream's resource: `service.name`, `device.model.identifier`, `os.name`, ... `Bytes` is all the room.
template <size_t Bytes>
class Attributes {
 public:
  /// Adds an attribute. False: the key is empty, or there is no room for it, and nothing was added.
  bool add(const char* key, const Value& value) {
    if (key == nullptr || *key == '\0') {
      return false;
    }
    internal::Writer out(bytes_ + size_, Bytes - size_);
    internal::write_attribute(out, 4, key, value);
    size_ += out.ok() ? out.size() : 0;
    return out.ok();
  }

  const uint8_t* data() const { return bytes_; }
  size_t size() const { return size_; }

 private:
  uint8_t bytes_[Bytes];
  size_t size_ = 0;
};

}  // namespace otel_bridge
