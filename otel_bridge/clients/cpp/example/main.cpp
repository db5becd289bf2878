// Copyright (c) the otel-bridge authors. SPDX-License-Identifier: Apache-2.0
//
// A device program: runs a model and sends what the runtime says of it, by h2c gRPC or as text for a serial log.
//
//   otel-bridge-run MODEL.pte [--option VALUE]...
//
//     --server HOST:PORT      a bridge that takes h2c gRPC
//     --armour FILE           or: text for a serial log, "-" is standard output
//     --file FILE             or: length-delimited requests
//     --executions N          how often the method runs; 1
//     --method NAME           forward
//     --model NAME            alias of the mapping ...
//     --version VERSION       ... and its version
//     --build-id ID           the build itself; absent: the one that the program holds
//     --runtime-version V     of ExecuTorch
//     --traceparent VALUE     W3C trace context of every inference
//     --resource KEY=VALUE    attribute of the resource; repeatable
//     --load LIBRARY.so       a backend, loaded before; repeatable
//     --ring EVENTS           4096
//     --buffer BYTES          of a request; 65536
//     --pause-us US           between executions; 0
//     --patient 1             waits before an inference while half of the ring is used, so that none is lost; 0
//     --max-backoff-ms MS     longest wait between attempts; 30000
//     --flush-ms MS           how long to go on sending at the end; 30000
//
// Prints one line of JSON: what was produced, and what became of it. Exits with 1 where the model fails, 2 where options are
// wrong, 3 where not everything got through.
#include <dlfcn.h>
#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../otel_bridge.h"
#include "../otel_bridge_grpc.h"

namespace {

using executorch::extension::Module;
using executorch::extension::TensorPtr;
using executorch::runtime::Error;
using executorch::runtime::EValue;

struct Options {
  const char* model = nullptr;
  const char* server = nullptr;
  const char* armour = nullptr;
  const char* file = nullptr;
  const char* name = nullptr;
  const char* version = nullptr;
  const char* build_id = nullptr;
  const char* runtime_version = nullptr;
  const char* traceparent = nullptr;
  const char* method = "forward";
  std::vector<const char*> resource;
  std::vector<const char*> libraries;
  unsigned long executions = 1;
  unsigned long ring = 4096;
  unsigned long buffer = 65536;
  unsigned long max_backoff_ms = 30000;
  unsigned long flush_ms = 30000;
  unsigned long pause_us = 0;
  unsigned long patient = 0;
};

bool read_option(Options& options, const char* key, const char* value) {
  const struct {
    const char* key;
    const char** text;
    unsigned long* number;
    std::vector<const char*>* list;
  } known[] = {
      {"--server", &options.server, nullptr, nullptr},
      {"--armour", &options.armour, nullptr, nullptr},
      {"--file", &options.file, nullptr, nullptr},
      {"--model", &options.name, nullptr, nullptr},
      {"--version", &options.version, nullptr, nullptr},
      {"--build-id", &options.build_id, nullptr, nullptr},
      {"--runtime-version", &options.runtime_version, nullptr, nullptr},
      {"--traceparent", &options.traceparent, nullptr, nullptr},
      {"--method", &options.method, nullptr, nullptr},
      {"--resource", nullptr, nullptr, &options.resource},
      {"--load", nullptr, nullptr, &options.libraries},
      {"--executions", nullptr, &options.executions, nullptr},
      {"--ring", nullptr, &options.ring, nullptr},
      {"--buffer", nullptr, &options.buffer, nullptr},
      {"--max-backoff-ms", nullptr, &options.max_backoff_ms, nullptr},
      {"--flush-ms", nullptr, &options.flush_ms, nullptr},
      {"--pause-us", nullptr, &options.pause_us, nullptr},
      {"--patient", nullptr, &options.patient, nullptr},
  };
  for (const auto& option : known) {
    if (std::strcmp(option.key, key) != 0) {
      continue;
    }
    char* end = nullptr;
    if (option.text != nullptr) {
      *option.text = value;
    } else if (option.list != nullptr) {
      option.list->push_back(value);
    } else {
      *option.number = std::strtoul(value, &end, 10);
    }
    return end == nullptr || (end != value && *end == '\0');
  }
  return false;
}

bool read_options(Options& options, int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (argv[i][0] != '-') {
      options.model = argv[i];
    } else if (i + 1 == argc || !read_option(options, argv[i], argv[i + 1])) {
      std::fprintf(stderr, "%s: is not known, or needs another value\n", argv[i]);
      return false;
    } else {
      ++i;
    }
  }
  const int ways = (options.server != nullptr) + (options.armour != nullptr) + (options.file != nullptr);
  if (options.model == nullptr || ways != 1) {
    std::fprintf(stderr, "needs MODEL.pte, and one of --server, --armour and --file\n");
    return false;
  }
  return true;
}

/// Inputs of the shapes and types that the method asks for, all zero.
bool make_inputs(Module& module, const std::string& method, std::vector<TensorPtr>& tensors, std::vector<EValue>& inputs) {
  const auto meta = module.method_meta(method);
  if (!meta.ok()) {
    return false;
  }
  for (size_t i = 0; i < meta->num_inputs(); ++i) {
    const auto info = meta->input_tensor_meta(i);
    if (!info.ok()) {
      return false;
    }
    const auto sizes = info->sizes();
    tensors.push_back(executorch::extension::zeros({sizes.begin(), sizes.end()}, info->scalar_type()));
    inputs.emplace_back(tensors.back());
  }
  return true;
}

