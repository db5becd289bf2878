// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// The client's end of one HTTP/2 connection (RFC 9113) with one call at a time, as a machine that is fed bytes and gives bytes:
// it knows no socket. Nothing here is for applications.
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

#include "otel_bridge_hpack.h"

namespace otel_bridge {
namespace detail {

/// Error codes of RFC 9113 section 7, as far as we say them.
enum class Http2Error : uint32_t {
  kNone = 0,
  kProtocol = 1,
  kFlowControl = 3,
  kFrameSize = 6,
  kRefusedStream = 7,
  kCancel = 8,
  kCompression = 9,
  kEnhanceYourCalm = 11,
};

inline void put_u32(uint8_t* out, uint32_t value) {
  for (int i = 0; i < 4; ++i) out[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

inline uint32_t get_u32(const uint8_t* in) {
  return static_cast<uint32_t>(in[0]) << 24 | static_cast<uint32_t>(in[1]) << 16 | static_cast<uint32_t>(in[2]) << 8 | in[3];
}

/// Takes what arrives for the call.
class Http2Answer : public HeaderSink {
 public:
  virtual void data(std::string_view bytes) = 0;

 protected:
  ~Http2Answer() = default;
};

/// The call, as the connection sees it.
struct Http2Call {
  uint32_t stream = 0;
  int64_t window = 0;         ///< bytes of DATA that the peer lets us send on it; may be negative
  bool answered = false;      ///< something of the answer has arrived
  bool ended = true;          ///< nothing more will arrive
  bool reset = false;         ///< ended by RST_STREAM, with `reset_code`
  bool not_processed = false; ///< ended, and the peer vouches that it has done nothing with it
  uint32_t reset_code = 0;
};

class Http2Connection {
 public:
  static constexpr size_t kFrameHead = 9;
  static constexpr size_t kMaxPayload = 16384;      // the least that a peer must take, and the most that it may send us
  static constexpr size_t kLargestData = 256 * 1024;  // the most that we send at once: an acknowledgement waits behind it
  static constexpr uint32_t kLastStream = 0x7fffffff;
  enum Type : uint8_t { kData, kHeaders, kPriority, kReset, kSettings, kPushPromise, kPing, kGoAway, kWindowUpdate, kContinuation };
  enum Flag : uint8_t { kNone = 0, kAck = 1, kEndStream = 1, kEndHeaders = 4, kPadded = 8, kWithPriority = 32 };

  explicit Http2Connection(Http2Answer& answer) : answer_(answer) {}

  /// Begin anew: the preface waits in `control()`.
  void open(uint32_t first_stream = 1) {
    static constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // Table size 0 (see otel_bridge_hpack.h), no pushes, and a bound for header lists, which servers heed.
    static constexpr uint8_t kOurSettings[] = {0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 6, 0, 0, 0x20, 0};
    filled_ = block_size_ = control_size_ = 0;
    connection_window_ = initial_window_ = kDefaultWindow;
    largest_data_ = kMaxPayload;
    unreturned_ = unreturned_on_call_ = 0;
    next_stream_ = first_stream;
    block_of_ = block_frames_ = 0;
    greeted_ = going_away_ = false;
    fault_ = nullptr;
    call_ = Http2Call();
    std::memcpy(control_, kPreface, sizeof kPreface - 1);
    control_size_ = sizeof kPreface - 1;
    put_frame(kSettings, 0, 0, kOurSettings, sizeof kOurSettings);
  }

  /// Where the next bytes from the peer go, and how many fit: 0 while `control()` has to be sent first.
  uint8_t* room() { return received_ + filled_; }
  size_t room_size() const { return sizeof received_ - filled_; }

  /// Parse, with `count` bytes more in `room()`. False: the peer broke the protocol. Also to be called, with 0, after `control_sent`.
  bool parse(size_t count) {
    filled_ += count;
    // No SETTINGS that we take is so long that its first byte is not 0; whoever speaks something else may never send nine bytes.
    if (!greeted_ && filled_ != 0 && received_[0] != 0) return fail(Http2Error::kProtocol, "it does not speak HTTP/2");
    size_t at = 0;
    while (fault_ == nullptr && filled_ - at >= kFrameHead && sizeof control_ - control_size_ >= kMostControl) {
      const uint8_t* head = received_ + at;
      const size_t size = static_cast<size_t>(head[0]) << 16 | static_cast<size_t>(head[1]) << 8 | head[2];
      if (!greeted_ && (head[3] != kSettings || (head[4] & kAck) != 0)) return fail(Http2Error::kProtocol, "it does not speak HTTP/2");
      if (size > kMaxPayload) return fail(Http2Error::kFrameSize, "a frame is longer than was announced");
      if (filled_ - at - kFrameHead < size) break;
      greeted_ = true;
      at += kFrameHead + size;
      if (!frame(head[3], head[4], get_u32(head + 5) & kLastStream, head + kFrameHead, size)) return false;
    }
    filled_ -= at;
    if (at != 0) std::memmove(received_, received_ + at, filled_);
    return fault_ == nullptr;
  }

  /// What has to be sent, at the next boundary between frames.
  const uint8_t* control() const { return control_; }
  size_t control_size() const { return control_size_; }
  void control_sent(size_t count) {
    control_size_ -= count;
    std::memmove(control_, control_ + count, control_size_);
  }

  /// What the peer did wrong; null: nothing.
  const char* fault() const { return fault_; }
  bool can_begin() const { return fault_ == nullptr && !going_away_ && next_stream_ <= kLastStream; }

  /// Begin a call; its number. Only if `can_begin()`.
  uint32_t begin() {
    call_ = Http2Call();
    call_.stream = next_stream_;
    call_.window = initial_window_;
    call_.ended = false;
    unreturned_on_call_ = 0;
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
    if (sizeof control_ - control_size_ < kMostControl) return false;
    put_u32_frame(kReset, call_.stream, static_cast<uint32_t>(Http2Error::kCancel));
    return true;
  }

  /// Write the head of a frame of `size` bytes.
  static void put_head(uint8_t* out, Type type, uint8_t flags, uint32_t stream, size_t size) {
    for (int i = 0; i < 3; ++i) out[i] = static_cast<uint8_t>(size >> (16 - 8 * i));
    out[3] = type;
    out[4] = flags;
    put_u32(out + 5, stream);
  }

 private:
  static constexpr int64_t kDefaultWindow = 65535;
  static constexpr int64_t kLargestWindow = 0x7fffffff;
  static constexpr int64_t kReturnAt = kDefaultWindow / 2;  // credit is given back in halves of a window
  static constexpr size_t kMostControl = 40;                // the most that one frame makes us say: two of 13 bytes, or GOAWAY
  static constexpr uint32_t kMostContinuations = 16;

  bool fail(Http2Error code, const char* why) {
    if (fault_ != nullptr) return false;
    fault_ = why;
    uint8_t payload[8] = {};
    put_u32(payload + 4, static_cast<uint32_t>(code));
    if (sizeof control_ - control_size_ >= kMostControl) put_frame(kGoAway, 0, 0, payload, sizeof payload);
    return false;
  }

  void put_frame(Type type, uint8_t flags, uint32_t stream, const void* payload, size_t size) {
    put_head(control_ + control_size_, type, flags, stream, size);
    if (size != 0) std::memcpy(control_ + control_size_ + kFrameHead, payload, size);
    control_size_ += kFrameHead + size;
  }

  void put_u32_frame(Type type, uint32_t stream, uint32_t value) {
    uint8_t payload[4];
    put_u32(payload, value);
    put_frame(type, 0, stream, payload, sizeof payload);
  }

  bool frame(uint8_t type, uint8_t flags, uint32_t stream, const uint8_t* payload, size_t size) {
    if (block_of_ != 0 && (type != kContinuation || stream != block_of_)) {
      return fail(Http2Error::kProtocol, "a frame stands inside a block of headers");
    }
    switch (type) {
      case kData:
        return data(flags, stream, payload, size);
      case kHeaders:
        return headers(flags, stream, payload, size);
      case kContinuation:
        return block_of_ != 0 ? headers_part((flags & kEndHeaders) != 0, payload, size)
                              : fail(Http2Error::kProtocol, "CONTINUATION without HEADERS");
      case kReset:
        return reset(stream, payload, size);
      case kSettings:
        return settings(flags, stream, payload, size);
      case kPushPromise:
        return fail(Http2Error::kProtocol, "PUSH_PROMISE, which was not allowed");
      case kPing:
        if (size != 8) return fail(Http2Error::kFrameSize, "a PING of the wrong size");
        if (stream != 0) return fail(Http2Error::kProtocol, "a PING on a stream");
        if ((flags & kAck) == 0) put_frame(kPing, kAck, 0, payload, size);
        return true;
      case kGoAway:
        return go_away(stream, payload, size);
      case kWindowUpdate:
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
    if ((flags & kPadded) == 0) return true;
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
      call_.ended = (flags & kEndStream) != 0;
    }
    unreturned_ += static_cast<int64_t>(charged);
    if (unreturned_ >= kReturnAt) {
      put_u32_frame(kWindowUpdate, 0, static_cast<uint32_t>(unreturned_));
      unreturned_ = 0;
    }
    if (is_open(stream) && (unreturned_on_call_ += static_cast<int64_t>(charged)) >= kReturnAt) {
      put_u32_frame(kWindowUpdate, stream, static_cast<uint32_t>(unreturned_on_call_));
      unreturned_on_call_ = 0;
    }
    return true;
  }

  bool headers(uint8_t flags, uint32_t stream, const uint8_t* payload, size_t size) {
    if (!known(stream) || !unpad(flags, &payload, &size)) return false;
    if ((flags & kWithPriority) != 0) {
      if (size < 5) return fail(Http2Error::kFrameSize, "HEADERS too short for its priority");
      payload += 5;
      size -= 5;
    }
    block_of_ = stream;
    block_size_ = 0;
    block_frames_ = 0;
    block_ends_stream_ = (flags & kEndStream) != 0;
    return headers_part((flags & kEndHeaders) != 0, payload, size);
  }

  bool headers_part(bool last, const uint8_t* payload, size_t size) {
    if (size > sizeof block_ - block_size_ || block_frames_++ > kMostContinuations) {
      return fail(Http2Error::kEnhanceYourCalm, "a block of headers longer than was announced");
    }
    if (size != 0) std::memcpy(block_ + block_size_, payload, size);
    block_size_ += size;
    if (!last) return true;
    const uint32_t stream = block_of_;
    block_of_ = 0;
    if (!is_open(stream)) return true;  // it stands alone: there is no table that it could have changed
    call_.answered = true;
    if (!reader_.read(block_, block_size_, answer_)) return fail(Http2Error::kCompression, "headers that cannot be decoded");
    call_.ended = block_ends_stream_;
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
    if ((flags & kAck) != 0) return size == 0 || fail(Http2Error::kFrameSize, "an acknowledgement of SETTINGS with content");
    if (size % 6 != 0) return fail(Http2Error::kFrameSize, "SETTINGS of the wrong size");
    for (const uint8_t* at = payload; at != payload + size; at += 6) {
      const uint32_t name = static_cast<uint32_t>(at[0]) << 8 | at[1];
      const int64_t value = get_u32(at + 2);
      if (name == 5) {
        if (value < int64_t{kMaxPayload} || value > 0xffffff) return fail(Http2Error::kProtocol, "a MAX_FRAME_SIZE that cannot be");
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
    put_frame(kSettings, kAck, 0, nullptr, 0);
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
    if (credit == 0 || window + credit > kLargestWindow) return fail(Http2Error::kFlowControl, "a WINDOW_UPDATE that cannot be");
    window += credit;
    return true;
  }

  Http2Answer& answer_;
  HeaderReader reader_;
  Http2Call call_;
  const char* fault_ = nullptr;
  int64_t connection_window_ = 0;
  int64_t initial_window_ = 0;
  int64_t largest_data_ = 0;        // in one frame
  int64_t unreturned_ = 0;          // bytes of DATA since credit was last given back
  int64_t unreturned_on_call_ = 0;
  uint32_t next_stream_ = 1;
  uint32_t block_of_ = 0;           // stream whose block of headers is under way; 0: none
  uint32_t block_frames_ = 0;
  bool block_ends_stream_ = false;
  bool greeted_ = false;            // the peer's SETTINGS have arrived
  bool going_away_ = false;
  size_t filled_ = 0;
  size_t block_size_ = 0;
  size_t control_size_ = 0;
  uint8_t control_[512];
  uint8_t block_[8192];
  uint8_t received_[kFrameHead + kMaxPayload];
};

}  // namespace detail
}  // namespace otel_bridge
