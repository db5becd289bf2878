// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// HTTP/2 call: one call as its connection sees it, and who takes its answer.
#pragma once

#include <cstdint>
#include <string_view>

#include "header_reader.h"

namespace otel_bridge {

namespace internal {

/// Takes what arrives for the call.
class Http2Answer : public HeaderSink {
 public:
  virtual void data(std::string_view bytes) = 0;

 protected:
  ~Http2Answer() = default;
};

/// The call, as the connection sees it.
struct Http2Call {
  uint32_t stream = 0;
  int64_t window = 0;         ///< bytes of DATA that the peer lets us send on it; may be negative
  bool answered = false;      ///< something of the answer has arrived
  bool ended = true;          ///< nothing more will arrive
  bool reset = false;         ///< ended by RST_STREAM, with `reset_code`
  bool not_processed = false; ///< ended, and the peer vouches that it has done nothing with it
  uint32_t reset_code = 0;
};

}  // namespace internal

}  // namespace otel_bridge
