// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Drops: why an event did not reach the bridge, and how many did not.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace otel_bridge {

/// Each event that the runtime ended is sent once, or counted once under one of these.
enum class Drop : uint8_t {
  kRingFull,            ///< no room in the ring, for the event or for the beginning of its block
  kIdentifiersFull,     ///< the table of identifiers, or the room for their text, is used up
  kIdentifierTooLong,   ///< a name of more than 4,096 bytes, which the bridge would refuse
  kMetadataFull,        ///< no room in the metadata arena
  kMetadataTooLarge,    ///< metadata that neither the arena nor a request can ever hold
  kNoBlock,             ///< logged before `create_event_block`, or after the block was ended
  kMisuse,              ///< both or neither of name and identifier, or an entry that this tracer did not hand out for it
  kChainOutOfRange,     ///< a chain index above 255
  kTwoProducers,        ///< two threads at the same moment
  kBufferTooSmall,      ///< an event that fits into no request of the uploader's buffer
  kInstructionsFull,    ///< in an inference that goes in parts: more instructions than the table has room for
  kRejected,            ///< the receiver said that it will never take the request
};

constexpr size_t kDropReasons = 12;

/// The reason as the bridge shows it.
inline const char* name_of(Drop reason) {
  static constexpr const char* kNames[kDropReasons] = {
      "ring_full", "identifiers_full",   "identifier_too_long", "metadata_full",    "metadata_too_large", "no_block",
      "misuse",    "chain_out_of_range", "two_producers",       "buffer_too_small", "instructions_full",  "rejected"};
  return kNames[static_cast<size_t>(reason)];
}

namespace internal {

/// How many events the producer dropped, by reason; modulo 2^32.
class DropCounts {
 public:
  DropCounts() {
    for (std::atomic<uint32_t>& count : counts_) {
      count.store(0, std::memory_order_relaxed);
    }
  }

  /// By the producer alone.
  void add(Drop reason) {
    std::atomic<uint32_t>& count = counts_[static_cast<size_t>(reason)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// By any thread; of one reason either this or `add`.
  void add_by_any(Drop reason) { counts_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }

  uint32_t of(Drop reason) const { return counts_[static_cast<size_t>(reason)].load(std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> counts_[kDropReasons];
};

}  // namespace internal

}  // namespace otel_bridge
