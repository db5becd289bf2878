// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Sends to a bridge by gRPC over plain TCP (h2c), with nothing but POSIX sockets.
//
//   otel_bridge::GrpcTransport transport("127.0.0.1:4417");
//   if (!transport.send(request, size)) std::fprintf(stderr, "%s\n", transport.message());
//
// Invariants
// * One deadline holds over the whole of `send`: connecting, waiting for credit, and the answer.
// * Nothing is allocated after construction, but by the system's look-up of a host name.
// * What stands is reused; what broke, went away or stood idle for long is opened anew. A request that the peer vouches not to
//   have processed, or that met a connection which had died while idle, is sent a second time at once.
// * There is no encryption: for loopback and links that are trusted. For all else there is otel_bridge_curl.h.
//
// Sources: grpc doc/PROTOCOL-HTTP2.md, doc/http-grpc-status-mapping.md; OTLP specification, "Failures" (which statuses a retry
// helps); RFC 9113, RFC 7541.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "otel_bridge.h"
#include "otel_bridge/bridge_transport.h"
#include "otel_bridge/deadline.h"
#include "otel_bridge/frame.h"
#include "otel_bridge/grpc_answer.h"
#include "otel_bridge/grpc_message.h"
#include "otel_bridge/grpc_status.h"
#include "otel_bridge/grpc_target.h"
#include "otel_bridge/header_writer.h"
#include "otel_bridge/http2_call.h"
#include "otel_bridge/http2_connection.h"
#include "otel_bridge/http2_link.h"
#include "otel_bridge/socket.h"

namespace otel_bridge {

struct GrpcOptions {
  uint32_t timeout_ms = 10000;         ///< for one `send`, connecting included; 0 counts as 1; at most a day
  uint32_t idle_ms = 60000;            ///< a connection that was idle for longer is not used again: routers forget them
  const char* authority = nullptr;     ///< what the request calls the host; null: the target. Copied
  const char* bearer_token = nullptr;  ///< sent as `authorization: Bearer ...`, readable on the wire; null: none. Copied
};

class GrpcTransport final : public BridgeTransport {
 public:
  /// `target` is of the form that `GrpcTarget` reads. What cannot be used is told by `valid()` and by each `send`.
  /// `first_stream` is the number of the first call on a connection, odd: tests let connections run out of numbers.
  explicit GrpcTransport(const char* target, const GrpcOptions& options = GrpcOptions(), uint32_t first_stream = 1)
      : target_(target),
        timeout_ms_(std::clamp<uint32_t>(options.timeout_ms, 1, kDayMs)),
        idle_ms_(options.idle_ms),
        first_stream_(first_stream),
        link_(answer_) {
    const char* authority = options.authority != nullptr ? options.authority : target_.text();
    if (!target_.valid()) {
      invalid_ = "the target is not HOST:PORT, or [ADDRESS]:PORT for IPv6";
    } else if (!copy(authority, authority_, sizeof authority_)) {
      invalid_ = "the authority is empty, too long or not printable";
    } else if (options.bearer_token != nullptr && !copy_token(options.bearer_token)) {
      invalid_ = "the bearer token is empty, too long or not printable";
    }
    if (valid()) resolve_number();
  }

  bool valid() const { return invalid_ == nullptr; }

  /// The status of the last `send`.
  GrpcStatus status() const { return status_; }

  bool send(const void* data, size_t size) override {
    begin();
    if (invalid_ != nullptr) return fail(GrpcStatus::kInvalidArgument, invalid_);
    if (size > kLongestMessage) return fail(GrpcStatus::kInvalidArgument, "a request has less than 2 GiB");
    const internal::Deadline deadline(timeout_ms_);
    for (bool again = false;; again = true) {
      const bool reused = is_reusable();
      if (!reused && !connect(deadline)) return false;
      answer_.begin();
      const internal::Io io = exchange(static_cast<const char*>(data), size, deadline);
      const internal::Http2Call& call = link_.connection.call();
      const bool died_idle = io == internal::Io::kClosed && reused && !call.answered;
      if (again || !(call.ended ? call.not_processed : died_idle)) return conclude(io, deadline);
      link_.socket.close();
    }
  }

