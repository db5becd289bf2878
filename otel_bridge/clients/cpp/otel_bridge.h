// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// otel-bridge for device runtimes: ExecuTorch's profiling events, from memory of fixed size, to a bridge.
//
//     static otel_bridge::StaticRingTracer<> tracer;                          // hand it to a Module or a Method
//     otel_bridge::StreamInfo info;                                           // who and what this process is
//     otel_bridge::Uploader uploader(tracer, info, transport, buffer, size);  // on another thread: uploader.poll()
//
//     {
//       otel_bridge::Inference inference(tracer, "forward");                  // optional: method, trace context, error
//       inference.end(module.execute("forward", inputs).error());
//     }
//
// Invariants
// * Nothing is allocated, thrown or aborted, and the executing thread never waits. What does not fit is dropped and counted by
//   reason; the count reaches the bridge with the next request that gets through.
// * One thread at a time produces events (as ExecuTorch's EventTracer asks), one consumes them; they may be different threads,
//   and neither waits for the other. A second producer at the same moment loses its event, which is counted.
// * An event that is in the ring keeps its text and metadata until it is encoded; encoded bytes are kept, unchanged and under
//   one sequence number, until a transport has handed them over or was told that they never will be taken.
// * Needs ExecuTorch 0.7 or later, its headers only, and a toolchain of C++17; compiles without exceptions and RTTI.
//
// In reading order: platform, protobuf, attributes, drops, memory, tracer, encoder, transports, uploader, build id.
#pragma once

#include <executorch/runtime/core/error.h>
#include <executorch/runtime/core/event_tracer.h>
#include <executorch/runtime/platform/platform.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <utility>

// 1 where the system has clocks, sleep and a source of random bytes; 0 on bare metal, where `Platform` is filled in by hand.
#ifndef OTEL_BRIDGE_HOSTED
#if defined(__unix__) || defined(__APPLE__) || defined(_WIN32)
#define OTEL_BRIDGE_HOSTED 1
#else
#define OTEL_BRIDGE_HOSTED 0
#endif
#endif

// 1: a second producer at the same moment is noticed. 0 where the processor cannot exchange a byte in one step (Cortex-M0).
#ifndef OTEL_BRIDGE_NOTICE_TWO_PRODUCERS
#if ATOMIC_BOOL_LOCK_FREE == 2
#define OTEL_BRIDGE_NOTICE_TWO_PRODUCERS 1
#else
#define OTEL_BRIDGE_NOTICE_TWO_PRODUCERS 0
#endif
#endif

#if OTEL_BRIDGE_HOSTED
#include <chrono>
#include <thread>
#endif

namespace otel_bridge {

namespace et = ::executorch::runtime;

// ---------------------------------------------------------------------------------------------------------------------------
// Platform: what ExecuTorch's own platform layer has not.

/// Functions of the system. The defaults are those of a hosted C++ library; on bare metal each may be replaced, or left.
struct Platform {
  /// Wall clock, nanoseconds since 1970; 0: there is none, and the bridge places events by the time of receipt.
  uint64_t (*unix_ns)() = &default_unix_ns;
  /// A clock that never goes back, milliseconds. Without a host: ExecuTorch's ticks.
  uint64_t (*now_ms)() = &default_now_ms;
  /// Lets time pass. Without a host it returns at once, and `flush` counts its calls instead of time.
  void (*sleep_ms)(uint32_t) = &default_sleep_ms;

  static uint64_t default_unix_ns() {
#if OTEL_BRIDGE_HOSTED
    using std::chrono::nanoseconds;
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<nanoseconds>(since_epoch).count());
#else
    return 0;
#endif
  }

  static uint64_t default_now_ms() {
#if OTEL_BRIDGE_HOSTED
    using std::chrono::milliseconds;
    const auto since_start = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(since_start).count());
#else
    const auto ratio = et::pal_ticks_to_ns_multiplier();
    const uint64_t ticks_a_ms = ratio.numerator == 0 ? 1 : ratio.denominator * 1000000U / ratio.numerator;
    return et::pal_current_ticks() / (ticks_a_ms == 0 ? 1 : ticks_a_ms);
#endif
  }

  static void default_sleep_ms(uint32_t ms) {
#if OTEL_BRIDGE_HOSTED
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
#else
    (void)ms;
#endif
  }
};

/// Draws the 16 bytes of a stream id from the system. False, and unchanged bytes, where it has no source of them (bare metal).
inline bool draw_stream_id(uint8_t id[16]) {
#if OTEL_BRIDGE_HOSTED && !defined(_WIN32)
  std::FILE* source = std::fopen("/dev/urandom", "rb");
  if (source == nullptr) {
    return false;
  }
  uint8_t drawn[16];
  const bool whole = std::fread(drawn, 1, sizeof(drawn), source) == sizeof(drawn);
  std::fclose(source);
  if (whole) {
    std::memcpy(id, drawn, sizeof(drawn));
  }
  return whole;
#else
  (void)id;
  return false;
#endif
}

// ---------------------------------------------------------------------------------------------------------------------------
// Protobuf: as much of its wire format as the requests need.

namespace internal {

constexpr size_t varint_size(uint64_t value) {
  size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

constexpr uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ (value < 0 ? ~uint64_t{0} : uint64_t{0});
}

/// Size of a field of bytes: tag (one byte), length, content.
constexpr size_t field_size(size_t length) {
  return 1 + varint_size(length) + length;
}

enum : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2 };

constexpr uint8_t tag(unsigned field, uint8_t type) {
  return static_cast<uint8_t>(field << 3 | type);
}

/// Writes into a buffer and never past it: what does not fit leaves `ok()` false, for good.
class Writer {
 public:
  Writer(void* buffer, size_t capacity) : begin_(static_cast<uint8_t*>(buffer)), at_(begin_), end_(begin_ + capacity) {}

  bool ok() const { return ok_; }
  size_t size() const { return static_cast<size_t>(at_ - begin_); }

  void byte(uint8_t value) {
    if (room(1)) {
      *at_++ = value;
    }
  }

  void varint(uint64_t value) {
    if (value < 0x80) {
      byte(static_cast<uint8_t>(value));
    } else if (room(varint_size(value))) {
      for (; value >= 0x80; value >>= 7) {
        *at_++ = static_cast<uint8_t>(value | 0x80);
      }
      *at_++ = static_cast<uint8_t>(value);
    }
  }

  void raw(const void* data, size_t size) {
    if (size != 0 && room(size)) {
      std::memcpy(at_, data, size);
      at_ += size;
    }
  }

  void number(unsigned field, uint64_t value) {
    byte(tag(field, kVarint));
    varint(value);
  }

  void number_if(unsigned field, uint64_t value) {
    if (value != 0) {
      number(field, value);
    }
  }

  void head(unsigned field, size_t length) {
    byte(tag(field, kBytes));
    varint(length);
  }

  void bytes(unsigned field, const void* data, size_t size) {
    head(field, size);
    raw(data, size);
  }

  void text_if(unsigned field, const char* text) {
    if (text != nullptr && *text != '\0') {
      bytes(field, text, std::strlen(text));
    }
  }

 private:
  bool room(size_t size) {
    ok_ = ok_ && size <= static_cast<size_t>(end_ - at_);
    return ok_;
  }

  uint8_t* begin_;
  uint8_t* at_;
  uint8_t* end_;
  bool ok_ = true;
};

/// A field of bytes in a buffer that holds nothing but such fields, with tags of one byte.
struct Field {
  uint8_t tag;
  const uint8_t* begin;    // of the tag
  const uint8_t* content;
  const uint8_t* end;      // of the content
};

inline Field field_at(const uint8_t* at) {
  Field field{*at, at, at + 1, nullptr};
  size_t length = 0;
  for (unsigned shift = 0;; shift += 7) {
    const uint8_t byte = *field.content++;
    length |= static_cast<size_t>(byte & 0x7F) << shift;
    if (byte < 0x80) {
      break;
    }
  }
  field.end = field.content + length;
  return field;
}

constexpr uint32_t power_of_two_below(uint32_t value) {
  while ((value & (value - 1)) != 0) {
    value &= value - 1;
  }
  return value;
}

/// A hash of bytes, 8 at a time: identifiers are looked up by it once an event.
inline uint32_t hash_of(const void* data, size_t size) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15U;
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t hash = size * kFactor;
  uint64_t word = 0;
  for (; size >= 8; at += 8, size -= 8) {
    std::memcpy(&word, at, 8);
    hash = (hash ^ word) * kFactor;
    hash ^= hash >> 32;
  }
  word = 0;
  for (size_t i = 0; i < size; ++i) {
    word |= static_cast<uint64_t>(at[i]) << (8 * i);
  }
  hash = (hash ^ word) * kFactor;
  return static_cast<uint32_t>(hash >> 32);
}

}  // namespace internal

// ---------------------------------------------------------------------------------------------------------------------------
// Attributes, by OpenTelemetry's names.

/// A value of an attribute. Text is copied when the attribute is set.
class Value {
 public:
  static Value text(const char* value) { return {1, value == nullptr ? "" : value, 0}; }
  static Value integer(int64_t value) { return {2, nullptr, internal::zigzag(value)}; }
  static Value number(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return {3, nullptr, bits};
  }
  static Value flag(bool value) { return {4, nullptr, value ? 1U : 0U}; }

  size_t encoded_size() const {
    return field_ == 1 ? internal::field_size(std::strlen(text_)) : 1 + (field_ == 3 ? 8 : internal::varint_size(bits_));
  }

  void encode(internal::Writer& out) const {
    if (field_ == 1) {
      out.bytes(1, text_, std::strlen(text_));
    } else if (field_ == 3) {
      out.byte(internal::tag(3, internal::kFixed64));
      for (unsigned shift = 0; shift < 64; shift += 8) {
        out.byte(static_cast<uint8_t>(bits_ >> shift));
      }
    } else {
      out.number(field_, bits_);
    }
  }

 private:
  Value(unsigned field, const char* text, uint64_t bits) : field_(field), text_(text), bits_(bits) {}

  unsigned field_;
  const char* text_;
  uint64_t bits_;
};

namespace internal {

inline size_t attribute_size(const char* key, const Value& value) {
  return field_size(std::strlen(key)) + field_size(value.encoded_size());
}

inline void write_attribute(Writer& out, unsigned field, const char* key, const Value& value) {
  out.head(field, attribute_size(key, value));
  out.bytes(1, key, std::strlen(key));
  out.head(2, value.encoded_size());
  value.encode(out);
}

}  // namespace internal

