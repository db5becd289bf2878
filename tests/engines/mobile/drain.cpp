// Runs a model as an app would: MODEL FOLDER EXECUTIONS. Two drains with so many executions before each, and drains that must not be.
#include "profiled_module.h"

#include <cstdlib>

#include <executorch/extension/tensor/tensor.h>

namespace {

std::vector<executorch::runtime::EValue> inputs_of(const char* path, std::vector<executorch::extension::TensorPtr>& kept) {
  ProfiledModule::Module module(path);
  const auto meta = module.method_meta("forward");
  std::vector<executorch::runtime::EValue> inputs;
  for (size_t i = 0; meta.ok() && i < meta->num_inputs(); ++i) {
    const auto sizes = meta->input_tensor_meta(i)->sizes();
    kept.push_back(executorch::extension::ones({sizes.begin(), sizes.end()}));
    inputs.emplace_back(*kept.back());
  }
  return inputs;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    return 64;
  }
  const std::string folder = argv[2];
  std::vector<executorch::extension::TensorPtr> kept;
  const auto inputs = inputs_of(argv[1], kept);
  ProfiledModule profiled(argv[1]);
  if (profiled.drain(folder + "/early.etdp")) {
    return 1;
  }
  for (const char* name : {"/first.etdp", "/second.etdp"}) {
    for (int run = 0; run < std::atoi(argv[3]); ++run) {
      if (!profiled.execute("forward", inputs).ok()) {
        return 2;
      }
    }
    if (!profiled.drain(folder + name)) {
      return 3;
    }
    if (profiled.drain(folder + "/again.etdp")) {
      return 4;
    }
  }
  profiled.execute("forward", inputs);
  return profiled.drain(folder + "/no/such/folder.etdp") ? 5 : 0;
}
