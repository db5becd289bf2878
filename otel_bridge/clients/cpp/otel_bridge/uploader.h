// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Uploader: drains, encodes, and sends until somebody has it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "drops.h"
#include "encoder.h"
#include "platform.h"
#include "stream_info.h"
#include "tracer.h"
#include "transport.h"

namespace otel_bridge {

struct UploaderOptions {
  uint32_t idle_ms = 1000;             ///< what `poll` returns when there is nothing to do
  uint32_t initial_backoff_ms = 500;   ///< doubled after each failure ...
  uint32_t max_backoff_ms = 30000;     ///< ... up to this; up to half of it is left out at random, lest a fleet return at once
  Platform platform = {};
};

/// Sends what a tracer has. One thread at a time, any thread: it never makes the producer wait.
class Uploader {
 public:
  /// What became of the events so far.
  struct Counts {
    uint64_t sent;      ///< events that a receiver has
    uint64_t requests;  ///< requests that a receiver has
    uint64_t attempts;  ///< calls of `Transport::send`
    uint64_t waiting;   ///< events of the request that is being sent
  };

  /// `buffer` holds one request; its size bounds the size of requests, and must be `least_buffer()` or more: 4 KB to 64 KB.
  Uploader(RingTracer& tracer, const StreamInfo& info, Transport& transport, void* buffer, size_t size,
           const UploaderOptions& options = {})
      : tracer_(tracer),
        transport_(transport),
        encoder_(tracer, info, options.platform),
        options_(options),
        buffer_(buffer),
        size_(size) {
    std::memcpy(&random_, info.stream_id, sizeof(random_));
    random_ ^= options_.platform.now_ms() | 1;
  }

  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  size_t least_buffer() const { return encoder_.least_buffer(); }

  /// Sends at most one request, unless it has to wait after a failure. Returns after how many milliseconds the next call is of
  /// use: 0 when there may be more to send. Takes blocks that have ended, and open ones when the ring is more than half full.
  uint32_t poll() {
    switch (step(tracer_.is_pressed(), false)) {
      case Outcome::kIdle:
        return options_.idle_ms;
      case Outcome::kWaiting:
        return wait_left_ms_;
      default:
        return 0;
    }
  }

  /// Ends the open block and sends what is in the ring, and the drops that nobody was told of. To be called when nothing runs
  /// any more; events that come meanwhile may stay. False: not all got through within `deadline_ms`.
  bool flush(uint32_t deadline_ms) {
    const uint64_t begin = now_ms();
    uint64_t slept_ms = 0;
    bool tell_drops = true;
    next_attempt_ms_ = 0;
    for (uint32_t requests = 0; requests <= encoder_.requests_at_most();) {
      tracer_.end_block();
      const uint64_t events = encoder_.events();
      const Outcome outcome = step(true, tell_drops);
      if (outcome == Outcome::kIdle) {
        return !encoder_.has_drops();
      }
      if (outcome == Outcome::kRefused && encoder_.events() == events) {
        tell_drops = false;  // a request without events was refused: another would be, too
      }
      const uint64_t passed = now_ms() - begin > slept_ms ? now_ms() - begin : slept_ms;  // the clock may stand still
      if (passed > deadline_ms || (passed == deadline_ms && outcome == Outcome::kWaiting)) {
        return false;
      }
      if (outcome == Outcome::kWaiting) {
        const uint64_t left_ms = deadline_ms - passed;
        const uint32_t nap_ms = wait_left_ms_ < left_ms ? wait_left_ms_ : static_cast<uint32_t>(left_ms);
        options_.platform.sleep_ms(nap_ms);
        slept_ms += nap_ms == 0 ? 1 : nap_ms;
      } else {
        ++requests;
      }
    }
    return false;
  }

  Counts counts() const { return counts_; }

  /// Events dropped so far, those included that no receiver was told of.
  uint64_t dropped(Drop reason) {
    encoder_.count_drops();
    return encoder_.dropped(reason);
  }

 private:
  enum class Outcome { kIdle, kSent, kRefused, kWaiting };

  static constexpr uint32_t kPatience = 100;  // calls for which the clock may stand still before it is taken for dead

  Outcome step(bool open_too, bool drops_alone) {
    if (pending_ == 0) {
      const uint64_t before = encoder_.events();
      pending_ = encoder_.encode(buffer_, size_, open_too, drops_alone);
      counts_.waiting = encoder_.events() - before;
      if (pending_ == 0) {
        return Outcome::kIdle;
      }
    }
    if (must_wait()) {
      return Outcome::kWaiting;
    }
    ++counts_.attempts;
    if (transport_.send(buffer_, pending_)) {
      encoder_.accept();
      counts_.sent += counts_.waiting;
      ++counts_.requests;
      return settle(Outcome::kSent);
    }
    if (!transport_.again()) {
      encoder_.refuse();
      return settle(Outcome::kRefused);
    }
    back_off();
    return Outcome::kWaiting;
  }

  Outcome settle(Outcome outcome) {
    pending_ = 0;
    counts_.waiting = 0;
    failures_ = 0;
    next_attempt_ms_ = 0;
    return outcome;
  }

  bool must_wait() {
    const uint64_t now = now_ms();
    still_ = now == last_ms_ ? still_ + 1 : 0;
    last_ms_ = now;
    if (now >= next_attempt_ms_ || still_ > kPatience) {
      still_ = 0;
      return false;
    }
    wait_left_ms_ = static_cast<uint32_t>(next_attempt_ms_ - now);
    return true;
  }

  void back_off() {
    uint64_t wait_ms = transport_.wait_ms();
    if (wait_ms == 0) {
      const uint64_t doubled = uint64_t{options_.initial_backoff_ms} << (failures_ < 16 ? failures_ : 16);
      const uint64_t most = doubled < options_.max_backoff_ms ? doubled : options_.max_backoff_ms;
      wait_ms = most - next_random() % (most / 2 + 1);
    }
    ++failures_;
    wait_left_ms_ = static_cast<uint32_t>(wait_ms);
    next_attempt_ms_ = now_ms() + wait_ms;
  }

  uint64_t next_random() {  // xorshift64: jitter needs no better
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

  uint64_t now_ms() const { return options_.platform.now_ms(); }

  RingTracer& tracer_;
  Transport& transport_;
  Encoder encoder_;
  const UploaderOptions options_;
  void* const buffer_;
  const size_t size_;
  size_t pending_ = 0;
  Counts counts_{};
  uint32_t failures_ = 0;
  uint32_t still_ = 0;
  uint32_t wait_left_ms_ = 0;
  uint64_t next_attempt_ms_ = 0;
  uint64_t last_ms_ = 0;
  uint64_t random_ = 0;
};

}  // namespace otel_bridge