/// The attributes of a stream's resource: `service.name`, `device.model.identifier`, `os.name`, ... `Bytes` is all the room.
template <size_t Bytes>
class Attributes {
 public:
  /// Adds an attribute. False: the key is empty, or there is no room for it, and nothing was added.
  bool add(const char* key, const Value& value) {
    if (key == nullptr || *key == '\0') {
      return false;
    }
    internal::Writer out(bytes_ + size_, Bytes - size_);
    internal::write_attribute(out, 4, key, value);
    size_ += out.ok() ? out.size() : 0;
    return out.ok();
  }

  const uint8_t* data() const { return bytes_; }
  size_t size() const { return size_; }

 private:
  uint8_t bytes_[Bytes];
  size_t size_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------------
// Drops: why an event did not reach the bridge.

/// Each event that the runtime ended is sent once, or counted once under one of these.
enum class Drop : uint8_t {
  kRingFull,            ///< no room in the ring, for the event or for the beginning of its block
  kIdentifiersFull,     ///< the table of identifiers, or the room for their text, is used up
  kIdentifierTooLong,   ///< a name of more than 4,096 bytes, which the bridge would refuse
  kMetadataFull,        ///< no room in the metadata arena
  kMetadataTooLarge,    ///< metadata that neither the arena nor a request can ever hold
  kNoBlock,             ///< logged before `create_event_block`, or after the block was ended
  kMisuse,              ///< both or neither of name and identifier, or an entry that this tracer did not hand out for it
  kChainOutOfRange,     ///< a chain index above 255
  kTwoProducers,        ///< two threads at the same moment
  kBufferTooSmall,      ///< an event that fits into no request of the uploader's buffer
  kInstructionsFull,    ///< in an inference that goes in parts: more instructions than the table has room for
  kRejected,            ///< the receiver said that it will never take the request
};

constexpr size_t kDropReasons = 12;

/// The reason as the bridge shows it.
inline const char* name_of(Drop reason) {
  static constexpr const char* kNames[kDropReasons] = {
      "ring_full", "identifiers_full",   "identifier_too_long", "metadata_full",    "metadata_too_large", "no_block",
      "misuse",    "chain_out_of_range", "two_producers",       "buffer_too_small", "instructions_full",  "rejected"};
  return kNames[static_cast<size_t>(reason)];
}

// ---------------------------------------------------------------------------------------------------------------------------
// Memory: all that a tracer and its encoder use.

namespace internal {

enum RecordKind : uint8_t { kBlockBegin = 0, kRuntime = 1, kCall = 2, kScope = 3, kDelegate = 4, kBlockEnd = 5, kSkipped = 6 };
enum BlockKind : uint8_t { kLoad = 1, kExecute = 2, kOther = 3 };

/// One entry of the ring: an event, the beginning of a block, or its end.
struct Record {
  uint64_t start;       // ticks; of a block: executions since load
  uint64_t duration;    // ticks, modulo 2^64; of a block: its position in the stream
  uint32_t identifier;  // index of an `Identifier`; of a block: 1 + that of its method, 0: none; of its end: the error code
  uint32_t metadata;    // 0: none; once the event is planned: 1 + index in the request
  int32_t instruction;  // -1: outside any
  uint8_t kind;         // `RecordKind`
  uint8_t chain;        // of a block: `BlockKind`
};
static_assert(sizeof(Record) == 32, "two records share a cache line");

struct Identifier {
  static constexpr uint32_t kNumber = 0xFFFFFFFFU;

  uint32_t hash;
  uint32_t at;      // offset of the text, or the number
  uint32_t length;  // of the text, or `kNumber`
  uint8_t is_call;  // a name that ExecuTorch gives to instructions
};

constexpr size_t kMaxMethodBytes = 128;
constexpr size_t kMaxBlockNameBytes = 64;  // what is longer is cut
constexpr uint32_t kBlockNameRoom = static_cast<uint32_t>(field_size(kMaxBlockNameBytes));  // beside a context

/// How often an instruction was completed, in an inference that goes in parts.
struct Completions {
  uint64_t key;      // 0: free
  uint32_t planned;  // including the request that is being encoded
  uint32_t sent;     // before it
};

}  // namespace internal

/// How much a tracer can hold. Counts are rounded down to powers of two.
struct RingSizes {
  uint32_t events = 4096;           ///< 32 bytes each; a block takes two beside its events, and a sixteenth is kept for blocks
  uint32_t identifiers = 512;       ///< distinct names and delegate debug identifiers; 32 bytes each
  uint32_t text_bytes = 16384;      ///< text of all identifiers
  uint32_t metadata_bytes = 16384;  ///< metadata and contexts that are not encoded yet, each with 4 bytes before it; more than
                                    ///< `context_bytes` by what the largest metadata has, and 100
  uint32_t context_bytes = 1024;    ///< trace context and attributes of an inference; twice
  uint32_t instructions = 512;      ///< of an inference that has to go in parts; 16 bytes each
};

/// Where a tracer and its encoder keep what they need: one stretch of memory that the caller gives, divided.
class RingMemory {
 public:
  RingMemory() = default;

  /// Divides `memory`; with less than `bytes_for(sizes)` nothing is kept in it, and a tracer drops every event.
  RingMemory(void* memory, size_t bytes, const RingSizes& sizes) {
    if (memory == nullptr || bytes < bytes_for(sizes)) {
      return;
    }
    auto* at = static_cast<unsigned char*>(memory);
    at += (kAlignment - reinterpret_cast<uintptr_t>(at) % kAlignment) % kAlignment;
    record_count = internal::power_of_two_below(sizes.events);
    completion_count = internal::power_of_two_below(sizes.instructions);
    identifier_count = internal::power_of_two_below(sizes.identifiers);
    metadata_bytes = internal::power_of_two_below(sizes.metadata_bytes);
    context_bytes = sizes.context_bytes;
    text_bytes = sizes.text_bytes;
    records = take<internal::Record>(at, record_count);
    completions = take<internal::Completions>(at, completion_count);
    identifiers = take<internal::Identifier>(at, identifier_count);
    slots = take<uint32_t>(at, size_t{identifier_count} * 2);
    chosen = take<uint32_t>(at, size_t{identifier_count} * 2);
    metadata = take<uint8_t>(at, metadata_bytes);
    context = take<uint8_t>(at, size_t{context_bytes} * 2 + internal::kBlockNameRoom);
    text = take<char>(at, text_bytes);
  }

  static constexpr size_t bytes_for(const RingSizes& sizes) {
    return kAlignment + size_t{sizes.events} * sizeof(internal::Record) +
           size_t{sizes.instructions} * sizeof(internal::Completions) +
           size_t{sizes.identifiers} * (sizeof(internal::Identifier) + 4 * sizeof(uint32_t)) + sizes.metadata_bytes +
           size_t{sizes.context_bytes} * 2 + internal::kBlockNameRoom + sizes.text_bytes;
  }

 private:
  friend class RingTracer;
  friend class Encoder;

  static constexpr size_t kAlignment = 8;

  template <class Item>
  static Item* take(unsigned char*& at, size_t count) {
    auto* const items = reinterpret_cast<Item*>(at);
    at += count * sizeof(Item);
    return items;
  }

  internal::Record* records = nullptr;
  internal::Completions* completions = nullptr;
  internal::Identifier* identifiers = nullptr;
  uint32_t* slots = nullptr;   // by hash: 1 + the index of an identifier
  uint32_t* chosen = nullptr;  // the identifiers of a request, and for each identifier its index there
  uint8_t* metadata = nullptr;
  uint8_t* context = nullptr;  // of the next block; and a copy of that of the inference which goes in parts
  char* text = nullptr;
  uint32_t record_count = 0;
  uint32_t completion_count = 0;
  uint32_t identifier_count = 0;
  uint32_t metadata_bytes = 0;
  uint32_t context_bytes = 0;
  uint32_t text_bytes = 0;
};

// ---------------------------------------------------------------------------------------------------------------------------
// Tracer: the producer's side.

class Encoder;

/// An ExecuTorch `EventTracer` that puts events into a ring. Give it to a `Module` or `Method`; drain it with an `Uploader`.
///
/// Semantics are those of ExecuTorch's ETDumpGen (devtools/etdump/etdump_flatcc.cpp): an event is recorded when it ends, and a
/// delegate event under the instruction that runs at that moment. Where ETDumpGen aborts, this counts (`Drop`).
class RingTracer : public et::EventTracer {
 public:
  explicit RingTracer(const RingMemory& memory) : memory_(memory) {
    reserve_ = memory_.record_count / 16 < kBlockRecords + 1 ? kBlockRecords + 1 : memory_.record_count / 16;
    for (uint32_t i = 0; i < 2 * memory_.identifier_count; ++i) {
      memory_.slots[i] = 0;
      memory_.chosen[i] = 0;
    }
    for (size_t i = 0; i < kDropReasons; ++i) {
      drops_[i].store(0, std::memory_order_relaxed);
    }
  }

  RingTracer(const RingTracer&) = delete;
  RingTracer& operator=(const RingTracer&) = delete;

  // What an inference says of itself. By the executing thread, between inferences. Each returns false, and leaves the thing
  // unset, where it does not fit into the context or is not well formed.

  /// The method that runs from now on, until it is set anew; nullptr: unset, and the bridge finds it from the events.
  /// ExecuTorch does not tell a tracer. Set it where a program has several methods.
  bool set_method(const char* name) {
    const Turn turn(*this);
    if (!turn.mine()) {
      return false;
    }
    method_ = 0;
    if (name == nullptr || *name == '\0') {
      return true;
    }
    const int64_t handle = std::strlen(name) > internal::kMaxMethodBytes ? failed(Drop::kIdentifierTooLong) : intern(name);
    method_ = handle > 0 ? static_cast<uint32_t>(handle) : 0;
    return method_ != 0;
  }

  /// W3C `traceparent` and `tracestate` of the app's span: the next block becomes its child. Both hold until `end_block`.
  bool set_trace_context(const char* traceparent, const char* tracestate = nullptr) {
    const size_t length = traceparent == nullptr ? 0 : std::strlen(traceparent);
    const bool sound = length == 0 || (length >= 55 && length <= 255);
    const bool parent_set = set_field(6, traceparent, sound ? length : 0);
    const size_t state_length = tracestate == nullptr || length == 0 ? 0 : std::strlen(tracestate);
    const bool state_sound = state_length <= 512;
    return set_field(7, tracestate, state_sound ? state_length : 0) && parent_set && sound && state_sound;
  }

  /// An attribute of the inferences that follow, until `end_block`: thermal state, threads, a bucket of the input's shape.
  bool set_attribute(const char* key, const Value& value) {
    const Turn turn(*this);
    if (!turn.mine() || key == nullptr || *key == '\0') {
      return false;
    }
    internal::Writer out(memory_.context + context_size_, memory_.context_bytes - context_size_);
    internal::write_attribute(out, 9, key, value);
    context_size_ += out.ok() ? static_cast<uint32_t>(out.size()) : 0;
    return out.ok();
  }