 private:
  using Io = internal::Io;
  using Deadline = internal::Deadline;
  using Message = internal::GrpcMessage;
  using Link = internal::Http2Link;
  using Frame = internal::Frame;
  static constexpr uint32_t kDayMs = 24 * 60 * 60 * 1000;
  static constexpr size_t kLongestMessage = 0x7fffffff;
  static constexpr size_t kHeadRoom = 3072;
  static constexpr std::string_view kBearer = "Bearer ";

  static bool copy(const char* text, char* out, size_t room) {
    const size_t size = std::strlen(text);
    if (size == 0 || size >= room) return false;
    for (size_t i = 0; i < size; ++i) {
      if (text[i] <= ' ' || text[i] > '~') return false;
    }
    std::memcpy(out, text, size + 1);
    return true;
  }

  bool copy_token(const char* token) {
    std::copy_n(kBearer.data(), kBearer.size(), bearer_);
    return copy(token, bearer_ + kBearer.size(), sizeof bearer_ - kBearer.size());
  }

  // An address in digits is kept: then `send` needs no look-up.
  void resolve_number() {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    if (::getaddrinfo(target_.host(), target_.port(), &hints, &found) != 0) return;
    if (found->ai_addrlen <= sizeof address_) {
      std::memcpy(&address_, found->ai_addr, found->ai_addrlen);
      address_size_ = found->ai_addrlen;
    }
    ::freeaddrinfo(found);
  }

  bool connect(const Deadline& deadline) {
    if (address_size_ != 0) return connect_to(reinterpret_cast<const sockaddr*>(&address_), address_size_, deadline, deadline);
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(target_.host(), target_.port(), &hints, &found);
    if (error != 0) {
      message_ << "the name in " << target_.text() << " cannot be looked up: " << ::gai_strerror(error);
      return fail(GrpcStatus::kUnavailable);
    }
    uint32_t addresses = 0;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) ++addresses;
    bool connected = false;
    for (const addrinfo* one = found; one != nullptr && !connected; one = one->ai_next, --addresses) {
      message_.clear();
      // An address that does not answer leaves time for the next.
      const Deadline share(deadline.left_ms() / addresses);
      connected = connect_to(one->ai_addr, one->ai_addrlen, share, deadline);
    }
    ::freeaddrinfo(found);
    return connected;
  }

  bool connect_to(const sockaddr* address, socklen_t size, const Deadline& share, const Deadline& deadline) {
    const Io io = link_.socket.connect(address, size, share);
    if (io == Io::kDone) {
      link_.connection.open(first_stream_);
      return true;
    }
    message_ << "no connection to " << target_.text() << ": ";
    message_ << (io == Io::kLate ? "no answer in time" : std::strerror(link_.socket.error()));
    return fail(deadline.left_ms() == 0 ? GrpcStatus::kDeadlineExceeded : GrpcStatus::kUnavailable);
  }

  // Whether the connection of before can take the next call, after what the peer has said meanwhile.
  bool is_reusable() {
    if (!link_.socket.is_open()) return false;
    Io io = Io::kDone;
    const bool fresh = Clock::now() - last_used_ <= std::chrono::milliseconds(idle_ms_);
    for (int reads = 0; fresh && io == Io::kDone && reads < kMostIdleReads; ++reads) io = link_.read();
    if (io == Io::kAgain && link_.connection.can_begin()) return true;
    link_.socket.close();
    return false;
  }

  // Send the request and read the answer. kDone: the call has ended.
  Io exchange(const char* data, size_t size, const Deadline& deadline) {
    const uint32_t stream = link_.connection.begin();
    size_t head_size = write_head(stream, deadline);
    Message message(data, size);
    Io io = Io::kDone;
    while (io == Io::kDone && !link_.connection.call().ended && message.left() != 0) {
      const size_t part = std::min(message.left(), link_.connection.sendable());
      io = head_size == 0 && part == 0 ? link_.listen(deadline) : write_frames(stream, head_size, message, part, deadline);
      head_size = 0;
    }
    while (io == Io::kDone && !link_.connection.call().ended) io = link_.listen(deadline);
    const bool half_said = io == Io::kDone && message.left() != 0 && !link_.connection.call().reset;
    return half_said && !link_.connection.give_up_call() ? Io::kClosed : io;
  }

