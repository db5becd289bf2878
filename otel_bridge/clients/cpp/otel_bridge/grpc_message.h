// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC message: a request on its way, in pieces as credit comes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "frame.h"

namespace otel_bridge {

namespace internal {

/// A message as gRPC frames it: its prefix, then the bytes of the caller.
struct GrpcMessage {
  static constexpr size_t kPrefix = 5;  // not compressed, and its length

  GrpcMessage(const char* bytes, size_t count) : data(bytes), size(kPrefix + count) {
    put_u32(prefix + 1, static_cast<uint32_t>(count));
  }
  size_t left() const { return size - sent; }

  uint8_t prefix[kPrefix] = {0};
  const char* data;
  size_t size;
  size_t sent = 0;
};

}  // namespace internal

}  // namespace otel_bridge
