// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// Socket: a TCP connection on POSIX sockets under a deadline.
//
// Invariants
// * No call blocks beyond its deadline, but for the system's look-up of a host name, which has none.
// * A peer that goes away gives an error, never SIGPIPE.
// * The descriptor is not inherited by programs that the process starts.
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>

#include "deadline.h"

namespace otel_bridge {

namespace internal {

/// How an operation ended.
enum class Io { kDone, kAgain, kClosed, kLate };

class Socket {
 public:
  Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() { close(); }

  bool is_open() const { return descriptor_ >= 0; }
  int error() const { return error_; }

  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }

  /// Connect; kClosed: `error()` is why.
  Io connect(const sockaddr* address, socklen_t size, const Deadline& deadline) {
    close();
    descriptor_ = ::socket(address->sa_family, SOCK_STREAM, 0);
    if (descriptor_ < 0 || !prepare()) return failed(errno);
    if (::connect(descriptor_, address, size) == 0) return Io::kDone;
    if (errno != EINPROGRESS && errno != EINTR) return failed(errno);
    const Io io = wait(POLLOUT, deadline, nullptr);
    if (io != Io::kDone) {
      close();
      return io;
    }
    int error = 0;
    socklen_t error_size = sizeof error;
    if (::getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &error, &error_size) != 0) error = errno;
    return error == 0 ? Io::kDone : failed(error);
  }

  /// Wait for any of the events of poll(2); those that came.
  Io wait(short events, const Deadline& deadline, short* came) {
    for (;;) {
      pollfd one = {descriptor_, events, 0};
      const uint32_t left = deadline.left_ms();
      const int ready = ::poll(&one, 1, left > INT_MAX ? INT_MAX : static_cast<int>(left));
      if (ready > 0) {
        if (came != nullptr) *came = one.revents;
        return Io::kDone;
      }
      if (ready == 0 && deadline.left_ms() == 0) return Io::kLate;
      if (ready < 0 && errno != EINTR && errno != EAGAIN) return failed(errno);
    }
  }

  /// Write what the system takes now of the pieces; kAgain: nothing.
  Io write(iovec* pieces, size_t count, size_t* written) {
    msghdr message = {};
    message.msg_iov = pieces;
    message.msg_iovlen = static_cast<decltype(message.msg_iovlen)>(count);
    for (;;) {
      const ssize_t sent = ::sendmsg(descriptor_, &message, kNoSignal);
      if (sent >= 0) {
        *written = static_cast<size_t>(sent);
        return Io::kDone;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Io::kAgain;
      if (errno != EINTR) return ended(errno);
    }
  }

  /// Read what is there; kAgain: nothing yet. kClosed without an `error()`: the peer said its last.
  Io read(void* out, size_t room, size_t* got) {
    for (;;) {
      const ssize_t count = ::recv(descriptor_, out, room, 0);
      if (count > 0) {
        *got = static_cast<size_t>(count);
        return Io::kDone;
      }
      if (count == 0) return ended(0);
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Io::kAgain;
      if (errno != EINTR) return ended(errno);
    }
  }

 private:
#ifdef MSG_NOSIGNAL
  static constexpr int kNoSignal = MSG_NOSIGNAL;
#else
  static constexpr int kNoSignal = 0;  // Apple: SO_NOSIGPIPE, below
#endif

  bool prepare() {
    const int flags = ::fcntl(descriptor_, F_GETFL, 0);
    if (flags < 0 || ::fcntl(descriptor_, F_SETFL, flags | O_NONBLOCK) != 0) return false;
    if (::fcntl(descriptor_, F_SETFD, FD_CLOEXEC) != 0) return false;
    const int on = 1;
#ifdef SO_NOSIGPIPE
    if (::setsockopt(descriptor_, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) != 0) return false;
#endif
    ::setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // slower without it, no more
    return true;
  }

  // The descriptor stays: what the peer sent before may still be read.
  Io ended(int error) {
    error_ = error;
    return Io::kClosed;
  }

  Io failed(int error) {
    close();
    return ended(error);
  }

  int descriptor_ = -1;
  int error_ = 0;
};

}  // namespace internal

}  // namespace otel_bridge
