// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Context: what an inference says of itself, trace context and attributes, as fields of a Block message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attributes.h"
#include "protobuf.h"
#include "ring_memory.h"

namespace otel_bridge {

namespace internal {

/// The fields of the next block. By the producer alone.
class Context {
 public:
  enum : unsigned { kTraceparent = 6, kTracestate = 7, kAttribute = 9 };

  explicit Context(const MemoryMap& memory) : bytes_(memory.context), capacity_(memory.context_bytes) {}

  size_t capacity() const { return capacity_; }

  /// Sets a field, or unsets it where the length is 0. False: there is no room for it, and it is unset.
  bool set(unsigned field, const char* text, size_t length) {
    erase(field);
    if (length == 0) {
      return true;
    }
    Writer out(bytes_ + size_, capacity_ - size_);
    out.bytes(field, text, length);
    return keep(out);
  }

  bool add_attribute(const char* key, const Value& value) {
    Writer out(bytes_ + size_, capacity_ - size_);
    write_attribute(out, kAttribute, key, value);
    return keep(out);
  }

  void clear() { size_ = 0; }

  /// Calls `visit(data, size)` for each field of a block. A load has a trace context, but no attributes of an inference.
  template <class Visit>
  void fields(bool executes, Visit visit) const {
    const uint8_t* const end = bytes_ + size_;
    for (const uint8_t* at = bytes_; at != end;) {
      const Field field = field_at(at);
      if (executes || field.tag != tag(kAttribute, kBytes)) {
        visit(at, static_cast<uint32_t>(field.end - at));
      }
      at = field.end;
    }
  }

 private:
  bool keep(const Writer& out) {
    size_ += out.ok() ? static_cast<uint32_t>(out.size()) : 0;
    return out.ok();
  }

  void erase(unsigned field) {
    uint8_t* kept = bytes_;
    const uint8_t* const end = bytes_ + size_;
    for (const uint8_t* at = bytes_; at != end;) {
      const Field found = field_at(at);
      const auto size = static_cast<size_t>(found.end - found.begin);
      if (found.tag != tag(field, kBytes)) {
        std::memmove(kept, found.begin, size);
        kept += size;
      }
      at += size;
    }
    size_ = static_cast<uint32_t>(kept - bytes_);
  }

  uint8_t* const bytes_;
  const uint32_t capacity_;
  uint32_t size_ = 0;
};

}  // namespace internal

}  // namespace otel_bridge