  /// Ends the open block, so that it is sent now and not when the next one begins; does nothing where none is open.
  /// `error`: what the inference returned. Trace context and attributes are unset.
  void end_block(et::Error error = et::Error::Ok) {
    const Turn turn(*this);
    if (!turn.mine()) {
      return;
    }
    close_block(error);
    lost_ = false;
    for (const unsigned field : {6U, 7U, 9U}) {
      erase_field(field);
    }
  }

  // ExecuTorch's side.

  void create_event_block(const char* name) override {
    const Turn turn(*this);
    if (!turn.mine()) {
      torn_.store(true, std::memory_order_relaxed);
      return;
    }
    torn_.store(false, std::memory_order_relaxed);
    internal::Record record{};
    record.kind = internal::kBlockBegin;
    record.chain = internal::kOther;
    if (name != nullptr && std::strcmp(name, "Execute") == 0) {
      record.chain = internal::kExecute;
      record.start = executions_++;
      record.identifier = method_;
    } else if (name != nullptr && std::strcmp(name, "Default") == 0) {
      record.chain = internal::kLoad;
    }
    record.duration = position_++;
    lost_reason_ = Drop::kRingFull;
    lost_ = room_for_records() < kBlockRecords || !keep_context(record, name);
    if (lost_) {
      return close_block(et::Error::Ok);  // the block before, which a beginning would have ended
    }
    push(record);
    open_ = true;
  }

  et::EventTracerEntry start_profiling(const char* name, et::ChainID chain_id = et::kUnsetChainId,
                                       et::DebugHandle debug_handle = et::kUnsetDebugHandle) override {
    et::EventTracerEntry entry{};
    entry.delegate_event_id_type = et::DelegateDebugIdType::kNone;
    entry.chain_id = chain_id == et::kUnsetChainId ? chain_id_ : chain_id;
    entry.debug_handle = chain_id == et::kUnsetChainId ? debug_handle_ : debug_handle;
    {
      const Turn turn(*this);
      entry.event_id = name == nullptr ? failed(Drop::kMisuse) : turn.mine() ? intern(name) : failed(Drop::kTwoProducers);
    }
    entry.start_time = et::pal_current_ticks();
    return entry;
  }

  void end_profiling(et::EventTracerEntry entry) override {
    const uint64_t end = et::pal_current_ticks();
    const Turn turn(*this);
    if (!turn.mine()) {
      return drop_of_another();
    }
    if (entry.delegate_event_id_type != et::DelegateDebugIdType::kNone) {
      return drop(Drop::kMisuse);
    }
    const uint32_t identifier = index_of(entry.event_id);
    if (identifier == kNoIdentifier) {
      return drop_or_count(reason_of(entry.event_id));
    }
    const bool outside = entry.chain_id == et::kUnsetChainId || static_cast<int32_t>(entry.debug_handle) < 0;
    const auto inside = memory_.identifiers[identifier].is_call != 0 ? internal::kCall : internal::kScope;
    push_event(outside ? internal::kRuntime : inside, identifier, entry.chain_id, entry.debug_handle, entry.start_time, end,
               nullptr, 0);
  }

  et::EventTracerEntry start_profiling_delegate(const char* name, et::DelegateDebugIntId delegate_debug_index) override {
    et::EventTracerEntry entry{};
    entry.delegate_event_id_type = name == nullptr ? et::DelegateDebugIdType::kInt : et::DelegateDebugIdType::kStr;
    entry.chain_id = chain_id_;
    entry.debug_handle = debug_handle_;
    if ((name == nullptr) == (delegate_debug_index == et::kUnsetDelegateDebugIntId)) {
      entry.delegate_event_id_type = et::DelegateDebugIdType::kNone;
      entry.event_id = failed(Drop::kMisuse);
    } else if (name == nullptr) {
      entry.event_id = delegate_debug_index;
    } else {
      const Turn turn(*this);
      entry.event_id = turn.mine() ? intern(name) : failed(Drop::kTwoProducers);
    }
    entry.start_time = et::pal_current_ticks();
    return entry;
  }

  void end_profiling_delegate(et::EventTracerEntry entry, const void* metadata = nullptr, size_t metadata_len = 0) override {
    const uint64_t end = et::pal_current_ticks();
    const Turn turn(*this);
    if (!turn.mine()) {
      return drop_of_another();
    }
    int64_t handle = entry.event_id;
    if (entry.delegate_event_id_type == et::DelegateDebugIdType::kInt) {
      handle = handle == static_cast<int32_t>(handle) ? intern(static_cast<int32_t>(handle)) : failed(Drop::kMisuse);
    } else if (entry.delegate_event_id_type == et::DelegateDebugIdType::kNone && handle >= 0) {
      handle = failed(Drop::kMisuse);
    }
    push_delegate(handle, entry.start_time, end, metadata, metadata_len);
  }

  void log_profiling_delegate(const char* name, et::DelegateDebugIntId delegate_debug_index, et_timestamp_t start_time,
                              et_timestamp_t end_time, const void* metadata = nullptr, size_t metadata_len = 0) override {
    const Turn turn(*this);
    if (!turn.mine()) {
      return drop_of_another();
    }
    int64_t handle = failed(Drop::kMisuse);
    if ((name == nullptr) != (delegate_debug_index == et::kUnsetDelegateDebugIntId)) {
      handle = name == nullptr ? intern(delegate_debug_index) : intern(name);
    }
    push_delegate(handle, start_time, end_time, metadata, metadata_len);
  }

  /// Allocations and values give no spans: they are not recorded.
  void track_allocation(et::AllocatorID, size_t) override {}
  et::AllocatorID track_allocator(const char*) override { return 0; }
  et::Result<bool> log_evalue(const et::EValue&, et::LoggedEValueType) override { return false; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId,
                                                    const ::executorch::aten::Tensor&) override {
    return false;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId,
                                                    const et::ArrayRef<::executorch::aten::Tensor>) override {
    return false;
  }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const int&) override { return false; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const bool&) override { return false; }
  et::Result<bool> log_intermediate_output_delegate(const char*, et::DelegateDebugIntId, const double&) override {
    return false;
  }
  void set_delegation_intermediate_output_filter(et::EventTracerFilterBase*) override {}

  // For any thread.

  /// Events dropped so far by the tracer itself, modulo 2^32.
  uint32_t dropped(Drop reason) const { return drops_[static_cast<size_t>(reason)].load(std::memory_order_relaxed); }

  /// Whether ring or arena are more than half full.
  bool is_pressed() const {
    const uint32_t records = head_.load(std::memory_order_acquire) - tail_.load(std::memory_order_relaxed);
    const uint32_t bytes = arena_head_.load(std::memory_order_relaxed) - arena_tail_.load(std::memory_order_relaxed);
    return records > memory_.record_count / 2 || bytes > memory_.metadata_bytes / 2;
  }

 private:
  friend class Encoder;

  static constexpr uint32_t kNoIdentifier = 0xFFFFFFFFU;
  static constexpr size_t kMaxNameBytes = 4096;       // what the bridge takes (otel_bridge/wire/columns.py)
  static constexpr int32_t kMaxChain = 255;
  static constexpr uint32_t kBlockRecords = 3;        // its beginning, `Method::execute`, its end
  static constexpr uint32_t kLengthBytes = 4;         // before each entry of the arena

  /// The right to produce, for one call; only one at a time has it, and nobody waits for it.
  class Turn {
   public:
#if OTEL_BRIDGE_NOTICE_TWO_PRODUCERS
    explicit Turn(RingTracer& tracer) : tracer_(tracer), mine_(!tracer.busy_.exchange(true, std::memory_order_acquire)) {}
    ~Turn() {
      if (mine_) {
        tracer_.busy_.store(false, std::memory_order_release);
      }
    }
#else
    explicit Turn(RingTracer& tracer) : tracer_(tracer), mine_(true) {}
#endif
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    bool mine() const { return mine_; }

   private:
    [[maybe_unused]] RingTracer& tracer_;
    const bool mine_;
  };

  // A handle is 1 + the index of an identifier, or below 0 for the reason why there is none: so it fits into an entry's
  // `event_id`, and an entry that nobody filled in has none.
  static int64_t failed(Drop reason) { return -1 - static_cast<int64_t>(reason); }

  static Drop reason_of(int64_t handle) {
    return handle < 0 && handle >= -static_cast<int64_t>(kDropReasons) ? static_cast<Drop>(-1 - handle) : Drop::kMisuse;
  }

  uint32_t index_of(int64_t handle) const {
    return handle > 0 && handle <= static_cast<int64_t>(known_) ? static_cast<uint32_t>(handle - 1) : kNoIdentifier;
  }

  int64_t intern(const char* name) {
    const size_t length = std::strlen(name);
    if (length == 0) {
      return failed(Drop::kMisuse);
    }
    if (length > kMaxNameBytes) {
      return failed(Drop::kIdentifierTooLong);
    }
    return intern(internal::hash_of(name, length), static_cast<uint32_t>(length), name, 0);
  }

  int64_t intern(int32_t number) {
    const auto bits = static_cast<uint32_t>(number);
    return intern(bits * 0x9E3779B1U, internal::Identifier::kNumber, nullptr, bits);
  }

  int64_t intern(uint32_t hash, uint32_t length, const char* name, uint32_t number) {
    if (memory_.identifier_count == 0) {
      return failed(Drop::kIdentifiersFull);
    }
    const uint32_t mask = 2 * memory_.identifier_count - 1;
    uint32_t slot = (hash ^ hash >> 15) & mask;
    for (; memory_.slots[slot] != 0; slot = (slot + 1) & mask) {
      const uint32_t index = memory_.slots[slot] - 1;
      const internal::Identifier& known = memory_.identifiers[index];
      if (known.hash == hash && known.length == length &&
          (name == nullptr ? known.at == number : std::memcmp(memory_.text + known.at, name, length) == 0)) {
        return int64_t{index} + 1;
      }
    }
    const uint32_t text = name == nullptr ? 0 : length;
    if (known_ == memory_.identifier_count || text > memory_.text_bytes - text_used_) {
      return failed(Drop::kIdentifiersFull);
    }
    if (name != nullptr) {
      std::memcpy(memory_.text + text_used_, name, length);
    }
    memory_.identifiers[known_] = {hash, name == nullptr ? number : text_used_, length, static_cast<uint8_t>(is_call(name))};
    text_used_ += text;
    memory_.slots[slot] = ++known_;
    return known_;
  }

