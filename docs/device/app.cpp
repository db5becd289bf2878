#include <executorch/extension/module/module.h>
#include <executorch/extension/tensor/tensor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "otel_bridge.h"
#include "otel_bridge_grpc.h"

using executorch::extension::Module;

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }

  // The tracer goes to the module, which owns it. Its memory is part of it: no event allocates.
  auto owned = std::make_unique<otel_bridge::StaticRingTracer<>>();
  otel_bridge::RingTracer& tracer = *owned;
  Module module(argv[1], Module::LoadMode::File, std::move(owned));
  if (module.load_forward() != executorch::runtime::Error::Ok) {  // so that no inference has to load first
    return 1;
  }

  // Who and what this process is. It is said in each request, so requests can be understood alone.
  char build_id[129];
  otel_bridge::read_build_id(*module.program(), build_id, sizeof(build_id));
  otel_bridge::Attributes<512> resource;
  resource.add("service.name", otel_bridge::Value::text("camera"));
  resource.add("device.model.identifier", otel_bridge::Value::text("SM-S918B"));
  otel_bridge::StreamInfo info;
  otel_bridge::draw_stream_id(info.stream_id);
  info.model_name = "classifier";
  info.model_version = "1.0";
  info.build_id = build_id;  // empty: the alias decides
  info.resource = resource.data();
  info.resource_size = resource.size();

  // Another thread drains and sends. It never makes the executing thread wait.
  otel_bridge::GrpcTransport transport(argv[2]);
  static unsigned char buffer[65536];
  otel_bridge::Uploader uploader(tracer, info, transport, buffer, sizeof(buffer));
  std::atomic<bool> ended{false};
  std::thread sender([&] {
    while (!ended) {
      const uint32_t wait_ms = uploader.poll();
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms < 100 ? wait_ms : 100));
    }
  });

  const auto image = executorch::extension::ones({1, 3, 32, 32});
  for (int i = 0; i < 20; ++i) {
    otel_bridge::Inference inference(tracer, "forward", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    tracer.set_attribute("executorch.threads", otel_bridge::Value::integer(4));
    inference.end(module.forward(image).error());
  }

  ended = true;
  sender.join();
  return uploader.flush(5000) ? 0 : 3;
}
