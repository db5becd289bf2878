// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Drop ledger: which drops there were, and which of them a receiver has been told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "drops.h"

namespace otel_bridge {

namespace internal {

/// By the consumer alone.
class DropLedger {
 public:
  /// Drops of the consumer itself.
  void add(Drop reason, uint32_t events = 1) { totals_[static_cast<size_t>(reason)] += events; }

  /// Adds what the producer has dropped since the last call.
  void add(const DropCounts& counts) {
    for (size_t i = 0; i < kDropReasons; ++i) {
      const uint32_t now = counts.of(static_cast<Drop>(i));
      totals_[i] += now - seen_[i];
      seen_[i] = now;
    }
  }

  uint64_t total(Drop reason) const { return totals_[static_cast<size_t>(reason)]; }

  /// Whether there are drops that no receiver has been told.
  bool has_news() const { return std::memcmp(reported_, totals_, sizeof(reported_)) != 0; }

  /// The next request reports what is known now.
  void note() { std::memcpy(noted_, totals_, sizeof(noted_)); }

  bool has_noted() const { return std::memcmp(reported_, noted_, sizeof(noted_)) != 0; }

  /// Drops that the next request reports.
  uint64_t noted(Drop reason) const {
    const auto at = static_cast<size_t>(reason);
    return noted_[at] - reported_[at];
  }

  /// A receiver has the request.
  void accept() { std::memcpy(reported_, noted_, sizeof(reported_)); }

 private:
  uint32_t seen_[kDropReasons] = {};      // of the tracer's counters
  uint64_t totals_[kDropReasons] = {};    // all drops
  uint64_t noted_[kDropReasons] = {};     // those that the last request reports
  uint64_t reported_[kDropReasons] = {};  // those that a receiver has been told
};

}  // namespace internal

}  // namespace otel_bridge
