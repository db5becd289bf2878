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

#include <algorithm>
#include <chrono>

#include "otel_bridge_answer.h"
#include "otel_bridge_grpc_call.h"
#include "otel_bridge_http2.h"
#include "otel_bridge_socket.h"

namespace otel_bridge {

struct GrpcOptions {
  uint32_t timeout_ms = 10000;         ///< for one `send`, connecting included; 0 counts as 1; at most a day
  uint32_t idle_ms = 60000;            ///< a connection that was idle for longer is not used again: routers forget them
  const char* authority = nullptr;     ///< what the request calls the host; null: the target. Copied
  const char* bearer_token = nullptr;  ///< sent as `authorization: Bearer ...`, readable on the wire; null: none. Copied
};

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

class GrpcTransport final : public BridgeTransport {
 public:
  /// `target` is of the form that `GrpcTarget` reads. What cannot be used is told by `valid()` and by each `send`.
  /// `first_stream` is the number of the first call on a connection, odd: tests let connections run out of numbers.
  explicit GrpcTransport(const char* target, const GrpcOptions& options = GrpcOptions(), uint32_t first_stream = 1)
      : target_(target),
        timeout_ms_(std::clamp<uint32_t>(options.timeout_ms, 1, kDayMs)),
        idle_ms_(options.idle_ms),
        first_stream_(first_stream),
        connection_(answer_) {
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
    const detail::Deadline deadline(timeout_ms_);
    for (bool again = false;; again = true) {
      const bool reused = is_reusable();
      if (!reused && !connect(deadline)) return false;
      answer_.begin();
      const detail::Io io = exchange(static_cast<const char*>(data), size, deadline);
      const detail::Http2Call& call = connection_.call();
      const bool died_idle = io == detail::Io::kClosed && reused && !call.answered;
      if (again || !(call.ended ? call.not_processed : died_idle)) return conclude(io, deadline);
      socket_.close();
    }
  }

 private:
  using Io = detail::Io;
  static constexpr uint32_t kDayMs = 24 * 60 * 60 * 1000;
  static constexpr size_t kLongestMessage = 0x7fffffff;
  static constexpr size_t kPrefix = 5;  // of a message: not compressed, and its length
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

  bool connect(const detail::Deadline& deadline) {
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
      const detail::Deadline share(deadline.left_ms() / addresses);  // an address that does not answer leaves time for the next
      connected = connect_to(one->ai_addr, one->ai_addrlen, share, deadline);
    }
    ::freeaddrinfo(found);
    return connected;
  }

  bool connect_to(const sockaddr* address, socklen_t size, const detail::Deadline& share, const detail::Deadline& deadline) {
    const Io io = socket_.connect(address, size, share);
    if (io == Io::kDone) {
      connection_.open(first_stream_);
      return true;
    }
    message_ << "no connection to " << target_.text() << ": ";
    message_ << (io == Io::kLate ? "no answer in time" : std::strerror(socket_.error()));
    return fail(deadline.left_ms() == 0 ? GrpcStatus::kDeadlineExceeded : GrpcStatus::kUnavailable);
  }

  // Whether the connection of before can take the next call, after what the peer has said meanwhile.
  bool is_reusable() {
    if (!socket_.is_open()) return false;
    Io io = Io::kDone;
    const bool fresh = Clock::now() - last_used_ <= std::chrono::milliseconds(idle_ms_);
    for (int reads = 0; fresh && io == Io::kDone && reads < kMostIdleReads; ++reads) io = read();
    if (io == Io::kAgain && connection_.can_begin()) return true;
    socket_.close();
    return false;
  }

  // A message as gRPC frames it: its prefix, then the bytes of the caller.
  struct Message {
    Message(const char* bytes, size_t count) : data(bytes), size(kPrefix + count) {
      detail::put_u32(prefix + 1, static_cast<uint32_t>(count));
    }
    size_t left() const { return size - sent; }

    uint8_t prefix[kPrefix] = {0};
    const char* data;
    size_t size;
    size_t sent = 0;
  };

  // Send the request and read the answer. kDone: the call has ended.
  Io exchange(const char* data, size_t size, const detail::Deadline& deadline) {
    const uint32_t stream = connection_.begin();
    size_t head_size = write_head(stream, deadline);
    Message message(data, size);
    Io io = Io::kDone;
    while (io == Io::kDone && !connection_.call().ended && message.left() != 0) {
      const size_t part = std::min(message.left(), connection_.sendable());
      io = head_size == 0 && part == 0 ? listen(deadline) : write_frames(stream, head_size, message, part, deadline);
      head_size = 0;
    }
    while (io == Io::kDone && !connection_.call().ended) io = listen(deadline);
    const bool half_said = io == Io::kDone && message.left() != 0 && !connection_.call().reset;
    return half_said && !connection_.give_up_call() ? Io::kClosed : io;
  }

  // Write the HEADERS, unless `head_size` is 0, and the next `part` bytes of the message as DATA, unless `part` is 0.
  Io write_frames(uint32_t stream, size_t head_size, Message& message, size_t part, const detail::Deadline& deadline) {
    using Http2 = detail::Http2Connection;
    uint8_t frame[Http2::kFrameHead];
    Http2::put_head(frame, Http2::kData, part == message.left() ? Http2::kEndStream : Http2::kNone, stream, part);
    const size_t in_prefix = std::min(message.sent, kPrefix);
    const size_t of_prefix = std::min(part, kPrefix - in_prefix);
    const size_t in_data = message.sent - in_prefix;
    iovec pieces[] = {piece(head_, head_size), piece(frame, part == 0 ? 0 : sizeof frame),
                      piece(message.prefix + in_prefix, of_prefix), piece(message.data + in_data, part - of_prefix)};
    message.sent += part;
    connection_.data_sent(part);
    return write(pieces, sizeof pieces / sizeof pieces[0], deadline);
  }

