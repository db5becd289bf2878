// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC status: its codes, and which of them a retry helps.
//
// Source: OTLP specification, "Failures".
#pragma once

#include <cstddef>
#include <cstdint>

namespace otel_bridge {

/// Status codes of gRPC.
enum class GrpcStatus : uint8_t {
  kOk,
  kCancelled,
  kUnknown,
  kInvalidArgument,
  kDeadlineExceeded,
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,
  kResourceExhausted,
  kFailedPrecondition,
  kAborted,
  kOutOfRange,
  kUnimplemented,
  kInternal,
  kUnavailable,
  kDataLoss,
  kUnauthenticated,
};

/// Its name in gRPC's documents.
inline const char* name_of(GrpcStatus status) {
  static constexpr const char* kNames[] = {
      "OK",          "CANCELLED",     "UNKNOWN",      "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND",
      "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
      "UNIMPLEMENTED", "INTERNAL",     "UNAVAILABLE",  "DATA_LOSS",        "UNAUTHENTICATED"};
  return kNames[static_cast<size_t>(status)];
}

/// Whether the same request may succeed later, by the rules of OTLP. `told`: the answer holds RetryInfo.
inline bool retry_helps(GrpcStatus status, bool told) {
  switch (status) {
    case GrpcStatus::kCancelled:
    case GrpcStatus::kDeadlineExceeded:
    case GrpcStatus::kAborted:
    case GrpcStatus::kOutOfRange:
    case GrpcStatus::kUnavailable:
    case GrpcStatus::kDataLoss:
      return true;
    case GrpcStatus::kResourceExhausted:
      return told;
    default:
      return false;
  }
}

}  // namespace otel_bridge
