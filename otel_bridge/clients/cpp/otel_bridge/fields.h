// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Fields: a protobuf message, read within its bounds, without allocation, in time linear in its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace otel_bridge {

namespace internal {

// The fields of a protobuf message, one after the other. Groups are not read: no message of ours has them.
class Fields {
 public:
  explicit Fields(std::string_view message)
      : at_(reinterpret_cast<const uint8_t*>(message.data())), end_(at_ + message.size()) {}

  // The next field; false at the end, and where the bytes are no message: then `whole()` is false.
  bool next() {
    if (at_ == end_) return false;
    uint64_t key = 0;
    if (!varint(&key) || key >> 3 == 0 || key >> 3 > 0x1fffffff) return broken();
    number_ = static_cast<uint32_t>(key >> 3);
    type_ = static_cast<uint32_t>(key & 7);
    value_ = 0;
    bytes_ = {};
    switch (type_) {
      case 0:
        return varint(&value_) || broken();
      case 1:
        return take(8);
      case 2:
        return varint(&value_) ? take(value_) : broken();
      case 5:
        return take(4);
      default:
        return broken();
    }
  }

  bool whole() const { return whole_; }
  bool is_number(uint32_t number) const { return number_ == number && type_ == 0; }
  bool is_bytes(uint32_t number) const { return number_ == number && type_ == 2; }
  uint64_t value() const { return value_; }
  std::string_view bytes() const { return bytes_; }

 private:
  bool varint(uint64_t* value) {
    uint64_t read = 0;
    for (unsigned shift = 0; shift < 70 && at_ != end_; shift += 7) {
      const uint8_t byte = *at_++;
      read |= shift < 64 ? static_cast<uint64_t>(byte & 0x7f) << shift : 0;
      if ((byte & 0x80) == 0) {
        *value = read;
        return true;
      }
    }
    return false;
  }

  bool take(uint64_t count) {
    if (count > static_cast<uint64_t>(end_ - at_)) return broken();
    bytes_ = std::string_view(reinterpret_cast<const char*>(at_), static_cast<size_t>(count));
    at_ += count;
    return true;
  }

  bool broken() {
    at_ = end_;
    whole_ = false;
    return false;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  uint64_t value_ = 0;
  std::string_view bytes_;
  uint32_t number_ = 0;
  uint32_t type_ = 0;
  bool whole_ = true;
};

}  // namespace internal

}  // namespace otel_bridge
