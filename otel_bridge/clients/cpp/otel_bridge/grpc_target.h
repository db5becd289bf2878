// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// gRPC target: the address of a server, read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace otel_bridge {

/// Where a target leads: "host:port", "192.0.2.1:4417" or "[2001:db8::1]:4417".
class GrpcTarget {
 public:
  explicit GrpcTarget(const char* target) {
    std::string_view text(target != nullptr ? target : "");
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0 || text.size() >= sizeof text_) return;
    std::string_view host(text.data(), colon);
    std::string_view port(text.data() + colon + 1, text.size() - colon - 1);
    if (host.front() == '[' && host.back() == ']' && host.size() > 2) {
      host = std::string_view(host.data() + 1, host.size() - 2);
    } else if (host.find_first_of(":[]") != std::string_view::npos) {
      return;  // an IPv6 address without brackets: where it ends is a guess
    }
    uint32_t number = 0;
    for (char c : port) {
      if (c < '0' || c > '9' || port.size() > 5) return;
      number = number * 10 + static_cast<uint32_t>(c - '0');
    }
    if (number == 0 || number > 65535) return;
    std::copy_n(text.data(), text.size(), text_);
    std::copy_n(host.data(), host.size(), host_);
    std::copy_n(port.data(), port.size(), port_);
    valid_ = true;
  }

  bool valid() const { return valid_; }
  const char* text() const { return text_; }
  const char* host() const { return host_; }
  const char* port() const { return port_; }

 private:
  char text_[272] = "";
  char host_[272] = "";
  char port_[8] = "";
  bool valid_ = false;
};

}  // namespace otel_bridge
