// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// HTTP/2 connection: the client's end (RFC 9113) with one call at a time, as a machine that is fed bytes and gives bytes; it
// knows no socket.
//
// Invariants
// * No allocation. A frame is parsed once it is whole, and none is longer than the 16,384 bytes that we leave announced.
// * What the peer makes us say (acknowledgements, credit) waits in a buffer of fixed size; while that is full nothing more is
//   parsed, so a peer that only asks and never listens stops itself.
// * We send no more than both windows let us, whatever the peer does to them.
// * A peer that breaks the protocol is named in `fault()`; the connection is of no use from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "control_buffer.h"
#include "credit.h"
#include "frame.h"
#include "header_block.h"
#include "http2_call.h"

namespace otel_bridge {

namespace internal {

class Http2Connection {
 public:
  static constexpr size_t kLargestData = 256 * 1024;  // the most that we send at once: an acknowledgement waits behind it
  static constexpr uint32_t kLastStream = 0x7fffffff;

  explicit Http2Connection(Http2Answer& answer) : answer_(answer) {}

  /// Begin anew: the preface waits in `control()`.
  void open(uint32_t first_stream = 1) {
    filled_ = 0;
    connection_window_ = initial_window_ = Credit::kDefaultWindow;
    largest_data_ = Frame::kMaxPayload;
    unreturned_ = unreturned_on_call_ = Credit();
    next_stream_ = first_stream;
    block_.clear();
    greeted_ = going_away_ = false;
    fault_ = nullptr;
    call_ = Http2Call();
    control_.greet();
  }

  /// Where the next bytes from the peer go, and how many fit: 0 while `control()` has to be sent first.
  uint8_t* room() { return received_ + filled_; }
  size_t room_size() const { return sizeof received_ - filled_; }

  /// Parse, with `count` bytes more in `room()`. False: the peer broke the protocol. Also to be called, with 0, after
  /// `control_sent`.
  bool parse(size_t count) {
    filled_ += count;
    // No SETTINGS that we take is so long that its first byte is not 0; who speaks something else may never send nine bytes.
    if (!greeted_ && filled_ != 0 && received_[0] != 0) return fail(Http2Error::kProtocol, kStranger);
    size_t at = 0;
    while (fault_ == nullptr && filled_ - at >= Frame::kHead && control_.has_room()) {
      const uint8_t* head = received_ + at;
      const size_t size = static_cast<size_t>(head[0]) << 16 | static_cast<size_t>(head[1]) << 8 | head[2];
      if (!greeted_ && (head[3] != Frame::kSettings || (head[4] & Frame::kAck) != 0)) {
        return fail(Http2Error::kProtocol, kStranger);
      }
      if (size > Frame::kMaxPayload) return fail(Http2Error::kFrameSize, "a frame is longer than was announced");
      if (filled_ - at - Frame::kHead < size) break;
      greeted_ = true;
      at += Frame::kHead + size;
      if (!frame(head[3], head[4], get_u32(head + 5) & kLastStream, head + Frame::kHead, size)) return false;
    }
    filled_ -= at;
    if (at != 0) std::memmove(received_, received_ + at, filled_);
    return fault_ == nullptr;
  }

  /// What has to be sent, at the next boundary between frames.
  const uint8_t* control() const { return control_.data(); }
  size_t control_size() const { return control_.size(); }
  void control_sent(size_t count) { control_.sent(count); }

  /// What the peer did wrong; null: nothing.
  const char* fault() const { return fault_; }
  bool can_begin() const { return fault_ == nullptr && !going_away_ && next_stream_ <= kLastStream; }

  /// Begin a call; its number. Only if `can_begin()`.
  uint32_t begin() {
    call_ = Http2Call();
    call_.stream = next_stream_;
    call_.window = initial_window_;
    call_.ended = false;
    unreturned_on_call_ = Credit();
    next_stream_ += 2;
    return call_.stream;
  }

  const Http2Call& call() const { return call_; }

  /// Bytes of DATA that may be sent now, in one frame.
  size_t sendable() const {
    const int64_t both = call_.window < connection_window_ ? call_.window : connection_window_;
    return both <= 0 ? 0 : static_cast<size_t>(both < largest_data_ ? both : largest_data_);
  }

  void data_sent(size_t count) {
    call_.window -= static_cast<int64_t>(count);
    connection_window_ -= static_cast<int64_t>(count);
  }

