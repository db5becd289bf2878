// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Protobuf: as much of its wire format as the requests need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace otel_bridge {

namespace internal {

constexpr size_t varint_size(uint64_t value) {
  size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

constexpr uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ (value < 0 ? ~uint64_t{0} : uint64_t{0});
}

/// Size of a field of bytes: tag (one byte), length, content.
constexpr size_t field_size(size_t length) {
  return 1 + varint_size(length) + length;
}

enum : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2 };

constexpr uint8_t tag(unsigned field, uint8_t type) {
  return static_cast<uint8_t>(field << 3 | type);
}

/// Writes into a buffer and never past it: what does not fit leaves `ok()` false, for good.
class Writer {
 public:
  Writer(void* buffer, size_t capacity) : begin_(static_cast<uint8_t*>(buffer)), at_(begin_), end_(begin_ + capacity) {}

  bool ok() const { return ok_; }
  size_t size() const { return static_cast<size_t>(at_ - begin_); }

  void byte(uint8_t value) {
    if (room(1)) {
      *at_++ = value;
    }
  }

  void varint(uint64_t value) {
    if (value < 0x80) {
      byte(static_cast<uint8_t>(value));
    } else if (room(varint_size(value))) {
      for (; value >= 0x80; value >>= 7) {
        *at_++ = static_cast<uint8_t>(value | 0x80);
      }
      *at_++ = static_cast<uint8_t>(value);
    }
  }

  void raw(const void* data, size_t size) {
    if (size != 0 && room(size)) {
      std::memcpy(at_, data, size);
      at_ += size;
    }
  }

  void number(unsigned field, uint64_t value) {
    byte(tag(field, kVarint));
    varint(value);
  }

  void number_if(unsigned field, uint64_t value) {
    if (value != 0) {
      number(field, value);
    }
  }

  void head(unsigned field, size_t length) {
    byte(tag(field, kBytes));
    varint(length);
  }

  void bytes(unsigned field, const void* data, size_t size) {
    head(field, size);
    raw(data, size);
  }

  void text_if(unsigned field, const char* text) {
    if (text != nullptr && *text != '\0') {
      bytes(field, text, std::strlen(text));
    }
  }

 private:
  bool room(size_t size) {
    ok_ = ok_ && size <= static_cast<size_t>(end_ - at_);
    return ok_;
  }

  uint8_t* begin_;
  uint8_t* at_;
  uint8_t* end_;
  bool ok_ = true;
};

/// A field of bytes in a buffer that holds nothing but such fields, with tags of one byte.
struct Field {
  uint8_t tag;
  const uint8_t* begin;    // of the tag
  const uint8_t* content;
  const uint8_t* end;      // of the content
};

inline Field field_at(const uint8_t* at) {
  Field field{*at, at, at + 1, nullptr};
  size_t length = 0;
  for (unsigned shift = 0;; shift += 7) {
    const uint8_t byte = *field.content++;
    length |= static_cast<size_t>(byte & 0x7F) << shift;
    if (byte < 0x80) {
      break;
    }
  }
  field.end = field.content + length;
  return field;
}

}  // namespace internal

}  // namespace otel_bridge
