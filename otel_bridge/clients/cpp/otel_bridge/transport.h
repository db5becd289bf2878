// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Transport: where encoded requests go. gRPC is in otel_bridge_grpc.h, HTTPS in otel_bridge_curl.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace otel_bridge {

/// Carries one encoded `ExportEventsRequest` to a receiver. Called by one thread: the one that polls the `Uploader`.
class Transport {
 public:
  /// True: the receiver has it. May block, but not for ever: the next attempt waits for its return.
  virtual bool send(const void* data, size_t size) = 0;
  /// After false: whether the same bytes may be sent again. False: they never will be taken, and count as rejected.
  virtual bool again() const { return true; }
  /// After false: what the receiver asked to wait, milliseconds; 0: it said nothing.
  virtual uint32_t wait_ms() const { return 0; }

 protected:
  ~Transport() = default;
};

}  // namespace otel_bridge
