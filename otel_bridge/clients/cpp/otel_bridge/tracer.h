// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Tracer: the producer's side.
#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/platform/platform.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "attributes.h"
#include "context.h"
#include "drops.h"
#include "identifier_table.h"
#include "platform.h"
#include "records.h"
#include "recorder.h"
#include "ring_memory.h"
#include "turn.h"

namespace otel_bridge {

class Encoder;

/// An ExecuTorch `EventTracer` that puts events into a ring. Give it to a `Module` or `Method`; drain it with an `Uploader`.
///
/// Semantics are those of ExecuTorch's ETDumpGen (devtools/etdump/etdump_flatcc.cpp): an event is recorded when it ends, and a
/// delegate event under the instruction that runs at that moment. Where ETDumpGen aborts, this counts (`Drop`).
class RingTracer : public et::EventTracer {
 public:
  explicit RingTracer(const RingMemory& memory) : memory_(memory.map_), recorder_(memory_) {}

  RingTracer(const RingTracer&) = delete;
  RingTracer& operator=(const RingTracer&) = delete;

  // What an inference says of itself. By the executing thread, between inferences. Each returns false, and leaves the thing
  // unset, where it does not fit into the context or is not well formed.

  /// The method that runs from now on, until it is set anew; nullptr: unset, and the bridge finds it from the events.
  /// ExecuTorch does not tell a tracer. Set it where a program has several methods.
  bool set_method(const char* name) {
    const Turn turn(busy_);
    return turn.mine() && recorder_.set_method(name);
  }

  /// W3C `traceparent` and `tracestate` of the app's span: the next block becomes its child. Both hold until `end_block`.
  bool set_trace_context(const char* traceparent, const char* tracestate = nullptr) {
    const size_t length = traceparent == nullptr ? 0 : std::strlen(traceparent);
    const bool sound = length == 0 || (length >= 55 && length <= 255);
    const bool parent_set = set_field(internal::Context::kTraceparent, traceparent, sound ? length : 0);
    const size_t state_length = tracestate == nullptr || length == 0 ? 0 : std::strlen(tracestate);
    const bool state_sound = state_length <= 512;
    const bool state_set = set_field(internal::Context::kTracestate, tracestate, state_sound ? state_length : 0);
    return state_set && parent_set && sound && state_sound;
  }

  /// An attribute of the inferences that follow, until `end_block`: thermal state, threads, a bucket of the input's shape.
  bool set_attribute(const char* key, const Value& value) {
    const Turn turn(busy_);
    if (!turn.mine() || key == nullptr || *key == '\0') {
      return false;
    }
    return recorder_.context.add_attribute(key, value);
  }

  /// Ends the open block, so that it is sent now and not when the next one begins; does nothing where none is open.
  /// `error`: what the inference returned. Trace context and attributes are unset.
  void end_block(et::Error error = et::Error::Ok) {
    const Turn turn(busy_);
    if (turn.mine()) {
      recorder_.end_block(error);
    }
  }

  // ExecuTorch's side.

  void create_event_block(const char* name) override {
    const Turn turn(busy_);
    turn.mine() ? recorder_.begin_block(name) : recorder_.tear();
  }

  et::EventTracerEntry start_profiling(const char* name, et::ChainID chain_id = et::kUnsetChainId,
                                       et::DebugHandle debug_handle = et::kUnsetDebugHandle) override {
    et::EventTracerEntry entry{};
    entry.delegate_event_id_type = et::DelegateDebugIdType::kNone;
    entry.chain_id = chain_id == et::kUnsetChainId ? chain_id_ : chain_id;
    entry.debug_handle = chain_id == et::kUnsetChainId ? debug_handle_ : debug_handle;
    {
      const Turn turn(busy_);
      entry.event_id = name == nullptr ? Identifiers::failed(Drop::kMisuse)
                       : turn.mine()   ? recorder_.identifiers.intern(name)
                                       : Identifiers::failed(Drop::kTwoProducers);
    }
    entry.start_time = et::pal_current_ticks();
    return entry;
  }

  void end_profiling(et::EventTracerEntry entry) override {
    const uint64_t end = et::pal_current_ticks();
    const Turn turn(busy_);
    if (!turn.mine()) {
      return recorder_.drop_of_another();
    }
    if (entry.delegate_event_id_type != et::DelegateDebugIdType::kNone) {
      return recorder_.drop(Drop::kMisuse);
    }
    const uint32_t identifier = recorder_.identifiers.index_of(entry.event_id);
    if (identifier == Identifiers::kNone) {
      return recorder_.drop(Identifiers::reason_of(entry.event_id));
    }
    const bool outside = entry.chain_id == et::kUnsetChainId || static_cast<int32_t>(entry.debug_handle) < 0;
    const auto inside = recorder_.identifiers[identifier].is_call != 0 ? internal::kCall : internal::kScope;
    recorder_.push_event(outside ? internal::kRuntime : inside, identifier, entry.chain_id, entry.debug_handle,
                         entry.start_time, end, nullptr, 0);
  }

