// A clock that the test moves, put under ExecuTorch's own libraries.
#pragma once

#include <executorch/runtime/platform/platform.h>

namespace wheel_pal {

inline et_timestamp_t ticks = 0;

inline et_timestamp_t read() {
  return ++ticks;
}

inline bool install() {
  using executorch::runtime::PalImpl;
  return executorch::runtime::register_pal(
      PalImpl::create(nullptr, nullptr, read, nullptr, nullptr, nullptr, nullptr, __FILE__));
}

}  // namespace wheel_pal
