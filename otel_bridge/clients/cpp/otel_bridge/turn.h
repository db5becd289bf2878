// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Turn: the right to produce, which one thread at a time has.
#pragma once

#include <atomic>

// 1: a second producer at the same moment is noticed. 0 where the processor cannot exchange a byte in one step (Cortex-M0).
#ifndef OTEL_BRIDGE_NOTICE_TWO_PRODUCERS
#if ATOMIC_BOOL_LOCK_FREE == 2
#define OTEL_BRIDGE_NOTICE_TWO_PRODUCERS 1
#else
#define OTEL_BRIDGE_NOTICE_TWO_PRODUCERS 0
#endif
#endif

namespace otel_bridge {

namespace internal {

/// The right to produce, for one call; only one at a time has it, and nobody waits for it.
class Turn {
 public:
#if OTEL_BRIDGE_NOTICE_TWO_PRODUCERS
  explicit Turn(std::atomic<bool>& busy) : busy_(busy), mine_(!busy.exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (mine_) {
      busy_.store(false, std::memory_order_release);
    }
  }
#else
  explicit Turn(std::atomic<bool>& busy) : busy_(busy), mine_(true) {}
#endif
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool mine() const { return mine_; }

 private:
  [[maybe_unused]] std::atomic<bool>& busy_;
  const bool mine_;
};

}  // namespace internal

}  // namespace otel_bridge
