// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// File transport: requests into a file, which `otel-bridge send --events` reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "platform.h"
#include "protobuf.h"
#include "transport.h"

#if OTEL_BRIDGE_HOSTED && !defined(_WIN32)
#include <unistd.h>
#endif

namespace otel_bridge {

/// Appends requests to a file, each after its length as a varint (protobuf's delimited format). The file stays the caller's.
class FileTransport final : public Transport {
 public:
  explicit FileTransport(std::FILE* file) : file_(file) {}

  /// False on a full disk: what was written of the request is taken back.
  bool send(const void* data, size_t size) override {
    uint8_t prefix[10];
    internal::Writer out(prefix, sizeof(prefix));
    out.varint(size);
    const long begin = std::ftell(file_);
    const bool whole = std::fwrite(prefix, 1, out.size(), file_) == out.size() && std::fwrite(data, 1, size, file_) == size &&
                       std::fflush(file_) == 0;
    if (!whole) {
      take_back(begin);
    }
    return whole;
  }

 private:
  void take_back(long begin) {
    std::clearerr(file_);
    std::fseek(file_, begin, SEEK_SET);
#if OTEL_BRIDGE_HOSTED && !defined(_WIN32)
    // A file that is open for appending is written at its end, wherever one seeks.
    if (begin >= 0 && ::ftruncate(fileno(file_), begin) != 0) {
      std::clearerr(file_);
    }
#endif
  }

  std::FILE* file_;
};

}  // namespace otel_bridge
