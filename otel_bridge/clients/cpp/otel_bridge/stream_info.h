// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Stream info: who and what this process is.
#pragma once

#include <cstddef>
#include <cstdint>

namespace otel_bridge {

/// Who and what this process is: one run of one process with one model. Strings must live as long as the encoder does.
struct StreamInfo {
  uint8_t stream_id[16] = {};             ///< random, once a run (`draw_stream_id`); all zero: the bridge derives one a request
  const char* model_name = nullptr;       ///< with `model_version` an alias of the mapping
  const char* model_version = nullptr;
  const char* build_id = nullptr;         ///< names the build itself and wins; at most 128 bytes (`read_build_id`)
  const char* runtime_version = nullptr;  ///< of ExecuTorch, e.g. "1.5.1"
  const uint8_t* resource = nullptr;      ///< `data()` of `Attributes`
  size_t resource_size = 0;               ///< `size()` of the same
  uint64_t tick_numerator = 0;            ///< nanoseconds a tick; both 0: what ExecuTorch's platform layer says
  uint64_t tick_denominator = 0;
  uint32_t counter_bits = 0;              ///< width of the tick counter; 0: 64
};

}  // namespace otel_bridge
