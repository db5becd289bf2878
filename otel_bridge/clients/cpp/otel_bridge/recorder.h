// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Recorder: the producer's state, from which blocks and events go into the ring.
#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/event_tracer.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "context.h"
#include "drops.h"
#include "identifier_table.h"
#include "platform.h"
#include "protobuf.h"
#include "records.h"
#include "ring.h"
#include "ring_memory.h"
#include "turn.h"

namespace otel_bridge {

namespace internal {

/// Called by whoever has the turn to produce, but for `drop_of_another` and `tear`.
class Recorder {
 public:
  explicit Recorder(const MemoryMap& memory) : context(memory), identifiers(memory), ring(memory) {}

  bool set_method(const char* name) {
    method_ = 0;
    if (name == nullptr || *name == '\0') {
      return true;
    }
    const int64_t handle =
        std::strlen(name) > kMaxMethodBytes ? IdentifierTable::failed(Drop::kIdentifierTooLong) : identifiers.intern(name);
    method_ = handle > 0 ? static_cast<uint32_t>(handle) : 0;
    return method_ != 0;
  }

  /// A block could not begin: what follows does not belong to the block before.
  void tear() { torn_.store(true, std::memory_order_relaxed); }

  void begin_block(const char* name) {
    torn_.store(false, std::memory_order_relaxed);
    Record record{};
    record.kind = kBlockBegin;
    record.chain = kOther;
    if (name != nullptr && std::strcmp(name, "Execute") == 0) {
      record.chain = kExecute;
      record.start = executions_++;
      record.identifier = method_;
    } else if (name != nullptr && std::strcmp(name, "Default") == 0) {
      record.chain = kLoad;
    }
    record.duration = position_++;
    lost_reason_ = Drop::kRingFull;
    lost_ = ring.room_for_records() < Ring::kBlockRecords || !keep_context(record, name);
    if (lost_) {
      return close_block(et::Error::Ok);  // the block before, which a beginning would have ended
    }
    ring.push(record);
    open_ = true;
  }

  void end_block(et::Error error) {
    close_block(error);
    lost_ = false;
    context.clear();
  }

  void drop(Drop reason) { reason == Drop::kTwoProducers ? drop_of_another() : drops.add(reason); }

  void drop_of_another() {
#if OTEL_BRIDGE_NOTICE_TWO_PRODUCERS
    drops.add_by_any(Drop::kTwoProducers);
#endif
  }

  void push_event(RecordKind kind, uint32_t identifier, et::ChainID chain, et::DebugHandle handle, uint64_t start, uint64_t end,
                  const void* metadata, size_t metadata_len) {
    if (torn_.load(std::memory_order_relaxed)) {
      return drop_of_another();
    }
    if (!open_) {
      return drops.add(lost_ ? lost_reason_ : Drop::kNoBlock);
    }
    if (chain < et::kUnsetChainId || chain > kMaxChain) {
      return drops.add(Drop::kChainOutOfRange);
    }
    if (metadata_len != 0 && metadata == nullptr) {
      return drops.add(Drop::kMisuse);
    }
    // When the ring is full, inferences lose their details first: what spans the whole of one may take of the reserve.
    if (ring.room_for_records() <= (kind == kRuntime ? 1 : ring.reserve())) {
      return drops.add(Drop::kRingFull);
    }
    if (metadata_len != 0 && !keep_metadata(metadata, metadata_len)) {
      return;
    }
    const bool outside = chain == et::kUnsetChainId || static_cast<int32_t>(handle) < 0;
    Record record;
    record.start = start;
    record.duration = end - start;
    record.identifier = identifier;
    record.metadata = metadata_len != 0 ? 1 : 0;
    record.instruction = outside ? -1 : static_cast<int32_t>(handle);
    record.kind = kind;
    record.chain = outside ? 0 : static_cast<uint8_t>(chain);
    ring.push(record);
  }

 private:
  static constexpr int32_t kMaxChain = 255;

  /// There is room: a block begins where there are three records, and its events leave one.
  void close_block(et::Error error) {
    if (open_) {
      Record record{};
      record.kind = kBlockEnd;
      record.identifier = static_cast<uint32_t>(error);
      ring.push(record);
    }
    open_ = false;
  }

  bool keep_metadata(const void* data, size_t size) {
    // So that the next block finds room for its context.
    const size_t reserve = Ring::kLengthBytes + context.capacity() + kBlockNameRoom;
    if (size > ring.arena_bytes() || size + Ring::kLengthBytes + reserve > ring.arena_bytes()) {
      drops.add(Drop::kMetadataTooLarge);
      return false;
    }
    if (size + Ring::kLengthBytes + reserve > ring.room_in_arena()) {
      drops.add(Drop::kMetadataFull);
      return false;
    }
    const uint32_t head = ring.open_entry(static_cast<uint32_t>(size));
    ring.close_entry(ring.put(head, data, static_cast<uint32_t>(size)));
    return true;
  }

  /// What the block says beside its numbers, as fields of a Block message. False: the arena has no room for it.
  bool keep_context(Record& record, const char* name) {
    const bool named = record.chain == kOther;
    const bool executes = record.chain == kExecute;
    const char* const shown = name == nullptr || *name == '\0' ? "unnamed" : name;
    size_t name_length = std::strlen(shown);
    name_length = name_length < kMaxBlockNameBytes ? name_length : kMaxBlockNameBytes;
    size_t size = named ? field_size(name_length) : 0;
    context.fields(executes, [&](const uint8_t*, uint32_t length) { size += length; });
    if (size == 0) {
      return true;
    }
    if (size + Ring::kLengthBytes > ring.room_in_arena()) {
      lost_reason_ = Drop::kMetadataFull;
      return false;
    }
    uint32_t head = ring.open_entry(static_cast<uint32_t>(size));
    if (named) {
      uint8_t prefix[2];
      Writer out(prefix, sizeof(prefix));
      out.head(2, name_length);
      head = ring.put(head, prefix, static_cast<uint32_t>(out.size()));
      head = ring.put(head, shown, static_cast<uint32_t>(name_length));
    }
    context.fields(executes, [&](const uint8_t* data, uint32_t length) { head = ring.put(head, data, length); });
    ring.close_entry(head);
    record.metadata = 1;
    return true;
  }

  std::atomic<bool> torn_{false};
  bool open_ = false;
  bool lost_ = false;  // no room for the block's beginning: its events go with it
  Drop lost_reason_ = Drop::kRingFull;
  uint32_t method_ = 0;  // 1 + the index of an identifier; 0: none
  uint64_t position_ = 0;
  uint64_t executions_ = 0;

 public:
  DropCounts drops;
  Context context;
  IdentifierTable identifiers;
  Ring ring;  // last: at its end is what the consumer writes
};

}  // namespace internal

}  // namespace otel_bridge
