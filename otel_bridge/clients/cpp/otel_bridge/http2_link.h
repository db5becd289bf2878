// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// HTTP/2 link: a connection over its socket.
#pragma once

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "deadline.h"
#include "http2_call.h"
#include "http2_connection.h"
#include "socket.h"

namespace otel_bridge {

namespace internal {

class Http2Link {
 public:
  explicit Http2Link(Http2Answer& answer) : connection(answer) {}

  static iovec piece(const void* data, size_t size) {
    return {const_cast<void*>(data), size};  // iovec serves reading, too
  }

  // Write whole frames: what the connection has to say, then these.
  Io write(iovec* pieces, size_t count, const Deadline& deadline) {
    const Io io = flush(deadline);
    return io == Io::kDone ? write_pieces(pieces, count, deadline) : io;
  }

  Io flush(const Deadline& deadline) {
    while (connection.control_size() != 0) {
      const size_t size = connection.control_size();  // more may come while it is written
      iovec control = piece(connection.control(), size);
      const Io io = write_pieces(&control, 1, deadline);
      if (io != Io::kDone) return io;
      connection.control_sent(size);
      if (!connection.parse(0)) return Io::kClosed;
    }
    return Io::kDone;
  }

  // Wait for what the peer says next, and heed it.
  Io listen(const Deadline& deadline) {
    const Io io = flush(deadline);
    if (io != Io::kDone || connection.call().ended) return io;
    return deadline.left_ms() == 0 ? Io::kLate : wait(0, deadline);
  }

  Io read() {
    size_t got = 0;
    if (connection.room_size() == 0) return Io::kAgain;
    const Io io = socket.read(connection.room(), connection.room_size(), &got);
    if (io != Io::kDone) return io;
    return connection.parse(got) ? Io::kDone : Io::kClosed;
  }

  Socket socket;
  Http2Connection connection;

 private:
  Io write_pieces(iovec* pieces, size_t count, const Deadline& deadline) {
    for (;;) {
      for (; count != 0 && pieces->iov_len == 0; --count) ++pieces;
      if (count == 0) return Io::kDone;
      size_t written = 0;
      Io io = socket.write(pieces, count, &written);
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

  // Wait for any of the events, or for something to read, which is heeded.
  Io wait(short events, const Deadline& deadline) {
    const bool has_room = connection.room_size() != 0;
    short came = 0;
    const Io io = socket.wait(static_cast<short>(events | (has_room ? POLLIN : 0)), deadline, &came);
    if (io != Io::kDone || (came & ~POLLOUT) == 0 || !has_room) return io;
    const Io read_io = read();
    return read_io == Io::kAgain ? Io::kDone : read_io;
  }
};

}  // namespace internal

}  // namespace otel_bridge
