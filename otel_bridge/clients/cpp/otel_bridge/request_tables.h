// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Request tables: what the consumer remembers while it plans a request, each of fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hash.h"
#include "records.h"
#include "ring.h"
#include "ring_memory.h"

namespace otel_bridge {

namespace internal {

/// The identifiers of a request, and the index of each there. How many they are is the plan's to say.
class ChosenIdentifiers {
 public:
  explicit ChosenIdentifiers(const MemoryMap& memory)
      : list_(memory.chosen), index_(memory.chosen + memory.identifier_count) {
    for (uint32_t i = 0; i < 2 * memory.identifier_count; ++i) {
      list_[i] = 0;
    }
  }

  uint32_t operator[](uint32_t index) const { return list_[index]; }

  /// Index of an identifier among the `count` of the request; `count`: it is not there yet.
  uint32_t index_of(uint32_t identifier, uint32_t count) const {
    const uint32_t index = index_[identifier];
    return index < count && list_[index] == identifier ? index : count;
  }

  void put(uint32_t identifier, uint32_t index) {
    list_[index] = identifier;
    index_[identifier] = index;
  }

 private:
  uint32_t* const list_;
  uint32_t* const index_;
};

/// Where metadata of a request was last seen, by hash: equal metadata is sent once.
class SeenMetadata {
 public:
  struct Entry {
    uint32_t generation, hash, at, index;
  };

  explicit SeenMetadata(const Ring& ring) : ring_(ring) {}

  /// Nothing has been seen.
  void forget() { ++generation_; }

  /// The place for this metadata; `has` says whether it is in the request already.
  Entry* look_up(uint32_t at, uint32_t size) {
    const uint32_t hash = hash_entry(at, size);
    Entry* entry = &entries_[hash % kCache];
    const bool same = has(*entry) && entry->hash == hash && ring_.entry_size(entry->at - Ring::kLengthBytes) == size &&
                      equal_entries(entry->at, at, size);
    if (!same) {
      *entry = {0, hash, at, 0};
    }
    return entry;
  }

  bool has(const Entry& entry) const { return entry.generation == generation_; }

  void put(Entry& entry, uint32_t at, uint32_t index) const { entry = {generation_, entry.hash, at, index}; }

 private:
  static constexpr uint32_t kCache = 32;

  /// A hash of the first and the last bytes: what is equal is compared anyway.
  uint32_t hash_entry(uint32_t at, uint32_t size) const {
    constexpr uint32_t kEnd = 16;
    uint8_t bytes[2 * kEnd];
    const uint32_t first = size < kEnd ? size : kEnd;
    ring_.copy(bytes, at, first);
    ring_.copy(bytes + first, at + size - first, first);
    return hash_of(bytes, size_t{first} * 2) ^ size;
  }

  bool equal_entries(uint32_t a, uint32_t b, uint32_t size) const {
    bool equal = true;
    ring_.stretches(a, size, [&](const uint8_t* left, uint32_t length) {
      ring_.stretches(b, length, [&](const uint8_t* right, uint32_t part) {
        equal = equal && std::memcmp(left, right, part) == 0;
        left += part;
      });
      b += length;
    });
    return equal;
  }

  const Ring& ring_;
  uint32_t generation_ = 0;
  Entry entries_[kCache] = {};
};

/// How often each instruction was completed, in an inference that goes in parts.
class CompletionTable {
 public:
  explicit CompletionTable(const MemoryMap& memory) : completions_(memory.completions), count_(memory.completion_count) {}

  /// Another inference begins.
  void clear() {
    for (uint32_t i = 0; i < count_; ++i) {
      completions_[i] = {};
    }
  }

  /// The request that was planned does not go.
  void undo() {
    for (uint32_t i = 0; i < count_; ++i) {
      completions_[i].planned = completions_[i].sent;
    }
  }

  /// That of a record's instruction; nullptr: the table is full.
  Completions* of(const Record& row) {
    const uint64_t key = (static_cast<uint64_t>(row.chain) << 32 | static_cast<uint32_t>(row.instruction)) + 1;
    const uint32_t mask = count_ - 1;
    const auto begin = static_cast<uint32_t>(key * 0x9E3779B97F4A7C15U >> 40);
    for (uint32_t step = 0; step < count_; ++step) {
      Completions* completions = &completions_[(begin + step) & mask];
      if (completions->key == key || completions->key == 0) {
        completions->key = key;
        return completions;
      }
    }
    return nullptr;
  }

 private:
  Completions* const completions_;
  const uint32_t count_;
};

}  // namespace internal

}  // namespace otel_bridge