  /// runtime/executor/method.cpp, `Method::execute_instruction`.
  static bool is_call(const char* name) {
    if (name == nullptr) {
      return false;
    }
    for (const char* call : {"OPERATOR_CALL", "DELEGATE_CALL", "JF_CALL", "MOVE_CALL", "FREE_CALL"}) {
      if (std::strcmp(name, call) == 0) {
        return true;
      }
    }
    return false;
  }

  void drop(Drop reason) {
    std::atomic<uint32_t>& count = drops_[static_cast<size_t>(reason)];
    count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // the producer alone writes it
  }

  void drop_of_another() {
#if OTEL_BRIDGE_NOTICE_TWO_PRODUCERS
    drops_[static_cast<size_t>(Drop::kTwoProducers)].fetch_add(1, std::memory_order_relaxed);
#endif
  }

  void push_delegate(int64_t handle, uint64_t start, uint64_t end, const void* metadata, size_t metadata_len) {
    const uint32_t identifier = index_of(handle);
    if (identifier == kNoIdentifier) {
      return drop_or_count(reason_of(handle));
    }
    push_event(internal::kDelegate, identifier, chain_id_, debug_handle_, start, end, metadata, metadata_len);
  }

  void drop_or_count(Drop reason) { reason == Drop::kTwoProducers ? drop_of_another() : drop(reason); }

  void push_event(internal::RecordKind kind, uint32_t identifier, et::ChainID chain, et::DebugHandle handle, uint64_t start,
                  uint64_t end, const void* metadata, size_t metadata_len) {
    if (torn_.load(std::memory_order_relaxed)) {
      return drop_of_another();
    }
    if (!open_) {
      return drop(lost_ ? lost_reason_ : Drop::kNoBlock);
    }
    if (chain < et::kUnsetChainId || chain > kMaxChain) {
      return drop(Drop::kChainOutOfRange);
    }
    if (metadata_len != 0 && metadata == nullptr) {
      return drop(Drop::kMisuse);
    }
    // When the ring is full, inferences lose their details first: what spans the whole of one may take of the reserve.
    if (room_for_records() <= (kind == internal::kRuntime ? 1 : reserve_)) {
      return drop(Drop::kRingFull);
    }
    if (metadata_len != 0 && !keep_metadata(metadata, metadata_len)) {
      return;
    }
    const bool outside = chain == et::kUnsetChainId || static_cast<int32_t>(handle) < 0;
    internal::Record record;
    record.start = start;
    record.duration = end - start;
    record.identifier = identifier;
    record.metadata = metadata_len != 0 ? 1 : 0;
    record.instruction = outside ? -1 : static_cast<int32_t>(handle);
    record.kind = kind;
    record.chain = outside ? 0 : static_cast<uint8_t>(chain);
    push(record);
  }

  /// There is room: a block begins where there are three records, and its events leave one.
  void close_block(et::Error error) {
    if (open_) {
      internal::Record record{};
      record.kind = internal::kBlockEnd;
      record.identifier = static_cast<uint32_t>(error);
      push(record);
    }
    open_ = false;
  }

  void push(const internal::Record& record) {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    memory_.records[head & (memory_.record_count - 1)] = record;
    head_.store(head + 1, std::memory_order_release);
  }

  uint32_t room_for_records() {
    const uint32_t head = head_.load(std::memory_order_relaxed);
    if (memory_.record_count - (head - known_tail_) <= reserve_) {
      known_tail_ = tail_.load(std::memory_order_acquire);
    }
    return memory_.record_count - (head - known_tail_);
  }

  bool keep_metadata(const void* data, size_t size) {
    // So that the next block finds room for its context.
    const uint32_t reserve = kLengthBytes + memory_.context_bytes + internal::kBlockNameRoom;
    if (size > memory_.metadata_bytes || size + kLengthBytes + reserve > memory_.metadata_bytes) {
      drop(Drop::kMetadataTooLarge);
      return false;
    }
    if (size + kLengthBytes + reserve > room_in_arena()) {
      drop(Drop::kMetadataFull);
      return false;
    }
    const uint32_t head = open_entry(static_cast<uint32_t>(size));
    close_entry(put(head, data, static_cast<uint32_t>(size)));
    return true;
  }

  /// What the block says beside its numbers, as fields of a Block message. False: the arena has no room for it.
  bool keep_context(internal::Record& record, const char* name) {
    const uint8_t* const context_end = memory_.context + context_size_;
    const bool named = record.chain == internal::kOther;
    const bool executes = record.chain == internal::kExecute;
    const char* const shown = name == nullptr || *name == '\0' ? "unnamed" : name;
    size_t name_length = std::strlen(shown);
    name_length = name_length < internal::kMaxBlockNameBytes ? name_length : internal::kMaxBlockNameBytes;
    size_t size = named ? internal::field_size(name_length) : 0;
    for (const uint8_t* at = memory_.context; at != context_end; at = internal::field_at(at).end) {
      size += belongs(at, executes) ? static_cast<size_t>(internal::field_at(at).end - at) : 0;
    }
    if (size == 0) {
      return true;
    }
    if (size + kLengthBytes > room_in_arena()) {
      lost_reason_ = Drop::kMetadataFull;
      return false;
    }
    uint32_t head = open_entry(static_cast<uint32_t>(size));
    if (named) {
      uint8_t prefix[2];
      internal::Writer out(prefix, sizeof(prefix));
      out.head(2, name_length);
      head = put(head, prefix, static_cast<uint32_t>(out.size()));
      head = put(head, shown, static_cast<uint32_t>(name_length));
    }
    for (const uint8_t* at = memory_.context; at != context_end; at = internal::field_at(at).end) {
      head = belongs(at, executes) ? put(head, at, static_cast<uint32_t>(internal::field_at(at).end - at)) : head;
    }
    close_entry(head);
    record.metadata = 1;
    return true;
  }

  /// A load has a trace context, but no attributes of an inference.
  static bool belongs(const uint8_t* field, bool executes) {
    return executes || *field == internal::tag(6, internal::kBytes) || *field == internal::tag(7, internal::kBytes);
  }

  uint32_t room_in_arena() const {
    return memory_.metadata_bytes -
           (arena_head_.load(std::memory_order_relaxed) - arena_tail_.load(std::memory_order_acquire));
  }

  uint32_t open_entry(uint32_t size) { return put(arena_head_.load(std::memory_order_relaxed), &size, kLengthBytes); }

  void close_entry(uint32_t head) { arena_head_.store(head, std::memory_order_relaxed); }

  uint32_t put(uint32_t at, const void* data, uint32_t size) {
    const uint32_t offset = at & (memory_.metadata_bytes - 1);
    const uint32_t first = size < memory_.metadata_bytes - offset ? size : memory_.metadata_bytes - offset;
    std::memcpy(memory_.metadata + offset, data, first);
    std::memcpy(memory_.metadata, static_cast<const uint8_t*>(data) + first, size - first);
    return at + size;
  }

  bool set_field(unsigned field, const char* text, size_t length) {
    const Turn turn(*this);
    if (!turn.mine() || memory_.context_bytes == 0) {
      return length == 0 && turn.mine();
    }
    erase_field(field);
    if (length == 0) {
      return true;
    }
    internal::Writer out(memory_.context + context_size_, memory_.context_bytes - context_size_);
    out.bytes(field, text, length);
    context_size_ += out.ok() ? static_cast<uint32_t>(out.size()) : 0;
    return out.ok();
  }

  void erase_field(unsigned field) {
    uint8_t* kept = memory_.context;
    const uint8_t* const end = memory_.context + context_size_;
    for (const uint8_t* at = memory_.context; at != end;) {
      const internal::Field found = internal::field_at(at);
      const auto size = static_cast<size_t>(found.end - found.begin);
      if (found.tag != internal::tag(field, internal::kBytes)) {
        std::memmove(kept, found.begin, size);
        kept += size;
      }
      at += size;
    }
    context_size_ = static_cast<uint32_t>(kept - memory_.context);
  }

  RingMemory memory_;

  // Written by the producer.
  std::atomic<uint32_t> head_{0};
  std::atomic<uint32_t> arena_head_{0};
  std::atomic<bool> busy_{false};
  std::atomic<bool> torn_{false};  // a block could not begin: what follows does not belong to the block before
  uint32_t known_tail_ = 0;
  uint32_t reserve_ = 0;  // records for blocks and events of the runtime alone
  uint32_t known_ = 0;    // identifiers
  uint32_t text_used_ = 0;
  uint32_t context_size_ = 0;
  uint32_t method_ = 0;  // 1 + the index of an identifier; 0: none
  bool open_ = false;
  bool lost_ = false;     // no room for the block's beginning: its events go with it
  Drop lost_reason_ = Drop::kRingFull;
  uint64_t position_ = 0;
  uint64_t executions_ = 0;
  std::atomic<uint32_t> drops_[kDropReasons];

  // Written by the consumer; apart, so that neither side takes the other's cache line.
  [[maybe_unused]] unsigned char apart_[64];
  std::atomic<uint32_t> tail_{0};
  std::atomic<uint32_t> arena_tail_{0};
};

struct DefaultSizes {
  static constexpr RingSizes kSizes = {};
};

namespace internal {

template <size_t Bytes>
struct Storage {
  unsigned char bytes[Bytes];
};

}  // namespace internal

/// A `RingTracer` with its memory: by default some 200 KB, too large for most stacks. `Sizes` has a `static constexpr RingSizes
/// kSizes`.
template <class Sizes = DefaultSizes>
class StaticRingTracer : private internal::Storage<RingMemory::bytes_for(Sizes::kSizes)>, public RingTracer {
 public:
  StaticRingTracer() : RingTracer(RingMemory(this->bytes, sizeof(this->bytes), Sizes::kSizes)) {}
};

/// One inference, as a scope: sets what it says of itself, and ends its block, with an error or without.
class Inference {
 public:
  explicit Inference(RingTracer& tracer, const char* method = nullptr, const char* traceparent = nullptr,
                     const char* tracestate = nullptr)
      : tracer_(tracer) {
    if (method != nullptr) {
      tracer_.set_method(method);
    }
    if (traceparent != nullptr) {
      tracer_.set_trace_context(traceparent, tracestate);
    }
  }
  ~Inference() {
    if (!ended_) {
      tracer_.end_block();
    }
  }
  Inference(const Inference&) = delete;
  Inference& operator=(const Inference&) = delete;

  /// Ends it before the scope does. `error`: what the execution returned.
  void end(et::Error error = et::Error::Ok) {
    ended_ = true;
    tracer_.end_block(error);
  }