  /// Tell the peer that nothing more comes for the call, if there is room to say so.
  bool give_up_call() {
    if (!control_.has_room()) return false;
    control_.put_u32_frame(Frame::kReset, call_.stream, static_cast<uint32_t>(Http2Error::kCancel));
    return true;
  }

 private:
  static constexpr char kStranger[] = "it does not speak HTTP/2";
  static constexpr int64_t kLargestWindow = 0x7fffffff;

  bool fail(Http2Error code, const char* why) {
    if (fault_ != nullptr) return false;
    fault_ = why;
    uint8_t payload[8] = {};
    put_u32(payload + 4, static_cast<uint32_t>(code));
    if (control_.has_room()) control_.put_frame(Frame::kGoAway, 0, 0, payload, sizeof payload);
    return false;
  }

  bool frame(uint8_t type, uint8_t flags, uint32_t stream, const uint8_t* payload, size_t size) {
    if (block_.stream() != 0 && (type != Frame::kContinuation || stream != block_.stream())) {
      return fail(Http2Error::kProtocol, "a frame stands inside a block of headers");
    }
    switch (type) {
      case Frame::kData:
        return data(flags, stream, payload, size);
      case Frame::kHeaders:
        return headers(flags, stream, payload, size);
      case Frame::kContinuation:
        return block_.stream() != 0 ? headers_part((flags & Frame::kEndHeaders) != 0, payload, size)
                                    : fail(Http2Error::kProtocol, "CONTINUATION without HEADERS");
      case Frame::kReset:
        return reset(stream, payload, size);
      case Frame::kSettings:
        return settings(flags, stream, payload, size);
      case Frame::kPushPromise:
        return fail(Http2Error::kProtocol, "PUSH_PROMISE, which was not allowed");
      case Frame::kPing:
        if (size != 8) return fail(Http2Error::kFrameSize, "a PING of the wrong size");
        if (stream != 0) return fail(Http2Error::kProtocol, "a PING on a stream");
        if ((flags & Frame::kAck) == 0) control_.put_frame(Frame::kPing, Frame::kAck, 0, payload, size);
        return true;
      case Frame::kGoAway:
        return go_away(stream, payload, size);
      case Frame::kWindowUpdate:
        return window_update(stream, payload, size);
      default:  // PRIORITY, and types that RFC 9113 does not know
        return true;
    }
  }

  // Whether the peer may send on the stream: we began it.
  bool known(uint32_t stream) {
    if (stream % 2 == 1 && stream < next_stream_) return true;
    return fail(Http2Error::kProtocol, "a frame of a stream that was not begun");
  }

  bool is_open(uint32_t stream) const { return stream == call_.stream && !call_.ended; }

  bool unpad(uint8_t flags, const uint8_t** payload, size_t* size) {
    if ((flags & Frame::kPadded) == 0) return true;
    if (*size == 0 || **payload >= *size) return fail(Http2Error::kProtocol, "padding longer than its frame");
    *size -= 1u + **payload;
    ++*payload;
    return true;
  }

  bool data(uint8_t flags, uint32_t stream, const uint8_t* payload, size_t size) {
    const size_t charged = size;
    if (!known(stream) || !unpad(flags, &payload, &size)) return false;
    if (is_open(stream)) {
      call_.answered = true;
      answer_.data(std::string_view(reinterpret_cast<const char*>(payload), size));
      call_.ended = (flags & Frame::kEndStream) != 0;
    }
    const uint32_t returned = unreturned_.take(charged);
    if (returned != 0) control_.put_u32_frame(Frame::kWindowUpdate, 0, returned);
    const uint32_t returned_on_call = is_open(stream) ? unreturned_on_call_.take(charged) : 0;
    if (returned_on_call != 0) control_.put_u32_frame(Frame::kWindowUpdate, stream, returned_on_call);
    return true;
  }

  bool headers(uint8_t flags, uint32_t stream, const uint8_t* payload, size_t size) {
    if (!known(stream) || !unpad(flags, &payload, &size)) return false;
    if ((flags & Frame::kWithPriority) != 0) {
      if (size < 5) return fail(Http2Error::kFrameSize, "HEADERS too short for its priority");
      payload += 5;
      size -= 5;
    }
    block_.begin(stream, (flags & Frame::kEndStream) != 0);
    return headers_part((flags & Frame::kEndHeaders) != 0, payload, size);
  }

