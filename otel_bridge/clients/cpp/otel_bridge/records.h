// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Records: what a ring and its tables hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protobuf.h"

namespace otel_bridge {

namespace internal {

enum RecordKind : uint8_t { kBlockBegin = 0, kRuntime = 1, kCall = 2, kScope = 3, kDelegate = 4, kBlockEnd = 5, kSkipped = 6 };
enum BlockKind : uint8_t { kLoad = 1, kExecute = 2, kOther = 3 };

/// One entry of the ring: an event, the beginning of a block, or its end.
struct Record {
  uint64_t start;       // ticks; of a block: executions since load
  uint64_t duration;    // ticks, modulo 2^64; of a block: its position in the stream
  uint32_t identifier;  // index of an `Identifier`; of a block: 1 + that of its method, 0: none; of its end: the error code
  uint32_t metadata;    // 0: none; once the event is planned: 1 + index in the request
  int32_t instruction;  // -1: outside any
  uint8_t kind;         // `RecordKind`
  uint8_t chain;        // of a block: `BlockKind`
};
static_assert(sizeof(Record) == 32, "two records share a cache line");

struct Identifier {
  static constexpr uint32_t kNumber = 0xFFFFFFFFU;

  uint32_t hash;
  uint32_t at;      // offset of the text, or the number
  uint32_t length;  // of the text, or `kNumber`
  uint8_t is_call;  // a name that ExecuTorch gives to instructions
};

constexpr size_t kMaxMethodBytes = 128;
constexpr size_t kMaxBlockNameBytes = 64;  // what is longer is cut
constexpr uint32_t kBlockNameRoom = static_cast<uint32_t>(field_size(kMaxBlockNameBytes));  // beside a context

/// How often an instruction was completed, in an inference that goes in parts.
struct Completions {
  uint64_t key;      // 0: free
  uint32_t planned;  // including the request that is being encoded
  uint32_t sent;     // before it
};

}  // namespace internal

}  // namespace otel_bridge
