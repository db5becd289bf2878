// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Arguments of the form NAME=VALUE.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>

/// The value, if the argument has that name; else null.
inline const char* value_of(const char* argument, const char* name) {
  const size_t size = std::strlen(name);
  return std::strncmp(argument, name, size) == 0 && argument[size] == '=' ? argument + size + 1 : nullptr;
}

inline uint32_t number_of(const char* text) { return static_cast<uint32_t>(std::strtoul(text, nullptr, 10)); }
