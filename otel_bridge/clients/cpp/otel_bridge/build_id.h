// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Build id: which mapping belongs to the program that was loaded.
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

namespace otel_bridge {

namespace internal {

template <class Program, class = void>
struct HasNamedData : std::false_type {};

template <class Program>
struct HasNamedData<Program, std::void_t<decltype(std::declval<const Program&>().get_named_data_map())>> : std::true_type {};

}  // namespace internal

/// Copies the build id that `otel_bridge.aot` wrote into a program, with a 0 at its end, and returns its length. 0, and an
/// empty text: the program has none, it does not fit, or this ExecuTorch gives no named data (before 1.4).
/// `program`: `executorch::runtime::Program`, e.g. `*module.program()` once it is loaded.
template <class Program>
size_t read_build_id(const Program& program, char* into, size_t capacity) {
  if (capacity == 0) {
    return 0;
  }
  *into = '\0';
  if constexpr (internal::HasNamedData<Program>::value) {
    const auto map = program.get_named_data_map();
    if (!map.ok() || map.get() == nullptr) {
      return 0;
    }
    auto data = map.get()->get_data("otel_bridge.build_id");
    if (!data.ok()) {
      return 0;
    }
    const size_t size = data->size();
    const bool fits = size < capacity && data->data() != nullptr;
    if (fits) {
      std::memcpy(into, data->data(), size);
      into[size] = '\0';
    }
    data->Free();
    return fits ? size : 0;
  } else {
    (void)program;
    return 0;
  }
}

}  // namespace otel_bridge
