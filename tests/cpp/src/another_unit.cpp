// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// A second translation unit of a program that uses the client.
#include "otel_bridge.h"

size_t reasons_with_a_name();

size_t reasons_with_a_name() {
  size_t named = 0;
  for (size_t i = 0; i < otel_bridge::kDropReasons; ++i) {
    named += otel_bridge::name_of(static_cast<otel_bridge::Drop>(i)) != nullptr ? 1 : 0;
  }
  return named;
}