 private:
  RingTracer& tracer_;
  bool ended_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------------
// Encoder: the consumer's side of a tracer, from ring to `otel_bridge.v1.ExportEventsRequest`.

/// Who and what this process is: one run of one process with one model. Strings must live as long as the encoder does.
struct StreamInfo {
  uint8_t stream_id[16] = {};             ///< random, once a run (`draw_stream_id`); all zero: the bridge derives one a request
  const char* model_name = nullptr;       ///< with `model_version` an alias of the mapping
  const char* model_version = nullptr;
  const char* build_id = nullptr;         ///< names the build itself and wins; at most 128 bytes (`read_build_id`)
  const char* runtime_version = nullptr;  ///< of ExecuTorch, e.g. "1.5.1"
  const uint8_t* resource = nullptr;      ///< `data()` of `Attributes`
  size_t resource_size = 0;               ///< `size()` of the same
  uint64_t tick_numerator = 0;            ///< nanoseconds a tick; both 0: what ExecuTorch's platform layer says
  uint64_t tick_denominator = 0;
  uint32_t counter_bits = 0;              ///< width of the tick counter; 0: 64
};

/// Takes events out of a tracer's ring and encodes them. One thread at a time.
///
/// Blocks go whole. One that fits into no request alone, or that is still open while the ring runs full, goes in parts: in
/// consecutive requests, each event with its occurrence (docs/protocol.md, "Parts").
class Encoder {
 public:
  Encoder(RingTracer& tracer, const StreamInfo& info, const Platform& platform = {})
      : tracer_(tracer), memory_(tracer.memory_), info_(info), platform_(platform) {}

  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  /// The smallest buffer that `encode` can use, bytes: what each request says of its stream, a context, and an event.
  size_t least_buffer() const {
    return stream_size_at_most() + kFrameBytes + memory_.context_bytes + internal::kBlockNameRoom + kBlockBytes +
           kLeastRowBytes;
  }

  /// Writes one request; its size in bytes, 0: there is nothing to send. What it took from the ring is gone from there.
  /// `open_too`: take also events of a block that has not ended. `drops_alone`: a request that only reports drops will do.
  size_t encode(void* buffer, size_t capacity, bool open_too = false, bool drops_alone = false) {
    const uint32_t limit = tracer_.head_.load(std::memory_order_acquire);
    internal::Writer out(buffer, capacity);
    if (capacity < least_buffer()) {
      drop_all(limit);
      return 0;
    }
    count_drops();
    std::memcpy(noted_, totals_, sizeof(noted_));
    plan_ = Plan{};
    plan_.begin = plan_.end = tracer_.tail_.load(std::memory_order_relaxed);
    plan_.arena = tracer_.arena_tail_.load(std::memory_order_relaxed);
    budget_ = capacity - stream_size_at_most() - kFrameBytes;
    ++generation_;
    plan_blocks(limit, open_too);
    const bool empty = plan_.rows == 0 && plan_.blocks == 0;
    if (empty && !(drops_alone && std::memcmp(reported_, noted_, sizeof(noted_)) != 0)) {
      release();
      return 0;
    }
    write_stream(out);
    write_tables(out);
    write_blocks(out);
    write_columns(out);
    rows_in_flight_ = plan_.rows;
    events_ += plan_.rows;
    ++sequence_;
    release();
    return out.size();
  }

  /// The receiver has the last request: its drops are reported.
  void accept() {
    std::memcpy(reported_, noted_, sizeof(reported_));
    rows_in_flight_ = 0;
  }

  /// The receiver will never take the last request: its events are dropped.
  void refuse() { drop(Drop::kRejected, rows_in_flight_); }

  /// Events encoded so far.
  uint64_t events() const { return events_; }

  /// More requests than the ring can give at once.
  uint32_t requests_at_most() const { return memory_.record_count + 2; }

  /// Dropped so far, by tracer and encoder, as far as `encode` has seen it.
  uint64_t dropped(Drop reason) const { return totals_[static_cast<size_t>(reason)]; }

  /// Brings `dropped` up to date.
  void count_drops() {
    for (size_t i = 0; i < kDropReasons; ++i) {
      const uint32_t now = tracer_.drops_[i].load(std::memory_order_relaxed);
      totals_[i] += now - seen_[i];
      seen_[i] = now;
    }
  }

  /// Whether there are drops that no receiver has been told.
  bool has_drops() {
    count_drops();
    return std::memcmp(reported_, totals_, sizeof(reported_)) != 0;
  }

 private:
  using Record = internal::Record;

  // At most, beside its context: tags, kind, position, count, error, run index, part; and its method.
  static constexpr size_t kBlockBytes = 96 + internal::field_size(internal::kMaxMethodBytes);
  static constexpr size_t kLeastRowBytes = 256;  // an event of a name of 200 bytes
  static constexpr size_t kFrameBytes = 8 + 9 * 8;
  static constexpr uint32_t kMaxRows = 1U << 20;
  static constexpr uint32_t kMaxBlocks = 1U << 16;
  static constexpr uint32_t kCache = 32;

  /// What the next request will hold: records [begin, end), and the exact size of each column.
  struct Plan {
    uint32_t begin, end;  // records
    uint32_t arena;       // where the records from `end` on have their metadata
    uint32_t rows, blocks, identifiers, metadata;
    size_t used;          // of the budget: at most so many bytes
    size_t instruction, chain, identifier, start, duration, metadata_index, occurrence;  // bytes of the columns
    uint64_t previous_start;
    bool any_chain;
    bool any_metadata;
    bool any_part;
    bool begins_part;  // the part that this request begins with is the first of its inference
    bool part_ends;    // it is the last
  };

  /// An inference that goes in parts, between two requests.
  struct PartState {
    bool active;
    uint8_t kind;
    uint32_t number;
    uint32_t method;  // as in its record
    uint32_t context_size;
    uint64_t position, run_index, first_event;
  };

  /// Where metadata of this request was last seen, by hash: equal metadata is sent once.
  struct Seen {
    uint32_t generation, hash, at, index;
  };

  enum class Stop { kEnded, kOpen, kFull };

  // -- the records

  Record& record(uint32_t at) { return memory_.records[at & (memory_.record_count - 1)]; }

  static bool is_event(const Record& record) { return record.kind >= internal::kRuntime && record.kind <= internal::kDelegate; }

  static bool has_entry(const Record& record) { return record.metadata != 0; }

  uint32_t entry_size(uint32_t arena) const {
    uint8_t bytes[RingTracer::kLengthBytes];
    uint32_t size = 0;
    copy(bytes, arena, sizeof(bytes));
    std::memcpy(&size, bytes, sizeof(size));
    return size;
  }

  uint32_t after_entry(uint32_t arena) const { return arena + RingTracer::kLengthBytes + entry_size(arena); }

  /// Calls `visit(data, size)` for the one or two stretches of the arena that hold `size` bytes from `at` on.
  template <class Visit>
  void stretches(uint32_t at, uint32_t size, Visit visit) const {
    const uint32_t offset = at & (memory_.metadata_bytes - 1);
    const uint32_t first = size < memory_.metadata_bytes - offset ? size : memory_.metadata_bytes - offset;
    visit(memory_.metadata + offset, first);
    if (first != size) {
      visit(static_cast<const uint8_t*>(memory_.metadata), size - first);
    }
  }

  void copy(uint8_t* into, uint32_t at, uint32_t size) const {
    stretches(at, size, [&](const uint8_t* data, uint32_t length) {
      std::memcpy(into, data, length);
      into += length;
    });
  }

  /// A hash of the first and the last bytes: what is equal is compared anyway.
  uint32_t hash_entry(uint32_t at, uint32_t size) const {
    constexpr uint32_t kEnd = 16;
    uint8_t bytes[2 * kEnd];
    const uint32_t first = size < kEnd ? size : kEnd;
    copy(bytes, at, first);
    copy(bytes + first, at + size - first, first);
    return internal::hash_of(bytes, size_t{first} * 2) ^ size;
  }

  bool equal_entries(uint32_t a, uint32_t b, uint32_t size) const {
    bool equal = true;
    stretches(a, size, [&](const uint8_t* left, uint32_t length) {
      stretches(b, length, [&](const uint8_t* right, uint32_t part) {
        equal = equal && std::memcmp(left, right, part) == 0;
        left += part;
      });
      b += length;
    });
    return equal;
  }

  void release() {
    tracer_.arena_tail_.store(plan_.arena, std::memory_order_release);
    tracer_.tail_.store(plan_.end, std::memory_order_release);
  }

  // -- drops of the consumer

  void drop(Drop reason, uint32_t events = 1) { totals_[static_cast<size_t>(reason)] += events; }

  void skip(Record& record, Drop reason) {
    record.kind = internal::kSkipped;
    drop(reason);
  }

  /// With a buffer that holds no request nothing can be sent, and the ring must not clog.
  void drop_all(uint32_t limit) {
    plan_.end = tracer_.tail_.load(std::memory_order_relaxed);
    plan_.arena = tracer_.arena_tail_.load(std::memory_order_relaxed);
    for (; plan_.end != limit; ++plan_.end) {
      drop(Drop::kBufferTooSmall, is_event(record(plan_.end)) ? 1 : 0);
      plan_.arena = has_entry(record(plan_.end)) ? after_entry(plan_.arena) : plan_.arena;
    }
    release();
  }

  // -- the plan: which records go, and how large the columns become

  void plan_blocks(uint32_t limit, bool open_too) {
    if (part_.active) {
      plan_.any_part = true;
      plan_.used += kBlockBytes + part_.context_size;
      ++plan_.blocks;
      const Stop stop = plan_rows(limit, true);
      plan_.part_ends = stop == Stop::kEnded;
      if (stop == Stop::kOpen && (!open_too || plan_.rows == 0)) {
        return wait_for_more();
      }
      if (stop != Stop::kEnded) {
        return;
      }
    }
    while (plan_.end != limit && plan_.blocks < kMaxBlocks) {
      const Plan before = plan_;
      const Stop stop = plan_block(limit);
      if (stop == Stop::kEnded) {
        continue;
      }
      plan_ = before;
      ++generation_;  // what was seen of the block's metadata is not in the plan
      if (before.blocks == 0 && (stop == Stop::kFull || open_too)) {
        plan_first_part(limit);
      }
      return;
    }
  }

  /// Plans a whole block; unless it returns `kEnded`, the plan is of no use.
  Stop plan_block(uint32_t limit) {
    const Record& begin = record(plan_.end);
    const uint32_t context = has_entry(begin) ? entry_size(plan_.arena) : 0;
    plan_.arena = has_entry(begin) ? after_entry(plan_.arena) : plan_.arena;
    plan_.used += kBlockBytes + context;
    ++plan_.end;
    ++plan_.blocks;
    return plan_.used > budget_ ? Stop::kFull : plan_rows(limit, false);
  }

