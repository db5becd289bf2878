// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Ring: records on their way from the producer to the consumer, and beside them the arena of their metadata.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "records.h"
#include "ring_memory.h"

namespace otel_bridge {

namespace internal {

/// One thread produces, one consumes, and neither waits. Positions count on without end, modulo 2^32. What lies in the arena
/// is shown to the consumer by the record that comes after it.
class Ring {
 public:
  static constexpr uint32_t kBlockRecords = 3;  // of a block: its beginning, `Method::execute`, its end
  static constexpr uint32_t kLengthBytes = 4;   // before each entry of the arena

  explicit Ring(const MemoryMap& memory)
      : records_(memory.records),
        arena_(memory.metadata),
        record_count_(memory.record_count),
        arena_bytes_(memory.metadata_bytes),
        reserve_(memory.record_count / 16 < kBlockRecords + 1 ? kBlockRecords + 1 : memory.record_count / 16) {}

  // By the producer.

  /// Records for blocks and events of the runtime alone.
  uint32_t reserve() const { return reserve_; }

  uint32_t arena_bytes() const { return arena_bytes_; }

  void push(const Record& record) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    records_[head & (record_count_ - 1)] = record;
    head_.store(head + 1, std::memory_order_release);
  }

  uint32_t room_for_records() {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    if (record_count_ - (head - known_tail_) <= reserve_) {
      known_tail_ = tail_.load(std::memory_order_acquire);
    }
    return record_count_ - (head - known_tail_);
  }

  uint32_t room_in_arena() const {
    return arena_bytes_ - (arena_head_.load(std::memory_order_relaxed) - arena_tail_.load(std::memory_order_acquire));
  }

  uint32_t open_entry(uint32_t size) { return put(arena_head_.load(std::memory_order_relaxed), &size, kLengthBytes); }

  void close_entry(uint32_t head) { arena_head_.store(head, std::memory_order_relaxed); }

  uint32_t put(uint32_t at, const void* data, uint32_t size) {
    const uint32_t offset = at & (arena_bytes_ - 1);
    const uint32_t first = size < arena_bytes_ - offset ? size : arena_bytes_ - offset;
    std::memcpy(arena_ + offset, data, first);
    std::memcpy(arena_, static_cast<const uint8_t*>(data) + first, size - first);
    return at + size;
  }

  // By the consumer.

  uint32_t record_count() const { return record_count_; }
  uint32_t begin() const { return tail_.load(std::memory_order_relaxed); }
  uint32_t end() const { return head_.load(std::memory_order_acquire); }
  uint32_t arena_begin() const { return arena_tail_.load(std::memory_order_relaxed); }

  Record& operator[](uint32_t at) { return records_[at & (record_count_ - 1)]; }

  uint32_t entry_size(uint32_t arena) const {
    uint8_t bytes[kLengthBytes];
    uint32_t size = 0;
    copy(bytes, arena, sizeof(bytes));
    std::memcpy(&size, bytes, sizeof(size));
    return size;
  }

  uint32_t after_entry(uint32_t arena) const { return arena + kLengthBytes + entry_size(arena); }

  /// Calls `visit(data, size)` for the one or two stretches of the arena that hold `size` bytes from `at` on.
  template <class Visit>
  void stretches(uint32_t at, uint32_t size, Visit visit) const {
    const uint32_t offset = at & (arena_bytes_ - 1);
    const uint32_t first = size < arena_bytes_ - offset ? size : arena_bytes_ - offset;
    visit(arena_ + offset, first);
    if (first != size) {
      visit(static_cast<const uint8_t*>(arena_), size - first);
    }
  }

  void copy(uint8_t* into, uint32_t at, uint32_t size) const {
    stretches(at, size, [&](const uint8_t* data, uint32_t length) {
      std::memcpy(into, data, length);
      into += length;
    });
  }

  /// Gives back what lies before these positions.
  void release(uint32_t end, uint32_t arena) {
    arena_tail_.store(arena, std::memory_order_release);
    tail_.store(end, std::memory_order_release);
  }

  // By any thread.

  /// Whether ring or arena are more than half full.
  bool is_pressed() const {
    const uint32_t records = head_.load(std::memory_order_acquire) - tail_.load(std::memory_order_relaxed);
    const uint32_t bytes = arena_head_.load(std::memory_order_relaxed) - arena_tail_.load(std::memory_order_relaxed);
    return records > record_count_ / 2 || bytes > arena_bytes_ / 2;
  }

 private:
  Record* const records_;
  uint8_t* const arena_;
  const uint32_t record_count_;
  const uint32_t arena_bytes_;
  const uint32_t reserve_;

  // Written by the producer.
  std::atomic<uint32_t> head_{0};
  std::atomic<uint32_t> arena_head_{0};
  uint32_t known_tail_ = 0;

  // Written by the consumer; apart, so that neither side takes the other's cache line.
  [[maybe_unused]] unsigned char apart_[64];
  std::atomic<uint32_t> tail_{0};
  std::atomic<uint32_t> arena_tail_{0};
};

}  // namespace internal

}  // namespace otel_bridge