  bool headers_part(bool last, const uint8_t* payload, size_t size) {
    if (!block_.add(payload, size)) {
      return fail(Http2Error::kEnhanceYourCalm, "a block of headers longer than was announced");
    }
    if (!last) return true;
    if (!is_open(block_.end())) return true;  // it stands alone: there is no table that it could have changed
    call_.answered = true;
    if (!block_.read(answer_)) return fail(Http2Error::kCompression, "headers that cannot be decoded");
    call_.ended = block_.ends_stream();
    return true;
  }

  bool reset(uint32_t stream, const uint8_t* payload, size_t size) {
    if (size != 4) return fail(Http2Error::kFrameSize, "a RST_STREAM of the wrong size");
    if (!known(stream)) return false;
    if (is_open(stream)) {
      call_.ended = call_.reset = true;
      call_.reset_code = get_u32(payload);
      call_.not_processed = call_.reset_code == static_cast<uint32_t>(Http2Error::kRefusedStream);
    }
    return true;
  }

  bool settings(uint8_t flags, uint32_t stream, const uint8_t* payload, size_t size) {
    if (stream != 0) return fail(Http2Error::kProtocol, "SETTINGS on a stream");
    if ((flags & Frame::kAck) != 0) {
      return size == 0 || fail(Http2Error::kFrameSize, "an acknowledgement of SETTINGS with content");
    }
    if (size % 6 != 0) return fail(Http2Error::kFrameSize, "SETTINGS of the wrong size");
    for (const uint8_t* at = payload; at != payload + size; at += 6) {
      const uint32_t name = static_cast<uint32_t>(at[0]) << 8 | at[1];
      const int64_t value = get_u32(at + 2);
      if (name == 5) {
        if (value < int64_t{Frame::kMaxPayload} || value > 0xffffff) {
          return fail(Http2Error::kProtocol, "a MAX_FRAME_SIZE that cannot be");
        }
        largest_data_ = value < int64_t{kLargestData} ? value : int64_t{kLargestData};
      }
      if (name != 4) continue;  // the others bind servers, or senders that do more than we do
      const int64_t moved = call_.window + value - initial_window_;
      if (value > kLargestWindow || (!call_.ended && moved > kLargestWindow)) {
        return fail(Http2Error::kFlowControl, "an INITIAL_WINDOW_SIZE that cannot be");
      }
      call_.window = moved;
      initial_window_ = value;
    }
    control_.put_frame(Frame::kSettings, Frame::kAck, 0, nullptr, 0);
    return true;
  }

  bool go_away(uint32_t stream, const uint8_t* payload, size_t size) {
    if (size < 8) return fail(Http2Error::kFrameSize, "a GOAWAY of the wrong size");
    if (stream != 0) return fail(Http2Error::kProtocol, "GOAWAY on a stream");
    going_away_ = true;
    if (!call_.ended && call_.stream > (get_u32(payload) & kLastStream)) call_.ended = call_.not_processed = true;
    return true;
  }

  bool window_update(uint32_t stream, const uint8_t* payload, size_t size) {
    if (size != 4) return fail(Http2Error::kFrameSize, "a WINDOW_UPDATE of the wrong size");
    const int64_t credit = get_u32(payload) & kLastStream;
    if (stream != 0 && !known(stream)) return false;
    if (stream != 0 && !is_open(stream)) return true;
    int64_t& window = stream == 0 ? connection_window_ : call_.window;
    if (credit == 0 || window + credit > kLargestWindow) {
      return fail(Http2Error::kFlowControl, "a WINDOW_UPDATE that cannot be");
    }
    window += credit;
    return true;
  }

  Http2Answer& answer_;
  Http2Call call_;
  const char* fault_ = nullptr;
  int64_t connection_window_ = 0;
  int64_t initial_window_ = 0;
  int64_t largest_data_ = 0;        // in one frame
  Credit unreturned_;
  Credit unreturned_on_call_;
  uint32_t next_stream_ = 1;
  bool greeted_ = false;            // the peer's SETTINGS have arrived
  bool going_away_ = false;
  size_t filled_ = 0;
  ControlBuffer control_;
  HeaderBlock block_;
  uint8_t received_[Frame::kHead + Frame::kMaxPayload];
};

}  // namespace internal

}  // namespace otel_bridge
