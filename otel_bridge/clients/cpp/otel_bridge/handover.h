// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Handover: what one encoder of a tracer leaves to the next.
#pragma once

#include <cstdint>

#include "drop_ledger.h"
#include "plan.h"

namespace otel_bridge {

namespace internal {

/// Lies with the tracer: an uploader that was destroyed may have left an inference half sent, and the next goes on with it. By
/// the consumer alone.
struct Handover {
  DropLedger ledger;
  Part part{};
  uint64_t sequence = 0;        // of the next request
  uint32_t rows_in_flight = 0;  // of the last request, while nobody is known to have it
};

}  // namespace internal

}  // namespace otel_bridge
