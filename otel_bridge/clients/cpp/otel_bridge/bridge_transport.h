// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Bridge transport: what the transports to a bridge have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "answer.h"
#include "line.h"
#include "transport.h"

namespace otel_bridge {

/// A transport that a bridge answers. Used by one thread, as `Transport` says.
class BridgeTransport : public Transport {
 public:
  bool again() const final { return again_; }
  uint32_t wait_ms() const final { return wait_ms_; }

  /// Events that the bridge took, and that it rejected although it took their request; over all requests that were sent.
  uint64_t accepted() const { return accepted_; }
  uint64_t rejected() const { return rejected_; }

  /// What came of the last `send`, one line for people; empty: all went well. Lasts until the next `send`.
  const char* message() const { return message_.c_str(); }

 protected:
  ~BridgeTransport() = default;

  void begin() {
    again_ = true;
    wait_ms_ = 0;
    message_.clear();
  }

  // `response`: an ExportEventsResponse; null: it came in no form that is read.
  bool taken(const std::string_view* response) {
    internal::Counts counts;
    if (response == nullptr || !internal::read_counts(*response, &counts)) {
      message_ << "the bridge took the request; its answer cannot be read";
      return true;
    }
    accepted_ += counts.accepted;
    rejected_ += counts.rejected;
    if (counts.rejected != 0) message_ << counts.rejected << " rejected, the first: ";
    if (counts.rejected != 0) message_.quote(counts.first_rejection);
    return true;
  }

  bool not_taken(bool again, uint32_t wait_ms) {
    again_ = again;
    wait_ms_ = again ? wait_ms : 0;
    return false;
  }

  internal::Line message_;

 private:
  uint64_t accepted_ = 0;
  uint64_t rejected_ = 0;
  uint32_t wait_ms_ = 0;
  bool again_ = true;
};

}  // namespace otel_bridge
