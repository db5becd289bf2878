// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC answer: what the answer to one call means.
//
// Sources: grpc doc/PROTOCOL-HTTP2.md, doc/http-grpc-status-mapping.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "answer.h"
#include "frame.h"
#include "grpc_status.h"
#include "http2_call.h"

namespace otel_bridge {

namespace internal {

/// The answer to one call.
class GrpcAnswer final : public Http2Answer {
 public:
  void begin() {
    http_status_ = 0;
    status_ = -1;
    retry_info_ = RetryInfo();
    said_size_ = body_size_ = 0;
  }

  void header(std::string_view name, std::string_view value) override {
    if (name == ":status") {
      http_status_ = number(value, 999);
    } else if (name == "grpc-status") {
      status_ = number(value, 16);  // what is none is as if it were not there
    } else if (name == "grpc-message") {
      keep_message(value);
    } else if (name == "grpc-status-details-bin") {
      char details[3072];  // base64 in the 4 KiB that a field may have
      size_t size = 0;
      RpcStatus status;
      if (read_base64(value, details, sizeof details, &size) && read_rpc_status(std::string_view(details, size), &status)) {
        retry_info_ = status.retry_info;
      }
    }
  }

  void data(std::string_view bytes) override {
    const size_t kept = std::min(bytes.size(), sizeof body_ - body_size_);
    std::copy_n(bytes.data(), kept, body_ + body_size_);
    body_size_ += kept;
  }

  int http_status() const { return http_status_; }
  const RetryInfo& retry_info() const { return retry_info_; }
  std::string_view said() const { return std::string_view(said_, said_size_); }

  /// The message of the answer; false: there is none, it is compressed, or it is longer than what is kept.
  bool message(std::string_view* message) const {
    const uint8_t* head = reinterpret_cast<const uint8_t*>(body_);
    if (body_size_ < kPrefix || head[0] != 0 || get_u32(head + 1) != body_size_ - kPrefix) return false;
    *message = std::string_view(body_ + kPrefix, body_size_ - kPrefix);
    return true;
  }

  /// What it comes to: its own status, else what HTTP's means.
  GrpcStatus status(const Http2Call& call) const {
    if (status_ >= 0) return static_cast<GrpcStatus>(status_);
    if (http_status_ != 0 && http_status_ != 200) return of_http(http_status_);
    if (call.not_processed) return GrpcStatus::kUnavailable;
    return call.reset ? of_reset(call.reset_code) : GrpcStatus::kUnknown;
  }

 private:
  static constexpr size_t kPrefix = 5;

  // A grpc-message is percent-encoded; what is not well encoded stays as it is.
  void keep_message(std::string_view text) {
    said_size_ = 0;
    for (size_t i = 0; i < text.size() && said_size_ < sizeof said_; ++i) {
      const int high = text[i] == '%' && i + 2 < text.size() ? hex(text[i + 1]) : -1;
      const int low = high >= 0 ? hex(text[i + 2]) : -1;
      said_[said_size_++] = low >= 0 ? static_cast<char>(high << 4 | low) : text[i];
      if (low >= 0) i += 2;
    }
  }

  static int hex(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
  }

  static int number(std::string_view text, int most) {
    int read = 0;
    if (text.empty() || text.size() > 3) return -1;
    for (char c : text) {
      if (c < '0' || c > '9') return -1;
      read = read * 10 + (c - '0');
    }
    return read <= most ? read : -1;
  }

  static GrpcStatus of_http(int status) {
    switch (status) {
      case 400:
        return GrpcStatus::kInternal;
      case 401:
        return GrpcStatus::kUnauthenticated;
      case 403:
        return GrpcStatus::kPermissionDenied;
      case 404:
        return GrpcStatus::kUnimplemented;
      case 429:
      case 502:
      case 503:
      case 504:
        return GrpcStatus::kUnavailable;
      default:
        return GrpcStatus::kUnknown;
    }
  }

  static GrpcStatus of_reset(uint32_t code) {
    static constexpr GrpcStatus kByCode[] = {
        GrpcStatus::kInternal,    GrpcStatus::kInternal,  GrpcStatus::kInternal, GrpcStatus::kInternal,
        GrpcStatus::kInternal,    GrpcStatus::kUnknown,   GrpcStatus::kInternal, GrpcStatus::kUnavailable,
        GrpcStatus::kCancelled,   GrpcStatus::kInternal,  GrpcStatus::kInternal, GrpcStatus::kResourceExhausted,
        GrpcStatus::kPermissionDenied};
    return code < sizeof kByCode / sizeof kByCode[0] ? kByCode[code] : GrpcStatus::kUnknown;
  }

  int http_status_ = 0;  // 0: none
  int status_ = -1;      // -1: none
  RetryInfo retry_info_;
  size_t said_size_ = 0;
  size_t body_size_ = 0;
  char said_[160];
  char body_[kPrefix + 4096];
};

}  // namespace internal

}  // namespace otel_bridge
