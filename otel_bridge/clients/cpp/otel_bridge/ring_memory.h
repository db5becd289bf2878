// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Ring memory: all that a tracer and its encoder use, in one stretch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "records.h"

namespace otel_bridge {

class RingTracer;

namespace internal {

constexpr uint32_t power_of_two_below(uint32_t value) {
  while ((value & (value - 1)) != 0) {
    value &= value - 1;
  }
  return value;
}

/// Where each part of a ring's memory lies, and how much it holds.
struct MemoryMap {
  Record* records = nullptr;
  Completions* completions = nullptr;
  Identifier* identifiers = nullptr;
  uint32_t* slots = nullptr;   // by hash: 1 + the index of an identifier
  uint32_t* chosen = nullptr;  // the identifiers of a request, and for each identifier its index there
  uint8_t* metadata = nullptr;
  uint8_t* context = nullptr;  // of the next block; and a copy of that of the inference which goes in parts
  char* text = nullptr;
  uint32_t record_count = 0;
  uint32_t completion_count = 0;
  uint32_t identifier_count = 0;
  uint32_t metadata_bytes = 0;
  uint32_t context_bytes = 0;
  uint32_t text_bytes = 0;
};

}  // namespace internal

/// How much a tracer can hold. Counts are rounded down to powers of two.
struct RingSizes {
  uint32_t events = 4096;           ///< 32 bytes each; a block takes two beside its events, and a sixteenth is kept for blocks
  uint32_t identifiers = 512;       ///< distinct names and delegate debug identifiers; 32 bytes each
  uint32_t text_bytes = 16384;      ///< text of all identifiers
  uint32_t metadata_bytes = 16384;  ///< metadata and contexts that are not encoded yet, each with 4 bytes before it; more than
                                    ///< `context_bytes` by what the largest metadata has, and 100
  uint32_t context_bytes = 1024;    ///< trace context and attributes of an inference; twice
  uint32_t instructions = 512;      ///< of an inference that has to go in parts; 16 bytes each
};

/// Where a tracer and its encoder keep what they need: one stretch of memory that the caller gives, divided.
class RingMemory {
 public:
  RingMemory() = default;

  /// Divides `memory`; with less than `bytes_for(sizes)` nothing is kept in it, and a tracer drops every event.
  RingMemory(void* memory, size_t bytes, const RingSizes& sizes) {
    if (memory == nullptr || bytes < bytes_for(sizes)) {
      return;
    }
    auto* at = static_cast<unsigned char*>(memory);
    at += (kAlignment - reinterpret_cast<uintptr_t>(at) % kAlignment) % kAlignment;
    map_.record_count = internal::power_of_two_below(sizes.events);
    map_.completion_count = internal::power_of_two_below(sizes.instructions);
    map_.identifier_count = internal::power_of_two_below(sizes.identifiers);
    map_.metadata_bytes = internal::power_of_two_below(sizes.metadata_bytes);
    map_.context_bytes = sizes.context_bytes;
    map_.text_bytes = sizes.text_bytes;
    map_.records = take<internal::Record>(at, map_.record_count);
    map_.completions = take<internal::Completions>(at, map_.completion_count);
    map_.identifiers = take<internal::Identifier>(at, map_.identifier_count);
    map_.slots = take<uint32_t>(at, size_t{map_.identifier_count} * 2);
    map_.chosen = take<uint32_t>(at, size_t{map_.identifier_count} * 2);
    map_.metadata = take<uint8_t>(at, map_.metadata_bytes);
    map_.context = take<uint8_t>(at, size_t{map_.context_bytes} * 2 + internal::kBlockNameRoom);
    map_.text = take<char>(at, map_.text_bytes);
  }

  static constexpr size_t bytes_for(const RingSizes& sizes) {
    return kAlignment + size_t{sizes.events} * sizeof(internal::Record) +
           size_t{sizes.instructions} * sizeof(internal::Completions) +
           size_t{sizes.identifiers} * (sizeof(internal::Identifier) + 4 * sizeof(uint32_t)) + sizes.metadata_bytes +
           size_t{sizes.context_bytes} * 2 + internal::kBlockNameRoom + sizes.text_bytes;
  }

 private:
  friend class RingTracer;

  static constexpr size_t kAlignment = 8;

  template <class Item>
  static Item* take(unsigned char*& at, size_t count) {
    auto* const items = reinterpret_cast<Item*>(at);
    at += count * sizeof(Item);
    return items;
  }

  internal::MemoryMap map_;
};

}  // namespace otel_bridge