/// Runs the method again and again; the first error ends it.
Error execute(Module& module, otel_bridge::RingTracer& tracer, const Options& options) {
  std::vector<TensorPtr> tensors;
  std::vector<EValue> inputs;
  const std::string method = options.method;
  if (!make_inputs(module, method, tensors, inputs)) {
    return Error::InvalidProgram;
  }
  for (unsigned long i = 0; i < options.executions; ++i) {
    while (options.patient != 0 && tracer.is_pressed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    otel_bridge::Inference inference(tracer, options.method, options.traceparent);
    const Error error = module.execute(method, inputs).error();
    inference.end(error);
    if (error != Error::Ok) {
      return error;
    }
    if (options.pause_us != 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(options.pause_us));
    }
  }
  return Error::Ok;
}

/// Events that a receiver took the request of, and refused: files and logs refuse none.
using RejectedBy = uint64_t (*)(const otel_bridge::Transport& transport);

void print_counts(otel_bridge::Uploader& uploader, uint64_t rejected, Error error, bool flushed) {
  const otel_bridge::Uploader::Counts counts = uploader.counts();
  uint64_t produced = counts.sent + counts.waiting;
  std::string drops;
  for (size_t i = 0; i < otel_bridge::kDropReasons; ++i) {
    const auto reason = static_cast<otel_bridge::Drop>(i);
    if (const uint64_t events = uploader.dropped(reason)) {
      produced += events;
      drops += (drops.empty() ? "\"" : ", \"") + std::string(otel_bridge::name_of(reason)) + "\": " + std::to_string(events);
    }
  }
  std::printf("{\"produced\": %" PRIu64 ", \"sent\": %" PRIu64 ", \"rejected\": %" PRIu64 ", \"unsent\": %" PRIu64
              ", \"dropped\": {%s}, \"requests\": %" PRIu64 ", \"attempts\": %" PRIu64 ", \"flushed\": %s, \"error\": %u}\n",
              produced, counts.sent, rejected, counts.waiting, drops.c_str(), counts.requests, counts.attempts,
              flushed ? "true" : "false", static_cast<unsigned>(error));
}

int run(const Options& options, otel_bridge::Transport& transport, RejectedBy rejected_by) {
  otel_bridge::RingSizes sizes;
  sizes.events = static_cast<uint32_t>(options.ring);
  std::vector<unsigned char> memory(otel_bridge::RingMemory::bytes_for(sizes));
  std::vector<unsigned char> buffer(options.buffer);

  otel_bridge::Attributes<2048> resource;
  for (const char* pair : options.resource) {
    const std::string text = pair;
    const size_t equals = text.find('=');
    if (equals == std::string::npos ||
        !resource.add(text.substr(0, equals).c_str(), otel_bridge::Value::text(text.c_str() + equals + 1))) {
      std::fprintf(stderr, "--resource: %s is not KEY=VALUE, or there are too many\n", pair);
      return 2;
    }
  }

  auto owned = std::make_unique<otel_bridge::RingTracer>(otel_bridge::RingMemory(memory.data(), memory.size(), sizes));
  otel_bridge::RingTracer& tracer = *owned;
  Module module(options.model, Module::LoadMode::File, std::move(owned));
  char build_id[129];
  Error error = module.load();
  if (error == Error::Ok && options.build_id == nullptr) {
    otel_bridge::read_build_id(*module.program(), build_id, sizeof(build_id));
  }

  otel_bridge::StreamInfo info;
  otel_bridge::draw_stream_id(info.stream_id);
  info.model_name = options.name;
  info.model_version = options.version;
  info.build_id = options.build_id != nullptr ? options.build_id : error == Error::Ok ? build_id : nullptr;
  info.runtime_version = options.runtime_version;
  info.resource = resource.data();
  info.resource_size = resource.size();
  otel_bridge::UploaderOptions how;
  how.idle_ms = 20;
  how.max_backoff_ms = static_cast<uint32_t>(options.max_backoff_ms);
  otel_bridge::Uploader uploader(tracer, info, transport, buffer.data(), buffer.size(), how);

  std::atomic<bool> ended{false};
  std::thread sender([&] {
    while (!ended.load(std::memory_order_acquire)) {
      const uint32_t wait_ms = uploader.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms < how.idle_ms ? wait_ms : how.idle_ms));
    }
  });
  error = error == Error::Ok ? execute(module, tracer, options) : error;
  ended.store(true, std::memory_order_release);
  sender.join();
  const bool flushed = uploader.flush(static_cast<uint32_t>(options.flush_ms));
  print_counts(uploader, rejected_by(transport), error, flushed);
  return error != Error::Ok ? 1 : flushed ? 0 : 3;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!read_options(options, argc, argv)) {
    return 2;
  }
  for (const char* library : options.libraries) {
    if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      std::fprintf(stderr, "--load: %s\n", dlerror());
      return 2;
    }
  }
  if (options.server != nullptr) {
    otel_bridge::GrpcTransport transport(options.server);
    if (!transport.valid()) {
      std::fprintf(stderr, "--server: %s is not HOST:PORT\n", options.server);
      return 2;
    }
    return run(options, transport, [](const otel_bridge::Transport& it) {
      return static_cast<const otel_bridge::GrpcTransport&>(it).rejected();
    });
  }
  const char* path = options.armour != nullptr ? options.armour : options.file;
  std::FILE* file = std::strcmp(path, "-") == 0 ? stdout : std::fopen(path, "wb");
  if (file == nullptr) {
    std::perror(path);
    return 2;
  }
  otel_bridge::ArmourTransport armour(&otel_bridge::ArmourTransport::print_to_file, file);
  otel_bridge::FileTransport delimited(file);
  const RejectedBy nobody = [](const otel_bridge::Transport&) { return uint64_t{0}; };
  return options.armour != nullptr ? run(options, armour, nobody) : run(options, delimited, nobody);
}
