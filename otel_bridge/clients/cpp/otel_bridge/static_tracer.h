// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Static tracer: a tracer that brings its memory along.
#pragma once

#include <cstddef>

#include "ring_memory.h"
#include "tracer.h"

namespace otel_bridge {

struct DefaultSizes {
  static constexpr RingSizes kSizes = {};
};

namespace internal {

template <size_t Bytes>
struct Storage {
  unsigned char bytes[Bytes];
};

}  // namespace internal

/// A `RingTracer` with its memory: by default some 200 KB, too large for most stacks. `Sizes` has a `static constexpr RingSizes
/// kSizes`.
template <class Sizes = DefaultSizes>
class StaticRingTracer : private internal::Storage<RingMemory::bytes_for(Sizes::kSizes)>, public RingTracer {
 public:
  StaticRingTracer() : RingTracer(RingMemory(this->bytes, sizeof(this->bytes), Sizes::kSizes)) {}
};

}  // namespace otel_bridge
