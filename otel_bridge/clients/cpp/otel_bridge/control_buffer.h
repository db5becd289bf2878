// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Control buffer: what a connection has to say beside its calls, until it is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "frame.h"

namespace otel_bridge {

namespace internal {

/// Of fixed size. Whoever puts a frame into it has asked for room before.
class ControlBuffer {
 public:
  const uint8_t* data() const { return bytes_; }
  size_t size() const { return size_; }

  /// Begins anew, with what a client says first: the preface and its SETTINGS.
  void greet() {
    static constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // Table size 0 (see header_reader.h), no pushes, and a bound for header lists, which servers heed.
    static constexpr uint8_t kOurSettings[] = {0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 6, 0, 0, 0x20, 0};
    size_ = 0;
    put(kPreface, sizeof kPreface - 1);
    put_frame(Frame::kSettings, 0, 0, kOurSettings, sizeof kOurSettings);
  }

  /// Whether all fits that one frame of the peer makes us say.
  bool has_room() const { return sizeof bytes_ - size_ >= kMost; }

  void put_frame(Frame::Type type, uint8_t flags, uint32_t stream, const void* payload, size_t size) {
    Frame::put_head(bytes_ + size_, type, flags, stream, size);
    size_ += Frame::kHead;
    put(payload, size);
  }

  void put_u32_frame(Frame::Type type, uint32_t stream, uint32_t value) {
    uint8_t payload[4];
    put_u32(payload, value);
    put_frame(type, 0, stream, payload, sizeof payload);
  }

  void sent(size_t count) {
    size_ -= count;
    std::memmove(bytes_, bytes_ + count, size_);
  }

 private:
  static constexpr size_t kMost = 40;  // the most that one frame makes us say: two of 13 bytes, or GOAWAY

  void put(const void* bytes, size_t size) {
    if (size != 0) std::memcpy(bytes_ + size_, bytes, size);
    size_ += size;
  }

  uint8_t bytes_[512];
  size_t size_ = 0;
};

}  // namespace internal

}  // namespace otel_bridge