  void plan_first_part(uint32_t limit) {
    const Record& begin = record(plan_.end);
    part_ = {true, begin.chain, 0, begin.identifier, 0, begin.duration, begin.start, 0};
    if (has_entry(begin)) {
      part_.context_size = entry_size(plan_.arena);
      copy(part_context(), plan_.arena + RingTracer::kLengthBytes, part_.context_size);
      plan_.arena = after_entry(plan_.arena);
    }
    for (uint32_t i = 0; i < memory_.completion_count; ++i) {
      memory_.completions[i] = {};
    }
    plan_.used += kBlockBytes + part_.context_size;
    ++plan_.end;
    ++plan_.blocks;
    plan_.any_part = true;
    plan_.begins_part = true;
    const Stop stop = plan_rows(limit, true);
    plan_.part_ends = stop == Stop::kEnded;
    if (stop == Stop::kOpen && plan_.rows == 0) {
      part_.active = false;
      wait_for_more();
    }
  }

  /// Nothing goes yet: more of the open block will come.
  void wait_for_more() {
    const uint32_t begin = plan_.begin;
    plan_ = Plan{};
    plan_.begin = plan_.end = begin;
    plan_.arena = tracer_.arena_tail_.load(std::memory_order_relaxed);
    for (uint32_t i = 0; i < memory_.completion_count; ++i) {
      memory_.completions[i].planned = memory_.completions[i].sent;
    }
  }

  uint8_t* part_context() { return memory_.context + memory_.context_bytes; }

  Stop plan_rows(uint32_t limit, bool in_part) {
    for (; plan_.end != limit; ++plan_.end) {
      Record& next = record(plan_.end);
      if (next.kind == internal::kBlockBegin) {
        return Stop::kEnded;
      }
      if (next.kind == internal::kBlockEnd) {
        ++plan_.end;
        return Stop::kEnded;
      }
      if (is_event(next) && !plan_row(next, in_part)) {
        return Stop::kFull;
      }
      plan_.arena = has_entry(next) ? after_entry(plan_.arena) : plan_.arena;
    }
    return Stop::kOpen;
  }

  /// Adds an event to the plan, or skips it for good; false: the request is full.
  bool plan_row(Record& row, bool in_part) {
    const uint32_t chosen = choice(row.identifier);
    const uint32_t content = has_entry(row) ? entry_size(plan_.arena) : 0;
    const uint32_t at = plan_.arena + RingTracer::kLengthBytes;
    Seen* seen = has_entry(row) ? look_up(at, content) : nullptr;
    const bool repeated = seen != nullptr && seen->generation == generation_;
    const uint32_t metadata = seen == nullptr ? 0 : 1 + (repeated ? seen->index : plan_.metadata);
    const size_t cost = row_size(row, chosen, metadata) + (in_part ? 5 : 1) +  // of its occurrence
                        (chosen == plan_.identifiers ? 4 + identifier_size(memory_.identifiers[row.identifier]) : 0) +
                        (seen != nullptr && !repeated ? internal::field_size(content) : 0);
    if (plan_.used + cost > budget_ || plan_.rows == kMaxRows) {
      if (!in_part || plan_.rows != 0) {
        return false;
      }
      skip(row, has_entry(row) ? Drop::kMetadataTooLarge : Drop::kBufferTooSmall);
      return true;
    }
    uint32_t occurrence = 0;
    if (in_part && row.instruction >= 0) {
      internal::Completions* completions = completions_of(row);
      if (completions == nullptr) {
        skip(row, Drop::kInstructionsFull);
        return true;
      }
      occurrence = completions->planned;
      completions->planned += row.kind == internal::kCall ? 1 : 0;
    }
    if (chosen == plan_.identifiers) {
      choose(row.identifier);
    }
    if (seen != nullptr && !repeated) {
      *seen = {generation_, seen->hash, at, plan_.metadata++};
    }
    row.metadata = metadata;
    add_row(row, chosen, occurrence);
    plan_.used += cost;
    return true;
  }

  /// Bytes of an event in the columns, without its occurrence.
  size_t row_size(const Record& row, uint32_t identifier, uint32_t metadata) const {
    using internal::varint_size;
    return 1 + varint_size(internal::zigzag(row.instruction)) + varint_size(row.chain) + varint_size(identifier) +
           varint_size(internal::zigzag(static_cast<int64_t>(row.start - plan_.previous_start))) +
           varint_size(row.duration) + varint_size(metadata);
  }

  void add_row(const Record& row, uint32_t identifier, uint32_t occurrence) {
    using internal::varint_size;
    ++plan_.rows;
    plan_.instruction += varint_size(internal::zigzag(row.instruction));
    plan_.chain += varint_size(row.chain);
    plan_.any_chain = plan_.any_chain || row.chain != 0;
    plan_.identifier += varint_size(identifier);
    plan_.start += varint_size(internal::zigzag(static_cast<int64_t>(row.start - plan_.previous_start)));
    plan_.previous_start = row.start;
    plan_.duration += varint_size(row.duration);
    plan_.metadata_index += varint_size(row.metadata);
    plan_.any_metadata = plan_.any_metadata || row.metadata != 0;
    plan_.occurrence += varint_size(occurrence);
  }

  // -- the tables of a request

  uint32_t* chosen_list() { return memory_.chosen; }
  uint32_t* chosen_index() { return memory_.chosen + memory_.identifier_count; }

  /// Index of an identifier in the request; `plan_.identifiers`: it is not in it yet.
  uint32_t choice(uint32_t identifier) {
    const uint32_t index = chosen_index()[identifier];
    return index < plan_.identifiers && chosen_list()[index] == identifier ? index : plan_.identifiers;
  }

  void choose(uint32_t identifier) {
    chosen_list()[plan_.identifiers] = identifier;
    chosen_index()[identifier] = plan_.identifiers++;
  }

  static size_t identifier_size(const internal::Identifier& identifier) {
    return identifier.length == internal::Identifier::kNumber
               ? 1 + internal::varint_size(internal::zigzag(static_cast<int32_t>(identifier.at)))
               : internal::field_size(identifier.length);
  }

  /// The place for this metadata; its generation says whether it is in the request already.
  Seen* look_up(uint32_t at, uint32_t size) {
    const uint32_t hash = hash_entry(at, size);
    Seen* seen = &seen_metadata_[hash % kCache];
    const bool same = seen->generation == generation_ && seen->hash == hash &&
                      entry_size(seen->at - RingTracer::kLengthBytes) == size && equal_entries(seen->at, at, size);
    if (!same) {
      *seen = {0, hash, at, 0};
    }
    return seen;
  }

  internal::Completions* completions_of(const Record& row) {
    const uint64_t key = (static_cast<uint64_t>(row.chain) << 32 | static_cast<uint32_t>(row.instruction)) + 1;
    const uint32_t mask = memory_.completion_count - 1;
    const auto begin = static_cast<uint32_t>(key * 0x9E3779B97F4A7C15U >> 40);
    for (uint32_t step = 0; step < memory_.completion_count; ++step) {
      internal::Completions* completions = &memory_.completions[(begin + step) & mask];
      if (completions->key == key || completions->key == 0) {
        completions->key = key;
        return completions;
      }
    }
    return nullptr;
  }

  // -- the bytes

  size_t stream_size_at_most() const {
    using internal::field_size;
    size_t size = 8 + field_size(16) + 11 + info_.resource_size + 64;
    for (const char* text : {info_.model_name, info_.model_version, info_.build_id, info_.runtime_version}) {
      size += text == nullptr ? 0 : 4 + field_size(std::strlen(text));
    }
    for (size_t i = 0; i < kDropReasons; ++i) {
      size += 2 + field_size(std::strlen(name_of(static_cast<Drop>(i)))) + 11;
    }
    return size;
  }

  static size_t text_size(const char* text) {
    return text == nullptr || *text == '\0' ? 0 : internal::field_size(std::strlen(text));
  }

  void write_stream(internal::Writer& out) {
    uint8_t clock_bytes[64];
    internal::Writer clock(clock_bytes, sizeof(clock_bytes));
    write_clock(clock);
    const size_t model = text_size(info_.model_name) + text_size(info_.model_version) + text_size(info_.build_id);
    const bool has_id = has_stream_id();
    size_t size = (has_id ? internal::field_size(16) : 0) + (sequence_ == 0 ? 0 : 1 + internal::varint_size(sequence_)) +
                  (model == 0 ? 0 : internal::field_size(model)) + info_.resource_size + text_size(info_.runtime_version) +
                  internal::field_size(clock.size());
    for (size_t i = 0; i < kDropReasons; ++i) {
      size += noted_[i] == reported_[i] ? 0 : internal::field_size(drop_size(i));
    }
    out.head(1, size);
    if (has_id) {
      out.bytes(1, info_.stream_id, 16);
    }
    out.number_if(2, sequence_);
    if (model != 0) {
      out.head(3, model);
      out.text_if(1, info_.model_name);
      out.text_if(2, info_.model_version);
      out.text_if(3, info_.build_id);
    }
    out.raw(info_.resource, info_.resource_size);
    out.text_if(5, info_.runtime_version);
    out.bytes(6, clock_bytes, clock.size());
    for (size_t i = 0; i < kDropReasons; ++i) {
      if (noted_[i] != reported_[i]) {
        out.head(7, drop_size(i));
        out.text_if(1, name_of(static_cast<Drop>(i)));
        out.number(2, noted_[i] - reported_[i]);
      }
    }
  }

  size_t drop_size(size_t reason) const {
    return text_size(name_of(static_cast<Drop>(reason))) + 1 + internal::varint_size(noted_[reason] - reported_[reason]);
  }

  bool has_stream_id() const {
    uint8_t any = 0;
    for (const uint8_t byte : info_.stream_id) {
      any = static_cast<uint8_t>(any | byte);
    }
    return any != 0;
  }

  /// Clock 0, with the two readings of this moment: the wall clock lies between two readings of the ticks.
  void write_clock(internal::Writer& out) const {
    const auto ratio = et::pal_ticks_to_ns_multiplier();
    const bool given = info_.tick_numerator != 0 && info_.tick_denominator != 0;
    const uint64_t numerator = given ? info_.tick_numerator : ratio.numerator;
    const uint64_t denominator = given ? info_.tick_denominator : ratio.denominator;
    out.number_if(1, numerator == 1 ? 0 : numerator);
    out.number_if(2, denominator == 1 ? 0 : denominator);
    out.number_if(3, info_.counter_bits);
    const uint64_t before = et::pal_current_ticks();
    const uint64_t unix_ns = platform_.unix_ns == nullptr ? 0 : platform_.unix_ns();
    const uint64_t after = et::pal_current_ticks();
    if (unix_ns != 0) {
      out.number_if(4, after >= before ? before + (after - before) / 2 : after);
      out.number(5, unix_ns);
    }
  }

