// An Uploader with a receiver and a clock that the script moves; each line of output is an object of JSON.
//
//   B events    an inference with so many events         P            poll
//   O events    one with so many that has not ended      Q deadline   flush
//   E events    so many more of it, and its end          N bytes      another uploader takes over, with such a buffer
//   D events    events outside any block: all dropped
//   R answer    the next answer of the receiver:         W ms         time passes
//               ok, again, never, or wait=MS             K            the clock stands still from now on
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>

#include "otel_bridge.h"
#include "pal.h"
#include "script.h"

namespace {

uint64_t now = 1000;
bool stuck = false;

uint64_t now_ms() {
  return now;
}

void pass(uint32_t ms) {
  now += stuck ? 0 : ms;
}

uint64_t no_wall_clock() {
  return 0;
}

/// Answers as it was told to, and with "ok" when it was told nothing.
class Receiver final : public otel_bridge::Transport {
 public:
  bool send(const void* data, size_t size) override {
    answer_ = answers.empty() ? "ok" : answers.front();
    if (!answers.empty()) {
      answers.pop_front();
    }
    std::printf("{\"sent\": \"");
    for (size_t i = 0; i < size; ++i) {
      std::printf("%02x", static_cast<const unsigned char*>(data)[i]);
    }
    std::printf("\", \"now\": %" PRIu64 ", \"answer\": \"%s\"}\n", now, answer_.c_str());
    return answer_ == "ok";
  }
  bool again() const override { return answer_ != "never"; }
  uint32_t wait_ms() const override {
    return answer_.rfind("wait=", 0) == 0 ? static_cast<uint32_t>(std::strtoul(answer_.c_str() + 5, nullptr, 10)) : 0;
  }

  std::deque<std::string> answers;

 private:
  std::string answer_;
};

void log(otel_bridge::RingTracer& tracer, const std::string& events) {
  for (unsigned long i = std::strtoul(events.c_str(), nullptr, 10); i != 0; --i) {
    tracer.log_profiling_delegate("op", -1, i, i + 1);
  }
}

}  // namespace

int main() {
  static otel_bridge::StaticRingTracer<> tracer;
  otel_bridge::StreamInfo info;
  info.stream_id[0] = 1;
  otel_bridge::UploaderOptions options;
  options.initial_backoff_ms = 100;
  options.max_backoff_ms = 1000;
  options.platform.unix_ns = no_wall_clock;
  options.platform.now_ms = now_ms;
  options.platform.sleep_ms = pass;
  static unsigned char buffer[4096];
  Receiver receiver;
  std::optional<otel_bridge::Uploader> uploader;
  uploader.emplace(tracer, info, receiver, buffer, sizeof(buffer), options);
  for (const auto& line : script::read(stdin)) {
    switch (line[0][0]) {
      case 'B':
        tracer.create_event_block("Execute");
        log(tracer, line[1]);
        tracer.end_block();
        break;
      case 'O':
        tracer.create_event_block("Execute");
        log(tracer, line[1]);
        break;
      case 'E':
        log(tracer, line[1]);
        tracer.end_block();
        break;
      case 'D':
        log(tracer, line[1]);
        break;
      case 'N':
        uploader.emplace(tracer, info, receiver, buffer, std::strtoul(line[1].c_str(), nullptr, 10), options);
        break;
      case 'R':
        receiver.answers.push_back(line[1]);
        break;
      case 'W':
        pass(static_cast<uint32_t>(std::strtoul(line[1].c_str(), nullptr, 10)));
        break;
      case 'K':
        stuck = true;
        break;
      case 'P':
        std::printf("{\"poll\": %" PRIu32 ", \"now\": %" PRIu64 "}\n", uploader->poll(), now);
        break;
      case 'Q': {
        const bool flushed = uploader->flush(static_cast<uint32_t>(std::strtoul(line[1].c_str(), nullptr, 10)));
        std::printf("{\"flushed\": %s, \"now\": %" PRIu64 "}\n", flushed ? "true" : "false", now);
        break;
      }
      default:
        return 2;
    }
  }
  const otel_bridge::Uploader::Counts counts = uploader->counts();
  std::printf("{\"sent_events\": %" PRIu64 ", \"requests\": %" PRIu64 ", \"attempts\": %" PRIu64 ", \"waiting\": %" PRIu64
              ", \"rejected\": %" PRIu64 "}\n",
              counts.sent, counts.requests, counts.attempts, counts.waiting,
              uploader->dropped(otel_bridge::Drop::kRejected));
  return 0;
}
