// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Credit: bytes of DATA that were taken from a peer since it was last let send more.
#pragma once

#include <cstddef>
#include <cstdint>

namespace otel_bridge {

namespace internal {

/// Of a connection, or of one call. It is given back in halves of a window.
class Credit {
 public:
  static constexpr int64_t kDefaultWindow = 65535;  // RFC 9113, section 6.9.2

  /// Adds bytes; how much is to be given back now, 0: nothing yet.
  uint32_t take(size_t bytes) {
    taken_ += static_cast<int64_t>(bytes);
    if (taken_ < kDefaultWindow / 2) return 0;
    const auto returned = static_cast<uint32_t>(taken_);
    taken_ = 0;
    return returned;
  }

 private:
  int64_t taken_ = 0;
};

}  // namespace internal

}  // namespace otel_bridge
