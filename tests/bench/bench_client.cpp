// What an event costs the executing thread: RingTracer beside ETDumpGen, the same calls, in turns.
//
//   bench_client MODEL.pte [ROUNDS EXECUTIONS]    prints one line of JSON: a list of [name, unit, subject, values...]
#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "otel_bridge.h"

namespace {

using executorch::etdump::ETDumpGen;
using executorch::extension::Module;
using executorch::runtime::EventTracer;

constexpr int kEvents = 4000;
int rounds = 25;
size_t executions = 300;  // of the model, a round

struct Large {
  static constexpr otel_bridge::RingSizes kSizes = {1U << 13, 512, 16384, 1U << 19, 1024, 512};
};
using Ring = otel_bridge::StaticRingTracer<Large>;

int64_t now_ns() {
  using std::chrono::nanoseconds;
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// -- the calls

const std::vector<std::string>& names() {
  static const std::vector<std::string> made = [] {
    std::vector<std::string> texts;
    for (int i = 0; i < 20; ++i) {
      texts.push_back("Convolution (NHWC, F32) IGEMM #" + std::to_string(i));
    }
    return texts;
  }();
  return made;
}

const char* name(int i) {
  return names()[static_cast<size_t>(i) % names().size()].c_str();
}

uint64_t start(int i) {
  return 1000 + static_cast<uint64_t>(i);
}

void operators(EventTracer& tracer) {
  for (int i = 0; i < kEvents; ++i) {
    tracer.end_profiling(tracer.start_profiling("native_call_add.out"));
  }
}

void delegates_by_text(EventTracer& tracer) {
  for (int i = 0; i < kEvents; ++i) {
    tracer.end_profiling_delegate(tracer.start_profiling_delegate(name(i), -1), nullptr, 0);
  }
}

void delegates_by_number(EventTracer& tracer) {
  for (int i = 0; i < kEvents; ++i) {
    tracer.end_profiling_delegate(tracer.start_profiling_delegate(nullptr, i % 20), nullptr, 0);
  }
}

void logged_by_text(EventTracer& tracer) {
  for (int i = 0; i < kEvents; ++i) {
    tracer.log_profiling_delegate(name(i), -1, start(i), start(i) + 1000, nullptr, 0);
  }
}

void logged_by_number(EventTracer& tracer) {
  for (int i = 0; i < kEvents; ++i) {
    tracer.log_profiling_delegate(nullptr, i % 20, start(i), start(i) + 1000, nullptr, 0);
  }
}

void logged_with_metadata(EventTracer& tracer) {
  char metadata[64] = {};
  for (int i = 0; i < kEvents; ++i) {
    metadata[0] = static_cast<char>(i % 20);
    tracer.log_profiling_delegate(name(i), -1, start(i), start(i) + 1000, metadata, sizeof(metadata));
  }
}

const struct {
  const char* name;
  void (*calls)(EventTracer&);
} kSubjects[] = {
    {"operator, start and end", operators},
    {"delegate event by text, start and end", delegates_by_text},
    {"delegate event by number, start and end", delegates_by_number},
    {"delegate event by text, logged", logged_by_text},
    {"delegate event by number, logged", logged_by_number},
    {"the same by text, with 64 B of metadata", logged_with_metadata},
};

// -- the table

bool first = true;

void print(const char* what, const char* unit, const char* subject, const std::vector<double>& values) {
  std::printf("%s[\"%s\", \"%s\", \"%s\"", first ? "[" : ", ", what, unit, subject);
  for (const double value : values) {
    std::printf(", %.3f", value);
  }
  std::printf("]");
  first = false;
}

double time_calls(void (*calls)(EventTracer&), EventTracer& tracer) {
  const int64_t begin = now_ns();
  calls(tracer);
  return static_cast<double>(now_ns() - begin) / kEvents;
}

/// Both tracers in turns; the ring's events are then encoded, which costs the other thread.
void measure_calls(unsigned char* buffer, size_t size) {
  static Ring ring;
  otel_bridge::StreamInfo info;
  otel_bridge::Encoder encoder(ring, info);
  for (const auto& subject : kSubjects) {
    std::vector<double> theirs, ours, encoding;
    for (int round = -2; round < rounds; ++round) {
      auto dump = std::make_unique<ETDumpGen>();
      dump->create_event_block("Execute");
      dump->set_chain_debug_handle(0, 3);
      const double their_ns = time_calls(subject.calls, *dump);
      ring.create_event_block("Execute");
      ring.set_chain_debug_handle(0, 3);
      const double our_ns = time_calls(subject.calls, ring);
      ring.end_block();
      const int64_t begin = now_ns();
      while (encoder.encode(buffer, size, true) != 0) {
        encoder.accept();
      }
      const double encode_ns = static_cast<double>(now_ns() - begin) / kEvents;
      if (round >= 0) {  // the first rounds warm up
        theirs.push_back(their_ns);
        ours.push_back(our_ns);
        encoding.push_back(encode_ns);
      }
    }
    print(subject.name, "ns an event", "ETDumpGen", theirs);
    print(subject.name, "ns an event", "RingTracer", ours);
    print(subject.name, "ns an event", "Encoder, on the other thread", encoding);
  }
}

/// A model without a tracer and with each, in turns from inference to inference, medians of rounds; and what its events weigh.
bool measure_model(const char* path, unsigned char* buffer, size_t size) {
  auto owned_ring = std::make_unique<Ring>();
  Ring& ring = *owned_ring;
  auto owned_dump = std::make_unique<ETDumpGen>();
  ETDumpGen& dump = *owned_dump;
  Module bare(path), dumped(path, Module::LoadMode::File, std::move(owned_dump)),
      traced(path, Module::LoadMode::File, std::move(owned_ring));
  const auto meta = bare.method_meta("forward");
  if (!meta.ok()) {
    return false;
  }
  const auto sizes = meta->input_tensor_meta(0)->sizes();
  const auto input = executorch::extension::ones({sizes.begin(), sizes.end()});
  otel_bridge::StreamInfo info;
  otel_bridge::Encoder encoder(ring, info);
  std::vector<double> values[3];
  double events = 0, request_bytes = 0, dump_bytes = 0;
  for (int round = -2; round < rounds; ++round) {
    Module* const modules[3] = {&bare, &dumped, &traced};
    std::vector<double> spent[3];
    for (size_t k = 0; k < executions; ++k) {
      for (int i = 0; i < 3; ++i) {
        const int64_t begin = now_ns();
        if (!modules[i]->forward(input).ok()) {
          return false;
        }
        spent[i].push_back(static_cast<double>(now_ns() - begin) / 1000);
      }
    }
    for (int i = 0; round >= 0 && i < 3; ++i) {
      std::nth_element(spent[i].begin(), spent[i].begin() + static_cast<std::ptrdiff_t>(executions / 2), spent[i].end());
      values[i].push_back(spent[i][executions / 2]);
    }
    const auto result = dump.get_etdump_data();  // a dump that is never taken grows without bound
    std::free(result.buf);
    const uint64_t before = encoder.events();
    size_t bytes = 0;
    ring.end_block();
    while (const size_t written = encoder.encode(buffer, size)) {
      bytes += written;
      encoder.accept();
    }
    events += static_cast<double>(encoder.events() - before);
    request_bytes += static_cast<double>(bytes);
    dump_bytes += static_cast<double>(result.size);
  }
  print("the XNNPACK model", "us an inference", "no tracer", values[0]);
  print("the XNNPACK model", "us an inference", "ETDumpGen", values[1]);
  print("the XNNPACK model", "us an inference", "RingTracer", values[2]);
  print("its events", "B an event", "ETDump", {dump_bytes / events});
  print("its events", "B an event", "requests", {request_bytes / events});
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4) {
    return 2;
  }
  if (argc == 4) {
    rounds = std::atoi(argv[2]);
    executions = std::strtoul(argv[3], nullptr, 10);
    if (rounds < 1 || executions < 1) {
      return 2;
    }
  }
  std::vector<unsigned char> buffer(1 << 16);
  executorch::runtime::pal_init();
  measure_calls(buffer.data(), buffer.size());
  const bool measured = measure_model(argv[1], buffer.data(), buffer.size());
  std::printf("]\n");
  return measured ? 0 : 1;
}