  void write_tables(internal::Writer& out) {
    for (uint32_t i = 0; i < plan_.identifiers; ++i) {
      const internal::Identifier& identifier = memory_.identifiers[chosen_list()[i]];
      out.head(2, identifier_size(identifier));
      if (identifier.length == internal::Identifier::kNumber) {
        out.number(1, internal::zigzag(static_cast<int32_t>(identifier.at)));
      } else {
        out.bytes(2, memory_.text + identifier.at, identifier.length);
      }
    }
    uint32_t arena = tracer_.arena_tail_.load(std::memory_order_relaxed);
    uint32_t written = 0;
    for (uint32_t at = plan_.begin; at != plan_.end; ++at) {
      const Record& row = record(at);
      if (!has_entry(row)) {
        continue;
      }
      if (is_event(row) && row.metadata == written + 1) {
        const uint32_t size = entry_size(arena);
        out.head(3, size);
        stretches(arena + RingTracer::kLengthBytes, size, [&](const uint8_t* data, uint32_t length) { out.raw(data, length); });
        ++written;
      }
      arena = after_entry(arena);
    }
  }

  void write_blocks(internal::Writer& out) {
    uint32_t arena = tracer_.arena_tail_.load(std::memory_order_relaxed);
    uint32_t at = plan_.begin;
    const auto pass = [&](const Record& passed) {
      arena = has_entry(passed) ? after_entry(arena) : arena;
      ++at;
    };
    bool in_part = plan_.any_part;
    if (plan_.begins_part) {
      pass(record(at));  // its beginning: what it says is kept with the part
    }
    while (in_part || at != plan_.end) {
      const Record* begin = nullptr;
      const uint32_t context = arena + RingTracer::kLengthBytes;
      if (!in_part) {
        begin = &record(at);
        pass(*begin);
      }
      uint32_t rows = 0;
      uint32_t error = 0;
      while (at != plan_.end && record(at).kind != internal::kBlockBegin) {
        const Record& next = record(at);
        rows += is_event(next) ? 1U : 0U;
        error = next.kind == internal::kBlockEnd ? next.identifier : error;
        const bool ends = next.kind == internal::kBlockEnd;
        pass(next);
        if (ends) {
          break;
        }
      }
      in_part ? write_part(out, rows, error) : write_block(out, *begin, context, rows, error);
      in_part = false;
    }
  }

  /// What a block says beside its context.
  struct Face {
    uint8_t kind;
    uint32_t method;
    uint64_t position, run_index;
    uint32_t rows, error;
  };

  size_t face_size(const Face& face) const {
    using internal::varint_size;
    const auto size = [](uint64_t value) { return value == 0 ? 0 : 1 + varint_size(value); };
    return size(face.kind == internal::kOther ? 0 : face.kind) + size(face.position) + size(face.rows) + size(face.error) +
           (face.kind == internal::kExecute ? 1 + varint_size(face.run_index) : 0) +
           (face.method == 0 ? 0 : internal::field_size(memory_.identifiers[face.method - 1].length));
  }

  void write_face(internal::Writer& out, const Face& face) const {
    out.number_if(1, face.kind == internal::kOther ? 0 : face.kind);  // another block goes by its name
    out.number_if(3, face.position);
    if (face.method != 0) {
      const internal::Identifier& method = memory_.identifiers[face.method - 1];
      out.bytes(4, memory_.text + method.at, method.length);
    }
    out.number_if(5, face.rows);
    out.number_if(8, face.error);
    if (face.kind == internal::kExecute) {
      out.number(10, face.run_index);
    }
  }

  void write_block(internal::Writer& out, const Record& begin, uint32_t context, uint32_t rows, uint32_t error) {
    const uint32_t context_size = has_entry(begin) ? entry_size(context - RingTracer::kLengthBytes) : 0;
    const Face face{begin.chain, begin.identifier, begin.duration, begin.start, rows, error};
    out.head(4, face_size(face) + context_size);
    write_face(out, face);
    stretches(context, context_size, [&](const uint8_t* data, uint32_t length) { out.raw(data, length); });
  }

  void write_part(internal::Writer& out, uint32_t rows, uint32_t error) {
    using internal::varint_size;
    const size_t part = (part_.number == 0 ? 0 : 1 + varint_size(part_.number)) + (plan_.part_ends ? 2U : 0U) +
                        (part_.first_event == 0 ? 0 : 1 + varint_size(part_.first_event));
    const Face face{part_.kind, part_.method, part_.position, part_.run_index, rows, error};
    out.head(4, face_size(face) + part_.context_size + internal::field_size(part));
    write_face(out, face);
    out.raw(part_context(), part_.context_size);
    out.head(11, part);
    out.number_if(1, part_.number);
    out.number_if(2, plan_.part_ends ? 1 : 0);
    out.number_if(3, part_.first_event);
    ++part_.number;
    part_.first_event += rows;
    part_.active = !plan_.part_ends;
  }

  void write_columns(internal::Writer& out) {
    if (plan_.rows == 0) {
      return;
    }
    const size_t chain = plan_.any_chain ? plan_.chain : 0;
    const size_t metadata = plan_.any_metadata ? plan_.metadata_index : 0;
    const size_t occurrence = plan_.any_part ? plan_.occurrence : 0;
    size_t size = 0;
    for (const size_t bytes : {size_t{plan_.rows}, plan_.instruction, chain, plan_.identifier, plan_.start, plan_.duration,
                               metadata, occurrence}) {
      size += bytes == 0 ? 0 : internal::field_size(bytes);
    }
    out.head(5, size);
    uint64_t previous = 0;
    column(out, 1, plan_.rows, [](const Record& row) { return uint64_t{row.kind}; });
    column(out, 2, plan_.instruction, [](const Record& row) { return internal::zigzag(row.instruction); });
    column(out, 3, chain, [](const Record& row) { return uint64_t{row.chain}; });
    column(out, 4, plan_.identifier, [&](const Record& row) { return uint64_t{choice(row.identifier)}; });
    column(out, 5, plan_.start, [&](const Record& row) {
      const uint64_t delta = row.start - previous;
      previous = row.start;
      return internal::zigzag(static_cast<int64_t>(delta));
    });
    column(out, 6, plan_.duration, [](const Record& row) { return row.duration; });
    column(out, 8, metadata, [](const Record& row) { return uint64_t{row.metadata}; });
    write_occurrences(out, occurrence);
  }

  template <class ValueOf>
  void column(internal::Writer& out, unsigned field, size_t bytes, ValueOf value_of) {
    if (bytes == 0) {
      return;
    }
    out.head(field, bytes);
    for (uint32_t at = plan_.begin; at != plan_.end; ++at) {
      if (is_event(record(at))) {
        out.varint(value_of(record(at)));
      }
    }
  }

  /// The part comes first in a request; whole blocks after it need no occurrences, but the column has every row.
  void write_occurrences(internal::Writer& out, size_t bytes) {
    if (bytes == 0) {
      return;
    }
    out.head(9, bytes);
    bool in_part = true;
    for (uint32_t at = plan_.begin; at != plan_.end; ++at) {
      const Record& row = record(at);
      in_part = in_part && (row.kind != internal::kBlockBegin || (plan_.begins_part && at == plan_.begin));
      if (!is_event(row)) {
        continue;
      }
      if (!in_part || row.instruction < 0) {
        out.byte(0);
        continue;
      }
      internal::Completions* completions = completions_of(row);
      out.varint(completions->sent);
      completions->sent += row.kind == internal::kCall ? 1 : 0;
    }
  }

  RingTracer& tracer_;
  RingMemory& memory_;
  const StreamInfo info_;
  const Platform platform_;
  Plan plan_{};
  PartState part_{};
  size_t budget_ = 0;
  uint32_t generation_ = 0;
  uint32_t rows_in_flight_ = 0;
  uint64_t sequence_ = 0;
  uint64_t events_ = 0;
  uint32_t seen_[kDropReasons] = {};      // of the tracer's counters
  uint64_t totals_[kDropReasons] = {};    // all drops
  uint64_t noted_[kDropReasons] = {};     // those that the last request reports
  uint64_t reported_[kDropReasons] = {};  // those that a receiver has been told
  Seen seen_metadata_[kCache] = {};
};

// ---------------------------------------------------------------------------------------------------------------------------
// Transports: where encoded requests go. gRPC is in otel_bridge_grpc.h, HTTPS in otel_bridge_curl.h.

/// Carries one encoded `ExportEventsRequest` to a receiver. Called by one thread: the one that polls the `Uploader`.
class Transport {
 public:
  /// True: the receiver has it. May block, but not for ever: the next attempt waits for its return.
  virtual bool send(const void* data, size_t size) = 0;
  /// After false: whether the same bytes may be sent again. False: they never will be taken, and count as rejected.
  virtual bool again() const { return true; }
  /// After false: what the receiver asked to wait, milliseconds; 0: it said nothing.
  virtual uint32_t wait_ms() const { return 0; }

 protected:
  ~Transport() = default;
};

/// Hands requests to a function of the app, which returns true once it has them: the platform's HTTP stack, a message queue.
class CallbackTransport final : public Transport {
 public:
  using Callback = bool (*)(void* self, const void* data, size_t size);

  explicit CallbackTransport(Callback callback, void* self = nullptr) : callback_(callback), self_(self) {}

  bool send(const void* data, size_t size) override { return callback_(self_, data, size); }

 private:
  Callback callback_;
  void* self_;
};

/// Appends requests to a file, each after its length as a varint (protobuf's delimited format). The file stays the caller's.
class FileTransport final : public Transport {
 public:
  explicit FileTransport(std::FILE* file) : file_(file) {}

  /// False on a full disk: what was written of the request is overwritten by the next attempt.
  bool send(const void* data, size_t size) override {
    uint8_t prefix[10];
    internal::Writer out(prefix, sizeof(prefix));
    out.varint(size);
    const long begin = std::ftell(file_);
    const bool whole = std::fwrite(prefix, 1, out.size(), file_) == out.size() && std::fwrite(data, 1, size, file_) == size &&
                       std::fflush(file_) == 0;
    if (!whole) {
      std::clearerr(file_);
      std::fseek(file_, begin, SEEK_SET);
    }
    return whole;
  }

