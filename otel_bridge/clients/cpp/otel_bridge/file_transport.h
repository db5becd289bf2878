// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// File transport: requests into a file, which `otel-bridge send --events` reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "protobuf.h"
#include "transport.h"

namespace otel_bridge {

/// Appends requests to a file, each after its length as a varint (protobuf's delimited format). The file stays the caller's.
class FileTransport final : public Transport {
 public:
  explicit FileTransport(std::FILE* file) : file_(file) {}

  /// False on a full disk: what was written of the request is overwritten by the next attempt.
  bool send(const void* data, size_t size) override {
    uint8_t prefix[10];
    internal::Writer out(prefix, sizeof(prefix));
    out.varint(size);
    const long begin = std::ftell(file_);
    const bool whole = std::fwrite(prefix, 1, out.size(), file_) == out.size() && std::fwrite(data, 1, size, file_) == size &&
                       std::fflush(file_) == 0;
    if (!whole) {
      std::clearerr(file_);
      std::fseek(file_, begin, SEEK_SET);
    }
    return whole;
  }

 private:
  std::FILE* file_;
};

}  // namespace otel_bridge
