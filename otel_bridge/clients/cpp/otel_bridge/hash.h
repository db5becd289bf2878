// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Hash: of bytes, for the tables of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace otel_bridge {

namespace internal {

/// A hash of bytes, 8 at a time: identifiers are looked up by it once an event.
inline uint32_t hash_of(const void* data, size_t size) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15U;
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t hash = size * kFactor;
  uint64_t word = 0;
  for (; size >= 8; at += 8, size -= 8) {
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 32;
  }
  word = 0;
  for (size_t i = 0; i < size; ++i) {
    word |= static_cast<uint64_t>(at[i]) << (8 * i);
  }
  hash = (hash ^ word) * kFactor;
  return static_cast<uint32_t>(hash >> 32);
}

}  // namespace internal

}  // namespace otel_bridge
