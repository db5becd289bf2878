// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Stream writer: what each request says of its stream, its clock and its drops.
#pragma once

#include <executorch/runtime/platform/platform.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#include "drop_ledger.h"
#include "drops.h"
#include "platform.h"
#include "protobuf.h"
#include "stream_info.h"

namespace otel_bridge {

namespace internal {

class StreamWriter {
 public:
  StreamWriter(const StreamInfo& info, const Platform& platform) : info_(info), platform_(platform) {}

  size_t size_at_most() const {
    size_t size = 8 + field_size(16) + 11 + info_.resource_size + 64;
    for (const char* text : {info_.model_name, info_.model_version, info_.build_id, info_.runtime_version}) {
      size += text == nullptr ? 0 : 4 + field_size(std::strlen(text));
    }
    for (size_t i = 0; i < kDropReasons; ++i) {
      size += 2 + field_size(std::strlen(name_of(static_cast<Drop>(i)))) + 11;
    }
    return size;
  }

  void write(Writer& out, uint64_t sequence, const DropLedger& ledger) const {
    uint8_t clock_bytes[64];
    Writer clock(clock_bytes, sizeof(clock_bytes));
    write_clock(clock);
    const size_t model = text_size(info_.model_name) + text_size(info_.model_version) + text_size(info_.build_id);
    const bool has_id = has_stream_id();
    size_t size = (has_id ? field_size(16) : 0) + (sequence == 0 ? 0 : 1 + varint_size(sequence)) +
                  (model == 0 ? 0 : field_size(model)) + info_.resource_size + text_size(info_.runtime_version) +
                  field_size(clock.size());
    for (size_t i = 0; i < kDropReasons; ++i) {
      const auto reason = static_cast<Drop>(i);
      size += ledger.noted(reason) == 0 ? 0 : field_size(drop_size(reason, ledger.noted(reason)));
    }
    out.head(1, size);
    if (has_id) {
      out.bytes(1, info_.stream_id, 16);
    }
    out.number_if(2, sequence);
    if (model != 0) {
      out.head(3, model);
      out.text_if(1, info_.model_name);
      out.text_if(2, info_.model_version);
      out.text_if(3, info_.build_id);
    }
    out.raw(info_.resource, info_.resource_size);
    out.text_if(5, info_.runtime_version);
    out.bytes(6, clock_bytes, clock.size());
    for (size_t i = 0; i < kDropReasons; ++i) {
      const auto reason = static_cast<Drop>(i);
      if (ledger.noted(reason) != 0) {
        out.head(7, drop_size(reason, ledger.noted(reason)));
        out.text_if(1, name_of(reason));
        out.number(2, ledger.noted(reason));
      }
    }
  }

 private:
  static size_t text_size(const char* text) { return text == nullptr || *text == '\0' ? 0 : field_size(std::strlen(text)); }

  static size_t drop_size(Drop reason, uint64_t events) { return text_size(name_of(reason)) + 1 + varint_size(events); }

  bool has_stream_id() const {
    uint8_t any = 0;
    for (const uint8_t byte : info_.stream_id) {
      any = static_cast<uint8_t>(any | byte);
    }
    return any != 0;
  }

  /// Clock 0, with the two readings of this moment: the wall clock lies between two readings of the ticks.
  void write_clock(Writer& out) const {
    const auto ratio = et::pal_ticks_to_ns_multiplier();
    const bool given = info_.tick_numerator != 0 && info_.tick_denominator != 0;
    const uint64_t numerator = given ? info_.tick_numerator : ratio.numerator;
    const uint64_t denominator = given ? info_.tick_denominator : ratio.denominator;
    out.number_if(1, numerator == 1 ? 0 : numerator);
    out.number_if(2, denominator == 1 ? 0 : denominator);
    out.number_if(3, info_.counter_bits);
    const uint64_t before = et::pal_current_ticks();
    const uint64_t unix_ns = platform_.unix_ns == nullptr ? 0 : platform_.unix_ns();
    const uint64_t after = et::pal_current_ticks();
    if (unix_ns != 0) {
      out.number_if(4, after >= before ? before + (after - before) / 2 : after);
      out.number(5, unix_ns);
    }
  }

  const StreamInfo info_;
  const Platform platform_;
};

}  // namespace internal

}  // namespace otel_bridge
