// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Frame: of HTTP/2 (RFC 9113), its head and the numbers in it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace otel_bridge {

namespace internal {

/// Error codes of RFC 9113 section 7, as far as we say them.
enum class Http2Error : uint32_t {
  kNone = 0,
  kProtocol = 1,
  kFlowControl = 3,
  kFrameSize = 6,
  kRefusedStream = 7,
  kCancel = 8,
  kCompression = 9,
  kEnhanceYourCalm = 11,
};

inline void put_u32(uint8_t* out, uint32_t value) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

inline uint32_t get_u32(const uint8_t* in) {
  return static_cast<uint32_t>(in[0]) << 24 | static_cast<uint32_t>(in[1]) << 16 | static_cast<uint32_t>(in[2]) << 8 | in[3];
}

struct Frame {
  static constexpr size_t kHead = 9;
  static constexpr size_t kMaxPayload = 16384;  // the least that a peer must take, and the most that it may send us
  enum Type : uint8_t {
    kData,
    kHeaders,
    kPriority,
    kReset,
    kSettings,
    kPushPromise,
    kPing,
    kGoAway,
    kWindowUpdate,
    kContinuation,
  };
  enum Flag : uint8_t { kNone = 0, kAck = 1, kEndStream = 1, kEndHeaders = 4, kPadded = 8, kWithPriority = 32 };

  /// Write the head of a frame of `size` bytes.
  static void put_head(uint8_t* out, Type type, uint8_t flags, uint32_t stream, size_t size) {
    for (int i = 0; i < 3; ++i) out[i] = static_cast<uint8_t>(size >> (16 - 8 * i));
    out[3] = type;
    out[4] = flags;
    put_u32(out + 5, stream);
  }
};

}  // namespace internal

}  // namespace otel_bridge
