// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Platform: what ExecuTorch's own platform layer has not.
#pragma once

#include <executorch/runtime/platform/platform.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

// 1 where the system has clocks, sleep and a source of random bytes; 0 on bare metal, where `Platform` is filled in by hand.
#ifndef OTEL_BRIDGE_HOSTED
#if defined(__unix__) || defined(__APPLE__) || defined(_WIN32)
#define OTEL_BRIDGE_HOSTED 1
#else
#define OTEL_BRIDGE_HOSTED 0
#endif
#endif

#if OTEL_BRIDGE_HOSTED
#include <chrono>
#include <thread>
#endif

namespace otel_bridge {

namespace et = ::executorch::runtime;

/// Functions of the system. The defaults are those of a hosted C++ library; on bare metal each may be replaced, or left.
struct Platform {
  /// Wall clock, nanoseconds since 1970; 0: there is none, and the bridge places events by the time of receipt.
  uint64_t (*unix_ns)() = &default_unix_ns;
  /// A clock that never goes back, milliseconds. Without a host: ExecuTorch's ticks.
  uint64_t (*now_ms)() = &default_now_ms;
  /// Lets time pass. Without a host it returns at once, and `flush` counts its calls instead of time.
  void (*sleep_ms)(uint32_t) = &default_sleep_ms;

  static uint64_t default_unix_ns() {
#if OTEL_BRIDGE_HOSTED
    using std::chrono::nanoseconds;
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(since_epoch).count());
#else
    return 0;
#endif
  }

  static uint64_t default_now_ms() {
#if OTEL_BRIDGE_HOSTED
    using std::chrono::milliseconds;
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(since_start).count());
#else
    const auto ratio = et::pal_ticks_to_ns_multiplier();
    const uint64_t ticks_a_ms = ratio.numerator == 0 ? 1 : ratio.denominator * 1000000U / ratio.numerator;
    return et::pal_current_ticks() / (ticks_a_ms == 0 ? 1 : ticks_a_ms);
#endif
  }

  static void default_sleep_ms(uint32_t ms) {
#if OTEL_BRIDGE_HOSTED
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
#else
    (void)ms;
#endif
  }
};

/// Draws the 16 bytes of a stream id from the system. False, and unchanged bytes, where it has no source of them (bare metal).
inline bool draw_stream_id(uint8_t id[16]) {
#if OTEL_BRIDGE_HOSTED && !defined(_WIN32)
  std::FILE* source = std::fopen("/dev/urandom", "rb");
  if (source == nullptr) {
    return false;
  }
  uint8_t drawn[16];
  const bool whole = std::fread(drawn, 1, sizeof(drawn), source) == sizeof(drawn);
  std::fclose(source);
  if (whole) {
    std::memcpy(id, drawn, sizeof(drawn));
  }
  return whole;
#else
  (void)id;
  return false;
#endif
}

}  // namespace otel_bridge
