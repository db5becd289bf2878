// The part of ExecuTorch's platform layer that the header calls, without the library: a clock that the test moves.
#pragma once

#include <executorch/runtime/platform/platform.h>

#include <atomic>

namespace pal {

inline std::atomic<et_timestamp_t> ticks{0};
inline et_timestamp_t step = 1;  // by which each reading moves the clock

}  // namespace pal

namespace executorch::runtime {

et_timestamp_t pal_current_ticks() {
  return pal::ticks += pal::step;
}

et_tick_ratio_t pal_ticks_to_ns_multiplier() {
  return {1, 1};
}

}  // namespace executorch::runtime
