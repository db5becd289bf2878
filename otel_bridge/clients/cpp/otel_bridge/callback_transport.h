// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Callback transport: requests to a function of the application.
#pragma once

#include <cstddef>

#include "transport.h"

namespace otel_bridge {

/// Hands requests to a function of the app, which returns true once it has them: the platform's HTTP stack, a message queue.
class CallbackTransport final : public Transport {
 public:
  using Callback = bool (*)(void* self, const void* data, size_t size);

  explicit CallbackTransport(Callback callback, void* self = nullptr) : callback_(callback), self_(self) {}

  bool send(const void* data, size_t size) override { return callback_(self_, data, size); }

 private:
  Callback callback_;
  void* self_;
};

}  // namespace otel_bridge
