// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// What a bridge answers, read with care. For applications there is `BridgeTransport`: what the two transports have in common.
//
// Invariants
// * Foreign bytes are read within their bounds, without allocation, in time linear in their size.
// * What cannot be read is as if it were not there.
// * Foreign text is shown escaped and cut.
//
// Sources: proto/otel_bridge/v1/profiling.proto (ExportEventsResponse); google/rpc/status.proto and error_details.proto
// (Status, RetryInfo); RFC 4648 (base64).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "otel_bridge.h"

namespace otel_bridge {
namespace detail {

// One line of text in fixed memory, for people.
class Line {
 public:
  void clear() { size_ = 0; text_[0] = '\0'; }

  const char* c_str() const { return text_; }

  Line& operator<<(std::string_view words) {
    for (char c : words) put(c);
    return *this;
  }

  Line& operator<<(uint64_t number) {
    char digits[24];
    const int count = std::snprintf(digits, sizeof digits, "%llu", static_cast<unsigned long long>(number));
    return *this << std::string_view(digits, static_cast<size_t>(count));
  }

  // A peer's words, in quotes: at most 120 bytes of them, and only printable ASCII as it is.
  Line& quote(std::string_view foreign) {
    put('\'');
    for (size_t i = 0; i < foreign.size() && i < kQuoted; ++i) {
      const unsigned char c = static_cast<unsigned char>(foreign[i]);
      if (c >= 0x20 && c < 0x7f && c != '\\') {
        put(static_cast<char>(c));
      } else {
        constexpr char kHex[] = "0123456789abcdef";
        *this << std::string_view("\\x");
        put(kHex[c >> 4]);
        put(kHex[c & 15]);
      }
    }
    put('\'');
    return foreign.size() > kQuoted ? *this << std::string_view("...") : *this;
  }

 private:
  static constexpr size_t kQuoted = 120;

  void put(char c) {
    if (size_ + 1 < sizeof text_) {
      text_[size_++] = c;
      text_[size_] = '\0';
    }
  }

  char text_[640] = "";
  size_t size_ = 0;
};

// The fields of a protobuf message, one after the other. Groups are not read: no message of ours has them.
class Fields {
 public:
  explicit Fields(std::string_view message)
      : at_(reinterpret_cast<const uint8_t*>(message.data())), end_(at_ + message.size()) {}

  // The next field; false at the end, and where the bytes are no message: then `whole()` is false.
  bool next() {
    if (at_ == end_) return false;
    uint64_t key = 0;
    if (!varint(&key) || key >> 3 == 0 || key >> 3 > 0x1fffffff) return broken();
    number_ = static_cast<uint32_t>(key >> 3);
    type_ = static_cast<uint32_t>(key & 7);
    value_ = 0;
    bytes_ = {};
    switch (type_) {
      case 0:
        return varint(&value_) || broken();
      case 1:
        return take(8);
      case 2:
        return varint(&value_) ? take(value_) : broken();
      case 5:
        return take(4);
      default:
        return broken();
    }
  }

  bool whole() const { return whole_; }
  bool is_number(uint32_t number) const { return number_ == number && type_ == 0; }
  bool is_bytes(uint32_t number) const { return number_ == number && type_ == 2; }
  uint64_t value() const { return value_; }
  std::string_view bytes() const { return bytes_; }

 private:
  bool varint(uint64_t* value) {
    uint64_t read = 0;
    for (unsigned shift = 0; shift < 70 && at_ != end_; shift += 7) {
      const uint8_t byte = *at_++;
      read |= shift < 64 ? static_cast<uint64_t>(byte & 0x7f) << shift : 0;
      if ((byte & 0x80) == 0) {
        *value = read;
        return true;
      }
    }
    return false;
  }

  bool take(uint64_t count) {
    if (count > static_cast<uint64_t>(end_ - at_)) return broken();
    bytes_ = std::string_view(reinterpret_cast<const char*>(at_), static_cast<size_t>(count));
    at_ += count;
    return true;
  }

  bool broken() {
    at_ = end_;
    whole_ = false;
    return false;
  }

  const uint8_t* at_;
  const uint8_t* end_;
  uint64_t value_ = 0;
  std::string_view bytes_;
  uint32_t number_ = 0;
  uint32_t type_ = 0;
  bool whole_ = true;
};

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

}  // namespace detail

/// A transport that a bridge answers. Used by one thread, as `Transport` says.
class BridgeTransport : public Transport {
 public:
  bool again() const final { return again_; }
  uint32_t wait_ms() const final { return wait_ms_; }

  /// Events that the bridge took, and that it rejected although it took their request; over all requests that were sent.
  uint64_t accepted() const { return accepted_; }
  uint64_t rejected() const { return rejected_; }

  /// What came of the last `send`, one line for people; empty: all went well. Lasts until the next `send`.
  const char* message() const { return message_.c_str(); }

 protected:
  ~BridgeTransport() = default;

  void begin() {
    again_ = true;
    wait_ms_ = 0;
    message_.clear();
  }

  // `response`: an ExportEventsResponse; null: it came in no form that is read.
  bool taken(const std::string_view* response) {
    detail::Counts counts;
    if (response == nullptr || !detail::read_counts(*response, &counts)) {
      message_ << "the bridge took the request; its answer cannot be read";
      return true;
    }
    accepted_ += counts.accepted;
    rejected_ += counts.rejected;
    if (counts.rejected != 0) message_ << counts.rejected << " rejected, the first: ";
    if (counts.rejected != 0) message_.quote(counts.first_rejection);
    return true;
  }

  bool not_taken(bool again, uint32_t wait_ms) {
    again_ = again;
    wait_ms_ = again ? wait_ms : 0;
    return false;
  }

  detail::Line message_;

 private:
  uint64_t accepted_ = 0;
  uint64_t rejected_ = 0;
  uint32_t wait_ms_ = 0;
  bool again_ = true;
};

}  // namespace otel_bridge