  et::EventTracerEntry start_profiling_delegate(const char* name, et::DelegateDebugIntId delegate_debug_index) override {
    et::EventTracerEntry entry{};
    entry.delegate_event_id_type = name == nullptr ? et::DelegateDebugIdType::kInt : et::DelegateDebugIdType::kStr;
    entry.chain_id = chain_id_;
    entry.debug_handle = debug_handle_;
    if ((name == nullptr) == (delegate_debug_index == et::kUnsetDelegateDebugIntId)) {
      entry.delegate_event_id_type = et::DelegateDebugIdType::kNone;
      entry.event_id = Identifiers::failed(Drop::kMisuse);
    } else if (name == nullptr) {
      entry.event_id = delegate_debug_index;
    } else {
      const Turn turn(busy_);
      entry.event_id = turn.mine() ? recorder_.identifiers.intern(name) : Identifiers::failed(Drop::kTwoProducers);
    }
    entry.start_time = et::pal_current_ticks();
    return entry;
  }

  void end_profiling_delegate(et::EventTracerEntry entry, const void* metadata = nullptr, size_t metadata_len = 0) override {
    const uint64_t end = et::pal_current_ticks();
    const Turn turn(busy_);
    if (!turn.mine()) {
      return recorder_.drop_of_another();
    }
    int64_t handle = entry.event_id;
    if (entry.delegate_event_id_type == et::DelegateDebugIdType::kInt) {
      const auto number = static_cast<int32_t>(handle);
      handle = handle == number ? recorder_.identifiers.intern(number) : Identifiers::failed(Drop::kMisuse);
    } else if (entry.delegate_event_id_type == et::DelegateDebugIdType::kNone && handle >= 0) {
      handle = Identifiers::failed(Drop::kMisuse);
    }
    push_delegate(handle, entry.start_time, end, metadata, metadata_len);
  }

  void log_profiling_delegate(const char* name, et::DelegateDebugIntId delegate_debug_index, et_timestamp_t start_time,
                              et_timestamp_t end_time, const void* metadata = nullptr, size_t metadata_len = 0) override {
    const Turn turn(busy_);
    if (!turn.mine()) {
      return recorder_.drop_of_another();
    }
    int64_t handle = Identifiers::failed(Drop::kMisuse);
    if ((name == nullptr) != (delegate_debug_index == et::kUnsetDelegateDebugIntId)) {
      handle = name == nullptr ? recorder_.identifiers.intern(delegate_debug_index) : recorder_.identifiers.intern(name);
    }
    push_delegate(handle, start_time, end_time, metadata, metadata_len);
  }

  /// Allocations and values give no spans: they are not recorded.
  void track_allocation(et::AllocatorID, size_t) override {}
  et::AllocatorID track_allocator(const char*) override { return 0; }
  et::Result<bool> log_evalue(const et::EValue&, et::LoggedEValueType) override { return false; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId,
                                                    const ::executorch::aten::Tensor&) override {
    return false;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId,
                                                    const et::ArrayRef<::executorch::aten::Tensor>) override {
    return false;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const int&) override { return false; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const bool&) override { return false; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const double&) override {
    return false;
  }
  void set_delegation_intermediate_output_filter(et::EventTracerFilterBase*) override {}

  // For any thread.

  /// Events dropped so far by the tracer itself, modulo 2^32.
  uint32_t dropped(Drop reason) const { return recorder_.drops.of(reason); }

  /// Whether ring or arena are more than half full.
  bool is_pressed() const { return recorder_.ring.is_pressed(); }

 private:
  friend class Encoder;

  using Turn = internal::Turn;
  using Identifiers = internal::IdentifierTable;

  bool set_field(unsigned field, const char* text, size_t length) {
    const Turn turn(busy_);
    if (!turn.mine() || recorder_.context.capacity() == 0) {
      return length == 0 && turn.mine();
    }
    return recorder_.context.set(field, text, length);
  }

  void push_delegate(int64_t handle, uint64_t start, uint64_t end, const void* metadata, size_t metadata_len) {
    const uint32_t identifier = recorder_.identifiers.index_of(handle);
    if (identifier == Identifiers::kNone) {
      return recorder_.drop(Identifiers::reason_of(handle));
    }
    recorder_.push_event(internal::kDelegate, identifier, chain_id_, debug_handle_, start, end, metadata, metadata_len);
  }

  const internal::MemoryMap memory_;
  std::atomic<bool> busy_{false};
  internal::Recorder recorder_;  // last: at its end is what the consumer writes
};

}  // namespace otel_bridge
