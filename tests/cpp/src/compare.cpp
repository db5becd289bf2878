// The same calls through ExecuTorch's ETDumpGen and through RingTracer, with one clock.
//
//   compare script ETDUMP REQUESTS < script
//   compare model ETDUMP REQUESTS MODEL.pte METHOD EXECUTIONS [LIBRARY.so]
#include <dlfcn.h>
#include <executorch/devtools/etdump/etdump_flatcc.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "otel_bridge.h"
#include "script.h"
#include "wheel_pal.h"

namespace {

using executorch::aten::Tensor;
using executorch::etdump::ETDumpGen;
using namespace executorch::runtime;  // NOLINT: the interface below is made of its names

/// Hands each call to both tracers, each of which reads the clock as if it were alone.
class Tee final : public EventTracer {
 public:
  Tee(EventTracer& first, EventTracer& second) : first_(first), second_(second) {}

  void create_event_block(const char* name) override {
    both([&](EventTracer& tracer) { tracer.create_event_block(name); });
  }
  EventTracerEntry start_profiling(const char* name, ChainID chain, DebugHandle handle) override {
    return started([&](EventTracer& tracer) { return tracer.start_profiling(name, chain, handle); });
  }
  void end_profiling(EventTracerEntry entry) override {
    ended(entry, [&](EventTracer& tracer, EventTracerEntry own) { tracer.end_profiling(own); });
  }
  EventTracerEntry start_profiling_delegate(const char* name, DelegateDebugIntId id) override {
    return started([&](EventTracer& tracer) { return tracer.start_profiling_delegate(name, id); });
  }
  void end_profiling_delegate(EventTracerEntry entry, const void* data, size_t size) override {
    ended(entry, [&](EventTracer& tracer, EventTracerEntry own) { tracer.end_profiling_delegate(own, data, size); });
  }
  void log_profiling_delegate(const char* name, DelegateDebugIntId id, et_timestamp_t start, et_timestamp_t end,
                              const void* data, size_t size) override {
    both([&](EventTracer& tracer) { tracer.log_profiling_delegate(name, id, start, end, data, size); });
  }
  void track_allocation(AllocatorID, size_t) override {}
  AllocatorID track_allocator(const char*) override { return 0; }
  Result<bool> log_evalue(const EValue&, LoggedEValueType) override { return false; }
  Result<bool> log_intermediate_output_delegate(const char*, DelegateDebugIntId, const Tensor&) override { return false; }
  Result<bool> log_intermediate_output_delegate(const char*, DelegateDebugIntId, const ArrayRef<Tensor>) override {
    return false;
  }
  Result<bool> log_intermediate_output_delegate(const char*, DelegateDebugIntId, const int&) override { return false; }
  Result<bool> log_intermediate_output_delegate(const char*, DelegateDebugIntId, const bool&) override { return false; }
  Result<bool> log_intermediate_output_delegate(const char*, DelegateDebugIntId, const double&) override { return false; }
  void set_delegation_intermediate_output_filter(EventTracerFilterBase*) override {}

 private:
  template <class Call>
  void both(Call call) {
    const et_timestamp_t now = wheel_pal::ticks;
    for (EventTracer* tracer : {&first_, &second_}) {
      wheel_pal::ticks = now;
      tracer->set_chain_debug_handle(chain_id_, debug_handle_);
      call(*tracer);
    }
  }
  template <class Call>
  EventTracerEntry started(Call call) {
    std::vector<EventTracerEntry> entries;
    both([&](EventTracer& tracer) { entries.push_back(call(tracer)); });
    EventTracerEntry entry{};
    entry.event_id = next_++;
    entries_[entry.event_id] = entries;
    return entry;
  }
  template <class Call>
  void ended(EventTracerEntry entry, Call call) {
    size_t index = 0;
    both([&](EventTracer& tracer) { call(tracer, entries_[entry.event_id][index++]); });
  }

  EventTracer& first_;
  EventTracer& second_;
  int64_t next_ = 0;
  std::map<int64_t, std::vector<EventTracerEntry>> entries_;
};

bool run_model(const char* path, const char* method, unsigned long executions, std::unique_ptr<Tee> tee) {
  executorch::extension::Module module(path, executorch::extension::Module::LoadMode::File, std::move(tee));
  const auto meta = module.method_meta(method);
  if (!meta.ok()) {
    return false;
  }
  std::vector<executorch::extension::TensorPtr> tensors;
  std::vector<EValue> inputs;
  for (size_t i = 0; i < meta->num_inputs(); ++i) {
    const auto info = meta->input_tensor_meta(i);
    const auto sizes = info->sizes();
    tensors.push_back(executorch::extension::ones({sizes.begin(), sizes.end()}, info->scalar_type()));
    inputs.emplace_back(tensors.back());
  }
  for (unsigned long i = 0; i < executions; ++i) {
    if (!module.execute(method, inputs).ok()) {
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || !wheel_pal::install()) {
    return 2;
  }
  static otel_bridge::StaticRingTracer<> ring;
  ETDumpGen dump;
  auto tee = std::make_unique<Tee>(dump, ring);
  if (std::strcmp(argv[1], "script") == 0) {
    script::Player player;
    for (const auto& line : script::read(stdin)) {
      if (!player.play(*tee, line)) {
        return 2;
      }
    }
  } else if (argc < 7 || (argc > 7 && dlopen(argv[7], RTLD_NOW | RTLD_GLOBAL) == nullptr) ||
             !run_model(argv[4], argv[5], std::strtoul(argv[6], nullptr, 10), std::move(tee))) {
    return 2;
  }
  ring.end_block();

  const executorch::etdump::ETDumpResult result = dump.get_etdump_data();
  std::FILE* etdump = std::fopen(argv[2], "wb");
  std::FILE* requests = std::fopen(argv[3], "wb");
  if (result.buf == nullptr || etdump == nullptr || requests == nullptr) {
    return 2;
  }
  const bool dumped = std::fwrite(result.buf, 1, result.size, etdump) == result.size && std::fclose(etdump) == 0;
  std::free(result.buf);

  otel_bridge::StreamInfo info;
  info.stream_id[0] = 1;
  otel_bridge::FileTransport file(requests);
  static unsigned char buffer[1 << 20];
  otel_bridge::Uploader uploader(ring, info, file, buffer, sizeof(buffer));
  const bool flushed = uploader.flush(1000);
  std::fclose(requests);
  return dumped && flushed ? 0 : 1;
}