  // Write the HEADERS, unless `head_size` is 0, and the next `part` bytes of the message as DATA, unless `part` is 0.
  Io write_frames(uint32_t stream, size_t head_size, Message& message, size_t part, const Deadline& deadline) {
    uint8_t frame[Frame::kHead];
    Frame::put_head(frame, Frame::kData, part == message.left() ? Frame::kEndStream : Frame::kNone, stream, part);
    const size_t in_prefix = std::min(message.sent, Message::kPrefix);
    const size_t of_prefix = std::min(part, Message::kPrefix - in_prefix);
    const size_t in_data = message.sent - in_prefix;
    iovec pieces[] = {Link::piece(head_, head_size), Link::piece(frame, part == 0 ? 0 : sizeof frame),
                      Link::piece(message.prefix + in_prefix, of_prefix),
                      Link::piece(message.data + in_data, part - of_prefix)};
    message.sent += part;
    link_.connection.data_sent(part);
    return link_.write(pieces, sizeof pieces / sizeof pieces[0], deadline);
  }

  size_t write_head(uint32_t stream, const Deadline& deadline) {
    const uint64_t now_ns = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
    internal::HeaderWriter out(head_ + Frame::kHead, sizeof head_ - Frame::kHead);
    out.indexed(3);  // :method POST
    out.indexed(6);  // :scheme http
    out.named(4, "/otel_bridge.v1.ProfilingService/ExportEvents");  // :path
    out.named(1, authority_);                                       // :authority
    out.field("te", "trailers");
    out.field("grpc-timeout", internal::Decimal(deadline.left_ms(), "m").view());
    out.named(31, "application/grpc");    // content-type
    out.named(58, "otel-bridge-cpp");     // user-agent
    out.field("otel-bridge-sent-unix-ns", internal::Decimal(now_ns, "").view());
    if (bearer_[0] != '\0') out.named(23, bearer_, true);  // authorization
    Frame::put_head(head_, Frame::kHeaders, Frame::kEndHeaders, stream, out.size());
    return Frame::kHead + out.size();
  }

  bool conclude(Io io, const Deadline& deadline) {
    const internal::Http2Call& call = link_.connection.call();
    last_used_ = Clock::now();
    if (!call.ended) {
      explain_break(io);
      link_.flush(Deadline(0));  // GOAWAY, if it can be said without waiting
      link_.socket.close();
      return fail(io == Io::kLate ? GrpcStatus::kDeadlineExceeded : GrpcStatus::kUnavailable);
    }
    if (io != Io::kDone || link_.flush(deadline) != Io::kDone || !link_.connection.can_begin()) link_.socket.close();
    const GrpcStatus status = answer_.status(call);
    if (status == GrpcStatus::kOk) {
      status_ = status;
      std::string_view response;
      return taken(answer_.message(&response) ? &response : nullptr);
    }
    message_ << target_.text() << " answered " << name_of(status);
    if (answer_.http_status() != 200 && answer_.http_status() != 0) {
      message_ << ", HTTP " << static_cast<uint64_t>(answer_.http_status());
    }
    if (!answer_.said().empty()) message_ << ": ";
    if (!answer_.said().empty()) message_.quote(answer_.said());
    return fail(status, nullptr, answer_.retry_info());
  }

  void explain_break(Io io) {
    if (link_.connection.fault() != nullptr) {
      message_ << target_.text() << " is no gRPC server, or a broken one: " << link_.connection.fault();
    } else if (io == Io::kLate) {
      message_ << target_.text() << " did not answer within " << timeout_ms_ << " ms";
    } else {
      message_ << target_.text() << " closed the connection before it answered";
      if (link_.socket.error() != 0) message_ << ": " << std::strerror(link_.socket.error());
    }
  }

  bool fail(GrpcStatus status, const char* why = nullptr, const internal::RetryInfo& told = internal::RetryInfo()) {
    status_ = status;
    if (why != nullptr) message_ << why;
    return not_taken(retry_helps(status, told.given), told.wait_ms);
  }

  using Clock = std::chrono::steady_clock;
  static constexpr int kMostIdleReads = 16;

  GrpcTarget target_;
  const char* invalid_ = nullptr;
  uint32_t timeout_ms_;
  uint32_t idle_ms_;
  uint32_t first_stream_;
  GrpcStatus status_ = GrpcStatus::kOk;
  Clock::time_point last_used_;
  sockaddr_storage address_ = {};
  socklen_t address_size_ = 0;  // 0: a name
  internal::GrpcAnswer answer_;
  internal::Http2Link link_;
  char authority_[272] = "";
  char bearer_[2048] = "";
  uint8_t head_[kHeadRoom];
};

}  // namespace otel_bridge
