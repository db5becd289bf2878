// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Header block: the header fields of one stream, gathered from their frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "header_reader.h"

namespace otel_bridge {

namespace internal {

class HeaderBlock {
 public:
  /// Stream whose block is under way; 0: none.
  uint32_t stream() const { return stream_; }
  bool ends_stream() const { return ends_stream_; }

  void clear() { begin(0, false); }

  void begin(uint32_t stream, bool ends_stream) {
    stream_ = stream;
    ends_stream_ = ends_stream;
    size_ = 0;
    frames_ = 0;
  }

  /// False: it becomes longer than was announced.
  bool add(const uint8_t* part, size_t size) {
    if (size > sizeof bytes_ - size_ || frames_++ > kMostContinuations) return false;
    if (size != 0) std::memcpy(bytes_ + size_, part, size);
    size_ += size;
    return true;
  }

  /// Nothing more comes; the stream that it was of.
  uint32_t end() {
    const uint32_t stream = stream_;
    stream_ = 0;
    return stream;
  }

  /// False: it cannot be decoded.
  bool read(HeaderSink& sink) { return reader_.read(bytes_, size_, sink); }

 private:
  static constexpr uint32_t kMostContinuations = 16;

  HeaderReader reader_;
  uint32_t stream_ = 0;
  uint32_t frames_ = 0;
  bool ends_stream_ = false;
  size_t size_ = 0;
  uint8_t bytes_[8192];
};

}  // namespace internal

}  // namespace otel_bridge
