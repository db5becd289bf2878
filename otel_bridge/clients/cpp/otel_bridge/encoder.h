// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Encoder: the consumer's side of a tracer, from ring to `otel_bridge.v1.ExportEventsRequest`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drop_ledger.h"
#include "drops.h"
#include "plan.h"
#include "planner.h"
#include "platform.h"
#include "protobuf.h"
#include "recorder.h"
#include "request_writer.h"
#include "ring.h"
#include "stream_info.h"
#include "stream_writer.h"
#include "tracer.h"

namespace otel_bridge {

/// Takes events out of a tracer's ring and encodes them. One thread at a time.
///
/// Blocks go whole. One that fits into no request alone, or that is still open while the ring runs full, goes in parts: in
/// consecutive requests, each event with its occurrence (docs/protocol.md, "Parts").
class Encoder {
 public:
  Encoder(RingTracer& tracer, const StreamInfo& info, const Platform& platform = {})
      : recorder_(tracer.recorder_),
        ring_(tracer.recorder_.ring),
        context_bytes_(tracer.memory_.context_bytes),
        stream_(info, platform),
        planner_(tracer.memory_, ring_, recorder_.identifiers, ledger_),
        request_(ring_, recorder_.identifiers, planner_) {}

  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// The smallest buffer that `encode` can use, bytes: what each request says of its stream, a context, and an event.
  size_t least_buffer() const {
    return stream_.size_at_most() + kFrameBytes + context_bytes_ + internal::kBlockNameRoom + internal::Planner::kBlockBytes +
           kLeastRowBytes;
  }

  /// Writes one request; its size in bytes, 0: there is nothing to send. What it took from the ring is gone from there.
  /// `open_too`: take also events of a block that has not ended. `drops_alone`: a request that only reports drops will do.
  size_t encode(void* buffer, size_t capacity, bool open_too = false, bool drops_alone = false) {
    const uint32_t limit = ring_.end();
    internal::Writer out(buffer, capacity);
    if (capacity < least_buffer()) {
      drop_all(limit);
      return 0;
    }
    count_drops();
    ledger_.note();
    planner_.make_plan(limit, capacity - stream_.size_at_most() - kFrameBytes, open_too);
    const internal::Plan& plan = planner_.plan;
    const bool empty = plan.rows == 0 && plan.blocks == 0;
    if (empty && !(drops_alone && ledger_.has_noted())) {
      ring_.release(plan.end, plan.arena);
      return 0;
    }
    stream_.write(out, sequence_, ledger_);
    request_.write(out);
    rows_in_flight_ = plan.rows;
    events_ += plan.rows;
    ++sequence_;
    ring_.release(plan.end, plan.arena);
    return out.size();
  }

  /// The receiver has the last request: its drops are reported.
  void accept() {
    ledger_.accept();
    rows_in_flight_ = 0;
  }

  /// The receiver will never take the last request: its events are dropped.
  void refuse() { ledger_.add(Drop::kRejected, rows_in_flight_); }

  /// Events encoded so far.
  uint64_t events() const { return events_; }

  /// More requests than the ring can give at once.
  uint32_t requests_at_most() const { return ring_.record_count() + 2; }

  /// Dropped so far, by tracer and encoder, as far as `encode` has seen it.
  uint64_t dropped(Drop reason) const { return ledger_.total(reason); }

  /// Brings `dropped` up to date.
  void count_drops() { ledger_.add(recorder_.drops); }

  /// Whether there are drops that no receiver has been told.
  bool has_drops() {
    count_drops();
    return ledger_.has_news();
  }

 private:
  static constexpr size_t kLeastRowBytes = 256;  // an event of a name of 200 bytes
  static constexpr size_t kFrameBytes = 8 + 9 * 8;

  /// With a buffer that holds no request nothing can be sent, and the ring must not clog.
  void drop_all(uint32_t limit) {
    uint32_t at = ring_.begin();
    uint32_t arena = ring_.arena_begin();
    for (; at != limit; ++at) {
      ledger_.add(Drop::kBufferTooSmall, internal::is_event(ring_[at]) ? 1 : 0);
      arena = internal::has_entry(ring_[at]) ? ring_.after_entry(arena) : arena;
    }
    ring_.release(at, arena);
  }

  internal::Recorder& recorder_;
  internal::Ring& ring_;
  const uint32_t context_bytes_;
  internal::DropLedger ledger_;
  const internal::StreamWriter stream_;
  internal::Planner planner_;
  internal::RequestWriter request_;
  uint32_t rows_in_flight_ = 0;
  uint64_t sequence_ = 0;
  uint64_t events_ = 0;
};

}  // namespace otel_bridge
