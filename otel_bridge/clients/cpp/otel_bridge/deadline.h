// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Deadline: a moment until which a call may take.
#pragma once

#include <chrono>
#include <cstdint>

namespace otel_bridge {

namespace internal {

/// A moment of the steady clock.
class Deadline {
 public:
  explicit Deadline(uint32_t from_now_ms) : at_(Clock::now() + std::chrono::milliseconds(from_now_ms)) {}

  /// Milliseconds until then, rounded up; 0: it is past.
  uint32_t left_ms() const {
    const auto left = std::chrono::duration_cast<std::chrono::microseconds>(at_ - Clock::now()).count();
    return left <= 0 ? 0 : static_cast<uint32_t>((left + 999) / 1000);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point at_;
};

}  // namespace internal

}  // namespace otel_bridge
