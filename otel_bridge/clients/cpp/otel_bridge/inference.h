// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Inference: what an application says of one, as a scope.
#pragma once

#include <executorch/runtime/core/error.h>

#include "tracer.h"

namespace otel_bridge {

/// One inference, as a scope: sets what it says of itself, and ends its block, with an error or without.
class Inference {
 public:
  explicit Inference(RingTracer& tracer, const char* method = nullptr, const char* traceparent = nullptr,
                     const char* tracestate = nullptr)
      : tracer_(tracer) {
    if (method != nullptr) {
      tracer_.set_method(method);
    }
    if (traceparent != nullptr) {
      tracer_.set_trace_context(traceparent, tracestate);
    }
  }
  ~Inference() {
    if (!ended_) {
      tracer_.end_block();
    }
  }
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  /// Ends it before the scope does. `error`: what the execution returned.
  void end(et::Error error = et::Error::Ok) {
    ended_ = true;
    tracer_.end_block(error);
  }

 private:
  RingTracer& tracer_;
  bool ended_ = false;
};

}  // namespace otel_bridge
