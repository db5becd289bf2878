// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Identifier table: names and delegate debug identifiers, each kept once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "drops.h"
#include "hash.h"
#include "records.h"
#include "ring_memory.h"

namespace otel_bridge {

namespace internal {

/// The producer adds to it; the consumer reads those that a record in the ring names.
///
/// A handle is 1 + the index of an identifier, or below 0 for the reason why there is none: so it fits into an entry's
/// `event_id`, and an entry that nobody filled in has none.
class IdentifierTable {
 public:
  static constexpr uint32_t kNone = 0xFFFFFFFFU;

  explicit IdentifierTable(const MemoryMap& memory)
      : identifiers_(memory.identifiers),
        slots_(memory.slots),
        text_(memory.text),
        count_(memory.identifier_count),
        text_bytes_(memory.text_bytes) {
    for (uint32_t i = 0; i < 2 * count_; ++i) {
      slots_[i] = 0;
    }
  }

  static int64_t failed(Drop reason) { return -1 - static_cast<int64_t>(reason); }

  static Drop reason_of(int64_t handle) {
    return handle < 0 && handle >= -static_cast<int64_t>(kDropReasons) ? static_cast<Drop>(-1 - handle) : Drop::kMisuse;
  }

  uint32_t index_of(int64_t handle) const {
    return handle > 0 && handle <= static_cast<int64_t>(known_) ? static_cast<uint32_t>(handle - 1) : kNone;
  }

  int64_t intern(const char* name) {
    const size_t length = std::strlen(name);
    if (length == 0) {
      return failed(Drop::kMisuse);
    }
    if (length > kMaxNameBytes) {
      return failed(Drop::kIdentifierTooLong);
    }
    return intern(hash_of(name, length), static_cast<uint32_t>(length), name, 0);
  }

  int64_t intern(int32_t number) {
    const auto bits = static_cast<uint32_t>(number);
    return intern(bits * 0x9E3779B1U, Identifier::kNumber, nullptr, bits);
  }

  const Identifier& operator[](uint32_t index) const { return identifiers_[index]; }

  const char* text_of(const Identifier& identifier) const { return text_ + identifier.at; }

 private:
  static constexpr size_t kMaxNameBytes = 4096;  // what the bridge takes (otel_bridge/wire/columns.py)

  int64_t intern(uint32_t hash, uint32_t length, const char* name, uint32_t number) {
    if (count_ == 0) {
      return failed(Drop::kIdentifiersFull);
    }
    const uint32_t mask = 2 * count_ - 1;
    uint32_t slot = (hash ^ hash >> 15) & mask;
    for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
      const uint32_t index = slots_[slot] - 1;
      const Identifier& known = identifiers_[index];
      if (known.hash == hash && known.length == length &&
          (name == nullptr ? known.at == number : std::memcmp(text_ + known.at, name, length) == 0)) {
        return int64_t{index} + 1;
      }
    }
    const uint32_t text = name == nullptr ? 0 : length;
    if (known_ == count_ || text > text_bytes_ - text_used_) {
      return failed(Drop::kIdentifiersFull);
    }
    if (name != nullptr) {
      std::memcpy(text_ + text_used_, name, length);
    }
    identifiers_[known_] = {hash, name == nullptr ? number : text_used_, length, static_cast<uint8_t>(is_call(name))};
    text_used_ += text;
    slots_[slot] = ++known_;
    return known_;
  }

  /// runtime/executor/method.cpp, `Method::execute_instruction`.
  static bool is_call(const char* name) {
    if (name == nullptr) {
      return false;
    }
    for (const char* call : {"OPERATOR_CALL", "DELEGATE_CALL", "JF_CALL", "MOVE_CALL", "FREE_CALL"}) {
      if (std::strcmp(name, call) == 0) {
        return true;
      }
    }
    return false;
  }

  Identifier* const identifiers_;
  uint32_t* const slots_;
  char* const text_;
  const uint32_t count_;
  const uint32_t text_bytes_;
  uint32_t known_ = 0;
  uint32_t text_used_ = 0;
};

}  // namespace internal

}  // namespace otel_bridge
