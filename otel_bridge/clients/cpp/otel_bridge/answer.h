// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Answer: what a bridge says, read with care.
//
// Invariants
// * Foreign bytes are read within their bounds, without allocation, in time linear in their size.
// * What cannot be read is as if it were not there.
//
// Sources: proto/otel_bridge/v1/profiling.proto (ExportEventsResponse); google/rpc/status.proto and error_details.proto
// (Status, RetryInfo); RFC 4648 (base64).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "fields.h"

namespace otel_bridge {

namespace internal {

// Events of one request, by what became of them.
struct Counts {
  uint64_t accepted = 0;
  uint64_t rejected = 0;
  std::string_view first_rejection;  // points into the answer
};

// Reads an ExportEventsResponse; false if the bytes are none, and then `counts` is as it was.
inline bool read_counts(std::string_view message, Counts* counts) {
  Counts read;
  Fields field(message);
  while (field.next()) {
    if (field.is_number(1)) read.accepted = field.value();
    if (field.is_bytes(3)) read.first_rejection = field.bytes();
    if (!field.is_bytes(2)) continue;
    Fields rejection(field.bytes());
    uint64_t events = 0;
    while (rejection.next()) {
      if (rejection.is_number(2)) events = rejection.value();
    }
    if (!rejection.whole()) return false;
    read.rejected += events;
  }
  if (!field.whole()) return false;
  *counts = read;
  return true;
}

// What google.rpc.RetryInfo says.
struct RetryInfo {
  bool given = false;
  uint32_t wait_ms = 0;  // 0: a retry helps, and when is left to the sender
};

// The milliseconds of a google.protobuf.Duration, rounded up and at most those of a day; 0 if it is no time to wait.
inline uint32_t read_duration_ms(std::string_view message) {
  constexpr int64_t kDayS = 24 * 60 * 60;
  int64_t seconds = 0;
  int64_t nanos = 0;
  Fields field(message);
  while (field.next()) {
    if (field.is_number(1)) seconds = static_cast<int64_t>(field.value());
    if (field.is_number(2)) nanos = static_cast<int64_t>(field.value());
  }
  if (!field.whole() || seconds < 0 || nanos < 0 || nanos > 999999999) return 0;
  const int64_t whole_s = seconds < kDayS ? seconds : kDayS;
  const int64_t part_ms = seconds < kDayS ? (nanos + 999999) / 1000000 : 0;
  return static_cast<uint32_t>(whole_s * 1000 + part_ms);
}

inline bool ends_with(std::string_view text, std::string_view end) {
  if (text.size() < end.size()) return false;
  text.remove_prefix(text.size() - end.size());
  return text == end;
}

// What is heeded of a google.rpc.Status.
struct RpcStatus {
  std::string_view message;  // points into the answer
  RetryInfo retry_info;
};

// Reads one google.protobuf.Any; its RetryInfo, if it is one and can be read.
inline RetryInfo read_retry_info(std::string_view detail) {
  std::string_view type;
  std::string_view value;
  Fields any(detail);
  while (any.next()) {
    if (any.is_bytes(1)) type = any.bytes();
    if (any.is_bytes(2)) value = any.bytes();
  }
  if (!any.whole() || !ends_with(type, "/google.rpc.RetryInfo")) return {};
  RetryInfo found{true, 0};
  Fields info(value);
  while (info.next()) {
    if (info.is_bytes(1)) found.wait_ms = read_duration_ms(info.bytes());
  }
  return info.whole() ? found : RetryInfo();
}

// Reads a google.rpc.Status; false if the bytes are none. A detail that claims to be RetryInfo and is none is passed over.
inline bool read_rpc_status(std::string_view bytes, RpcStatus* status) {
  RpcStatus read;
  Fields field(bytes);
  while (field.next()) {
    if (field.is_bytes(2)) read.message = field.bytes();
    if (field.is_bytes(3) && !read.retry_info.given) read.retry_info = read_retry_info(field.bytes());
  }
  if (!field.whole()) return false;
  *status = read;
  return true;
}

// Decodes base64, padded or not, up to a comma (a second value of the same header); false if it is none or `room` does not do.
inline bool read_base64(std::string_view text, char* out, size_t room, size_t* size) {
  uint32_t bits = 0;
  unsigned held = 0;
  *size = 0;
  for (char c : text) {
    if (c == ',' || c == '=') break;
    uint32_t six = 0;
    if (c >= 'A' && c <= 'Z') {
      six = static_cast<uint32_t>(c - 'A');
    } else if (c >= 'a' && c <= 'z') {
      six = static_cast<uint32_t>(c - 'a' + 26);
    } else if (c >= '0' && c <= '9') {
      six = static_cast<uint32_t>(c - '0' + 52);
    } else if (c == '+' || c == '/') {
      six = c == '+' ? 62 : 63;
    } else {
      return false;
    }
    bits = bits << 6 | six;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    if (*size == room) return false;
    out[(*size)++] = static_cast<char>(bits >> held & 0xff);
  }
  return held != 6;
}

}  // namespace internal

}  // namespace otel_bridge