 private:
  std::FILE* file_;
};

/// Writes requests as text for a serial log, which `otel-bridge send --uart` reads: a line that opens, base64 in lines of 76
/// characters, `=` and the CRC-32 (that of zlib) of the request in 8 hexadecimal digits, a line that closes.
class ArmourTransport final : public Transport {
 public:
  /// Takes `size` characters; a line comes in one call, with its newline.
  using Print = void (*)(void* self, const char* text, size_t size);

  explicit ArmourTransport(Print print, void* self = nullptr) : print_(print), self_(self) {}

  bool send(const void* data, size_t size) override {
    static constexpr char kBegin[] = "-----BEGIN OTEL BRIDGE EVENTS-----\n";
    static constexpr char kEnd[] = "-----END OTEL BRIDGE EVENTS-----\n";
    const auto* at = static_cast<const uint8_t*>(data);
    print_(self_, kBegin, sizeof(kBegin) - 1);
    for (size_t left = size; left != 0;) {
      const size_t taken = left < kBytesALine ? left : kBytesALine;
      print_line(at + (size - left), taken);
      left -= taken;
    }
    print_checksum(crc32(at, size));
    print_(self_, kEnd, sizeof(kEnd) - 1);
    return true;
  }

  /// A `Print` that writes to a `FILE*`, given as `self`.
  static void print_to_file(void* self, const char* text, size_t size) {
    std::fwrite(text, 1, size, static_cast<std::FILE*>(self));
  }

 private:
  static constexpr size_t kBytesALine = 57;

  void print_line(const uint8_t* data, size_t size) {
    static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char line[kBytesALine / 3 * 4 + 1];
    size_t length = 0;
    for (size_t i = 0; i < size; i += 3) {
      uint32_t bits = 0;
      for (size_t k = i; k < i + 3; ++k) {
        bits = bits << 8 | (k < size ? data[k] : 0U);
      }
      for (size_t k = 0; k < 4; ++k) {
        line[length++] = i + k > size ? '=' : kDigits[bits >> (18 - 6 * k) & 0x3F];
      }
    }
    line[length++] = '\n';
    print_(self_, line, length);
  }

  void print_checksum(uint32_t crc) {
    char line[10] = {'='};
    for (unsigned i = 0; i < 8; ++i) {
      line[1 + i] = "0123456789abcdef"[crc >> (28 - 4 * i) & 0xF];
    }
    line[9] = '\n';
    print_(self_, line, sizeof(line));
  }

  /// Bit by bit: a table would cost a microcontroller a kilobyte, and a log line costs more time than this.
  static uint32_t crc32(const uint8_t* data, size_t size) {
    uint32_t crc = 0xFFFFFFFFU;
    for (size_t i = 0; i < size; ++i) {
      crc ^= data[i];
      for (int bit = 0; bit < 8; ++bit) {
        crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
      }
    }
    return ~crc;
  }

  Print print_;
  void* self_;
};

// ---------------------------------------------------------------------------------------------------------------------------
// Uploader: drains, encodes, and sends until somebody has it.

struct UploaderOptions {
  uint32_t idle_ms = 1000;             ///< what `poll` returns when there is nothing to do
  uint32_t initial_backoff_ms = 500;   ///< doubled after each failure ...
  uint32_t max_backoff_ms = 30000;     ///< ... up to this; up to half of it is left out at random, lest a fleet return at once
  Platform platform = {};
};

/// Sends what a tracer has. One thread at a time, any thread: it never makes the producer wait.
class Uploader {
 public:
  /// What became of the events so far.
  struct Counts {
    uint64_t sent;      ///< events that a receiver has
    uint64_t requests;  ///< requests that a receiver has
    uint64_t attempts;  ///< calls of `Transport::send`
    uint64_t waiting;   ///< events of the request that is being sent
  };

  /// `buffer` holds one request; its size bounds the size of requests, and must be `least_buffer()` or more: 4 KB to 64 KB.
  Uploader(RingTracer& tracer, const StreamInfo& info, Transport& transport, void* buffer, size_t size,
           const UploaderOptions& options = {})
      : tracer_(tracer),
        transport_(transport),
        encoder_(tracer, info, options.platform),
        options_(options),
        buffer_(buffer),
        size_(size) {
    std::memcpy(&random_, info.stream_id, sizeof(random_));
    random_ ^= options_.platform.now_ms() | 1;
  }

  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  size_t least_buffer() const { return encoder_.least_buffer(); }

  /// Sends at most one request, unless it has to wait after a failure. Returns after how many milliseconds the next call is of
  /// use: 0 when there may be more to send. Takes blocks that have ended, and open ones when the ring is more than half full.
  uint32_t poll() {
    switch (step(tracer_.is_pressed(), false)) {
      case Outcome::kIdle:
        return options_.idle_ms;
      case Outcome::kWaiting:
        return wait_left_ms_;
      default:
        return 0;
    }
  }

  /// Ends the open block and sends what is in the ring, and the drops that nobody was told of. To be called when nothing runs
  /// any more; events that come meanwhile may stay. False: not all got through within `deadline_ms`.
  bool flush(uint32_t deadline_ms) {
    const uint64_t begin = now_ms();
    uint64_t slept_ms = 0;
    bool tell_drops = true;
    next_attempt_ms_ = 0;
    for (uint32_t requests = 0; requests <= encoder_.requests_at_most();) {
      tracer_.end_block();
      const uint64_t events = encoder_.events();
      const Outcome outcome = step(true, tell_drops);
      if (outcome == Outcome::kIdle) {
        return !encoder_.has_drops();
      }
      if (outcome == Outcome::kRefused && encoder_.events() == events) {
        tell_drops = false;  // a request without events was refused: another would be, too
      }
      const uint64_t passed = now_ms() - begin > slept_ms ? now_ms() - begin : slept_ms;  // the clock may stand still
      if (passed > deadline_ms || (passed == deadline_ms && outcome == Outcome::kWaiting)) {
        return false;
      }
      if (outcome == Outcome::kWaiting) {
        const uint64_t left_ms = deadline_ms - passed;
        const uint32_t nap_ms = wait_left_ms_ < left_ms ? wait_left_ms_ : static_cast<uint32_t>(left_ms);
        options_.platform.sleep_ms(nap_ms);
        slept_ms += nap_ms == 0 ? 1 : nap_ms;
      } else {
        ++requests;
      }
    }
    return false;
  }

  Counts counts() const { return counts_; }

  /// Events dropped so far, those included that no receiver was told of.
  uint64_t dropped(Drop reason) {
    encoder_.count_drops();
    return encoder_.dropped(reason);
  }

 private:
  enum class Outcome { kIdle, kSent, kRefused, kWaiting };

  static constexpr uint32_t kPatience = 100;  // calls for which the clock may stand still before it is taken for dead

  Outcome step(bool open_too, bool drops_alone) {
    if (pending_ == 0) {
      const uint64_t before = encoder_.events();
      pending_ = encoder_.encode(buffer_, size_, open_too, drops_alone);
      counts_.waiting = encoder_.events() - before;
      if (pending_ == 0) {
        return Outcome::kIdle;
      }
    }
    if (must_wait()) {
      return Outcome::kWaiting;
    }
    ++counts_.attempts;
    if (transport_.send(buffer_, pending_)) {
      encoder_.accept();
      counts_.sent += counts_.waiting;
      ++counts_.requests;
      return settle(Outcome::kSent);
    }
    if (!transport_.again()) {
      encoder_.refuse();
      return settle(Outcome::kRefused);
    }
    back_off();
    return Outcome::kWaiting;
  }

  Outcome settle(Outcome outcome) {
    pending_ = 0;
    counts_.waiting = 0;
    failures_ = 0;
    next_attempt_ms_ = 0;
    return outcome;
  }

  bool must_wait() {
    const uint64_t now = now_ms();
    still_ = now == last_ms_ ? still_ + 1 : 0;
    last_ms_ = now;
    if (now >= next_attempt_ms_ || still_ > kPatience) {
      still_ = 0;
      return false;
    }
    wait_left_ms_ = static_cast<uint32_t>(next_attempt_ms_ - now);
    return true;
  }

  void back_off() {
    uint64_t wait_ms = transport_.wait_ms();
    if (wait_ms == 0) {
      const uint64_t doubled = uint64_t{options_.initial_backoff_ms} << (failures_ < 16 ? failures_ : 16);
      const uint64_t most = doubled < options_.max_backoff_ms ? doubled : options_.max_backoff_ms;
      wait_ms = most - next_random() % (most / 2 + 1);
    }
    ++failures_;
    wait_left_ms_ = static_cast<uint32_t>(wait_ms);
    next_attempt_ms_ = now_ms() + wait_ms;
  }

  uint64_t next_random() {  // xorshift64: jitter needs no better
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    return random_;
  }

  uint64_t now_ms() const { return options_.platform.now_ms(); }

  RingTracer& tracer_;
  Transport& transport_;
  Encoder encoder_;
  const UploaderOptions options_;
  void* const buffer_;
  const size_t size_;
  size_t pending_ = 0;
  Counts counts_{};
  uint32_t failures_ = 0;
  uint32_t still_ = 0;
  uint32_t wait_left_ms_ = 0;
  uint64_t next_attempt_ms_ = 0;
  uint64_t last_ms_ = 0;
  uint64_t random_ = 0;
};

// ---------------------------------------------------------------------------------------------------------------------------
// Build id: which mapping belongs to the program that was loaded.

namespace internal {

template <class Program, class = void>
struct HasNamedData : std::false_type {};

template <class Program>
struct HasNamedData<Program, std::void_t<decltype(std::declval<const Program&>().get_named_data_map())>> : std::true_type {};

}  // namespace internal

/// Copies the build id that `otel_bridge.aot` wrote into a program, with a 0 at its end, and returns its length. 0, and an
/// empty text: the program has none, it does not fit, or this ExecuTorch gives no named data (before 1.4).
/// `program`: `executorch::runtime::Program`, e.g. `*module.program()` once it is loaded.
template <class Program>
size_t read_build_id(const Program& program, char* into, size_t capacity) {
  if (capacity == 0) {
    return 0;
  }
  *into = '\0';
  if constexpr (internal::HasNamedData<Program>::value) {
    const auto map = program.get_named_data_map();
    if (!map.ok() || map.get() == nullptr) {
      return 0;
    }
    auto data = map.get()->get_data("otel_bridge.build_id");
    if (!data.ok()) {
      return 0;
    }
    const size_t size = data->size();
    const bool fits = size < capacity && data->data() != nullptr;
    if (fits) {
      std::memcpy(into, data->data(), size);
      into[size] = '\0';
    }
    data->Free();
    return fits ? size : 0;
  } else {
    (void)program;
    return 0;
  }
}

}  // namespace otel_bridge