  size_t write_head(uint32_t stream, const detail::Deadline& deadline) {
    using Http2 = detail::Http2Connection;
    const uint64_t now_ns = static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
    detail::HeaderWriter out(head_ + Http2::kFrameHead, sizeof head_ - Http2::kFrameHead);
    out.indexed(3);  // :method POST
    out.indexed(6);  // :scheme http
    out.named(4, "/otel_bridge.v1.ProfilingService/ExportEvents");  // :path
    out.named(1, authority_);                                       // :authority
    out.field("te", "trailers");
    out.field("grpc-timeout", detail::Decimal(deadline.left_ms(), "m").view());
    out.named(31, "application/grpc");    // content-type
    out.named(58, "otel-bridge-cpp");     // user-agent
    out.field("otel-bridge-sent-unix-ns", detail::Decimal(now_ns, "").view());
    if (bearer_[0] != '\0') out.named(23, bearer_, true);  // authorization
    Http2::put_head(head_, Http2::kHeaders, Http2::kEndHeaders, stream, out.size());
    return Http2::kFrameHead + out.size();
  }

  static iovec piece(const void* data, size_t size) {
    return {const_cast<void*>(data), size};  // iovec serves reading, too
  }

  // Write whole frames: what the connection has to say, then these.
  Io write(iovec* pieces, size_t count, const detail::Deadline& deadline) {
    const Io io = flush(deadline);
    return io == Io::kDone ? write_pieces(pieces, count, deadline) : io;
  }

  Io flush(const detail::Deadline& deadline) {
    while (connection_.control_size() != 0) {
      const size_t size = connection_.control_size();  // more may come while it is written
      iovec control = piece(connection_.control(), size);
      const Io io = write_pieces(&control, 1, deadline);
      if (io != Io::kDone) return io;
      connection_.control_sent(size);
      if (!connection_.parse(0)) return Io::kClosed;
    }
    return Io::kDone;
  }

  Io write_pieces(iovec* pieces, size_t count, const detail::Deadline& deadline) {
    for (;;) {
      for (; count != 0 && pieces->iov_len == 0; --count) ++pieces;
      if (count == 0) return Io::kDone;
      size_t written = 0;
      Io io = socket_.write(pieces, count, &written);
      for (size_t i = 0; i < count; ++i) {
        const size_t part = std::min(written, pieces[i].iov_len);
        pieces[i].iov_base = static_cast<char*>(pieces[i].iov_base) + part;
        pieces[i].iov_len -= part;
        written -= part;
      }
      if (io == Io::kAgain) io = wait(POLLOUT, deadline);
      if (io == Io::kClosed) {  // what it said before it went may be the answer
        while (deadline.left_ms() != 0 && read() == Io::kDone) {
        }
      }
      if (io != Io::kDone) return io;
      if (deadline.left_ms() == 0) return Io::kLate;
    }
  }

  // Wait for what the peer says next, and heed it.
  Io listen(const detail::Deadline& deadline) {
    const Io io = flush(deadline);
    if (io != Io::kDone || connection_.call().ended) return io;
    return deadline.left_ms() == 0 ? Io::kLate : wait(0, deadline);
  }

  // Wait for any of the events, or for something to read, which is heeded.
  Io wait(short events, const detail::Deadline& deadline) {
    const bool has_room = connection_.room_size() != 0;
    short came = 0;
    const Io io = socket_.wait(static_cast<short>(events | (has_room ? POLLIN : 0)), deadline, &came);
    if (io != Io::kDone || (came & ~POLLOUT) == 0 || !has_room) return io;
    const Io read_io = read();
    return read_io == Io::kAgain ? Io::kDone : read_io;
  }

  Io read() {
    size_t got = 0;
    if (connection_.room_size() == 0) return Io::kAgain;
    const Io io = socket_.read(connection_.room(), connection_.room_size(), &got);
    if (io != Io::kDone) return io;
    return connection_.parse(got) ? Io::kDone : Io::kClosed;
  }

  bool conclude(Io io, const detail::Deadline& deadline) {
    const detail::Http2Call& call = connection_.call();
    last_used_ = Clock::now();
    if (!call.ended) {
      explain_break(io);
      flush(detail::Deadline(0));  // GOAWAY, if it can be said without waiting
      socket_.close();
      return fail(io == Io::kLate ? GrpcStatus::kDeadlineExceeded : GrpcStatus::kUnavailable);
    }
    if (io != Io::kDone || flush(deadline) != Io::kDone || !connection_.can_begin()) socket_.close();
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
    if (connection_.fault() != nullptr) {
      message_ << target_.text() << " is no gRPC server, or a broken one: " << connection_.fault();
    } else if (io == Io::kLate) {
      message_ << target_.text() << " did not answer within " << timeout_ms_ << " ms";
    } else {
      message_ << target_.text() << " closed the connection before it answered";
      if (socket_.error() != 0) message_ << ": " << std::strerror(socket_.error());
    }
  }

  bool fail(GrpcStatus status, const char* why = nullptr, const detail::RetryInfo& told = detail::RetryInfo()) {
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
  detail::Socket socket_;
  detail::GrpcAnswer answer_;
  detail::Http2Connection connection_;
  char authority_[272] = "";
  char bearer_[2048] = "";
  uint8_t head_[kHeadRoom];
};

}  // namespace otel_bridge
